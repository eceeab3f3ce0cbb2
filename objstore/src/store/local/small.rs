//! Reads and writes small chunks, which are records in segments.
//!
//! A record never changes: a new version is a new record. The old record is deleted at once if it is not on disk
//! itself; otherwise only when its successor is on disk, so that a power failure leaves one of the two.

use std::cell::Cell;
use std::io::IoSlice;
use std::ops::Range;

use super::decode::{self, Packed, Take};
use super::file::PAGE;
use super::index::Entry;
use super::segment::{Kind, Place};
use super::{LocalStore, pieces};
use crate::error::{Result, StoreError};
use crate::fill::paint;
use crate::name::{ChunkForm, ChunkName};
use crate::store::Allocated;
use crate::store::extent::Extent;

/// The number of waiting records that triggers a sync.
const WAITING_MAX: usize = 1024;

thread_local! {
    static RECORD: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Which bytes of a record count as allocated: pages of zeros count as holes, as they would be in a chunk's file.
pub(super) fn allocated(bytes: &[u8], from: u64) -> Allocated {
    let mut allocated = Allocated::default();
    let mut at = 0;
    for page in bytes.chunks(PAGE as usize) {
        let end = at + page.len() as u64;
        if page.iter().any(|&byte| byte != 0) {
            allocated.bytes += page.len() as u64;
            match &mut allocated.next {
                None if end > from => allocated.next = Some((at.max(from), end)),
                Some((_, upto)) if *upto == at => *upto = end,
                _ => {}
            }
        }
        at = end;
    }
    allocated
}

/// Calls `f` with the cells, if they are contiguous and uncompressed.
pub(super) fn show(
    place: &Place,
    bytes: &[u8],
    extent: &Extent<'_>,
    f: &mut dyn FnMut(&[u8]),
) -> Result<bool> {
    match extent.single() {
        Some((at, len)) if place.kind != Kind::Coded && at + len <= bytes.len() as u64 => {
            f(&bytes[at as usize..(at + len) as usize]);
            Ok(true)
        }
        _ => Ok(false),
    }
}

impl LocalStore {
    /// Runs `f` with the data of a record. A record that does not match its checksum is reported as damaged; the caller
    /// must check whether it was deleted meanwhile.
    pub(super) fn with_record<R>(
        &self,
        name: &ChunkName,
        place: &Place,
        f: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        let mut bytes = RECORD.take();
        let outcome = match self.segments.read(place, &mut bytes) {
            Ok(Some(())) => f(&bytes),
            Ok(None) => {
                let record = self.segments.describe(place);
                let detail = format!("{record}: the data (block 0) does not match its checksum");
                Err(StoreError::damaged(name, detail))
            }
            Err(error) => Err(error),
        };
        RECORD.set(bytes);
        outcome
    }

    pub(super) fn read_small(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        place: &Place,
        bytes: &[u8],
        extent: &Extent<'_>,
        out: &mut [u8],
    ) -> Result<()> {
        if place.kind == Kind::Coded {
            let mut fetch = fetch_from(bytes);
            let table = decode::table(name, form, bytes.len() as u64, &mut fetch)?;
            let decoded = &self.shared.decoded;
            return Packed::new(name, form, &table).read(decoded, extent, out, &mut fetch);
        }
        if place.kind == Kind::Raw && extent.end > bytes.len() as u64 {
            return Err(StoreError::Invalid(format!(
                "bytes up to {} of {name} were asked for, and it has {}",
                extent.end,
                bytes.len()
            )));
        }
        let mut packed = 0;
        extent.runs(&mut |at, len| {
            let part = &mut out[packed..packed + len as usize];
            packed += part.len();
            let have = (bytes.len() as u64).saturating_sub(at).min(len) as usize;
            if have > 0 {
                part[..have].copy_from_slice(&bytes[at as usize..at as usize + have]);
            }
            paint(form, at + have as u64, &mut part[have..]);
            Ok(())
        })
    }

    pub(super) fn verify_small(&self, name: &ChunkName, place: &Place, bytes: &[u8]) -> Result<()> {
        if place.kind != Kind::Coded {
            return Ok(());
        }
        let form = self.form_of(name, place)?;
        let mut fetch = fetch_from(bytes);
        let table = decode::table(name, &form, bytes.len() as u64, &mut fetch)?;
        Packed::new(name, &form, &table).verify(&mut fetch)
    }

    /// The form of a small chunk.
    pub(super) fn form_of(&self, name: &ChunkName, place: &Place) -> Result<ChunkForm> {
        self.segments.form(place).ok_or_else(|| {
            let record = self.segments.describe(place);
            StoreError::damaged(name, format!("{record}: neither head nor foot can be read"))
        })
    }

    /// Stores a chunk, or a new version of one, as a record. The caller holds the chunk's lock.
    pub(super) fn store_small(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        kind: Kind,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        let place = self.segments.append(name, form, kind, data)?;
        let old = self.index.write().set(name, Entry::Small(place));
        match old {
            Some(Entry::Small(old)) => self.retire(name, old),
            Some(Entry::File) | None => Ok(()),
        }
    }

    /// Deletes a superseded record, now or when that is safe.
    fn retire(&self, name: &ChunkName, old: Place) -> Result<()> {
        if !self.segments.is_durable(&old) {
            return self.segments.kill(&old);
        }
        let many = {
            let mut waiting = self.waiting.lock();
            waiting.entry(name.clone()).or_default().push(old);
            waiting.len() >= WAITING_MAX
        };
        if many {
            self.segments.sync(None)?;
            self.release_waiting()?;
        }
        Ok(())
    }

    /// Whether a version of a small chunk is on disk that must survive a crash.
    pub(super) fn has_durable_past(&self, name: &ChunkName, place: &Place) -> bool {
        self.segments.is_durable(place) || self.waiting.lock().contains_key(name)
    }

    /// Deletes the waiting records of a chunk that is a file now, and on disk if it must be.
    pub(super) fn retire_for_file(&self, name: &ChunkName, old: &Place) -> Result<()> {
        let waiting = self.waiting.lock().remove(name).unwrap_or_default();
        waiting
            .iter()
            .try_for_each(|place| self.segments.kill(place))?;
        self.segments.kill(old)
    }

    /// Deletes the waiting records whose successors are on disk.
    pub(super) fn release_waiting(&self) -> Result<()> {
        let mut due = Vec::new();
        {
            let index = self.index.read();
            self.waiting
                .lock()
                .retain(|name, places| match index.get(name) {
                    Some(Entry::Small(place)) if !self.segments.is_durable(&place) => true,
                    _ => {
                        due.append(places);
                        false
                    }
                });
        }
        due.iter().try_for_each(|place| self.segments.kill(place))
    }
}

fn fetch_from(bytes: &[u8]) -> impl FnMut(Range<u64>, &mut Take<'_>) -> Result<()> + '_ {
    |range, f| f(&bytes[range.start as usize..range.end as usize])
}

/// The bytes of a small grid chunk after cells were written: as long as necessary, with fill where nothing was written.
pub(super) fn written(
    form: &ChunkForm,
    old: &[u8],
    extent: &Extent<'_>,
    data: &[IoSlice<'_>],
) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(old.len().max(extent.end as usize));
    bytes.extend_from_slice(old);
    if (bytes.len() as u64) < extent.end {
        bytes.resize(extent.end as usize, 0);
        paint(form, old.len() as u64, &mut bytes[old.len()..]);
    }
    let mut packed = 0;
    extent.runs(&mut |at, len| {
        pieces::copy(data, packed, &mut bytes[at as usize..(at + len) as usize]);
        packed += len;
        Ok(())
    })?;
    Ok(bytes)
}

/// Resets cells of a small grid chunk to fill.
pub(super) fn cleared(form: &ChunkForm, bytes: &mut [u8], extent: &Extent<'_>) -> Result<()> {
    extent.runs(&mut |at, len| {
        let end = (at + len).min(bytes.len() as u64);
        if at < end {
            paint(form, at, &mut bytes[at as usize..end as usize]);
        }
        Ok(())
    })
}
