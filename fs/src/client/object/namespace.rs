//! Names and attributes, merged with the unflushed writes of this mount.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use slabfs_mdserver::api::{Entry, Ino, MdError, op};

use crate::client::Client;
use crate::client::buffer::flush::Scope;
use crate::client::error::FsError;

impl Client {
    /// Finds a name in a directory.
    ///
    /// # Errors
    /// Those of the metadata service.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry, FsError> {
        let entry = match self.rights.keeps_names() {
            true => match self.cached_name(parent, name) {
                Some(found) => return found,
                None => self.md().look(parent, name)?,
            },
            false => self.md().call(op::Lookup {
                parent,
                name: name.to_vec(),
            })?,
        };
        // The kernel trusts this size while a file is mapped: it must include all unflushed growth.
        match self.shared() && self.known(entry.attr.ino).is_some() {
            true => self.getattr(entry.attr.ino),
            false => Ok(self.with_unflushed(entry)),
        }
    }

    /// Attributes of an inode.
    ///
    /// # Errors
    /// Those of the metadata service.
    pub fn getattr(&self, ino: Ino) -> Result<Entry, FsError> {
        if let Some(entry) = self.cached_directory(ino) {
            return Ok(entry);
        }
        let found = match self.shared() {
            true => self.md().stat(ino, self.rights.keeps_names()),
            false => self.md().call(op::GetAttr { ino }),
        };
        match found {
            Err(MdError::NotFound) if self.is_gone(ino) => Err(FsError::Gone),
            found => Ok(self.with_unflushed(found?)),
        }
    }

    /// A cached name, where the lock server need not be asked: a directory, or no entry.
    pub fn cached_name(&self, parent: Ino, name: &[u8]) -> Option<Result<Entry, FsError>> {
        let found = self
            .rights
            .keeps_names()
            .then(|| self.md().cached_name(parent, name))??;
        // Checked last: if the session lapses later, the result was valid when it was found.
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

    /// Merges the newer state of this mount: a newer form, the size of unflushed writes, their time.
    ///
    /// Form and growth are read under one lock, under which a flush converts growth into form.
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
            // Other mounts may have extended it too: the larger size sets the dims.
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

    /// Writes back all unflushed data of an inode on this mount.
    ///
    /// # Errors
    /// Those of the flush.
    pub fn flush_ino(self: &Arc<Self>, ino: Ino) -> Result<(), FsError> {
        match self.keep_open(ino) {
            Some(object) => self.flush_object(&object, Scope::All),
            None => Ok(()),
        }
    }

    /// Writes back all data of an inode and waits for the disks, as `fsync` without a handle.
    ///
    /// # Errors
    /// Those of the flush or the sync.
    pub fn sync_ino(self: &Arc<Self>, ino: Ino) -> Result<(), FsError> {
        match self.keep_open(ino) {
            Some(object) => self.sync_object(&object),
            None => {
                self.settle_closed()?;
                Ok(self.md().call(op::Sync {})?)
            }
        }
    }
}
