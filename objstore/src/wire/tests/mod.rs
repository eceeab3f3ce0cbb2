//! Tests of the wire over real sockets: service, refusals, and damage on the way.

mod file_parts;
mod handing;
mod opening;
mod pools;
mod serving;
mod speed;

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{frame::Header, *};
use crate::addr::Addr;

const ECHO: u16 = 0x0200;
const PANIC: u16 = 0x0201;
const SILENT: u16 = 0x0202;
/// Answered after 300 ms.
const SLOW: u16 = 0x0203;

/// Sends back the request.
struct Echo;

impl Handler for Echo {
    fn handle(&self, call: Call<'_>) -> WireResult<()> {
        match call.kind {
            PANIC => panic!("as asked"),
            SILENT => Ok(()),
            SLOW => {
                std::thread::sleep(Duration::from_millis(300));
                call.reply(b"", &[])
            }
            ECHO => {
                let (control, payload) = (call.control, call.payload);
                call.reply.send(control, &[std::io::IoSlice::new(payload)])
            }
            other => call.reply.fault(&format!("unknown kind {other}")),
        }
    }
}

fn key(seed: u8) -> Key {
    Key::new(&[seed; 32]).unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// A directory with a socket path in it.
fn place() -> (tempfile::TempDir, Addr) {
    let dir = tempfile::tempdir().unwrap();
    let addr = Addr::Unix(dir.path().join("socket"));
    (dir, addr)
}

fn echo_at(addr: &Addr, options: ServeOptions) -> Serving {
    serve_with(
        Listener::bind(addr, Some(key(1))).unwrap(),
        Arc::new(Echo),
        options,
    )
    .unwrap()
}

/// Times short enough for a test.
fn short() -> ServeOptions {
    ServeOptions {
        transfer: Duration::from_millis(200),
        opening: Duration::from_millis(200),
        ..ServeOptions::default()
    }
}

fn pool(addr: &Addr) -> Pool {
    Pool::new(addr.clone(), Some(key(1)), Duration::from_secs(10))
}

fn echo(pool: &Pool, payload: &[u8]) -> WireResult<()> {
    let mut back = Vec::new();
    let control = pool.call(ECHO, b"ask", &[std::io::IoSlice::new(payload)], &mut back)?;
    assert_eq!(control, b"ask");
    assert!(back == payload, "the payload came back changed");
    Ok(())
}

/// A plain socket connected to a unix address.
fn raw(addr: &Addr) -> UnixStream {
    let Addr::Unix(path) = addr else {
        panic!("not a unix address")
    };
    let stream = UnixStream::connect(path).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream
}

/// The protocol version that is spoken.
const VERSION: u16 = frame::VERSIONS.1;

fn frame(version: u16, kind: u16, control: &[u8], payload: u32) -> Vec<u8> {
    let mut out = Vec::new();
    // Ids of requests increase on a connection; replies answer the first one of a pool.
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let id = match kind & REPLY {
        0 => NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
        _ => 1,
    };
    Header::encode(version, kind, id, control, (payload, false), &mut out);
    out
}

/// One frame's kind and control part from a plain socket; `None` if it was closed.
fn read_frame(stream: &mut impl Read) -> Option<(u16, Vec<u8>)> {
    let mut head = [0; 32];
    let mut got = 0;
    while got < head.len() {
        match stream.read(&mut head[got..]) {
            Ok(0) | Err(_) => return None,
            Ok(n) => got += n,
        }
    }
    let header = Header::decode(&head, MAX_CONTROL, MAX_PAYLOAD).unwrap();
    let mut control = vec![0; header.control as usize];
    stream.read_exact(&mut control).unwrap();
    Some((header.kind, control))
}

/// A plain socket on which the unix opening has been done. If the server is at its limit of connections this retries,
/// as clients do, within the read timeout.
fn opened(addr: &Addr) -> UnixStream {
    let mut hello = vec![VERSION as u8, 0, VERSION as u8, 0];
    hello.extend([7; 32]);
    let until = Instant::now() + Duration::from_secs(10);
    let mut stream = loop {
        let mut stream = raw(addr);
        stream
            .write_all(&frame(0, frame::kind::HELLO, &hello, 0))
            .unwrap();
        let (kind, control) = read_frame(&mut stream).unwrap();
        if kind == frame::kind::CHALLENGE {
            break stream;
        }
        assert_eq!((kind, &control[..2]), (frame::kind::REFUSE, &[1, 0][..]));
        assert!(Instant::now() < until, "there is no room");
        std::thread::yield_now();
    };
    assert_eq!(
        read_frame(&mut stream).unwrap(),
        (frame::kind::WELCOME, vec![])
    );
    stream
}

/// Whether the peer has closed this socket (within its read timeout).
fn closed(stream: &mut UnixStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
    }
}
