//! Memory-maps a chunk's file for reading: the only file here with `unsafe`.
//!
//! Touching a mapped page that the disk cannot read, or that lies beyond the end of the file, kills the process with
//! `SIGBUS`. So every access goes through [`Map::look`], which first checks with `mincore` whether the pages are in
//! memory, or makes the kernel read them (`MADV_POPULATE_READ`) and returns its error. The exception is
//! [`Map::summed`], for bytes that only the kernel copies, with `EFAULT` for missing pages. The file is not truncated
//! or punched during an access: an access holds the chunk's lock shared, and truncation holds it exclusively. (Kernels
//! before 5.14 have no `MADV_POPULATE_READ`; there the lock alone must suffice.)
//!
//! Accessed pages count as resident memory of this process, although they belong to the page cache. They are unmapped,
//! oldest mapping first, when all mappings together hold more than [`RESIDENT_MAX`], so that a process that serves
//! large files does not appear as large as the files. Mappings of files handed out by another process keep their pages:
//! these files are few and held briefly (`client/same_host`), and rereading would fault the pages in again
//! (docs/decisions/18-same-host.md).

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use parking_lot::Mutex;

/// Mappings begin at file offsets that are multiples of this, so that huge pages of the page cache are not split into
/// small mappings.
const HUGE: u64 = 2 << 20;

/// Resident bytes that mappings of a store's own files may hold, in the entire process.
const RESIDENT_MAX: u64 = 128 << 20;

/// The page size assumed for accesses.
const PAGE: usize = 4096;

/// The mappings that hold pages, oldest first.
static HOLDING: Mutex<VecDeque<Weak<Map>>> = Mutex::new(VecDeque::new());
/// An upper bound of the bytes they hold: a page that is accessed twice counts twice until it is released.
static HELD: AtomicU64 = AtomicU64::new(0);

/// A read-only mapping of a range of a file.
#[derive(Debug)]
pub(super) struct Map {
    raw: MmapRaw,
    /// The file offset where the mapping begins.
    begins: u64,
    /// Bytes mapped in front of the range.
    skip: usize,
    /// Whether this process's user owns the file: for files of others, `mincore` may report all pages as resident.
    own: bool,
    /// Whether its pages stay mapped as long as the mapping exists.
    keeps: bool,
    /// Bytes accessed since the pages were last released, at most the length.
    held: AtomicU64,
    this: Weak<Map>,
}

/// A range of the mapping: the bytes, and the pages that contain them.
struct Looked {
    bytes: Range<usize>,
    pages: Range<usize>,
}

impl Drop for Map {
    fn drop(&mut self) {
        HELD.fetch_sub(*self.held.get_mut(), Ordering::Relaxed);
    }
}

impl Map {
    /// Maps `len` bytes from `at` on, a multiple of the page size. The file may be shorter. A mapping that `keeps` its
    /// pages is never released.
    pub(super) fn new(file: &File, at: u64, len: usize, keeps: bool) -> io::Result<Arc<Self>> {
        let skip = (at % HUGE) as usize;
        let raw = MmapOptions::new()
            .offset(at - skip as u64)
            .len(skip + len)
            .map_raw_read_only(file)?;
        let own = file.metadata()?.uid() == nix::unistd::geteuid().as_raw();
        Ok(Arc::new_cyclic(|this| Self {
            raw,
            begins: at - skip as u64,
            skip,
            own,
            keeps,
            held: AtomicU64::new(0),
            this: this.clone(),
        }))
    }

    /// Accounts for an access to `len` bytes, and releases mappings if there are too many.
    fn hold(&self, len: u64) {
        if self.keeps {
            return;
        }
        let most = self.raw.len() as u64;
        let mut before = self.held.load(Ordering::Relaxed);
        let added = loop {
            let after = most.min(before + len);
            match self.held.compare_exchange_weak(
                before,
                after,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break after - before,
                Err(now) => before = now,
            }
        };
        if added == 0 {
            return;
        }
        let total = HELD.fetch_add(added, Ordering::Relaxed) + added;
        if before == 0 {
            let mut holding = HOLDING.lock();
            if holding.len() >= 64 && holding.len().is_power_of_two() {
                // Remove dropped mappings, which hold no pages.
                holding.retain(|map| map.strong_count() > 0);
            }
            holding.push_back(self.this.clone());
        }
        if total > RESIDENT_MAX {
            release_oldest();
        }
    }

