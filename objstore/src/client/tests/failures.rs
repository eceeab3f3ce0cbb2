//! Tests of servers that are unreachable, killed, moved or failing.

use std::{sync::atomic::AtomicBool, thread, time::Instant};

use super::*;
use crate::Moment;
use crate::server::{Alive, Fence};

#[test]
fn errors_name_the_piece_the_server_and_the_address() {
    let rig = rig();
    let form = form(&[4]);
    let full = Hyperslab::all(&form.shape);
    let names = [free(5), free(2), free(6)];
    let abcd = [IoSlice::new(b"abcd")];
    let put = |i: usize, server| WritePiece {
        server,
        name: &names[i],
        form: &form,
        kind: WriteKind::Put,
        data: &abcd,
    };
    rig.stores[2].trap.store(2, Relaxed);
    let pieces = [
        put(0, ALL[0]),
        put(0, ALL[2]),
        put(1, ALL[2]),
        put(2, ALL[2]),
        put(0, ALL[3]),
    ];
    assert_eq!(rig.servers.write(&pieces).unwrap_err(), StoreError::NoSpace);
    let mut out = [[0; 4]; 3];
    let mut reads: Vec<_> = out
        .iter_mut()
        .enumerate()
        .map(|(i, out)| ReadPiece {
            server: ALL[2],
            name: &names[i],
            form: &form,
            slab: &full,
            out,
            found: true,
        })
        .collect();
    assert_eq!(
        rig.servers.read(&mut reads).unwrap_err(),
        (1, StoreError::NoSpace)
    );
    // Lengths that do not fit are found before anything is sent.
    let short = WritePiece {
        data: &[IoSlice::new(b"abc")],
        ..put(0, ALL[2])
    };
    assert!(matches!(
        rig.servers.write(&[short]),
        Err(StoreError::Invalid(_))
    ));
    // This mount does not know the server.
    let error = rig.servers.write(&[put(0, ServerId(9))]).unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Unavailable {
                server: ServerId(9),
                ..
            }
        ),
        "{error}"
    );
    // A handler that panics.
    rig.stores[2].trap.store(1, Relaxed);
    let error = rig
        .servers
        .verify(ALL[2], &free(1))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("data server 3")
            && error.contains("server3")
            && error.contains("internal error"),
        "{error}"
    );
    // An unreachable server.
    let lost = Servers::new(Options {
        deadline: Duration::from_millis(100),
        ..Options::default()
    });
    lost.set_remote(ALL[0], rig.addr(9));
    lost.add_local(ALL[1], rig.stores[1].clone());
    let begun = Instant::now();
    let error = lost.write(&[put(2, ALL[1]), put(0, ALL[0])]).unwrap_err();
    assert!(
        matches!(&error, StoreError::Unavailable { server: ServerId(1), addr, .. } if *addr == rig.addr(9).to_string()),
        "{error}"
    );
    assert!(begun.elapsed() < Duration::from_secs(5));
    lost.verify(ALL[1], &free(6)).unwrap();
    // An address that needs a key.
    let error = Servers::new(Options::default());
    error.set_remote(ALL[0], "tcp:localhost:1".parse().unwrap());
    let error = error.space(ALL[0]).unwrap_err();
    assert!(
        matches!(&error, StoreError::Protocol(text) if text.contains("--key-file")),
        "{error}"
    );
}

#[test]
fn servers_killed_during_transfers() {
    let mut rig = rig();
    let form = form(&[64, 4096]);
    let full = Hyperslab::all(&form.shape);
    let stop = AtomicBool::new(false);
    let mut running: Vec<_> = rig.running.drain(..).map(Some).collect();
    let rig = &rig;
    thread::scope(|s| {
        let writers: Vec<_> = (0..3u8)
            .map(|w| {
                let (form, full, stop) = (&form, &full, &stop);
                s.spawn(move || {
                    let mut n = 0;
                    while !stop.load(Relaxed) || n < 5 {
                        let data = noise(64 * 4096, w ^ n as u8);
                        let name = free(1000 * u64::from(w) + 10 + n);
                        let slices = [IoSlice::new(&data)];
                        let puts = ALL.map(|server| WritePiece {
                            server,
                            name: &name,
                            form,
                            kind: WriteKind::Put,
                            data: &slices,
                        });
                        rig.servers.write(&puts).unwrap();
                        let mut outs = vec![vec![0; data.len()]; 4];
                        let mut reads: Vec<_> = outs
                            .iter_mut()
                            .zip(ALL)
                            .map(|(out, server)| ReadPiece {
                                server,
                                name: &name,
                                form,
                                slab: full,
                                out,
                                found: false,
                            })
                            .collect();
                        rig.servers.read(&mut reads).unwrap();
                        assert!(reads.iter().all(|r| r.found && *r.out == data));
                        n += 1;
                    }
                    n
                })
            })
            .collect();
        for round in 0..8 {
            let seen = rig.stores[2].changes.load(Relaxed);
            while rig.stores[2].changes.load(Relaxed) < seen + 3 {
                thread::yield_now();
            }
            let i = round % 2;
            running[i].take().unwrap().abort();
            running[i] = Some(rig.start(i + 2));
        }
        stop.store(true, Relaxed);
        assert!(writers.into_iter().all(|w| w.join().unwrap() >= 5));
    });
}

