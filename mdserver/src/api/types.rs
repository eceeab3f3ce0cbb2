//! Inodes as clients see them: numbers, kinds, times, attributes.

use serde::{Deserialize, Serialize};
use slabfs_model::ObjectId;
use std::time::{SystemTime, UNIX_EPOCH};

/// An inode number; never reused after the inode is gone.
pub type Ino = ObjectId;

/// The inode of the root directory.
pub const ROOT: Ino = ObjectId(1);

/// What an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A container.
    Directory,
    /// An object: an array or plain bytes (a regular file).
    Object,
    /// A symbolic link.
    Symlink,
    /// A named pipe; only the node, the kernel implements the rest.
    Fifo,
    /// A socket node.
    Socket,
    /// A character device node.
    CharDevice,
    /// A block device node.
    BlockDevice,
}

/// A point in time: seconds since 1970 (negative before) and nanoseconds below 10^9.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Time {
    /// Seconds since 1970-01-01 UTC, rounded down.
    pub sec: i64,
    /// Nanoseconds within the second, below 10^9.
    pub nsec: u32,
}

impl Time {
    /// The clock of this machine.
    #[must_use]
    pub fn now() -> Self {
        let now: Self = SystemTime::now().into();
        #[cfg(test)]
        let now = now.jumped();
        now
    }
}

#[cfg(test)]
thread_local! {
    /// Offset of this thread's clock in seconds.
    static JUMP: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
impl Time {
    /// Shifts the clock of this thread by this many seconds from now on.
    pub(crate) fn jump(seconds: i64) {
        JUMP.set(seconds);
    }

    fn jumped(self) -> Self {
        let sec = self.sec.saturating_add(JUMP.get());
        Self { sec, ..self }
    }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self {
                sec: after.as_secs() as i64,
                nsec: after.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                let (sec, nsec) = (before.as_secs() as i64, before.subsec_nanos());
                if nsec == 0 {
                    Self { sec: -sec, nsec: 0 }
                } else {
                    Self {
                        sec: -sec - 1,
                        nsec: 1_000_000_000 - nsec,
                    }
                }
            }
        }
    }
}

impl From<Time> for SystemTime {
    fn from(time: Time) -> Self {
        let nanos = std::time::Duration::from_nanos(u64::from(time.nsec.min(999_999_999)));
        let seconds = std::time::Duration::from_secs(time.sec.unsigned_abs());
        let base = if time.sec >= 0 {
            UNIX_EPOCH.checked_add(seconds)
        } else {
            UNIX_EPOCH.checked_sub(seconds)
        };
        base.and_then(|base| base.checked_add(nanos))
            .unwrap_or(UNIX_EPOCH)
    }
}

/// The attributes of an inode, as `stat` shows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// Its number.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky: 12 bits.
    pub mode: u32,
    /// Hard links; for a directory 2 plus one for each directory in it; 0: unlinked, still open.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, else 0.
    pub rdev: u32,
    /// Bytes: for an object its dims × element size, for a symbolic link the length of its target.
    pub size: u64,
    /// Bytes known to be stored, for `st_blocks`; at most `size`.
    pub stored: u64,
    /// Last read, as far as a client set it.
    pub atime: Time,
    /// Last change of data.
    pub mtime: Time,
    /// Last change of data or attributes.
    pub ctime: Time,
    /// Creation time.
    pub crtime: Time,
    /// Grows with every change of data or attributes; equal means unchanged.
    pub change: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_round_trip() {
        for time in [
            Time {
                sec: -1,
                nsec: 999_999_999,
            },
            Time { sec: -5, nsec: 0 },
            Time { sec: 0, nsec: 1 },
            Time {
                sec: 1_700_000_000,
                nsec: 5,
            },
        ] {
            assert_eq!(Time::from(SystemTime::from(time)), time);
        }
    }
}
