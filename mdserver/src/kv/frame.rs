//! The encoding of a journal frame and of the header of a journal file.
//!
//! A frame carries its file's number, so that old blocks of a reused disk are never taken for records. Its header and
//! its payload have separate checksums: with a damaged payload the commit number, the length, and often the keys are
//! still known. Frames start at multiples of eight bytes, which speeds up the search for the next good frame after a
//! bad one.
//!
//! `docs/formats/journal.md` specifies the format.

use super::disk::{Id, le32, le64};
use super::error::other_version;
use super::{Batch, Lsn, MAX_BATCH, MAX_KEY};
use crc_fast::crc32_iscsi as crc32c;

/// Bytes of a journal file's header.
pub(super) const HEADER: usize = 80;
/// Bytes of a frame's header.
pub(super) const FRAME: usize = 40;
/// Frames start at multiples of this.
pub(super) const ALIGN: usize = 8;

const MAGIC: &[u8; 8] = b"SLABJRNL";
const VERSION: u32 = 1;
/// More commits and files than can ever exist: a header with a greater number is invalid.
const BEYOND: u64 = 1 << 62;
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"SFRM");

/// The header of a journal file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Which store the file belongs to.
    pub(super) store: Id,
    /// The boot during which it was written; zeros if unknown.
    pub(super) boot: Id,
    /// The file's number, as in its name.
    pub(super) number: u64,
}

impl Header {
    /// Encodes the header.
    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(HEADER as u32).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store);
        bytes[32..48].copy_from_slice(&self.boot);
        bytes[48..56].copy_from_slice(&self.number.to_le_bytes());
        let crc = crc32c(&bytes[..HEADER - 4]);
        bytes[HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a header; the error describes what is wrong.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() < HEADER {
            return Err(format!("the header is cut off after {} bytes", bytes.len()));
        }
        if &bytes[..8] != MAGIC || le32(bytes, HEADER - 4) != crc32c(&bytes[..HEADER - 4]) {
            return Err("the header is damaged".to_owned());
        }
        let version = le32(bytes, 8);
        if version != VERSION {
            return Err(other_version(version, VERSION));
        }
        let (mut store, mut boot) = (Id::default(), Id::default());
        store.copy_from_slice(&bytes[16..32]);
        boot.copy_from_slice(&bytes[32..48]);
        Ok(Self {
            store,
            boot,
            number: le64(bytes, 48),
        })
    }
}

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// One commit.
    Record = 1,
    /// All commits up to this frame's number are on disk.
    Synced = 2,
    /// The journal continues in the file whose number is the payload.
    Next = 3,
    /// The store was closed.
    Close = 4,
}

impl Kind {
    fn from_number(number: u32) -> Option<Self> {
        [Self::Record, Self::Synced, Self::Next, Self::Close]
            .into_iter()
            .find(|&kind| kind as u32 == number)
    }
}

/// An encoded frame, complete except for the numbers that are known only when it is written.
#[derive(Debug)]
pub(super) struct Draft {
    bytes: Vec<u8>,
    payload: u32,
}

impl Draft {
    /// Encodes a commit. The batch has been checked.
    pub(super) fn record(batch: &Batch) -> Self {
        let mut bytes = Vec::with_capacity(FRAME + batch.bytes() + ALIGN);
        bytes.resize(FRAME, 0);
        push32(&mut bytes, batch.puts.len());
        push32(&mut bytes, batch.deletes.len());
        for (key, value) in &batch.puts {
            push32(&mut bytes, key.len());
            push32(&mut bytes, value.len());
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(value);
        }
        for key in &batch.deletes {
            push32(&mut bytes, key.len());
            bytes.extend_from_slice(key);
        }
        Self::with_payload(Kind::Record, bytes)
    }

    /// A frame without payload: `Synced` or `Close`.
    pub(super) fn mark(kind: Kind) -> Self {
        Self::with_payload(kind, vec![0; FRAME])
    }

