//! Garbage on a server's socket: that connection ends, and nothing else is affected.

use std::io::{IoSlice, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use slabfs_objstore::checksum::crc32c;
use slabfs_objstore::wire::{Buffers, Connection, Key, VERSIONS};
use slabfs_tests::{Cluster, Random, file, needs_mount, poll, slabfs};

/// How long a server may take to close a connection with garbage.
const PATIENCE: Duration = Duration::from_secs(60);

/// A header as in `docs/formats/wire.md`, with any lengths and a wrong checksum.
fn header(kind: u16, control: u32, payload: u32) -> Vec<u8> {
    let mut bytes = b"SLBW".to_vec();
    bytes.extend(0_u16.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(7_u64.to_le_bytes());
    bytes.extend(control.to_le_bytes());
    bytes.extend(payload.to_le_bytes());
    bytes.extend([0; 8]);
    bytes
}

/// Sends bytes and waits until the server closes the connection.
fn ends(address: &str, bytes: &[u8]) {
    let path = address.trim_start_matches("unix:");
    let mut stream = UnixStream::connect(path).expect("the socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // The server may close before it has read all of it.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection does not end: {error}"),
    }
    assert!(answer.len() < 4096, "garbage is not answered at length");
}

#[test]
fn garbage_ends_its_connection_only() {
    needs_mount!();
    let cluster = Cluster::start(1, 1);
    let path = cluster.at(0, "f");
    file::write(&path, vec![7; 300_000]);
    let mut random = Random::new(91);
    let mut garbage = vec![
        random.bytes(10_000),
        vec![0; 1000],
        vec![0xff; 64],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"SLBW".repeat(50),
        header(1, 36, 0),
        header(1, u32::MAX, u32::MAX),
        header(1, 0, 64 << 20),
        header(1, 16 << 20, 0),
        header(0x0101, 1 << 30, 0),
    ];
    for frame in &mut garbage[5..] {
        frame.extend(random.bytes(5000));
    }
    for address in [
        cluster.md_addr().to_owned(),
        cluster.server_addr(0).to_owned(),
    ] {
        for bytes in &garbage {
            ends(&address, bytes);
        }
    }
    assert_eq!(file::read(&path), vec![7; 300_000]);
    file::write(&cluster.at(0, "after"), "works");
    for service in [cluster.md(), cluster.server(0)] {
        let log = service.log();
        assert!(!log.contains("panicked"), "{log}");
        assert!(
            log.contains("WARN") || log.contains("not a slabfs frame"),
            "the log reports it:\n{log}"
        );
        let (_, most) = service.memory();
        assert!(most < 400 << 20, "{most} bytes for lengths in a header");
    }
}

/// The same after a valid handshake: kinds, controls and lengths that make no sense.
#[test]
fn garbage_from_an_authenticated_client() {
    needs_mount!();
    for tcp in [false, true] {
        let cluster = if tcp {
            Cluster::tcp(1, 1)
        } else {
            Cluster::start(1, 1)
        };
        let key = cluster.key().map(|path| Key::load(path).expect("the key"));
        let path = cluster.at(0, "f");
        file::write(&path, vec![7; 300_000]);
        let mut random = Random::new(92);
        for address in [
            cluster.md_addr().to_owned(),
            cluster.server_addr(0).to_owned(),
        ] {
            let address = address.parse().expect("an address");
            let deadline = || Instant::now() + PATIENCE;
            for round in 0..60 {
                let mut connection =
                    Connection::connect(&address, key.as_ref(), deadline()).expect("it listens");
                let kind = if round % 3 == 0 {
                    random.number() as u16
                } else {
                    0x0100 + random.range(0, 16) as u16
                };
                let len = random.range(0, 300) as usize;
                let control = match round % 4 {
                    // Numbers that are enormous as lengths in postcard.
                    0 => [vec![0xff; 9], vec![1]].concat().repeat(3),
                    1 => vec![0; len],
                    _ => random.bytes(len),
                };
                let payload_len = random.range(0, 2000) as usize;
                let payload = random.bytes(payload_len);
                if connection
                    .send(kind, 1, &control, &[IoSlice::new(&payload)], deadline())
                    .is_err()
                {
                    continue;
                }
                // The reply is an error, a fault or the end, each in time, and the server survives all of them.
                let mut buffers = Buffers::default();
                let answer = connection
                    .recv(&mut buffers, deadline(), PATIENCE)
                    .map(|frame| frame.kind);
                if let Err(error) = &answer {
                    assert!(
                        !error.to_string().contains("deadline"),
                        "kind {kind:#x}: {error}"
                    );
                }
            }
        }
        assert_eq!(file::read(&path), vec![7; 300_000]);
        file::write(&cluster.at(0, "after"), "works");
        for service in [cluster.md(), cluster.server(0)] {
            assert!(!service.log().contains("panicked"), "{}", service.log());
        }
    }
}

/// A client that connects and sends nothing, or stops in the middle of a request, does not block others.
#[test]
fn a_silent_client_does_not_block_others() {
    needs_mount!();
    let cluster = Cluster::start(1, 1);
    let mut silent = Vec::new();
    for address in [cluster.md_addr(), cluster.server_addr(0)] {
        for sent in [0, 3, 31] {
            let mut stream =
                UnixStream::connect(address.trim_start_matches("unix:")).expect("the socket");
            stream.write_all(&header(1, 36, 0)[..sent]).expect("sent");
            silent.push(stream);
        }
    }
    for i in 0..50 {
        file::write(&cluster.at(0, format!("f{i}")), vec![i; 10_000]);
    }
    poll::until_true("a read", || {
        file::read(&cluster.at(0, "f49")) == vec![49; 10_000]
    });
    drop(silent);
}

/// An opening frame, as in `docs/formats/wire.md`.
fn opening(kind: u16, control: &[u8]) -> Vec<u8> {
    let mut frame = header(kind, control.len() as u32, 0);
    let sum = crc32c(&[&frame[..28], control].concat());
    frame[28..].copy_from_slice(&sum.to_le_bytes());
    frame.extend(control);
    frame
}

/// Processes of different versions of slabfs: both versions are named, to whichever of them the user looks.
#[test]
fn processes_of_different_versions() {
    needs_mount!();
    let cluster = Cluster::start(1, 0);
    let hello = [&1_u16.to_le_bytes()[..], &2_u16.to_le_bytes(), &[0; 32]].concat();
    for address in [cluster.md_addr(), cluster.server_addr(0)] {
        let mut stream = UnixStream::connect(address.trim_start_matches("unix:")).expect("listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(&opening(1, &hello)).expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("a refusal");
        let text = String::from_utf8_lossy(&answer);
        let said = format!("speaks 1 to 2, the server {} to {}", VERSIONS.0, VERSIONS.1);
        assert!(
            text.contains(&said) && text.contains("one version"),
            "{text}"
        );
    }
    let said = "the client speaks 1 to 2, the server";
    poll::until_true("the log", || cluster.md().log().contains(said));

    // A server of another version, which says so.
    let said = "no common protocol version: the client speaks 11 to 11, the server 1 to 2";
    let socket = cluster.area().at("other.s");
    let listener = UnixListener::bind(&socket).expect("a socket");
    std::thread::spawn(move || {
        let refusal = opening(5, &[&0_u16.to_le_bytes()[..], said.as_bytes()].concat());
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            stream.read_exact(&mut [0; 32 + 36]).expect("HELLO");
            stream.write_all(&refusal).expect("sent");
        }
    });
    let addr = format!("unix:{}", socket.display());
    let mnt = cluster.area().mkdir("other").display().to_string();
    slabfs(["mount", "--md", &addr, &mnt]).fails(1, &[said]);
    let data = cluster.area().at("other-os").display().to_string();
    let listen = format!("unix:{}", cluster.area().at("other-os.s").display());
    let args = [
        "objserver",
        "--md",
        &addr,
        "--listen",
        &listen,
        "--data",
        &data,
    ];
    slabfs(args).fails(1, &[said]);
}
