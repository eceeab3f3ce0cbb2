//! POSIX semantics of files: opening, appending, unlinking, renaming, linking, times, attributes.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::stat::{Mode, UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use slabfs_tests::file::{self, errno};
use slabfs_tests::{Up, needs_mount};

fn ino(path: &Path) -> u64 {
    path.symlink_metadata().expect("metadata").ino()
}

#[test]
fn opening() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("f");
    let new = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
    new(&path)
        .expect("O_EXCL makes it")
        .write_all(b"first")
        .expect("written");
    assert_eq!(errno(new(&path)), Errno::EEXIST);
    assert_eq!(file::read(&path), b"first");
    assert_eq!(errno(File::open(up.at("none"))), Errno::ENOENT);
    assert_eq!(errno(File::open(path.join("below"))), Errno::ENOTDIR);
    assert_eq!(
        errno(OpenOptions::new().write(true).open(up.mnt())),
        Errno::EISDIR
    );
    std::os::unix::fs::symlink("f", up.at("link")).expect("a link");
    assert_eq!(
        errno(
            OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_NOFOLLOW)
                .open(up.at("link"))
        ),
        Errno::ELOOP
    );
    assert_eq!(
        errno(
            OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_DIRECTORY)
                .open(&path)
        ),
        Errno::ENOTDIR
    );
    assert_eq!(
        errno(new(&up.at("link"))),
        Errno::EEXIST,
        "O_EXCL does not follow"
    );
    let made = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o640)
        .open(up.at("moded"))
        .expect("made");
    assert_eq!(made.metadata().expect("metadata").mode() & 0o777, 0o640);
    let readable = File::open(&path).expect("opened");
    assert_eq!(errno(readable.write_at(b"x", 0)), Errno::EBADF);
}

#[test]
fn names_have_limits() {
    needs_mount!();
    let up = Up::start();
    let longest = up.at("n".repeat(255));
    file::write(&longest, "x");
    assert_eq!(
        errno(File::create(up.at("n".repeat(256)))),
        Errno::ENAMETOOLONG
    );
    assert_eq!(
        errno(std::fs::create_dir(up.at("d".repeat(256)))),
        Errno::ENAMETOOLONG
    );
    assert_eq!(
        errno(std::fs::rename(&longest, up.at("m".repeat(256)))),
        Errno::ENAMETOOLONG
    );
    assert_eq!(
        errno(std::fs::hard_link(&longest, up.at("m".repeat(256)))),
        Errno::ENAMETOOLONG
    );
    let strange = [
        "with space",
        "ünï",
        "new\nline",
        "-dash",
        "a@b",
        "]",
        "[0]",
        "%2F",
        "\u{1}",
    ];
    for name in strange {
        file::write(&up.at(name), name);
    }
    let odd: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff\xfe");
    file::write(&up.at(odd), "not text");
    let mut listed: Vec<_> = std::fs::read_dir(up.mnt())
        .expect("the mount")
        .map(|e| e.expect("an entry").file_name())
        .collect();
    listed.sort();
    assert_eq!(listed.len(), strange.len() + 2);
    for name in strange {
        assert_eq!(file::read(&up.at(name)), name.as_bytes());
        assert!(listed.iter().any(|listed| listed == name), "{name:?}");
    }
    assert_eq!(file::read(&up.at(odd)), b"not text");
}

#[test]
fn appending() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("log");
    let mut one = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .expect("opened");
    let mut two = OpenOptions::new().append(true).open(&path).expect("opened");
    for i in 0..100 {
        writeln!(if i % 2 == 0 { &mut one } else { &mut two }, "line {i}").expect("appended");
    }
    // The position does not matter.
    one.seek(SeekFrom::Start(0)).expect("seek");
    one.write_all(b"end\n").expect("appended");
    let wanted: String = (0..100).map(|i| format!("line {i}\n")).collect::<String>() + "end\n";
    assert_eq!(file::read(&path), wanted.as_bytes());
    assert_eq!(
        path.metadata().expect("metadata").len(),
        wanted.len() as u64
    );
}