    /// A frame that names the next file.
    pub(super) fn next(number: u64) -> Self {
        let mut bytes = vec![0; FRAME];
        bytes.extend_from_slice(&number.to_le_bytes());
        Self::with_payload(Kind::Next, bytes)
    }

    /// A frame with the payload that follows the first [`FRAME`] bytes of `bytes`; these are filled in here.
    pub(super) fn with_payload(kind: Kind, mut bytes: Vec<u8>) -> Self {
        let payload = (bytes.len() - FRAME) as u32;
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        let crc = crc32c(&bytes[FRAME..]);
        bytes[..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&payload.to_le_bytes());
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        Self { bytes, payload }
    }

    /// The payload without header and padding.
    pub(super) fn into_payload(self) -> Vec<u8> {
        let mut bytes = self.bytes;
        bytes.drain(..FRAME);
        bytes.truncate(self.payload as usize);
        bytes
    }

    /// The bytes the frame takes in the file.
    pub(super) fn len(&self) -> u64 {
        (FRAME + padded(self.payload)) as u64
    }

    /// Fills in the commit number, the last synced commit and the file's number.
    pub(super) fn finish(&mut self, lsn: Lsn, synced: Lsn, file: u64) -> &[u8] {
        self.bytes[16..24].copy_from_slice(&lsn.0.to_le_bytes());
        self.bytes[24..32].copy_from_slice(&synced.0.to_le_bytes());
        self.bytes[32..36].copy_from_slice(&(file as u32).to_le_bytes());
        let crc = crc32c(&self.bytes[..FRAME - 4]);
        self.bytes[FRAME - 4..FRAME].copy_from_slice(&crc.to_le_bytes());
        &self.bytes
    }
}

fn push32(bytes: &mut Vec<u8>, len: usize) {
    bytes.extend_from_slice(&(len as u32).to_le_bytes());
}

fn padded(payload: u32) -> usize {
    (payload as usize).next_multiple_of(ALIGN)
}

/// A frame with a good header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    /// Its kind.
    pub(super) kind: Kind,
    /// Of a record: its commit. Of other kinds: the last commit before it.
    pub(super) lsn: Lsn,
    /// The last commit that was known to be on disk when the frame was written.
    pub(super) synced: Lsn,
    /// Its payload without padding.
    pub(super) payload: &'a [u8],
    /// All of its bytes, padding included.
    pub(super) len: usize,
}

/// The result of looking for a frame at one place of a journal file.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// A good frame.
    Good(Frame<'a>),
    /// A complete frame with a good header and a damaged payload.
    Damaged(Frame<'a>),
    /// A good header; the file ends before its payload does.
    Torn(Lsn),
    /// No frame.
    Nothing,
}

/// Looks for a frame of file `number` at the start of `bytes`, which reach to the file's end.
pub(super) fn look(bytes: &[u8], number: u64) -> Found<'_> {
    if bytes.len() < FRAME || le32(bytes, 0) != FRAME_MAGIC {
        return Found::Nothing;
    }
    let payload = le32(bytes, 8);
    let header_good = le32(bytes, FRAME - 4) == crc32c(&bytes[..FRAME - 4])
        && le32(bytes, 32) == number as u32
        && payload as usize <= MAX_BATCH
        && le64(bytes, 16).max(le64(bytes, 24)) < BEYOND;
    let Some(kind) = Kind::from_number(le32(bytes, 4)).filter(|_| header_good) else {
        return Found::Nothing;
    };
    let len = FRAME + padded(payload);
    let lsn = Lsn(le64(bytes, 16));
    if bytes.len() < len {
        return Found::Torn(lsn);
    }
    let synced = Lsn(le64(bytes, 24));
    let frame = Frame {
        kind,
        lsn,
        synced,
        payload: &bytes[FRAME..FRAME + payload as usize],
        len,
    };
    if le32(bytes, 12) == crc32c(&bytes[FRAME..len]) {
        Found::Good(frame)
    } else {
        Found::Damaged(frame)
    }
}

/// Reads the payload of a [`Kind::Next`] frame.
pub(super) fn next_file(payload: &[u8]) -> Option<u64> {
    let number = (payload.len() == 8).then(|| le64(payload, 0));
    number.filter(|&number| number < BEYOND)
}

