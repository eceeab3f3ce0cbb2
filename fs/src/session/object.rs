//! An open object: read and written by selections.

use std::path::Path;
use std::sync::Arc;

use slabfs_mdserver::api::{Entry, Ino};
use slabfs_model::{Coords, Tag};

use super::Session;
use super::error::{Error, ErrorKind};
use super::select::Select;
use super::spec::ObjectSpec;
use super::stat::Stat;
use crate::call::access::Want;
use crate::call::path::{PathText, check};
use crate::client::transfer::Memory;
use crate::client::{FsError, Handle, OpenMode, Part};

/// For what an object is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    pub(super) fn reads(self) -> bool {
        self != Access::Write
    }

    pub(super) fn writes(self) -> bool {
        self != Access::Read
    }
}

/// An object that is open, until it is closed or dropped; from any thread.
///
/// Elements travel as bytes: packed in row-major order, each in the byte order of the object's dtype. A write
/// returns when the bytes are taken over; they reach the servers by [`Object::flush`], at the latest half a minute
/// later, and their disks by [`Object::sync`]. What this session wrote every reader sees that its consistency
/// promises it to: with the strict one, at once.
#[derive(Debug)]
pub struct Object {
    session: Session,
    handle: Arc<Handle>,
    path: PathText,
    access: Access,
    open: bool,
}

impl Object {
    /// Opens what the caller may open.
    pub(super) fn open(
        session: &Session,
        ino: Ino,
        path: PathText,
        access: Access,
    ) -> Result<Object, Error> {
        let mode = OpenMode {
            write: access.writes(),
            append: false,
        };
        let handle = session
            .client()?
            .open(ino, mode, None)
            .map_err(|error| Error::from(error).about(&path))?;
        Ok(Object {
            session: session.clone(),
            handle,
            path,
            access,
            open: true,
        })
    }

    /// What transfers work on.
    pub(crate) fn handle(&self) -> Result<&Arc<Handle>, Error> {
        self.session.client()?;
        Ok(&self.handle)
    }

    /// The same of what need not be open any more: a transfer that cannot start says so.
    pub(super) fn opened(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// The session it is of.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Its path from the root when it was opened.
    pub fn path(&self) -> &Path {
        use std::os::unix::ffi::OsStrExt;

        Path::new(std::ffi::OsStr::from_bytes(self.path.bytes()))
    }

    /// For what it is open.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Its bytes now.
    pub fn size(&self) -> u64 {
        self.handle.size()
    }

    /// What is known of it now.
    ///
    /// # Errors
    /// `Stale` where it is gone; of the metadata service.
    pub fn stat(&self) -> Result<Stat, Error> {
        Ok(Stat::of(&self.entry()?))
    }

    /// Its dims now, slowest axis first.
    ///
    /// # Errors
    /// As [`Object::stat`].
    pub fn dims(&self) -> Result<Coords, Error> {
        let entry = self.entry()?;
        let info = entry
            .info
            .ok_or_else(|| Error::new(ErrorKind::Io, format!("{} has no dims", self.path)))?;
        Ok(info.dims.clone())
    }

    /// Gives it other dims: each axis grows up to its max dim, or shrinks, and what is outside then is gone. Others
    /// may have it open; they see it.
    ///
    /// # Errors
    /// `Invalid` where an axis may not have that length; `Denied`; `ReadOnly` where it is not open for writing.
    pub fn set_dims(&self, dims: impl AsRef<[u64]>) -> Result<(), Error> {
        self.may_change()?;
        let client = self.session.client()?;
        client
            .set_dims(self.handle.ino(), dims.as_ref().into())
            .map_err(|error| self.about(error))?;
        Ok(())
    }

    /// Says what it is, or more of it: everything while it is empty; dims and dtype once more while its bytes come
    /// out the same; the placement at any time. Tags and mode of the spec are left alone.
    ///
    /// # Errors
    /// `Invalid`, saying what is allowed; `Denied`; `ReadOnly` where it is not open for writing.
    pub fn declare(&self, spec: &ObjectSpec) -> Result<(), Error> {
        self.may_change()?;
        let client = self.session.client()?;
        client
            .declare(self.handle.ino(), spec.change.clone())
            .map_err(|error| self.about(error))?;
        Ok(())
    }

    /// Its tags, by their keys.
    ///
    /// # Errors
    /// `Denied`; of the metadata service.
    pub fn tags(&self) -> Result<Vec<(String, Tag)>, Error> {
        self.may(Want::Read)?;
        Ok(self.session.client()?.md().tags(self.handle.ino())?)
    }

    /// Sets and removes tags of it in one request; removals come first. It need not be open for writing: tags are
    /// of the object and not of its bytes, as attributes are on a mount.
    ///
    /// # Errors
    /// `Denied`; `ReadOnly` in a session that may change nothing; `Invalid`; `NoSpace` when it has too many.
    pub fn tag(&self, set: Vec<(String, Tag)>, remove: Vec<String>) -> Result<(), Error> {
        self.session.changes()?;
        self.may(Want::Write)?;
        let client = self.session.client()?;
        client
            .md()
            .tag(self.handle.ino(), set, remove)
            .map_err(|error| self.about(error))
    }

    /// Reads a selection, packed.
    ///
    /// # Errors
    /// `Invalid` for a selection that does not fit, or an object that is open for writing alone; `TooLarge` for one
    /// that no memory is there for; of the servers.
    pub fn read<'a>(&self, select: impl Into<Select<'a>>) -> Result<Vec<u8>, Error> {
        self.readable()?;
        let part = self.part(select.into())?;
        part.read_all().map_err(|error| self.about(error))
    }

