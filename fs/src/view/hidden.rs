//! The files under `.slabfs` in the root of a mount.
//!
//! ```text
//! .slabfs/call           commands: JSON in, JSON out (`crate::call`)
//! .slabfs/find/QUERY/    links to what a search finds (`view::search`)
//! .slabfs/stats          counters of this mount, JSON
//! .slabfs/status         session and data servers, JSON
//! .slabfs/layout/PATH    the tiling of the object PATH, JSON
//! .slabfs/h5/PATH.h5     a container or an object as a file of HDF5 (`mount/hdf5_files.rs`)
//! .slabfs/npy/PATH.npy   the object as a file of NumPy (`view::made`)
//! .slabfs/root.h5        the root of the mount as such a file
//! .slabfs/root.zarr      the same as a Zarr directory
//! .slabfs/zarr/PATH.zarr a container or an object as a Zarr directory (`view::made`)
//! ```
//!
//! All of it but `call` is read-only and generated when it is opened; like files of `/proc`, these have size 0.
//! `layout`, `npy` and `zarr` mirror the mount's directories and objects with their owners and read permissions, so that a user sees no
//! layout of an object that the user may not read. `readdir` of the root does not list `.slabfs`, so that `rm -r`,
//! `du` and `rsync` do not walk into it.

use serde_json::{Value, json};
use slabfs_mdserver::api::{Ino, Kind, ROOT, ServerInfo};

/// A file or directory under `.slabfs`, or `.slabfs` itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hidden {
    /// `.slabfs`.
    Top,
    /// `.slabfs/call`.
    Call,
    /// `.slabfs/find`, in which a directory's name is a query.
    Find,
    /// `.slabfs/stats`.
    Stats,
    /// `.slabfs/status`.
    Status,
    /// `.slabfs/layout` for the root, and each directory in it for the directory that it mirrors.
    LayoutDirectory(Ino),
    /// The layout of an object.
    Layout(Ino),
    /// `.slabfs/npy` for the root, and each directory in it for the directory that it mirrors.
    NpyDirectory(Ino),
    /// The same of `.slabfs/h5`.
    Hdf5Directory(Ino),
    /// The same of `.slabfs/zarr`.
    ZarrDirectory(Ino),
    /// A container as a group of Zarr.
    ZarrGroup(Ino),
    /// An object as an array of Zarr.
    ZarrArray(Ino),
}

impl Hidden {
    /// The fixed entry of this directory with the name `name`. `None` where there is none, or where the name has to be
    /// looked up in the directory of [`Hidden::repeats`].
    pub fn child(self, name: &[u8]) -> Option<Hidden> {
        let entries = self.entries().iter();
        entries
            .copied()
            .find(|(entry, _)| entry.as_bytes() == name)
            .map(|(_, child)| child)
    }

    /// The directory or object that it mirrors.
    pub fn repeats(self) -> Option<Ino> {
        match self {
            Hidden::LayoutDirectory(ino)
            | Hidden::Layout(ino)
            | Hidden::NpyDirectory(ino)
            | Hidden::Hdf5Directory(ino)
            | Hidden::ZarrDirectory(ino)
            | Hidden::ZarrGroup(ino)
            | Hidden::ZarrArray(ino) => Some(ino),
            Hidden::Top | Hidden::Call | Hidden::Find | Hidden::Stats | Hidden::Status => None,
        }
    }

    /// The entry of a layout directory for an inode; `None` for anything but directories and objects.
    pub fn layout_of(ino: Ino, kind: Kind) -> Option<Hidden> {
        match kind {
            Kind::Directory => Some(Hidden::LayoutDirectory(ino)),
            Kind::Object => Some(Hidden::Layout(ino)),
            Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                None
            }
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(self) -> bool {
        matches!(
            self,
            Hidden::Top
                | Hidden::Find
                | Hidden::LayoutDirectory(_)
                | Hidden::NpyDirectory(_)
                | Hidden::Hdf5Directory(_)
                | Hidden::ZarrDirectory(_)
                | Hidden::ZarrGroup(_)
                | Hidden::ZarrArray(_)
        )
    }

    /// The permission bits, given those of the mirrored inode: write access is masked out, and those who may read an
    /// object may read its layout. `call` is open to all; each of its operations checks the caller's permissions.
    pub fn mode(self, of: Option<u32>) -> u32 {
        if self == Hidden::Call {
            return 0o666;
        }
        if let Hidden::ZarrArray(_) = self {
            // Who may read the object may enter the directory.
            let read = of.unwrap_or(0o444) & 0o444;
            return read | read >> 2;
        }
        match (self.is_directory(), of) {
            (true, mode) => mode.unwrap_or(0o555) & 0o555,
            (false, mode) => mode.unwrap_or(0o444) & 0o444,
        }
    }

    /// The entries of a directory whose entries are fixed.
    pub fn entries(self) -> &'static [(&'static str, Hidden)] {
        match self {
            Hidden::Top => &[
                ("call", Hidden::Call),
                ("find", Hidden::Find),
                ("stats", Hidden::Stats),
                ("status", Hidden::Status),
                ("layout", Hidden::LayoutDirectory(ROOT)),
                ("h5", Hidden::Hdf5Directory(ROOT)),
                ("npy", Hidden::NpyDirectory(ROOT)),
                ("zarr", Hidden::ZarrDirectory(ROOT)),
                ("root.zarr", Hidden::ZarrGroup(ROOT)),
            ],
            _ => &[],
        }
    }
}

