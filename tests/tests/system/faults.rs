//! Faults under several mounts of one filesystem, each in a network namespace of its own: mounts are killed
//! while they hold rights and dirty data, or stopped until their session expires, and links are cut. The other
//! mounts continue when the session is over, the stale mount gets errors and recovers, nothing that was synced
//! is lost, and no region is torn.

mod given_up;
pub(crate) mod stamps;

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use slabfs_tests::tool::stats;
use slabfs_tests::{Cluster, Machine, file, needs_root, poll, soak};

use stamps::{Known, NAMES, REGIONS, Writer, prepare, stamp_of};

/// Two data servers and `mounts` mounts.
#[track_caller]
fn networked(mounts: usize) -> Cluster {
    let mut cluster = Cluster::networked(2, &[]);
    cluster.start_all(mounts);
    cluster
}

/// The number of sessions that the metadata service expired.
fn given_up(cluster: &Cluster) -> usize {
    cluster
        .md()
        .log()
        .matches("no heartbeat of the session")
        .count()
}

fn sessions_lost(cluster: &Cluster, mount: usize) -> u64 {
    stats(&cluster.mnt(mount))["sessions_lost"]
        .as_u64()
        .expect("a number")
}

/// Sets the flag when it is dropped, also by a panic.
pub(crate) struct Until<'a>(pub(crate) &'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Waits until each writer has synced `more` times.
pub(crate) fn await_syncs(writers: &[Writer], more: u64) {
    for writer in writers {
        let until = writer.syncs() + more;
        poll::until_true("a writer to continue", || {
            assert_eq!(writer.ended(), None, "a writer failed");
            writer.syncs() >= until
        });
    }
}

/// Reads regions repeatedly until `stop`: an observed stamp is never replaced by an older one, whichever mount
/// dies.
fn watch(file: &File, stop: &AtomicBool) -> u64 {
    let (mut seen, mut rounds) = ([0; REGIONS], 0);
    while !stop.load(Ordering::SeqCst) {
        for (region, seen) in seen.iter_mut().enumerate() {
            let stamp = stamp_of(file, region);
            assert!(stamp >= *seen, "region {region}: {stamp} after {seen}");
            *seen = stamp;
        }
        rounds += 1;
    }
    rounds
}

/// Each region has the synced stamp, or a later one.
#[track_caller]
fn nothing_is_lost(name: &str, stamps: &[u64; REGIONS], known: &[Known; REGIONS]) {
    for (region, (stamp, known)) in stamps.iter().zip(known).enumerate() {
        assert!(
            (known.synced..=known.begun).contains(stamp),
            "{name}, region {region}: {stamp} of {known:?}"
        );
    }
}

/// A mount is killed in the middle of writes. Mounts that wait for its rights continue and see everything that
/// it had synced.
#[test]
fn a_killed_mount_loses_only_what_it_had_not_synced() {
    needs_root!();
    let mut cluster = networked(2);
    let writers = prepare(&cluster, 0);
    let files = NAMES.map(|name| file::open(&cluster.at(1, name)));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let until = Until(&stop);
        for (seed, writer) in writers.iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || writer.run(seed as u64, stop, false));
        }
        let watchers: Vec<_> = files
            .iter()
            .map(|file| scope.spawn(|| watch(file, &stop)))
            .collect();
        await_syncs(&writers, 5);
        cluster.kill_mount(0);
        poll::until_true("the end of its session", || given_up(&cluster) == 1);
        for (name, writer) in NAMES.iter().zip(&writers) {
            poll::until_true("the end of a writer", || writer.ended().is_some());
            let other = Writer::new(&cluster.at(1, name));
            nothing_is_lost(name, &other.stamps(), &writer.known());
            for region in 0..REGIONS {
                other.write(region).expect("written");
            }
            other.sync().expect("synced");
        }
        drop(until);
        for watcher in watchers {
            assert!(watcher.join().expect("a watcher") > 0);
        }
    });
    drop((writers, files));
    cluster.stop_and_fsck().ok();
}

/// The state of mount 0 when it was taken out, after other mounts took over its rights.
struct Taken {
    /// The known stamps of each object.
    writer: Vec<[Known; REGIONS]>,
    /// The stamps that other mounts saw.
    seen: Vec<[u64; REGIONS]>,
    /// The stamps that are there now.
    stamps: Vec<[u64; REGIONS]>,
}

/// Mount 1 takes over the objects that mount 0, whose session is over, was writing, and writes all of them.
#[track_caller]
fn take_over(cluster: &Cluster, writers: &[Writer]) -> Taken {
    let mut taken = Taken {
        writer: Vec::new(),
        seen: Vec::new(),
        stamps: Vec::new(),
    };
    for (name, writer) in NAMES.iter().zip(writers) {
        let other = Writer::new(&cluster.at(1, name));
        let (seen, known) = (other.stamps(), writer.known());
        nothing_is_lost(name, &seen, &known);
        for region in 0..REGIONS {
            other.write(region).expect("written");
        }
        other.sync().expect("synced");
        taken.writer.push(known);
        taken.seen.push(seen);
        taken.stamps.push(other.known().map(|known| known.synced));
    }
    taken
}