#[test]
fn unlinked_files_exist_while_they_are_open() {
    needs_mount!();
    let mut up = Up::start();
    for (name, large) in [("small", false), ("large", true)] {
        let path = up.at(name);
        let bytes = if large {
            vec![7; 3 << 20]
        } else {
            b"content".to_vec()
        };
        file::write(&path, &bytes);
        let mut handle = file::open(&path);
        std::fs::remove_file(&path).expect("unlinked");
        assert_eq!(errno(File::open(&path)), Errno::ENOENT);
        assert_eq!(handle.metadata().expect("metadata").nlink(), 0);
        let mut seen = Vec::new();
        handle.read_to_end(&mut seen).expect("read");
        assert_eq!(seen, bytes);
        handle.write_all_at(b"more", 10).expect("written");
        handle.sync_all().expect("synced");
        handle.set_len(12).expect("cut");
        file::write(&path, "another of the name");
        let mut seen = [0; 2];
        handle.read_exact_at(&mut seen, 10).expect("read");
        assert_eq!(&seen, b"mo");
        file::close(handle).expect("closed");
        assert_eq!(file::read(&path), b"another of the name");
    }
    up.restart();
    assert_eq!(file::read(&up.at("small")), b"another of the name");
}

#[test]
fn renaming() {
    needs_mount!();
    let up = Up::start();
    let (a, b) = (up.at("a"), up.at("b"));
    file::write(&a, "A");
    file::write(&b, "B");
    let before = ino(&a);
    let open_b = file::open(&b);
    std::fs::rename(&a, &b).expect("over a file");
    assert_eq!((file::read(&b).as_slice(), ino(&b)), (&b"A"[..], before));
    let mut old = [0];
    open_b
        .read_exact_at(&mut old, 0)
        .expect("the replaced file is still open");
    assert_eq!(&old, b"B");
    assert_eq!(errno(File::open(&a)), Errno::ENOENT);
    // Two names of one file: nothing happens.
    std::fs::hard_link(&b, &a).expect("a link");
    std::fs::rename(&a, &b).expect("onto itself");
    assert!(a.exists() && b.exists());
    std::fs::remove_file(&a).expect("unlinked");
    let (d, e) = (up.at("d"), up.at("e"));
    std::fs::create_dir(&d).expect("made");
    std::fs::create_dir(&e).expect("made");
    assert_eq!(errno(std::fs::rename(&b, &d)), Errno::EISDIR);
    assert_eq!(errno(std::fs::rename(&d, &b)), Errno::ENOTDIR);
    file::write(&d.join("in"), "x");
    assert_eq!(errno(std::fs::rename(&e, &d)), Errno::ENOTEMPTY);
    std::fs::rename(&d, &e).expect("over an empty directory");
    assert_eq!(file::read(&e.join("in")), b"x");
    assert_eq!(
        errno(std::fs::rename(&e, e.join("into itself"))),
        Errno::EINVAL
    );
    assert_eq!(errno(std::fs::rename(up.at("none"), &a)), Errno::ENOENT);
    let two = |from: &Path, to: &Path, flags| renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
    file::write(&a, "new A");
    assert_eq!(
        two(&a, &b, RenameFlags::RENAME_NOREPLACE),
        Err(Errno::EEXIST)
    );
    two(&a, &b, RenameFlags::RENAME_EXCHANGE).expect("exchanged");
    assert_eq!(
        (file::read(&a), file::read(&b)),
        (b"A".to_vec(), b"new A".to_vec())
    );
    two(&a, &e, RenameFlags::RENAME_EXCHANGE).expect("a file with a directory");
    assert!(a.join("in").exists() && file::read(&e) == b"A");
    two(&e, &up.at("free"), RenameFlags::RENAME_NOREPLACE).expect("onto a free name");
}

#[test]
fn links() {
    needs_mount!();
    let up = Up::start();
    let (a, b) = (up.at("a"), up.at("b"));
    file::write(&a, "shared");
    std::fs::hard_link(&a, &b).expect("linked");
    assert_eq!(
        (ino(&a), a.metadata().expect("metadata").nlink()),
        (ino(&b), 2)
    );
    file::write_at(&b, 0, b"SH");
    assert_eq!(file::read(&a), b"SHared");
    std::fs::remove_file(&a).expect("unlinked");
    assert_eq!(
        (file::read(&b), b.metadata().expect("metadata").nlink()),
        (b"SHared".to_vec(), 1)
    );
    std::fs::create_dir(up.at("d")).expect("made");
    assert_eq!(
        errno(std::fs::hard_link(up.at("d"), up.at("d2"))),
        Errno::EPERM
    );
    for target in ["b", "/etc/passwd", "nowhere", &"t".repeat(4000)] {
        let link = up.at(format!("s{}", target.len()));
        std::os::unix::fs::symlink(target, &link).expect("a symlink");
        assert_eq!(std::fs::read_link(&link).expect("read"), Path::new(target));
        assert_eq!(
            link.symlink_metadata().expect("metadata").len(),
            target.len() as u64
        );
    }
    assert_eq!(file::read(&up.at("s1")), b"SHared");
    assert_eq!(errno(File::open(up.at("s7"))), Errno::ENOENT);
    std::os::unix::fs::symlink("loop", up.at("loop")).expect("a symlink");
    assert_eq!(errno(File::open(up.at("loop"))), Errno::ELOOP);
}

