//! `.slabfs/npy` and `.slabfs/zarr`: what the names in them are, and what their directories list (`view::made` makes the
//! files).
//!
//! Nothing is cached by the kernel: another lookup finds the form that an object has then.

use std::sync::Arc;

use fuser::Errno;
use serde_json::{Map, Value};
use slabfs_datamodel::mapping;
use slabfs_mdserver::api::{ArrayInfo, Attr, DirEntry, Entry, Ino, Kind, MdError, ROOT};
use slabfs_model::MaxDim;

use super::lookup::hidden;
use crate::call::meaning::{Meaning, meaning};
use crate::client::FsError;
use crate::mount::errno::{Outcome, refused};
use crate::mount::shared::{Shared, Shown};
use crate::view::hidden::Hidden;
use crate::view::made::{self, ChunkDirectory, Content, Made, NoView};
use crate::view::name::HIDDEN;
use crate::view::nodes::Node;

/// The metadata of a group or an array of Zarr.
const ZARR_JSON: &[u8] = b"zarr.json";
/// The directory of an array's chunks.
const CHUNKS: &[u8] = b"c";

/// The root of the mount as a file of HDF5, in `.slabfs`.
pub(super) const ROOT_HDF5: &[u8] = b"root.h5";

/// What the name of an entry of a container becomes in a directory of a view.
pub(super) enum Named {
    Hidden(Hidden),
    /// A file.
    File,
}

/// Whether a stored name is one that the mount, an import or a join uses itself.
pub(in crate::mount) fn is_own(name: &[u8]) -> bool {
    name == HIDDEN || name.starts_with(mapping::HIDDEN.as_bytes())
}

/// The name and the meaning that an entry has in a directory of a view; `None` if it has none there.
pub(super) fn named(view: Hidden, entry: &DirEntry) -> Option<(Vec<u8>, Named)> {
    let attr = &entry.entry.attr;
    let (ino, name) = (attr.ino, &entry.name);
    if is_own(name) || matches!(view, Hidden::ZarrGroup(_)) && **name == *ZARR_JSON {
        return None;
    }
    let with = |ending: &str| [name, ending.as_bytes()].concat();
    match (view, attr.kind) {
        (Hidden::NpyDirectory(_), Kind::Directory) => {
            Some((name.to_vec(), Named::Hidden(Hidden::NpyDirectory(ino))))
        }
        (Hidden::NpyDirectory(_), Kind::Object) => Some((with(".npy"), Named::File)),
        (Hidden::Hdf5Directory(_), Kind::Directory | Kind::Object) => {
            Some((with(".h5"), Named::File))
        }
        (Hidden::ZarrDirectory(_), Kind::Directory) => {
            Some((with(".zarr"), Named::Hidden(Hidden::ZarrGroup(ino))))
        }
        (Hidden::ZarrDirectory(_), Kind::Object) => {
            Some((with(".zarr"), Named::Hidden(Hidden::ZarrArray(ino))))
        }
        (Hidden::ZarrGroup(_), Kind::Directory) => {
            Some((name.to_vec(), Named::Hidden(Hidden::ZarrGroup(ino))))
        }
        (Hidden::ZarrGroup(_), Kind::Object) => {
            Some((name.to_vec(), Named::Hidden(Hidden::ZarrArray(ino))))
        }
        _ => None,
    }
}

/// Resolves a name in the directory of a view, or of chunks, with this number.
pub(super) fn shown(shared: &Shared, directory: u64, name: &[u8]) -> Outcome<Shown> {
    match shared.node(directory)? {
        Node::Hidden(Hidden::Top) if name == ROOT_HDF5 => root(shared),
        Node::Hidden(view) => look_up(shared, view, name),
        Node::Chunks(chunks) => look_up_chunk(shared, &chunks, name),
        _ => Err(MdError::NotFound.into()),
    }
}

