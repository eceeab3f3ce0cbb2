//! A full disk: `ENOSPC`, no partial writes, and the space can be used again after a removal. The data is on a
//! small tmpfs.

use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use slabfs_tests::file::{self, errno, named};
use slabfs_tests::tool::{create, slabfs};

use slabfs_tests::{Area, Random, Up, mounts, needs_root, poll};

use crate::collate::{is_joined, noise};

/// A tmpfs that is unmounted when this is dropped.
struct Small<'a>(&'a Path);

impl Small<'_> {
    fn mount(at: &Path, size: &str) {
        std::fs::create_dir_all(at).expect("a directory");
        mount(
            Some("tmpfs"),
            at,
            Some("tmpfs"),
            MsFlags::empty(),
            Some(size),
        )
        .expect("a tmpfs");
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        mounts::detach(self.0);
    }
}

/// A mount whose data is on 48 MiB; `f` gets it, and everything is removed afterwards.
fn on_small(flags: &[&str], f: impl FnOnce(&mut Up)) {
    // Dropped from the last to the first: the mount, the tmpfs with its data, the directory around that.
    let area = Area::new();
    let disk = area.at("d");
    Small::mount(&disk, "size=48M");
    let _small = Small(&disk);
    let mut up = Up::on(Area::new(), disk.clone(), flags);
    up.start_again();
    f(&mut up);
}

/// Writes until it is full; returns how much was written, and the error.
fn fill(path: &Path, block: &[u8]) -> (u64, Errno) {
    let handle = file::open_new(path);
    for i in 0_u64.. {
        match handle.write_at(block, i * block.len() as u64) {
            Ok(len) if len == block.len() => {}
            Ok(len) => {
                return (
                    i * block.len() as u64 + len as u64,
                    errno(file::close(handle)),
                );
            }
            Err(error) => {
                let _ = file::close(handle);
                return (i * block.len() as u64, errno::<()>(Err(error)));
            }
        }
        assert!(i * (block.len() as u64) < 200 << 20, "200 MiB on 48");
        if i % 16 == 15
            && let Err(error) = handle.sync_all()
        {
            return (i * block.len() as u64, errno::<()>(Err(error)));
        }
    }
    unreachable!("it does not end by itself");
}

#[test]
fn a_byte_object_fills_the_disk() {
    needs_root!();
    on_small(&["--dirty-limit", "8M"], |up| {
        let block = Random::new(81).bytes(1 << 20);
        file::write(&up.at("before"), &block);
        file::open(&up.at("before")).sync_all().expect("synced");
        let (taken, error) = fill(&up.at("large"), &block);
        assert_eq!(error, Errno::ENOSPC);
        assert!(taken > 20 << 20, "{taken} bytes were taken");
        assert!(
            file::read(&up.at("before")) == block,
            "what was there is there"
        );
        // The file can be read up to its size, and contains the written data or zeros.
        let bytes = file::read(&up.at("large"));
        assert_eq!(
            bytes.len() as u64,
            up.at("large").metadata().expect("metadata").len()
        );
        for (i, part) in bytes.chunks(4096).enumerate() {
            let at = i % 256 * 4096;
            assert!(
                part == &block[at..at + part.len()] || part.iter().all(|&b| b == 0),
                "block {i}"
            );
        }
        up.restart();
        assert!(file::read(&up.at("before")) == block);
        assert!(file::read(&up.at("large")) == bytes, "it stays as it was");
        std::fs::remove_file(up.at("large")).expect("unlinked");
        poll::until_true("space to come back", || {
            stored(&up.at("again"), &[1; 16 << 20]).is_ok()
        });
        assert_eq!(file::read(&up.at("again")), vec![1; 16 << 20]);
        assert!(
            up.log().contains("space"),
            "the log says what is wrong:\n{}",
            up.log()
        );
    });
}

#[test]
fn a_stream_of_rows_fills_the_disk() {
    needs_root!();
    on_small(&["--dirty-limit", "8M"], |up| {
        let object = up.at("array");
        create(&object, "100,1048576", "u1", &[]);
        file::write(&named(&object, "@[99]"), vec![7; 1 << 20]);
        let handle = file::open(&object);
        let block = Random::new(82).bytes(1 << 20);
        let failed = (0..99).find_map(|row| handle.write_all_at(&block, row << 20).err());
        let failed = failed
            .or_else(|| handle.sync_all().err())
            .expect("99 MiB on 48");
        assert_eq!(errno::<()>(Err(failed)), Errno::ENOSPC);
        let _ = file::close(handle);
        // Each row is complete or missing; the row from before is there.
        for row in 0..99 {
            let bytes = file::read(&named(&object, &format!("@[{row}]")));
            for (part, wanted) in bytes.chunks(4096).zip(block.chunks(4096)) {
                assert!(part == wanted || part.iter().all(|&b| b == 0), "row {row}");
            }
        }
        assert!(file::read(&named(&object, "@[99]")) == vec![7; 1 << 20]);
        std::fs::remove_file(&object).expect("unlinked");
        poll::until_true("space to come back", || {
            stored(&up.at("again"), &[1; 20 << 20]).is_ok()
        });
        up.restart();
        assert_eq!(file::read(&up.at("again")), vec![1; 20 << 20]);
    });
}

