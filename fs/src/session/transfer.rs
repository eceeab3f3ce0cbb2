//! Transfers and batches of open objects: asynchronous reads and writes, and nested strided patterns.
//!
//! The types are the client's; here selections and units are resolved for the object. Closing an object waits for its
//! started transfers; those not started can no longer start.

use slabfs_model::batch::{Batch, Plan};

use super::error::Error;
use super::object::Object;
use super::select::Select;
use crate::client::FsError;
use crate::client::transfer::{Failed, Memory, Scope, Transfer};
use crate::view::pattern::Unit;

impl<B> From<Failed<B>> for Error {
    fn from(failed: Failed<B>) -> Error {
        failed.error.into()
    }
}

/// A transfer out of a borrowed buffer.
type Out<'scope> = Result<Transfer<&'scope [u8]>, Failed<&'scope [u8]>>;
/// A transfer into a borrowed buffer.
type In<'scope> = Result<Transfer<&'scope mut [u8]>, Failed<&'scope mut [u8]>>;

impl Object {
    /// A transfer of a selection to `memory` of `buffer`, to be started and waited for.
    ///
    /// # Errors
    /// `Invalid` if the selections do not match each other, the buffer, the object or its dtype, or the object is open
    /// only for writing. The buffer is returned with the error.
    pub fn read_transfer<'a, B: AsMut<[u8]> + Send + 'static>(
        &self,
        select: impl Into<Select<'a>>,
        memory: &Memory,
        buffer: B,
    ) -> Result<Transfer<B>, Failed<B>> {
        match self.readable().and_then(|()| self.elements(select.into())) {
            Ok(slab) => self.opened().read_transfer(&slab, memory, buffer),
            Err(error) => Err(Failed { error, buffer }),
        }
    }

    /// A transfer of `memory` of `buffer` to a selection, to be started and waited for. If the slowest axis is
    /// unlimited, the object grows as far as a box or hyperslab reaches.
    ///
    /// # Errors
    /// As [`Object::read_transfer`]; `ReadOnly`; `TooBig` for a selection beyond the object's maximum size.
    pub fn write_transfer<'a, B: AsRef<[u8]> + Send + 'static>(
        &self,
        select: impl Into<Select<'a>>,
        memory: &Memory,
        buffer: B,
    ) -> Result<Transfer<B>, Failed<B>> {
        match self.writable().and_then(|()| self.elements(select.into())) {
            Ok(slab) => self.opened().write_transfer(&slab, memory, buffer),
            Err(error) => Err(Failed { error, buffer }),
        }
    }

    /// Reads the pieces of a batch into a buffer: one request to each data server, however many pieces.
    ///
    /// # Errors
    /// `Invalid` for a batch that is malformed, that reaches beyond the object or the buffer, or whose pieces overlap
    /// in the buffer; the text names the element of the batch. Errors of the servers.
    pub fn read_batch(&self, batch: &[Batch], unit: Unit, into: &mut [u8]) -> Result<(), Error> {
        let handle = self.handle()?;
        self.readable()
            .and_then(|()| self.plan(batch, unit))
            .and_then(|plan| {
                fits(&plan, into.len())?;
                handle.read_batch(&plan, 0..plan.bytes(), into)
            })
            .map_err(|error| self.about(error.of_batch(batch)))
    }

    /// Writes the pieces of a batch from a buffer. If pieces overlap in the object, the later one is stored. The bytes
    /// are copied as by [`Object::write`]; many small pieces go to the servers at once.
    ///
    /// # Errors
    /// `Invalid` for a batch that is malformed or reaches beyond the buffer; `TooLarge` for one that reaches beyond the
    /// object's maximum size; `ReadOnly`; errors of the servers, after which part of it may be written.
    pub fn write_batch(&self, batch: &[Batch], unit: Unit, from: &[u8]) -> Result<(), Error> {
        let handle = self.handle()?;
        self.writable()
            .and_then(|()| self.plan(batch, unit))
            .and_then(|plan| {
                fits(&plan, from.len())?;
                handle.write_batch(&plan, 0..plan.bytes(), from)
            })
            .map_err(|error| self.about(error))?;
        Ok(())
    }

