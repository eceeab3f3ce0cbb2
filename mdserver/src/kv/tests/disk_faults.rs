//! Tests with a disk that is full, or that fails to sync.

use super::super::disk::{Disk, RealDisk};
use super::*;
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

#[derive(Debug, Default)]
struct State {
    /// Bytes that may still be written to journal and checkpoint.
    room: Option<usize>,
    cannot_cut: bool,
    cannot_sync: bool,
    syncs: usize,
    free: Option<u64>,
}

/// A disk that fails on request.
#[derive(Debug, Default)]
struct Faulty(Mutex<State>);

impl Disk for Faulty {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        let Some(room) = &mut state.room else {
            return file.write_all_at(bytes, offset);
        };
        // Only bytes that extend the file take space.
        let old = file.metadata()?.len().saturating_sub(offset) as usize;
        let part = bytes.len().min(old + *room);
        *room -= part.saturating_sub(old);
        file.write_all_at(&bytes[..part], offset)?;
        if part < bytes.len() {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        } else {
            Ok(())
        }
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        if self.0.lock().cannot_cut {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        file.set_len(len)
    }

    fn reserve(&self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        RealDisk.reserve(file, offset, len)
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        let mut state = self.0.lock();
        state.syncs += 1;
        if state.cannot_sync {
            Err(io::Error::from_raw_os_error(libc::EIO))
        } else {
            file.sync_data()
        }
    }

    fn free(&self, dir: &Path) -> io::Result<u64> {
        match self.0.lock().free {
            Some(free) => Ok(free),
            None => RealDisk.free(dir),
        }
    }
}

fn faulty(dir: &Path) -> (LocalKv, Arc<Faulty>) {
    let disk = Arc::new(Faulty::default());
    let ground = Ground {
        disk: disk.clone(),
        ..Ground::real()
    };
    let options = KvOptions {
        journal_limit: 64 << 20,
        ..quiet()
    };
    (LocalKv::open_on(dir, options, ground).unwrap().0, disk)
}

fn one(key: &str) -> Batch {
    let mut batch = Batch::new();
    batch.put(key, "1");
    batch
}

#[test]
fn a_commit_on_a_full_disk_fails_and_leaves_nothing() {
    for room in 0..56 {
        for cannot_cut in [false, true] {
            let dir = TempDir::new().unwrap();
            let (kv, disk) = faulty(dir.path());
            put_all(&kv, 0..3);
            *disk.0.lock() = State {
                room: Some(room),
                cannot_cut,
                ..State::default()
            };
            assert!(matches!(
                kv.commit(one("key-9999")),
                Err(KvError::NoSpace { .. })
            ));
            assert_eq!(all(&kv), model_of(0..3));
            assert_eq!(all(&open(killed(dir.path()).path()).0), model_of(0..3));
            if cannot_cut {
                disk.0.lock().room = None;
                assert!(matches!(
                    kv.commit(one("key-9999")),
                    Err(KvError::Io { .. })
                ));
            }
            *disk.0.lock() = State::default();
            put_all(&kv, 3..5);
            assert_eq!(all(&open(killed(dir.path()).path()).0), model_of(0..5));
            assert_eq!(kv.sync().unwrap(), Lsn(5));
        }
    }
}

#[test]
fn a_checkpoint_on_a_full_disk_fails_and_leaves_the_old_one() {
    let dir = TempDir::new().unwrap();
    let (kv, disk) = faulty(dir.path());
    put_all(&kv, 0..20);
    disk.0.lock().room = Some(300);
    assert!(matches!(kv.checkpoint(), Err(KvError::NoSpace { .. })));
    assert_eq!(numbered(dir.path(), "checkpoint").unwrap(), [0]);
    assert!(!dir.path().join("checkpoint.tmp").exists());
    disk.0.lock().room = None;
    kv.checkpoint().unwrap();
    assert_eq!(numbered(dir.path(), "checkpoint").unwrap(), [0, 20]);
    assert_eq!(all(&kv), model_of(0..20));
}

