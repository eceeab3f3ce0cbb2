//! Which inodes have a set-user-id or set-group-id bit, as far as this mount has seen.
//!
//! A write by somebody without `CAP_FSETID` takes these bits off; the kernel marks such writes and leaves
//! the rest to us. Asking the metadata service for the mode at each of them would cost every small write of
//! every user a round trip, and mostly there is no such file at all. So the mount remembers the numbers of
//! those whose attributes it has shown with a bit set; a file nobody has looked up cannot be written to.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use slabfs_mdserver::api::{Attr, Ino, Kind};

/// The inodes that have been seen with such a bit.
#[derive(Debug, Default)]
pub(super) struct SetIds {
    count: AtomicUsize,
    seen: Mutex<HashSet<Ino>>,
}

impl SetIds {
    /// Takes note of attributes that pass by.
    pub(super) fn note(&self, attr: &Attr) {
        let set = attr.kind == Kind::Object && without(attr.mode) != attr.mode;
        if !set && self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut seen = self.seen.lock();
        if set {
            seen.insert(attr.ino);
        } else {
            seen.remove(&attr.ino);
        }
        self.count.store(seen.len(), Ordering::Release);
    }

    /// Whether a write to the object has to take bits off.
    pub(super) fn has(&self, ino: Ino) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.seen.lock().contains(&ino)
    }
}

/// The mode after a write: set-user-id goes, and set-group-id where the group may execute (without that it
/// means mandatory locking, and stays).
pub(super) fn without(mode: u32) -> u32 {
    let mut left = mode & !libc::S_ISUID;
    if mode & libc::S_IXGRP != 0 {
        left &= !libc::S_ISGID;
    }
    left
}

#[cfg(test)]
mod tests {
    use slabfs_mdserver::api::Time;
    use slabfs_model::ObjectId;

    use super::*;

    fn attr(ino: u64, mode: u32) -> Attr {
        Attr {
            ino: ObjectId(ino),
            kind: Kind::Object,
            mode,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            stored: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            crtime: Time::default(),
            change: 0,
        }
    }

    #[test]
    fn bits_are_remembered_and_forgotten() {
        let seen = SetIds::default();
        seen.note(&attr(5, 0o644));
        assert!(!seen.has(ObjectId(5)));
        seen.note(&attr(5, 0o4755));
        seen.note(&attr(6, 0o2755));
        seen.note(&attr(7, 0o2644));
        assert!(seen.has(ObjectId(5)) && seen.has(ObjectId(6)) && !seen.has(ObjectId(7)));
        seen.note(&attr(5, 0o755));
        assert!(!seen.has(ObjectId(5)) && seen.has(ObjectId(6)));
    }

    #[test]
    fn a_write_takes_the_bits_that_posix_says() {
        assert_eq!(without(0o6755), 0o755);
        assert_eq!(without(0o2644), 0o2644);
        assert_eq!(without(0o4600), 0o600);
    }
}
