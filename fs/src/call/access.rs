//! Permissions by mode bits: the check that the kernel makes for every other request.

use slabfs_mdserver::api::{Attr, Kind};

use super::Caller;

/// The access to an inode that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Read its content; for a directory, list it.
    Read,
    /// Change it.
    Write,
    /// Look up a name in a directory.
    Search,
    /// Create or remove a name in a directory.
    Make,
}

/// Whether `caller` has this access to an inode.
pub(crate) fn allows(attr: &Attr, caller: &Caller, want: Want) -> bool {
    if caller.is_root() {
        return true;
    }
    let shift = if attr.uid == caller.uid {
        6
    } else if caller.in_group(attr.gid) {
        3
    } else {
        0
    };
    let bits = match want {
        Want::Read => 0o4,
        Want::Write => 0o2,
        Want::Search => 0o1,
        Want::Make => 0o3,
    };
    debug_assert!(attr.kind == Kind::Directory || !matches!(want, Want::Search | Want::Make));
    attr.mode >> shift & bits == bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use slabfs_mdserver::api::{ROOT, Time};

    #[test]
    fn the_most_specific_class_decides() {
        let attr = Attr {
            ino: ROOT,
            kind: Kind::Directory,
            mode: 0o1075,
            nlink: 2,
            uid: 1,
            gid: 2,
            rdev: 0,
            size: 0,
            stored: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            crtime: Time::default(),
            change: 1,
        };
        let caller = |uid, gid, groups: &[u32]| Caller {
            uid,
            gid,
            groups: groups.to_vec(),
        };
        for (who, want, may) in [
            (caller(0, 0, &[]), Want::Write, true),
            (caller(1, 2, &[]), Want::Read, false),
            (caller(5, 2, &[]), Want::Make, true),
            (caller(5, 9, &[3, 2]), Want::Write, true),
            (caller(5, 9, &[]), Want::Write, false),
            (caller(5, 9, &[]), Want::Search, true),
            (caller(5, 9, &[]), Want::Make, false),
        ] {
            assert_eq!(allows(&attr, &who, want), may, "{who:?} {want:?}");
        }
    }
}
