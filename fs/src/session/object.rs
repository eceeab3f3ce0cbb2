//! Open objects: read and written by selections.

use std::path::Path;
use std::sync::Arc;

use slabfs_mdserver::api::{Entry, Ino, TagChange, op};
use slabfs_model::{Coords, Tag};

use super::Session;
use super::error::{Error, ErrorKind};
use super::select::Select;
use super::spec::ObjectSpec;
use super::stat::Stat;
use crate::call::access::Want;
use crate::call::path::{PathText, Walk};
use crate::client::transfer::{Memory, scope};
use crate::client::{FsError, Handle, LayoutView, OpenMode, Part};

/// Bytes up to which a read is made in the calling thread. Larger ones are faster as transfers, which have no buffer in between
/// and whose parts several threads receive.
const AT_ONCE: u64 = 1 << 20;

/// The access mode of an open object.
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

/// An open object, until it is closed or dropped; usable from any thread.
///
/// Elements travel as bytes: packed in row-major order, each in the byte order of the object's dtype. A write returns
/// when the bytes are copied; they reach the servers by [`Object::flush`], at the latest half a minute later, and
/// their disks by [`Object::sync`]. Readers see data written by this session as its consistency promises: with strict
/// consistency, at once.
#[derive(Debug)]
pub struct Object {
    session: Session,
    handle: Arc<Handle>,
    path: PathText,
    access: Access,
    open: bool,
}

impl Object {
    /// Opens an object whose permissions the caller has checked.
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

    /// The handle for transfers.
    pub(crate) fn handle(&self) -> Result<&Arc<Handle>, Error> {
        self.session.client()?;
        Ok(&self.handle)
    }

    /// As `handle`, for a session that may be closed: a transfer that cannot start fails later.
    pub(super) fn opened(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// The session the object belongs to.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Its path from the root when it was opened.
    pub fn path(&self) -> &Path {
        self.path.as_path()
    }

    /// Its access mode.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Its current size in bytes.
    pub fn size(&self) -> u64 {
        self.handle.size()
    }

    /// Its current attributes.
    ///
    /// # Errors
    /// `Stale` if it was removed; of the metadata service.
    pub fn stat(&self) -> Result<Stat, Error> {
        Ok(Stat::of(&self.entry()?))
    }

    /// Its current dims, slowest axis first. No request is made for them where this session holds a right to the object, or is
    /// the only one.
    ///
    /// # Errors
    /// As [`Object::stat`].
    pub fn dims(&self) -> Result<Coords, Error> {
        if let Some(dims) = self.handle()?.known_dims() {
            return Ok(dims);
        }
        let entry = self.entry()?;
        let info = entry
            .info
            .ok_or_else(|| Error::new(ErrorKind::Io, format!("{} has no dims", self.path)))?;
        if info.dims.get(1..) != self.received_dims().get(1..) {
            // Batches would be planned for the old form, and fail.
            let renewed = self.opened().renew_form();
            renewed.map_err(|error| self.about(error))?;
        }
        Ok(info.dims.clone())
    }

    /// The dims that transfers and batches are made for: as last received from the metadata service.
    pub fn received_dims(&self) -> Coords {
        self.opened().received_dims()
    }

    /// Changes its dims: each axis grows up to its max dim, or shrinks, and elements outside the new dims are lost.
    /// Other sessions that have it open see the change.
    ///
    /// # Errors
    /// `Invalid` if an axis may not have that length; `Denied`; `ReadOnly` if it is not open for writing.
    pub fn set_dims(&self, dims: impl AsRef<[u64]>) -> Result<(), Error> {
        self.may_change()?;
        let client = self.session.client()?;
        client
            .of(self.handle.ino())
            .set_dims(self.handle.ino(), dims.as_ref().into())
            .map_err(|error| self.about(error))?;
        Ok(())
    }

    /// Changes its form: everything while it is empty; dims and dtype only if its bytes stay the same; the placement at
    /// any time. Tags and mode of the spec are ignored.
    ///
    /// # Errors
    /// `Invalid`, with the allowed changes; `Denied`; `ReadOnly` if it is not open for writing.
    pub fn declare(&self, spec: &ObjectSpec) -> Result<(), Error> {
        self.may_change()?;
        let client = self.session.client()?;
        client
            .of(self.handle.ino())
            .declare(self.handle.ino(), spec.change.clone())
            .map_err(|error| self.about(error))?;
        Ok(())
    }

    /// Its tags, by key.
    ///
    /// # Errors
    /// `Denied`; of the metadata service.
    pub fn tags(&self) -> Result<Vec<(String, Tag)>, Error> {
        self.may(Want::Read)?;
        Ok(self
            .session
            .client()?
            .md(self.handle.ino())
            .tags(self.handle.ino())?)
    }

    /// Sets and removes its tags in one request; removals come first. It need not be open for writing: tags belong to
    /// the object and not to its bytes, as attributes do on a mount.
    ///
    /// # Errors
    /// `Denied`; `ReadOnly` in a read-only session; `Invalid`; `NoSpace` for too many tags.
    pub fn tag(&self, set: Vec<(String, Tag)>, remove: Vec<String>) -> Result<(), Error> {
        self.session.changes()?;
        self.may(Want::Write)?;
        let client = self.session.client()?;
        client
            .md(self.handle.ino())
            .call(op::Tag {
                changes: vec![TagChange {
                    ino: self.handle.ino(),
                    set,
                    remove,
                }],
            })
            .map_err(|error| self.about(error))
    }

    /// Reads a selection, packed.
    ///
    /// # Errors
    /// `Invalid` for a selection that does not fit, or an object that is open only for writing; `TooLarge` for a
    /// selection larger than the available memory; of the servers.
    pub fn read<'a>(&self, select: impl Into<Select<'a>>) -> Result<Vec<u8>, Error> {
        self.readable()?;
        let part = self.part(select.into())?;
        part.read_all().map_err(|error| self.about(error))
    }

