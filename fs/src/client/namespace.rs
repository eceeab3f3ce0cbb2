//! Names and attributes, with what this mount has written and not flushed yet merged in.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use slabfs_mdserver::api::{Entry, Ino, MdError};

use super::Client;
use super::error::FsError;
use super::flush::Scope;

impl Client {
    /// Finds a name in a directory.
    ///
    /// # Errors
    /// As the metadata service says.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry, FsError> {
        let entry = match self.rights.keeps_names() {
            true => match self.cached_name(parent, name) {
                Some(found) => return found,
                None => self.md().look(parent, name)?,
            },
            false => self.md().lookup(parent, name)?,
        };
        // The kernel believes this size while a file is mapped: not one that is about to be outdone.
        match self.shared() && self.known(entry.attr.ino).is_some() {
            true => self.getattr(entry.attr.ino),
            false => Ok(self.with_unflushed(entry)),
        }
    }

    /// Attributes of an inode.
    ///
    /// # Errors
    /// As the metadata service says.
    pub fn getattr(&self, ino: Ino) -> Result<Entry, FsError> {
        if let Some(entry) = self.cached_directory(ino) {
            return Ok(entry);
        }
        let found = match self.shared() {
            true => self.md().stat(ino, self.rights.keeps_names()),
            false => self.md().getattr(ino),
        };
        match found {
            Err(MdError::NotFound) if self.is_gone(ino) => Err(FsError::Gone),
            found => Ok(self.with_unflushed(found?)),
        }
    }

    /// What has a name, where the lock server need not be asked: a directory, or nothing.
    pub fn cached_name(&self, parent: Ino, name: &[u8]) -> Option<Result<Entry, FsError>> {
        let found = self
            .rights
            .keeps_names()
            .then(|| self.md().cached_name(parent, name))??;
        // Looked at last: a session that has lapsed later had it when this was found.
        (!self.lapsed()).then(|| found.map_err(FsError::from))
    }

    /// Attributes of a directory, where the lock server need not be asked.
    pub fn cached_directory(&self, ino: Ino) -> Option<Entry> {
        let found = self
            .rights
            .keeps_names()
            .then(|| self.md().cached_directory(ino))??;
        (!self.lapsed()).then_some(found)
    }

    /// Whether the object is open here and was removed while this mount had no session.
    fn is_gone(&self, ino: Ino) -> bool {
        self.known(ino)
            .is_some_and(|object| object.gone.load(Ordering::Acquire))
    }

    /// Merges what this mount knows better: a newer form, the size of unflushed writes, their time.
    ///
    /// Form and growth are looked at under one lock, under which a flush turns the one into the other.
    pub fn with_unflushed(&self, mut entry: Entry) -> Entry {
        let Some(object) = self.known(entry.attr.ino) else {
            return entry;
        };
        let geometry = object.geometry.read();
        if geometry.attr.change > entry.attr.change {
            entry.attr = geometry.attr.clone();
            entry.info = Some(geometry.info.clone());
        }
        let grown = object.grown.load(Ordering::Acquire);
        if grown > entry.attr.size
            && let Some(info) = &mut entry.info
        {
            // Other mounts may have made it longer too: dims follow the greater.
            if let Ok(Some(dims)) = info.grown_to(grown) {
                info.dims = dims;
                entry.attr.size = grown;
            }
        }
        if object.is_dirty()
            && let Some(written) = *object.written.lock()
        {
            entry.attr.mtime = written;
            // Mode, owner, names or tags may have changed since.
            entry.attr.ctime = entry.attr.ctime.max(written);
        }
        entry
    }

    /// writes back everything an inode has unflushed on this mount.
    ///
    /// # Errors
    /// Of the flush.
    pub fn flush_ino(self: &Arc<Self>, ino: Ino) -> Result<(), FsError> {
        match self.keep_open(ino) {
            Some(object) => self.flush_object(&object, Scope::All),
            None => Ok(()),
        }
    }

    /// writes back everything of an inode and waits for the disks, as `fsync` without a handle.
    ///
    /// # Errors
    /// Of the flush or the sync.
    pub fn sync_ino(self: &Arc<Self>, ino: Ino) -> Result<(), FsError> {
        match self.keep_open(ino) {
            Some(object) => self.sync_object(&object),
            None => {
                self.settle_closed()?;
                Ok(self.md().sync()?)
            }
        }
    }
}
