//! How long the common operations take; run by hand: `cargo test -p slabfs-mdserver -- --ignored speed --nocapture`.

use std::time::Instant;

use super::support::*;
use crate::api::{Create, Kind, ROOT, op};

#[test]
#[ignore = "a measurement"]
fn speed_of_common_operations() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    beat(&service, vec![]);
    let md = attach(&service);
    const N: u32 = 20_000;
    let measure = |what: &str, work: &mut dyn FnMut(u32)| {
        let start = Instant::now();
        (0..N).for_each(&mut *work);
        println!(
            "{what:>12}: {:6.2} µs",
            start.elapsed().as_secs_f64() * 1e6 / f64::from(N)
        );
    };
    let name = |i: u32| format!("file{i}");
    let mut inos = Vec::new();
    measure("miss", &mut |i| {
        assert!(md.lookup(ROOT, name(i).as_bytes()).is_err())
    });
    measure("create", &mut |i| {
        let create = Create {
            open: true,
            ..new(ROOT, &name(i), Kind::Object)
        };
        inos.push(md.call(create).unwrap().entry.attr.ino);
    });
    measure("release", &mut |i| {
        md.release(vec![inos[i as usize]]).unwrap()
    });
    measure("lookup", &mut |i| {
        assert!(md.lookup(ROOT, name(i).as_bytes()).is_ok())
    });
    measure("getattr", &mut |i| {
        assert!(
            md.call(op::GetAttr {
                ino: inos[i as usize]
            })
            .is_ok()
        )
    });
    measure("commit", &mut |i| {
        let mut commit = commit_of(&md, inos[i as usize]);
        commit.size_at_least = 100;
        md.call(commit).unwrap();
    });
    measure("unlink", &mut |i| {
        md.unlink(ROOT, name(i).as_bytes()).unwrap()
    });
    service.close().unwrap();
}
