//! The record format of segments; a record holds one small chunk.
//!
//! ```text
//! head | data | zeros to a multiple of 8 | copy of the head, as the foot | zeros to a multiple of 64
//!
//!  0  4  magic "SLRH" of the head, "SLRF" of the foot
//!  4  1  0xA1 if the record is live, 0xDE if it is dead
//!  5  1  kind: 0 raw, 1 compressed (codec::coded), 2 grid: the first bytes, the rest is fill
//!  6  2  zero
//!  8  4  offset of the record in the segment
//! 12  4  length of the head
//! 16  4  length of the data
//! 20  4  CRC-32C of the data
//! 24  8  sequence number: the record of a name with the highest one is valid
//! 32  8  salt of the segment, so that a copy of a record within a chunk's data is not mistaken for a record
//! 40  4  length of name and form
//! 44  4  CRC-32C of bytes 5..44 and of name and form
//! 48     name and form (`labels`)
//! ```
//!
//! The foot ensures that no single damage loses the name: a chunk with damaged data is reported as damaged, and one
//! with a damaged head is found by its foot.

use super::{Place, SEGMENT_MAX};
use crate::checksum::{combined, crc32c};
use crate::name::{ChunkForm, ChunkName};
use crate::store::local::labels::{self, u32_at, u64_at};

/// Records begin at multiples of this.
pub(super) const ALIGN: u32 = 64;
/// Feet begin at multiples of this.
pub(super) const FOOT_ALIGN: u32 = 8;
/// The offset of the state byte, live or dead.
pub(super) const STATE_AT: u32 = 4;
/// The state byte of a dead record.
pub(super) const DEAD: u8 = 0xDE;

const LIVE: u8 = 0xA1;
const FIXED: usize = 48;
const HEAD: &[u8; 4] = b"SLRH";
const FOOT: &[u8; 4] = b"SLRF";

/// The kind of a record's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::local) enum Kind {
    /// The chunk's bytes.
    Raw,
    /// The chunk's bytes, compressed.
    Coded,
    /// The first bytes of a grid chunk.
    Grid,
}

impl Kind {
    /// Its number in the formats.
    pub(super) fn number(self) -> u8 {
        match self {
            Kind::Raw => 0,
            Kind::Coded => 1,
            Kind::Grid => 2,
        }
    }

    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Kind::Raw, Kind::Coded, Kind::Grid]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

/// The content of a head or a foot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: ChunkName,
    pub(super) form: ChunkForm,
    pub(super) place: Place,
    pub(super) sequence: u64,
    pub(super) alive: bool,
}

/// The offset of the foot in the record.
pub(super) fn foot_at(head: u32, data: u32) -> u32 {
    (head + data).next_multiple_of(FOOT_ALIGN)
}

/// Bytes of a record in its segment.
pub(super) fn total(head: u32, data: u32) -> u32 {
    (foot_at(head, data) + head).next_multiple_of(ALIGN)
}

/// The length of the head of a record.
pub(super) fn head_len(name: &ChunkName, form: &ChunkForm, scratch: &mut Vec<u8>) -> u32 {
    scratch.clear();
    labels::write(name, form, scratch);
    (FIXED + scratch.len()) as u32
}

/// Writes the head and the foot of a record, the foot with the zeros around it. `label` comes from the scratch buffer
/// of [`head_len`].
pub(super) fn write(
    place: &Place,
    sequence: u64,
    salt: u64,
    label: &[u8],
    head: &mut Vec<u8>,
    foot: &mut Vec<u8>,
) {
    head.clear();
    head.extend_from_slice(HEAD);
    head.extend_from_slice(&[LIVE, place.kind.number(), 0, 0]);
    for field in [place.offset, place.head, place.data, place.crc] {
        head.extend_from_slice(&field.to_le_bytes());
    }
    head.extend_from_slice(&sequence.to_le_bytes());
    head.extend_from_slice(&salt.to_le_bytes());
    head.extend_from_slice(&(label.len() as u32).to_le_bytes());
    let crc = combined(crc32c(&head[5..]), crc32c(label), label.len() as u64);
    head.extend_from_slice(&crc.to_le_bytes());
    head.extend_from_slice(label);
    let before = (foot_at(place.head, place.data) - place.head - place.data) as usize;
    foot.clear();
    foot.resize(before, 0);
    foot.extend_from_slice(head);
    foot[before..before + 4].copy_from_slice(FOOT);
    foot.resize(
        (total(place.head, place.data) - place.head - place.data) as usize,
        0,
    );
}