#[test]
fn nodes() {
    needs_mount!();
    let mut up = Up::start();
    nix::unistd::mkfifo(&up.at("fifo"), Mode::from_bits_truncate(0o622)).expect("a fifo");
    let socket = std::os::unix::net::UnixListener::bind(up.at("sock")).expect("a socket");
    drop(socket);
    up.restart();
    assert!(
        up.at("fifo")
            .metadata()
            .expect("metadata")
            .file_type()
            .is_fifo()
    );
    assert!(
        up.at("sock")
            .metadata()
            .expect("metadata")
            .file_type()
            .is_socket()
    );
    let fifo = up.at("fifo");
    let writer = std::thread::spawn(move || {
        OpenOptions::new()
            .write(true)
            .open(fifo)
            .expect("opened")
            .write_all(b"through")
            .expect("written")
    });
    assert_eq!(file::read(&up.at("fifo")), b"through");
    writer.join().expect("the writer");
    if nix::unistd::geteuid().is_root() {
        let null = nix::sys::stat::makedev(1, 3);
        nix::sys::stat::mknod(
            &up.at("null"),
            nix::sys::stat::SFlag::S_IFCHR,
            Mode::from_bits_truncate(0o666),
            null,
        )
        .expect("a device");
        assert_eq!(up.at("null").metadata().expect("metadata").rdev(), null);
    }
}

#[test]
fn times() {
    needs_mount!();
    let mut up = Up::start();
    let path = up.at("f");
    file::write(&path, "x");
    let set = |path: &Path, a: TimeSpec, m: TimeSpec| {
        utimensat(AT_FDCWD, path, &a, &m, UtimensatFlags::NoFollowSymlink)
    };
    let before = path.metadata().expect("metadata");
    set(
        &path,
        TimeSpec::new(1, 2),
        TimeSpec::new(4_000_000_000, 999_999_999),
    )
    .expect("set");
    let now = path.metadata().expect("metadata");
    assert_eq!(
        (now.atime(), now.atime_nsec(), now.mtime(), now.mtime_nsec()),
        (1, 2, 4_000_000_000, 999_999_999)
    );
    assert!((now.ctime(), now.ctime_nsec()) >= (before.ctime(), before.ctime_nsec()));
    set(&path, TimeSpec::UTIME_OMIT, TimeSpec::new(-5, 7)).expect("set");
    up.restart();
    let now = path.metadata().expect("metadata");
    assert_eq!(
        (now.atime(), now.atime_nsec(), now.mtime(), now.mtime_nsec()),
        (1, 2, -5, 7)
    );
    // Writing changes mtime; a change of mode changes only ctime.
    file::write_at(&path, 0, b"y");
    let written = path.metadata().expect("metadata");
    assert!(written.mtime() > 1_000_000_000);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("chmod");
    let changed = path.metadata().expect("metadata");
    assert_eq!(
        (changed.mtime(), changed.mtime_nsec()),
        (written.mtime(), written.mtime_nsec())
    );
    assert!((changed.ctime(), changed.ctime_nsec()) > (written.ctime(), written.ctime_nsec()));
    // The change is later than a buffered write, and stays so when that is flushed.
    let handle = file::open(&path);
    handle.write_all_at(b"before", 0).expect("written");
    let ctime = |path: &std::path::Path| {
        let now = path.metadata().expect("metadata");
        (now.ctime(), now.ctime_nsec())
    };
    let wrote = ctime(&path);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("chmod");
    let changed = ctime(&path);
    assert!(changed > wrote, "{changed:?} {wrote:?}");
    assert_eq!(ctime(&path), changed);
    handle.sync_all().expect("synced");
    assert_eq!(ctime(&path), changed, "after fsync");
    file::close(handle).expect("closed");
    assert_eq!(ctime(&path), changed, "after close");
    // A time that was set stays, although data written before it is flushed afterwards.
    let handle = file::open(&path);
    handle.write_all_at(b"late", 0).expect("written");
    set(&path, TimeSpec::new(10, 0), TimeSpec::new(20, 0)).expect("set");
    file::close(handle).expect("closed");
    assert_eq!(path.metadata().expect("metadata").mtime(), 20);
    // Directories: changing their entries changes their mtime.
    std::fs::create_dir(up.at("d")).expect("made");
    set(&up.at("d"), TimeSpec::new(1, 0), TimeSpec::new(1, 0)).expect("set");
    file::write(&up.at("d/x"), "");
    assert!(up.at("d").metadata().expect("metadata").mtime() > 1_000_000_000);
}