/// Creates a file, writes and closes it, and checks each step.
fn stored(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let handle = std::fs::File::create(path)?;
    handle.write_all_at(bytes, 0)?;
    file::close(handle)
}

/// Metadata needs space as well: creating fails with `ENOSPC`, and removing still works.
#[test]
fn creating_on_a_full_disk() {
    needs_root!();
    on_small(&[], |up| {
        for i in 0..20 {
            file::write(&up.at(format!("f{i}")), "small");
        }
        file::open(&up.at("f0")).sync_all().expect("synced");
        // Another process fills the disk to the last byte.
        let ballast = up.data().join("ballast");
        let filler = file::open_new(&ballast);
        let mut at = 0;
        for size in [1 << 20, 4096, 1] {
            while let Ok(len @ 1..) = filler.write_at(&vec![1; size], at) {
                at += len as u64;
            }
        }
        let mut errors = 0;
        for i in 0..2000 {
            match stored(&up.at(format!("new{i}")), &[5; 3000])
                .map_err(|error| error.raw_os_error())
            {
                Ok(()) => {}
                Err(number) => {
                    assert_eq!(number, Some(libc::ENOSPC));
                    errors += 1;
                }
            }
            if errors > 10 {
                break;
            }
        }
        assert!(errors > 10, "a full disk goes unnoticed");
        for i in 0..20 {
            assert_eq!(file::read(&up.at(format!("f{i}"))), b"small");
        }
        drop(filler);
        std::fs::remove_file(&ballast).expect("unlinked");
        poll::until_true("writing works again", || {
            stored(&up.at("after"), b"works").is_ok()
                && file::open(&up.at("after")).sync_all().is_ok()
        });
        up.restart();
        assert_eq!(file::read(&up.at("after")), b"works");
        assert_eq!(file::read(&up.at("f7")), b"small");
    });
}

/// Small writes that fail take neither memory nor change the size.
#[test]
fn writes_that_fail_take_nothing() {
    needs_root!();
    on_small(&["--dirty-limit", "8M"], |up| {
        let object = up.at("a");
        create(&object, "0,4096", "u1", &["--max-dims", "unlimited,4096"]);
        let handle = file::open(&object);
        let (mut row, mut failed, mut size) = (0_u64, 0, 0);
        while failed < 800 {
            match handle.write_at(&[7; 4096], row * 4096) {
                Ok(_) => {
                    assert!(row * 4096 < 120 << 20, "120 MiB on 48");
                    row += 1;
                }
                Err(error) => {
                    assert_eq!(errno::<()>(Err(error)), Errno::ENOSPC);
                    if failed == 0 {
                        size = handle.metadata().expect("metadata").len();
                    }
                    failed += 1;
                    // Another place each time, like a program that ignores errors.
                    row += 1;
                }
            }
        }
        assert!(
            handle.metadata().expect("metadata").len() <= size + (8 << 20),
            "failed writes grow the file"
        );
        let (_, most) = up.service().memory();
        assert!(most < 200 << 20, "{most} bytes resident");
        let _ = file::close(handle);
        let bytes = file::read(&object);
        assert!(
            bytes
                .chunks(4096)
                .all(|row| row.iter().all(|&b| b == row[0])),
            "a torn row"
        );
        std::fs::remove_file(&object).expect("unlinked");
        poll::until_true("space to come back", || {
            stored(&up.at("again"), &[1; 16 << 20]).is_ok()
        });
    });
}

/// Tiles that do not fit are no container, and nothing of it is left; the same command works when there is room.
#[test]
fn joined_tiles_fill_the_disk() {
    needs_root!();
    on_small(&[], |up| {
        let tiles = Area::new();
        let inputs = noise(tiles.path(), "64");
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let container = up.at("joined");
        let out = container.to_str().expect("text");
        let line = [&["collate", "-o", out], &inputs[..]].concat();
        let (_, error) = fill(&up.at("large"), &[7; 1 << 20]);
        assert_eq!(error, Errno::ENOSPC);
        slabfs(&line).fails(1, &["No space left"]);
        let left: Vec<_> = std::fs::read_dir(up.mnt()).expect("a directory").collect();
        assert_eq!(left.len(), 1, "{left:?}");
        std::fs::remove_file(up.at("large")).expect("unlinked");
        poll::until_true("space to come back", || {
            stored(&up.at("again"), &[1; 20 << 20]).is_ok()
        });
        std::fs::remove_file(up.at("again")).expect("unlinked");
        slabfs(&line).ok();
        is_joined(&container, tiles.path(), &inputs);
    });
}
