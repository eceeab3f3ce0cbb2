//! Tests that a peer's errors affect only its own connection.

use std::{io::IoSlice, thread};

use super::*;

#[test]
fn all_sizes_and_scattered_payloads() {
    let (_dir, addr) = place();
    let serving = echo_at(&addr, ServeOptions::default());
    let pool = pool(&addr);
    for len in [
        0,
        1,
        31,
        8159,
        8160,
        8161,
        8192,
        100_000,
        9 << 20,
        MAX_PAYLOAD,
    ] {
        let payload: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
        echo(&pool, &payload).unwrap();
        let slices: Vec<IoSlice<'_>> = payload.chunks(len / 3000 + 1).map(IoSlice::new).collect();
        let mut back = Vec::new();
        pool.call(ECHO, &[7; 20_000], &slices, &mut back).unwrap();
        assert!(back == payload);
    }
    let big = vec![0; MAX_PAYLOAD + 1];
    assert!(matches!(echo(&pool, &big), Err(WireError::TooLarge { .. })));
    let error = pool
        .call(ECHO, &big[..MAX_CONTROL + 1], &[], &mut Vec::new())
        .unwrap_err();
    assert!(matches!(error, WireError::TooLarge { .. }));
    assert_eq!(serving.connections(), 1, "one caller, one connection");
    serving.stop();
}

#[test]
fn garbage_ends_its_connection_only() {
    let (_dir, addr) = place();
    let _serving = echo_at(&addr, ServeOptions::default());
    let pool = pool(&addr);
    echo(&pool, b"before").unwrap();
    let mut flipped = frame(VERSION, ECHO, b"control", 0);
    flipped[35] ^= 1;
    let mut reserved = frame(VERSION, ECHO, b"", 0);
    reserved[24] = 1;
    let mut long_control = frame(VERSION, ECHO, b"", 0);
    long_control[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    for (what, bytes) in [
        (
            "noise",
            (0..4096).map(|i| (i * 31 % 256) as u8).collect::<Vec<u8>>(),
        ),
        (
            "http",
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        ),
        ("checksum", flipped),
        ("reserved", reserved),
        ("payload length", frame(VERSION, ECHO, b"", u32::MAX)),
        ("control length", long_control),
        ("version", frame(VERSION + 1, ECHO, b"", 0)),
        ("a reply", frame(VERSION, ECHO | REPLY, b"", 0)),
        (
            "a hello late",
            frame(VERSION, frame::kind::HELLO, &[0; 36], 0),
        ),
    ] {
        for mut stream in [raw(&addr), opened(&addr)] {
            stream.write_all(&bytes).unwrap();
            assert!(closed(&mut stream), "{what}");
        }
        echo(&pool, what.as_bytes()).unwrap();
    }
    // Before the opening, control parts are short.
    let mut stream = raw(&addr);
    stream
        .write_all(&frame(0, frame::kind::HELLO, &[0; 2000], 0))
        .unwrap();
    assert!(closed(&mut stream));
    echo(&pool, b"after").unwrap();
}

/// Connections that have not authenticated displace each other, and not a peer that is idle between two requests.
#[test]
fn strangers_displace_strangers() {
    let (_dir, addr) = place();
    let options = ServeOptions {
        connections: 6,
        strangers: 2,
        ..ServeOptions::default()
    };
    let serving = echo_at(&addr, options);
    let mut known = Connection::connect(&addr, None, soon()).unwrap();
    let mut buffers = Buffers::default();
    let mut ask = |id| {
        known.send(ECHO, id, b"", &[], soon()).unwrap();
        let rest = Duration::from_secs(10);
        known.recv(&mut buffers, soon(), rest).unwrap().id
    };
    assert_eq!(ask(1), 1);
    let mut silent: Vec<UnixStream> = (0..30).map(|_| raw(&addr)).collect();
    // All but the last two are closed.
    for stream in &mut silent[..28] {
        assert!(closed(stream));
    }
    assert_eq!(ask(2), 2, "on the same connection");
    assert!(serving.connections() <= 8);
}

/// A connection that has been sending a request for long is closed to make room for one with a complete request.
#[test]
fn a_slow_sender_is_evicted() {
    let (_dir, addr) = place();
    let options = ServeOptions {
        connections: 4,
        strangers: 2,
        ..ServeOptions::default()
    };
    let _serving = echo_at(&addr, options);
    let complete = frame(VERSION, ECHO, b"control", 10_000_000);
    let mut slow: Vec<UnixStream> = (0..4).map(|_| opened(&addr)).collect();
    let served = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| {
            let mut sent = 0;
            while !served.load(std::sync::atomic::Ordering::SeqCst) {
                for stream in &mut slow {
                    // The server may have closed it.
                    let _ = stream.write_all(&complete[sent..=sent]);
                }
                sent = (sent + 1).min(complete.len() - 1);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let pool = Pool::new(addr.clone(), None, Duration::from_secs(20));
        let echoed = echo(&pool, b"in between");
        served.store(true, std::sync::atomic::Ordering::SeqCst);
        echoed.unwrap();
    });
}

#[test]
fn half_frames_and_dribbling() {
    let (_dir, addr) = place();
    let serving = echo_at(&addr, short());
    let complete = frame(VERSION, ECHO, b"control", 10_000_000);
    // Half a header, a header without its control part, some payload; then silence.
    for len in [5, 32, 36, complete.len()] {
        let mut stream = opened(&addr);
        stream.write_all(&complete[..len]).unwrap();
        let begun = Instant::now();
        assert!(closed(&mut stream), "{len} bytes");
        assert!(
            begun.elapsed() > Duration::from_millis(150),
            "a moment is allowed"
        );
        // The same, then closed.
        let mut stream = opened(&addr);
        stream.write_all(&complete[..len]).unwrap();
    }
    // A byte now and then does not extend the deadline.
    let mut stream = opened(&addr);
    let begun = Instant::now();
    let mut sent = 0;
    while stream.write_all(&complete[sent..=sent]).is_ok() {
        sent = (sent + 1).min(complete.len() - 1);
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "a dribbling peer is dropped"
        );
        thread::sleep(Duration::from_millis(10));
    }
    // A peer that sends nothing while opening.
    assert!(closed(&mut raw(&addr)));
    // A peer that does not take its reply.
    let mut stream = opened(&addr);
    stream
        .write_all(&frame(VERSION, ECHO, b"", 8 << 20))
        .unwrap();
    stream.write_all(&vec![1; 8 << 20]).unwrap();
    let begun = Instant::now();
    while serving.connections() > 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "a peer that does not read is dropped"
        );
        thread::yield_now();
    }
    echo(&pool(&addr), b"still here").unwrap();
}

