//! Which service a data directory belongs to, and whether a service may use it: only its own directory, or a new one
//! that is empty. Nothing here changes anything, so that a start can be refused before it has left a trace.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};

use crate::failure::usage;
use crate::pidfile::{self, Found};

/// The service that a data directory belongs to, by the files in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// `slabfs up`; contains the directories of its services.
    Up,
    /// `slabfs mdserver`.
    Mdserver,
    /// `slabfs objserver`.
    Objserver,
}

impl Owner {
    /// The service that used `dir` before; `None` if none is recognised.
    pub(crate) fn of(dir: &Path) -> Option<Owner> {
        if has_chunks(dir) {
            Some(Owner::Objserver)
        } else if dir.join("LOCK").is_file() || has_metadata(dir) {
            Some(Owner::Mdserver)
        } else if dir.join("md/LOCK").is_file() || has_metadata(&dir.join("md")) {
            Some(Owner::Up)
        } else {
            None
        }
    }

    fn command(self) -> &'static str {
        match self {
            Owner::Up => "slabfs up",
            Owner::Mdserver => "slabfs mdserver",
            Owner::Objserver => "slabfs objserver",
        }
    }

    /// Whether a service of this kind has stored something in `dir`.
    fn has_used(self, dir: &Path) -> bool {
        match self {
            Owner::Up => has_metadata(&dir.join("md")),
            Owner::Mdserver => has_metadata(dir),
            Owner::Objserver => has_chunks(dir),
        }
    }

    /// Whether an entry may be in a directory that this service has not used yet.
    fn expects(self, entry: &DirEntry) -> bool {
        use std::os::unix::fs::FileTypeExt;
        let name = entry.file_name();
        // Bytes that are no text are replaced, and no expected name has the replacement.
        let name = name.to_string_lossy();
        let own = match self {
            Owner::Up => {
                matches!(&*name, "md" | "slabfs.log" | "slabfs.log.old")
                    || name
                        .strip_prefix("os")
                        .is_some_and(|number| number.parse::<u16>().is_ok())
            }
            // Of a first start that was killed, and of a load that was interrupted.
            Owner::Mdserver => {
                matches!(&*name, "LOCK" | "checkpoint.tmp" | "unfinished-load")
            }
            Owner::Objserver => matches!(&*name, "lock" | "FORMAT.tmp" | "FORMAT.copy.tmp"),
        };
        own || matches!(&*name, "lost+found" | "slabfs.pid")
            || entry.file_type().is_ok_and(|kind| kind.is_socket())
    }

    /// Fails for a directory of another command, one with files of other programs, or one on which a process
    /// runs: two stores would not see each other. `log`: the log file of a start.
    pub(crate) fn claim(self, dir: &Path, log: Option<&Path>) -> anyhow::Result<()> {
        let shown = dir.display();
        if let Ok(Found::Running(pid)) = pidfile::find(dir) {
            bail!(
                "the data directory {shown} is locked: it is in use by another process ({pid}); stop that one with `slabfs stop --data {shown}`, or choose another directory with --data"
            );
        }
        if let Some(other) = Owner::of(dir)
            && other != self
        {
            bail!(
                "the data directory {shown} holds the data of `{}`; use that command, or choose another directory with --data",
                other.command()
            );
        }
        if self != Owner::Up {
            return self.is_free(dir, log);
        }
        let parts = servers_in(dir);
        if !self.has_used(dir) {
            if let Some(part) = parts.iter().find(|part| has_chunks(part)) {
                return Err(without_metadata(dir, part));
            }
            self.is_free(dir, None)?;
        }
        Owner::Mdserver.is_free(&dir.join("md"), log)?;
        parts
            .iter()
            .try_for_each(|part| Owner::Objserver.is_free(part, log))
    }

    /// Fails if the service has not used `dir` before and something unexpected is in it.
    fn is_free(self, dir: &Path, log: Option<&Path>) -> anyhow::Result<()> {
        if self.has_used(dir) {
            return Ok(());
        }
        let shown = dir.display();
        if log.is_some_and(|log| same_place(log.parent(), dir)) {
            return Err(usage(format!(
                "the log file would be in {shown}, which must be empty when `{}` uses it for the first time; choose a log file outside with --log-file",
                self.command()
            )));
        }
        match unexpected(dir, |entry| self.expects(entry)) {
            Ok(None) => Ok(()),
            Ok(Some(found)) => Err(anyhow!(
                "the data directory {shown} is not empty and holds no data of `{}` (it has {found}); choose an empty directory with --data, or restore the missing files if it was one",
                self.command()
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_link(dir) {
                Ok(to) => Err(anyhow!(
                    "{shown} leads to {}, which does not exist; is its disk mounted?",
                    to.display()
                )),
                Err(_) => Ok(()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(anyhow!(
                "the data directory {shown} is not a directory; choose another with --data"
            )),
            Err(error) => Err(error).with_context(|| {
                format!("cannot look into the data directory {shown}; choose another with --data")
            }),
        }
    }
}

/// Whether a data server has used `dir`.
fn has_chunks(dir: &Path) -> bool {
    let local = dir.join("FORMAT").is_file() || dir.join("FORMAT.copy").is_file();
    // The cache of a bucket.
    local || dir.join("identity").is_file()
}

/// Whether there is a journal or a checkpoint in `dir`.
fn has_metadata(dir: &Path) -> bool {
    // A copy of a journal in etcd.
    if dir.join("copy.json").is_file() {
        return true;
    }
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.any(|name| {
        let number = |prefix| {
            let number = name.strip_prefix(prefix);
            number.is_some_and(|n| n.len() == 20 && n.bytes().all(|byte| byte.is_ascii_digit()))
        };
        number("journal-") || number("checkpoint-")
    })
}

/// The directories of data servers in the directory of an `up`, in the order of their numbers; of links only those
/// that lead somewhere.
fn servers_in(dir: &Path) -> Vec<PathBuf> {
    let parts = (1..=256).map(|number| dir.join(format!("os{number}")));
    parts.filter(|part| part.exists()).collect()
}

/// The name of an entry of `dir` that `expected` does not take.
fn unexpected(dir: &Path, expected: impl Fn(&DirEntry) -> bool) -> io::Result<Option<String>> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !expected(&entry) {
            return Ok(Some(entry.file_name().to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

fn same_place(one: Option<&Path>, other: &Path) -> bool {
    let full = |path: &Path| {
        let path = std::path::absolute(path).ok()?;
        Some(path.canonicalize().unwrap_or(path))
    };
    one.and_then(full)
        .is_some_and(|one| full(other) == Some(one))
}

/// The error for chunks whose metadata is lost.
fn without_metadata(dir: &Path, part: &Path) -> anyhow::Error {
    let md = dir.join("md");
    let state = match (fs::read_link(&md), md.exists()) {
        (Ok(to), false) => format!("leads to {}, which does not exist", to.display()),
        (_, true) => "holds no metadata".to_owned(),
        (_, false) => "is missing".to_owned(),
    };
    let (md, part, dir) = (md.display(), part.display(), dir.display());
    anyhow!(
        "the metadata directory {md} {state}, and {part} holds chunks, which cannot be read without it; put it back (mount its disk, restore a copy, or load a dump with `slabfs meta load FILE --data {md}`). For a new filesystem choose an empty directory with --data; nothing in {dir} was changed"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of the first journal file.
    const JOURNAL: &str = "journal-00000000000000000001";

    #[test]
    fn a_directory_belongs_to_one_command() {
        let dir = tempfile::tempdir().expect("dir");
        let (up, md) = (dir.path(), dir.path().join("md"));
        Owner::Up.claim(up, None).expect("unused");
        fs::create_dir(&md).expect("dir");
        fs::write(md.join("LOCK"), "").expect("file");
        Owner::Up.claim(up, None).expect("its own");
        Owner::Mdserver.claim(&md, None).expect("its own");
        let error = Owner::Mdserver.claim(up, None).expect_err("of another");
        assert!(error.to_string().contains("`slabfs up`"), "{error}");
        assert!(Owner::Up.claim(&md, None).is_err());
        assert!(Owner::Objserver.claim(&md, None).is_err());
        let _running = pidfile::PidFile::write(up).expect("pid file");
        let error = Owner::Up.claim(up, None).expect_err("in use").to_string();
        assert!(error.contains("slabfs stop --data"), "{error}");
    }

    #[test]
    fn files_of_others_are_refused() {
        for owner in [Owner::Up, Owner::Mdserver, Owner::Objserver] {
            let tmp = tempfile::tempdir().expect("dir");
            let dir = tmp.path();
            fs::create_dir(dir.join("lost+found")).expect("dir");
            owner.claim(dir, None).expect("a new disk");
            fs::write(dir.join("thesis.tex"), "").expect("file");
            let error = owner.claim(dir, None).expect_err("refused").to_string();
            assert!(
                error.contains("not empty") && error.contains("thesis.tex"),
                "{error}"
            );
            let file = dir.join("thesis.tex");
            let error = owner.claim(&file, None).expect_err("a file").to_string();
            assert!(error.contains("is not a directory"), "{error}");
            let own = match owner {
                Owner::Up => "md/".to_owned() + JOURNAL,
                Owner::Mdserver => JOURNAL.to_owned(),
                Owner::Objserver => "FORMAT".to_owned(),
            };
            fs::create_dir_all(dir.join(&own).parent().expect("a parent")).expect("dir");
            fs::write(dir.join(own), "").expect("file");
            owner.claim(dir, None).expect("its own, with another file");
        }
    }

    #[test]
    fn a_log_in_a_new_directory_is_refused() {
        let tmp = tempfile::tempdir().expect("dir");
        let (inside, outside) = (tmp.path().join("md/log"), tmp.path().join("log"));
        let md = tmp.path().join("md");
        let error = Owner::Mdserver
            .claim(&md, Some(&inside))
            .expect_err("in it");
        assert_eq!(crate::failure::status(&error), crate::failure::USAGE);
        Owner::Mdserver.claim(&md, Some(&outside)).expect("outside");
        Owner::Up
            .claim(tmp.path(), Some(&outside))
            .expect("an up has its log in it");
        fs::create_dir(&md).expect("dir");
        fs::write(md.join(JOURNAL), "").expect("file");
        Owner::Mdserver
            .claim(&md, Some(&inside))
            .expect("used already");
    }

    #[test]
    fn chunks_without_their_metadata_are_refused() {
        let tmp = tempfile::tempdir().expect("dir");
        let (md, os) = (tmp.path().join("md"), tmp.path().join("os2"));
        fs::create_dir(&os).expect("dir");
        Owner::Up.claim(tmp.path(), None).expect("an empty disk");
        fs::write(os.join("FORMAT"), "").expect("file");
        let refused = || {
            Owner::Up
                .claim(tmp.path(), None)
                .expect_err("lost")
                .to_string()
        };
        assert!(refused().contains("md is missing"), "{}", refused());
        std::os::unix::fs::symlink("/no/disk", &md).expect("a link");
        assert!(refused().contains("/no/disk"), "{}", refused());
        fs::remove_file(&md).expect("removed");
        fs::create_dir(&md).expect("dir");
        assert!(refused().contains("holds no metadata"), "{}", refused());
        fs::write(md.join(JOURNAL), "").expect("file");
        Owner::Up.claim(tmp.path(), None).expect("complete");
    }
}