/// Reads the head or foot at the beginning of `bytes`, at offset `at` of segment `segment`; `None` if there is no valid
/// one.
pub(super) fn read(bytes: &[u8], at: u32, segment: u32, salt: u64) -> Option<Record> {
    let fixed = bytes.first_chunk::<FIXED>()?;
    let is_foot = match &fixed[..4] {
        magic if magic == HEAD => false,
        magic if magic == FOOT => true,
        _ => return None,
    };
    let label = bytes.get(FIXED..)?.get(..u32_at(fixed, 40) as usize)?;
    if combined(crc32c(&fixed[5..44]), crc32c(label), label.len() as u64) != u32_at(fixed, 44)
        || u64_at(fixed, 32) != salt
    {
        return None;
    }
    let kind = Kind::from_number(fixed[5])?;
    let place = Place {
        segment,
        offset: u32_at(fixed, 8),
        head: u32_at(fixed, 12),
        data: u32_at(fixed, 16),
        crc: u32_at(fixed, 20),
        stamp: 0,
        kind,
    };
    let sane = place.head as usize == FIXED + label.len()
        && place.data < SEGMENT_MAX
        && place.offset < SEGMENT_MAX;
    let here = if is_foot && sane {
        place.offset + foot_at(place.head, place.data)
    } else {
        place.offset
    };
    if here != at || !sane {
        return None;
    }
    let (name, form, _) = labels::read(label)?;
    Some(Record {
        name,
        form,
        place,
        sequence: u64_at(fixed, 24),
        alive: fixed[4] != DEAD,
    })
}

/// The unit in which the kernel copies a write; in between it checks whether the process was killed.
const PAGE: u32 = 4096;

/// The beginning of a head that is cut off at the end of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stump {
    /// Bytes that are present.
    pub(super) there: u32,
    /// Bytes of the complete record.
    pub(super) total: u32,
    /// The record was dead, and complete pages of it were punched.
    pub(super) dead: bool,
}

/// Recognises a head for this very offset of which only the bytes up to the end of the page are present: either the
/// record is dead, or its write was interrupted, and then all of the rest is zero. A killed process stops between two
/// pages, and the record was never acknowledged. `bytes` extend to the end of the segment.
pub(super) fn stump(bytes: &[u8], at: u32, salt: u64) -> Option<Stump> {
    let fixed = bytes.first_chunk::<FIXED>()?;
    let (head, data) = (u32_at(fixed, 12), u32_at(fixed, 16));
    let there = PAGE - at % PAGE;
    let is_head =
        &fixed[..4] == HEAD && u32_at(fixed, 8) == at && fixed[32..40] == salt.to_le_bytes();
    if !is_head || !(there + 1..=PAGE).contains(&head) || data >= SEGMENT_MAX {
        return None;
    }
    let total = total(head, data);
    let dead = fixed[STATE_AT as usize] == DEAD;
    let rest = bytes.get(there as usize..).unwrap_or_default();
    let rest = rest.get(..(total - there) as usize).unwrap_or(rest);
    // In a dead record, the punched page after the head's beginning suffices.
    let first = &rest[..rest.len().min(PAGE as usize)];
    let gone = if dead { first } else { rest };
    gone.iter()
        .all(|&byte| byte == 0)
        .then_some(Stump { there, total, dead })
}

#[cfg(test)]
mod tests {
    use slabfs_model::{ChunkId, Codec, Fill};

    use super::*;

    #[test]
    fn the_example_of_the_page() {
        let name = ChunkName::Free(ChunkId(5));
        let form = ChunkForm {
            shape: [10].into_iter().collect(),
            elem: 1,
            codec: Codec::None,
            fill: Fill::zero(),
        };
        let mut label = Vec::new();
        let head = head_len(&name, &form, &mut label);
        let crc = crc32c(b"0123456789");
        let place = Place {
            segment: 3,
            offset: 640,
            head,
            data: 10,
            crc,
            stamp: 0,
            kind: Kind::Raw,
        };
        let (mut bytes, mut foot) = (Vec::new(), Vec::new());
        write(&place, 77, 0xABCD, &label, &mut bytes, &mut foot);
        crate::store::local::assert_on_the_page(&bytes);
    }

    #[test]
    fn heads_and_feet_round_trip() {
        let name = ChunkName::Free(ChunkId(5));
        let form = ChunkForm {
            shape: [10].into_iter().collect(),
            elem: 1,
            codec: Codec::None,
            fill: Fill::zero(),
        };
        let mut label = Vec::new();
        let head = head_len(&name, &form, &mut label);
        let place = Place {
            segment: 3,
            offset: 640,
            head,
            data: 10,
            crc: 9,
            stamp: 0,
            kind: Kind::Grid,
        };
        let (mut bytes, mut foot) = (Vec::new(), Vec::new());
        write(&place, 77, 0xABCD, &label, &mut bytes, &mut foot);
        assert_eq!((bytes.len() + foot.len() + 10) as u32, total(head, 10));
        let record = read(&bytes, 640, 3, 0xABCD).unwrap();
        assert_eq!(
            (record.place, record.sequence, record.alive),
            (place, 77, true)
        );
        let before = (foot_at(head, 10) - head - 10) as usize;
        assert_eq!(
            read(&foot[before..], 640 + foot_at(head, 10), 3, 0xABCD).unwrap(),
            record
        );
        assert_eq!(read(&bytes, 704, 3, 0xABCD), None);
        assert_eq!(read(&bytes, 640, 3, 0xABCE), None);
        bytes[STATE_AT as usize] = DEAD;
        assert!(!read(&bytes, 640, 3, 0xABCD).unwrap().alive);
        for at in 5..bytes.len() {
            bytes[at] ^= 8;
            assert_eq!(read(&bytes, 640, 3, 0xABCD), None, "{at}");
            bytes[at] ^= 8;
        }
    }
}
