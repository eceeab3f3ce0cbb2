//! Lookups in a checkpoint, by an in-memory table of its blocks.
//!
//! [`Blocks::open`] reads the entire file once, checks every checksum, and stores the first key and the place of each
//! block, about a thousandth of the file. A lookup reads the one block that can contain the key and checks its checksum
//! again, so later damage is detected too.

use super::checkpoint::{Broken, Head, Reader, entry_at};
use super::{Lsn, Pair};
use crc_fast::crc32_iscsi as crc32c;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The place of a block, and its first key.
#[derive(Debug, Clone)]
pub(super) struct Span {
    /// Its first key.
    pub(super) first: Box<[u8]>,
    /// Where its payload begins.
    pub(super) offset: u64,
    /// The length of its payload.
    pub(super) len: u32,
    /// The checksum of its payload.
    pub(super) crc: u32,
}

/// A complete, verified checkpoint.
#[derive(Debug)]
pub(super) struct Blocks {
    file: File,
    head: Head,
    bytes: u64,
    spans: Vec<Span>,
}

impl Blocks {
    /// Opens the checkpoint in `path`, which must be of commit `lsn` if that is given, and verifies all of it.
    pub(super) fn open(path: &Path, lsn: Option<u64>) -> Result<Self, Broken> {
        let mut reader = Reader::open(path, lsn)?;
        let mut spans: Vec<Span> = Vec::new();
        while let Some(span) = reader.span()? {
            spans.push(span);
        }
        let (head, bytes, file) = reader.into_parts();
        Ok(Self {
            file,
            head,
            bytes,
            spans,
        })
    }

    /// The header.
    pub(super) fn head(&self) -> Head {
        self.head
    }

    /// The length of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The last commit in it.
    pub(super) fn lsn(&self) -> Lsn {
        self.head.lsn
    }

    /// Returns the value of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Broken> {
        let mut rows = self.from(key)?;
        Ok(rows
            .next()?
            .filter(|(found, _)| found == key)
            .map(|(_, value)| value))
    }

    /// Iterates over the entries with `from <= key`, ascending.
    pub(super) fn from(&self, from: &[u8]) -> Result<Rows<'_>, Broken> {
        let behind = self.spans.partition_point(|span| *span.first <= *from);
        let mut rows = Rows {
            blocks: self,
            next: behind.saturating_sub(1),
            block: Vec::new(),
            at: 0,
        };
        rows.skip_to(from)?;
        Ok(rows)
    }

    fn read(&self, span: &Span, into: &mut Vec<u8>) -> Result<(), Broken> {
        let broken = |detail: String| Broken {
            offset: span.offset,
            detail,
        };
        into.resize(span.len as usize, 0);
        self.file
            .read_exact_at(into, span.offset)
            .map_err(|error| broken(error.to_string()))?;
        if crc32c(into) == span.crc {
            Ok(())
        } else {
            Err(broken(
                "the checksum of a block does not fit its bytes any more".to_owned(),
            ))
        }
    }
}

/// Entries in ascending order.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    blocks: &'a Blocks,
    /// The next block to read.
    next: usize,
    block: Vec<u8>,
    at: usize,
}

impl Rows<'_> {
    /// The next entry.
    pub(super) fn next(&mut self) -> Result<Option<Pair>, Broken> {
        while self.at >= self.block.len() {
            let Some(span) = self.blocks.spans.get(self.next) else {
                return Ok(None);
            };
            self.blocks.read(span, &mut self.block)?;
            (self.at, self.next) = (0, self.next + 1);
        }
        let (key, value) = self.entry()?;
        self.at = value.end;
        Ok(Some((self.block[key].to_vec(), self.block[value].to_vec())))
    }

    /// Skips the entries before `from`, all of which are in the first block.
    fn skip_to(&mut self, from: &[u8]) -> Result<(), Broken> {
        let Some(span) = self.blocks.spans.get(self.next) else {
            return Ok(());
        };
        self.blocks.read(span, &mut self.block)?;
        self.next += 1;
        while self.at < self.block.len() {
            let (key, value) = self.entry()?;
            if self.block[key] >= *from {
                break;
            }
            self.at = value.end;
        }
        Ok(())
    }

    fn entry(&self) -> Result<(std::ops::Range<usize>, std::ops::Range<usize>), Broken> {
        entry_at(&self.block, self.at).ok_or_else(|| Broken {
            offset: self.blocks.spans[self.next - 1].offset,
            detail: "an entry is malformed".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::checkpoint::Writer;
    use super::super::disk::{Ground, checkpoint_name};
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    fn key(number: u32) -> Vec<u8> {
        format!("key-{number:05}").into_bytes()
    }

    /// The even keys, with values of different lengths.
    fn written(dir: &Path, count: u32) -> PathBuf {
        let head = Head {
            store: [1; 16],
            lsn: Lsn(9),
            journal: 1,
        };
        let mut writer = Writer::new(dir, &Ground::real(), head).unwrap();
        for number in 0..count {
            let value = vec![number as u8; number as usize % 300];
            writer.push(&key(2 * number), &value).unwrap();
        }
        writer.finish().unwrap();
        dir.join(checkpoint_name(9))
    }

    #[test]
    fn every_key_is_found_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        for count in [0, 1, 2, 3000] {
            let path = written(dir.path(), count);
            let blocks = Blocks::open(&path, Some(9)).unwrap();
            assert_eq!(blocks.bytes(), fs::metadata(&path).unwrap().len());
            assert!(count < 3000 || blocks.spans.len() > 10);
            for number in 0..count {
                let value = vec![number as u8; number as usize % 300];
                assert_eq!(blocks.get(&key(2 * number)).unwrap(), Some(value));
                assert_eq!(blocks.get(&key(2 * number + 1)).unwrap(), None);
                let next = blocks.from(&key(2 * number + 1)).unwrap().next().unwrap();
                let expected = (number + 1 < count).then(|| key(2 * number + 2));
                assert_eq!(next.map(|(key, _)| key), expected);
            }
            assert_eq!(blocks.get(b"a").unwrap(), None);
            assert_eq!(blocks.get(b"z").unwrap(), None);
            let mut rows = blocks.from(b"").unwrap();
            for number in 0..count {
                assert_eq!(rows.next().unwrap().unwrap().0, key(2 * number));
            }
            assert_eq!(rows.next().unwrap(), None);
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn damage_after_opening_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path(), 1000);
        let blocks = Blocks::open(&path, Some(9)).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let span = blocks.spans[1].clone();
        bytes[span.offset as usize + 100] ^= 1;
        fs::write(&path, bytes).unwrap();
        blocks.get(&span.first).unwrap_err();
        assert!(blocks.get(&key(0)).unwrap().is_some());
        Blocks::open(&path, Some(9)).unwrap_err();
    }
}
