//! A unix or TCP stream socket as one type, set up the way slabfs uses it.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Read},
    mem::MaybeUninit,
    net::{Shutdown, TcpStream, ToSocketAddrs},
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::{Duration, Instant},
};

use nix::sys::{
    sendfile::sendfile64,
    socket::{self, AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, sockopt},
    time::TimeVal,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::frame::MAX_FILES;
use crate::addr::Addr;

/// Socket buffers of unix streams: a payload of 1 MiB leaves in one system call, and the peer sleeps
/// and wakes once for it. Measured so with 1 MiB requests: 9 GB/s each way, 10 µs for a small one.
/// The kernel doubles the number and, without privileges, cuts it at `net.core.wmem_max`.
const UNIX_BUFFER: usize = 2 << 20;

/// The most slices the kernel takes in one call (`IOV_MAX`).
const MOST_SLICES: usize = 1024;

/// The limit of one attempt to connect over TCP. The kernel retries after 1, 3, 7, 15 s: a restored link is noticed
/// sooner by a new attempt, which the caller makes.
const CONNECTING: Duration = Duration::from_secs(2);

/// A connected stream socket.
#[derive(Debug)]
pub(super) enum Stream {
    /// On this host; the kernel reports the peer's user.
    Unix(UnixStream),
    /// Possibly from another host; the peer authenticates with the shared key.
    Tcp(TcpStream),
}

impl Stream {
    /// Connects, giving up at `until`.
    pub(super) fn connect(addr: &Addr, until: Instant) -> io::Result<Stream> {
        let stream = match addr {
            Addr::Unix(path) => Stream::Unix(connect_unix(path, until)?),
            Addr::Tcp(host) => Stream::Tcp(connect_tcp(host, until)?),
        };
        stream.set_up()?;
        Ok(stream)
    }

    /// Options of both sides' sockets.
    pub(super) fn set_up(&self) -> io::Result<()> {
        match self {
            Stream::Unix(s) => {
                // Forced buffers need privileges; plain ones are cut to the system's limit. Either
                // way the stream works, only faster or slower.
                if socket::setsockopt(s, sockopt::SndBufForce, &UNIX_BUFFER).is_err() {
                    socket::setsockopt(s, sockopt::SndBuf, &UNIX_BUFFER)?;
                }
                if socket::setsockopt(s, sockopt::RcvBufForce, &UNIX_BUFFER).is_err() {
                    socket::setsockopt(s, sockopt::RcvBuf, &UNIX_BUFFER)?;
                }
            }
            Stream::Tcp(s) => {
                s.set_nodelay(true)?;
                // A vanished host is noticed after 25 s, both while it owes a reply and while it owes the
                // acknowledgement of sent data. Otherwise the kernel would retransmit for a quarter of an hour and,
                // after a cut link is restored, wait as long again as it was cut.
                socket::setsockopt(s, sockopt::TcpUserTimeout, &25_000)?;
                socket::setsockopt(s, sockopt::KeepAlive, &true)?;
                socket::setsockopt(s, sockopt::TcpKeepIdle, &10)?;
                socket::setsockopt(s, sockopt::TcpKeepInterval, &5)?;
                socket::setsockopt(s, sockopt::TcpKeepCount, &3)?;
            }
        }
        Ok(())
    }

    /// The user at the other end of a unix stream; `None` for TCP.
    pub(super) fn peer_uid(&self) -> io::Result<Option<u32>> {
        match self {
            Stream::Unix(s) => Ok(Some(socket::getsockopt(s, sockopt::PeerCredentials)?.uid())),
            Stream::Tcp(_) => Ok(None),
        }
    }

    /// Ends one or both directions, and wakes every thread that blocks in a read or write on it.
    pub(super) fn shutdown(&self, how: Shutdown) {
        // The only error is that the peer closed first.
        let _ = match self {
            Stream::Unix(s) => s.shutdown(how),
            Stream::Tcp(s) => s.shutdown(how),
        };
    }

    pub(super) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Stream::Unix(s) => s.set_read_timeout(Some(timeout)),
            Stream::Tcp(s) => s.set_read_timeout(Some(timeout)),
        }
    }

    pub(super) fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Stream::Unix(s) => s.set_write_timeout(Some(timeout)),
            Stream::Tcp(s) => s.set_write_timeout(Some(timeout)),
        }
    }

    pub(super) fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => (&mut &*s).read(out),
            Stream::Tcp(s) => (&mut &*s).read(out),
        }
    }

    /// Reads bytes that have arrived; `None` instead of waiting.
    pub(super) fn read_ready(&self, out: &mut [u8]) -> io::Result<Option<usize>> {
        match socket::recv(self.fd(), out, MsgFlags::MSG_DONTWAIT) {
            Ok(n) => Ok(Some(n)),
            Err(nix::errno::Errno::EAGAIN) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Waits as `read` does without taking bytes: returns how many there are, up to one.
    pub(super) fn await_byte(&self) -> io::Result<usize> {
        Ok(socket::recv(self.fd(), &mut [0], MsgFlags::MSG_PEEK)?)
    }

    fn fd(&self) -> RawFd {
        match self {
            Stream::Unix(s) => s.as_raw_fd(),
            Stream::Tcp(s) => s.as_raw_fd(),
        }
    }

    pub(super) fn read_vectored(&self, out: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => (&mut &*s).read_vectored(out),
            Stream::Tcp(s) => (&mut &*s).read_vectored(out),
        }
    }

    /// Sends some of the next `len` bytes of a file, and advances `at`.
    pub(super) fn send_file(&self, file: &File, at: &mut i64, len: usize) -> io::Result<usize> {
        Ok(match self {
            Stream::Unix(s) => sendfile64(s, file, Some(at), len)?,
            Stream::Tcp(s) => sendfile64(s, file, Some(at), len)?,
        })
    }

    /// Whether the peer may be on another host.
    pub(super) fn is_tcp(&self) -> bool {
        matches!(self, Stream::Tcp(_))
    }

    /// Whether file descriptors can be sent: the peer is on this host.
    pub(super) fn takes_files(&self) -> bool {
        matches!(self, Stream::Unix(_))
    }

    /// Sends a beginning of `data`, and with it all of `files`, at most [`MAX_FILES`].
    pub(super) fn write_with_files(
        &self,
        data: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> io::Result<usize> {
        let Stream::Unix(stream) = self else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut with_it = SendAncillaryBuffer::new(&mut space);
        if !with_it.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(sendmsg(
            stream,
            &[IoSlice::new(data)],
            &mut with_it,
            SendFlags::NOSIGNAL,
        )?)
    }

    /// Reads as `read` does, and takes file descriptors that come along; those above [`MAX_FILES`] are closed.
    pub(super) fn read_with_files(
        &self,
        out: &mut [u8],
        files: &mut Vec<OwnedFd>,
    ) -> io::Result<usize> {
        let Stream::Unix(stream) = self else {
            return self.read(out);
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut with_it = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(out)];
        let got = recvmsg(stream, &mut slices, &mut with_it, RecvFlags::CMSG_CLOEXEC)?;
        for message in with_it.drain() {
            if let RecvAncillaryMessage::ScmRights(own) = message {
                files.extend(own);
            }
        }
        Ok(got.bytes)
    }

    /// Without SIGPIPE for a closed peer, which would kill a program that is not written in Rust.
    pub(super) fn write_vectored(&self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        let some = &data[..data.len().min(MOST_SLICES)];
        let sent = socket::sendmsg::<()>(self.fd(), some, &[], MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(sent)
    }
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

/// Connects to a unix socket, also when its listener's queue is full for a while.
pub(super) fn connect_unix(path: &Path, until: Instant) -> io::Result<UnixStream> {
    // Not `UnixStream::connect`, which waits while the listener's queue is full; only a timeout set before bounds
    // that.
    let fd: OwnedFd = socket::socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let wait = left(until)?;
    let timeout = TimeVal::new(
        wait.as_secs() as i64,
        i64::from(wait.subsec_micros()).max(1),
    );
    socket::setsockopt(&fd, sockopt::SendTimeout, &timeout)?;
    socket::connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(fd))
}

fn connect_tcp(host: &str, until: Instant) -> io::Result<TcpStream> {
    let mut last = None;
    for addr in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&addr, left(until)?.min(CONNECTING)) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address")))
}
