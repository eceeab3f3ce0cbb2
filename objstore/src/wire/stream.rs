//! A unix or TCP stream socket as one type, set up the way slabfs uses it.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::{TcpStream, ToSocketAddrs},
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
pub(super) struct Stream {
    socket: OwnedFd,
    /// Possibly from another host; the peer authenticates with the shared key. Otherwise it is a unix socket: on this
    /// host, and the kernel reports the peer's user.
    is_tcp: bool,
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Stream {
        Stream {
            socket: stream.into(),
            is_tcp: false,
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        Stream {
            socket: stream.into(),
            is_tcp: true,
        }
    }
}

impl Stream {
    /// Connects, giving up at `until`.
    pub(super) fn connect(addr: &Addr, until: Instant) -> io::Result<Stream> {
        let stream = match addr {
            Addr::Unix(path) => Stream::from(connect_unix(path, until)?),
            Addr::Tcp(host) => Stream::from(connect_tcp(host, until)?),
        };
        stream.set_up()?;
        Ok(stream)
    }

    /// Options of both sides' sockets.
    pub(super) fn set_up(&self) -> io::Result<()> {
        let s = &self.socket;
        if self.is_tcp {
            socket::setsockopt(s, sockopt::TcpNoDelay, &true)?;
            // A vanished host is noticed after 25 s, both while it owes a reply and while it owes the acknowledgement
            // of sent data. Otherwise the kernel would retransmit for a quarter of an hour and, after a cut link is
            // restored, wait as long again as it was cut.
            socket::setsockopt(s, sockopt::TcpUserTimeout, &25_000)?;
            socket::setsockopt(s, sockopt::KeepAlive, &true)?;
            socket::setsockopt(s, sockopt::TcpKeepIdle, &10)?;
            socket::setsockopt(s, sockopt::TcpKeepInterval, &5)?;
            socket::setsockopt(s, sockopt::TcpKeepCount, &3)?;
            return Ok(());
        }
        // Forced buffers need privileges; plain ones are cut to the system's limit. Either way the stream works, only
        // faster or slower.
        if socket::setsockopt(s, sockopt::SndBufForce, &UNIX_BUFFER).is_err() {
            socket::setsockopt(s, sockopt::SndBuf, &UNIX_BUFFER)?;
        }
        if socket::setsockopt(s, sockopt::RcvBufForce, &UNIX_BUFFER).is_err() {
            socket::setsockopt(s, sockopt::RcvBuf, &UNIX_BUFFER)?;
        }
        Ok(())
    }

    /// The user at the other end of a unix stream; `None` for TCP.
    pub(super) fn peer_uid(&self) -> io::Result<Option<u32>> {
        if self.is_tcp {
            return Ok(None);
        }
        let peer = socket::getsockopt(&self.socket, sockopt::PeerCredentials)?;
        Ok(Some(peer.uid()))
    }

    /// Ends one or both directions, and wakes every thread that blocks in a read or write on it.
    pub(super) fn shutdown(&self, how: socket::Shutdown) {
        // The only error is that the peer closed first.
        let _ = socket::shutdown(self.fd(), how);
    }

    pub(super) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        let timeout = time_of(timeout);
        Ok(socket::setsockopt(
            &self.socket,
            sockopt::ReceiveTimeout,
            &timeout,
        )?)
    }

    pub(super) fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        let timeout = time_of(timeout);
        Ok(socket::setsockopt(
            &self.socket,
            sockopt::SendTimeout,
            &timeout,
        )?)
    }

    pub(super) fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        Ok(nix::unistd::read(&self.socket, out)?)
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
        self.socket.as_raw_fd()
    }

    pub(super) fn read_vectored(&self, out: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let most = out.len().min(MOST_SLICES);
        Ok(nix::sys::uio::readv(&self.socket, &mut out[..most])?)
    }

    /// Sends some of the next `len` bytes of a file, and advances `at`.
    pub(super) fn send_file(&self, file: &File, at: &mut i64, len: usize) -> io::Result<usize> {
        Ok(sendfile64(&self.socket, file, Some(at), len)?)
    }

    /// Whether the peer may be on another host.
    pub(super) fn is_tcp(&self) -> bool {
        self.is_tcp
    }

    /// Sends a beginning of `data`, and with it all of `files`, at most [`MAX_FILES`].
    pub(super) fn write_with_files(
        &self,
        data: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> io::Result<usize> {
        if self.is_tcp {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut with_it = SendAncillaryBuffer::new(&mut space);
        if !with_it.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(sendmsg(
            &self.socket,
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
        if self.is_tcp {
            return self.read(out);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut with_it = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(out)];
        let got = recvmsg(
            &self.socket,
            &mut slices,
            &mut with_it,
            RecvFlags::CMSG_CLOEXEC,
        )?;
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

/// A timeout for the kernel, which treats zero as unlimited.
fn time_of(wait: Duration) -> TimeVal {
    let micros = i64::from(wait.subsec_micros());
    match wait.as_secs() {
        0 => TimeVal::new(0, micros.max(1)),
        seconds => TimeVal::new(seconds as i64, micros),
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
    let timeout = time_of(left(until)?);
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
