//! What there is to know of a container, an object or whatever else has a name.

use std::time::SystemTime;

use slabfs_mdserver::api::{Entry, Kind, SharedInfo};
use slabfs_model::{Codec, Coords, DType, Layout, MaxDim, Placement};

use crate::view::describe;

/// What something is.
#[derive(Debug, Clone)]
pub struct Stat {
    /// Its number; never another's.
    pub ino: u64,
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Last change of data.
    pub mtime: SystemTime,
    /// Grows with every change of data or attributes.
    pub version: u64,
    /// Of an object: what it is as an array.
    pub array: Option<Array>,
    pub(super) info: Option<SharedInfo>,
}

/// An object as an array; a byte object is one of a single axis of `u1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// Element type.
    pub dtype: DType,
    /// Elements an axis, slowest first; of a scalar none.
    pub dims: Coords,
    /// How far each axis may grow.
    pub max_dims: Vec<MaxDim>,
    /// What reads where nothing was written, as text.
    pub fill: String,
    /// How it is cut into chunks.
    pub layout: Layout,
    /// How new chunks are encoded.
    pub codec: Codec,
    /// Which data server gets what is written next.
    pub placement: Placement,
    /// Somebody made it an array; else it is plain bytes.
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