/// Resolves a name in a directory of a view.
pub(super) fn look_up(shared: &Shared, view: Hidden, name: &[u8]) -> Outcome<Shown> {
    match view {
        Hidden::NpyDirectory(directory) => {
            if let Some(entry) = without_ending(shared, directory, name, b".npy")?
                && entry.attr.kind == Kind::Object
            {
                return npy(shared, entry.attr.ino);
            }
            directory_below(shared, directory, name, Hidden::NpyDirectory)
        }
        Hidden::Hdf5Directory(directory) => {
            // Some programs for NetCDF take no other ending than theirs.
            for ending in [&b".h5"[..], b".nc"] {
                if let Some(entry) = without_ending(shared, directory, name, ending)? {
                    return hdf5(shared, &entry.attr);
                }
            }
            directory_below(shared, directory, name, Hidden::Hdf5Directory)
        }
        Hidden::ZarrDirectory(directory) => {
            if let Some(entry) = without_ending(shared, directory, name, b".zarr")? {
                return zarr(shared, &entry.attr);
            }
            directory_below(shared, directory, name, Hidden::ZarrDirectory)
        }
        Hidden::ZarrGroup(ino) if name == ZARR_JSON => {
            let attr = shared.client.getattr(ino)?.attr;
            let tags = made::tags(shared.client.md(ino).tags(ino)?);
            make(shared, &attr, made::zarr_group(&tags))
        }
        Hidden::ZarrGroup(ino) => zarr(shared, &stored(shared, ino, name)?.attr),
        Hidden::ZarrArray(ino) if name == ZARR_JSON => {
            let (attr, info) = object(shared, ino)?;
            let tags = made::tags(shared.client.md(ino).tags(ino)?);
            make(shared, &attr, made::zarr_array(&attr, &info, &tags))
        }
        Hidden::ZarrArray(ino) if name == CHUNKS => {
            let chunks = ChunkDirectory {
                of: ino,
                index: Vec::new(),
            };
            chunk(shared, &chunks, None)
        }
        _ => Err(MdError::NotFound.into()),
    }
}

/// The directory of the same view for a directory below.
fn directory_below(
    shared: &Shared,
    directory: Ino,
    name: &[u8],
    view: fn(Ino) -> Hidden,
) -> Outcome<Shown> {
    let entry = stored(shared, directory, name)?;
    match entry.attr.kind {
        Kind::Directory => Ok(hidden(shared, view(entry.attr.ino), Some(&entry.attr))),
        _ => Err(MdError::NotFound.into()),
    }
}

/// Resolves a name in a directory of chunks.
pub(super) fn look_up_chunk(
    shared: &Shared,
    chunks: &ChunkDirectory,
    name: &[u8],
) -> Outcome<Shown> {
    let text = std::str::from_utf8(name).ok();
    let index = text.and_then(|text| text.parse::<u64>().ok());
    // Each index has one name.
    match index.filter(|index| index.to_string().as_bytes() == name) {
        Some(index) => chunk(shared, chunks, Some(index)),
        None => Err(MdError::NotFound.into()),
    }
}

/// The directory or file of chunks with one more index.
fn chunk(shared: &Shared, chunks: &ChunkDirectory, next: Option<u64>) -> Outcome<Shown> {
    let (attr, info) = object(shared, chunks.of)?;
    let mut index = chunks.index.clone();
    index.extend(next);
    if index.len() == info.dims.len() {
        let Some(chunk) = made::chunk(&info, &index) else {
            return Err(MdError::NotFound.into());
        };
        return make(shared, &attr, Ok(Content::Chunk(chunk)));
    }
    let counts = made::chunk_counts(&info);
    if index.len() > counts.len() || index.iter().zip(&counts).any(|(at, count)| at >= count) {
        return Err(MdError::NotFound.into());
    }
    let chunks = ChunkDirectory {
        of: chunks.of,
        index,
    };
    let number = shared.nodes.look_up_chunks(Arc::new(chunks));
    let directory = Hidden::ZarrArray(attr.ino);
    Ok(shared.shown_hidden(number, directory, Some(&attr)))
}

/// The file of HDF5 of the root.
pub(super) fn root(shared: &Shared) -> Outcome<Shown> {
    hdf5(shared, &shared.client.getattr(ROOT)?.attr)
}

/// The file of HDF5 of a container or an object.
fn hdf5(shared: &Shared, attr: &Attr) -> Outcome<Shown> {
    if !matches!(attr.kind, Kind::Directory | Kind::Object) {
        return Err(MdError::NotFound.into());
    }
    let file = shared.hdf5.unopened(attr.ino);
    make(shared, attr, Ok(Content::Hdf5(file)))
}