#[test]
fn extended_attributes() {
    needs_mount!();
    let mut up = Up::start();
    let path = up.at("f");
    file::write(&path, "x");
    file::set_xattr(&path, "user.note", "some text", 0).expect("set");
    file::set_xattr(&path, "user.empty", "", 0).expect("set");
    file::set_xattr(&path, "user.bin", [0, 1, 255], libc::XATTR_CREATE).expect("set");
    assert_eq!(
        errno(file::set_xattr(&path, "user.bin", [1], libc::XATTR_CREATE)),
        Errno::EEXIST
    );
    assert_eq!(
        errno(file::set_xattr(
            &path,
            "user.none",
            [1],
            libc::XATTR_REPLACE
        )),
        Errno::ENODATA
    );
    file::set_xattr(&path, "user.note", "other", libc::XATTR_REPLACE).expect("replaced");
    up.restart();
    let mut names = file::list_xattrs(&path);
    names.sort();
    assert_eq!(names, ["user.bin", "user.empty", "user.note"]);
    assert_eq!(file::xattr(&path, "user.note"), "other");
    assert_eq!(
        file::get_xattr(&path, "user.bin").expect("value"),
        [0, 1, 255]
    );
    assert_eq!(file::xattr(&path, "user.empty"), "");
    file::remove_xattr(&path, "user.note").expect("removed");
    assert_eq!(errno(file::get_xattr(&path, "user.note")), Errno::ENODATA);
    assert_eq!(
        errno(file::remove_xattr(&path, "user.note")),
        Errno::ENODATA
    );
    file::set_xattr(up.mnt(), "user.on.root", "yes", 0).expect("on a directory");
    assert_eq!(file::xattr(up.mnt(), "user.on.root"), "yes");
    file::set_xattr(&path, "user.large", vec![7; 60_000], 0).expect("large");
    assert_eq!(
        file::get_xattr(&path, "user.large").expect("value"),
        vec![7; 60_000]
    );
    assert!(file::set_xattr(&path, "user.larger", vec![7; 70_000], 0).is_err());
    assert!(file::set_xattr(&path, &format!("user.{}", "n".repeat(300)), "x", 0).is_err());
}

#[test]
fn sizes() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("f");
    file::write(&path, "0123456789");
    let handle = file::open(&path);
    handle.set_len(4).expect("cut");
    assert_eq!(file::read(&path), b"0123");
    handle.set_len(8).expect("longer");
    assert_eq!(file::read(&path), b"0123\0\0\0\0");
    handle.write_all_at(b"end", 20).expect("past the end");
    assert_eq!(
        file::read(&path),
        b"0123\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0end"
    );
    assert_eq!(handle.metadata().expect("metadata").len(), 23);
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let mut reader = File::open(&path).expect("opened");
    reader.read_to_end(&mut here).expect("read");
    assert_eq!(reader.read_to_end(&mut there).expect("at the end"), 0);
    assert!(matches!(
        errno(handle.write_at(b"x", (1 << 63) - 1)),
        Errno::EFBIG | Errno::EINVAL
    ));
    assert_eq!(file::read(&path).len(), 23);
    let stat = nix::sys::statvfs::statvfs(up.mnt()).expect("statvfs");
    assert!(
        stat.blocks() > 0 && stat.blocks_available() <= stat.blocks() && stat.name_max() == 255
    );
}
