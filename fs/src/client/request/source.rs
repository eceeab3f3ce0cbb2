//! The bytes that a write sends: in place in the caller's memory, or gathered and converted first.

use slabfs_model::{Hyperslab, for_each_run};

use super::core::Begun;
use crate::client::error::FsError;
use crate::client::payload::Slices;

/// The bytes of a transfer, converted, in packed order: in place if possible, gathered if they must be contiguous and
/// are not. With `one_chunk` they are sent as one chunk and need not be contiguous.
pub(super) fn packed(begun: &Begun, one_chunk: bool) -> Result<Slices<'_>, FsError> {
    let memory = &begun.plan.memory;
    let buffer = begun.bytes();
    let convert = memory.inward()?;
    let mut parts: Vec<&[u8]> = Vec::new();
    match (&memory.run, &memory.scattered) {
        (Some((at, len)), _) => parts.push(&buffer[*at..at + len]),
        (None, Some(scattered)) => {
            if convert.is_none() && one_chunk {
                scattered.for_each_run(&mut |at, len| parts.push(&buffer[at..at + len]));
                return Ok(Slices::Borrowed(parts).settle(memory.len));
            }
            let mut bytes = vec![0; memory.len];
            scattered.gather(buffer, &mut bytes);
            let Some(convert) = convert else {
                return Ok(Slices::Owned(bytes));
            };
            let mut converted = vec![0; begun.plan.moved() as usize];
            convert.run(&bytes, &mut converted)?;
            return Ok(Slices::Owned(converted));
        }
        (None, None) => {}
    }
    let Some(convert) = convert else {
        return Ok(Slices::Borrowed(parts));
    };
    let mut converted = vec![0; begun.plan.moved() as usize];
    convert.run(parts.first().copied().unwrap_or_default(), &mut converted)?;
    Ok(Slices::Owned(converted))
}

/// The bytes of `part` (packed cells of `slab`) of contiguous bytes, or all bytes.
pub(super) fn some_of<'a>(
    packed: &'a Slices<'_>,
    slab: &Hyperslab,
    part: &Hyperslab,
) -> Slices<'a> {
    let parts = packed.parts();
    if part.volume() == slab.volume() {
        return Slices::Borrowed(parts);
    }
    let bytes = parts.first().copied().unwrap_or_default();
    let mut some = Vec::new();
    for_each_run(&slab.packed_shape(), part, &mut |at, len| {
        some.push(&bytes[at..at + len]);
    });
    Slices::Borrowed(some).settle(part.volume() as usize)
}