    /// Unmaps the pages; a concurrent access faults them in again from the page cache.
    fn release(&self) {
        let held = self.held.swap(0, Ordering::Relaxed);
        HELD.fetch_sub(held, Ordering::Relaxed);
        // SAFETY: a shared, read-only mapping of a file loses no data by this advice; pages are faulted in again from
        // the file, which the reader's lock protects from truncation.
        if let Err(error) = unsafe { self.raw.unchecked_advise(UncheckedAdvice::DontNeed) } {
            tracing::debug!(%error, "pages of a mapping stay in memory");
        }
    }

    /// Translates a range of the file range to the mapping; `None` if it exceeds it.
    fn within(&self, range: Range<usize>) -> Option<Range<usize>> {
        let from = range.start.checked_add(self.skip)?;
        let upto = range.end.checked_add(self.skip)?;
        (from <= upto && upto <= self.raw.len()).then_some(from..upto)
    }

    /// Whether all pages of a page-aligned range are in memory; false if unknown. May be true beyond the end of the
    /// file. Costs per page: populating 120 to 200 ns, mapped or not; checking pages that are resident and mapped 5 to
    /// 8 ns; checking them and then faulting them in 90 to 110 ns.
    fn is_all_in(
        &self,
        Range {
            start: from,
            end: upto,
        }: Range<usize>,
    ) -> bool {
        if !self.own {
            return false;
        }
        let mut there = [0u8; 256];
        (from..upto).step_by(PAGE * there.len()).all(|at| {
            let len = (upto - at).min(PAGE * there.len());
            // SAFETY: the range lies in the mapping, which is valid as long as `self`, and begins at a page; `mincore`
            // writes one byte for each page, of which there are at most as many as the array has.
            let asked = unsafe {
                libc::mincore(
                    self.raw.as_ptr().add(at).cast_mut().cast(),
                    len,
                    there.as_mut_ptr(),
                )
            };
            asked == 0 && there[..len.div_ceil(PAGE)].iter().all(|byte| byte & 1 == 1)
        })
    }