    /// As [`Object::read_batch`], to be started and waited for.
    ///
    /// # Errors
    /// As there, for errors that can be detected beforehand.
    pub fn read_batch_transfer<B: AsMut<[u8]> + Send + 'static>(
        &self,
        batch: &[Batch],
        unit: Unit,
        buffer: B,
    ) -> Result<Transfer<B>, Failed<B>> {
        match self.readable().and_then(|()| self.plan(batch, unit)) {
            Ok(plan) => named(batch, self.opened().read_batch_transfer(plan, buffer)),
            Err(error) => Err(Failed { error, buffer }),
        }
    }

    /// As [`Object::write_batch`], to be started and waited for; at its end other sessions see the written data.
    ///
    /// # Errors
    /// As there, for errors that can be detected beforehand.
    pub fn write_batch_transfer<B: AsRef<[u8]> + Send + 'static>(
        &self,
        batch: &[Batch],
        unit: Unit,
        buffer: B,
    ) -> Result<Transfer<B>, Failed<B>> {
        match self.writable().and_then(|()| self.plan(batch, unit)) {
            Ok(plan) => self.opened().write_batch_transfer(plan, buffer),
            Err(error) => Err(Failed { error, buffer }),
        }
    }

    fn elements(&self, select: Select<'_>) -> Result<slabfs_model::Hyperslab, FsError> {
        self.opened().elements(&select.wanted()?)
    }

    fn plan(&self, batch: &[Batch], unit: Unit) -> Result<Plan, FsError> {
        let unit = match unit {
            Unit::Bytes => 1,
            Unit::Elements => self.opened().elem(),
        };
        Plan::new(batch, unit).map_err(|error| FsError::from(error).of_batch(batch))
    }
}

/// Adds the paths of the elements that an error names.
fn named<B>(
    batch: &[Batch],
    made: Result<Transfer<B>, Failed<B>>,
) -> Result<Transfer<B>, Failed<B>> {
    made.map_err(|failed| Failed {
        error: failed.error.of_batch(batch),
        buffer: failed.buffer,
    })
}

/// Whether a batch stays within a buffer of `len` bytes.
fn fits(plan: &Plan, len: usize) -> Result<(), FsError> {
    match plan.memory_span() {
        Some((_, end)) if end > len as u64 => Err(FsError::Invalid(format!(
            "the batch reaches up to byte {end} of a buffer that has {len}"
        ))),
        _ => Ok(()),
    }
}

/// Transfers of borrowed buffers: none of a scope is in flight when the scope returns.
impl<'scope> Scope<'scope, '_> {
    /// As [`Object::write_transfer`].
    ///
    /// # Errors
    /// As there.
    pub fn write_to<'a>(
        &'scope self,
        object: &Object,
        select: impl Into<Select<'a>>,
        memory: &Memory,
        buffer: &'scope [u8],
    ) -> Out<'scope> {
        match object
            .writable()
            .and_then(|()| object.elements(select.into()))
        {
            Ok(slab) => self.write(object.opened(), &slab, memory, buffer),
            Err(error) => Err(Failed { error, buffer }),
        }
    }

    /// As [`Object::read_transfer`].
    ///
    /// # Errors
    /// As there.
    pub fn read_from<'a>(
        &'scope self,
        object: &Object,
        select: impl Into<Select<'a>>,
        memory: &Memory,
        buffer: &'scope mut [u8],
    ) -> In<'scope> {
        match object
            .readable()
            .and_then(|()| object.elements(select.into()))
        {
            Ok(slab) => self.read(object.opened(), &slab, memory, buffer),
            Err(error) => Err(Failed { error, buffer }),
        }
    }

    /// As [`Object::write_batch_transfer`].
    ///
    /// # Errors
    /// As there.
    pub fn write_batch_to(
        &'scope self,
        object: &Object,
        batch: &[Batch],
        unit: Unit,
        buffer: &'scope [u8],
    ) -> Out<'scope> {
        match object.writable().and_then(|()| object.plan(batch, unit)) {
            Ok(plan) => self.write_batch(object.opened(), plan, buffer),
            Err(error) => Err(Failed { error, buffer }),
        }
    }

    /// As [`Object::read_batch_transfer`].
    ///
    /// # Errors
    /// As there.
    pub fn read_batch_from(
        &'scope self,
        object: &Object,
        batch: &[Batch],
        unit: Unit,
        buffer: &'scope mut [u8],
    ) -> In<'scope> {
        match object.readable().and_then(|()| object.plan(batch, unit)) {
            Ok(plan) => named(batch, self.read_batch(object.opened(), plan, buffer)),
            Err(error) => Err(Failed { error, buffer }),
        }
    }
}
