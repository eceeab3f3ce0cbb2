//! `/dev/fuse`, mounting and detaching.
//!
//! slabfs mounts by itself, and hands fuser the open device. fuser's own unmount detaches whatever is mounted at the
//! path by then, which may be another mount, and its errors say little. With the privilege to mount (root), slabfs
//! uses `mount(2)`; without it the helper `fusermount3` mounts, and sends the device back over a socket.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::Command;

use nix::mount::{MntFlags, MsFlags};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, socketpair,
};

use super::error::MountError;
use super::options::MountOptions;

/// The device of all FUSE filesystems.
const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// The filesystem type that `mount` and `df` show.
const KIND: &str = "fuse.slabfs";

/// How a mount is detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// Only if it is not in use.
    Unused,
    /// Detached from the path at once; programs that still use it continue.
    Lazily,
    /// Detached at once; programs that still use it get errors.
    Forced,
}

/// Mounts at `point` and returns the device to serve.
pub(super) fn attach(point: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let device = open_device()?;
    let mut flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
    if options.read_only {
        flags |= MsFlags::MS_RDONLY;
    }
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},{}",
        device.as_raw_fd(),
        nix::unistd::getuid(),
        nix::unistd::getgid(),
        shared_options(options),
    );
    let source = Some(options.fsname.as_str());
    match nix::mount::mount(source, point, Some(KIND), flags, Some(data.as_str())) {
        Ok(()) => Ok(device.into()),
        Err(nix::errno::Errno::EPERM) => {
            drop(device);
            attach_by_helper(point, options)
        }
        Err(errno) => Err(MountError::Refused {
            point: point.to_path_buf(),
            reason: errno.into(),
        }),
    }
}

fn open_device() -> Result<File, MountError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(DEVICE)
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => MountError::NoDevice,
            _ => MountError::DeviceDenied { reason: error },
        })
}

fn shared_options(options: &MountOptions) -> &'static str {
    if options.allow_other {
        "default_permissions,allow_other"
    } else {
        "default_permissions"
    }
}

/// Mounts through `fusermount3`, for users without the privilege: it gets one end of a socket and sends the device.
fn attach_by_helper(point: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let refused = |reason: io::Error| MountError::Refused {
        point: point.to_path_buf(),
        reason,
    };
    // Not closed on exec: the helper inherits its end under the same number.
    let (ours, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::Stream,
        None,
        SockFlag::empty(),
    )
    .map_err(|errno| refused(errno.into()))?;
    let access = if options.read_only { "ro" } else { "rw" };
    let text = format!(
        "{access},nosuid,nodev,{},fsname={},subtype=slabfs",
        shared_options(options),
        options.fsname.replace(',', "\\,"),
    );
    let helper = Command::new(HELPER)
        .args(["-o", &text, "--"])
        .arg(point)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => MountError::NoHelper,
            _ => refused(error),
        })?;
    drop(theirs);
    let received = receive_device(ours.as_raw_fd());
    let output = helper.wait_with_output().map_err(refused)?;
    match received {
        Ok(device) => Ok(device),
        Err(error) => {
            let message = String::from_utf8_lossy(&output.stderr).trim().to_string();
            Err(refused(if message.is_empty() {
                error
            } else {
                io::Error::other(message)
            }))
        }
    }
}

fn receive_device(socket: RawFd) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!(RawFd);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = loop {
        match recvmsg::<()>(socket, &mut parts, Some(&mut space), flags) {
            Err(nix::errno::Errno::EINTR) => {}
            other => break other?,
        }
    };
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control
            && let Some(&descriptor) = descriptors.first()
        {
            // SAFETY: the descriptor was just received, and nothing else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
    Err(io::Error::other(format!("{HELPER} sent no device")))
}

/// Unmounts what is mounted at `point`.
pub(super) fn detach(point: &Path, how: How) -> io::Result<()> {
    let flags = match how {
        How::Unused => MntFlags::empty(),
        How::Lazily => MntFlags::MNT_DETACH,
        How::Forced => MntFlags::MNT_DETACH | MntFlags::MNT_FORCE,
    };
    match nix::mount::umount2(point, flags) {
        Err(nix::errno::Errno::EPERM) => detach_by_helper(point, how),
        other => Ok(other?),
    }
}

fn detach_by_helper(point: &Path, how: How) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    command.args(["-u", "-q"]);
    if how != How::Unused {
        command.arg("-z");
    }
    let status = command.arg("--").arg(point).status()?;
    match (status.success(), how) {
        (true, _) => Ok(()),
        (false, How::Unused) => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        (false, _) => Err(io::Error::other(format!(
            "{HELPER} could not unmount: {status}"
        ))),
    }
}

/// Sets the kernel's read-ahead of mapped files to `kib` KiB; needs root.
pub(super) fn set_readahead(device: &str, kib: u32) {
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, kib.to_string()) {
        tracing::debug!(%error, path, "the kernel's read-ahead is left unchanged");
    }
}
