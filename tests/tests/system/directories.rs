//! Directories: creating, removing, listing large ones while they change.

use std::collections::HashSet;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use slabfs_tests::file::{self, errno};
use slabfs_tests::{Cluster, Up, needs_mount};

#[test]
fn making_and_removing() {
    needs_mount!();
    let mut up = Up::start();
    let dir = up.at("d");
    std::fs::create_dir(&dir).expect("made");
    assert_eq!(errno(std::fs::create_dir(&dir)), Errno::EEXIST);
    assert_eq!(
        errno(std::fs::create_dir(up.at("no/parent"))),
        Errno::ENOENT
    );
    assert_eq!(dir.metadata().expect("metadata").nlink(), 2);
    std::fs::create_dir(dir.join("sub")).expect("made");
    assert_eq!(dir.metadata().expect("metadata").nlink(), 3);
    assert_eq!(errno(std::fs::remove_dir(&dir)), Errno::ENOTEMPTY);
    assert_eq!(errno(std::fs::remove_file(&dir)), Errno::EISDIR);
    file::write(&dir.join("f"), "x");
    assert_eq!(errno(std::fs::remove_dir(dir.join("f"))), Errno::ENOTDIR);
    std::fs::rename(dir.join("sub"), up.at("sub")).expect("moved out");
    assert_eq!(dir.metadata().expect("metadata").nlink(), 2);
    up.restart();
    assert!(up.at("sub").is_dir() && up.at("d/f").is_file());
    std::fs::remove_file(dir.join("f")).expect("removed");
    // A directory that is open can be removed; no entries can be created in it then.
    let open = std::fs::File::open(&dir).expect("opened");
    std::fs::remove_dir(&dir).expect("removed");
    let inside = file::descriptor(&open).join("x");
    assert_eq!(errno(std::fs::File::create(inside)), Errno::ENOENT);
    assert_eq!(errno(std::fs::read_dir(&dir)), Errno::ENOENT);
}

#[test]
fn modes_of_new_entries() {
    needs_mount!();
    let up = Up::start();
    let dir = up.at("shared");
    std::fs::create_dir(&dir).expect("made");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o2775)).expect("chmod");
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&dir, None, Some(1234)).expect("chown");
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o2775)).expect("chmod");
        file::write(&dir.join("f"), "x");
        std::fs::create_dir(dir.join("sub")).expect("made");
        assert_eq!(
            dir.join("f").metadata().expect("metadata").gid(),
            1234,
            "set-gid directories give their group"
        );
        assert_eq!(
            dir.join("sub").metadata().expect("metadata").mode() & 0o7000,
            0o2000,
            "and the bit"
        );
    }
}

#[test]
fn a_deep_tree() {
    needs_mount!();
    let up = Up::start();
    let mut path = up.mnt().to_owned();
    for depth in 0..60 {
        path = path.join(format!("level{depth}"));
        std::fs::create_dir(&path).expect("made");
    }
    file::write(&path.join("leaf"), "deep");
    assert_eq!(file::read(&path.join("leaf")), b"deep");
    assert_eq!(
        path.join("..").metadata().expect("metadata").ino(),
        path.parent()
            .expect("a parent")
            .metadata()
            .expect("metadata")
            .ino()
    );
    std::fs::remove_dir_all(up.at("level0")).expect("removed");
    assert_eq!(std::fs::read_dir(up.mnt()).expect("listed").count(), 0);
}

