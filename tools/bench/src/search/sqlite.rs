//! The same data in SQLite, in this process: a row per tag, an index on numbers, on texts and on reversed
//! texts, and its own index of trigrams (FTS5). Journal `WAL`, synced at checkpoints only, so that a commit
//! waits for no disk, as with slabfs until a client syncs.

use std::path::{Path, PathBuf};

use anyhow::Context;
use rusqlite::{Connection, OptionalExtension, Statement, params};

use super::data::{Data, Look, Value};

const SCHEMA: &str = "
    CREATE TABLE objects (id INTEGER PRIMARY KEY, path TEXT NOT NULL);
    CREATE TABLE tags (id INTEGER PRIMARY KEY, object INTEGER NOT NULL, key TEXT NOT NULL,
                       number REAL, text TEXT, reversed TEXT);
    CREATE VIRTUAL TABLE trigrams USING fts5(text, content='', contentless_delete=1, tokenize='trigram');";
const INDEXES: &str = "
    CREATE UNIQUE INDEX by_object ON tags (object, key);
    CREATE INDEX by_number ON tags (key, number) WHERE number IS NOT NULL;
    CREATE INDEX by_text ON tags (key, text) WHERE text IS NOT NULL;
    CREATE INDEX by_reversed ON tags (key, reversed) WHERE reversed IS NOT NULL;
    ANALYZE;";

/// A database on disk.
#[derive(Debug, Clone)]
pub(crate) struct Sqlite {
    path: PathBuf,
}

/// One thread's connection.
pub(crate) struct Client {
    connection: Connection,
}

impl Sqlite {
    /// Makes a database with all of `data`.
    pub(crate) fn load(path: &Path, data: Data) -> anyhow::Result<Sqlite> {
        let sqlite = Sqlite {
            path: path.to_owned(),
        };
        let mut client = sqlite.connect()?;
        client
            .connection
            .execute_batch(SCHEMA)
            .context("the schema")?;
        let transaction = client.connection.transaction()?;
        for object in 0..data.objects {
            transaction
                .prepare_cached("INSERT INTO objects VALUES (?, ?)")?
                .execute(params![object as i64, Data::path(object)])?;
            for (key, value) in data.tags(object) {
                insert(&transaction, object, key, &value)?;
            }
        }
        transaction.execute_batch(INDEXES)?;
        transaction.commit()?;
        Ok(sqlite)
    }

    /// Another connection.
    pub(crate) fn connect(&self) -> anyhow::Result<Client> {
        let connection = Connection::open(&self.path).context("opening the database")?;
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 60000;
             PRAGMA cache_size = -131072; PRAGMA mmap_size = 1073741824;",
        )?;
        connection.set_prepared_statement_cache_capacity(32);
        Ok(Client { connection })
    }
}

impl Client {
    /// Paths that a query finds.
    pub(crate) fn query(
        &mut self,
        data: Data,
        look: Look,
        group: u64,
    ) -> anyhow::Result<Vec<String>> {
        let word = Data::word(look, group);
        let sql = match look {
            Look::Exact => {
                "SELECT path FROM tags JOIN objects ON objects.id = object WHERE key = 'run' AND number = ?1"
            }
            Look::Range => {
                "SELECT path FROM tags JOIN objects ON objects.id = object
                 WHERE key = 'temperature' AND number >= ?1 AND number <= ?2"
            }
            Look::Prefix => {
                "SELECT path FROM tags JOIN objects ON objects.id = object
                 WHERE key = 'label' AND text >= ?1 AND text < ?2"
            }
            Look::Suffix => {
                "SELECT path FROM tags JOIN objects ON objects.id = object
                 WHERE key = 'label' AND reversed >= ?1 AND reversed < ?2"
            }
            Look::Infix => {
                "SELECT path FROM trigrams JOIN tags ON tags.id = trigrams.rowid
                 JOIN objects ON objects.id = object WHERE trigrams MATCH ?1 AND key = 'label'"
            }
            Look::Both => {
                "SELECT path FROM tags AS rare JOIN tags AS common
                 ON common.object = rare.object AND common.key = 'quality' AND common.text = 'common'
                 JOIN objects ON objects.id = rare.object WHERE rare.key = 'run' AND rare.number = ?1"
            }
        };
        let mut statement = self.connection.prepare_cached(sql)?;
        match look {
            Look::Exact | Look::Both => paths(&mut statement, params![group as f64]),
            Look::Range => {
                let (from, to) = data.range(group);
                paths(&mut statement, params![from, to])
            }
            Look::Prefix => paths(&mut statement, params![word, behind(&word)]),
            Look::Suffix => {
                let reversed: String = word.chars().rev().collect();
                paths(&mut statement, params![reversed, behind(&reversed)])
            }
            Look::Infix => paths(&mut statement, params![format!("\"{word}\"")]),
        }
    }

