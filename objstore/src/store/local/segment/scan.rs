//! Scans segments for records when a store is opened.
//!
//! A segment is read from its beginning: a valid head gives the length of its record, and the next record follows.
//! Holes and zeros are skipped. Anything else is damage, or a write interrupted by a crash: the scan searches for the
//! next valid head or foot; a foot identifies its record even if the head is lost. A record of which only a part of the
//! head was written when the process was killed is zeroed. Unexplained bytes are logged.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};

use super::descriptors::Descriptors;
use super::record::{self, ALIGN, FOOT_ALIGN, Record};
use super::{Active, MAGIC, SEGMENT_HEAD, SEGMENT_MAX, Segment, Segments, VERSION};
use crate::checksum::crc32c;
use crate::error::{Result, StoreError};
use crate::name::ChunkName;
use crate::store::local::directory::Directory;
use crate::store::local::segment::Place;
use crate::store::local::shared::Shared;

/// Only a last segment that ends below this offset is continued.
const CONTINUE_BELOW: u32 = SEGMENT_MAX / 4 * 3;

/// A live record.
#[derive(Debug)]
pub(in crate::store::local) struct FoundRecord {
    pub(in crate::store::local) name: ChunkName,
    pub(in crate::store::local) place: Place,
    pub(in crate::store::local) sequence: u64,
    /// Whether its data matches its checksum.
    pub(in crate::store::local) sound: bool,
    /// Its end is missing: most likely the process was killed while it wrote the record.
    pub(in crate::store::local) cut: bool,
}

impl FoundRecord {
    /// A record in the catalogue: all of it was on disk once.
    fn known((name, place): (ChunkName, Place), sound: bool) -> Self {
        Self {
            name,
            place,
            sequence: 0,
            sound,
            cut: false,
        }
    }
}

/// The content of the catalogue.
#[derive(Debug, Default)]
pub(in crate::store::local) struct Known {
    pub(in crate::store::local) records: Vec<(ChunkName, Place)>,
    /// Nothing has changed since it was written.
    pub(in crate::store::local) is_current: bool,
}

impl Segments {
    /// Opens all segments and finds their live records. `first` is a sequence number above all those assigned before;
    /// about `most_open` files are open at a time.
    pub(in crate::store::local) fn open(
        directory: Arc<Directory>,
        shared: Arc<Shared>,
        first: u64,
        mut known: Known,
        most_open: usize,
    ) -> Result<(Self, Vec<FoundRecord>)> {
        let numbers = numbers(&directory)?;
        let next_number = numbers.last().map_or(1, |(number, _)| number + 1);
        let segments = Self {
            directory,
            shared,
            list: RwLock::default(),
            active: Mutex::new(Active {
                segment: None,
                end: 0,
                next_number,
            }),
            sequence: AtomicU64::new(first),
            descriptors: Descriptors::new(most_open),
        };
        known
            .records
            .sort_unstable_by_key(|(_, place)| (place.segment, place.offset));
        let mut found = Vec::new();
        let mut buffer = Vec::new();
        let last = numbers.last().map(|(number, _)| *number);
        for (number, path) in numbers {
            let of_segment = known
                .records
                .partition_point(|(_, place)| place.segment < number)
                ..known
                    .records
                    .partition_point(|(_, place)| place.segment <= number);
            let of_segment = &known.records[of_segment];
            let fail = |e: io::Error| StoreError::from_io("read", &path, &e);
            let len = std::fs::metadata(&path)
                .map_err(fail)?
                .len()
                .min(u64::from(u32::MAX / 2)) as u32;
            let descriptor = segments.descriptors.closed(&path);
            let segment = Arc::new(Segment::new(
                number,
                path.clone(),
                descriptor,
                segments.directory.id(),
            ));
            let records = if known.is_current {
                let known = of_segment.iter().cloned();
                known.map(|known| FoundRecord::known(known, true)).collect()
            } else {
                buffer.clear();
                read_all(&*segment.descriptor.file().map_err(fail)?, &mut buffer).map_err(fail)?;
                check_head(&segment, &buffer)?;
                records(&segment, &buffer, of_segment)
            };
            segments.admit(segment, len, &records, Some(number) == last)?;
            found.extend(records);
        }
        let lost = found.iter().map(|record| record.place.segment);
        let lost: std::collections::HashSet<u32> = lost.collect();
        if known.is_current {
            // A missing segment file is damage too.
            let gone = known
                .records
                .into_iter()
                .filter(|(_, place)| !lost.contains(&place.segment));
            found.extend(gone.map(|known| FoundRecord::known(known, true)));
        }
        let highest = found
            .iter()
            .map(|record| record.sequence)
            .max()
            .unwrap_or(0);
        segments
            .sequence
            .fetch_max(highest + 1, std::sync::atomic::Ordering::Relaxed);
        Ok((segments, found))
    }

    /// Adds a segment to the open ones: space outside live records counts as dead.
    fn admit(
        &self,
        segment: Arc<Segment>,
        len: u32,
        records: &[FoundRecord],
        is_last: bool,
    ) -> Result<()> {
        // Truncated records retain their space: killing them must not affect others.
        let end = records
            .iter()
            .map(|record| record.place.offset + record.place.total())
            .fold(len, u32::max);
        let end = end.next_multiple_of(4096).max(SEGMENT_HEAD);
        let continued = is_last && end < CONTINUE_BELOW;
        {
            let mut state = segment.state.lock();
            state.full = !continued;
            let mut dead_from = SEGMENT_HEAD;
            for place in records.iter().map(|record| &record.place) {
                if place.offset > dead_from {
                    state.dead.add(dead_from..place.offset);
                }
                dead_from = place.offset + place.total();
                state.live += u64::from(place.total());
            }
            if len > dead_from {
                state.dead.add(dead_from..len);
            }
            // Space that was dead before has been punched already.
            state.dead.take_pages();
        }
        self.list
            .write()
            .insert(segment.number, Arc::clone(&segment));
        if !continued {
            return self.drop_if_dead(&segment);
        }
        let mut active = self.active.lock();
        (active.segment, active.end) = (Some(segment), end);
        Ok(())
    }
}

