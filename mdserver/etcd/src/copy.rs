//! The copy of the metadata in a service's directory: a [`LocalKv`] that is brought up to the log.
//!
//! `copy/` is the store. `copy.json` says of which log it is. The file `leading` is there while its service is the
//! leader: the copy may have commits then that the log has not, and is discarded at the next start if the service did
//! not end in order.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use slabfs_mdserver::kv::{KvOptions, LocalKv, Lsn, MetaKv, Source};

use crate::checkpoints::Checkpoints;
use crate::error::EtcdError;
use crate::log::{Log, Read};

const COPY: &str = "copy";
const OF: &str = "copy.json";
const LEADING: &str = "leading";
/// A checkpoint from a bucket, while it is loaded.
const FETCHED: &str = "checkpoint.fetched";

#[derive(Debug, Serialize, Deserialize)]
struct Of {
    store: String,
}

/// The directory of a service.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    dir: PathBuf,
}

/// An open copy.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) kv: LocalKv,
    /// The last commit in it.
    pub(crate) last: Lsn,
}

impl Place {
    /// The directory, if it is empty or has a copy of this log.
    pub(crate) fn new(dir: &Path, log: &Log) -> Result<Place, EtcdError> {
        let place = Place {
            dir: dir.to_owned(),
        };
        let of = dir.join(OF);
        match fs::read(&of) {
            Ok(text) => {
                let found: Of = serde_json::from_slice(&text).map_err(|error| {
                    EtcdError::Content(format!("{} is unreadable: {error}", of.display()))
                })?;
                if found.store != log.id() {
                    return Err(EtcdError::Content(format!(
                        "{} has a copy of other metadata than {}; give another directory with --data",
                        dir.display(),
                        log.etcd().addr()
                    )));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Place::check_new(dir)?;
                let found = Of {
                    store: log.id().to_owned(),
                };
                let text = serde_json::to_vec(&found).unwrap_or_default();
                fs::write(&of, text).map_err(|error| EtcdError::io("write", &of, &error))?;
            }
            Err(error) => return Err(EtcdError::io("read", &of, &error)),
        }
        Ok(place)
    }

    /// Fails if a directory has metadata of its own.
    pub(crate) fn check_new(dir: &Path) -> Result<(), EtcdError> {
        let failed = |error: io::Error| EtcdError::io("list", dir, &error);
        for entry in fs::read_dir(dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let local = name.to_str().is_some_and(|name| {
                name.starts_with("journal-") || name.starts_with("checkpoint-")
            });
            if local {
                return Err(EtcdError::Content(format!(
                    "{} has metadata of its own, whose journal is not in etcd; give another directory with --data",
                    dir.display()
                )));
            }
        }
        Ok(())
    }

    /// The store's directory.
    pub(crate) fn store(&self) -> PathBuf {
        inside(&self.dir)
    }

    /// Opens the copy, rebuilt from the checkpoint if it cannot follow the log.
    pub(crate) fn open(
        &self,
        log: &Log,
        checkpoints: &Checkpoints,
        options: &KvOptions,
    ) -> Result<Copy, EtcdError> {
        if self.dir.join(LEADING).exists() {
            tracing::info!(
                "the copy was that of a leader that did not end in order: it is rebuilt"
            );
            self.discard()?;
        }
        loop {
            let pointer = log.checkpoint()?;
            let store = self.store();
            if !store.exists()
                && let Some(pointer) = &pointer
            {
                let fetched = self.dir.join(FETCHED);
                let file = checkpoints.file(pointer, &fetched);
                let source = match file.and_then(|file| Ok(Source::open(&file)?)) {
                    Ok(source) => source,
                    // Two newer ones may have been stored meanwhile.
                    Err(_) if log.checkpoint()?.as_ref() != Some(pointer) => continue,
                    Err(error) => return Err(error),
                };
                let unfinished = self.dir.join("copy.new");
                remove_all(&unfinished)?;
                let pairs = source.load(&unfinished, BTreeMap::new(), &|_, value| value)?;
                fs::rename(&unfinished, &store)
                    .map_err(|error| EtcdError::io("rename", &unfinished, &error))?;
                if fetched.exists() {
                    fs::remove_file(&fetched)
                        .map_err(|error| EtcdError::io("remove", &fetched, &error))?;
                }
                tracing::info!(pairs, last = pointer.last, "loaded the checkpoint");
            }
            let (kv, found) = match LocalKv::open(&store, options.clone()) {
                Ok(opened) => opened,
                Err(error @ slabfs_mdserver::kv::KvError::Damaged { .. }) => {
                    tracing::warn!("the copy is rebuilt: {error}");
                    self.discard()?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let mut copy = Copy {
                kv,
                last: found.last,
            };
            match copy.follow(log)? {
                true => return Ok(copy),
                false => {
                    copy.kv.close()?;
                    drop(copy);
                    tracing::info!("the copy is too old for the log: it is rebuilt");
                    self.discard()?;
                }
            }
        }
    }

    /// Marks the copy as that of a leader.
    pub(crate) fn mark(&self) -> Result<(), EtcdError> {
        let path = self.dir.join(LEADING);
        let made = File::create(&path)
            .and_then(|file| file.sync_all())
            .and_then(|()| File::open(&self.dir)?.sync_all());
        made.map_err(|error| EtcdError::io("create", &path, &error))
    }

    /// Removes the mark: the copy has no commit that the log has not.
    pub(crate) fn unmark(&self) -> Result<(), EtcdError> {
        let path = self.dir.join(LEADING);
        fs::remove_file(&path).map_err(|error| EtcdError::io("remove", &path, &error))
    }

    pub(crate) fn discard(&self) -> Result<(), EtcdError> {
        remove_all(&self.store())?;
        match self.unmark() {
            Err(error) if self.dir.join(LEADING).exists() => Err(error),
            _ => Ok(()),
        }
    }
}

/// The store in the directory of a service.
pub(crate) fn inside(dir: &Path) -> PathBuf {
    dir.join(COPY)
}

fn remove_all(dir: &Path) -> Result<(), EtcdError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(EtcdError::io("remove", dir, &error))
        }
        _ => Ok(()),
    }
}

impl Copy {
    /// Applies what is new in the log; false if it has to be rebuilt.
    pub(crate) fn follow(&mut self, log: &Log) -> Result<bool, EtcdError> {
        loop {
            let commits = match log.read(self.last)? {
                Read::Removed => return Ok(false),
                Read::Commits(commits) if commits.is_empty() => return Ok(true),
                Read::Commits(commits) => commits,
            };
            for (lsn, batch) in commits {
                let got = self.kv.commit(batch)?;
                if got != lsn {
                    return Err(EtcdError::Content(format!(
                        "commit {lsn} of the log is commit {got} of the copy"
                    )));
                }
                self.last = lsn;
            }
        }
    }
}
