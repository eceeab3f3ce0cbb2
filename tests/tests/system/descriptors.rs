//! Open files: flags, vectors, locks, copies in the kernel, many files at once.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, copy_file_range};
use nix::sys::uio::{preadv, pwritev};
use slabfs_tests::array::same;
use slabfs_tests::file::{self, errno, named};
use slabfs_tests::tool::{create, program};
use slabfs_tests::{Random, Up, inputs, needs_mount};

#[test]
fn flags() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("f");
    file::write(&path, vec![1; 20_000]);
    let with = |flags: i32| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(&path)
    };
    for flags in [
        libc::O_DIRECT,
        libc::O_SYNC,
        libc::O_DSYNC,
        libc::O_NOATIME,
        libc::O_NONBLOCK,
        libc::O_DIRECT | libc::O_SYNC,
    ] {
        let handle = with(flags).unwrap_or_else(|error| panic!("{flags:#o}: {error}"));
        // Aligned, as O_DIRECT of a disk requires; any alignment is accepted here.
        handle
            .write_all_at(&[2; 4096], 4096)
            .unwrap_or_else(|error| panic!("{flags:#o}: {error}"));
        handle
            .write_all_at(&[3; 5], 8191)
            .unwrap_or_else(|error| panic!("{flags:#o}: {error}"));
        let mut seen = [0; 7];
        handle
            .read_exact_at(&mut seen, 8190)
            .unwrap_or_else(|error| panic!("{flags:#o}: {error}"));
        assert_eq!(seen, [2, 3, 3, 3, 3, 3, 1], "{flags:#o}");
        handle.write_all_at(&[1; 5], 8192).expect("put back");
    }
    let path_only = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(&path)
        .expect("O_PATH");
    assert_eq!(path_only.metadata().expect("metadata").len(), 20_000);
    let truncated = with(libc::O_TRUNC).expect("O_TRUNC");
    assert_eq!(truncated.metadata().expect("metadata").len(), 0);
    // O_TMPFILE is not supported; programs fall back.
    let unnamed = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(up.mnt());
    assert_eq!(errno(unnamed), Errno::EOPNOTSUPP);
}

#[test]
fn vectors() {
    needs_mount!();
    let up = Up::start();
    let handle = file::open_new(&up.at("f"));
    let parts: Vec<Vec<u8>> = (0..40_u8).map(|i| vec![i + 1; 10_007]).collect();
    let slices: Vec<IoSlice> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut wanted = vec![0; 777];
    parts.iter().for_each(|part| wanted.extend_from_slice(part));
    assert_eq!(
        pwritev(&handle, &slices, 777).expect("written"),
        wanted.len() - 777
    );
    let mut front = vec![0; 5000];
    let mut back = vec![0; wanted.len()];
    let read = preadv(
        &handle,
        &mut [IoSliceMut::new(&mut front), IoSliceMut::new(&mut back)],
        0,
    )
    .expect("read");
    front.extend_from_slice(&back[..read - 5000]);
    same("vectors", &front, &wanted);
}

#[test]
fn copies_in_the_kernel() {
    needs_mount!();
    let up = Up::start();
    let bytes = Random::new(45).bytes(2_000_000);
    file::write(&up.at("from"), &bytes);
    create(&up.at("array"), "1000,500", "f4", &[]);
    let (from, to, array) = (
        file::open(&up.at("from")),
        file::open_new(&up.at("to")),
        file::open(&up.at("array")),
    );
    for target in [&to, &array] {
        let (mut at, mut into) = (0, 0);
        while into < 2_000_000 {
            let left = 2_000_000 - into as usize;
            let copied = copy_file_range(&from, Some(&mut at), target, Some(&mut into), left);
            assert!(copied.expect("copied") > 0);
        }
    }
    assert!(file::read(&up.at("to")) == bytes && file::read(&up.at("array")) == bytes);
    // Within one file, and over existing data.
    let (mut at, mut into) = (10, 1_000_001);
    assert_eq!(
        copy_file_range(&to, Some(&mut at), &to, Some(&mut into), 500).expect("copied"),
        500
    );
    let mut wanted = bytes.clone();
    wanted.copy_within(10..510, 1_000_001);
    assert!(file::read(&up.at("to")) == wanted);
    std::io::copy(
        &mut File::open(up.at("from")).expect("opened"),
        &mut file::open_new(&up.at("third")),
    )
    .expect("copied");
    assert!(file::read(&up.at("third")) == bytes);
}

