//! Tests that parts of files sent without a copy arrive unchanged.

use std::io::Write;
use std::sync::Arc;

use super::*;

/// A file with this many bytes after [`BEFORE`] others, and their checksum.
struct Files(std::fs::File, u64, u32);

const BEFORE: u64 = 1234;

impl Handler for Files {
    fn handle(&self, call: Call<'_>) -> WireResult<()> {
        // Announcing more than the file has ends the connection in the middle of a reply.
        let more = u64::from(call.control == b"more");
        let sum = self.2;
        call.reply
            .send_file(b"", &self.0, BEFORE, self.1 + more, sum)
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
            let handler = Arc::new(Files(
                file.try_clone().unwrap(),
                len as u64,
                crate::checksum::crc32c(&data),
            ));
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
