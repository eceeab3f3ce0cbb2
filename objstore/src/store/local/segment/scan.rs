//! Finding the records of segments when a store is opened.
//!
//! A segment is read from its beginning: a sound head says how long its record is, and the next one
//! follows. Holes and zeros are skipped. Where neither stands, something is damaged, or was being
//! written when the process died: the next sound head or foot is looked for, and with a foot its
//! record is found although the head is gone. What cannot be explained is told in the log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};

use super::record::{self, ALIGN, FOOT_ALIGN, Record};
use super::{Active, MAGIC, SEGMENT_HEAD, SEGMENT_MAX, Segment, Segments, VERSION};
use crate::checksum::crc32c;
use crate::error::{Result, StoreError};
use crate::name::ChunkName;
use crate::store::local::directory::Directory;
use crate::store::local::segment::Place;
use crate::store::local::shared::Shared;

/// A segment with less room than this left is not continued.
const CONTINUE_BELOW: u32 = SEGMENT_MAX / 4 * 3;

/// A live record.
pub(in crate::store::local) struct FoundRecord {
    pub(in crate::store::local) name: ChunkName,
    pub(in crate::store::local) place: Place,
    pub(in crate::store::local) sequence: u64,
    /// Whether its data is as it was written.
    pub(in crate::store::local) sound: bool,
}

impl Segments {
    /// Opens all segments and finds their live records. `first` is a sequence number above all that
    /// were given out before.
    pub(in crate::store::local) fn open(directory: Arc<Directory>, shared: Arc<Shared>, first: u64) -> Result<(Self, Vec<FoundRecord>)> {
        let dir = directory.segments();
        let fail = |e: io::Error| StoreError::from_io("list", &dir, &e);
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&dir).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            let number = path.file_stem().and_then(|s| s.to_str()).and_then(|s| s.parse::<u32>().ok());
            match number.filter(|_| path.extension().is_some_and(|e| e == "seg")) {
                Some(number) => numbers.push((number, path)),
                None => tracing::warn!("{} does not belong to the chunk store", path.display()),
            }
        }
        numbers.sort_unstable();
        let next_number = numbers.last().map_or(1, |(number, _)| number + 1);
        let segments = Self {
            directory,
            shared,
            list: RwLock::default(),
            active: Mutex::new(Active { segment: None, end: 0, next_number }),
            sequence: AtomicU64::new(first),
        };
        let mut found = Vec::new();
        let mut bytes = Vec::new();
        let mut highest = 0;
        let last = numbers.len().saturating_sub(1);
        for (i, (number, path)) in numbers.into_iter().enumerate() {
            let fail = |e: io::Error| StoreError::from_io("read", &path, &e);
            let file = OpenOptions::new().read(true).write(true).open(&path).map_err(fail)?;
            bytes.clear();
            read_all(&file, &mut bytes).map_err(fail)?;
            let segment = Arc::new(Segment::new(number, path.clone(), file, segments.directory.id()));
            check_head(&segment, &bytes)?;
            let records = scan(&segment, &bytes);
            highest = highest.max(records.iter().map(|r| r.sequence).max().unwrap_or(0));
            let end = (bytes.len() as u32).next_multiple_of(4096);
            let continued = i == last && end < CONTINUE_BELOW;
            let mut state = segment.state.lock();
            state.full = !continued;
            let mut dead_from = SEGMENT_HEAD;
            for record in records.into_iter().filter(|r| r.alive) {
                let at = record.place.offset;
                if at > dead_from {
                    state.dead.add(dead_from..at);
                }
                dead_from = at + record.place.total();
                state.live += u64::from(record.place.total());
                let (from, len) = ((at + record.place.head) as usize, record.place.data as usize);
                let sound = bytes.get(from..from + len).is_some_and(|data| crc32c(data) == record.place.crc);
                found.push(FoundRecord { name: record.name, place: record.place, sequence: record.sequence, sound });
            }
            if (bytes.len() as u32) > dead_from {
                state.dead.add(dead_from..bytes.len() as u32);
            }
            // What died before was punched before.
            state.dead.take_pages();
            drop(state);
            segments.list.write().insert(number, Arc::clone(&segment));
            if continued {
                let mut active = segments.active.lock();
                (active.segment, active.end) = (Some(segment), end.max(SEGMENT_HEAD));
            } else {
                segments.drop_if_dead(&segment)?;
            }
        }
        segments.sequence.fetch_max(highest + 1, std::sync::atomic::Ordering::Relaxed);
        Ok((segments, found))
    }
}

/// Reads as much of a file as the disk gives; what it does not give counts as zeros.
fn read_all(mut file: &File, bytes: &mut Vec<u8>) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let len = file.metadata()?.len().min(u64::from(u32::MAX)) as usize;
    bytes.reserve(len);
    match file.read_to_end(bytes) {
        Ok(_) => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::EIO) => {
            bytes.resize(len, 0);
            for (i, part) in bytes.chunks_mut(4096).enumerate() {
                if file.read_exact_at(part, i as u64 * 4096).is_err() {
                    part.fill(0);
                }
            }
            Ok(())
        }
        Err(e) => Err(e),
    }
}

fn check_head(segment: &Segment, bytes: &[u8]) -> Result<()> {
    let head = bytes.get(..16).unwrap_or_default();
    let sound = head.get(..8) == Some(MAGIC.as_slice());
    let version = head.get(8..12).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b));
    match version {
        Some(version) if sound && version != VERSION => Err(StoreError::Invalid(format!(
            "{} has version {version}, this slabfs reads version {VERSION}: use the slabfs that wrote it",
            segment.path.display()
        ))),
        Some(_) if sound => Ok(()),
        _ => {
            // Nothing but the version is learnt from it.
            tracing::warn!("{}: its first bytes are damaged", segment.path.display());
            Ok(())
        }
    }
}

/// All records that can be made out, in their order, without overlaps.
fn scan(segment: &Segment, bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut at = SEGMENT_HEAD;
    let mut damage: Option<u32> = None;
    while (at as usize) < bytes.len() {
        let rest = &bytes[at as usize..];
        let aligned = at.is_multiple_of(ALIGN);
        let next = if aligned { rest.first_chunk::<{ ALIGN as usize }>() } else { None };
        if damage.is_none() && next == Some(&[0; ALIGN as usize]) {
            at += ALIGN;
            continue;
        }
        match record::read(rest, at, segment.number, segment.salt) {
            Some(record) => {
                let lost = damage.take();
                if let Some(from) = lost.filter(|from| *from < record.place.offset) {
                    tell(segment, from, record.place.offset);
                }
                at = record.place.offset + record.place.total();
                records.push(record);
            }
            None => {
                damage.get_or_insert(at);
                at += FOOT_ALIGN;
            }
        }
    }
    if let Some(from) = damage {
        tell(segment, from, bytes.len() as u32);
    }
    records
}

fn tell(segment: &Segment, from: u32, upto: u32) {
    if from.is_multiple_of(4096) && upto - from < 4096 {
        // What punching whole pages left of the last dead record.
        tracing::debug!("{}: bytes {from}..{upto} are left over", segment.path.display());
        return;
    }
    tracing::warn!(
        "{}: bytes {from}..{upto} hold no whole record: a write that a crash cut short, or damage; a chunk in there is gone",
        segment.path.display()
    );
}

#[cfg(test)]
mod tests;
