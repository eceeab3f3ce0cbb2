//! Files and directories by inode number, all in memory.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use fuser::{Errno, FileAttr, FileType, INodeNo};
use parking_lot::{Mutex, RwLock};

use super::settings::MAX_WRITE;

/// One buffer of zeros whose pages are allocated already: a new one would cost page faults per request.
static ZEROS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut buffer = crate::memory::buffer(MAX_WRITE as usize);
    buffer.fill(0);
    buffer
});

/// A file or a directory.
pub(super) struct Node {
    attr: Mutex<FileAttr>,
    names: RwLock<BTreeMap<OsString, Arc<Node>>>,
    /// Its bytes; `None` if only their number is stored.
    bytes: Option<RwLock<Vec<u8>>>,
}

/// All nodes that have a name.
pub(super) struct Tree {
    stores: bool,
    pages: bool,
    next: AtomicU64,
    nodes: RwLock<HashMap<u64, Arc<Node>>>,
}

impl Tree {
    /// With only the root; file data is stored or not, and cached by the kernel or not.
    pub(super) fn new(stores: bool, pages: bool) -> Tree {
        let tree = Tree {
            stores,
            pages,
            next: AtomicU64::new(INodeNo::ROOT.0),
            nodes: RwLock::default(),
        };
        let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
        tree.add(FileType::Directory, 0o755, (uid.as_raw(), gid.as_raw()));
        tree
    }

    /// Whether the kernel caches file data.
    pub(super) fn pages(&self) -> bool {
        self.pages
    }

    fn add(&self, kind: FileType, mode: u32, (uid, gid): (u32, u32)) -> Arc<Node> {
        let (ino, time) = (self.next.fetch_add(1, Ordering::Relaxed), SystemTime::now());
        let attr = FileAttr {
            ino: INodeNo(ino),
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm: (mode & 0o7777) as u16,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid,
            gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        let node = Arc::new(Node {
            attr: Mutex::new(attr),
            names: RwLock::default(),
            bytes: self.stores.then(RwLock::default),
        });
        self.nodes.write().insert(ino, Arc::clone(&node));
        node
    }

    /// The node with this inode number.
    pub(super) fn node(&self, ino: INodeNo) -> Result<Arc<Node>, Errno> {
        self.nodes.read().get(&ino.0).cloned().ok_or(Errno::ENOENT)
    }

    /// The attributes of the node with this name.
    pub(super) fn lookup(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let parent = self.node(parent)?;
        let names = parent.names.read();
        names.get(name).map(|node| node.attr()).ok_or(Errno::ENOENT)
    }

    /// A new file or directory.
    pub(super) fn make(
        &self,
        parent: INodeNo,
        name: &OsStr,
        kind: FileType,
        mode: u32,
        owner: (u32, u32),
    ) -> Result<FileAttr, Errno> {
        let parent = self.node(parent)?;
        let mut names = parent.names.write();
        if names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let node = self.add(kind, mode, owner);
        names.insert(name.to_owned(), Arc::clone(&node));
        Ok(node.attr())
    }

    /// Removes a name of a file or an empty directory; the kernel has checked which of them it is.
    pub(super) fn remove(&self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let parent = self.node(parent)?;
        let mut names = parent.names.write();
        let node = names.get(name).ok_or(Errno::ENOENT)?;
        if !node.names.read().is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.nodes.write().remove(&node.attr().ino.0);
        names.remove(name);
        Ok(())
    }
}

impl Node {
    /// The attributes for `stat`.
    pub(super) fn attr(&self) -> FileAttr {
        *self.attr.lock()
    }

    /// Its names, and what they name.
    pub(super) fn list(&self) -> Vec<(OsString, FileAttr)> {
        let names = self.names.read();
        let one = |(name, node): (&OsString, &Arc<Node>)| (name.clone(), node.attr());
        names.iter().map(one).collect()
    }