/// Reads a record's payload; `None` if it is malformed.
pub(super) fn parse(payload: &[u8]) -> Option<Batch> {
    let mut batch = Batch::new();
    let rest = each_change(payload, |key, value| {
        match value {
            Some(value) => batch.puts.push((key.into(), value.to_vec())),
            None => batch.deletes.push(key.into()),
        }
        Some(())
    })?;
    rest.is_empty().then_some(batch)
}

/// Guesses the keys that a damaged record changed, as far as its bytes can be read.
pub(super) fn guess_keys(payload: &[u8]) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    // `None` means that the bytes cannot be read any further.
    let _end = each_change(payload, |key, _| {
        if key.is_empty() || key.len() > MAX_KEY {
            return None;
        }
        keys.push(key.to_vec());
        Some(())
    });
    keys
}

/// Calls `work` for each change of a record, with the new value or `None` for a deletion, until it returns `None` or
/// the bytes are malformed. Returns what follows the changes.
fn each_change<'a>(
    payload: &'a [u8],
    mut work: impl FnMut(&'a [u8], Option<&'a [u8]>) -> Option<()>,
) -> Option<&'a [u8]> {
    let mut fields = Fields(payload);
    let (puts, deletes) = (fields.number()?, fields.number()?);
    for _ in 0..puts {
        let (key, value) = (fields.number()?, fields.number()?);
        let (key, value) = (fields.take(key)?, fields.take(value));
        // A key is known even if its value is cut off.
        work(key, Some(value.unwrap_or_default()))?;
        value?;
    }
    for _ in 0..deletes {
        let key = fields.number()?;
        work(fields.take(key)?, None)?;
    }
    Some(fields.0)
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| le32(bytes, 0))
    }

    fn take(&mut self, len: u32) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len as usize)?;
        self.0 = tail;
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_round_trips() {
        let mut batch = Batch::new();
        batch.put("a", "1").put("b", "").delete("c");
        let mut draft = Draft::record(&batch);
        let bytes = draft.finish(Lsn(7), Lsn(5), 3).to_vec();
        assert_eq!(bytes.len() as u64, draft.len());
        let Found::Good(frame) = look(&bytes, 3) else {
            panic!("not good")
        };
        assert_eq!(
            (frame.lsn, frame.synced, frame.kind),
            (Lsn(7), Lsn(5), Kind::Record)
        );
        assert_eq!(parse(frame.payload), Some(batch));
        assert!(matches!(look(&bytes, 4), Found::Nothing));
    }

    /// Found by fuzzing: the next number would overflow.
    #[test]
    fn impossible_numbers_are_rejected() {
        for (lsn, synced) in [(u64::MAX, 0), (1, u64::MAX), (BEYOND, 0)] {
            let bytes = Draft::mark(Kind::Synced)
                .finish(Lsn(lsn), Lsn(synced), 1)
                .to_vec();
            assert!(matches!(look(&bytes, 1), Found::Nothing));
        }
        assert_eq!(next_file(&u64::MAX.to_le_bytes()), None);
        assert_eq!(next_file(&7u64.to_le_bytes()), Some(7));
    }

    #[test]
    fn every_flipped_byte_is_detected() {
        let mut batch = Batch::new();
        batch.put("key", "value");
        let good = Draft::record(&batch).finish(Lsn(1), Lsn(0), 1).to_vec();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            match look(&bad, 1) {
                Found::Nothing => assert!(at < FRAME),
                Found::Damaged(frame) => {
                    assert!(at >= FRAME);
                    assert_eq!(frame.lsn, Lsn(1));
                }
                other => panic!("byte {at}: {other:?}"),
            }
        }
        let header = Header {
            store: [1; 16],
            boot: [2; 16],
            number: 9,
        };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Ok(header));
        for at in 0..HEADER {
            let mut bad = bytes;
            bad[at] ^= 1;
            assert!(Header::decode(&bad).is_err(), "byte {at}");
        }
    }
}
