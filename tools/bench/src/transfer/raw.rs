//! The speed of sockets alone: two processes that send plain bytes from memory, or receive them into a buffer,
//! through Unix sockets with the buffer sizes of slabfs.
//!
//! A request is a letter and a number of bytes: `r` requests that many, `w` sends that many and is answered by
//! a letter when all of them have arrived. No files, checksums or metadata are involved.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{setsockopt, sockopt};

use crate::systems::spawn;

/// As in `objstore/src/wire/stream.rs`.
const SOCKET_BUFFER: usize = 2 << 20;
/// A server's receive buffer.
const BLOCK: usize = 1 << 20;

/// A process that sends and receives plain bytes.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RawArgs {
    /// Path of the socket
    socket: PathBuf,
    /// Bytes that it has to send
    bytes: usize,
}

/// Serves one connection until it is closed.
pub(crate) fn serve(args: &RawArgs) -> anyhow::Result<()> {
    end_on_request()?;
    let own = crate::load::buffer(args.bytes);
    let mut block = crate::load::buffer(BLOCK);
    let listener = UnixListener::bind(&args.socket).context("listening")?;
    println!("ready: {}", args.socket.display());
    let (mut stream, _) = listener.accept().context("accepting")?;
    set_up(&stream)?;
    let mut request = [0; 9];
    while read_or_end(&mut stream, &mut request)? {
        let mut left = u64::from_le_bytes(request[1..].try_into()?) as usize;
        match request[0] {
            b'r' => stream.write_all(own.get(..left).context("more than there is")?)?,
            b'w' => {
                while left > 0 {
                    let len = left.min(BLOCK);
                    stream.read_exact(&mut block[..len])?;
                    left -= len;
                }
                stream.write_all(b"w")?;
            }
            other => bail!("{other} is no request"),
        }
    }
    Ok(())
}

/// Lets the process end with status 0 on SIGTERM.
fn end_on_request() -> anyhow::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.thread_block().context("cannot block a signal")?;
    std::thread::Builder::new()
        .spawn(move || match signals.wait() {
            Ok(_) => std::process::exit(0),
            Err(errno) => eprintln!("slabfs-bench: waiting for a signal: {errno}"),
        })
        .context("cannot start the signal thread")?;
    Ok(())
}

/// False if the other side has closed.
fn read_or_end(stream: &mut UnixStream, into: &mut [u8]) -> anyhow::Result<bool> {
    let first = stream.read(into)?;
    if first > 0 {
        stream.read_exact(&mut into[first..])?;
    }
    Ok(first > 0)
}

fn set_up(stream: &UnixStream) -> anyhow::Result<()> {
    if setsockopt(stream, sockopt::SndBufForce, &SOCKET_BUFFER).is_err() {
        setsockopt(stream, sockopt::SndBuf, &SOCKET_BUFFER)?;
    }
    if setsockopt(stream, sockopt::RcvBufForce, &SOCKET_BUFFER).is_err() {
        setsockopt(stream, sockopt::RcvBuf, &SOCKET_BUFFER)?;
    }
    Ok(())
}

/// Connections to two such processes.
#[derive(Debug)]
pub(super) struct Raw {
    streams: [UnixStream; 2],
}

impl Raw {
    /// Starts the processes, each with half of `bytes` to send.
    pub(super) fn start(dir: &Path, bytes: usize) -> anyhow::Result<Raw> {
        let own = std::env::current_exe().context("finding this program")?;
        let connect = |number: usize| -> anyhow::Result<UnixStream> {
            let socket = dir.join(format!("raw{number}.sock"));
            let mut command = Command::new(&own);
            command.arg("raw").arg(&socket);
            command.arg((bytes / 2).to_string());
            spawn(command, "raw")?;
            let stream = UnixStream::connect(&socket).context("connecting")?;
            set_up(&stream)?;
            Ok(stream)
        };
        Ok(Raw {
            streams: [connect(0)?, connect(1)?],
        })
    }

    /// Fills the buffers, alternately from both.
    pub(super) fn read<B: AsMut<[u8]> + Send>(
        &mut self,
        buffers: &mut [B],
    ) -> anyhow::Result<Duration> {
        self.both(buffers, |stream, own| {
            let bytes = own.iter_mut().map(|buffer| buffer.as_mut().len()).sum();
            request(stream, b'r', bytes)?;
            for buffer in own {
                stream.read_exact(buffer.as_mut())?;
            }
            Ok(())
        })
    }

    /// Sends the buffers, alternately to both, and waits until all have arrived.
    pub(super) fn write<B: AsMut<[u8]> + Send>(
        &mut self,
        buffers: &mut [B],
    ) -> anyhow::Result<Duration> {
        self.both(buffers, |stream, own| {
            let bytes = own.iter_mut().map(|buffer| buffer.as_mut().len()).sum();
            request(stream, b'w', bytes)?;
            for buffer in own {
                stream.write_all(buffer.as_mut())?;
            }
            stream.read_exact(&mut [0])?;
            Ok(())
        })
    }

    fn both<B: Send>(
        &mut self,
        buffers: &mut [B],
        job: impl Fn(&mut UnixStream, &mut [B]) -> anyhow::Result<()> + Sync,
    ) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let half = buffers.len().div_ceil(2);
        let job = &job;
        let (first, second) = buffers.split_at_mut(half);
        let [one, other] = &mut self.streams;
        std::thread::scope(|threads| {
            let next_to = threads.spawn(move || job(other, second));
            let own = job(one, first);
            let next_to = match next_to.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            own.and(next_to)
        })?;
        Ok(begun.elapsed())
    }
}

fn request(stream: &mut UnixStream, what: u8, bytes: usize) -> anyhow::Result<()> {
    let mut request = [what; 9];
    request[1..].copy_from_slice(&(bytes as u64).to_le_bytes());
    Ok(stream.write_all(&request)?)
}