    /// Reads a selection to where `memory` says in a buffer.
    ///
    /// # Errors
    /// As [`Object::read`]; `Invalid` where `memory` does not fit the selection or the buffer, or elements the type
    /// they are to become.
    pub fn read_into<'a>(
        &self,
        select: impl Into<Select<'a>>,
        into: &mut [u8],
        memory: &Memory,
    ) -> Result<(), Error> {
        self.readable()?;
        let part = self.part(select.into())?;
        part.read_into(memory, into)
            .map_err(|error| self.about(error))
    }

    /// Writes a selection from packed bytes. Where the slowest axis is unlimited the object grows as far as a box or
    /// hyperslab reaches.
    ///
    /// # Errors
    /// `ReadOnly` where it is not open for writing; `TooLarge` beyond what the object may hold; `Invalid` for a selection that does not fit, or bytes that are
    /// not as many; of the servers.
    pub fn write<'a>(&self, select: impl Into<Select<'a>>, from: &[u8]) -> Result<(), Error> {
        self.write_from(select, from, &Memory::packed())
    }

    /// Writes a selection from where `memory` says in a buffer.
    ///
    /// # Errors
    /// As [`Object::write`] and [`Object::read_into`].
    pub fn write_from<'a>(
        &self,
        select: impl Into<Select<'a>>,
        from: &[u8],
        memory: &Memory,
    ) -> Result<(), Error> {
        self.writable()?;
        let select: Select<'a> = select.into();
        let wanted = select.wanted()?;
        let part = self
            .handle()?
            .part_to_write(&wanted)
            .map_err(|error| self.about(error))?;
        part.write_from(memory, from)
            .map_err(|error| self.about(error))
    }

    /// Sends what was written through this opening to the servers, and tells an error that sending in the
    /// background met.
    ///
    /// # Errors
    /// Of that.
    pub fn flush(&self) -> Result<(), Error> {
        self.handle()?.flush().map_err(|error| self.about(error))
    }

    /// Brings everything of the object onto the servers' disks.
    ///
    /// # Errors
    /// Of that, or what sending in the background met since the last time.
    pub fn sync(&self) -> Result<(), Error> {
        self.handle()?.fsync().map_err(|error| self.about(error))
    }

    /// Ends it, with a flush, after its transfers that were started have ended.
    ///
    /// # Errors
    /// Of the flush; the object is closed all the same.
    pub fn close(mut self) -> Result<(), Error> {
        self.release()
    }

    fn release(&mut self) -> Result<(), Error> {
        if !std::mem::replace(&mut self.open, false) || self.session.is_closed() {
            return Ok(());
        }
        self.handle.release().map_err(|error| self.about(error))
    }

    pub(super) fn readable(&self) -> Result<(), FsError> {
        match self.access.reads() {
            true => Ok(()),
            false => Err(FsError::Invalid(format!(
                "{} is open for writing; open it for reading too",
                self.path
            ))),
        }
    }

    pub(super) fn writable(&self) -> Result<(), FsError> {
        match self.access.writes() {
            true => Ok(()),
            false => Err(FsError::ReadOnly(format!(
                "{} is open for reading; open it for writing too",
                self.path
            ))),
        }
    }

    fn part(&self, select: Select<'_>) -> Result<Part<'_>, Error> {
        let wanted = select.wanted()?;
        self.handle()?
            .part(&wanted)
            .map_err(|error| self.about(error))
    }

    fn entry(&self) -> Result<Entry, Error> {
        let client = self.session.client()?;
        client
            .getattr(self.handle.ino())
            .map_err(|error| self.about(error))
    }

    fn may(&self, want: Want) -> Result<(), Error> {
        let context = self.session.context()?;
        Ok(check(&context, &self.path, &self.entry()?, want)?)
    }

    /// Whether this caller may change it through this opening.
    fn may_change(&self) -> Result<(), Error> {
        self.session.changes()?;
        self.may(Want::Write)?;
        Ok(self.writable()?)
    }

    /// With the object's path. What a session loses by being closed meanwhile is told as that; what failed by itself, as
    /// for want of room, is not hidden behind it.
    pub(super) fn about(&self, error: impl Into<Error>) -> Error {
        let error: Error = error.into();
        match self.session.client() {
            Err(closed) if matches!(error.kind(), ErrorKind::Lost | ErrorKind::Unavailable) => {
                closed.about(&self.path)
            }
            _ => error.about(&self.path),
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            tracing::error!(%error, "an object did not close well");
        }
    }
}
