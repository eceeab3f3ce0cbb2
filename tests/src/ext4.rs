//! An ext4 to compare with: a test that fails there need not succeed on slabfs.
//!
//! It is in a file of the test's area, on a loop device, which root can use on most machines and in few
//! containers.

use std::path::{Path, PathBuf};

use crate::{Area, mounts, tool};

/// Bytes of the file; it is sparse.
const SIZE: u64 = 6 << 30;

/// A mounted, empty ext4, removed when dropped.
#[derive(Debug)]
pub struct Ext4 {
    mnt: PathBuf,
    _area: Area,
}

impl Ext4 {
    /// Creates and mounts one; an error says why that is not possible.
    ///
    /// # Panics If `mkfs.ext4` fails.
    #[track_caller]
    pub fn mount() -> Result<Ext4, String> {
        let area = Area::new();
        let image = area.write("ext4.image", "");
        let file = std::fs::File::options().write(true).open(&image);
        file.and_then(|file| file.set_len(SIZE))
            .expect("a sparse file");
        let mnt = area.mkdir("m");
        let ext4 = Ext4 {
            mnt: mnt.clone(),
            _area: area,
        };
        let path = image.display().to_string();
        // Defer all writes that can be deferred.
        let lazy = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
        tool::program("mkfs.ext4", ["-q", "-F", "-E", lazy, &path]).ok();
        // As strict about set-id bits and devices as a mount of slabfs; times as by default.
        let options = "loop,nosuid,nodev,relatime";
        let mounted = tool::program("mount", ["-o", options, &path, &mnt.display().to_string()]);
        if mounted.status != 0 {
            return Err(mounted.report());
        }
        Ok(ext4)
    }

    /// The mount point.
    pub fn mnt(&self) -> &Path {
        &self.mnt
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        // The loop device is released with its mount.
        mounts::detach(&self.mnt);
    }
}
