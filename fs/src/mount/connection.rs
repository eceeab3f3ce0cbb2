//! The control files of a FUSE connection in `fusectl`: they report its pending requests, and abort it.
//!
//! They are in `/sys/fs/fuse/connections`, where systemd mounts `fusectl`, and belong to the user who mounted. Where
//! that is not mounted, root reaches them through a detached mount of `fusectl`, which only this process sees and
//! which lasts as long as the file descriptor.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::page_writes::PageWrites;

/// The usual mount point of `fusectl`.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// How often the number of pending requests is polled: the kernel does not notify of its changes.
const LOOK: Duration = Duration::from_millis(2);
/// If the kernel sends no page for this long, and none is being written, it has no more to send.
const STILL: Duration = Duration::from_millis(200);
/// The longest wait, however many pages the kernel still sends.
const LONGEST: Duration = Duration::from_secs(30);

/// The control files of a connection.
pub(super) struct Connection {
    dir: OwnedFd,
}

impl Connection {
    /// The control files of the mount on this device (`MAJOR:MINOR`).
    pub(super) fn of(device: &str) -> io::Result<Connection> {
        let (_, minor) = (device.split_once(':'))
            .ok_or_else(|| io::Error::other(format!("{device} is no device")))?;
        let dir = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let usual = Path::new(CONNECTIONS).join(minor);
        let dir = match openat(CWD, &usual, dir, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => openat(control()?, minor, dir, Mode::empty())?,
            other => other?,
        };
        Ok(Connection { dir })
    }

    fn open(&self, name: &str, flags: OFlags) -> io::Result<File> {
        Ok(openat(&self.dir, name, flags | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    /// The number of pending requests, including those that no thread has read yet.
    fn waiting(&self) -> io::Result<u64> {
        let mut text = String::new();
        self.open("waiting", OFlags::RDONLY)?
            .read_to_string(&mut text)?;
        let number = text.trim().parse();
        number.map_err(|_| io::Error::other(format!("\"{}\" requests", text.trim())))
    }

    /// Returns when the kernel has sent all pages whose write-back it had begun: either no request is pending, or the
    /// pending ones are of other kinds, from programs that still run or wait for a lock.
    pub(super) fn wait_for_pages(&self, pages: &PageWrites) -> io::Result<()> {
        let begun = Instant::now();
        let mut moved = begun;
        let mut before = pages.came();
        while self.waiting()? > 0 {
            let (now, came) = (Instant::now(), pages.came());
            if came != before || pages.are_under_way() {
                (before, moved) = (came, now);
            }
            if now - moved > STILL {
                break;
            }
            if now - begun > LONGEST {
                return Err(io::Error::other("pages are written back for too long"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Aborts the connection: every request on it fails from now on.
    pub(super) fn abort(&self) -> io::Result<()> {
        self.open("abort", OFlags::WRONLY)?.write_all(b"1")
    }
}

/// A detached mount of `fusectl`.
fn control() -> io::Result<OwnedFd> {
    let opened = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&opened)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(&opened, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
