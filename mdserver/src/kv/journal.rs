//! The open end of the journal: frames go in, one `write` each; files rotate; a failed write is cut
//! back; a failed sync poisons it.
//!
//! Kept true: bytes behind `offset` are never part of a frame anybody was told of. A file's
//! [`Kind::Next`] frame is written only when the next file is durably there, so a missing file is
//! always noticed.
//!
//! Reading is elsewhere (`walk`, `replay`), as is waiting for the disk (`sync`).

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
    /// Creates file `number` with its header, durably, with blocks set aside for `reserve` bytes: so
    /// much can still be committed (names removed, say) when data has filled the disk.
    pub(super) fn create(
        dir: &Path,
        ground: &Ground,
        header: (Id, u64),
        reserve: u64,
    ) -> Result<Self, KvError> {
        let (store, number) = header;
        let path = dir.join(journal_name(number));
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let file = opened.map_err(|error| KvError::io("create", &path, &error))?;
        if let Err(error) = ground.disk.reserve(&file, 0, reserve) {
            tracing::debug!(%error, path = %path.display(), "no blocks could be set aside");
        }
        let header = Header {
            store,
            boot: ground.boot.unwrap_or_default(),
            number,
        };
        let written = ground.disk.write_at(&file, &header.encode(), 0);
        let written = written.and_then(|()| ground.disk.sync_data(&file));
        let durable = written
            .map_err(|error| KvError::io("create", &path, &error))
            .and_then(|()| sync_dir(dir));
        match durable {
            Ok(()) => Ok(Self { file, path, number }),
            Err(error) => {
                remove(&path)?;
                Err(error)
            }
        }
    }
}

impl JournalFile {
    /// Takes file `number`, whose good frames end at `end`, into use again. Its blocks are set aside
    /// already, so that a store on a full disk opens.
    pub(super) fn reuse(
        dir: &Path,
        ground: &Ground,
        header: (Id, u64),
        (end, reserve): (u64, u64),
    ) -> Result<Self, KvError> {
        let (store, number) = header;
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
        if let Err(error) = ground.disk.reserve(&file, 0, reserve) {
            tracing::debug!(%error, path = %path.display(), "no blocks could be set aside");
        }
        let header = Header {
            store,
            boot: ground.boot.unwrap_or_default(),
            number,
        };
        ground
            .disk
            .write_at(&file, &header.encode(), 0)
            .map_err(failed)?;
        ground.disk.sync_data(&file).map_err(failed)?;
        sync_dir(dir)?;
        Ok(Self { file, path, number })
    }
}

#[derive(Debug, Clone)]
enum Health {
    Good,
    Poisoned { path: PathBuf, detail: String },
    Closed,
}

/// The end of the journal.
#[derive(Debug)]
pub(super) struct Journal {
    ground: Ground,
    file: Arc<JournalFile>,
    /// Where the next frame goes.
    offset: u64,
    /// A failed write left bytes behind `offset` that could not be cut off yet.
    torn: bool,
    last: Lsn,
    /// The next file, made before it is needed.
    spare: Option<JournalFile>,
    spare_asked: bool,
    /// Files before `file` that are not known to be on disk.
    older: Vec<Arc<JournalFile>>,
    /// Every file that exists, with the first commit it holds.
    firsts: Vec<(u64, Lsn)>,
    file_limit: u64,
    /// Bytes ever appended, for the question when the next checkpoint is due.
    appended: u64,
    health: Health,
}

impl Journal {
    /// A journal that goes on behind commit `last` at `offset` of `file`. `firsts` tells the files
    /// there are.
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

    /// An error when nothing may be written any more.
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

    /// Appends a commit with the next number. After an error nothing of it will ever be seen.
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

    /// Notes in the journal what is synced, when nothing was committed since: damage in the last
    /// record then shows as damage and not as a torn end.
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

    /// Lets nothing be appended any more, without a closing frame.
    pub(super) fn shut(&mut self) {
        self.health = Health::Closed;
    }

    /// The journal cannot be trusted to reach the disk; refuse everything from now on.
    pub(super) fn poison(&mut self, path: &Path, detail: String) {
        if matches!(self.health, Health::Good) {
            self.health = Health::Poisoned {
                path: path.to_owned(),
                detail,
            };
        }
    }

    /// The files to be synced so that all commits up to the answered number are on disk.
    pub(super) fn unsynced(&self) -> (Vec<Arc<JournalFile>>, Lsn) {
        let mut files = self.older.clone();
        files.push(self.file.clone());
        (files, self.last)
    }

    /// `files` are on disk; those that no longer grow need not be synced again.
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

    /// Forgets the files before `number` and answers which they are, for removal.
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

    /// True once a file, when the next one should be made in advance ([`Journal::give_spare`]).
    pub(super) fn wants_spare(&mut self) -> bool {
        let wanted = !self.spare_asked && self.offset > self.file_limit / 2;
        self.spare_asked |= wanted;
        wanted && self.check().is_ok()
    }

    /// Which file to make in advance; `None` when it is there.
    pub(super) fn lacks(&self) -> Option<u64> {
        self.spare.is_none().then(|| self.file.number + 1)
    }

    /// True between [`Journal::wants_spare`] and [`Journal::give_spare`].
    #[cfg(test)]
    pub(super) fn spare_is_coming(&self) -> bool {
        self.spare_asked && self.spare.is_none()
    }

    /// Takes the next file, or learns that it could not be made and is to be asked for again.
    pub(super) fn give_spare(&mut self, file: Option<JournalFile>) {
        self.spare_asked = file.is_some();
        self.spare = file;
    }

    /// Goes on in the next file, if it has been made; else this one grows on.
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
