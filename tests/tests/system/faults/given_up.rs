//! Requests that a mount has given up and that a data server executes later: they do not undo later writes.

use std::sync::atomic::AtomicBool;

use nix::sys::signal::Signal;
use slabfs_tests::tool::create;
use slabfs_tests::{Cluster, needs_mount, poll};

use super::stamps::{REGIONS, Writer};
use super::{Until, await_syncs, nothing_is_lost};

/// Objects, each with a writer of its own.
const OBJECTS: usize = 8;
/// How often the server is stopped.
const ROUNDS: usize = 2;

/// The number of connections of a data server, over TCP, that the peer has closed and the server has not: the
/// requests in them may still be executed.
fn half_closed(cluster: &Cluster) -> usize {
    let (_, port) = cluster.server_addr(0).rsplit_once(':').expect("a port");
    let local = format!(":{:04X}", port.parse::<u16>().expect("a port"));
    let table = format!("/proc/{}/net/tcp", cluster.server(0).pid());
    let table = std::fs::read_to_string(table).expect("connections");
    let closed = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        // 08 is CLOSE_WAIT.
        words.next().is_some_and(|addr| addr.ends_with(&local)) && words.nth(1) == Some("08")
    };
    table.lines().filter(closed).count()
}

/// A data server is stopped for longer than its mount waits. The mount's programs get errors, and write again
/// while the server is stopped and when it continues; by then it has executed all the requests that were given
/// up before.
#[test]
pub(super) fn requests_given_up_before_a_stop_undo_nothing() {
    needs_mount!();
    let mut cluster = Cluster::new(1, &["--io-timeout", "1s"], true);
    cluster.start_all(2);
    let names: Vec<String> = (0..OBJECTS).map(|i| format!("grid{i}")).collect();
    let writer = |name: &String| {
        let path = cluster.at(0, name);
        create(&path, "32,4096", "u1", &["--layout", "grid:4,4096"]);
        let writer = Writer::new(&path);
        for region in 0..REGIONS {
            writer.write(region).expect("written");
        }
        writer.sync().expect("synced");
        writer
    };
    let writers: Vec<Writer> = names.iter().map(writer).collect();
    let mut found = 0;
    for round in 0..ROUNDS {
        let stop = AtomicBool::new(false);
        let before: Vec<u64> = writers.iter().map(Writer::losses).collect();
        std::thread::scope(|scope| {
            let until = Until(&stop);
            for (i, writer) in writers.iter().enumerate() {
                let (stop, seed) = (&stop, round * OBJECTS + i);
                scope.spawn(move || writer.run(seed as u64, stop, true));
            }
            await_syncs(&writers, 2);
            cluster.server(0).signal(Signal::SIGSTOP);
            poll::until_true("each writer to get an error", || {
                let mut writers = writers.iter().zip(&before);
                writers.all(|(writer, before)| writer.losses() > *before)
            });
            found += half_closed(&cluster);
            cluster.server(0).signal(Signal::SIGCONT);
            await_syncs(&writers, 1);
            drop(until);
        });
        for (name, writer) in names.iter().zip(&writers) {
            assert_eq!(writer.ended(), None, "{name}");
        }
        poll::until_true("the end of what was given up", || {
            half_closed(&cluster) == 0
        });
        for (name, writer) in names.iter().zip(&writers) {
            let other = Writer::new(&cluster.at(1, name));
            nothing_is_lost(name, &other.stamps(), &writer.known());
        }
    }
    assert!(found > 0, "nothing was given up");
    drop(writers);
    cluster.stop_and_fsck().ok();
}
