//! The FUSE operations, one function each, as short as possible.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileHandle, FileType, Filesystem, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::RwLock;

use super::FsKind;
use super::settings::{TTL, init, open_flags};
use super::tree::{Node, Tree};

/// The filesystem, null or in memory.
pub(super) struct BenchFs {
    tree: Tree,
    /// Open files hold their node when its name is removed.
    open: RwLock<HashMap<u64, Arc<Node>>>,
    next_handle: AtomicU64,
}

impl BenchFs {
    /// An empty one.
    pub(super) fn new(kind: FsKind) -> BenchFs {
        BenchFs {
            tree: Tree::new(kind),
            open: RwLock::default(),
            next_handle: AtomicU64::new(1),
        }
    }

    fn opened(&self, node: Arc<Node>) -> FileHandle {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.open.write().insert(handle, node);
        FileHandle(handle)
    }

    fn handle(&self, fh: FileHandle) -> Result<Arc<Node>, Errno> {
        self.open.read().get(&fh.0).cloned().ok_or(Errno::EBADF)
    }
}

/// Replies with the error, or continues with the value.
macro_rules! or_reply {
    ($result:expr, $reply:expr) => {
        match $result {
            Ok(value) => value,
            Err(errno) => return $reply.error(errno),
        }
    };
}

impl Filesystem for BenchFs {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        init(config);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let node = or_reply!(self.tree.lookup(parent, name), reply);
        reply.entry(&TTL, &node.attr(), Generation(0));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let open = fh.and_then(|fh| self.handle(fh).ok());
        let node = or_reply!(open.map_or_else(|| self.tree.node(ino), Ok), reply);
        reply.attr(&TTL, &node.attr());
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let open = fh.and_then(|fh| self.handle(fh).ok());
        let node = or_reply!(open.map_or_else(|| self.tree.node(ino), Ok), reply);
        if let Some(size) = size {
            or_reply!(node.bytes(), reply).resize(size);
        }
        if let Some(mode) = mode {
            node.set_mode(mode);
        }
        reply.attr(&TTL, &node.attr());
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let owner = (req.uid(), req.gid());
        let made = self
            .tree
            .make(parent, name, FileType::Directory, mode & !umask, owner);
        let node = or_reply!(made, reply);
        reply.entry(&TTL, &node.attr(), Generation(0));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        or_reply!(self.tree.remove(parent, name, false), reply);
        reply.ok();
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        or_reply!(self.tree.remove(parent, name, true), reply);
        reply.ok();
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let owner = (req.uid(), req.gid());
        let made = self
            .tree
            .make(parent, name, FileType::RegularFile, mode & !umask, owner);
        let node = or_reply!(made, reply);
        let attr = node.attr();
        reply.created(&TTL, &attr, Generation(0), self.opened(node), open_flags());
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let node = or_reply!(self.tree.node(ino), reply);
        or_reply!(node.bytes(), reply);
        reply.opened(self.opened(node), open_flags());
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let node = or_reply!(self.handle(fh), reply);
        or_reply!(node.bytes(), reply).read(offset, size as usize, |data| reply.data(data));
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let node = or_reply!(self.handle(fh), reply);
        or_reply!(node.bytes(), reply).write(offset, data);
        // A request is never larger than 16 MiB.
        reply.written(data.len() as u32);
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // With ENOSYS the kernel sends no further flushes: there is nothing to flush here.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.open.write().remove(&fh.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let node = or_reply!(self.tree.node(ino), reply);
        let names = or_reply!(node.names(), reply).read();
        // Inode numbers increase and are never reused: they are the cookies, and names may be removed
        // meanwhile.
        let mut entries: Vec<_> = names
            .iter()
            .filter(|(_, child)| child.ino().0 > offset)
            .collect();
        entries.sort_unstable_by_key(|(_, child)| child.ino().0);
        for (name, child) in entries {
            if reply.add(child.ino(), child.ino().0, child.file_type(), name) {
                break;
            }
        }
        drop(names);
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let plenty = 1 << 40;
        reply.statfs(plenty, plenty, plenty, plenty, plenty, 4096, 255, 4096);
    }
}
