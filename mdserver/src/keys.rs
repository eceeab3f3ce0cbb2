//! The keys of the metadata: one letter for the table, then big-endian numbers, so that the order of keys is the
//! order of numbers. `docs/formats/metadata.md` defines each; change both together.

use slabfs_model::{ChunkId, ServerId, SessionId, Version};

use crate::api::Ino;
use crate::kv;

/// A key: the table's letter, and the parts that follow it.
fn key<const N: usize>(letter: u8, parts: [&[u8]; N]) -> Vec<u8> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut key = Vec::with_capacity(1 + len);
    key.push(letter);
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

/// A number in a key.
fn be(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// All keys of a table.
pub(crate) fn table(letter: u8) -> (Vec<u8>, Vec<u8>) {
    (vec![letter], vec![letter + 1])
}

/// All keys of a table that begin with a number.
fn of(letter: u8, number: u64) -> (Vec<u8>, Vec<u8>) {
    let to = match number.checked_add(1) {
        Some(next) => key(letter, [&be(next)]),
        None => vec![letter + 1],
    };
    (key(letter, [&be(number)]), to)
}

/// The format of the entire store.
pub(crate) const FORMAT: &[u8] = b"mformat";
/// Inode numbers below this may be in use.
pub(crate) const NEXT_INO: &[u8] = b"mino";
/// Chunk ids below this were leased.
pub(crate) const NEXT_CHUNK: &[u8] = b"mchunk";
/// Session numbers below this were assigned.
pub(crate) const NEXT_SESSION: &[u8] = b"msession";
/// Server numbers below this were assigned.
pub(crate) const NEXT_SERVER: &[u8] = b"mserver";

/// The shard that the service is, where the filesystem is divided.
pub(crate) const SHARD: &[u8] = b"mshard";

/// The store was loaded from a dump and has not been started since.
pub(crate) const LOADED: &[u8] = b"mloaded";
/// Numbers below these were assigned by an earlier incarnation of the store, before it was loaded from a dump.
pub(crate) const LATER: &[u8] = b"mlater";
/// Acknowledged commits were lost once, and the loss was accepted.
pub(crate) const LOSSY: &[u8] = b"mlossy";
/// Number of inodes.
pub(crate) const INODES: &[u8] = b"minodes";

/// First byte of the keys of inodes.
pub(crate) const INODE: u8 = b'i';

/// An inode.
pub(crate) fn inode(ino: Ino) -> kv::Key {
    kv::Key::number(INODE, ino.0)
}

/// All inodes.
pub(crate) fn inodes() -> (Vec<u8>, Vec<u8>) {
    table(b'i')
}

/// A slot of a directory.
pub(crate) fn slot(parent: Ino, slot: u64) -> kv::Key {
    kv::Key::numbers(b'd', parent.0, slot)
}

/// A place of an inode that has more places than fit its record.
pub(crate) fn name(ino: Ino, parent: Ino, slot: u64) -> Vec<u8> {
    key(b'n', [&be(ino.0), &be(parent.0), &be(slot)])
}

/// All of those.
pub(crate) fn names(ino: Ino) -> (Vec<u8>, Vec<u8>) {
    of(b'n', ino.0)
}

/// An extended attribute.
pub(crate) fn xattr(ino: Ino, name: &[u8]) -> Vec<u8> {
    key(b'x', [&be(ino.0), name])
}

/// All extended attributes of an inode.
pub(crate) fn xattrs(ino: Ino) -> (Vec<u8>, Vec<u8>) {
    of(b'x', ino.0)
}

/// The inode whose attributes are stored under a key, and the name of a spread attribute (else empty).
pub(crate) fn xattr_of(key: &[u8]) -> Option<(Ino, &[u8])> {
    let (ino, name) = key.strip_prefix(b"x")?.split_first_chunk()?;
    Some((slabfs_model::ObjectId(u64::from_be_bytes(*ino)), name))
}

/// A record of a tiling.
pub(crate) fn tile(ino: Ino, generation: u32, order: u64) -> Vec<u8> {
    key(b't', [&be(ino.0), &generation.to_be_bytes(), &be(order)])
}

/// The records of one generation of a tiling.
pub(crate) fn tiles(ino: Ino, generation: u32) -> (Vec<u8>, Vec<u8>) {
    (tile(ino, generation, 0), tile(ino, generation, u64::MAX))
}

/// A box around the records of a block of orders; of level 0, the mark that boxes exist.
pub(crate) fn bounds(ino: Ino, generation: u32, level: u8, block: u64) -> Vec<u8> {
    let generation = generation.to_be_bytes();
    key(b'b', [&be(ino.0), &generation, &[level], &be(block)])
}

/// A chunk that was replaced and waits for the object to be settled.
pub(crate) fn waiting(ino: Ino, generation: u32, version: Version, chunk: ChunkId) -> Vec<u8> {
    let generation = generation.to_be_bytes();
    key(
        b'w',
        [&be(ino.0), &generation, &be(version.0), &be(chunk.0)],
    )
}

/// All waiting chunks.
pub(crate) fn all_waiting() -> (Vec<u8>, Vec<u8>) {
    table(b'w')
}

/// An object whose older generations are to be purged.
pub(crate) fn purge(ino: Ino) -> Vec<u8> {
    key(b'z', [&be(ino.0)])
}

/// All of those.
pub(crate) fn purges() -> (Vec<u8>, Vec<u8>) {
    table(b'z')
}

/// An inode without a name that a session has open.
pub(crate) fn orphan(ino: Ino) -> Vec<u8> {
    key(b'p', [&be(ino.0)])
}

/// All of those.
pub(crate) fn orphans() -> (Vec<u8>, Vec<u8>) {
    table(b'p')
}

/// The links of an object that its shard may not have.
pub(crate) fn unfinished(ino: Ino) -> Vec<u8> {
    key(b'u', [&be(ino.0)])
}

/// All of those.
pub(crate) fn all_unfinished() -> (Vec<u8>, Vec<u8>) {
    table(b'u')
}

/// The last change of an object's links that its shard has.
pub(crate) fn linked(ino: Ino) -> Vec<u8> {
    key(b'l', [&be(ino.0)])
}

/// An object that must not be created any more.
pub(crate) fn never(ino: Ino) -> Vec<u8> {
    key(b'y', [&be(ino.0)])
}

/// All of those.
pub(crate) fn all_never() -> (Vec<u8>, Vec<u8>) {
    table(b'y')
}

/// A session.
pub(crate) fn session(session: SessionId) -> Vec<u8> {
    key(b's', [&be(session.0)])
}

/// All sessions.
pub(crate) fn sessions() -> (Vec<u8>, Vec<u8>) {
    table(b's')
}

/// A cached reply.
pub(crate) fn reply(session: SessionId, seq: u64) -> Vec<u8> {
    key(b'r', [&be(session.0), &be(seq)])
}

/// The cached replies of a session.
pub(crate) fn replies(session: SessionId) -> (Vec<u8>, Vec<u8>) {
    of(b'r', session.0)
}

/// How many times a session has an inode open.
pub(crate) fn open(session: SessionId, ino: Ino) -> Vec<u8> {
    key(b'o', [&be(session.0), &be(ino.0)])
}

/// All opens.
pub(crate) fn opens() -> (Vec<u8>, Vec<u8>) {
    table(b'o')
}

/// A part of a lease of chunk ids.
pub(crate) fn lease(session: SessionId, first: u64) -> Vec<u8> {
    key(b'e', [&be(session.0), &be(first)])
}

/// The leases of a session.
pub(crate) fn leases(session: SessionId) -> (Vec<u8>, Vec<u8>) {
    of(b'e', session.0)
}

/// A data server.
pub(crate) fn server(server: ServerId) -> Vec<u8> {
    key(b'v', [&server.0.to_be_bytes()])
}

/// All data servers.
pub(crate) fn servers() -> (Vec<u8>, Vec<u8>) {
    table(b'v')
}

/// Retired data that a data server has to delete: its kind, and two numbers that name it.
pub(crate) fn retired(server: ServerId, kind: u8, a: u64, b: u32) -> Vec<u8> {
    let server = server.0.to_be_bytes();
    key(b'q', [&server, &[kind], &be(a), &b.to_be_bytes()])
}

/// All retired data.
pub(crate) fn all_retired() -> (Vec<u8>, Vec<u8>) {
    table(b'q')
}

/// The numbers after the table's letter in a key of fixed width, each of `widths` bytes; `None` if the key has
/// another length.
pub(crate) fn numbers<const N: usize>(key: &[u8], widths: [usize; N]) -> Option<[u64; N]> {
    let mut rest = key.get(1..)?;
    let mut numbers = [0; N];
    for (number, width) in numbers.iter_mut().zip(widths) {
        let (head, tail) = rest.split_at_checked(width)?;
        for &byte in head {
            *number = *number << 8 | u64::from(byte);
        }
        rest = tail;
    }
    rest.is_empty().then_some(numbers)
}

/// Describes a key in words, for reports of damage.
pub(crate) fn describe(key: &[u8]) -> String {
    let one = numbers(key, [8]);
    let two = numbers(key, [8, 8]);
    let described = match (key.first(), one, two) {
        (Some(b'm'), ..) => Some(format!("the counter {}", key[1..].escape_ascii())),
        (Some(b'i'), Some([ino]), _) => Some(format!("inode {ino}")),
        (Some(b'd'), _, Some([parent, slot])) => {
            Some(format!("entry {slot} of directory {parent}"))
        }
        (Some(b'n'), ..) => numbers(key, [8, 8, 8])
            .map(|[ino, parent, slot]| format!("place {slot} in {parent} of inode {ino}")),
        (Some(b'x'), ..) => xattr_of(key)
            .map(|(ino, name)| format!("attribute {} of inode {ino}", name.escape_ascii())),
        (Some(b't'), ..) => numbers(key, [8, 4, 8])
            .map(|[ino, _, order]| format!("chunk record {order} of object {ino}")),
        (Some(b'b'), ..) => numbers(key, [8, 4, 1, 8])
            .map(|[ino, _, level, block]| format!("box {block} of level {level} of object {ino}")),
        (Some(b'w'), ..) => numbers(key, [8, 4, 8, 8])
            .map(|[ino, _, _, chunk]| format!("replaced chunk {chunk} of object {ino}")),
        (Some(b'z'), Some([ino]), _) => Some(format!("old chunks of object {ino}")),
        (Some(b'p'), Some([ino]), _) => Some(format!("unlinked inode {ino}")),
        (Some(b'u'), Some([ino]), _) => Some(format!("new links of object {ino}")),
        (Some(b'l'), Some([ino]), _) => Some(format!("the last change of links of object {ino}")),
        (Some(b'y'), Some([ino]), _) => Some(format!("removed object {ino}")),
        (Some(b's'), Some([session]), _) => Some(format!("session {session}")),
        (Some(b'r'), _, Some([session, seq])) => Some(format!("reply {seq} of session {session}")),
        (Some(b'o'), _, Some([session, ino])) => {
            Some(format!("opening of inode {ino} by session {session}"))
        }
        (Some(b'e'), _, Some([session, first])) => {
            Some(format!("chunk ids from {first} of session {session}"))
        }
        (Some(b'v'), ..) => numbers(key, [4]).map(|[server]| format!("data server {server}")),
        (Some(b'q'), ..) => Some("something to delete on a data server".to_owned()),
        _ => None,
    };
    described.unwrap_or_else(|| format!("key {}", key.escape_ascii()))
}

/// The smallest key that is greater than `key`.
pub(crate) fn after(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use slabfs_model::ObjectId;

    #[test]
    fn order_of_keys_is_order_of_numbers() {
        assert!(slot(ObjectId(1), 255) < slot(ObjectId(1), 256));
        assert!(tile(ObjectId(1), 1, u64::MAX) < tile(ObjectId(1), 2, 0));
        assert!(tile(ObjectId(1), u32::MAX, 0) < tile(ObjectId(2), 0, 0));
        let (from, to) = xattrs(ObjectId(7));
        let key = xattr(ObjectId(7), &[255; 255]);
        assert!(from < key && key < to);
    }

    #[test]
    fn numbers_come_back() {
        let key = tile(ObjectId(3), 4, 5);
        assert_eq!(numbers(&key, [8, 4, 8]), Some([3, 4, 5]));
        assert_eq!(numbers(&key, [8, 4]), None);
        assert_eq!(numbers(&key[..20], [8, 4, 8]), None);
    }

    #[test]
    fn keys_are_described_in_words() {
        let ino = ObjectId(3);
        for (key, words) in [
            (inode(ino).to_vec(), "inode 3"),
            (slot(ino, 17).to_vec(), "entry 17 of directory 3"),
            (name(ino, ino, 4), "place 4 in 3 of inode 3"),
            (xattr(ino, b"user.a"), "attribute user.a of inode 3"),
            (tile(ino, 4, 5), "chunk record 5 of object 3"),
            (bounds(ino, 4, 1, 5), "box 5 of level 1 of object 3"),
            (NEXT_INO.to_vec(), "the counter ino"),
            (b"?\0".to_vec(), "key ?\\x00"),
        ] {
            assert_eq!(describe(&key), words);
        }
    }
}
