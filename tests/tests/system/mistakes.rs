//! Mistakes of programs: they cost no data, the program gets an error, and the log says what was wrong.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use slabfs_tests::file::{self, errno, named};
use slabfs_tests::tool::{create, shell};
use slabfs_tests::{Cluster, Up, needs_mount, poll};

/// Four rows of four `f4`, and bytes that differ.
fn array(path: &Path, layout: &str) -> Vec<u8> {
    create(path, "4,4", "f4", &["--layout", layout]);
    let bytes: Vec<u8> = (1..=64).collect();
    file::write_at(path, 0, &bytes);
    bytes
}

/// As `fopen` with "w": `O_TRUNC`.
fn emptied(path: &Path) -> File {
    OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .expect("opened")
}

#[test]
fn a_refused_first_write_leaves_the_array_as_it_was() {
    needs_mount!();
    let up = Up::start();
    for layout in ["aligned", "grid:2,2", "canonical"] {
        let path = up.at(layout.replace(':', "-"));
        let bytes = array(&path, layout);
        let open = emptied(&path);
        let refused = open.write_at(&[7; 65], 0);
        assert_eq!(errno(refused), Errno::EFBIG, "{layout}");
        file::close(open).expect("the write returned the error");
        assert_eq!(file::read(&path), bytes, "{layout}");
        // A program of the shell: the first write is too long.
        let line = format!("head -c 100 /dev/zero > {}", path.display());
        shell(up.mnt(), &line).fails(1, &["File too large"]);
        assert_eq!(file::read(&path), bytes, "{layout}");
        // NumPy: too many elements.
        let line = format!(
            "/usr/bin/python3 -c 'import numpy; numpy.ones((5000, 4), \"f4\").tofile(\"{}\")'",
            path.display()
        );
        shell(up.mnt(), &line).fails(1, &["OSError"]);
        assert_eq!(file::read(&path), bytes, "{layout}");
        let open = emptied(&path);
        let longer = nix::fcntl::posix_fallocate(&open, 0, 65);
        assert_eq!(longer, Err(Errno::EFBIG), "{layout}");
        file::close(open).expect("closed");
        assert_eq!(file::read(&path), bytes, "{layout}");
        // Refused once, then right: nothing is emptied.
        let open = emptied(&path);
        assert_eq!(errno(open.write_at(&[7; 65], 0)), Errno::EFBIG);
        open.write_all_at(&[9; 4], 0).expect("inside");
        file::close(open).expect("closed");
        assert_eq!(
            file::read(&path),
            [&[9; 4], &bytes[4..]].concat(),
            "{layout}"
        );
    }
}

#[test]
fn a_truncate_takes_effect_with_the_first_byte_or_the_close() {
    needs_mount!();
    let up = Up::start();
    for layout in ["aligned", "grid:2,2"] {
        let path = up.at(layout.replace(':', "-"));
        array(&path, layout);
        let open = emptied(&path);
        open.write_all_at(&[9; 4], 8).expect("inside");
        file::close(open).expect("closed");
        let mut rest = vec![0; 64];
        rest[8..12].fill(9);
        assert_eq!(file::read(&path), rest, "{layout}: a write");
        // By the close alone, as `: > array`.
        shell(up.mnt(), &format!(": > {}", path.display())).ok();
        assert_eq!(file::read(&path), [0; 64], "{layout}: a close");
        // A reader that comes before finds it empty.
        file::write_at(&path, 0, &[5; 64]);
        let open = emptied(&path);
        assert_eq!(file::read(&path), [0; 64], "{layout}: a reader");
        // And what others write after the open stays.
        file::write_at(&path, 16, &[6; 4]);
        file::close(open).expect("closed");
        let mut rest = vec![0; 64];
        rest[16..20].fill(6);
        assert_eq!(file::read(&path), rest, "{layout}: another writer");
        // `ftruncate` to the size that it has changes nothing, to 0 empties it.
        let open = file::open(&path);
        open.set_len(64).expect("its size");
        assert_eq!(file::read(&path), rest, "{layout}");
        open.set_len(0).expect("emptied");
        assert_eq!(errno(open.write_at(&[7; 65], 0)), Errno::EFBIG);
        assert_eq!(file::read(&path), [0; 64], "{layout}: ftruncate");
    }
}