#[test]
fn requests_that_fail_inside() {
    let (_dir, addr) = place();
    let serving = echo_at(&addr, ServeOptions::default());
    let pool = pool(&addr);
    for (kind, text) in [
        (PANIC, "internal error"),
        (SILENT, "no answer"),
        (0x3fff, "unknown kind 16383"),
    ] {
        let error = pool.call(kind, b"", &[], &mut Vec::new()).unwrap_err();
        assert!(matches!(error, WireError::Fault { .. }), "{error}");
        assert!(
            error.to_string().contains(text) && error.to_string().contains(&addr.to_string()),
            "{error}"
        );
    }
    echo(&pool, b"the same connection stays usable").unwrap();
    assert_eq!(serving.connections(), 1);
}

#[test]
fn the_number_of_connections_is_bounded() {
    let (_dir, addr) = place();
    let serving = echo_at(
        &addr,
        ServeOptions {
            connections: 4,
            ..ServeOptions::default()
        },
    );
    let pools: Vec<Pool> = (0..20).map(|_| pool(&addr)).collect();
    for _ in 0..3 {
        for pool in &pools {
            echo(pool, b"idle ones make room").unwrap();
            assert!(serving.connections() <= 6, "{}", serving.connections());
        }
    }
    // Strangers that never open displace each other, not those with requests.
    let mut talker = opened(&addr);
    let mut talk = || {
        talker
            .write_all(&frame(VERSION, ECHO, b"still", 0))
            .unwrap();
        assert_eq!(
            read_frame(&mut talker).unwrap(),
            (ECHO | REPLY, b"still".to_vec())
        );
    };
    talk();
    let strangers: Vec<_> = (0..30).map(|_| raw(&addr)).collect();
    talk();
    drop(strangers);
}

#[test]
fn idle_connections_end_and_come_back() {
    let (_dir, addr) = place();
    let options = ServeOptions {
        idle: Duration::from_millis(20),
        ..ServeOptions::default()
    };
    let serving = echo_at(&addr, options);
    let pool = pool(&addr);
    for _ in 0..3 {
        echo(&pool, b"x").unwrap();
        let begun = Instant::now();
        while serving.connections() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(5));
            thread::yield_now();
        }
    }
}