    /// Sets mode, size and time, and returns all attributes.
    pub(super) fn set(
        &self,
        mode: Option<u32>,
        size: Option<u64>,
        mtime: Option<SystemTime>,
    ) -> FileAttr {
        if let (Some(bytes), Some(size)) = (&self.bytes, size) {
            bytes.write().resize(size as usize, 0);
        }
        let mut attr = self.attr.lock();
        attr.perm = mode.map_or(attr.perm, |mode| (mode & 0o7777) as u16);
        attr.mtime = mtime.unwrap_or(attr.mtime);
        attr.size = size.unwrap_or(attr.size);
        attr.blocks = attr.size.div_ceil(512);
        *attr
    }

    /// Writes `data` at `offset`.
    pub(super) fn write(&self, offset: u64, data: &[u8]) {
        if let Some(bytes) = &self.bytes {
            let (mut bytes, at) = (bytes.write(), offset as usize);
            // Bytes at the end are not zeroed first.
            let inside = bytes.len().saturating_sub(at).min(data.len());
            if at > bytes.len() {
                bytes.resize(at, 0);
            }
            bytes[at..at + inside].copy_from_slice(&data[..inside]);
            bytes.extend_from_slice(&data[inside..]);
        }
        let mut attr = self.attr.lock();
        attr.size = attr.size.max(offset + data.len() as u64);
        attr.blocks = attr.size.div_ceil(512);
    }

    /// Hands up to `len` bytes from `offset` to `give`, without a copy.
    pub(super) fn read(&self, offset: u64, len: usize, give: impl FnOnce(&[u8])) {
        let size = self.attr().size;
        let from = offset.min(size) as usize;
        let until = size.min(offset.saturating_add(len as u64)) as usize;
        match &self.bytes {
            Some(bytes) => give(&bytes.read()[from..until]),
            // A request is never larger.
            None => give(&ZEROS[..(until - from).min(ZEROS.len())]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(node: &Node, offset: u64, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        node.read(offset, len, |part| out.extend_from_slice(part));
        out
    }

    fn file(stores: bool) -> Arc<Node> {
        Tree::new(stores, false).add(FileType::RegularFile, 0o644, (0, 0))
    }

    #[test]
    fn memory_stores_written_data() {
        let node = file(true);
        node.write(5, b"abcdef");
        node.write(8, b"DEFGHI");
        assert_eq!(node.attr().size, 14);
        assert_eq!(read(&node, 5, 100), b"abcDEFGHI");
        assert_eq!(read(&node, 0, 6), b"\0\0\0\0\0a");
        assert_eq!(read(&node, 14, 1), b"");
        assert_eq!(read(&node, 20, 1), b"");
        assert_eq!(node.set(Some(0o100_600), Some(6), None).size, 6);
        assert_eq!(read(&node, 0, 100), b"\0\0\0\0\0a");
        assert_eq!(node.attr().perm, 0o600);
    }

    #[test]
    fn null_stores_only_the_size() {
        let node = file(false);
        node.write(10, b"abc");
        assert_eq!(node.attr().size, 13);
        assert_eq!(read(&node, 10, 100), [0, 0, 0]);
    }

    #[test]
    fn names_are_added_and_removed() {
        let tree = Tree::new(true, false);
        let root = INodeNo::ROOT;
        let make = |parent, name: &str, kind| tree.make(parent, name.as_ref(), kind, 0o755, (0, 0));
        let dir = make(root, "d", FileType::Directory)
            .map_err(|_| ())
            .expect("made");
        assert!(make(dir.ino, "f", FileType::RegularFile).is_ok());
        assert!(make(root, "d", FileType::RegularFile).is_err());
        assert!(tree.remove(root, "d".as_ref()).is_err());
        assert!(tree.remove(dir.ino, "f".as_ref()).is_ok());
        assert!(tree.lookup(dir.ino, "f".as_ref()).is_err());
        assert!(tree.remove(root, "d".as_ref()).is_ok());
        assert!(tree.node(dir.ino).is_err());
    }
}
