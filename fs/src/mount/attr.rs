//! Conversion of attributes between slabfs and FUSE.

use std::time::{SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use slabfs_mdserver::api::{Attr, Kind, SetTime, Time};

/// The value of `st_blksize`: the C library allocates buffers of this size, and every buffer is one request.
const BLOCK: u32 = 128 << 10;

/// The same of a coupled object: more than what programs read of a header at a time (`client/coupling/header.rs`).
pub(super) const COUPLED_BLOCK: u32 = 1 << 20;

/// Converts `attr`, under the inode number `number`.
pub(super) fn file_attr(number: u64, attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: attr.size,
        blocks: attr.stored.div_ceil(512),
        atime: attr.atime.into(),
        mtime: attr.mtime.into(),
        ctime: attr.ctime.into(),
        crtime: attr.crtime.into(),
        kind: file_type(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK,
        flags: 0,
    }
}

/// Converts the kind of an inode.
pub(super) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::Object => FileType::RegularFile,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

/// The kind that the file type bits of a mode name; `None` for types that `mknod` cannot make.
pub(super) fn kind_of_mode(mode: u32) -> Option<Kind> {
    match mode & libc::S_IFMT {
        libc::S_IFREG | 0 => Some(Kind::Object),
        libc::S_IFIFO => Some(Kind::Fifo),
        libc::S_IFSOCK => Some(Kind::Socket),
        libc::S_IFCHR => Some(Kind::CharDevice),
        libc::S_IFBLK => Some(Kind::BlockDevice),
        _ => None,
    }
}

/// A time that a program sets.
///
/// fuser 0.18 decodes a time before 1970 with the wrong sign of the nanoseconds: seconds -1 and nanoseconds 5·10^8
/// mean 0.5 s before 1970, and arrive as 1.5 s before. This function restores the original pair.
pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(given_time(time)),
    }
}

fn given_time(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(_) => time.into(),
        Err(before) => {
            let before = before.duration();
            Time {
                sec: -(before.as_secs() as i64),
                nsec: before.subsec_nanos(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn modes_name_kinds() {
        assert_eq!(kind_of_mode(libc::S_IFREG | 0o644), Some(Kind::Object));
        assert_eq!(kind_of_mode(0o644), Some(Kind::Object));
        assert_eq!(kind_of_mode(libc::S_IFIFO), Some(Kind::Fifo));
        assert_eq!(kind_of_mode(libc::S_IFDIR), None);
    }

    #[test]
    fn times_before_1970_survive_fuser() {
        // The value that fuser makes of seconds -1 and nanoseconds 5·10^8.
        let given = UNIX_EPOCH - Duration::new(1, 500_000_000);
        let expected = Time {
            sec: -1,
            nsec: 500_000_000,
        };
        assert_eq!(
            set_time(TimeOrNow::SpecificTime(given)),
            SetTime::To(expected)
        );
        let after = UNIX_EPOCH + Duration::new(3, 7);
        assert_eq!(
            set_time(TimeOrNow::SpecificTime(after)),
            SetTime::To(Time { sec: 3, nsec: 7 })
        );
    }
}
