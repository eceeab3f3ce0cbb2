//! Many names in one container, and long paths: listings work and need little memory.

use std::fs::File;

use nix::errno::Errno;
use slabfs_tests::file::{self, errno};
use slabfs_tests::tool::program;
use slabfs_tests::{Up, needs_mount};

/// Memory that a listing may cost the process, whatever its length.
const LISTING: u64 = 64 << 20;

/// Creates that many entries, lists them with programs, counts them, and looks them up.
fn crowd(count: usize) {
    needs_mount!();
    // The metadata cache may take that much; this test is about all other memory.
    let mut up = Up::with(&["--meta-cache", "16M"]);
    let dir = up.at("crowd");
    std::fs::create_dir(&dir).expect("made");
    let name = |i: usize| format!("entry-{i:07}");
    for i in 0..count {
        File::create(dir.join(name(i))).expect("made");
    }
    let (before, _) = up.service().memory();
    // In any order; the listing process stores nothing.
    let mut seen = vec![false; count];
    for entry in std::fs::read_dir(&dir).expect("listed") {
        let name = entry.expect("an entry").file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("entry-"));
        let number: usize = number.expect("a name").parse().expect("a number");
        assert!(
            !std::mem::replace(&mut seen[number], true),
            "{number} twice"
        );
    }
    assert_eq!(seen.iter().position(|seen| !seen), None);
    let list = |flags: &str| program("ls", [flags.as_ref(), dir.as_os_str()]).ok();
    assert_eq!(list("-f").text().lines().count(), count + 2);
    let sorted = list("-1");
    assert!(
        sorted
            .text()
            .lines()
            .enumerate()
            .all(|(i, line)| line == name(i))
    );
    let (after, _) = up.service().memory();
    assert!(
        after < before + LISTING,
        "{before} bytes before the listings, {after} after them"
    );
    for i in (0..count).step_by(count / 100) {
        assert!(dir.join(name(i)).is_file());
        assert!(!dir.join(format!("no-{i}")).exists());
    }
    up.restart();
    assert_eq!(
        std::fs::read_dir(up.at("crowd")).expect("listed").count(),
        count
    );
}

#[test]
fn twenty_thousand_entries() {
    crowd(20_000);
}

#[test]
#[ignore = "takes minutes"]
fn a_million_entries() {
    crowd(1_000_000);
}

/// The longest path that is possible, and paths beyond that.
#[test]
fn paths_at_their_longest() {
    needs_mount!();
    let mut up = Up::start();
    const LONGEST: usize = libc::PATH_MAX as usize - 1;
    let mut dir = up.at("");
    let len = |path: &std::path::Path| path.as_os_str().len();
    while len(&dir) + 2 * 256 < LONGEST {
        dir = dir.join("d".repeat(255));
        std::fs::create_dir(&dir).expect("made");
    }
    let rest = LONGEST - len(&dir) - 1;
    let rest = if rest > 255 {
        dir = dir.join("e".repeat(rest / 2));
        std::fs::create_dir(&dir).expect("made");
        LONGEST - len(&dir) - 1
    } else {
        rest
    };
    let longest = dir.join("f".repeat(rest));
    assert_eq!(len(&longest), LONGEST);
    file::write(&longest, "deep");
    assert_eq!(file::read(&longest), b"deep");
    let beyond = dir.join("f".repeat(rest + 1));
    assert_eq!(errno(File::create(beyond)), Errno::ENAMETOOLONG);
    // Relative to an open directory there are deeper paths.
    let open = File::open(&dir).expect("opened");
    let deeper = file::descriptor(&open).join("g".repeat(255));
    std::fs::create_dir(&deeper).expect("made");
    file::write(&deeper.join("h".repeat(255)), "deeper");
    drop(open);
    up.restart();
    assert_eq!(file::read(&longest), b"deep");
    let open = File::open(&dir).expect("opened");
    let deeper = file::descriptor(&open).join("g".repeat(255));
    assert_eq!(file::read(&deeper.join("h".repeat(255))), b"deeper");
    drop(open);
    std::fs::remove_dir_all(up.at("d".repeat(255))).expect("removed");
    assert_eq!(std::fs::read_dir(up.mnt()).expect("listed").count(), 0);
}