    /// Reads a selection into the elements that `memory` selects in a buffer.
    ///
    /// # Errors
    /// As [`Object::read`]; `Invalid` if `memory` does not match the selection or the buffer, or an element does not
    /// fit its target dtype.
    pub fn read_into<'a>(
        &self,
        select: impl Into<Select<'a>>,
        into: &mut [u8],
        memory: &Memory,
    ) -> Result<(), Error> {
        self.readable()?;
        let select: Select<'a> = select.into();
        let part = self.part(select.clone())?;
        if part.bytes() <= AT_ONCE || self.awaits_data() {
            let read = part.read_into(memory, into);
            return read.map_err(|error| self.about(error));
        }
        drop(part);
        let read = scope(|scope| -> Result<(), Error> {
            let mut read = scope.read_from(self, select, memory, into)?;
            read.start()?;
            read.wait()?;
            Ok(())
        });
        read.map_err(|error| self.about(error))
    }

    /// Writes a selection from packed bytes. If the slowest axis is unlimited, the object grows as far as a box or
    /// hyperslab reaches.
    ///
    /// # Errors
    /// `ReadOnly` if it is not open for writing; `TooLarge` beyond the object's maximum size; `Invalid` for a selection
    /// that does not fit, or a different number of bytes; of the servers.
    pub fn write<'a>(&self, select: impl Into<Select<'a>>, from: &[u8]) -> Result<(), Error> {
        self.write_from(select, from, &Memory::packed())
    }

    /// Writes a selection from the elements that `memory` selects in a buffer.
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

    /// Whether a read may wait until another program has written what it asks for: the object is coupled, and this
    /// session reads it.
    pub fn awaits_data(&self) -> bool {
        self.handle.awaits_data()
    }

    /// Its chunks as a read would find them now, after a flush of what all sessions wrote.
    ///
    /// # Errors
    /// Of the services.
    pub fn layout(&self) -> Result<LayoutView, Error> {
        let client = self.session.client()?;
        let client = client.of(self.handle.ino());
        client
            .layout(self.handle.ino())
            .map_err(|error| self.about(error))
    }

    /// Sends data written through this object handle to the servers, and returns the error of an earlier background
    /// flush, if there was one.
    ///
    /// # Errors
    /// As described.
    pub fn flush(&self) -> Result<(), Error> {
        self.handle()?.flush().map_err(|error| self.about(error))
    }

    /// Syncs everything of the object to the servers' disks.
    ///
    /// # Errors
    /// Of the sync, or of a background flush since the last call.
    pub fn sync(&self) -> Result<(), Error> {
        let handle = self.handle()?;
        handle.fsync().map_err(|error| self.about(error))?;
        let client = self.session.client()?;
        client
            .sync_name(handle.ino())
            .map_err(|error| self.about(error))
    }

    /// Closes it, with a flush, after its started transfers have ended.
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
        Ok(Walk::new(&context, &self.path).check(&self.entry()?, want)?)
    }

    /// Whether the caller may change it through this handle.
    fn may_change(&self) -> Result<(), Error> {
        self.session.changes()?;
        self.may(Want::Write)?;
        Ok(self.writable()?)
    }

    /// Adds the object's path. An error caused by a close of the session is reported as `Closed`; an error with another
    /// cause, such as lack of space, is not hidden by it.
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