#[test]
fn other_mounts_see_a_truncate_at_once() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 2);
    let (here, there) = (cluster.at(0, "a"), cluster.at(1, "a"));
    let bytes = array(&here, "aligned");
    assert_eq!(file::read(&there), bytes);
    let open = emptied(&here);
    assert_eq!(file::read(&there), [0; 64]);
    file::write_at(&there, 8, &[6; 4]);
    file::close(open).expect("closed");
    let mut rest = vec![0; 64];
    rest[8..12].fill(6);
    assert_eq!(file::read(&here), rest);
    assert_eq!(file::read(&there), rest);
    // A mount that attaches while a truncate is deferred.
    cluster.stop_mount(1);
    poll::until_true("the first mount is alone", || {
        slabfs_tests::tool::stats(&cluster.mnt(0))["alone"] == true
    });
    let open = emptied(&here);
    cluster.start_mount(1);
    assert_eq!(file::read(&there), [0; 64]);
    file::write_at(&there, 8, &[8; 4]);
    file::close(open).expect("closed");
    rest[8..12].fill(8);
    assert_eq!(file::read(&here), rest);
    // A refused write leaves it as the other mount had it.
    let open = emptied(&here);
    assert_eq!(errno(open.write_at(&[7; 65], 0)), Errno::EFBIG);
    file::close(open).expect("closed");
    assert_eq!(file::read(&there), rest);
}

#[test]
fn a_truncate_is_repeated_after_a_fault() {
    needs_mount!();
    let mut cluster = Cluster::with(1, 1, &["--io-timeout", "2s"]);
    let path = cluster.at(0, "a");
    array(&path, "aligned");
    let open = emptied(&path);
    cluster.stop_md();
    assert_eq!(errno(open.write_at(&[9; 4], 0)), Errno::EIO);
    cluster.start_md();
    poll::until_true("writes work again", || open.write_at(&[9; 4], 0).is_ok());
    file::close(open).expect("closed");
    let mut rest = vec![0; 64];
    rest[..4].fill(9);
    assert_eq!(file::read(&path), rest, "not a mixture with the old data");
    // Without a write, no call returns the error of the last close: the log has it.
    let open = emptied(&path);
    cluster.stop_md();
    drop(open);
    poll::until_true("an error in the log", || {
        cluster.mount_log(0).contains("could not be executed")
    });
    cluster.start_md();
}

#[test]
fn what_a_refused_append_left_is_cleared() {
    needs_mount!();
    let mut cluster = Cluster::with(1, 1, &["--io-timeout", "2s"]);
    let path = cluster.at(0, "log");
    file::write(&path, "first\n");
    let mut log = OpenOptions::new().append(true).open(&path).expect("opened");
    cluster.server(0).signal(Signal::SIGSTOP);
    let refused = log.write(b"a line that got no reply\n");
    assert_eq!(errno(refused), Errno::EIO);
    cluster.server(0).signal(Signal::SIGCONT);
    poll::until_true("an append works again", || log.write(b"b\n").is_ok());
    log.set_len(40).expect("longer");
    drop(log);
    let mut expected = b"first\nb\n".to_vec();
    expected.resize(40, 0);
    assert_eq!(file::read(&path), expected);
    cluster.stop_server(0);
    cluster.start_server(0);
}

#[test]
fn the_log_names_path_selection_and_dims() {
    needs_mount!();
    let up = Up::with(&["-v"]);
    std::fs::create_dir(up.at("run1")).expect("made");
    let path = up.at("run1/temp");
    array(&path, "aligned");
    let select = named(&path, "@[0:2,0:2]");
    assert_eq!(errno(emptied(&path).write_at(&[0; 65], 0)), Errno::EFBIG);
    assert_eq!(
        errno(file::open(&select).write_at(&[0; 17], 0)),
        Errno::EFBIG
    );
    let outside = named(&path, "@[7,0]");
    assert_eq!(errno(File::open(&outside)), Errno::EINVAL);
    let shrunk = file::open(&path).set_len(8);
    assert_eq!(errno(shrunk), Errno::EINVAL);
    for words in [
        &[
            "write",
            "/run1/temp (dims 4,4, dtype f4)",
            "65 bytes",
            "64 bytes",
        ][..],
        &[
            "write",
            "/run1/temp@[0:2,0:2] (dims 4,4",
            "17 bytes",
            "16 bytes",
        ],
        &["lookup", "/run1/temp@[7,0]", "7"],
        &["setattr", "/run1/temp (dims 4,4"],
    ] {
        poll::until_true(&format!("a line with {words:?}"), || {
            let log = up.log();
            log.lines()
                .any(|line| words.iter().all(|word| line.contains(word)))
        });
    }
}

#[test]
fn an_append_to_a_server_that_is_away_fails_in_write() {
    needs_mount!();
    let mut cluster = Cluster::with(1, 1, &["--io-timeout", "2s"]);
    let path = cluster.at(0, "log");
    file::write(&path, "first\n");
    shell(
        cluster.area().path(),
        &format!("echo second >> {}", path.display()),
    )
    .ok();
    cluster.stop_server(0);
    let line = format!("echo third >> {} && echo stored", path.display());
    let outcome = shell(cluster.area().path(), &line).fails(1, &["rror"]);
    assert!(!outcome.text().contains("stored"), "{}", outcome.report());
    cluster.start_server(0);
    poll::until_true("an append works again", || {
        let line = format!("echo fourth >> {}", path.display());
        let outcome = shell(cluster.area().path(), &line);
        outcome.status == 0
    });
    assert_eq!(file::read(&path), b"first\nsecond\nfourth\n");
}
