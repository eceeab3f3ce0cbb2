//! Tests of which connections are accepted, and of the reasons for refusals.

use std::{net::TcpListener, os::unix::fs::PermissionsExt, thread};

use super::*;

fn tcp() -> (Serving, Addr) {
    let serving = echo_at(&Addr::Tcp("127.0.0.1:0".into()), ServeOptions::default());
    let addr = serving.addr().clone();
    (serving, addr)
}

#[test]
fn tcp_with_the_key() {
    let (serving, addr) = tcp();
    let pool = pool(&addr);
    for len in [0, 1, 100, 8192, 8193, 3 << 20] {
        echo(&pool, &vec![5; len]).unwrap();
    }
    serving.stop();
}

#[test]
fn tcp_without_or_with_a_wrong_key() {
    let error = Listener::bind(&Addr::Tcp("127.0.0.1:0".into()), None)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("shared key") && error.contains("--key-file"),
        "{error}"
    );
    let (_serving, addr) = tcp();
    let error = Connection::connect(&addr, None, soon()).unwrap_err();
    assert!(error.to_string().contains("--key-file"), "{error}");
    let begun = Instant::now();
    let wrong = Pool::new(addr.clone(), Some(key(2)), Duration::from_secs(30));
    let error = echo(&wrong, b"").unwrap_err();
    assert!(matches!(error, WireError::Refused { .. }), "{error}");
    assert!(
        error.to_string().contains("same shared key")
            && error.to_string().contains(&addr.to_string()),
        "{error}"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "a wrong key is not worth a retry"
    );
    echo(&pool(&addr), b"the right one still works").unwrap();
}

/// The messages of an impostor to a client that has a key.
fn impostor(answer: impl FnOnce(&mut std::net::TcpStream) + Send + 'static) -> WireError {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = Addr::Tcp(listener.local_addr().unwrap().to_string());
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert_eq!(read_frame(&mut stream).unwrap().0, frame::kind::HELLO);
        answer(&mut stream);
        // Until the client has closed.
        while read_frame(&mut stream).is_some() {}
    });
    let error = Connection::connect(&addr, Some(&key(1)), soon()).unwrap_err();
    thread.join().unwrap();
    error
}

fn challenge(version: u16, flags: u16) -> Vec<u8> {
    let mut control = Vec::new();
    control.extend(version.to_le_bytes());
    control.extend(flags.to_le_bytes());
    control.extend([9; 32]);
    frame(0, frame::kind::CHALLENGE, &control, 0)
}

#[test]
fn clients_check_servers_too() {
    let error = impostor(|s| {
        s.write_all(&challenge(VERSION, 0)).unwrap();
        s.write_all(&frame(0, frame::kind::WELCOME, &[], 0))
            .unwrap();
    });
    assert!(
        error
            .to_string()
            .contains("does not ask for the shared key"),
        "{error}"
    );
    let error = impostor(|s| {
        s.write_all(&challenge(VERSION, 1)).unwrap();
        let (kind, proof) = read_frame(s).unwrap();
        assert_eq!(kind, frame::kind::PROOF);
        // The client's own proof does not serve as the server's.
        s.write_all(&frame(0, frame::kind::WELCOME, &proof, 0))
            .unwrap();
    });
    assert!(
        error
            .to_string()
            .contains("does not have the same shared key"),
        "{error}"
    );
    let other = VERSION + 1;
    let error = impostor(move |s| s.write_all(&challenge(other, 1)).unwrap());
    let text = error.to_string();
    assert!(text.contains(&format!("version {other}")), "{error}");
    let error = impostor(|s| {
        s.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n12345678")
            .unwrap()
    });
    assert!(matches!(error, WireError::Broken { .. }), "{error}");
}

#[test]
fn versions_without_overlap() {
    let (_dir, addr) = place();
    let _serving = echo_at(&addr, ServeOptions::default());
    let mut stream = raw(&addr);
    let version = VERSION as u8;
    let mut hello = vec![version + 1, 0, version + 3, 0];
    hello.extend([7; 32]);
    stream
        .write_all(&frame(0, frame::kind::HELLO, &hello, 0))
        .unwrap();
    let (kind, control) = read_frame(&mut stream).unwrap();
    assert_eq!(kind, frame::kind::REFUSE);
    let text = String::from_utf8(control[2..].to_vec()).unwrap();
    assert!(
        text.contains(&format!("speaks {} to {}", version + 1, version + 3))
            && text.contains(&format!("{version} to {version}")),
        "{text}"
    );
    assert!(closed(&mut stream));
    // A newer client that still speaks this version is welcome.
    let mut stream = raw(&addr);
    hello[..4].copy_from_slice(&[version - 1, 0, version + 2, 0]);
    stream
        .write_all(&frame(0, frame::kind::HELLO, &hello, 0))
        .unwrap();
    let (kind, control) = read_frame(&mut stream).unwrap();
    assert_eq!(
        (kind, &control[..4]),
        (frame::kind::CHALLENGE, &[version, 0, 0, 0][..])
    );
}

#[test]
fn unix_sockets_are_for_their_owner() {
    let (dir, addr) = place();
    let _serving = echo_at(&addr, ServeOptions::default());
    let Addr::Unix(path) = &addr else {
        unreachable!()
    };
    assert_eq!(
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    if !nix::unistd::geteuid().is_root() {
        // Only root can become another user; the rule itself has a test in `hello`.
        return;
    }
    for open in [path.as_path(), dir.path()] {
        std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let stranger = addr.clone();
    let error = thread::spawn(move || {
        // SAFETY: the plain system call changes the user of this thread only, which ends below.
        let set = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        assert_eq!(set, 0);
        let mut stream = raw(&stranger);
        let mut hello = vec![VERSION as u8, 0, VERSION as u8, 0];
        hello.extend([7; 32]);
        stream
            .write_all(&frame(0, frame::kind::HELLO, &hello, 0))
            .unwrap();
        let refused = read_frame(&mut stream).unwrap();
        assert!(closed(&mut stream));
        refused
    });
    let (kind, control) = error.join().unwrap();
    assert_eq!(kind, frame::kind::REFUSE);
    let text = String::from_utf8(control[2..].to_vec()).unwrap();
    assert!(text.contains("user 65534 is not user 0"), "{text}");
    echo(&pool(&addr), b"the owner").unwrap();
}

#[test]
fn addresses_taken_stale_and_wrong() {
    let (_dir, addr) = place();
    let serving = echo_at(&addr, ServeOptions::default());
    let error = Listener::bind(&addr, None).unwrap_err();
    assert!(matches!(error, WireError::AddrInUse { .. }), "{error}");
    assert!(error.to_string().contains(&addr.to_string()), "{error}");
    serving.stop();
    let Addr::Unix(path) = &addr else {
        unreachable!()
    };
    assert!(!path.exists(), "a stopped server leaves no socket");
    // A killed server left its socket.
    drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    assert!(path.exists());
    echo_at(&addr, ServeOptions::default()).stop();
    std::fs::write(path, b"precious").unwrap();
    let error = Listener::bind(&addr, None).unwrap_err();
    assert!(error.to_string().contains("not a socket"), "{error}");
    assert_eq!(std::fs::read(path).unwrap(), b"precious");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = Addr::Tcp(taken.local_addr().unwrap().to_string());
    let error = Listener::bind(&addr, Some(key(1))).unwrap_err();
    assert!(matches!(error, WireError::AddrInUse { .. }), "{error}");
}