/// A JSON value as the text of a hidden file or an attribute: indented, with a newline.
pub fn text(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}

/// The data servers as JSON.
pub fn servers(servers: &[ServerInfo]) -> Value {
    let servers: Vec<Value> = servers
        .iter()
        .map(|server| {
            json!({
                "id": server.id.0,
                "addr": server.addr,
                "host": server.host,
                "state": state(server),
                "online": server.online,
                "draining": server.draining,
                "memory": server.memory,
                "full": server.full,
                "total": server.total,
                "free": server.free,
                "used": server.used,
                "bytes": server.stored,
                "chunks": server.chunks,
                "in_flight": server.in_flight,
                "engine": engine(server),
            })
        })
        .collect();
    Value::Array(servers)
}

/// `.slabfs/status`: the session, the data servers, and of the metadata service its address for other mounts, why it
/// cannot store changes, if so, and the state of the engine that it is on.
pub fn status(
    session: u64,
    alone: bool,
    local: bool,
    (metadata, error): (Option<&str>, Option<&str>),
    engine: Vec<(String, String)>,
    servers: &[ServerInfo],
) -> Value {
    let engine = engine
        .into_iter()
        .map(|(name, text)| (name, Value::from(text)));
    let engine: serde_json::Map<String, Value> = engine.collect();
    json!({
        "session": session,
        "alone": alone,
        "in_process": local,
        "metadata": metadata,
        "metadata_error": error,
        "metadata_engine": engine,
        "servers": self::servers(servers),
    })
}

/// The counters of the engine that a server is on; null if it is on its own disk.
fn engine(server: &ServerInfo) -> Option<serde_json::Map<String, Value>> {
    let counts = server.engine.iter();
    let counts = counts.map(|(name, count)| (name.clone(), Value::from(*count)));
    (!server.engine.is_empty()).then(|| counts.collect())
}

/// The state of a server, in one word.
fn state(server: &ServerInfo) -> &'static str {
    match server {
        ServerInfo { online: false, .. } => "away",
        ServerInfo { draining: true, .. } => "draining",
        ServerInfo { full: true, .. } => "full",
        ServerInfo { .. } => "online",
    }
}

#[cfg(test)]
mod tests {
    use slabfs_model::{ObjectId, ServerId};

    use super::*;

    #[test]
    fn fixed_names_are_found() {
        for &(name, hidden) in Hidden::Top.entries() {
            assert_eq!(Hidden::Top.child(name.as_bytes()), Some(hidden));
        }
        assert_eq!(Hidden::Top.child(b"nothing"), None);
        assert_eq!(Hidden::Stats.child(b"stats"), None);
    }

    #[test]
    fn write_bits_are_masked_and_read_bits_stay() {
        let layout = Hidden::Layout(ObjectId(5));
        assert_eq!(layout.mode(Some(0o4751)), 0o440);
        assert_eq!(Hidden::LayoutDirectory(ROOT).mode(Some(0o1770)), 0o550);
        assert_eq!(Hidden::Stats.mode(None), 0o444);
    }

    #[test]
    fn status_is_json() {
        let server = ServerInfo {
            id: ServerId(3),
            uuid: [0; 16],
            addr: None,
            host: "node1".into(),
            online: true,
            draining: false,
            memory: false,
            full: false,
            total: 10,
            free: 4,
            used: 6,
            stored: 5,
            chunks: 2,
            in_flight: 0,
            engine: vec![("puts".to_owned(), 9)],
        };
        let value = status(9, true, true, (None, None), Vec::new(), &[server]);
        assert_eq!(value["servers"][0]["id"], 3);
        assert_eq!(value["servers"][0]["engine"]["puts"], 9);
        assert!(text(&value).ends_with(b"\n"));
    }
}