/// Locks of one process against another, on one mount.
#[test]
fn locks() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("f");
    file::write(&path, vec![0; 100]);
    let script = "import fcntl,sys\nf=open(sys.argv[1],'r+b')\ntry:\n    if sys.argv[2]=='flock': fcntl.flock(f,fcntl.LOCK_EX|fcntl.LOCK_NB)\n    else: fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB,10,int(sys.argv[3]))\nexcept BlockingIOError: sys.exit(9)\n";
    let other = |kind: &str, from: &str| {
        program(
            inputs::PYTHON,
            ["-c", script, path.to_str().expect("text"), kind, from],
        )
        .status
    };
    let held = Flock::lock(file::open(&path), FlockArg::LockExclusiveNonblock).expect("locked");
    assert_eq!(other("flock", "0"), 9);
    drop(held);
    assert_eq!(other("flock", "0"), 0);
    let handle = file::open(&path);
    let region = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 20,
        l_len: 10,
        l_pid: 0,
    };
    nix::fcntl::fcntl(&handle, nix::fcntl::FcntlArg::F_SETLK(&region)).expect("locked");
    assert_eq!(other("lockf", "15"), 9);
    assert_eq!(other("lockf", "30"), 0);
    drop(handle);
    assert_eq!(other("lockf", "15"), 0);
}

#[test]
fn two_thousand_open_files() {
    needs_mount!();
    let up = Up::start();
    let (_, hard) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .expect("the limit");
    nix::sys::resource::setrlimit(
        nix::sys::resource::Resource::RLIMIT_NOFILE,
        hard.min(20_000),
        hard,
    )
    .expect("a higher limit");
    let mut open: Vec<File> = (0..2000)
        .map(|i| file::open_new(&up.at(format!("f{i}"))))
        .collect();
    for (i, handle) in open.iter_mut().enumerate() {
        writeln!(handle, "file {i}").expect("written");
    }
    create(&up.at("a"), "2000,10", "u1", &[]);
    let rows: Vec<File> = (0..2000)
        .map(|i| file::open(&named(&up.at("a"), &format!("@[{i}]"))))
        .collect();
    for (i, row) in rows.iter().enumerate() {
        row.write_all_at(&[i as u8; 10], 0).expect("written");
    }
    drop(rows);
    for (i, handle) in open.into_iter().enumerate() {
        file::close(handle).expect("closed");
        assert_eq!(
            file::read(&up.at(format!("f{i}"))),
            format!("file {i}\n").as_bytes()
        );
    }
    let bytes = file::read(&up.at("a"));
    assert!(
        bytes
            .chunks(10)
            .enumerate()
            .all(|(i, row)| row.iter().all(|&b| b == i as u8))
    );
}

/// One file by several paths: `stat` returns the same for all of them.
#[test]
fn metadata_of_open_files() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("f");
    let handle = file::open_new(&path);
    for len in [1, 5000, 300_000, 300_001] {
        handle.write_all_at(&[1], len - 1).expect("written");
        let (by_handle, by_path) = (
            handle.metadata().expect("metadata"),
            path.metadata().expect("metadata"),
        );
        assert_eq!((by_handle.len(), by_path.len()), (len, len));
        assert_eq!(by_handle.ino(), by_path.ino());
        let other = File::open(&path).expect("opened");
        assert_eq!(other.metadata().expect("metadata").len(), len);
    }
    let born = path.metadata().expect("metadata").created();
    assert!(born.is_err() || born.is_ok_and(|time| time <= std::time::SystemTime::now()));
}
