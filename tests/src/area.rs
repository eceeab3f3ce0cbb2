//! A temporary directory for one test.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A directory with a short path (sockets in it must not exceed 107 bytes), removed when dropped.
#[derive(Debug)]
pub struct Area {
    dir: TempDir,
}

impl Area {
    /// Creates an empty one, in `$SLABFS_TEST_DIR` or `/tmp`.
    ///
    /// # Panics If it cannot be created.
    pub fn new() -> Area {
        let parent = std::env::var_os("SLABFS_TEST_DIR")
            .map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
        let dir = tempfile::Builder::new()
            .prefix("sfs")
            .tempdir_in(&parent)
            .expect("a temporary directory");
        // Other users need access to a mount in it.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open).expect("opening the directory");
        Area { dir }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A path in it.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A new directory in it.
    ///
    /// # Panics If it cannot be created.
    pub fn mkdir(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        std::fs::create_dir_all(&path).expect("a directory");
        path
    }

    /// A new file in it.
    ///
    /// # Panics If it cannot be written.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    }
}

impl Default for Area {
    fn default() -> Area {
        Area::new()
    }
}
