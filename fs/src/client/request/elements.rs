//! Elements between the caller's memory and packed bytes of the object: gathered or scattered, and converted. Pure.

use slabfs_model::{Hyperslab, for_each_run};

use super::memory::Fitted;
use crate::client::buffer::payload::Slices;
use crate::client::error::FsError;

impl Fitted {
    /// The first byte and the length of its elements, if they are contiguous and of the object's dtype.
    pub(in crate::client) fn direct(&self) -> Option<(usize, usize)> {
        let same = matches!(self.outward(), Ok(None));
        self.run.filter(|_| same)
    }

    /// The elements of a buffer, converted, in packed order: in place if possible, gathered if they must be contiguous
    /// and are not. With `one_chunk` they are sent as one chunk and need not be contiguous.
    ///
    /// # Errors
    /// `NotRepresentable`; `TooBig` if there is no memory for them.
    pub(in crate::client) fn take<'a>(
        &self,
        buffer: &'a [u8],
        one_chunk: bool,
    ) -> Result<Slices<'a>, FsError> {
        let convert = self.inward()?;
        let elements = match (&self.run, &self.scattered) {
            (Some((at, len)), _) => Slices::Borrowed(vec![&buffer[*at..at + len]]),
            (None, Some(scattered)) if convert.is_none() && one_chunk => {
                let mut parts: Vec<&[u8]> = Vec::new();
                scattered.for_each_run(&mut |at, len| parts.push(&buffer[at..at + len]));
                return Ok(Slices::Borrowed(parts).settle(self.len));
            }
            (None, Some(scattered)) => {
                let mut bytes = room(self.len as u64)?;
                scattered.gather(buffer, &mut bytes);
                Slices::Owned(bytes)
            }
            (None, None) => Slices::Borrowed(Vec::new()),
        };
        let Some(convert) = convert else {
            return Ok(elements);
        };
        let mut converted = room(self.object_bytes())?;
        convert.run(elements.contiguous(), &mut converted)?;
        Ok(Slices::Owned(converted))
    }

    /// Puts packed elements of the object at their places in a buffer.
    ///
    /// # Errors
    /// As [`Fitted::take`].
    pub(in crate::client) fn put(&self, packed: &[u8], buffer: &mut [u8]) -> Result<(), FsError> {
        let convert = self.outward()?;
        match (convert, self.run, &self.scattered) {
            (Some(convert), Some((at, len)), _) => convert.run(packed, &mut buffer[at..at + len]),
            (None, Some((at, len)), _) => {
                buffer[at..at + len].copy_from_slice(packed);
                Ok(())
            }
            (Some(convert), None, Some(scattered)) => {
                let mut converted = room(self.len as u64)?;
                convert.run(packed, &mut converted)?;
                scattered.scatter(&converted, buffer);
                Ok(())
            }
            (None, None, Some(scattered)) => {
                scattered.scatter(packed, buffer);
                Ok(())
            }
            (_, None, None) => Ok(()),
        }
    }
}

/// Allocates memory for a selection, which may be larger than the memory there is.
///
/// # Errors
/// `TooBig`.
pub(in crate::client) fn room(bytes: u64) -> Result<Vec<u8>, FsError> {
    let mut memory = Vec::new();
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    memory.try_reserve_exact(len).map_err(|_| {
        FsError::TooBig(format!(
            "there is no memory for a selection of {bytes} bytes; read or write less at a time"
        ))
    })?;
    memory.resize(len, 0);
    Ok(memory)
}

/// The bytes of `part` (packed cells of `slab`) of contiguous bytes, or all bytes.
pub(super) fn some_of<'a>(
    packed: &'a Slices<'_>,
    slab: &Hyperslab,
    part: &Hyperslab,
) -> Slices<'a> {
    if part.volume() == slab.volume() {
        return Slices::Borrowed(packed.parts());
    }
    let bytes = packed.contiguous();
    let mut some = Vec::new();
    for_each_run(&slab.packed_shape(), part, &mut |at, len| {
        some.push(&bytes[at..at + len]);
    });
    Slices::Borrowed(some).settle(part.volume() as usize)
}
