//! The write end of the journal: appends frames, one `write` each, and rotates files. A failed write is truncated; a
//! failed sync poisons the journal.
//!
//! Invariants: bytes after `offset` are never part of an acknowledged frame. A file's [`Kind::Next`] frame is written
//! only after the next file is durable, so a missing file is always noticed.
//!
//! Deliberately elsewhere: reading (`walk`, `replay`) and waiting for the disk (`sync`).

use super::disk::{Ground, Id, journal_name, remove, sync_dir};
use super::frame::{Draft, HEADER, Header, Kind};
use super::{KvError, Lsn};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One journal file that is open for writing.
#[derive(Debug)]
pub(super) struct JournalFile {
    /// The file.
    pub(super) file: File,
    /// Where it is.
    pub(super) path: PathBuf,
    /// Its number.
    pub(super) number: u64,
}

impl JournalFile {
    /// Creates file `number` with its header, durably, and preallocates blocks for `reserve` bytes: so much can still
    /// be committed (for example the removal of names) after data has filled the disk.
    pub(super) fn create(
        dir: &Path,
        ground: &Ground,
        (store, number): (Id, u64),
        reserve: u64,
    ) -> Result<Self, KvError> {
        let path = dir.join(journal_name(number));
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let file = opened.map_err(|error| KvError::io("create", &path, &error))?;
        let file = Self { file, path, number };
        match file.begin("create", dir, ground, (store, reserve)) {
            Ok(()) => Ok(file),
            Err(error) => {
                remove(&file.path)?;
                Err(error)
            }
        }
    }

    /// Reuses file `number`, whose good frames end at `end`. Its blocks are preallocated already, so that a store on a
    /// full disk opens.
    pub(super) fn reuse(
        dir: &Path,
        ground: &Ground,
        (store, number): (Id, u64),
        (end, reserve): (u64, u64),
    ) -> Result<Self, KvError> {
        let path = dir.join(journal_name(number));
        let failed = |error| KvError::io("open", &path, &error);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        if file.metadata().map_err(failed)?.len() > end {
            ground.disk.truncate(&file, end).map_err(failed)?;
        }
        let file = Self { file, path, number };
        file.begin("open", dir, ground, (store, reserve))?;
        Ok(file)
    }

    /// Preallocates blocks and writes the header, durably.
    fn begin(
        &self,
        action: &'static str,
        dir: &Path,
        ground: &Ground,
        (store, reserve): (Id, u64),
    ) -> Result<(), KvError> {
        let Self { file, path, number } = self;
        if let Err(error) = ground.disk.reserve(file, 0, reserve) {
            tracing::debug!(%error, path = %path.display(), "cannot preallocate blocks");
        }
        let header = Header {
            store,
            boot: ground.boot.unwrap_or_default(),
            number: *number,
        };
        let written = ground.disk.write_at(file, &header.encode(), 0);
        let written = written.and_then(|()| ground.disk.sync_data(file));
        written.map_err(|error| KvError::io(action, path, &error))?;
        sync_dir(dir)
    }
}

#[derive(Debug, Clone)]
enum Health {
    Good,
    Poisoned { path: PathBuf, detail: String },
    Closed,
}

/// The journal, open for appending.
#[derive(Debug)]
pub(super) struct Journal {
    ground: Ground,
    file: Arc<JournalFile>,
    /// Where the next frame goes.
    offset: u64,
    /// A failed write left bytes after `offset` that could not be truncated yet.
    torn: bool,
    last: Lsn,
    /// The next file, created before it is needed.
    spare: Option<JournalFile>,
    spare_asked: bool,
    /// Files before `file` that are not known to be on disk.
    older: Vec<Arc<JournalFile>>,
    /// Every file that exists, with the first commit it holds.
    firsts: Vec<(u64, Lsn)>,
    file_limit: u64,
    /// Bytes appended since the store was opened; they decide when the next checkpoint is due.
    appended: u64,
    health: Health,
}

impl Journal {
    /// A journal that continues after commit `last` at `offset` of `file`. `firsts` lists the existing files, each with
    /// the first commit it holds.
    pub(super) fn new(
        ground: Ground,
        (file, offset): (JournalFile, u64),
        last: Lsn,
        mut firsts: Vec<(u64, Lsn)>,
        file_limit: u64,
    ) -> Self {
        if firsts
            .last()
            .is_none_or(|&(number, _)| number != file.number)
        {
            firsts.push((file.number, Lsn(last.0 + 1)));
        }
        Self {
            ground,
            file: Arc::new(file),
            offset,
            torn: false,
            last,
            spare: None,
            spare_asked: false,
            older: Vec::new(),
            firsts,
            file_limit,
            appended: 0,
            health: Health::Good,
        }
    }

    /// The last commit.
    pub(super) fn last(&self) -> Lsn {
        self.last
    }

    /// Bytes appended since the store was opened.
    pub(super) fn appended(&self) -> u64 {
        self.appended
    }

    /// Fails if nothing may be written any more.
    pub(super) fn check(&self) -> Result<(), KvError> {
        match &self.health {
            Health::Good => Ok(()),
            Health::Poisoned { path, detail } => Err(KvError::Poisoned {
                path: path.clone(),
                detail: detail.clone(),
            }),
            Health::Closed => Err(KvError::Closed),
        }
    }

