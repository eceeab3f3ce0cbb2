//! An open object: read and written by selections.

use std::path::Path;
use std::sync::Arc;

use slabfs_mdserver::api::{Entry, Ino};
use slabfs_model::{Coords, Tag};

use super::Session;
use super::error::{Error, ErrorKind};
use super::memory::Strides;
use super::select::Select;
use super::spec::ObjectSpec;
use super::stat::Stat;
use crate::call::access::Want;
use crate::call::path::{PathText, check};
use crate::client::{Handle, OpenMode, Part};

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
    /// `Invalid` where an axis may not have that length; `Denied`.
    pub fn set_dims(&self, dims: impl AsRef<[u64]>) -> Result<(), Error> {
        self.may(Want::Write)?;
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
    /// `Invalid`, saying what is allowed; `Denied`.
    pub fn declare(&self, spec: &ObjectSpec) -> Result<(), Error> {
        self.may(Want::Write)?;
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

    /// Sets and removes tags of it in one request; removals come first.
    ///
    /// # Errors
    /// `Denied`; `Invalid`; `NoSpace` when it has too many.
    pub fn tag(&self, set: Vec<(String, Tag)>, remove: Vec<String>) -> Result<(), Error> {
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
        let mut bytes = buffer(part.bytes())?;
        part.read(&mut bytes).map_err(|error| self.about(error))?;
        Ok(bytes)
    }

    /// Reads a selection into a buffer, packed or with strides.
    ///
    /// # Errors
    /// As [`Object::read`]; `Invalid` for a buffer that the selection does not fill (packed) or does not fit into.
    pub fn read_into<'a>(
        &self,
        select: impl Into<Select<'a>>,
        into: &mut [u8],
        strides: Option<&Strides>,
    ) -> Result<(), Error> {
        self.readable()?;
        let part = self.part(select.into())?;
        let Some(strides) = strides else {
            return part.read(into).map_err(|error| self.about(error));
        };
        let elem = self.elem(&part);
        strides.check(part.shape(), elem, into.len())?;
        let mut packed = buffer(part.bytes())?;
        part.read(&mut packed).map_err(|error| self.about(error))?;
        let mut from = 0;
        strides.runs(part.shape(), elem, &mut |place, len| {
            into[place..place + len].copy_from_slice(&packed[from..from + len]);
            from += len;
        });
        Ok(())
    }

    /// Writes a selection from packed bytes.
    ///
    /// # Errors
    /// `ReadOnly` where it is not open for writing; `Invalid` for a selection that does not fit, or bytes that are
    /// not as many; of the servers.
    pub fn write<'a>(&self, select: impl Into<Select<'a>>, from: &[u8]) -> Result<(), Error> {
        self.write_from(select, from, None)
    }

    /// Writes a selection from a buffer, packed or with strides.
    ///
    /// # Errors
    /// As [`Object::write`].
    pub fn write_from<'a>(
        &self,
        select: impl Into<Select<'a>>,
        from: &[u8],
        strides: Option<&Strides>,
    ) -> Result<(), Error> {
        if !self.access.writes() {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                format!("{} is open for reading; open it for writing too", self.path),
            ));
        }
        let part = self.part(select.into())?;
        let Some(strides) = strides else {
            return part.write(from).map_err(|error| self.about(error));
        };
        let elem = self.elem(&part);
        strides.check(part.shape(), elem, from.len())?;
        let mut packed = buffer(part.bytes())?;
        let mut at = 0;
        strides.runs(part.shape(), elem, &mut |place, len| {
            packed[at..at + len].copy_from_slice(&from[place..place + len]);
            at += len;
        });
        part.write(&packed).map_err(|error| self.about(error))
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

    /// Ends it, with a flush.
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

    fn readable(&self) -> Result<(), Error> {
        match self.access.reads() {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "{} is open for writing; open it for reading too",
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

    /// Bytes of an element, by what the selection comes to.
    fn elem(&self, part: &Part<'_>) -> u64 {
        let elements: u64 = part.shape().iter().product();
        part.bytes().checked_div(elements).unwrap_or(1)
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

    fn about(&self, error: impl Into<Error>) -> Error {
        error.into().about(&self.path)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            tracing::error!(%error, "an object did not close well");
        }
    }
}

/// Memory for so many bytes, if there is any: a selection may be larger.
fn buffer(bytes: u64) -> Result<Vec<u8>, Error> {
    let mut memory = Vec::new();
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    memory.try_reserve_exact(len).map_err(|_| {
        Error::new(
            ErrorKind::TooLarge,
            format!(
                "there is no memory for a selection of {bytes} bytes; read or write less at a time"
            ),
        )
    })?;
    memory.resize(len, 0);
    Ok(memory)
}