#[test]
fn a_server_that_moves_to_another_address() {
    let mut rig = rig();
    let old = rig.running.remove(0);
    rig.servers.space(ALL[2]).unwrap();
    old.shutdown();
    let addr = Addr::Unix(rig.dir.path().join("elsewhere"));
    let _new =
        DataServer::start(rig.stores[2].clone(), Listener::bind(&addr, None).unwrap()).unwrap();
    rig.servers.set_remote(ALL[2], addr);
    rig.servers.space(ALL[2]).unwrap();
    // A local one is not overridden by its own registration.
    rig.servers.set_remote(ALL[0], rig.addr(0));
    assert!(rig.servers.is_local(ALL[0]));
    rig.servers.close();
    assert!(rig.servers.space(ALL[2]).is_err());
    rig.servers.space(ALL[0]).unwrap();
}

#[test]
fn a_closed_fence_is_waited_for_and_a_fenced_session_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let addr = Addr::Unix(dir.path().join("server"));
    let store = Arc::new(Memory::default());
    let fence = Arc::new(Fence::in_memory());
    let listener = Listener::bind(&addr, None).unwrap();
    let _server = DataServer::start_fenced(store.clone(), listener, fence.clone()).unwrap();
    let servers = Servers::new(Options {
        deadline: Duration::from_secs(600),
        ..Options::default()
    });
    servers.set_remote(ALL[0], addr.clone());
    servers.set_session(SessionId(3));
    let (form, name) = (form(&[4, 1]), grid(0));
    let slab = Hyperslab::all(&form.shape);
    let write = || {
        servers.write(&[WritePiece {
            server: ALL[0],
            name: &name,
            form: &form,
            kind: WriteKind::Write(&slab),
            data: &[IoSlice::new(b"abcd")],
        }])
    };
    let alive = |version, live: &[u64]| Alive {
        version,
        next: SessionId(5),
        live: live.iter().copied().map(SessionId).collect(),
    };
    let soon = Moment::now() + Duration::from_secs(600);
    // The metadata service has not been heard from: the write waits until it is.
    thread::scope(|scope| {
        let waiting = scope.spawn(write);
        fence.take(slabfs_model::ShardId::NAMES, Some(alive(1, &[3])), soon);
        waiting.join().unwrap().unwrap();
    });
    // When the session ends, the write fails at once. A change of the session ends the wait as well.
    fence.take(slabfs_model::ShardId::NAMES, Some(alive(2, &[4])), soon);
    assert_eq!(write(), Err(StoreError::Fenced(SessionId(3))));
    servers.set_session(SessionId(4));
    write().unwrap();
    fence.take(slabfs_model::ShardId::NAMES, None, Moment::now());
    thread::scope(|scope| {
        let waiting = scope.spawn(write);
        // Before the write begins or while it waits: in both cases it ends.
        servers.set_session(SessionId(3));
        let error = waiting.join().unwrap().unwrap_err();
        let away = matches!(&error, StoreError::Unavailable { server, addr: at, .. }
            if *server == ALL[0] && *at == addr.to_string());
        assert!(away || error == StoreError::Fenced(SessionId(3)), "{error}");
    });
}

/// A write that was given up may still be executed, but not after one that was made later.
#[test]
fn a_write_that_was_given_up_is_not_executed_after_a_later_one() {
    let dir = tempfile::tempdir().unwrap();
    let addr = Addr::Unix(dir.path().join("server"));
    let store = Arc::new(Memory::default());
    let listener = Listener::bind(&addr, None).unwrap();
    let server = DataServer::start(store.clone(), listener).unwrap();
    let servers = Servers::new(Options {
        deadline: Duration::from_millis(300),
        ..Options::default()
    });
    servers.set_remote(ALL[0], addr);
    let (form, name) = (form(&[7, 1]), grid(6));
    let slab = Hyperslab::all(&form.shape);
    let write = |bytes: &[u8]| {
        servers.write(&[WritePiece {
            server: ALL[0],
            name: &name,
            form: &form,
            kind: WriteKind::Write(&slab),
            data: &[IoSlice::new(bytes)],
        }])
    };
    store.trap.store(6, Relaxed);
    let error = write(b"earlier").unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    let (done, is_done) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            // The attempts that are given up have the same bytes.
            while write(b"latest!").is_err() {}
            done.send(()).unwrap();
        });
        // Without waiting for the earlier write this would end at once.
        let _ = is_done.recv_timeout(Duration::from_millis(100));
        store.trap.store(0, Relaxed);
    });
    // All requests have been executed.
    server.shutdown();
    let mut now = [0; 7];
    store.read(&name, &form, &slab, &mut now).unwrap();
    assert_eq!(&now, b"latest!");
}
