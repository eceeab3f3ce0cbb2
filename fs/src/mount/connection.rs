//! What the kernel says of a mount's connection, and how it is ended: the files of `fusectl`.
//!
//! They are where that is mounted (`/sys/fs/fuse/connections`, as systemd does), and belong to who mounted; as root they
//! are had elsewhere too, by a mount of it that only this process sees, and only as long as it looks.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where `fusectl` usually is.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Nobody is told when requests have come to their end: so often they are counted.
const LOOK: Duration = Duration::from_millis(2);
/// Requests of which none comes or ends for so long will not: their programs wait for locks.
const STILL: Duration = Duration::from_millis(500);
/// However many come and end, nobody waits for them longer.
const LONGEST: Duration = Duration::from_secs(30);

/// The files of a connection.
pub(super) struct Connection {
    dir: OwnedFd,
}

impl Connection {
    /// Those of the mount on this device (`MAJOR:MINOR`).
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

    /// Requests that have not ended, also those that no thread has taken yet.
    fn waiting(&self) -> io::Result<u64> {
        let mut text = String::new();
        self.open("waiting", OFlags::RDONLY)?
            .read_to_string(&mut text)?;
        let number = text.trim().parse();
        number.map_err(|_| io::Error::other(format!("\"{}\" requests", text.trim())))
    }

    /// Returns when all requests have ended, or nothing goes on any more; how many are left.
    pub(super) fn wait_for_requests(&self) -> io::Result<u64> {
        let begun = Instant::now();
        let mut changed = begun;
        let mut before = None;
        loop {
            let waiting = self.waiting()?;
            let now = Instant::now();
            if before != Some(waiting) {
                (before, changed) = (Some(waiting), now);
            }
            if waiting == 0 || now - changed > STILL || now - begun > LONGEST {
                return Ok(waiting);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Ends it: every request on it fails from now on.
    pub(super) fn abort(&self) -> io::Result<()> {
        self.open("abort", OFlags::WRONLY)?.write_all(b"1")
    }
}

/// `fusectl`, mounted nowhere.
fn control() -> io::Result<OwnedFd> {
    let opened = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&opened)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(&opened, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
