//! Looking at a chunk's file through memory: the one file here with `unsafe`.
//!
//! A page of a mapping that the disk cannot give, or that lies behind the end of the file, kills the
//! process when it is touched. So every look goes through [`Map::look`], which first asks the kernel
//! to bring the pages in and reports what it says; and nobody cuts the file or punches holes into
//! it while a look lasts, since looks happen under the chunk's lock, shared, and cuts under the same
//! lock, exclusive. (Kernels before 5.14 cannot be asked; there the lock alone has to do.)

use std::fs::File;
use std::io;
use std::ops::Range;

use memmap2::{Advice, MmapOptions, MmapRaw};

/// A stretch of a file, readable.
#[derive(Debug)]
pub(super) struct Map(MmapRaw);

impl Map {
    /// Maps `len` bytes from `at` on, a multiple of the page size. The file may be shorter.
    pub(super) fn new(file: &File, at: u64, len: usize) -> io::Result<Self> {
        MmapOptions::new().offset(at).len(len).map_raw_read_only(file).map(Self)
    }

    /// The bytes of a range, after the kernel has brought them in. The caller holds the lock that
    /// keeps the file at least that long, for as long as it uses the bytes.
    pub(super) fn look(&self, range: Range<usize>) -> io::Result<&[u8]> {
        if range.start > range.end || range.end > self.0.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if range.is_empty() {
            return Ok(&[]);
        }
        let page = 4096;
        let from = range.start / page * page;
        let upto = range.end.next_multiple_of(page).min(self.0.len());
        match self.0.advise_range(Advice::PopulateRead, from, upto - from) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
            Err(e) => return Err(e),
        }
        // SAFETY: the range lies in the mapping, which lives as long as `self`; its pages were just
        // brought in, so they exist in the file; and the file is neither cut nor written while the
        // bytes are used, since both happen under the chunk's lock held exclusively and the caller
        // holds it shared. Other processes stay out of the directory by its lock.
        Ok(unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(range.start), range.end - range.start) })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_is_behind_the_end_is_an_error_and_no_signal() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 5000]).unwrap();
        let map = Map::new(&file, 0, 1 << 20).unwrap();
        assert_eq!(map.look(4990..5000).unwrap(), [7; 10]);
        assert!(map.look(0..9000).is_err());
        assert!(map.look(0..(1 << 20) + 1).is_err());
        file.set_len(100).unwrap();
        assert!(map.look(4990..5000).is_err());
        file.set_len(5000).unwrap();
        assert_eq!(map.look(4990..5000).unwrap(), [0; 10]);
    }
}
