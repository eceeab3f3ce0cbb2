//! The speed of sockets alone: two threads that send plain bytes from memory, or receive them into a buffer,
//! through Unix sockets with the buffer sizes of slabfs. No files, checksums or metadata are involved.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use crate::memory::buffer;

/// As in `objstore/src/wire/stream.rs`.
const SOCKET_BUFFER: usize = 2 << 20;
/// A server's receive buffer.
const BLOCK: usize = 1 << 20;

/// A connection: this side, the other side, and the other side's memory.
struct Connection {
    here: UnixStream,
    there: UnixStream,
    memory: Vec<u8>,
}

/// Two connections.
pub(super) struct Raw {
    connections: [Connection; 2],
}

impl Raw {
    /// The other sides have `bytes` to send, together.
    pub(super) fn new(bytes: usize) -> anyhow::Result<Raw> {
        let connect = || -> anyhow::Result<Connection> {
            let (here, there) = UnixStream::pair()?;
            set_up(&here)?;
            set_up(&there)?;
            let memory = buffer(bytes / 2);
            Ok(Connection {
                here,
                there,
                memory,
            })
        };
        Ok(Raw {
            connections: [connect()?, connect()?],
        })
    }

    /// Fills the buffers, half of them from each connection.
    pub(super) fn read<B>(&mut self, buffers: &mut [B]) -> anyhow::Result<Duration>
    where
        B: AsMut<[u8]> + Send,
    {
        self.both(
            buffers,
            |stream, buffer| stream.read_exact(buffer),
            |stream, memory, bytes| stream.write_all(&memory[..bytes]),
        )
    }

    /// Sends the buffers, half of them through each connection, and waits until all have arrived.
    pub(super) fn write<B>(&mut self, buffers: &mut [B]) -> anyhow::Result<Duration>
    where
        B: AsMut<[u8]> + Send,
    {
        self.both(
            buffers,
            |stream, buffer| stream.write_all(buffer),
            |stream, memory, mut bytes| {
                while bytes > 0 {
                    let len = bytes.min(BLOCK);
                    stream.read_exact(&mut memory[..len])?;
                    bytes -= len;
                }
                Ok(())
            },
        )
    }

    fn both<B: AsMut<[u8]> + Send>(
        &mut self,
        buffers: &mut [B],
        here: fn(&mut UnixStream, &mut [u8]) -> io::Result<()>,
        there: fn(&mut UnixStream, &mut [u8], usize) -> io::Result<()>,
    ) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let half = buffers.len().div_ceil(2);
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (connection, own) in self.connections.iter_mut().zip(buffers.chunks_mut(half)) {
                let bytes = own.iter_mut().map(|buffer| buffer.as_mut().len()).sum();
                let (stream, memory) = (&mut connection.there, &mut connection.memory);
                threads.push(scope.spawn(move || there(stream, memory, bytes)));
                let (stream, mut own) = (&mut connection.here, own.iter_mut());
                threads.push(
                    scope.spawn(move || own.try_for_each(|buffer| here(stream, buffer.as_mut()))),
                );
            }
            threads.into_iter().try_for_each(|thread| {
                let ended = thread.join();
                ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        Ok(begun.elapsed())
    }
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
