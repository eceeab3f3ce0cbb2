//! The names: directories and files by inode number, all in memory.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use fuser::{Errno, FileAttr, FileType, INodeNo};
use parking_lot::{Mutex, RwLock};

use super::FsKind;
use super::keep::Bytes;

/// A file or a directory.
pub(super) struct Node {
    ino: u64,
    owner: (u32, u32),
    mode: Mutex<u16>,
    time: Mutex<SystemTime>,
    /// Its contents.
    pub(super) body: Body,
}

/// The contents of a node.
pub(super) enum Body {
    /// Bytes.
    File(Bytes),
    /// Names.
    Directory(RwLock<BTreeMap<OsString, Arc<Node>>>),
}

/// All nodes that have a name.
pub(super) struct Tree {
    kind: FsKind,
    next: AtomicU64,
    nodes: RwLock<HashMap<u64, Arc<Node>>>,
}

impl Tree {
    /// With only the root.
    pub(super) fn new(kind: FsKind) -> Tree {
        let root = Node {
            ino: INodeNo::ROOT.0,
            owner: (
                nix::unistd::getuid().as_raw(),
                nix::unistd::getgid().as_raw(),
            ),
            mode: Mutex::new(0o755),
            time: Mutex::new(SystemTime::now()),
            body: Body::Directory(RwLock::default()),
        };
        let nodes = HashMap::from([(root.ino, Arc::new(root))]);
        Tree {
            kind,
            next: AtomicU64::new(2),
            nodes: RwLock::new(nodes),
        }
    }

    /// The node with this inode number.
    pub(super) fn node(&self, ino: INodeNo) -> Result<Arc<Node>, Errno> {
        self.nodes.read().get(&ino.0).cloned().ok_or(Errno::ENOENT)
    }

    /// The node with this name.
    pub(super) fn lookup(&self, parent: INodeNo, name: &OsStr) -> Result<Arc<Node>, Errno> {
        let parent = self.node(parent)?;
        parent
            .names()?
            .read()
            .get(name)
            .cloned()
            .ok_or(Errno::ENOENT)
    }

    /// A new file or directory.
    pub(super) fn make(
        &self,
        parent: INodeNo,
        name: &OsStr,
        kind: FileType,
        mode: u32,
        owner: (u32, u32),
    ) -> Result<Arc<Node>, Errno> {
        let parent = self.node(parent)?;
        let body = match kind {
            FileType::Directory => Body::Directory(RwLock::default()),
            FileType::RegularFile => Body::File(Bytes::new(self.kind)),
            _ => return Err(Errno::EPERM),
        };
        let node = Arc::new(Node {
            ino: self.next.fetch_add(1, Ordering::Relaxed),
            owner,
            mode: Mutex::new((mode & 0o7777) as u16),
            time: Mutex::new(SystemTime::now()),
            body,
        });
        let mut names = parent.names()?.write();
        if names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        names.insert(name.to_owned(), Arc::clone(&node));
        self.nodes.write().insert(node.ino, Arc::clone(&node));
        Ok(node)
    }

    /// Removes a name; the node must be of the expected kind.
    pub(super) fn remove(
        &self,
        parent: INodeNo,
        name: &OsStr,
        directory: bool,
    ) -> Result<(), Errno> {
        let parent = self.node(parent)?;
        let mut names = parent.names()?.write();
        let node = names.get(name).ok_or(Errno::ENOENT)?;
        match &node.body {
            Body::Directory(_) if !directory => return Err(Errno::EISDIR),
            Body::File(_) if directory => return Err(Errno::ENOTDIR),
            Body::Directory(inner) if !inner.read().is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        if let Some(node) = names.remove(name) {
            self.nodes.write().remove(&node.ino);
        }
        Ok(())
    }
}

impl Node {
    /// Its number.
    pub(super) fn ino(&self) -> INodeNo {
        INodeNo(self.ino)
    }

    /// The names of a directory.
    pub(super) fn names(&self) -> Result<&RwLock<BTreeMap<OsString, Arc<Node>>>, Errno> {
        match &self.body {
            Body::Directory(names) => Ok(names),
            Body::File(_) => Err(Errno::ENOTDIR),
        }
    }

    /// The bytes of a file.
    pub(super) fn bytes(&self) -> Result<&Bytes, Errno> {
        match &self.body {
            Body::File(bytes) => Ok(bytes),
            Body::Directory(_) => Err(Errno::EISDIR),
        }
    }

    /// Sets its mode.
    pub(super) fn set_mode(&self, mode: u32) {
        *self.mode.lock() = (mode & 0o7777) as u16;
    }

    /// Whether it is a file or a directory.
    pub(super) fn file_type(&self) -> FileType {
        match &self.body {
            Body::File(_) => FileType::RegularFile,
            Body::Directory(_) => FileType::Directory,
        }
    }

    /// The attributes for `stat`.
    pub(super) fn attr(&self) -> FileAttr {
        let (size, kind, nlink) = match &self.body {
            Body::File(bytes) => (bytes.size(), FileType::RegularFile, 1),
            Body::Directory(_) => (0, FileType::Directory, 2),
        };
        let time = *self.time.lock();
        FileAttr {
            ino: self.ino(),
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm: *self.mode.lock(),
            nlink,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_added_and_removed() {
        let tree = Tree::new(FsKind::Memory);
        let root = INodeNo::ROOT;
        let make = |parent, name: &str, kind| tree.make(parent, name.as_ref(), kind, 0o755, (0, 0));
        let dir = make(root, "d", FileType::Directory)
            .map_err(|_| ())
            .expect("made");
        make(dir.ino(), "f", FileType::RegularFile)
            .map_err(|_| ())
            .expect("made");
        assert!(make(root, "d", FileType::RegularFile).is_err());
        assert!(tree.remove(root, "d".as_ref(), true).is_err());
        assert!(tree.remove(dir.ino(), "f".as_ref(), true).is_err());
        assert!(tree.remove(dir.ino(), "f".as_ref(), false).is_ok());
        assert!(tree.lookup(dir.ino(), "f".as_ref()).is_err());
        assert!(tree.remove(root, "d".as_ref(), true).is_ok());
        assert!(tree.node(dir.ino()).is_err());
    }
}
