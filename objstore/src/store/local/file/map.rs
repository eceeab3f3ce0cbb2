//! Looking at a chunk's file through memory: the one file here with `unsafe`.
//!
//! A page of a mapping that the disk cannot give, or that lies behind the end of the file, kills the
//! process when it is touched. So every look goes through [`Map::look`], which first asks the kernel
//! to bring the pages in and reports what it says (or whether they are there already), but for bytes that only the kernel
//! copies ([`Map::summed`]), which tells what is not there; and nobody cuts the file or punches holes into
//! it while a look lasts, since looks happen under the chunk's lock, shared, and cuts under the same
//! lock, exclusive. (Kernels before 5.14 cannot be asked; there the lock alone has to do.)
//!
//! Pages that were looked at count as memory of this process, though they are the page cache's. They
//! are let go, oldest mapping first, when all mappings together hold more than [`RESIDENT_MAX`]: a
//! process that serves large files must not look as large as they are. Those of files that another
//! process lends keep theirs: loans are bounded and short (`client/same_host`), and what is read again would
//! have to be mapped again (docs/decisions/same-host.md).

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use parking_lot::Mutex;

/// Mappings begin at multiples of this in the file, so that no huge page of the page cache is cut and mapped in small ones.
const HUGE: u64 = 2 << 20;

/// Bytes that mappings of a store's own files may hold in memory, in the whole process.
const RESIDENT_MAX: u64 = 128 << 20;

/// Bytes of a page of memory, as far as looks go by pages.
const PAGE: usize = 4096;

/// The mappings that hold pages, oldest first.
static HOLDING: Mutex<VecDeque<Weak<Map>>> = Mutex::new(VecDeque::new());
/// What they hold, counted high: a page that is looked at twice counts twice until it is let go.
static HELD: AtomicU64 = AtomicU64::new(0);

/// A stretch of a file, readable.
#[derive(Debug)]
pub(super) struct Map {
    raw: MmapRaw,
    /// Where in the file the mapping begins.
    begins: u64,
    /// What is mapped in front of the stretch.
    skip: usize,
    /// Whether the file is this process's user's: of those of others the kernel may say that all is in memory.
    own: bool,
    /// Whether it keeps its pages as long as it lives.
    keeps: bool,
    /// Bytes looked at since the pages were last let go, at most the length.
    held: AtomicU64,
    this: Weak<Map>,
}

/// What is looked at, in the mapping: the bytes, and all of the pages that they lie in.
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
    /// Maps `len` bytes from `at` on, a multiple of the page size. The file may be shorter. One that `keeps` its
    /// pages is not let go of.
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

    /// Notes that a look brings `len` bytes in, and lets go of what is too much.
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
                // Those that are gone hold nothing and are never let go of.
                holding.retain(|map| map.strong_count() > 0);
            }
            holding.push_back(self.this.clone());
        }
        if total > RESIDENT_MAX {
            let_go();
        }
    }

    /// Lets the pages go; a look that is under way gets them back from the page cache as it goes on.
    fn release(&self) {
        let held = self.held.swap(0, Ordering::Relaxed);
        HELD.fetch_sub(held, Ordering::Relaxed);
        // SAFETY: a shared, read-only mapping of a file loses no data by this advice; pages are faulted
        // in again from the file, which is kept long enough by the lock that a looker holds.
        if let Err(error) = unsafe { self.raw.unchecked_advise(UncheckedAdvice::DontNeed) } {
            tracing::debug!(%error, "pages of a mapping stay in memory");
        }
    }

    /// Where a range of the stretch lies in the mapping; none if it goes beyond.
    fn within(&self, range: Range<usize>) -> Option<Range<usize>> {
        let from = range.start.checked_add(self.skip)?;
        let upto = range.end.checked_add(self.skip)?;
        (from <= upto && upto <= self.raw.len()).then_some(from..upto)
    }

    /// Whether pages of the mapping are in memory, from the beginning of one on; false where that is not known.
    /// Beyond the end of the file it may be true. To bring pages in costs 120 to 200 ns each, be they mapped or not; to
    /// see that they are there and mapped costs 5 to 8, and to see and map them by touching 90 to 110.
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
            // SAFETY: the range lies in the mapping, which lives as long as `self`, and begins at a page; a byte is
            // written for each page of it, of which there are at most as many as the array has.
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

    /// The bytes of a range, after the kernel has brought them in, or said that they are there. `file` is that of the
    /// mapping. The caller holds the lock that
    /// keeps the file at least that long, for as long as it uses the bytes.
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

    /// As [`Map::look`], without waiting for a disk: nothing where the kernel does not say that all is in memory.
    pub(super) fn look_at_once(
        &self,
        file: &File,
        range: Range<usize>,
    ) -> io::Result<Option<&[u8]>> {
        let looked = self.pages(range)?;
        let there = self.is_all_in(looked.pages.clone()) && self.is_within(file, &looked)?;
        Ok(there.then(|| self.bytes(looked)))
    }

    /// The bytes of a range that was looked at lately, without asking again: for the kernel to copy them, which says so
    /// where somebody has cut the file meanwhile. The caller holds the lock as for [`Map::look`].
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

    /// Whether the file, as long as it is now, has all of the bytes. What a cut has left of a large folio stays in
    /// memory, though it may not be touched any more; and the rest of the page that the file ends in is zeros.
    fn is_within(&self, file: &File, Looked { bytes, .. }: &Looked) -> io::Result<bool> {
        Ok(bytes.is_empty() || self.begins + bytes.end as u64 <= file.metadata()?.len())
    }

    /// Bytes whose pages were brought in, or are there.
    fn bytes(&self, Looked { bytes, pages }: Looked) -> &[u8] {
        self.hold(pages.len() as u64);
        // SAFETY: the range lies in the mapping, which lives as long as `self`; its pages were just
        // brought in or found in memory, so they exist in the file, or were lately and only the kernel looks at them; and the file is neither cut nor written while the
        // bytes are used, since both happen under the chunk's lock held exclusively and the caller
        // holds it shared. Other processes stay out of the directory by its lock; one that was lent the file
        // to fill it has closed it before it became a chunk. A file that another store lends is of a sealed chunk,
        // which its store never cuts or punches either, but only takes the name off.
        unsafe { std::slice::from_raw_parts(self.raw.as_ptr().add(bytes.start), bytes.len()) }
    }
}

/// Lets mappings go, oldest first, until a quarter is free again.
fn let_go() {
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
    fn what_is_behind_the_end_is_an_error_and_no_signal() {
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
        // Inside a page that is there.
        assert!(map.look(&file, 4990..5001).is_err());
        assert_eq!(map.look_at_once(&file, 4990..5001).unwrap(), None);
    }

    /// A folio of many pages stays in memory whole when it is dirty and the file is cut inside it.
    #[test]
    fn what_a_cut_left_in_memory_is_an_error_and_no_signal() {
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
                let kept = block.start..keep + 300_000;
                assert_eq!(map.look(&file, kept.clone()).unwrap(), &bytes[kept]);
            }
        }
    }
}