    /// The bytes of a range, once the kernel has read them or reported them resident. `file` is the mapped file. While
    /// it uses the bytes, the caller must hold the lock that protects the file from truncation.
    pub(super) fn look(&self, file: &File, range: Range<usize>) -> io::Result<&[u8]> {
        let looked = self.pages(range)?;
        let Looked { pages, .. } = &looked;
        if !pages.is_empty() && !self.is_all_in(pages.clone()) {
            match self
                .raw
                .advise_range(Advice::PopulateRead, pages.start, pages.len())
            {
                Ok(()) => {}
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
                Err(e) => return Err(e),
            }
        }
        match self.is_within(file, &looked)? {
            true => Ok(self.bytes(looked)),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Like [`Map::look`], without waiting for a disk: `None` unless the kernel reports all pages as resident.
    pub(super) fn look_at_once(
        &self,
        file: &File,
        range: Range<usize>,
    ) -> io::Result<Option<&[u8]>> {
        let looked = self.pages(range)?;
        let there = self.is_all_in(looked.pages.clone()) && self.is_within(file, &looked)?;
        Ok(there.then(|| self.bytes(looked)))
    }

    /// The bytes of a range that was accessed recently, without a new check. Only the kernel may copy them (it returns
    /// `EFAULT` if the file was truncated meanwhile). The caller holds the lock as for [`Map::look`].
    pub(super) fn summed(&self, range: Range<usize>) -> io::Result<&[u8]> {
        Ok(self.bytes(self.pages(range)?))
    }

    fn pages(&self, range: Range<usize>) -> io::Result<Looked> {
        let Some(bytes) = self.within(range) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let from = bytes.start / PAGE * PAGE;
        let upto = bytes.end.next_multiple_of(PAGE).min(self.raw.len());
        let pages = if bytes.is_empty() { 0..0 } else { from..upto };
        Ok(Looked { bytes, pages })
    }

    /// Whether the bytes lie within the present size of the file. After a truncation within a large folio, the rest of
    /// the folio stays in memory, although touching it is an error; and the rest of the file's last page is zeros.
    fn is_within(&self, file: &File, Looked { bytes, .. }: &Looked) -> io::Result<bool> {
        Ok(bytes.is_empty() || self.begins + bytes.end as u64 <= file.metadata()?.len())
    }

    /// Bytes whose pages were populated or are resident.
    fn bytes(&self, Looked { bytes, pages }: Looked) -> &[u8] {
        self.hold(pages.len() as u64);
        // SAFETY: the range lies in the mapping, which is valid as long as `self`. Its pages were just populated or
        // found resident, so they exist in the file; or that was recently so, and only the kernel reads them. The file
        // is neither truncated nor written while the bytes are used, since both need the chunk's lock exclusively and
        // the caller holds it shared. The directory's lock excludes other stores; a client that received the file to
        // fill it has closed it before it became a chunk. A file handed out by another process's store is that of a
        // sealed chunk, which that store never truncates or punches either, but only unlinks.
        unsafe { std::slice::from_raw_parts(self.raw.as_ptr().add(bytes.start), bytes.len()) }
    }
}

/// Releases mappings, oldest first, until a quarter of the limit is free again.
fn release_oldest() {
    while HELD.load(Ordering::Relaxed) > RESIDENT_MAX / 4 * 3 {
        let Some(oldest) = HOLDING.lock().pop_front() else {
            return;
        };
        if let Some(map) = oldest.upgrade() {
            map.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn reads_beyond_the_end_return_an_error_and_no_signal() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 5000]).unwrap();
        let map = Map::new(&file, 0, 1 << 20, false).unwrap();
        assert_eq!(map.look(&file, 4990..5000).unwrap(), [7; 10]);
        assert!(map.look(&file, 0..9000).is_err());
        assert!(map.look(&file, 0..(1 << 20) + 1).is_err());
        assert_eq!(map.look_at_once(&file, 0..3).unwrap(), Some(&[7; 3][..]));
        assert_eq!(map.look_at_once(&file, 0..9000).unwrap(), None);
        assert!(map.look_at_once(&file, 0..(1 << 20) + 1).is_err());
        file.set_len(100).unwrap();
        assert!(map.look(&file, 4990..5000).is_err());
        file.set_len(5000).unwrap();
        assert_eq!(map.look(&file, 4990..5000).unwrap(), [0; 10]);
        // Inside a page that is resident.
        assert!(map.look(&file, 4990..5001).is_err());
        assert_eq!(map.look_at_once(&file, 4990..5001).unwrap(), None);
    }

    /// A dirty folio of many pages stays in memory entirely when the file is truncated inside it.
    #[test]
    fn pages_left_in_memory_by_a_truncation_return_an_error_and_no_signal() {
        let file = tempfile::tempfile().unwrap();
        let map = Map::new(&file, 0, 4 << 20, true).unwrap();
        let bytes: Vec<u8> = (0..4u32 << 20).map(|at| (at % 251) as u8).collect();
        for keep in [0, 1 << 20] {
            let block = keep + (256 << 10)..keep + (320 << 10);
            for _ in 0..20 {
                file.set_len(0).unwrap();
                file.write_all_at(&bytes, 0).unwrap();
                assert_eq!(
                    map.look(&file, block.clone()).unwrap(),
                    &bytes[block.clone()]
                );
                file.set_len(keep as u64 + 300_000).unwrap();
                assert!(map.look(&file, block.clone()).is_err());
                let left = block.start..keep + 300_000;
                assert_eq!(map.look(&file, left.clone()).unwrap(), &bytes[left]);
            }
        }
    }
}
