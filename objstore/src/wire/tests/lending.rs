//! What is sent without a copy arrives as it was.

use std::io::{IoSlice, Write};
use std::sync::Arc;

use super::*;

/// A file of these bytes behind some others.
struct Files(std::fs::File, u64);

const BEFORE: u64 = 1234;

impl Handler for Files {
    fn handle(&self, call: Call<'_>) -> WireResult<()> {
        // One that says that it has more than there is ends the connection in the middle of a reply.
        let more = u64::from(call.control == b"more");
        call.reply.send_file(b"", &self.0, BEFORE, self.1 + more)
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 3 + at / 4099) as u8).collect()
}

#[test]
fn parts_of_files_are_replies() {
    for len in [1usize, 4096, 300_000, (5 << 20) + 7] {
        let data = bytes(len);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![0xEE; BEFORE as usize]).unwrap();
        file.write_all(&data).unwrap();
        let (_dir, unix) = place();
        for addr in [unix, Addr::Tcp("localhost:0".into())] {
            let handler = Arc::new(Files(file.try_clone().unwrap(), len as u64));
            let listener = Listener::bind(&addr, Some(key(1))).unwrap();
            let serving = serve_with(listener, handler, short()).unwrap();
            let pool = Pool::new(serving.addr().clone(), Some(key(1)), Duration::from_secs(1));
            let mut back = Vec::new();
            for _ in 0..2 {
                pool.call(ECHO, b"", &[], &mut back).unwrap();
                assert!(back == data, "{len} bytes changed on the way");
            }
            let failed = pool.call(ECHO, b"more", &[], &mut back);
            assert!(failed.is_err_and(|e| matches!(e, WireError::Unavailable { .. })));
            pool.call(ECHO, b"", &[], &mut back).unwrap();
            assert!(back == data);
        }
    }
}

#[test]
fn lent_memory_arrives_as_it_was() {
    let (_dir, unix) = place();
    for addr in [unix, Addr::Tcp("localhost:0".into())] {
        let serving = echo_at(&addr, ServeOptions::default());
        let pool = pool(serving.addr());
        let data = bytes(9 << 20);
        // Slices that are lent and such that are not, beginning anywhere in their pages.
        for cuts in [
            vec![],
            vec![1, 100],
            vec![4097, 200_000, 7_000_001],
            vec![3 << 20],
        ] {
            let ends = cuts.iter().copied().chain([data.len()]);
            let mut from = 0;
            let slices: Vec<IoSlice<'_>> = ends
                .map(|to| IoSlice::new(&data[std::mem::replace(&mut from, to)..to]))
                .collect();
            let mut back = Vec::new();
            pool.call_lending(ECHO, b"ask", &slices, soon(), &mut |control, incoming| {
                assert_eq!(control, b"ask");
                incoming.read_to(&mut back)
            })
            .unwrap();
            assert!(back == data, "changed on the way, cut at {cuts:?}");
        }
    }
}

/// A server that ends while it is sent to is an error, and the request is made again.
#[test]
fn lending_to_nobody_is_an_error() {
    let (_dir, addr) = place();
    let serving = echo_at(&addr, short());
    let pool = Pool::new(addr.clone(), Some(key(1)), Duration::from_millis(500));
    let data = bytes(3 << 20);
    let lend = |pool: &Pool| {
        let until = Instant::now() + Duration::from_millis(500);
        pool.call_lending(
            ECHO,
            b"",
            &[IoSlice::new(&data)],
            until,
            &mut |_, incoming| incoming.read_to(&mut Vec::new()),
        )
    };
    lend(&pool).unwrap();
    serving.abort();
    assert!(matches!(lend(&pool), Err(WireError::Unavailable { .. })));
    let _serving = echo_at(&addr, short());
    lend(&pool).unwrap();
}
