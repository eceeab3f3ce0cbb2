//! The wire: bytes of the fuzzer's on a socket of a server, from the first one on; and, as a server's replies,
//! on a socket of a client. Neither waits for ever or answers with anything but an error.
//!
//! In odd inputs the bytes are frames with corrected checksums: a byte for the kind, two for the length of the
//! control part, and that part.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use slabfs_objstore::Addr;
use slabfs_objstore::checksum::crc32c;
use slabfs_objstore::wire::{
    Buffers, Call, Connection, Handler, Listener, Serving, VERSIONS, WireResult, serve,
};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

struct Echo;

impl Handler for Echo {
    fn handle(&self, call: Call<'_>) -> WireResult<()> {
        let control = call.control.to_vec();
        call.reply(&control, &[])
    }
}

struct Rig {
    socket: PathBuf,
    fake: UnixListener,
    fake_addr: Addr,
    _serving: Serving,
    _dir: TempDir,
}

impl Rig {
    fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        let socket = dir.path().join("server");
        let listener = Listener::bind(&Addr::Unix(socket.clone()), None).expect("a socket");
        let serving = serve(listener, std::sync::Arc::new(Echo)).expect("a server");
        let path = dir.path().join("fake");
        Self {
            socket,
            fake: UnixListener::bind(&path).expect("a socket"),
            fake_addr: Addr::Unix(path),
            _serving: serving,
            _dir: dir,
        }
    }

    fn to_server(&self, bytes: &[u8]) {
        let mut stream = UnixStream::connect(&self.socket).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // The server may have closed the connection already.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the server does not close the connection: {error}"),
        }
    }

    fn to_client(&self, bytes: &[u8]) {
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let until = Instant::now() + PATIENCE;
                let Ok(mut connection) = Connection::connect(&self.fake_addr, None, until) else {
                    return;
                };
                let mut buffers = Buffers::default();
                while connection.recv(&mut buffers, until, PATIENCE).is_ok() {}
            });
            let (mut stream, _) = self.fake.accept().expect("a client");
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(Shutdown::Write);
            client.join().expect("the client");
        });
    }
}

thread_local! {
    static RIG: RefCell<Rig> = RefCell::new(Rig::new());
}

/// A frame as in `docs/formats/wire.md`.
fn frame(version: u16, kind: u16, id: u64, control: &[u8]) -> Vec<u8> {
    let mut bytes = b"SLBW".to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&id.to_le_bytes());
    bytes.extend_from_slice(&(control.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    let head = if version == 0 { 0 } else { crc32c(&bytes) };
    bytes.extend_from_slice(&head.to_le_bytes());
    let crc = crc32c(&[&bytes, control].concat());
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(control);
    bytes
}

fn frames(mut data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Servers check the version after the handshake, clients after that.
    let (mut version, mut id) = (0, 0);
    while let [kind, low, high, rest @ ..] = data {
        let len = (usize::from(*low) | usize::from(*high) << 8).min(rest.len());
        let (control, tail) = rest.split_at(len);
        let opened = matches!(kind, 5..=0x7f);
        version = match opened || version == VERSIONS.1 {
            true => VERSIONS.1,
            false => 0,
        };
        let kind = u16::from(*kind) << if opened { 4 } else { 0 };
        id += 1;
        bytes.append(&mut frame(version, kind, id, control));
        data = tail;
    }
    bytes
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let bytes = match first & 1 {
        0 => rest.to_vec(),
        _ => frames(rest),
    };
    RIG.with_borrow(|rig| match first & 2 {
        0 => rig.to_server(&bytes),
        _ => rig.to_client(&bytes),
    });
}
