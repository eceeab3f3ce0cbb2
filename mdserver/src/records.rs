//! The values of the metadata: the records stored under the keys of [`crate::keys`].
//!
//! Each value is one byte with its format's number (now 1) and the record in postcard. Records are absolute: writing
//! one again changes nothing. The most frequent ones have hand-written encoders (`write`).

mod write;

pub(crate) use write::Writer;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use slabfs_model::layout::tiling::Record;
use slabfs_model::{Hyperslab, Region, ServerId, SessionId};
use smallvec::SmallVec;
use std::sync::Arc;

use crate::api::{
    Attr, Birth, Defaults, Entry, Ino, Links, MdError, SharedInfo, SpecChange, Stored, Time,
};

/// The format of each record.
const FORMAT: u8 = 1;

/// An inode as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inode {
    pub(crate) attr: Attr,
    pub(crate) xattrs: Xattrs,
    /// Its places, at most [`MAX_NAMES`]; further ones are in rows of their own ([`crate::namespace`] maintains
    /// them). Empty for the root and for unlinked inodes.
    pub(crate) names: SmallVec<[Named; 1]>,
    pub(crate) body: Body,
}

/// The first fields of an [`Inode`], which a search needs most often.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct InodeHead {
    pub(crate) attr: Attr,
    pub(crate) xattrs: Xattrs,
    pub(crate) names: SmallVec<[Named; 1]>,
}

/// A place of an inode: a name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Named {
    /// The directory.
    pub(crate) parent: Ino,
    /// The slot in it.
    pub(crate) slot: u64,
    /// The name in that slot, so that a search need not read it there.
    pub(crate) name: Vec<u8>,
}

/// The most places of an inode in [`Inode::names`], which is written with each change of the inode; of an inode with
/// more hard links, a search returns one of these.
pub(crate) const MAX_NAMES: usize = 32;

/// How the extended attributes of an inode are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Xattrs {
    /// How many.
    pub(crate) count: u32,
    /// Bytes of their names, each with a terminating zero.
    pub(crate) names: u32,
    /// They are stored one per row, not all in one.
    pub(crate) spread: bool,
}

/// The part of an inode that depends on its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Body {
    Directory {
        /// `..`; for the root, the root itself.
        parent: Ino,
        entries: u64,
        /// Whether an entry ever had to be stored outside its own slot.
        collided: bool,
        /// Defaults for what is created in it.
        #[serde(with = "shared")]
        defaults: Option<Arc<Defaults>>,
    },
    Object(Box<Object>),
    Symlink(Vec<u8>),
    /// Fifos, sockets, devices.
    Node,
    /// An object in another shard; all but its names and their number is there. What that needs to create it, until it is known
    /// to have done so.
    Remote(Option<Box<Birth>>),
}

/// A change of an object's links that its shard may not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unfinished {
    pub(crate) links: Links,
    /// The time of the change.
    pub(crate) since: Time,
}

/// A directory is cloned for each change of it; its defaults are shared.
mod shared {
    use super::{Arc, Defaults};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        defaults: &Option<Arc<Defaults>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        defaults.as_deref().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Arc<Defaults>>, D::Error> {
        Ok(Option::deserialize(from)?.map(Arc::new))
    }
}

/// The object part of an inode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Object {
    pub(crate) info: SharedInfo,
    /// For an undeclared object: the container's defaults that apply when it is declared.
    pub(crate) inherited: Option<Box<SpecChange>>,
    /// Order of the next record of the tiling; never reused, over all generations.
    pub(crate) next_order: u64,
    /// Greatest generation ever assigned, to the object or as a spare one.
    pub(crate) spare: u32,
    /// Bytes of live records (aligned) or bytes reported as stored (grid); not limited by the size.
    pub(crate) stored: u64,
    /// Sessions that may write beyond the recorded size (grid), and how far.
    pub(crate) reserves: SmallVec<[(SessionId, u64); 1]>,
    /// The session that has to clear a dead session's tail, and up to where.
    pub(crate) clearing: Option<(SessionId, u64)>,
    /// Servers outside the stripe that may hold grid chunks of it: of a generation that was reserved and never used,
    /// or copies of an unfinished move.
    pub(crate) strays: SmallVec<[ServerId; 2]>,
}

impl Inode {
    /// Where its extended attributes are.
    pub(crate) fn place(&self) -> (Ino, Xattrs) {
        (self.attr.ino, self.xattrs)
    }

    /// Adds a place.
    pub(crate) fn add_name(&mut self, parent: Ino, slot: u64, name: &[u8]) {
        let name = name.to_vec();
        self.names.push(Named { parent, slot, name });
    }

    pub(crate) fn entry(&self) -> Entry {
        let info = match &self.body {
            Body::Object(object) => Some(object.info.clone()),
            Body::Remote(Some(birth)) => birth.entry.info.clone(),
            _ => None,
        };
        Entry {
            attr: self.attr.clone(),
            info,
        }
    }

    /// The object part.
    pub(crate) fn object(&self) -> Result<&Object, MdError> {
        match &self.body {
            Body::Object(object) => Ok(object),
            Body::Directory { .. } => Err(MdError::IsDirectory),
            _ => Err(MdError::Invalid("not an object".to_owned())),
        }
    }

    /// The object part, to change.
    pub(crate) fn object_mut(&mut self) -> Result<&mut Object, MdError> {
        match &mut self.body {
            Body::Object(object) => Ok(object),
            Body::Directory { .. } => Err(MdError::IsDirectory),
            _ => Err(MdError::Invalid("not an object".to_owned())),
        }
    }

    /// Sets size and stored bytes of the attributes from the object part.
    pub(crate) fn refresh(&mut self) -> Result<(), MdError> {
        if let Body::Object(object) = &self.body {
            self.attr.size = object.info.size()?;
            self.attr.stored = object.stored.min(self.attr.size);
        }
        Ok(())
    }
}

