//! The encoding of commits in the values of etcd: *blocks*. Pure.
//!
//! A block has complete records of consecutive commits, up to [`MAX_PAYLOAD`]. A longer record is in several blocks, its
//! *parts*. The key of a block has the number of its first commit and of its part, so that keys are in the order of the
//! log. `docs/formats/etcd.md` has the bytes.

use std::collections::VecDeque;

use crc_fast::crc32_iscsi as crc32c;
use slabfs_mdserver::kv::{Batch, Lsn};

/// Bytes of a block's payload, at most: a request of etcd may have 1.5 MiB.
const MAX_PAYLOAD: usize = 1 << 20;
/// Bytes of a block's header.
const HEADER: usize = 48;
const MAGIC: &[u8; 4] = b"SBLG";
const VERSION: u32 = 1;
/// Parts of a record, at most; no batch has more bytes.
const MAX_PARTS: u32 = 64;

/// A commit as it goes to the log.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) lsn: Lsn,
    pub(crate) bytes: Vec<u8>,
}

/// The header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The first commit in it.
    pub(crate) first: Lsn,
    /// Commits in it.
    pub(crate) records: u32,
    /// The number of this part, and how many there are.
    pub(crate) part: u32,
    pub(crate) parts: u32,
    /// The leader that wrote it: the revision of etcd that created its key.
    pub(crate) leader: i64,
}

impl Head {
    /// The last commit in it.
    pub(crate) fn last(&self) -> Lsn {
        Lsn(self.first.0 + u64::from(self.records) - 1)
    }
}

/// The end of a key: the position in the log.
pub(crate) fn name(first: Lsn, part: u32) -> String {
    format!("log/{:016x}.{part:04x}", first.0)
}

/// Takes the next block's worth of commits off the queue: one block, or all parts of a long record. Each is the end of
/// its key and its value.
pub(crate) fn next_blocks(queue: &mut VecDeque<Record>, leader: i64) -> Vec<(String, Vec<u8>)> {
    let Some(first) = queue.front() else {
        return Vec::new();
    };
    let first_lsn = first.lsn;
    if first.bytes.len() + 4 > MAX_PAYLOAD {
        let Some(record) = queue.pop_front() else {
            return Vec::new();
        };
        let parts = record.bytes.chunks(MAX_PAYLOAD);
        let head = Head {
            first: first_lsn,
            records: 1,
            part: 0,
            parts: parts.len() as u32,
            leader,
        };
        let blocks = parts.enumerate().map(|(part, bytes)| {
            let part = part as u32;
            (name(first_lsn, part), encode(Head { part, ..head }, bytes))
        });
        return blocks.collect();
    }
    let (mut payload, mut records) = (Vec::new(), 0);
    while let Some(record) = queue.front() {
        if payload.len() + 4 + record.bytes.len() > MAX_PAYLOAD {
            break;
        }
        payload.extend_from_slice(&(record.bytes.len() as u32).to_le_bytes());
        payload.extend_from_slice(&record.bytes);
        records += 1;
        queue.pop_front();
    }
    let head = Head {
        first: first_lsn,
        records,
        part: 0,
        parts: 1,
        leader,
    };
    vec![(name(first_lsn, 0), encode(head, &payload))]
}

fn encode(head: Head, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&head.first.0.to_le_bytes());
    for number in [head.records, head.part, head.parts, 0] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&head.leader.to_le_bytes());
    bytes.extend_from_slice(&crc32c(payload).to_le_bytes());
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Reads a block: its header and its payload.
pub(crate) fn decode(value: &[u8]) -> Result<(Head, &[u8]), String> {
    let (head, sum, payload) = decode_head(value)?;
    match sum == crc32c(payload) {
        true => Ok((head, payload)),
        false => Err("its payload is damaged".to_owned()),
    }
}

