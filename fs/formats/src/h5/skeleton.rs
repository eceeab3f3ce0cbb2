//! An HDF5 file without its elements, for views that show elements which lie elsewhere as such a file.
//!
//! The library lays the file out: all datasets are contiguous, and their space is allocated when they are created, and never
//! written. The file is in `/dev/shm`, where files can be as long as any array and what was not written takes no memory; where
//! there is none it is in the directory for temporary files. Dimensions are those of NetCDF-4, so that NetCDF
//! programs open the file too; types and attributes are all that HDF5 has. An attribute that it has not is left out. No
//! dimension is unlimited, since datasets that can grow have chunks.

use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use slabfs_model::DTypeKind;

use super::{Dialect, Writer, bad};
use crate::output::Output;
use crate::tree::{Exact, Group};
use crate::types::Hdf5Type;
use crate::{FormatError, Result};

/// A file without its elements.
#[derive(Debug)]
pub struct Skeleton {
    /// Bytes of the file.
    pub size: u64,
    /// What it has besides elements, by offset; all other bytes are zero.
    pub parts: Vec<(u64, Vec<u8>)>,
    /// Where the elements of variables begin, by their paths.
    pub elements: Vec<(String, u64)>,
}

/// A filesystem in memory.
const MEMORY: &str = "/dev/shm";

/// Most bytes of all elements.
const LONGEST: u64 = 1 << 60;

/// Most bytes of what the file has besides elements.
const MOST: u64 = 1 << 30;

/// Makes the file of a tree.
///
/// # Errors
/// The tree has names or types that HDF5 cannot have.
pub fn skeleton(tree: &Group) -> Result<Skeleton> {
    let mut tree = tree.clone();
    fixed(&mut tree);
    fits(&mut tree, &mut 0);
    let failed = |error: &dyn std::fmt::Display| {
        FormatError::file(Path::new("the view"), "making it", error)
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix("slabfs-view-");
    // Removed when it is dropped.
    let named = builder
        .tempfile_in(MEMORY)
        .or_else(|_| builder.tempfile())
        .map_err(|error| failed(&error))?;
    let (memory, path) = named.into_parts();
    let writer = Writer::view(Output::in_place(&path), &tree)?;
    // It is not left if this process is killed.
    path.close().map_err(|error| failed(&error))?;
    let elements = writer.places();
    Box::new(writer).close()?;
    let size = memory.metadata().map_err(|error| failed(&error))?.len();
    let mut parts = Vec::new();
    let (mut at, mut all) = (0, 0);
    loop {
        let begin = match seek(&memory, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // No data any more.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(failed(&error)),
        };
        let end = seek(&memory, SeekFrom::Hole(begin)).map_err(|error| failed(&error))?;
        all += end - begin;
        if all > MOST {
            return Err(bad(
                Path::new("the view"),
                "the container",
                "has too much metadata for a file",
            ));
        }
        let mut bytes = vec![0; (end - begin) as usize];
        memory
            .read_exact_at(&mut bytes, begin)
            .map_err(|error| failed(&error))?;
        parts.push((begin, bytes));
        at = end;
    }
    Ok(Skeleton {
        size,
        parts,
        elements,
    })
}

/// Leaves out arrays with which the file would be longer than files can be.
fn fits(group: &mut Group, bytes: &mut u64) {
    group.variables.retain(|variable| {
        let shape = variable.shape();
        let own = shape
            .iter()
            .fold(variable.dtype.size(), |all, &len| all.saturating_mul(len));
        let all = bytes.saturating_add(own);
        let fits = all <= LONGEST;
        if fits {
            *bytes = all;
        }
        fits
    });
    group.groups.iter_mut().for_each(|below| fits(below, bytes));
}

/// Makes everything contiguous, with the elements as they are.
fn fixed(group: &mut Group) {
    group.dims.iter_mut().for_each(|dim| dim.unlimited = false);
    for variable in &mut group.variables {
        variable
            .dims
            .iter_mut()
            .for_each(|dim| dim.dim.unlimited = false);
        variable.max.clear();
        variable.chunk = None;
        variable.deflate = None;
        if matches!(
            variable.exact,
            Some(Exact::Numpy(_) | Exact::Strings { .. })
        ) {
            variable.exact = None;
        }
        if variable.exact.is_none() && variable.dtype.kind() == DTypeKind::Unicode {
            variable.exact = Some(Exact::Hdf5(Hdf5Type::Opaque {
                len: variable.dtype.size() as u32,
                tag: String::new(),
            }));
        }
    }
    group.links.clear();
    group.groups.iter_mut().for_each(fixed);
}

impl Writer {
    /// A file without elements, in one piece each.
    fn view(output: Output, tree: &Group) -> Result<Writer> {
        Writer::with(output, Dialect::NetCdf, true, tree)
    }
}
