//! The implementation of fuser's `Filesystem` trait: unpacks each request and calls the operation's file under `ops`.
//!
//! [`SlabFs::run`] is for operations that ask the metadata service: inline if that is in this process, on the pool
//! otherwise. Reads, writes, flushes and syncs choose their thread in their own files. Every handler runs inside
//! [`guarded`].

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, INodeNo, IoctlFlags,
    KernelConfig, LkFlags, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, RequestId, TimeOrNow, WriteFlags,
};

use super::errno::{end, end_inode};
use super::guard::{guarded, tried};
use super::interrupts::Awaited;
use super::ops;
use super::ops::make::Made;
use super::pool::Pool;
use super::shared::{Caller, Shared};
use crate::client::for_thread;

/// The filesystem as fuser sees it.
pub(super) struct SlabFs {
    shared: Arc<Shared>,
}

impl SlabFs {
    pub(super) fn new(shared: Arc<Shared>) -> SlabFs {
        SlabFs { shared }
    }

    /// Runs an operation on this thread if it can wait only for this process, else on the pool, as soon as the session with the shard
    /// that has `inode` is not lapsed.
    fn run(
        &self,
        what: &'static str,
        inode: INodeNo,
        operation: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) {
        if self.shared.client.is_same_host() {
            guarded(what, || operation(&self.shared));
        } else {
            self.hand_over((what, inode), &self.shared.pool, operation);
        }
    }

    /// [`SlabFs::run`] for operations that change names or attributes, and may have to wait until other mounts have
    /// given up cached ones.
    fn run_on_names(
        &self,
        what: &'static str,
        inode: INodeNo,
        operation: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) {
        match self.shared.client.shared() {
            true => self.hand_over((what, inode), &self.shared.waits, operation),
            false => self.run(what, inode, operation),
        }
    }

    /// [`SlabFs::run`] for operations that touch bytes of an object, and may have to wait for a right, even if that
    /// is not visible yet.
    fn run_on_bytes(
        &self,
        what: &'static str,
        inode: INodeNo,
        operation: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) {
        if self.shared.client.strict() || self.shared.families.any_was_mapped() {
            self.hand_over((what, inode), &self.shared.waits, operation);
        } else {
            self.run(what, inode, operation);
        }
    }

    /// Creates an entry and replies with it.
    fn make(
        &self,
        what: &'static str,
        request: &Request,
        (parent, name): (INodeNo, &OsStr),
        made: Made,
        reply: ReplyEntry,
    ) {
        let (caller, name) = (Caller::of(request), bytes(name));
        self.run_on_names(what, parent, move |shared| {
            let made = ops::make::make(shared, caller, parent.0, &name, made);
            ops::lookup::give(shared, (what, parent.0), made, reply);
        });
    }