/// An entry that exists during the entire listing is listed exactly once, whatever is created and removed
/// meanwhile.
#[test]
fn five_thousand_entries_while_others_come_and_go() {
    needs_mount!();
    let up = Up::start();
    let dir = up.at("many");
    std::fs::create_dir(&dir).expect("made");
    let name = |i: usize| format!("entry-{i:05}");
    for i in 0..5000 {
        std::fs::File::create(dir.join(name(i))).expect("made");
    }
    let mut seen = Vec::new();
    for (count, entry) in std::fs::read_dir(&dir).expect("listed").enumerate() {
        seen.push(
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("text"),
        );
        // Every third entry is removed and another created, before and behind the position of the listing.
        if count % 10 == 0 {
            let i = count / 10 * 3;
            std::fs::remove_file(dir.join(name(i))).expect("removed");
            std::fs::File::create(dir.join(format!("new-{i}"))).expect("made");
        }
    }
    let distinct: HashSet<&String> = seen.iter().collect();
    assert_eq!(distinct.len(), seen.len(), "an entry was listed twice");
    for i in (0..5000).filter(|i| i % 3 != 0) {
        assert!(distinct.contains(&name(i)), "{} was not listed", name(i));
    }
    let left: HashSet<String> = std::fs::read_dir(&dir)
        .expect("listed")
        .map(|e| {
            e.expect("an entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    assert_eq!(left.len(), 5000);
    for i in 0..5000 {
        assert_eq!(
            left.contains(&name(i)),
            dir.join(name(i)).exists(),
            "{}",
            name(i)
        );
    }
    std::fs::remove_dir_all(&dir).expect("removed");
    assert!(!dir.exists());
}

#[test]
fn listings_have_types() {
    needs_mount!();
    let up = Up::start();
    file::write(&up.at("file"), "x");
    std::fs::create_dir(up.at("dir")).expect("made");
    std::os::unix::fs::symlink("file", up.at("link")).expect("linked");
    for entry in std::fs::read_dir(up.mnt()).expect("listed") {
        let entry = entry.expect("an entry");
        let kind = entry.file_type().expect("a type");
        let listed = (kind.is_file(), kind.is_dir(), kind.is_symlink());
        let name = entry.file_name().into_string().expect("text");
        assert_eq!(
            listed,
            (name == "file", name == "dir", name == "link"),
            "{name}"
        );
        assert_eq!(
            entry.metadata().expect("metadata").ino(),
            up.at(&name).symlink_metadata().expect("metadata").ino()
        );
    }
}

/// `.slabfs` can be opened, and is not listed.
#[test]
fn the_hidden_directory() {
    needs_mount!();
    let up = Up::start();
    std::fs::create_dir(up.at("d")).expect("made");
    file::write(&up.at("d/f"), "content");
    let listed: Vec<_> = std::fs::read_dir(up.mnt())
        .expect("listed")
        .map(|e| e.expect("an entry").file_name())
        .collect();
    assert_eq!(listed, ["d"]);
    for name in ["stats", "status", "layout/d/f"] {
        let text = file::read(&up.at(".slabfs").join(name));
        serde_json::from_slice::<serde_json::Value>(&text)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert!(std::fs::write(up.at(".slabfs/stats"), "x").is_err());
    assert!(std::fs::write(up.at(".slabfs/new"), "x").is_err());
    assert!(std::fs::remove_file(up.at(".slabfs/stats")).is_err());
    assert!(std::fs::create_dir(up.at(".slabfs")).is_err());
    assert!(!up.at("d/.slabfs").exists(), "only in the root");
}

/// Entries that this or another mount removed or replaced remain accessible through open descriptors: without
/// links, and empty directories.
fn held_directories(here: &dyn Fn(&str) -> PathBuf, there: &dyn Fn(&str) -> PathBuf) {
    use nix::fcntl::{OFlag, open, openat, readlinkat};
    use nix::sys::stat::{Mode, fchmod, fstat, futimens};
    let mode = Mode::from_bits_truncate(0o700);
    let held = |path: &Path, flags: OFlag| open(path, flags, Mode::empty()).expect("held");
    // Longer than any caching of attributes in the kernel.
    let later = || std::thread::sleep(Duration::from_millis(1200));
    for replaced in [false, true] {
        let (gone, new) = (here("gone"), there("new"));
        std::fs::create_dir(&gone).expect("made");
        let dir = held(&gone, OFlag::O_RDONLY | OFlag::O_DIRECTORY);
        match replaced {
            false => std::fs::remove_dir(there("gone")).expect("removed"),
            true => {
                std::fs::create_dir(&new).expect("made");
                std::fs::rename(&new, there("gone")).expect("renamed");
            }
        }
        for _ in 0..2 {
            assert_eq!(fstat(&dir).expect("fstat").st_nlink, 0);
            fchmod(&dir, mode).expect("fchmod");
            assert_eq!(fstat(&dir).expect("fstat").st_mode & 0o777, 0o700);
            let time = TimeSpec::new(1234, 0);
            futimens(&dir, &time, &time).expect("futimens");
            assert_eq!(fstat(&dir).expect("fstat").st_mtime, 1234);
            let flags = OFlag::O_CREAT | OFlag::O_WRONLY;
            let made = openat(&dir, "x", flags, mode).map(drop);
            assert_eq!(made, Err(Errno::ENOENT));
            let listed = std::fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()));
            assert_eq!(listed.expect("a listing").count(), 0);
            later();
        }
        if replaced {
            std::fs::remove_dir(here("gone")).expect("removed");
        }
    }
    let path = OFlag::O_PATH | OFlag::O_NOFOLLOW;
    file::write(&here("f"), "bytes");
    std::os::unix::fs::symlink("somewhere", here("l")).expect("a link");
    let (file, link) = (held(&here("f"), path), held(&here("l"), path));
    for name in ["f", "l"] {
        std::fs::remove_file(there(name)).expect("removed");
    }
    later();
    assert_eq!(fstat(&file).expect("fstat").st_nlink, 0);
    assert_eq!(fstat(&file).expect("fstat").st_size, 5);
    assert_eq!(fstat(&link).expect("fstat").st_nlink, 0);
    assert_eq!(readlinkat(&link, "").expect("readlink"), "somewhere");
    // A name that was reused refers to another inode.
    file::write(&there("f"), "new");
    assert_eq!(std::fs::metadata(here("f")).expect("stat").len(), 3);
}

#[test]
fn what_was_removed_and_is_held() {
    needs_mount!();
    let up = Up::start();
    held_directories(&|name| up.at(name), &|name| up.at(name));
    let cluster = Cluster::start(1, 2);
    held_directories(&|name| cluster.at(0, name), &|name| cluster.at(1, name));
}