/// The live records of a segment, by offset, including `known` records that were cut off.
fn records(segment: &Segment, bytes: &[u8], known: &[(ChunkName, Place)]) -> Vec<FoundRecord> {
    let scanned = scan(segment, bytes);
    let is_known = |offset: u32| {
        known
            .binary_search_by_key(&offset, |(_, place)| place.offset)
            .is_ok()
    };
    let mut found: Vec<_> = scanned
        .into_iter()
        .filter(|record| record.alive)
        .map(|record| {
            let place = record.place;
            let from = (place.offset + place.head) as usize;
            let data = bytes.get(from..from + place.data as usize);
            let sound = data.is_some_and(|data| crc32c(data) == place.crc);
            let foot = place.offset + record::foot_at(place.head, place.data);
            let ends = bytes.get(foot as usize..).is_some_and(|rest| {
                record::read(rest, foot, segment.number, segment.salt).is_some()
            });
            FoundRecord {
                name: record.name,
                place,
                sequence: record.sequence,
                sound,
                // A record in the catalogue was complete once.
                cut: !sound && !ends && !is_known(place.offset),
            }
        })
        .collect();
    let end = found.last().map_or(SEGMENT_HEAD, |record| {
        record.place.offset + record.place.total()
    });
    for (name, place) in known {
        if place.offset >= end && (place.offset + place.total()) as usize > bytes.len() {
            tracing::error!(
                "{}: {name} was cut off at byte {}",
                segment.path.display(),
                place.offset
            );
            found.push(FoundRecord::known((name.clone(), *place), false));
        }
    }
    found
}

fn numbers(directory: &Directory) -> Result<Vec<(u32, PathBuf)>> {
    let dir = directory.segments();
    let fail = |e: io::Error| StoreError::from_io("list", &dir, &e);
    let mut numbers = Vec::new();
    for entry in fs::read_dir(&dir).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let number = path
            .file_stem()
            .and_then(|s| s.to_str())
            .and_then(|s| s.parse::<u32>().ok());
        match number.filter(|_| path.extension().is_some_and(|e| e == "seg")) {
            Some(number) => numbers.push((number, path)),
            None => tracing::warn!("{} does not belong to the chunk store", path.display()),
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads all of a file; unreadable parts count as zeros.
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
    let version = head
        .get(8..12)
        .and_then(|b| b.first_chunk())
        .map(|b| u32::from_le_bytes(*b));
    match version {
        Some(version) if sound && version != VERSION => Err(StoreError::Invalid(format!(
            "{} has version {version}, this slabfs reads version {VERSION}: use the slabfs that wrote it",
            segment.path.display()
        ))),
        Some(_) if sound => Ok(()),
        _ => {
            // Only the version is used from the head.
            tracing::warn!("{}: its first bytes are damaged", segment.path.display());
            Ok(())
        }
    }
}

/// All records that can be identified, in order, without overlaps.
fn scan(segment: &Segment, bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut at = SEGMENT_HEAD;
    let mut damage: Option<u32> = None;
    while (at as usize) < bytes.len() {
        let rest = &bytes[at as usize..];
        let aligned = at.is_multiple_of(ALIGN);
        let next = if aligned {
            rest.first_chunk::<{ ALIGN as usize }>()
        } else {
            None
        };
        if damage.is_none() && next == Some(&[0; ALIGN as usize]) {
            at += ALIGN;
            continue;
        }
        if aligned
            && damage.is_none()
            && let Some(stump) = record::stump(rest, at, segment.salt)
        {
            if !stump.dead {
                forget(segment, at, stump.there);
            }
            at = at.saturating_add(stump.total);
            continue;
        }
        match record::read(rest, at, segment.number, segment.salt) {
            Some(record) => {
                let lost = damage.take();
                if let Some(from) = lost.filter(|from| *from < record.place.offset) {
                    log_unexplained(segment, from, record.place.offset);
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
        log_unexplained(segment, from, bytes.len() as u32);
    }
    records
}

/// Zeroes the beginning of a record that was never completed, so that the next scan does not meet it again. The write
/// was never acknowledged, so no promised data is lost.
fn forget(segment: &Segment, at: u32, there: u32) {
    let path = segment.path.display();
    tracing::info!(
        "{path}: the chunk at byte {at} was being written when the server was killed; no fsync had acknowledged it, and it is removed"
    );
    let zeros = vec![0; there as usize];
    let written = segment.descriptor.file();
    if let Err(error) = written.and_then(|file| file.write_all_at(&zeros, at.into())) {
        tracing::info!("{path}: it remains until the next start: {error}");
    }
}

fn log_unexplained(segment: &Segment, from: u32, upto: u32) {
    if from.is_multiple_of(4096) && upto - from < 4096 {
        // The rest of a dead record after punching complete pages.
        tracing::debug!(
            "{}: bytes {from}..{upto} are left over",
            segment.path.display()
        );
        return;
    }
    tracing::warn!(
        "{}: bytes {from}..{upto} hold no complete record: damage, or writes interrupted by a power failure; data in there is lost",
        segment.path.display()
    );
}

#[cfg(test)]
mod tests;