#[test]
fn the_index_is_spared_a_full_disk() {
    let dir = TempDir::new().unwrap();
    let (kv, disk) = faulty(dir.path());
    disk.0.lock().free = Some(1 << 20);
    put_all(&kv, 0..20);
    assert!(matches!(kv.checkpoint(), Err(KvError::NoSpace { .. })));
    assert_eq!(all(&kv), model_of(0..20));
    disk.0.lock().free = None;
    kv.checkpoint().unwrap();
    assert_eq!(all(&kv), model_of(0..20));
}

#[test]
fn a_failed_sync_is_never_forgotten() {
    let dir = TempDir::new().unwrap();
    let (kv, disk) = faulty(dir.path());
    put_all(&kv, 0..3);
    assert_eq!(kv.sync().unwrap(), Lsn(3));
    put_all(&kv, 3..5);
    disk.0.lock().cannot_sync = true;
    let error = std::thread::scope(|scope| {
        let waits = scope.spawn(|| kv.wait_for_sync_failure());
        let error = kv.sync().unwrap_err();
        let waited = waits.join().unwrap().expect("the failure");
        assert_eq!(waited.to_string(), error.to_string());
        error
    });
    assert!(
        matches!(error, KvError::Poisoned { .. }) && error.to_string().contains("restart"),
        "{error}"
    );
    disk.0.lock().cannot_sync = false;
    assert!(matches!(kv.sync(), Err(KvError::Poisoned { .. })));
    assert!(matches!(kv.commit(one("a")), Err(KvError::Poisoned { .. })));
    assert!(matches!(kv.checkpoint(), Err(KvError::Poisoned { .. })));
    assert_eq!(kv.synced(), Lsn(3));
    assert_eq!(all(&kv), model_of(0..5));
    kv.close().unwrap_err();
    assert!(kv.wait_for_sync_failure().is_some());
    let (kv, _) = open(dir.path());
    assert_eq!(all(&kv), model_of(0..5));
    kv.close().unwrap();
    assert!(kv.wait_for_sync_failure().is_none());
}

#[test]
fn syncs_at_the_same_time_share_the_disk() {
    let dir = TempDir::new().unwrap();
    let (kv, disk) = faulty(dir.path());
    let before = disk.0.lock().syncs;
    std::thread::scope(|scope| {
        for writer in 0..16 {
            let kv = &kv;
            scope.spawn(move || {
                for round in 0..20 {
                    let lsn = kv.commit(one(&format!("{writer}-{round}"))).unwrap();
                    assert!(kv.sync().unwrap() >= lsn);
                }
            });
        }
    });
    let syncs = disk.0.lock().syncs - before;
    assert!(syncs < 320, "{syncs} syncs for 320 commits");
    kv.sync().unwrap();
    kv.sync().unwrap();
    assert!(disk.0.lock().syncs - before <= syncs + 1);
}

#[test]
fn a_store_on_a_full_disk_opens_and_reads() {
    for room in [0, 79, 80, 100, 150] {
        let dir = TempDir::new().unwrap();
        let (kv, _) = open(dir.path());
        put_all(&kv, 0..30);
        let copy = killed(dir.path());
        let disk = Arc::new(Faulty::default());
        disk.0.lock().room = Some(room);
        let ground = Ground {
            disk: disk.clone(),
            ..after_reboot()
        };
        let (kv, recovery) = LocalKv::open_on(copy.path(), quiet(), ground).unwrap();
        assert_eq!(all(&kv), model_of(0..30), "{recovery}");
        let mut batch = one("key-9999");
        batch.put("long", vec![0; 200]);
        assert!(matches!(kv.commit(batch), Err(KvError::NoSpace { .. })));
        disk.0.lock().room = None;
        put_all(&kv, 30..40);
        assert_eq!(kv.sync().unwrap(), Lsn(40));
        let again = killed(copy.path());
        drop(kv);
        for dir in [copy.path(), again.path()] {
            let (kv, recovery) = open(dir);
            assert_eq!(all(&kv), model_of(0..40), "{recovery}");
            assert!(
                recovery.losses.is_empty() && recovery.healed.is_empty(),
                "{recovery}"
            );
        }
    }
}
