//! Names, and attributes of what they name.

use std::sync::Arc;

use slabfs_mdserver::api::{
    Caller, Create, Created, DirEntry, Entry, Ino, Kind, LockList, MAX_PATHS, MdError, NewObject,
    SetAttr, TagChange, op,
};
use slabfs_model::Selection;

use super::Clients;
use crate::client::{FsError, Handle, OpenMode};

fn missing(error: &FsError) -> bool {
    matches!(error, FsError::Md(MdError::NotFound))
}

impl Clients {
    /// Finds a name in a directory.
    ///
    /// # Errors
    /// Those of the metadata services.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry, FsError> {
        let entry = self.names().lookup(parent, name)?;
        self.complete(entry)
    }

    /// [`Clients::lookup`] where no other mount need be asked: of directories, and names that do not exist.
    pub fn cached_name(&self, parent: Ino, name: &[u8]) -> Option<Result<Entry, FsError>> {
        let found = self.names().cached_name(parent, name)?;
        match &found {
            // Only its own shard knows its attributes.
            Ok(entry) if self.shards.is_remote(entry.attr.ino) => None,
            _ => Some(found),
        }
    }

    /// An entry that the shard of names returned, with what the inode's own shard knows.
    fn complete(&self, entry: Entry) -> Result<Entry, FsError> {
        let ino = entry.attr.ino;
        if !self.shards.is_remote(ino) {
            return Ok(entry);
        }
        self.shards
            .entry(ino, missing, || self.of(ino).getattr(ino))?
            .ok_or(FsError::Md(MdError::NotFound))
    }

    /// Attributes of an inode.
    ///
    /// # Errors
    /// Those of the metadata service.
    pub fn getattr(&self, ino: Ino) -> Result<Entry, FsError> {
        self.of(ino).getattr(ino)
    }

    /// Sets attributes, and the size if one is given.
    ///
    /// # Errors
    /// As [`crate::client::Client::setattr`].
    pub fn setattr(&self, ino: Ino, set: SetAttr, size: Option<u64>) -> Result<Entry, FsError> {
        self.of(ino).setattr(ino, set, size)
    }

    /// Opens an object, or a selection of it.
    ///
    /// # Errors
    /// As [`crate::client::Client::open`].
    pub fn open(
        &self,
        ino: Ino,
        mode: OpenMode,
        selection: Option<&Selection>,
    ) -> Result<Arc<Handle>, FsError> {
        self.of(ino).open(ino, mode, selection)
    }

    /// Creates an object and opens it.
    ///
    /// # Errors
    /// Those of the metadata services.
    pub fn create(
        &self,
        create: Create,
        mode: OpenMode,
    ) -> Result<(Created, Arc<Handle>), FsError> {
        if !self.divided() {
            return self.names().create(create, mode);
        }
        let (made, handle) = self.shards.create(&create, |made| {
            let ino = made.entry.attr.ino;
            let client = self.of(ino);
            let opened = match made.birth.as_deref() {
                Some(birth) => client.adopt_open(birth, mode),
                None => client.open(ino, mode, None).map(Some),
            };
            match opened {
                Err(error) if missing(&error) => Ok(None),
                Err(error) => Err(error),
                Ok(None) => Ok(None),
                Ok(Some(handle)) => Ok(Some((handle.entry(), handle))),
            }
        })?;
        match handle {
            Some(handle) => Ok((made, handle)),
            // The name is that of a symbolic link, or of a directory.
            None => Err(FsError::Md(match made.entry.attr.kind {
                Kind::Directory => MdError::IsDirectory,
                _ => MdError::Exists,
            })),
        }
    }

    /// Creates an inode without opening it.
    ///
    /// # Errors
    /// Those of the metadata services.
    pub fn make(&self, create: Create) -> Result<Created, FsError> {
        let mut made = self.names().md().call(create)?;
        let ino = made.entry.attr.ino;
        if self.shards.is_remote(ino) {
            self.shards.adopt(&[ino])?;
            made.entry = self.complete(made.entry)?;
        }
        Ok(made)
    }

    /// Creates objects, all of them or none, and returns their numbers in order.
    ///
    /// # Errors
    /// As [`op::CreateMany`].
    pub fn create_many(&self, objects: Vec<NewObject>) -> Result<Vec<Ino>, MdError> {
        self.shards.create_many(objects)
    }

    /// Gives an inode one more name.
    ///
    /// # Errors
    /// As [`op::Link`].
    pub fn link(&self, ino: Ino, parent: Ino, name: Vec<u8>) -> Result<Entry, FsError> {
        let entry = self.shards.link(ino, parent, name)?;
        match self.shards.is_remote(ino) {
            true => self.getattr(ino),
            false => Ok(self.with_unflushed(entry)),
        }
    }

    /// After an `fsync`: the names of the object are on disk, too, where its own shard does not have them.
    ///
    /// # Errors
    /// Those of the metadata service.
    pub fn sync_name(&self, ino: Ino) -> Result<(), FsError> {
        match self.shards.is_remote(ino) {
            true => Ok(self.names().md().call(op::Sync {})?),
            false => Ok(()),
        }
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// As [`op::Unlink`].
    pub fn unlink(&self, parent: Ino, name: Vec<u8>) -> Result<(), FsError> {
        Ok(self.shards.unlink(parent, name)?)
    }

    /// Renames.
    ///
    /// # Errors
    /// As [`op::Rename`].
    pub fn rename(&self, rename: op::Rename) -> Result<(), FsError> {
        Ok(self.shards.rename(rename)?)
    }

    /// A page of a directory, with attributes as of the last commits.
    ///
    /// # Errors
    /// Those of the metadata services.
    pub fn read_dir(&self, ino: Ino, cookie: u64, limit: u32) -> Result<Vec<DirEntry>, MdError> {
        let mut cookie = cookie;
        loop {
            let read = op::ReadDir { ino, cookie, limit };
            let mut page = self.names().md().call(read)?;
            let Some(last) = page.last().map(|last| last.cookie) else {
                return Ok(page);
            };
            if self.divided() {
                self.shards.complete(&mut page)?;
            }
            if !page.is_empty() {
                return Ok(page);
            }
            // All of its objects are gone since.
            cookie = last;
        }
    }

    /// Merges what this mount has not written back yet.
    pub fn with_unflushed(&self, entry: Entry) -> Entry {
        self.of(entry.attr.ino).with_unflushed(entry)
    }

    /// Sets and removes tags, in one step in each shard.
    ///
    /// # Errors
    /// As [`op::Tag`].
    pub fn tag(&self, changes: Vec<TagChange>) -> Result<(), MdError> {
        self.shards.tag(changes)
    }

    /// Locks that are held or waited for: those of a file, or all.
    ///
    /// # Errors
    /// Those of the metadata services.
    pub fn locks(&self, ino: Option<Ino>, who: Option<Caller>) -> Result<LockList, MdError> {
        let asked = match ino {
            Some(ino) => std::slice::from_ref(self.of(ino)),
            None => self.all(),
        };
        let mut all = LockList::default();
        for client in asked {
            let who = who.clone();
            let LockList { locks, left } = client.md().call(op::Locks { ino, who })?;
            all.locks.extend(locks);
            all.left += left;
        }
        if self.divided() {
            let inos: Vec<Ino> = all.locks.iter().map(|row| row.file.ino).collect();
            let mut paths = Vec::new();
            for some in inos.chunks(MAX_PATHS) {
                let (inos, who) = (some.to_vec(), who.clone());
                paths.extend(self.names().md().call(op::Paths { inos, who })?);
            }
            for (row, path) in all.locks.iter_mut().zip(paths) {
                row.path = Some(path).filter(|path| !path.is_empty());
            }
        }
        Ok(all)
    }
}
