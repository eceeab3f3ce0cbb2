//! Tests of a load of a dump that is interrupted by a kill.

use super::super::Source;
use super::super::disk::{Disk, RealDisk};
use super::*;
use parking_lot::Mutex;
use std::fs::File;
use std::io;

/// Copies the directory before each system call, as a kill would leave it.
#[derive(Debug)]
struct Watching {
    dir: PathBuf,
    left: Mutex<Vec<TempDir>>,
}

impl Watching {
    fn look(&self) {
        self.left.lock().push(killed(&self.dir));
    }
}

impl Disk for Watching {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.look();
        // And in the middle of the write.
        RealDisk.write_at(file, &bytes[..bytes.len() / 2], offset)?;
        self.look();
        RealDisk.write_at(file, bytes, offset)
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        self.look();
        RealDisk.truncate(file, len)
    }

    fn reserve(&self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        self.look();
        RealDisk.reserve(file, offset, len)
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        self.look();
        RealDisk.sync_data(file)
    }

    fn free(&self, dir: &Path) -> io::Result<u64> {
        RealDisk.free(dir)
    }
}

/// A checkpoint of some keys.
fn dump_in(dir: &Path) -> PathBuf {
    let (kv, _) = open(dir);
    put_all(&kv, 0..200);
    kv.checkpoint().unwrap();
    let newest = *numbered(dir, "checkpoint").unwrap().last().unwrap();
    dir.join(super::super::disk::checkpoint_name(newest))
}

fn loaded(source: &Source, dir: &Path, ground: &Ground) -> Result<u64, KvError> {
    source.load_on(dir, BTreeMap::new(), &|_, value| value, ground)
}

#[test]
fn a_load_that_was_killed_at_any_step_does_not_start() {
    let old = TempDir::new().unwrap();
    let source = Source::open(&dump_in(old.path())).unwrap();
    let dir = TempDir::new().unwrap();
    let disk = Arc::new(Watching {
        dir: dir.path().to_owned(),
        left: Mutex::default(),
    });
    let ground = Ground {
        disk: disk.clone(),
        ..Ground::real()
    };
    assert_eq!(loaded(&source, dir.path(), &ground).unwrap(), 200);
    assert_eq!(all(&open(killed(dir.path()).path()).0), model_of(0..200));
    let left = std::mem::take(&mut *disk.left.lock());
    assert!(left.len() > 5, "{}", left.len());
    for (step, left) in left.iter().enumerate() {
        let error = LocalKv::open(left.path(), quiet()).map(|_| ()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("was not loaded to its end") && text.contains("again"),
            "after step {step}: {text}"
        );
        // A second load succeeds.
        assert_eq!(loaded(&source, left.path(), &Ground::real()).unwrap(), 200);
        assert_eq!(all(&open(left.path()).0), model_of(0..200));
    }
}

#[test]
fn a_repeated_load_removes_only_its_own_files() {
    let old = TempDir::new().unwrap();
    let source = Source::open(&dump_in(old.path())).unwrap();
    let dir = TempDir::new().unwrap();
    loaded(&source, dir.path(), &Ground::real()).unwrap();
    let refused = |dir: &Path| {
        let error = loaded(&source, dir, &Ground::real()).unwrap_err();
        assert!(error.to_string().contains("not empty"), "{error}");
    };
    refused(dir.path());
    put_all(&open(dir.path()).0, 200..210);
    refused(dir.path());
    assert_eq!(all(&open(dir.path()).0), model_of(0..210));
}
