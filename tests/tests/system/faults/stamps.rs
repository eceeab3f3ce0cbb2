//! Programs that write regions of objects and sync them, and know the allowed contents after any fault.
//!
//! An object is cut into regions, and a region is always written by one `write`: with one number, its *stamp*,
//! repeated. Stamps increase over all programs, so that a region shows which write it is from. A region with
//! two stamps is torn.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::errno::Errno;
use slabfs_tests::file;
use slabfs_tests::tool::create;
use slabfs_tests::{Cluster, Random};

/// Regions of an object, and the bytes of one: some rows, and never more than a chunk of a grid has.
pub(crate) const REGIONS: usize = 16;
pub(crate) const REGION: usize = 8192;
/// Writes between two syncs.
const BETWEEN_SYNCS: u64 = 6;

/// The objects: each kind of layout.
pub(crate) const NAMES: [&str; 3] = ["bytes", "aligned", "grid"];

static NEXT: AtomicU64 = AtomicU64::new(1);

fn next_stamp() -> u64 {
    NEXT.fetch_add(1, Ordering::SeqCst)
}

/// The known stamps of one object's region; 0 before the first.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Known {
    /// Of the last write that began.
    pub(crate) begun: u64,
    /// Of the last write that returned.
    pub(crate) written: u64,
    /// Of the last write that was synced.
    pub(crate) synced: u64,
    /// Writes up to this one may be lost, as an error reported.
    gone: u64,
}

/// A program that writes one object on one mount.
#[derive(Debug)]
pub(crate) struct Writer {
    file: File,
    known: Mutex<[Known; REGIONS]>,
    syncs: AtomicU64,
    /// How many errors reported a loss.
    losses: AtomicU64,
    /// The error that ended it.
    ended: Mutex<Option<std::io::Error>>,
}

/// Creates the objects on a mount; each region has a stamp and is synced.
#[track_caller]
pub(crate) fn prepare(cluster: &Cluster, mount: usize) -> Vec<Writer> {
    prepare_in(&cluster.mnt(mount))
}

/// The same in a directory.
#[track_caller]
pub(crate) fn prepare_in(dir: &Path) -> Vec<Writer> {
    let writer = |name: &&str| {
        let path = dir.join(name);
        match *name {
            "bytes" => drop(file::open_new(&path)),
            "aligned" => create(&path, "32,4096", "u1", &["--layout", "aligned"]),
            _ => create(&path, "32,4096", "u1", &["--layout", "grid:4,4096"]),
        }
        let writer = Writer::new(&path);
        for region in 0..REGIONS {
            writer.write(region).expect("written");
        }
        writer.sync().expect("synced");
        writer
    };
    NAMES.iter().map(writer).collect()
}

impl Writer {
    pub(crate) fn new(path: &Path) -> Writer {
        Writer {
            file: file::open(path),
            known: Mutex::default(),
            syncs: AtomicU64::new(0),
            losses: AtomicU64::new(0),
            ended: Mutex::default(),
        }
    }

    /// Writes random regions and syncs now and then, until `stop` or until something fails. With `forgives` it
    /// continues after an error that reports a loss.
    pub(crate) fn run(&self, seed: u64, stop: &AtomicBool, forgives: bool) {
        let mut random = Random::new(seed);
        while !stop.load(Ordering::SeqCst) {
            let writes = random.range(1, 2 * BETWEEN_SYNCS);
            let done = (0..writes)
                .try_for_each(|_| self.write(random.range(0, REGIONS as u64) as usize))
                .and_then(|()| self.sync());
            match done {
                Err(error)
                    if forgives
                        && Errno::from_raw(error.raw_os_error().unwrap_or(0)) == Errno::EIO =>
                {
                    self.losses.fetch_add(1, Ordering::SeqCst);
                    for known in self.known.lock().expect("the lock").iter_mut() {
                        known.gone = known.written;
                    }
                }
                Err(error) => {
                    *self.ended.lock().expect("the lock") = Some(error);
                    return;
                }
                Ok(()) => {}
            }
        }
    }

    pub(crate) fn write(&self, region: usize) -> std::io::Result<()> {
        let stamp = next_stamp();
        self.known.lock().expect("the lock")[region].begun = stamp;
        let bytes = stamp.to_le_bytes().repeat(REGION / 8);
        self.file.write_all_at(&bytes, (region * REGION) as u64)?;
        self.known.lock().expect("the lock")[region].written = stamp;
        Ok(())
    }

    pub(crate) fn sync(&self) -> std::io::Result<()> {
        let before = *self.known.lock().expect("the lock");
        self.file.sync_all()?;
        let mut known = self.known.lock().expect("the lock");
        for (known, before) in known.iter_mut().zip(before) {
            if before.written > before.gone {
                known.synced = before.written;
            }
        }
        self.syncs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) fn known(&self) -> [Known; REGIONS] {
        *self.known.lock().expect("the lock")
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::SeqCst)
    }

    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }

    /// The error that ended it, if any.
    pub(crate) fn ended(&self) -> Option<ErrorKind> {
        let ended = self.ended.lock().expect("the lock");
        ended.as_ref().map(std::io::Error::kind)
    }

    /// The stamps of all regions, each read by one `read`.
    #[track_caller]
    pub(crate) fn stamps(&self) -> [u64; REGIONS] {
        std::array::from_fn(|region| stamp_of(&self.file, region))
    }
}

/// The stamp of a region, read by one `read`.
#[track_caller]
pub(crate) fn stamp_of(file: &File, region: usize) -> u64 {
    try_stamp_of(file, region).expect("read")
}

/// The same.
///
/// # Errors
/// EIO; another one is not expected.
#[track_caller]
pub(crate) fn try_stamp_of(file: &File, region: usize) -> std::io::Result<u64> {
    let mut bytes = vec![0; REGION];
    let len = match file.read_at(&mut bytes, (region * REGION) as u64) {
        Err(error) if error.raw_os_error() == Some(libc::EIO) => return Err(error),
        read => read.expect("read"),
    };
    assert_eq!(len, REGION, "region {region}");
    let stamps: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let torn = stamps.iter().position(|&stamp| stamp != stamps[0]);
    assert!(
        torn.is_none(),
        "region {region} is torn at {:?}: {} and {:?}",
        torn.map(|at| at * 8),
        stamps[0],
        torn.map(|at| stamps[at])
    );
    Ok(stamps[0])
}
