//! Tracks which inodes have a set-user-id or set-group-id bit, as far as this mount has seen.
//!
//! A write by a process without `CAP_FSETID` clears these bits. The kernel marks such writes and leaves the rest to the
//! filesystem. It does not mark a truncate, a fallocate or a copy, so there the process's capabilities are checked.
//! Set-group-id without group execution is cleared only if the writer is not in that group, as in Linux since 6.2; the
//! kernel itself clears the other bits for truncates and the like.
//!
//! Asking the metadata service for the mode each time would cost every small write of every user a round trip, and
//! mostly there is no such file. So the mount remembers the inodes whose attributes it has shown with a bit set; a file
//! that was never looked up cannot be written to.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use slabfs_mdserver::api::{Attr, Ino, Kind};

use crate::call::caller::line;

const SETID: u32 = libc::S_ISUID | libc::S_ISGID;

/// The inodes seen with such a bit.
#[derive(Debug, Default)]
pub(super) struct SetIds {
    count: AtomicUsize,
    seen: Mutex<HashSet<Ino>>,
}

impl SetIds {
    /// Records the bits of attributes that the mount shows.
    pub(super) fn note(&self, attr: &Attr) {
        let set = attr.kind == Kind::Object && attr.mode & SETID != 0;
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

    /// Whether a write to the object has to clear bits.
    pub(super) fn has(&self, ino: Ino) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.seen.lock().contains(&ino)
    }
}

/// The mode after a write by a process without `CAP_FSETID`; `member`: it is in the file's group.
pub(super) fn without(mode: u32, member: bool) -> u32 {
    let mut left = mode & !libc::S_ISUID;
    if mode & libc::S_IXGRP != 0 || !member {
        left &= !libc::S_ISGID;
    }
    left
}

/// Whether a process has `CAP_FSETID`, in this process's user namespace; false if that cannot be read.
pub(super) fn may_set_ids(pid: u32) -> bool {
    const CAP_FSETID: u64 = 4;
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/user")).ok();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let effective = u64::from_str_radix(line(&status, "CapEff:"), 16).unwrap_or(0);
    effective & 1 << CAP_FSETID != 0 && namespace(&pid.to_string()) == namespace("self")
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
        assert!([5, 6, 7].iter().all(|&ino| seen.has(ObjectId(ino))));
        seen.note(&attr(5, 0o755));
        assert!(!seen.has(ObjectId(5)) && seen.has(ObjectId(6)));
    }

    #[test]
    fn a_write_clears_the_bits_that_posix_names() {
        for member in [false, true] {
            assert_eq!(without(0o6755, member), 0o755);
            assert_eq!(without(0o4600, member), 0o600);
        }
        assert_eq!(without(0o2644, true), 0o2644);
        assert_eq!(without(0o2644, false), 0o644);
    }
}