/// Reads the header of a block: that, the checksum of its payload, and the payload.
pub(crate) fn decode_head(value: &[u8]) -> Result<(Head, u32, &[u8]), String> {
    let Some((head, payload)) = value.split_at_checked(HEADER) else {
        return Err("it is too short".to_owned());
    };
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default());
    let long = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
    if &head[..4] != MAGIC || word(HEADER - 4) != crc32c(&head[..HEADER - 4]) {
        return Err("its header is damaged".to_owned());
    }
    if word(4) != VERSION {
        return Err(format!(
            "it has format {} and this program knows format {VERSION}",
            word(4)
        ));
    }
    let sum = word(HEADER - 8);
    let head = Head {
        first: Lsn(long(8)),
        records: word(16),
        part: word(20),
        parts: word(24),
        leader: long(32) as i64,
    };
    let possible = head.records > 0
        && head.part < head.parts
        && head.parts <= MAX_PARTS
        && (head.parts == 1 || head.records == 1)
        && head.first.0 > 0
        && head.first.0 < 1 << 62;
    match possible {
        true => Ok((head, sum, payload)),
        false => Err("its header makes no sense".to_owned()),
    }
}

/// The commits in the payload of a block that is not a part, or in the joined payloads of all parts of a record.
pub(crate) fn batches(head: &Head, payload: &[u8]) -> Result<Vec<Batch>, String> {
    let unreadable = || "a record in it is unreadable".to_owned();
    if head.parts > 1 {
        return Ok(vec![Batch::from_record(payload).ok_or_else(unreadable)?]);
    }
    let mut rest = payload;
    let mut batches = Vec::new();
    for _ in 0..head.records {
        let (len, tail) = rest.split_at_checked(4).ok_or_else(unreadable)?;
        let len = u32::from_le_bytes(len.try_into().map_err(|_| unreadable())?);
        let (record, tail) = tail.split_at_checked(len as usize).ok_or_else(unreadable)?;
        batches.push(Batch::from_record(record).ok_or_else(unreadable)?);
        rest = tail;
    }
    match rest {
        [] => Ok(batches),
        _ => Err("bytes follow its last record".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn batch(len: usize, fill: u8) -> Batch {
        let mut batch = Batch::new();
        batch.put(vec![fill, 1], vec![fill; len]).delete("gone");
        batch
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Commits of any size come back in order, and no block is longer than etcd takes.
        #[test]
        fn commits_come_back(sizes in prop::collection::vec(
            prop_oneof![8 => 0usize..3000, 1 => (1usize << 19)..(5 << 19)], 1..20)) {
            let commits: Vec<Batch> = sizes.iter().enumerate().map(|(at, &len)| batch(len, at as u8)).collect();
            let mut queue: VecDeque<Record> = (7..).zip(&commits)
                .map(|(lsn, batch)| Record { lsn: Lsn(lsn), bytes: batch.to_record() })
                .collect();
            let (mut got, mut names) = (Vec::new(), Vec::new());
            while !queue.is_empty() {
                let blocks = next_blocks(&mut queue, -5);
                let mut joined = Vec::new();
                let mut last = None;
                for (part, (name, value)) in blocks.iter().enumerate() {
                    prop_assert!(value.len() <= HEADER + MAX_PAYLOAD);
                    let (head, payload) = decode(value).expect("a block");
                    prop_assert_eq!((head.part as usize, head.parts as usize), (part, blocks.len()));
                    prop_assert_eq!((head.leader, head.first), (-5, Lsn(7 + got.len() as u64)));
                    joined.extend_from_slice(payload);
                    names.push(name.clone());
                    last = Some(head);
                }
                got.extend(batches(&last.expect("a block"), &joined).expect("commits"));
            }
            prop_assert_eq!(got, commits);
            prop_assert!(names.is_sorted());
        }
    }

    #[test]
    fn every_flipped_byte_is_detected() {
        let mut queue = VecDeque::from([Record {
            lsn: Lsn(1),
            bytes: batch(20, 3).to_record(),
        }]);
        let blocks = next_blocks(&mut queue, 9);
        let good = &blocks[0].1;
        assert!(decode(good).is_ok());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(decode(&bad).is_err(), "byte {at}");
            assert!(decode(&good[..at]).is_err());
        }
    }
}
