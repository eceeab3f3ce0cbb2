//! Tests of calls that outlive servers.

use std::{
    os::unix::net::UnixListener,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use super::*;

#[test]
fn a_server_that_dies_and_comes_back() {
    for addr in [None, Some(Addr::Tcp("127.0.0.1:0".into()))] {
        let (_dir, unix) = place();
        let mut serving = Some(echo_at(&addr.unwrap_or(unix), ServeOptions::default()));
        let addr = serving.as_ref().unwrap().addr().clone();
        let pool = pool(&addr);
        let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|s| {
            for i in 0..4u8 {
                let (pool, stop, calls) = (&pool, &stop, &calls);
                s.spawn(move || {
                    let payload = vec![i; 300_000 * usize::from(i)];
                    while !stop.load(Ordering::Relaxed) {
                        echo(pool, &payload).unwrap();
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for round in 0..6 {
                let before = calls.load(Ordering::Relaxed);
                while calls.load(Ordering::Relaxed) < before + 20 {
                    thread::yield_now();
                }
                let old = serving.take().unwrap();
                if round % 2 == 0 {
                    old.abort()
                } else {
                    old.stop()
                }
                serving = Some(echo_at(&addr, ServeOptions::default()));
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn no_listener() {
    let (_dir, addr) = place();
    let pool = Pool::new(addr.clone(), None, Duration::from_millis(100));
    let begun = Instant::now();
    let error = echo(&pool, b"").unwrap_err();
    assert!(matches!(error, WireError::Unavailable { .. }), "{error}");
    assert!(
        error.to_string().contains(&addr.to_string()) && error.to_string().contains("No such file"),
        "{error}"
    );
    assert!(begun.elapsed() < Duration::from_secs(5));
}

/// Of several addresses the one that answers is found, also when it is another one later.
#[test]
fn a_service_of_several_addresses() {
    let ((_one, first), (_two, second), (_three, third)) = (place(), place(), place());
    let Addr::Unix(path) = &first else {
        unreachable!()
    };
    // Connections are accepted by the kernel, and not answered.
    let hanging = UnixListener::bind(path).unwrap();
    let text = format!("{first},{second},{third}");
    let addrs: crate::Addrs = text.parse().unwrap();
    let pool = Pool::new(addrs, None, Duration::from_secs(20));
    let serving = echo_at(&third, ServeOptions::default());
    echo(&pool, b"third").unwrap();
    assert_eq!(pool.addr(), third);
    serving.stop();
    let serving = echo_at(&second, ServeOptions::default());
    echo(&pool, b"second").unwrap();
    assert_eq!(pool.addr(), second);
    // Of an address that is not called any more nothing is known.
    pool.leave(&third);
    assert_eq!(pool.addr(), second);
    drop((serving, hanging));
}

#[test]
fn a_server_that_hangs() {
    let (_dir, addr) = place();
    let Addr::Unix(path) = &addr else {
        unreachable!()
    };
    let listener = UnixListener::bind(path).unwrap();
    let pool = Pool::new(addr.clone(), None, Duration::from_millis(200));
    let begun = Instant::now();
    // Accepted by the kernel, but not answered.
    let error = echo(&pool, b"").unwrap_err();
    assert!(matches!(error, WireError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("did not end in time"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    drop(listener);
}

#[test]
fn a_live_server_may_be_given_longer_than_a_dead_one() {
    let (_dir, addr) = place();
    let serving = echo_at(&addr, ServeOptions::default());
    let pool = pool(&addr);
    let until = |reply| Until {
        tries: Instant::now() + Duration::from_millis(100),
        reply: Instant::now() + Duration::from_millis(reply),
    };
    let call = |until| pool.call_with(SLOW, b"", &[], until, &mut |_, _| Ok(()));
    let error = call(until(150)).unwrap_err();
    assert!(matches!(error, WireError::Unavailable { .. }), "{error}");
    call(until(10_000)).unwrap();
    serving.stop();
    let begun = Instant::now();
    assert!(call(until(10_000)).is_err());
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_closed_pool_waits_no_more() {
    let (_dir, addr) = place();
    let pool = Pool::new(addr.clone(), None, Duration::from_secs(60));
    let begun = Instant::now();
    thread::scope(|s| {
        let waiting = s.spawn(|| echo(&pool, b"").unwrap_err());
        pool.close();
        waiting.join().unwrap();
    });
    assert!(echo(&pool, b"").is_err());
    assert!(begun.elapsed() < Duration::from_secs(30));
}

/// A server that answers each opened connection's first request with these bytes.
fn impostor(reply: Vec<u8>) -> (tempfile::TempDir, Addr, thread::JoinHandle<()>) {
    let (dir, addr) = place();
    let Addr::Unix(path) = &addr else {
        unreachable!()
    };
    let listener = UnixListener::bind(path).unwrap();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_frame(&mut stream).unwrap();
        let mut challenge = vec![VERSION as u8, 0, 0, 0];
        challenge.extend([3; 32]);
        stream
            .write_all(&frame(0, frame::kind::CHALLENGE, &challenge, 0))
            .unwrap();
        stream
            .write_all(&frame(0, frame::kind::WELCOME, &[], 0))
            .unwrap();
        read_frame(&mut stream).unwrap();
        stream.write_all(&reply).unwrap();
        while read_frame(&mut stream).is_some() {}
    });
    (dir, addr, thread)
}

#[test]
fn replies_that_make_no_sense() {
    let mut other_id = Vec::new();
    Header::encode(VERSION, ECHO | REPLY, 77, b"", (0, false), &mut other_id);
    let mut too_long = frame(VERSION, ECHO | REPLY, b"", 3);
    too_long.extend(b"abc");
    let mut flipped = frame(VERSION, ECHO | REPLY, b"abc", 0);
    flipped[33] ^= 4;
    let mut longer = frame(VERSION, ECHO | REPLY, b"", 0);
    longer[18] ^= 1;
    for (what, again, reply) in [
        ("id 77", true, other_id),
        ("kind 0x8201", true, frame(VERSION, PANIC | REPLY, b"", 0)),
        ("wrong magic", true, vec![b'x'; 64]),
        ("control part", true, flipped),
        ("header", true, longer),
        ("too many", false, too_long),
    ] {
        let (_dir, addr, thread) = impostor(reply);
        let pool = Pool::new(addr, None, Duration::from_secs(10));
        let begun = Instant::now();
        let flight = pool.begin(ECHO, b"", &[], soon()).unwrap();
        let error = pool.finish(flight, soon(), &mut |_, _| Ok(())).unwrap_err();
        assert_eq!(error.is_transient(), again, "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{what}");
        thread.join().unwrap();
    }
}

/// A service that never sends a valid frame is not a data server, and does not become one.
#[test]
fn a_service_that_never_sends_a_frame_is_given_up() {
    let (_dir, addr) = place();
    let Addr::Unix(path) = addr.clone() else {
        unreachable!()
    };
    let listener = UnixListener::bind(&path).unwrap();
    let thread = thread::spawn(move || {
        for _ in 0..8 {
            let (mut stream, _) = listener.accept().unwrap();
            read_frame(&mut stream).unwrap();
            let text = b"HTTP/1.1 400 Bad Request\r\n\r\n12345678";
            stream.write_all(text).unwrap();
        }
    });
    let pool = Pool::new(addr, None, Duration::from_secs(60));
    let error = echo(&pool, b"").unwrap_err();
    assert!(matches!(error, WireError::Protocol { .. }), "{error}");
    assert!(error.to_string().contains("8 times in a row"), "{error}");
    thread.join().unwrap();
}

#[test]
fn a_request_with_a_truncated_reply_is_resent() {
    // The impostor's listener is gone after one connection, so the second attempt is refused.
    let mut half = frame(VERSION, ECHO | REPLY, b"", 100);
    half.extend([1; 50]);
    let (_dir, addr) = place();
    let Addr::Unix(path) = addr.clone() else {
        unreachable!()
    };
    let listener = UnixListener::bind(&path).unwrap();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_frame(&mut stream).unwrap();
        let mut challenge = vec![VERSION as u8, 0, 0, 0];
        challenge.extend([3; 32]);
        stream
            .write_all(&frame(0, frame::kind::CHALLENGE, &challenge, 0))
            .unwrap();
        stream
            .write_all(&frame(0, frame::kind::WELCOME, &[], 0))
            .unwrap();
        read_frame(&mut stream).unwrap();
        stream.write_all(&half).unwrap();
        drop((stream, listener));
        // The real server takes its address.
        std::fs::remove_file(&path).unwrap();
        echo_at(&Addr::Unix(path), ServeOptions::default())
    });
    echo(&pool(&addr), b"twice").unwrap();
    thread.join().unwrap().stop();
}

#[test]
fn several_servers_at_the_same_time() {
    let (_d1, a1) = place();
    let (_d2, a2) = place();
    let servers = [
        echo_at(&a1, ServeOptions::default()),
        echo_at(&a2, ServeOptions::default()),
    ];
    let pools = [pool(&a1), pool(&a2)];
    let payloads = [vec![1; 100_000], vec![2; 50_000]];
    let flights: Vec<_> = pools
        .iter()
        .zip(&payloads)
        .map(|(p, data)| {
            p.begin(ECHO, b"", &[std::io::IoSlice::new(data)], soon())
                .unwrap()
        })
        .collect();
    for ((pool, flight), want) in pools.iter().zip(flights).zip(&payloads) {
        let mut back = Vec::new();
        pool.finish(flight, soon(), &mut |_, incoming| {
            incoming.read_to(&mut back)
        })
        .unwrap();
        assert_eq!(back, *want);
    }
    servers.into_iter().for_each(Serving::stop);
}