/// The file of NumPy of an object.
pub(super) fn npy(shared: &Shared, ino: Ino) -> Outcome<Shown> {
    let (attr, info) = object(shared, ino)?;
    let tags = match made::needs_tags(&info) {
        true => made::tags(shared.client.md(ino).tags(ino)?),
        false => Map::<String, Value>::new(),
    };
    make(shared, &attr, made::npy(&attr, &info, &tags))
}

fn zarr(shared: &Shared, attr: &Attr) -> Outcome<Shown> {
    let node = match attr.kind {
        Kind::Directory => Hidden::ZarrGroup(attr.ino),
        Kind::Object => Hidden::ZarrArray(attr.ino),
        _ => return Err(MdError::NotFound.into()),
    };
    Ok(hidden(shared, node, Some(attr)))
}

fn make(shared: &Shared, of: &Attr, content: Result<Content, NoView>) -> Outcome<Shown> {
    let content = match content {
        Ok(content) => content,
        Err(why) => {
            tracing::info!(inode = of.ino.0, %why, "there is no view of this object");
            return refused(Errno::ENOENT, "the format of the view cannot have it");
        }
    };
    let made = Arc::new(Made {
        of: of.ino,
        content,
    });
    let number = shared.nodes.look_up_made(made.clone());
    Ok(shared.shown_made(number, &made, of))
}

/// The entry with this name but for the ending; `None` if it has not that ending, or there is no such entry.
fn without_ending(
    shared: &Shared,
    directory: Ino,
    name: &[u8],
    ending: &[u8],
) -> Outcome<Option<Entry>> {
    let named = |name: &&[u8]| ![&b""[..], b".", b".."].contains(name);
    let Some(name) = name.strip_suffix(ending).filter(named) else {
        return Ok(None);
    };
    match stored(shared, directory, name) {
        Ok(entry) => Ok(Some(entry)),
        Err(crate::mount::errno::Failure::Client(FsError::Md(MdError::NotFound))) => Ok(None),
        Err(error) => Err(error),
    }
}

fn stored(shared: &Shared, directory: Ino, name: &[u8]) -> Outcome<Entry> {
    let Meaning::Plain(stored, _) = meaning(&shared.client, directory, name)? else {
        return refused(
            Errno::ENOENT,
            "views are those of objects, not of selections",
        );
    };
    Ok(shared.client.lookup(directory, &stored)?)
}

/// The attributes and the form of an object, with what was appended and not flushed yet.
pub(in crate::mount) fn object(shared: &Shared, ino: Ino) -> Outcome<(Attr, ArrayInfo)> {
    let entry = shared.client.getattr(ino)?;
    let Some(info) = entry.info else {
        return Err(MdError::NotFound.into());
    };
    let mut info = ArrayInfo::clone(&info);
    let inner = info.dims.iter().skip(1);
    let row = inner.fold(info.dtype.size(), |all, &len| all.saturating_mul(len));
    if matches!(info.max_dims.first(), Some(MaxDim::Unlimited))
        && let (Some(rows), Some(first)) = (entry.attr.size.checked_div(row), info.dims.first_mut())
    {
        *first = rows;
    }
    Ok((entry.attr, info))
}

/// How many entries a directory of chunks has, and whether they are directories.
pub(super) fn chunks_in(shared: &Shared, chunks: &ChunkDirectory) -> Outcome<(u64, bool)> {
    let (_, info) = object(shared, chunks.of)?;
    let counts = made::chunk_counts(&info);
    let at = chunks.index.len();
    Ok(match counts.get(at) {
        Some(&count) => (count, at + 1 < counts.len()),
        None => (0, false),
    })
}

/// The fixed entries of a directory of a view, and whether they are directories. Of an array without axes, `c` is its
/// only chunk.
pub(super) fn fixed(shared: &Shared, view: Hidden) -> Outcome<Vec<(&'static [u8], bool)>> {
    match view {
        Hidden::ZarrGroup(_) => Ok(vec![(ZARR_JSON, false)]),
        Hidden::ZarrArray(ino) => {
            let (_, info) = object(shared, ino)?;
            Ok(vec![(ZARR_JSON, false), (CHUNKS, !info.dims.is_empty())])
        }
        _ => Ok(Vec::new()),
    }
}