/// Disconnects mount 0 by `fault` until its session is over and others have taken over, and then repairs the
/// fault: the mount's programs get errors, at most `most` each, and continue, and the writes of the lost
/// session are not visible.
fn taken_out(
    mut cluster: Cluster,
    most: u64,
    fault: impl FnOnce(&Cluster),
    repair: impl FnOnce(&Cluster),
) {
    let writers = prepare(&cluster, 0);
    let stop = AtomicBool::new(false);
    let taken = std::thread::scope(|scope| {
        let until = Until(&stop);
        for (seed, writer) in writers.iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || writer.run(seed as u64, stop, true));
        }
        await_syncs(&writers, 5);
        fault(&cluster);
        poll::until_true("the end of its session", || given_up(&cluster) == 1);
        let taken = take_over(&cluster, &writers);
        repair(&cluster);
        poll::until_true("another session", || sessions_lost(&cluster, 0) == 1);
        await_syncs(&writers, 3);
        drop(until);
        taken
    });
    for (i, (name, writer)) in NAMES.iter().zip(&writers).enumerate() {
        println!("{name}: {} errors", writer.losses());
        // A sync that was under way may have stored all of it before the fault, in which case nothing is lost.
        let mut regions = taken.seen[i].iter().zip(&taken.writer[i]);
        let lost = regions.any(|(seen, known)| *seen < known.written);
        assert!(
            writer.losses() <= most,
            "{name}: {} errors",
            writer.losses()
        );
        assert!(writer.losses() > 0 || !lost, "{name}: no error");
        writer.sync().expect("the error was returned before");
        for mount in [0, 1] {
            let file = file::open(&cluster.at(mount, name));
            for region in 0..REGIONS {
                let stamp = stamp_of(&file, region);
                let (known, taken) = (&taken.writer[i][region], taken.stamps[i][region]);
                // A write that had not returned when its mount was disconnected may be done when it is back.
                assert!(
                    stamp >= taken || stamp > known.written,
                    "{name}, region {region}: {stamp} is of the lost session, {taken} came after it"
                );
                let again = writer.known()[region].synced;
                assert!(
                    stamp >= again || again == known.synced,
                    "{name}, region {region}: {stamp}, and {again} was synced in the next session"
                );
            }
        }
    }
    drop(writers);
    cluster.stop_and_fsck().ok();
}

#[test]
fn a_mount_stopped_past_its_session_gets_errors_and_recovers() {
    needs_root!();
    taken_out(
        networked(2),
        // One for the request under way, and one for the data not flushed.
        2,
        |cluster| cluster.mount(0).signal(Signal::SIGSTOP),
        |cluster| cluster.mount(0).signal(Signal::SIGCONT),
    );
}

/// A link is cut for longer than a session's lease.
#[test]
fn a_link_cut_for_a_minute_costs_the_session_and_no_more() {
    needs_root!();
    let begun = std::cell::Cell::new(None);
    taken_out(
        networked(2),
        // Every operation that waited for `--io-timeout`, twice in a minute, fails too.
        4,
        |cluster| {
            cluster.cut(Machine::Mount(0));
            begun.set(Some(Instant::now()));
        },
        |cluster| {
            let since = begun.get().expect("cut").elapsed();
            // The duration is the fault; nothing is waited for.
            std::thread::sleep(Duration::from_secs(60).saturating_sub(since));
            cluster.heal(Machine::Mount(0));
        },
    );
}

/// A link is cut for less than a session's lease: no operation fails, nothing is lost.
#[test]
fn a_link_cut_for_a_moment_is_waited_out() {
    needs_root!();
    let cluster = networked(2);
    let writers = prepare(&cluster, 0);
    let files = NAMES.map(|name| file::open(&cluster.at(1, name)));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let until = Until(&stop);
        for (seed, writer) in writers.iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || writer.run(seed as u64, stop, false));
        }
        let watchers: Vec<_> = files
            .iter()
            .map(|file| scope.spawn(|| watch(file, &stop)))
            .collect();
        await_syncs(&writers, 3);
        for mount in [0, 1] {
            cluster.cut(Machine::Mount(mount));
            // The duration is the fault; nothing is waited for.
            std::thread::sleep(Duration::from_secs(5));
            cluster.heal(Machine::Mount(mount));
            await_syncs(&writers, 3);
        }
        drop(until);
        for watcher in watchers {
            assert!(watcher.join().expect("a watcher") > 0);
        }
    });
    for (name, writer) in NAMES.iter().zip(&writers) {
        assert_eq!(writer.ended(), None, "{name}");
        for mount in [0, 1] {
            let stamps = Writer::new(&cluster.at(mount, name)).stamps();
            assert_eq!(stamps, writer.known().map(|known| known.written), "{name}");
        }
    }
    assert_eq!([0, 1].map(|mount| sessions_lost(&cluster, mount)), [0, 0]);
}

#[test]
#[ignore = "takes minutes: tools/soak runs it"]
fn one_after_the_other_over_and_over() {
    needs_root!();
    let (begun, time) = (Instant::now(), soak::time().unwrap_or_default());
    loop {
        a_killed_mount_loses_only_what_it_had_not_synced();
        a_mount_stopped_past_its_session_gets_errors_and_recovers();
        a_link_cut_for_a_moment_is_waited_out();
        a_link_cut_for_a_minute_costs_the_session_and_no_more();
        given_up::requests_given_up_before_a_stop_undo_nothing();
        if begun.elapsed() >= time {
            return;
        }
    }
}