/// A slot of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Slot {
    /// A name and its inode.
    Entry { name: Vec<u8>, ino: Ino },
    /// Empty, but entries after it may belong before it: a search continues.
    Gone,
}

/// A record of a tiling; its order is in the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tile {
    pub(crate) slab: Hyperslab,
    pub(crate) clip: Option<Region>,
    pub(crate) value: Stored,
}

impl Tile {
    pub(crate) fn of(record: &Record<Stored>) -> Self {
        let Record {
            slab, clip, value, ..
        } = record;
        Self {
            slab: slab.clone(),
            clip: clip.clone(),
            value: value.clone(),
        }
    }

    pub(crate) fn record(self, order: u64) -> Record<Stored> {
        Record {
            slab: self.slab,
            clip: self.clip,
            order,
            value: self.value,
        }
    }
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) read_only: bool,
    /// In the service's own process: it dies with it.
    pub(crate) local: bool,
    /// Ended, and whether it reported that no sweep is needed; its resources are being released.
    pub(crate) ended: Option<bool>,
}

/// A part of a lease of chunk ids; the first id is in the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseRecord {
    pub(crate) count: u32,
    /// A bit for each id that was committed.
    pub(crate) used: Vec<u64>,
}

/// A data server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerRecord {
    pub(crate) uuid: [u8; 16],
    pub(crate) addr: Option<String>,
    /// The machine it runs on, by name.
    pub(crate) host: String,
    /// It is being drained: no new chunks.
    pub(crate) draining: bool,
    /// It is in the memory of a mount, for coupled objects that are written there.
    pub(crate) memory: bool,
}

/// The first numbers assigned since the store was loaded from a dump: numbers below that are unknown may be of the
/// incarnation after the dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Later {
    pub(crate) ino: u64,
    pub(crate) chunk: u64,
}

/// Records up to this size, which are nearly all, are encoded here and copied once: writing into a vector checks its
/// capacity at each byte.
const ON_STACK: usize = 512;

/// The bytes of a record.
pub(crate) fn encode<T: Serialize + ?Sized>(record: &T) -> Result<Vec<u8>, MdError> {
    let mut small = [0; ON_STACK];
    small[0] = FORMAT;
    match postcard::to_slice(record, &mut small[1..]) {
        Ok(written) => {
            let len = 1 + written.len();
            return Ok(small[..len].to_vec());
        }
        Err(postcard::Error::SerializeBufferFull) => {}
        Err(error) => return Err(MdError::Io(format!("cannot encode a record: {error}"))),
    }
    let mut bytes = Vec::with_capacity(2 * ON_STACK);
    bytes.push(FORMAT);
    postcard::to_extend(record, bytes)
        .map_err(|error| MdError::Io(format!("cannot encode a record: {error}")))
}

/// The record in `bytes`; the error names the key.
pub(crate) fn decode<T: DeserializeOwned>(key: &[u8], bytes: &[u8]) -> Result<T, MdError> {
    decode_borrowed(key, bytes)
}

/// The first fields of an inode.
pub(crate) fn decode_head(key: &[u8], bytes: &[u8]) -> Result<InodeHead, MdError> {
    match bytes.split_first() {
        Some((&FORMAT, rest)) => match postcard::take_from_bytes(rest) {
            Ok((head, _)) => Ok(head),
            Err(_) => decode_borrowed(key, bytes),
        },
        _ => decode_borrowed(key, bytes),
    }
}

/// As [`decode`], for a record that borrows from `bytes`.
pub(crate) fn decode_borrowed<'a, T: Deserialize<'a>>(
    key: &[u8],
    bytes: &'a [u8],
) -> Result<T, MdError> {
    let bad = |why: String| {
        let key = key.escape_ascii();
        MdError::Io(format!("the record under key {key} cannot be read: {why}"))
    };
    match bytes.split_first() {
        Some((&FORMAT, rest)) => postcard::from_bytes(rest).map_err(|error| bad(error.to_string())),
        Some((other, _)) => Err(bad(format!("format {other}, this program knows {FORMAT}"))),
        None => Err(bad("it is empty".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::StoredChunk;
    use crate::keys;
    use slabfs_model::{ChunkId, Codec, ObjectId, ServerId};

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Both examples of `docs/formats/metadata.md`, taken from the page itself.
    #[test]
    fn the_examples_of_the_page() {
        let page = include_str!("../../docs/formats/metadata.md");
        let lines: Vec<String> = page
            .split("```")
            .skip(1)
            .step_by(2)
            .flat_map(|block| block.lines().skip(1))
            .map(|line| line.replace(' ', ""))
            .filter(|line| !line.is_empty())
            .collect();
        let slot = Slot::Entry {
            name: b"a".to_vec(),
            ino: ObjectId(2),
        };
        let at = crate::namespace::first_slot(b"a");
        let tile = Tile {
            slab: Hyperslab::from_region(&Region::new(&[2, 0], &[2, 8])),
            clip: None,
            value: Stored::Chunk(StoredChunk {
                chunk: ChunkId(7),
                server: ServerId(1),
                codec: Codec::None,
            }),
        };
        let expected = [
            hex(&keys::slot(crate::api::ROOT, at)),
            hex(&encode(&slot).unwrap()),
            hex(&keys::tile(ObjectId(2), 1, 5)),
            hex(&encode(&tile).unwrap()),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn an_unreadable_record_is_reported_with_its_key() {
        for bytes in [&[][..], &[2, 0], &[1], &[1, 9]] {
            let error = decode::<Slot>(b"d\0", bytes).unwrap_err().to_string();
            assert!(error.contains("d\\x00"), "{error}");
        }
    }
}
