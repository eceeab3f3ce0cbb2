//! The FUSE operations that the benchmark causes, one function each, as short as possible. The kernel answers
//! the others itself: there is nothing to flush or to sync here.

use std::ffi::OsStr;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, FileHandle, FileType, Filesystem, Generation, INodeNo, KernelConfig, LockOwner,
    OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::settings::{TTL, init, open_flags};
use super::tree::Tree;

/// Replies with the error, or continues with the value.
macro_rules! or_reply {
    ($result:expr, $reply:expr) => {
        match $result {
            Ok(value) => value,
            Err(errno) => return $reply.error(errno),
        }
    };
}

const NO_HANDLE: FileHandle = FileHandle(0);

impl Filesystem for Tree {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        init(config);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let attr = or_reply!(Tree::lookup(self, parent, name), reply);
        reply.entry(&TTL, &attr, Generation(0));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let node = or_reply!(self.node(ino), reply);
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
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let node = or_reply!(self.node(ino), reply);
        let mtime = mtime.map(|time| match time {
            TimeOrNow::SpecificTime(time) => time,
            TimeOrNow::Now => SystemTime::now(),
        });
        reply.attr(&TTL, &node.set(mode, size, mtime));
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
        let made = self.make(parent, name, FileType::Directory, mode & !umask, owner);
        let attr = or_reply!(made, reply);
        reply.entry(&TTL, &attr, Generation(0));
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
        let made = self.make(parent, name, FileType::RegularFile, mode & !umask, owner);
        let attr = or_reply!(made, reply);
        reply.created(
            &TTL,
            &attr,
            Generation(0),
            NO_HANDLE,
            open_flags(self.pages()),
        );
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        or_reply!(self.remove(parent, name), reply);
        reply.ok();
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        or_reply!(self.remove(parent, name), reply);
        reply.ok();
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(NO_HANDLE, open_flags(self.pages()));
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let node = or_reply!(self.node(ino), reply);
        node.read(offset, size as usize, |data| reply.data(data));
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let node = or_reply!(self.node(ino), reply);
        for (at, (name, attr)) in (1..).zip(node.list()).skip(offset as usize) {
            if reply.add(attr.ino, at, attr.kind, &name) {
                break;
            }
        }
        reply.ok();
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let node = or_reply!(self.node(ino), reply);
        node.write(offset, data);
        // A request is never larger than 16 MiB.
        reply.written(data.len() as u32);
    }
}
