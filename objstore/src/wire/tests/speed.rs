//! Measures the rate of 1 MiB requests; run by hand:
//! `cargo test -p slabfs-objstore wire::tests::speed -- --ignored --nocapture`.

use std::io::IoSlice;

use super::*;

/// Takes a payload, or returns one.
struct Bulk(Vec<u8>);

impl Handler for Bulk {
    fn handle(&self, call: Call<'_>) -> WireResult<()> {
        let give = call.control == b"get";
        call.reply(
            b"",
            if give {
                std::slice::from_ref(&IoSlice::new(&self.0)).to_vec()
            } else {
                vec![]
            }
            .as_slice(),
        )
    }
}

#[test]
#[ignore = "a measurement"]
fn throughput() {
    const SIZE: usize = 1 << 20;
    let (_dir, unix) = place();
    for addr in [unix, Addr::Tcp("127.0.0.1:0".into())] {
        let listener = Listener::bind(&addr, Some(key(1))).unwrap();
        let serving = serve(listener, Arc::new(Bulk(vec![3; SIZE]))).unwrap();
        let pool = pool(serving.addr());
        let data = vec![5; SIZE];
        let mut back = vec![0; SIZE];
        let rounds = 2000;
        let rate = |begun: Instant| (rounds * SIZE) as f64 / begun.elapsed().as_secs_f64() / 1e9;
        let begun = Instant::now();
        for _ in 0..rounds {
            pool.call_with(ECHO, b"put", &[IoSlice::new(&data)], soon(), &mut |_, _| {
                Ok(())
            })
            .unwrap();
        }
        let put = rate(begun);
        let begun = Instant::now();
        for _ in 0..rounds {
            pool.call_with(ECHO, b"get", &[], soon(), &mut |_, incoming| {
                incoming.read_vectored(&mut [std::io::IoSliceMut::new(&mut back)])
            })
            .unwrap();
        }
        let get = rate(begun);
        let begun = Instant::now();
        for _ in 0..10 * rounds {
            pool.call_with(ECHO, b"", &[], soon(), &mut |_, _| Ok(()))
                .unwrap();
        }
        let small = begun.elapsed() / (10 * rounds as u32);
        println!(
            "{}: put {put:.1} GB/s, get {get:.1} GB/s, small {small:?}",
            serving.addr()
        );
        serving.stop();
    }
}
