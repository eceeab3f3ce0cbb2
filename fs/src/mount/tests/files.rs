//! Tests that byte objects behave as files.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};

use super::stage::{BOTH, Stage};
use super::xattr::errno;

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed)
        .collect()
}

#[test]
fn written_bytes_are_read_back() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        for len in [0, 1, 4095, 4096, 70_000, 3 << 20] {
            let path = stage.path(&format!("file{len}"));
            let bytes = pattern(len, 5);
            fs::write(&path, &bytes).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), len as u64);
            assert!(fs::read(&path).unwrap() == bytes, "{services:?} {len}");
            // Overwritten with fewer bytes.
            fs::write(&path, b"short").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"short");
        }
    }
}

#[test]
fn offsets_and_sizes_are_respected() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        let path = stage.path("file");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        file.write_all_at(b"world", 100_006).unwrap();
        file.write_all_at(b"hello ", 100_000).unwrap();
        let mut bytes = [0xee; 20];
        assert_eq!(file.read_at(&mut bytes, 99_997).unwrap(), 14);
        assert_eq!(&bytes[..14], b"\0\0\0hello world");
        assert_eq!(file.read_at(&mut bytes, 100_011).unwrap(), 0);
        file.set_len(100_005).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 100_005);
        file.set_len(200_000).unwrap();
        assert_eq!(file.read_at(&mut bytes, 100_000).unwrap(), 20);
        assert_eq!(&bytes, b"hello\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        file.sync_all().unwrap();
        let again = OpenOptions::new().write(true).create_new(true).open(&path);
        assert_eq!(errno(again), libc::EEXIST);
    }
}

#[test]
fn concurrent_appends_do_not_overlap() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        let path = stage.path("log");
        let open = || {
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(&path)
                .unwrap()
        };
        let threads: Vec<_> = (0..4u8)
            .map(|writer| {
                let mut file = open();
                std::thread::spawn(move || {
                    for _ in 0..50 {
                        file.write_all(&[b'a' + writer; 16]).unwrap();
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 4 * 50 * 16, "{services:?}");
        assert!(
            bytes
                .chunks(16)
                .all(|line| line.iter().all(|byte| *byte == line[0]))
        );
    }
}

#[test]
fn the_append_flag_can_change() {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        let path = stage.path("log");
        fs::write(&path, b"0123456789").unwrap();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND)).unwrap();
        file.write_all_at(b"ab", 0).unwrap();
        fcntl(&file, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
        file.seek(SeekFrom::Start(3)).unwrap();
        file.write_all(b"x").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"012x456789ab", "{services:?}");
    }
}

#[test]
fn synchronous_appends_are_written() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .custom_flags(libc::O_DSYNC)
            .open(stage.path("log"))
            .unwrap();
        for _ in 0..5 {
            file.write_all(b"line").unwrap();
        }
        assert_eq!(
            fs::read(stage.path("log")).unwrap(),
            b"linelinelinelineline"
        );
    }
}

#[test]
fn names_are_moved_and_removed() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        fs::create_dir_all(stage.path("a/b")).unwrap();
        fs::write(stage.path("a/one"), "1").unwrap();
        fs::write(stage.path("a/two"), "2").unwrap();
        fs::rename(stage.path("a/one"), stage.path("a/b/uno")).unwrap();
        fs::rename(stage.path("a/two"), stage.path("a/b/uno")).unwrap();
        assert_eq!(fs::read(stage.path("a/b/uno")).unwrap(), b"2");
        assert!(!stage.path("a/one").exists());
        fs::hard_link(stage.path("a/b/uno"), stage.path("link")).unwrap();
        assert_eq!(fs::metadata(stage.path("link")).unwrap().nlink(), 2);
        symlink("a/b/uno", stage.path("sym")).unwrap();
        assert_eq!(fs::read(stage.path("sym")).unwrap(), b"2");
        assert_eq!(errno(fs::remove_dir(stage.path("a"))), libc::ENOTEMPTY);
        let mut file = File::open(stage.path("link")).unwrap();
        fs::remove_file(stage.path("link")).unwrap();
        fs::remove_file(stage.path("a/b/uno")).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "2", "an unlinked file exists while it is open");
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        fs::remove_dir_all(stage.path("a")).unwrap();
        assert_eq!(errno(fs::metadata(stage.path("a"))), libc::ENOENT);
    }
}

#[test]
fn listed_names_can_be_opened() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        let mut names: BTreeSet<String> = (0..600).map(|i| format!("file-{i}")).collect();
        names.extend(["a@@[b".to_string(), "plain@host".to_string()]);
        for name in &names {
            fs::write(stage.path(name), name).unwrap();
        }
        let listed: BTreeSet<String> = fs::read_dir(stage.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(listed, names, "{services:?}");
        for name in &listed {
            assert_eq!(fs::read_to_string(stage.path(name)).unwrap(), *name);
        }
        // Removing entries during a listing skips none.
        for entry in fs::read_dir(stage.path("")).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        assert_eq!(fs::read_dir(stage.path("")).unwrap().count(), 0);
    }
}

#[test]
fn attributes_are_stored() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        let path = stage.path("file");
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4751);
        let time = std::time::UNIX_EPOCH - std::time::Duration::from_millis(1500);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(time).unwrap();
        let data = fs::metadata(&path).unwrap();
        assert_eq!(data.modified().unwrap(), time);
        assert_eq!((data.mtime(), data.mtime_nsec()), (-2, 500_000_000));
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o640)
            .open(stage.path("made"))
            .unwrap();
        assert_eq!(made.metadata().unwrap().mode() & 0o777, 0o640);
    }
}