    /// Appends a commit with the next number. After an error nothing of it will ever be visible.
    pub(super) fn append(&mut self, draft: &mut Draft, synced: Lsn) -> Result<Lsn, KvError> {
        self.check()?;
        let lsn = Lsn(self.last.0 + 1);
        if self.offset >= self.file_limit {
            self.rotate(synced)?;
        }
        self.write(draft, lsn, synced)?;
        self.last = lsn;
        Ok(lsn)
    }

    /// Writes a `Synced` frame, if nothing was committed since: damage in the last record is then recognised as damage
    /// and not as a torn end.
    pub(super) fn mark_synced(&mut self, synced: Lsn) -> Result<(), KvError> {
        self.check()?;
        if self.last != synced {
            return Ok(());
        }
        self.write(&mut Draft::mark(Kind::Synced), self.last, synced)
    }

    /// Writes the closing frame; nothing can be appended afterwards. The caller has synced all
    /// commits before and syncs the file after it.
    pub(super) fn close(&mut self, synced: Lsn) -> Result<Arc<JournalFile>, KvError> {
        self.check()?;
        let written = self.write(&mut Draft::mark(Kind::Close), self.last, synced);
        self.health = Health::Closed;
        written.map(|()| self.file.clone())
    }

    /// Closes the journal for appending, without a closing frame.
    pub(super) fn shut(&mut self) {
        self.health = Health::Closed;
    }

    /// Notes that the journal may not have reached the disk; all later writes fail.
    pub(super) fn poison(&mut self, path: &Path, detail: String) {
        if matches!(self.health, Health::Good) {
            self.health = Health::Poisoned {
                path: path.to_owned(),
                detail,
            };
        }
    }

    /// Returns the files to sync, and the last commit that is then on disk.
    pub(super) fn unsynced(&self) -> (Vec<Arc<JournalFile>>, Lsn) {
        let mut files = self.older.clone();
        files.push(self.file.clone());
        (files, self.last)
    }

    /// Notes that `files` are on disk; those that no longer grow need not be synced again.
    pub(super) fn note_synced(&mut self, files: &[Arc<JournalFile>]) {
        self.older
            .retain(|older| !files.iter().any(|file| Arc::ptr_eq(file, older)));
    }

    /// The file in which the commit after `lsn` is or will be.
    pub(super) fn file_after(&self, lsn: Lsn) -> u64 {
        let holds = self
            .firsts
            .iter()
            .rev()
            .find(|(_, first)| first.0 <= lsn.0 + 1);
        holds
            .or(self.firsts.first())
            .map_or(self.file.number, |&(number, _)| number)
    }

    /// Forgets the files before `number` and returns them, for removal.
    pub(super) fn forget_before(&mut self, number: u64) -> Vec<u64> {
        let number = number.min(self.file.number);
        let old = self
            .firsts
            .iter()
            .map(|&(old, _)| old)
            .filter(|&old| old < number)
            .collect();
        self.firsts.retain(|&(file, _)| file >= number);
        old
    }

    /// True once per file, when the next one should be created in advance ([`Journal::give_spare`]).
    pub(super) fn wants_spare(&mut self) -> bool {
        let wanted = !self.spare_asked && self.offset > self.file_limit / 2;
        self.spare_asked |= wanted;
        wanted && self.check().is_ok()
    }

    /// Returns the file to create in advance; `None` if it exists.
    pub(super) fn lacks(&self) -> Option<u64> {
        self.spare.is_none().then(|| self.file.number + 1)
    }

    /// True between [`Journal::wants_spare`] and [`Journal::give_spare`].
    #[cfg(test)]
    pub(super) fn spare_is_coming(&self) -> bool {
        self.spare_asked && self.spare.is_none()
    }

    /// Takes the next file; `None`: it could not be created and is requested again later.
    pub(super) fn give_spare(&mut self, file: Option<JournalFile>) {
        self.spare_asked = file.is_some();
        self.spare = file;
    }

    /// Continues in the next file, if it exists; otherwise this one keeps growing.
    pub(super) fn rotate(&mut self, synced: Lsn) -> Result<(), KvError> {
        self.check()?;
        if self.offset == HEADER as u64 {
            return Ok(());
        }
        let Some(number) = self.spare.as_ref().map(|spare| spare.number) else {
            return Ok(());
        };
        self.write(&mut Draft::next(number), self.last, synced)?;
        if let Some(next) = self.spare.take() {
            let full = std::mem::replace(&mut self.file, Arc::new(next));
            self.older.push(full);
            self.offset = HEADER as u64;
            self.spare_asked = false;
            self.firsts.push((number, Lsn(self.last.0 + 1)));
        }
        Ok(())
    }

    fn write(&mut self, draft: &mut Draft, lsn: Lsn, synced: Lsn) -> Result<(), KvError> {
        let disk = &self.ground.disk;
        let path = &self.file.path;
        if self.torn {
            let cut = disk.truncate(&self.file.file, self.offset);
            cut.map_err(|error| KvError::io("cut back", path, &error))?;
            self.torn = false;
        }
        let len = draft.len();
        let bytes = draft.finish(lsn, synced, self.file.number);
        if let Err(error) = disk.write_at(&self.file.file, bytes, self.offset) {
            self.torn = disk.truncate(&self.file.file, self.offset).is_err();
            return Err(KvError::io("write", path, &error));
        }
        self.offset += len;
        self.appended += len;
        Ok(())
    }
}
