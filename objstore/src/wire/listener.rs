//! A listening socket, before it is served.

use std::{
    fs, io,
    net::TcpListener,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{FileTypeExt, MetadataExt, PermissionsExt},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    Key, WireError, WireResult,
    stream::{Stream, connect_unix},
};
use crate::addr::Addr;

/// A listening socket. The file of a unix socket is removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    addr: Addr,
    key: Option<Key>,
}

#[derive(Debug)]
enum Socket {
    Unix {
        listener: UnixListener,
        path: PathBuf,
        inode: u64,
    },
    Tcp(TcpListener),
}

impl Listener {
    /// Listens at `addr`. A unix socket is for its owner only (mode 0600; peers' users are checked as well), and a
    /// file left by a dead server is replaced. TCP is refused without a key. Port 0 takes a free one: see
    /// [`Listener::addr`].
    pub fn bind(addr: &Addr, key: Option<Key>) -> WireResult<Listener> {
        let fail = |doing| {
            let addr = addr.to_string();
            move |source: io::Error| match source.kind() {
                io::ErrorKind::AddrInUse => WireError::AddrInUse { addr },
                _ => WireError::Io {
                    addr,
                    doing,
                    source,
                },
            }
        };
        match addr {
            Addr::Unix(path) => {
                remove_stale(path).map_err(fail("looking for another server"))?;
                let listener = UnixListener::bind(path).map_err(fail("listening"))?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o600))
                    .map_err(fail("setting the mode"))?;
                let inode = fs::symlink_metadata(path).map_err(fail("listening"))?.ino();
                Ok(Listener {
                    socket: Socket::Unix {
                        listener,
                        path: path.clone(),
                        inode,
                    },
                    addr: addr.clone(),
                    key,
                })
            }
            Addr::Tcp(host) => {
                if key.is_none() {
                    return Err(WireError::Key(format!(
                        "listening on {addr} needs a shared key: make one (head -c 32 /dev/urandom | base64 > key; \
                         chmod 600 key) and give it with --key-file; or listen on a unix socket"
                    )));
                }
                let listener = TcpListener::bind(host.as_str()).map_err(fail("listening"))?;
                let port = listener.local_addr().map_err(fail("listening"))?.port();
                let name = host
                    .rsplit_once(':')
                    .map_or(host.as_str(), |(name, _)| name);
                let addr = Addr::Tcp(format!("{name}:{port}"));
                Ok(Listener {
                    socket: Socket::Tcp(listener),
                    addr,
                    key,
                })
            }
        }
    }

    /// The address it listens on, with the actual port.
    pub fn addr(&self) -> &Addr {
        &self.addr
    }

    pub(super) fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Waits for the next peer; returns an error after [`Listener::wake`].
    pub(super) fn accept(&self) -> io::Result<(Stream, String)> {
        match &self.socket {
            Socket::Unix { listener, path, .. } => {
                let (stream, _) = listener.accept()?;
                let peer = format!("a client of unix:{}", path.display());
                Ok((stream.into(), peer))
            }
            Socket::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                Ok((stream.into(), format!("tcp:{from}")))
            }
        }
    }

    /// Makes `accept` return, now and from now on (Linux: `shutdown` on a listening socket does).
    pub(super) fn wake(&self) -> io::Result<()> {
        let fd = match &self.socket {
            Socket::Unix { listener, .. } => listener.as_raw_fd(),
            Socket::Tcp(listener) => listener.as_raw_fd(),
        };
        Ok(nix::sys::socket::shutdown(
            fd,
            nix::sys::socket::Shutdown::Both,
        )?)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Socket::Unix { path, inode, .. } = &self.socket {
            // Only if it is still this listener's socket: another server may have replaced it.
            if fs::symlink_metadata(path).is_ok_and(|m| m.ino() == *inode)
                && let Err(e) = fs::remove_file(path)
            {
                tracing::warn!(path = %path.display(), "cannot remove the socket: {e}");
            }
        }
    }
}

/// Removes a socket without a server; returns `AddrInUse` if a server answers.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file is there that is not a socket",
            ));
        }
        Ok(_) => {}
    }
    match connect_unix(path, Instant::now() + Duration::from_secs(2)) {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "removing a stale socket: no server answers");
            fs::remove_file(path)
        }
        Err(e) => Err(e),
    }
}
