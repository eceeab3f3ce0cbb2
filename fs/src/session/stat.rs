//! The attributes of a container, an object or another named entry.

use std::time::SystemTime;

use slabfs_mdserver::api::{Entry, Kind, SharedInfo};
use slabfs_model::{Codec, Coords, DType, Layout, MaxDim, Placement};

use crate::view::describe;

/// The attributes of an entry.
#[derive(Debug, Clone)]
pub struct Stat {
    /// Its inode number; never reused.
    pub ino: u64,
    /// Its kind.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Last change of data.
    pub mtime: SystemTime,
    /// Grows with every change of data or attributes.
    pub version: u64,
    /// For an object: its form as an array.
    pub array: Option<Array>,
    pub(super) info: Option<SharedInfo>,
}

/// An object as an array; a byte object is an array of one axis of `u1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// The dtype.
    pub dtype: DType,
    /// Number of elements per axis, slowest first; empty for a scalar.
    pub dims: Coords,
    /// The maximum length of each axis.
    pub max_dims: Vec<MaxDim>,
    /// The value of elements that were never written, as text.
    pub fill: String,
    /// The layout of its chunks.
    pub layout: Layout,
    /// The encoding of new chunks.
    pub codec: Codec,
    /// The placement of newly written data on data servers.
    pub placement: Placement,
    /// True if it was declared as an array; otherwise it is plain bytes.
    pub declared: bool,
}

impl Stat {
    pub(super) fn of(entry: &Entry) -> Stat {
        let attr = &entry.attr;
        Stat {
            ino: attr.ino.0,
            kind: attr.kind,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            mtime: attr.mtime.into(),
            version: attr.change,
            array: entry.info.as_ref().map(|info| Array {
                dtype: info.dtype,
                dims: info.dims.clone(),
                max_dims: info.max_dims.clone(),
                fill: describe::fill(info),
                layout: info.layout.clone(),
                codec: info.codec,
                placement: info.placement,
                declared: info.declared,
            }),
            info: entry.info.clone(),
        }
    }
}