    /// Sets the tag `mark` of objects, all in one transaction.
    pub(crate) fn put(&mut self, marks: &[(u64, Value)]) -> anyhow::Result<()> {
        let transaction = self
            .connection
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        for (object, value) in marks {
            let old: Option<i64> = transaction
                .prepare_cached("DELETE FROM tags WHERE object = ? AND key = 'mark' RETURNING id")?
                .query_row([*object as i64], |row| row.get(0))
                .optional()?;
            if let Some(id) = old {
                transaction
                    .prepare_cached("DELETE FROM trigrams WHERE rowid = ?")?
                    .execute([id])?;
            }
            insert(&transaction, *object, "mark", value)?;
        }
        transaction.commit()?;
        Ok(())
    }
}

fn insert(connection: &Connection, object: u64, key: &str, value: &Value) -> anyhow::Result<()> {
    let (number, text) = match value {
        Value::Int(number) => (Some(*number as f64), None),
        Value::Float(number) => (Some(*number), None),
        Value::Text(text) => (None, Some(text)),
    };
    let reversed: Option<String> = text.map(|text| text.chars().rev().collect());
    connection
        .prepare_cached(
            "INSERT INTO tags (object, key, number, text, reversed) VALUES (?, ?, ?, ?, ?)",
        )?
        .execute(params![object as i64, key, number, text, reversed])?;
    if let Some(text) = text {
        let id = connection.last_insert_rowid();
        connection
            .prepare_cached("INSERT INTO trigrams (rowid, text) VALUES (?, ?)")?
            .execute(params![id, text])?;
    }
    Ok(())
}

fn paths(
    statement: &mut Statement<'_>,
    values: &[&dyn rusqlite::ToSql],
) -> anyhow::Result<Vec<String>> {
    let rows = statement.query_map(values, |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The first text after all that begin with `word`, whose last character is ASCII.
fn behind(word: &str) -> String {
    let mut bytes = word.as_bytes().to_vec();
    if let Some(last) = bytes.last_mut() {
        *last += 1;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_query_finds_what_it_should() {
        let dir = tempfile::tempdir().expect("dir");
        let data = Data { objects: 1000 };
        let sqlite = Sqlite::load(&dir.path().join("db"), data).expect("loaded");
        let mut client = sqlite.connect().expect("connected");
        for &look in Look::value_variants() {
            for group in [0, 1, 57, 99] {
                let found = client.query(data, look, group).expect("found");
                assert_eq!(found.len(), look.results(), "{look:?} {group}");
            }
        }
        for text in ["first", "second"] {
            client
                .put(&[(5, Value::Text(text.to_owned())), (6, Value::Int(3))])
                .expect("put");
        }
        let count: i64 = client
            .connection
            .query_row("SELECT count(*) FROM tags WHERE key = 'mark'", [], |row| {
                row.get(0)
            })
            .expect("counted");
        assert_eq!(count, 2);
    }
}