    fn hand_over(
        &self,
        (what, inode): (&'static str, INodeNo),
        pool: &Pool,
        operation: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) {
        let shared = self.shared.clone();
        pool.submit(Box::new(move || {
            if let Err(error) = shared.client.wait_alive(shared.nodes.about(inode.0)) {
                // The operation fails by itself, and has an errno for it.
                tracing::debug!(what, %error, "the operation starts all the same");
            }
            operation(&shared);
        }));
    }
}

fn bytes(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

impl Filesystem for SlabFs {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        ops::init::negotiate(config, self.shared.client.strict());
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (caller, name) = (Caller::of(request), bytes(name));
        let shared = &self.shared;
        let reply = tried("lookup", || {
            ops::lookup::answer_from_memory(shared, parent.0, &name, reply)
        });
        let Some(reply) = reply else { return };
        self.run("lookup", parent, move |shared| {
            ops::lookup::answer(shared, caller, parent.0, name, reply);
        });
    }

    fn forget(&self, _request: &Request, inode: INodeNo, lookups: u64) {
        guarded("forget", || {
            // Inodes of the metadata service need no lookup count here.
            self.shared.nodes.forget(inode.0, lookups)
        });
    }

    fn getattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let shared = &self.shared;
        let reply = tried("getattr", || {
            ops::getattr::answer_from_memory(shared, inode.0, reply)
        });
        let Some(reply) = reply else { return };
        if inode == INodeNo::ROOT {
            let Some(asked) = tried("getattr", || shared.ask_for_root(reply)) else {
                return;
            };
            return self.run("getattr", inode, move |shared| {
                ops::getattr::answer_root(shared, asked);
            });
        }
        self.run("getattr", inode, move |shared| {
            ops::getattr::answer(shared, inode.0, reply);
        });
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wanted = ops::setattr::Wanted {
            mode,
            uid,
            gid,
            size,
            atime,
            mtime,
            handle: handle.map(|handle| handle.0),
        };
        let caller = Caller::of(request);
        let set = move |shared: &Arc<Shared>| {
            ops::setattr::answer(shared, caller, inode.0, wanted, reply);
        };
        match size {
            Some(_) => self.run_on_bytes("setattr", inode, set),
            None => self.run_on_names("setattr", inode, set),
        }
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        self.run("readlink", inode, move |shared| {
            ops::readlink::answer(shared, inode.0, reply);
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let made = Made::Node { mode, rdev };
        self.make("mknod", request, (parent, name), made, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = Made::Directory { mode };
        self.make("mkdir", request, (parent, name), made, reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = bytes(name);
        self.run_on_names("unlink", parent, move |shared| {
            let done = ops::remove::unlink(shared, parent.0, &name);
            end("unlink", parent.0, done, reply);
        });
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = bytes(name);
        self.run_on_names("rmdir", parent, move |shared| {
            let done = ops::remove::rmdir(shared, parent.0, &name);
            end("rmdir", parent.0, done, reply);
        });
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = bytes(target.as_os_str());
        let made = Made::Symlink { target };
        self.make("symlink", request, (parent, name), made, reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (name, new_name) = (bytes(name), bytes(new_name));
        self.run_on_names("rename", parent, move |shared| {
            let (from, to) = ((parent.0, &name[..]), (new_parent.0, &new_name[..]));
            let done = ops::rename::rename(shared, from, to, flags);
            end("rename", parent.0, done, reply);
        });
    }

    fn link(
        &self,
        _request: &Request,
        inode: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let name = bytes(new_name);
        self.run_on_names("link", inode, move |shared| {
            let linked = ops::link::link(shared, inode.0, new_parent.0, &name);
            ops::lookup::give(shared, ("link", inode.0), linked, reply);
        });
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let caller = Caller::of(request);
        let open = move |shared: &Arc<Shared>| {
            for_thread(caller.pid, || {
                ops::open::answer(shared, caller, inode.0, flags, reply);
            });
        };
        match ops::open::answers_locally(&self.shared, inode.0) {
            true => guarded("open", || open(&self.shared)),
            false => self.run("open", inode, open),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (caller, name, flags) = (Caller::of(request), bytes(name), OpenFlags(flags));
        self.run_on_names("create", parent, move |shared| {
            for_thread(caller.pid, || {
                ops::create::answer(shared, caller, parent.0, name, mode, flags, reply);
            });
        });
    }

    fn read(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let thread = (request.pid(), request.unique());
        let how = ops::read::How::new(flags, lock_owner, thread);
        guarded("read", || {
            ops::read::answer(&self.shared, inode.0, handle.0, offset, size, how, reply);
        });
    }

    fn write(
        &self,
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let how = ops::write::How::new(Caller::of(request), write_flags, flags);
        guarded("write", || {
            for_thread(request.pid(), || {
                ops::write::answer(&self.shared, handle.0, offset, data, how, reply);
            });
        });
    }

    fn flush(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        guarded("flush", || {
            ops::flush::answer(&self.shared, inode.0, handle.0, owner, reply)
        });
    }

    fn release(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        guarded("release", || {
            ops::release::answer(&self.shared, handle.0, reply)
        });
    }

    fn fsync(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        guarded("fsync", || {
            ops::fsync::answer(&self.shared, inode.0, handle.0, reply)
        });
    }

    fn readdir(
        &self,
        request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let caller = Caller::of(request);
        self.run("readdir", inode, move |shared| {
            ops::readdir::answer(shared, caller, inode.0, offset, reply);
        });
    }

    fn readdirplus(
        &self,
        request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let caller = Caller::of(request);
        self.run("readdirplus", inode, move |shared| {
            ops::readdirplus::answer(shared, caller, inode.0, offset, reply);
        });
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        guarded("fsyncdir", || {
            ops::fsyncdir::answer(&self.shared, inode.0, reply)
        });
    }

    fn getlk(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        first: u64,
        last: u64,
        typ: i32,
        pid: u32,
        flags: LkFlags,
        reply: ReplyLock,
    ) {
        let wanted = ops::setlk::Wanted {
            owner,
            first,
            last,
            typ,
            pid,
            flags,
        };
        let number = (request.unique().0, self.shared.client.lock_ticket());
        if !self
            .shared
            .interrupts
            .enter(number.0, Awaited::Lock(number.1))
        {
            return reply.error(Errno::EINTR);
        }
        self.run("getlk", inode, move |shared| {
            ops::getlk::answer(shared, number, (inode.0, handle.0), wanted, reply);
        });
    }

    fn setlk(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        first: u64,
        last: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        flags: LkFlags,
        reply: ReplyEmpty,
    ) {
        let wanted = ops::setlk::Wanted {
            owner,
            first,
            last,
            typ,
            pid,
            flags,
        };
        let number = (request.unique().0, self.shared.client.lock_ticket());
        if ops::setlk::may_wait(&wanted)
            && !self
                .shared
                .interrupts
                .enter(number.0, Awaited::Lock(number.1))
        {
            return reply.error(Errno::EINTR);
        }
        self.run("setlk", inode, move |shared| {
            ops::setlk::answer(shared, number, (inode.0, handle.0), wanted, sleep, reply);
        });
    }

    fn interrupt(&self, _request: &Request, unique: RequestId) {
        match self.shared.interrupts.interrupt(unique.0) {
            Some(Awaited::Lock(ticket)) => self.run("interrupt", INodeNo::ROOT, move |shared| {
                shared.client.interrupt_lock(ticket)
            }),
            // The wait itself continues, as that of a killed program.
            Some(Awaited::Data) => self.shared.end_waiting(unique),
            None => {}
        }
    }

    fn statfs(&self, _request: &Request, inode: INodeNo, reply: ReplyStatfs) {
        self.run("statfs", inode, move |shared| {
            ops::statfs::answer(shared, inode.0, reply);
        });
    }

    fn setxattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (name, value) = (bytes(name), value.to_vec());
        self.run_on_bytes("setxattr", inode, move |shared| {
            ops::setxattr::answer(shared, inode.0, &name, &value, flags, reply);
        });
    }

    fn getxattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        if let Some(errno) = ops::getxattr::known_absent(name.as_bytes()) {
            return reply.error(errno);
        }
        let name = bytes(name);
        self.run("getxattr", inode, move |shared| {
            ops::getxattr::answer(shared, inode.0, &name, size, reply);
        });
    }

    fn listxattr(&self, request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let caller = Caller::of(request);
        self.run("listxattr", inode, move |shared| {
            ops::listxattr::answer(shared, caller, inode.0, size, reply);
        });
    }

    fn removexattr(&self, _request: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = bytes(name);
        self.run_on_names("removexattr", inode, move |shared| {
            let done = ops::removexattr::remove(shared, inode.0, &name);
            end_inode("removexattr", inode.0, done, reply);
        });
    }

    fn fallocate(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        guarded("fallocate", || {
            let caller = Caller::of(request);
            let range = (offset, length);
            ops::fallocate::answer(&self.shared, caller, inode.0, handle.0, range, mode, reply);
        });
    }

    fn lseek(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.run_on_bytes("lseek", inode, move |shared| {
            ops::lseek::answer(shared, inode.0, handle.0, offset, whence, reply);
        });
    }

    fn copy_file_range(
        &self,
        request: &Request,
        inode_in: INodeNo,
        handle_in: FileHandle,
        offset_in: u64,
        _inode_out: INodeNo,
        handle_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let from = (handle_in.0, offset_in);
        let to = (handle_out.0, offset_out);
        guarded("copy_file_range", || {
            let caller = Caller::of(request);
            ops::copy_file_range::answer(&self.shared, caller, inode_in.0, from, to, len, reply);
        });
    }

    fn ioctl(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        flags: IoctlFlags,
        command: u32,
        data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        guarded("ioctl", || {
            // The handle of a directory is not one of this filesystem's.
            if flags.contains(IoctlFlags::FUSE_IOCTL_DIR) {
                return reply.error(Errno::ENOTTY);
            }
            ops::ioctl::answer(
                &self.shared,
                Caller::of(request),
                inode.0,
                handle.0,
                command,
                data,
                reply,
            );
        });
    }

    // After this error the kernel answers polls itself (files are always ready) and sends no more.
    fn poll(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    // There is no block device.
    fn bmap(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _block_size: u32,
        _block: u64,
        reply: ReplyBmap,
    ) {
        reply.error(Errno::ENOSYS);
    }
}
