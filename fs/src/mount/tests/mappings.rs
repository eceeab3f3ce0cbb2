//! Tests of mapped files, also while the object is written through another inode.

use std::fs::{self, File, OpenOptions};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MsFlags, ProtFlags, mmap, msync, munmap};
use nix::unistd::{Whence, lseek};

use super::stage::{BOTH, Stage};
use super::xattr;

/// A shared, writable mapping of an entire file.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
    _file: File,
}

impl Mapping {
    fn of(path: &Path) -> Mapping {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let len = file.metadata().unwrap().len() as usize;
        // SAFETY: a new mapping at an address of the kernel's choice. Other code writes the file too, so it is read
        // and written only through volatile accesses below.
        let start = unsafe {
            mmap(
                None,
                NonZeroUsize::new(len).unwrap(),
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
                &file,
                0,
            )
        }
        .unwrap()
        .cast();
        Mapping {
            start,
            len,
            _file: file,
        }
    }

    fn get(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: within the mapping.
        unsafe { self.start.add(at).read_volatile() }
    }

    fn set(&self, at: usize, byte: u8) {
        assert!(at < self.len);
        // SAFETY: within the mapping, which is writable.
        unsafe { self.start.add(at).write_volatile(byte) }
    }

    fn sync(&self) {
        // SAFETY: exactly the range of the mapping.
        unsafe { msync(self.start.cast(), self.len, MsFlags::MS_SYNC) }.unwrap();
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: no reference into the mapping exists.
        unsafe { munmap(self.start.cast(), self.len) }.unwrap();
    }
}

#[test]
fn a_mapping_is_coherent_with_the_file() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        let path = stage.path("file");
        fs::write(&path, vec![1; 10_000]).unwrap();
        let mapping = Mapping::of(&path);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        assert_eq!(mapping.get(5000), 1);
        mapping.set(5000, 2);
        let mut byte = [0];
        file.read_exact_at(&mut byte, 5000).unwrap();
        assert_eq!(byte, [2], "{services:?}: a read sees dirty mapped bytes");
        file.write_all_at(&[3], 5001).unwrap();
        assert_eq!((mapping.get(5000), mapping.get(5001)), (2, 3));
        mapping.set(9999, 4);
        mapping.sync();
        drop(mapping);
        let bytes = fs::read(&path).unwrap();
        assert_eq!((bytes[5000], bytes[5001], bytes[9999]), (2, 3, 4));
    }
}

#[test]
fn a_dirty_page_of_one_inode_does_not_undo_a_write_to_another() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        let path = stage.path("array");
        fs::write(&path, vec![1; 64 * 1024]).unwrap();
        xattr::set(&path, "user.slabfs.dims", "64,1024").unwrap();
        let mapping = Mapping::of(&path);
        assert_eq!(mapping.get(0), 1);
        // Row 1, in the same page as row 0, which is dirty in the kernel.
        mapping.set(0, 9);
        let selection = stage.path("array@[1]");
        fs::write(&selection, vec![7; 1024]).unwrap();
        assert_eq!(
            mapping.get(1024),
            7,
            "{services:?}: the mapping sees the write"
        );
        assert_eq!(mapping.get(0), 9, "and retains its own");
        mapping.set(2048, 8);
        mapping.sync();
        assert_eq!(fs::read(&selection).unwrap(), vec![7; 1024], "{services:?}");
        assert_eq!(fs::read(stage.path("array@[0,0]")).unwrap(), [9]);
        assert_eq!(fs::read(stage.path("array@[2,0]")).unwrap(), [8]);
        // The other way: the selection is mapped, the plain file is written.
        let row = Mapping::of(&selection);
        assert_eq!(row.get(3), 7);
        row.set(4, 5);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[6], 1024 + 3).unwrap();
        assert_eq!((row.get(3), row.get(4)), (6, 5), "{services:?}");
        row.sync();
        drop(row);
        drop(mapping);
        assert_eq!(fs::read(stage.path("array@[1,2:6]")).unwrap(), [7, 6, 5, 7]);
    }
}

#[test]
fn a_mapping_survives_new_dims() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        let path = stage.path("array");
        fs::write(&path, vec![1; 8192]).unwrap();
        xattr::set(&path, "user.slabfs.dims", "8192").unwrap();
        let mapping = Mapping::of(&path);
        mapping.set(0, 2);
        xattr::set(&path, "user.slabfs.dims", "8192").unwrap();
        xattr::set(&path, "user.slabfs.fill", "5").unwrap();
        assert_eq!((mapping.get(0), mapping.get(1)), (2, 1), "{services:?}");
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(0)
            .unwrap();
        drop(mapping);
        assert_eq!(fs::read(&path).unwrap(), vec![5; 8192]);
    }
}

#[test]
fn dirty_mapped_pages_are_data_for_lseek() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        let path = stage.path("sparse");
        let file = File::create_new(&path).unwrap();
        file.write_all_at(b"front", 0).unwrap();
        file.set_len(64 << 20).unwrap();
        let seeks = File::open(&path).unwrap();
        let mapping = Mapping::of(&path);
        mapping.set(40 << 20, 1);
        let found = lseek(&seeks, 30 << 20, Whence::SeekData).unwrap();
        assert!(
            (30 << 20..=40 << 20).contains(&found),
            "{services:?}: {found}"
        );
        mapping.set(50 << 20, 2);
        let hole = lseek(&seeks, 50 << 20, Whence::SeekHole).unwrap();
        assert!(hole > 50 << 20, "{services:?}: {hole}");
        assert_eq!(mapping.get(40 << 20), 1);
    }
}
