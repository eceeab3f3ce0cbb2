//! Features added to fuser by our patches, tested against this machine's kernel.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation,
    INodeNo, ReplyAttr, ReplyEntry, Request,
};

/// A directory with one file, whose name and attributes the kernel may cache indefinitely.
struct OneFile {
    lookups: Arc<AtomicU64>,
}

const KEEP: Duration = Duration::from_secs(3600);

fn attr(ino: INodeNo) -> FileAttr {
    let directory = ino == INodeNo::ROOT;
    let then = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: then,
        mtime: then,
        ctime: then,
        crtime: then,
        kind: match directory {
            true => FileType::Directory,
            false => FileType::RegularFile,
        },
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for OneFile {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        if name != "f" {
            return reply.error(Errno::ENOENT);
        }
        reply.entry(&KEEP, &attr(INodeNo(2)), Generation(0));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&KEEP, &attr(ino));
    }
}

/// The kernel's version: major and minor.
fn kernel() -> (u32, u32) {
    let uname = nix::sys::utsname::uname().unwrap();
    let release = uname.release().to_str().unwrap().to_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists();
    if !can {
        let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!ci, "/dev/fuse is missing, and CI must test the mount");
        eprintln!("skipped: /dev/fuse is missing");
    }
    can
}

/// Names are looked up consecutively by one thread and by several, so that each loop stays on a processor; the session
/// ends.
#[test]
fn loops_on_their_own_processors_answer_all_requests_and_end() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for end_in_a_row in [true, false] {
        let lookups = Arc::new(AtomicU64::new(0));
        let files = OneFile {
            lookups: lookups.clone(),
        };
        let mut config = Config::default();
        config.n_threads = Some(2);
        config.clone_fd = true;
        config.own_processors = true;
        let session = fuser::spawn_mount(files, dir.path(), &config).unwrap();
        // A missing name is looked up each time.
        let ask = |times: u64| {
            for _ in 0..times {
                let missing = std::fs::metadata(dir.path().join("missing")).unwrap_err();
                assert_eq!(missing.kind(), ErrorKind::NotFound);
            }
        };
        ask(500);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| ask(100));
            }
        });
        if end_in_a_row {
            ask(100);
        }
        let asked = lookups.load(Ordering::SeqCst);
        assert_eq!(asked, if end_in_a_row { 1000 } else { 900 });
        session.umount_and_join().unwrap();
    }
}

#[test]
fn names_expire_all_at_once_or_one_by_one() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let lookups = Arc::new(AtomicU64::new(0));
    let files = OneFile {
        lookups: lookups.clone(),
    };
    let session: BackgroundSession =
        fuser::spawn_mount(files, dir.path(), &Config::default()).unwrap();
    let notifier = session.notifier();
    let file = dir.path().join("f");
    let asked = || {
        std::fs::metadata(&file).unwrap();
        lookups.load(Ordering::SeqCst)
    };
    assert_eq!((asked(), asked()), (1, 1), "it is cached");
    notifier
        .expire_entry(INodeNo::ROOT, OsStr::new("f"))
        .unwrap();
    assert_eq!(
        (asked(), asked()),
        (2, 2),
        "it is looked up again, and cached"
    );
    match notifier.inc_epoch() {
        Ok(()) => assert_eq!(
            (asked(), asked()),
            (3, 3),
            "it is looked up again, and cached"
        ),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(kernel() < (6, 16), "{:?} has it", kernel());
        }
    }
    match notifier.resend() {
        Ok(()) => {}
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(kernel() < (6, 9), "{:?} has it", kernel());
        }
    }
    session.umount_and_join().unwrap();
}
