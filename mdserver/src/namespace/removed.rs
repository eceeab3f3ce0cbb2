//! Attributes of removed inodes, for mounts that still have them.
//!
//! A directory that is open, or the working directory of a program, may be removed by any mount; so may a file that
//! is held only by `O_PATH`, which the service does not see. The kernel of such a mount then requests the inode's
//! attributes, and POSIX requires them with a link count of 0. So the attributes of the last removed inodes are
//! remembered, in memory and never on disk: after a restart of the service they are stale.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use super::attributes::set;
use crate::api::{Attr, Entry, Ino, Kind, MdError, Time, op};
use crate::core::{Core, Ctx};
use crate::records::{Body, Inode};

/// Directories remembered.
const DIRECTORIES: usize = 16384;
/// Others remembered.
const OTHERS: usize = 4096;

/// The last removed inodes.
#[derive(Debug, Default)]
pub(crate) struct Removed(Mutex<Kinds>);

#[derive(Debug, Default)]
struct Kinds {
    directories: Latest,
    others: Latest,
}

#[derive(Debug, Default)]
struct Latest {
    inodes: HashMap<Ino, Remembered>,
    /// In order of removal.
    order: VecDeque<Ino>,
}

/// An inode as it was when it was removed.
#[derive(Debug)]
pub(crate) struct Remembered {
    attr: Attr,
    /// For a symbolic link, its target.
    target: Option<Vec<u8>>,
}

impl Remembered {
    /// The part of a removed inode that is remembered.
    pub(crate) fn of(inode: &Inode) -> Remembered {
        let target = match &inode.body {
            Body::Symlink(target) => Some(target.clone()),
            _ => None,
        };
        let mut attr = inode.entry().attr;
        attr.nlink = 0;
        Remembered { attr, target }
    }
}

impl Removed {
    /// Remembers removed inodes.
    pub(crate) fn add(&self, inodes: impl IntoIterator<Item = Remembered>) {
        let mut kinds = self.0.lock();
        for inode in inodes {
            match inode.attr.kind {
                Kind::Directory => kinds.directories.add(inode, DIRECTORIES),
                _ => kinds.others.add(inode, OTHERS),
            }
        }
    }

    fn with<T>(&self, ino: Ino, f: impl FnOnce(&mut Remembered) -> T) -> Result<T, MdError> {
        let mut kinds = self.0.lock();
        let Kinds {
            directories,
            others,
        } = &mut *kinds;
        let found = directories.inodes.get_mut(&ino);
        let found = found.or_else(|| others.inodes.get_mut(&ino));
        found.map(f).ok_or(MdError::NotFound)
    }

    /// Target of a removed symbolic link.
    pub(super) fn target(&self, ino: Ino) -> Result<Vec<u8>, MdError> {
        self.with(ino, |inode| inode.target.clone())?
            .ok_or(MdError::NotFound)
    }
}

impl Latest {
    fn add(&mut self, inode: Remembered, most: usize) {
        let ino = inode.attr.ino;
        if self.inodes.insert(ino, inode).is_none() {
            self.order.push_back(ino);
        }
        if self.order.len() > most
            && let Some(first) = self.order.pop_front()
        {
            self.inodes.remove(&first);
        }
    }
}

/// Attributes of a removed inode, after setting those given.
pub(crate) fn removed(core: &Core, _: &Ctx, op: op::Removed) -> Result<Entry, MdError> {
    let op::Removed { ino, set: change } = op;
    let now = Time::now();
    let attr = core.removed.with(ino, |inode| {
        if let Some(change) = change {
            set(&mut inode.attr, change, now)?;
            inode.attr.ctime = now;
        }
        Ok::<_, MdError>(inode.attr.clone())
    })??;
    Ok(Entry { attr, info: None })
}

#[cfg(test)]
mod tests {
    use slabfs_model::ObjectId;

    use super::*;

    fn inode(ino: u64, kind: Kind) -> Remembered {
        let attr = Attr {
            ino: ObjectId(ino),
            kind,
            mode: 0o755,
            nlink: 0,
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
        };
        Remembered { attr, target: None }
    }

    #[test]
    fn the_last_ones_are_remembered() {
        let removed = Removed::default();
        removed.add([inode(1, Kind::Directory), inode(2, Kind::Fifo)]);
        removed.add((10..10 + OTHERS as u64).map(|ino| inode(ino, Kind::Object)));
        let kind = |ino| removed.with(ObjectId(ino), |inode| inode.attr.kind);
        assert_eq!(kind(1), Ok(Kind::Directory));
        assert_eq!(kind(2), Err(MdError::NotFound));
        assert_eq!(kind(10), Ok(Kind::Object));
        removed.add((10_000..10_000 + DIRECTORIES as u64).map(|ino| inode(ino, Kind::Directory)));
        assert_eq!(kind(1), Err(MdError::NotFound));
        assert_eq!(kind(10), Ok(Kind::Object));
        let kinds = removed.0.lock();
        for (latest, most) in [(&kinds.directories, DIRECTORIES), (&kinds.others, OTHERS)] {
            assert_eq!((latest.inodes.len(), latest.order.len()), (most, most));
        }
    }
}
