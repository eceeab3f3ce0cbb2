//! Tests of names cached by sessions, through the service: which sessions are notified, which requests wait, and which
//! cached names are not used.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::rights::{LONG, Mount, mount, two};
use super::support::*;
use crate::Service;
use crate::api::{
    Create, Ino, Kind, MdError, Op, ROOT, RenameFlags, Reply, Request, RightEventKind, op,
};

/// The directories in the next event that asks a mount to drop names, and the number of the change.
fn names_event(mount: &Mount, seen: u64) -> (Vec<Ino>, u64) {
    match &mount.poll(seen, LONG)[..] {
        [event, ..] => match &event.kind {
            RightEventKind::Names { inos, change } => (inos.clone(), *change),
            other => panic!("{other:?}"),
        },
        [] => panic!("no event"),
    }
}

fn forget(mount: &Mount, (inos, change): (Vec<Ino>, u64)) {
    mount.md.forget_names(&inos);
    mount
        .md
        .call(op::ReportForgotten {
            epoch: mount.begun.epoch,
            change: Some(change),
        })
        .unwrap();
}

fn mkdir(mount: &Mount, parent: Ino, name: &str) -> Ino {
    make(&mount.md, parent, name, Kind::Directory).unwrap()
}

#[test]
fn a_change_waits_until_cached_names_are_dropped() {
    let service = service();
    let (one, two) = two(&service);
    let dir = mkdir(&one, ROOT, "d");
    assert_eq!(two.md.look(dir, b"x").map(drop), Err(MdError::NotFound));
    assert_eq!(two.md.cached_name(dir, b"x"), Some(Err(MdError::NotFound)));
    thread::scope(|scope| {
        let making = scope.spawn(|| mkdir(&one, dir, "x"));
        let news = names_event(&two, 0);
        assert_eq!(news.0, [dir]);
        // The request waits, over several attempts, and no name is cached meanwhile.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            assert!(!making.is_finished());
            assert_eq!(two.md.look(dir, b"x").map(drop), Err(MdError::NotFound));
            thread::yield_now();
        }
        forget(&two, news);
        assert_eq!(two.md.cached_name(dir, b"x"), None);
        let made = making.join().unwrap();
        assert_eq!(two.md.look(dir, b"x").unwrap().attr.ino, made);
    });
}

/// A change does not wait for a session that begins a new epoch and so drops its names, nor for one that reports that
/// it has dropped all names.
#[test]
fn a_session_in_a_new_epoch_has_dropped_its_names() {
    let service = service();
    for resets in [true, false] {
        let (one, mut two) = two(&service);
        let dir = mkdir(&one, ROOT, if resets { "d" } else { "e" });
        assert!(two.md.look(dir, b"x").is_err() && two.md.cached_name(dir, b"x").is_some());
        thread::scope(|scope| {
            let making = scope.spawn(|| mkdir(&one, dir, "x"));
            names_event(&two, 0);
            two.md.forget_all_names();
            match resets {
                true => two.reset(),
                false => two
                    .md
                    .call(op::ReportForgotten {
                        epoch: two.begun.epoch,
                        change: None,
                    })
                    .unwrap(),
            }
            making.join().unwrap();
        });
        assert!(two.md.look(dir, b"x").is_ok());
        one.md.call(op::Detach { clean: true }).unwrap();
        two.md.call(op::Detach { clean: true }).unwrap();
    }
}

/// While a rename waits for cached names to be dropped, another directory may be created under the target name.
#[test]
fn a_directory_created_under_the_target_name_meanwhile_is_dropped_too() {
    let service = service();
    let (one, two) = two(&service);
    let three = mount(&service);
    let (from, to) = (mkdir(&one, ROOT, "from"), mkdir(&one, ROOT, "to"));
    let first = mkdir(&one, from, "z");
    // Mount `two` caches names in `from`, so that the rename has to wait.
    assert!(two.md.look(from, b"x").is_err() && two.md.cached_name(from, b"x").is_some());
    thread::scope(|scope| {
        let renaming = scope.spawn(|| {
            let flags = RenameFlags::Replace;
            one.md.rename(from, b"z", to, b"y", flags)
        });
        let news = names_event(&two, 0);
        let second = mkdir(&two, to, "y");
        three.md.stat(second, true).unwrap();
        assert!(three.md.cached_directory(second).is_some());
        forget(&two, news);
        let seen = names_event(&three, 0);
        assert_eq!(seen.0, [second]);
        forget(&three, seen);
        renaming.join().unwrap().unwrap();
        assert_eq!(three.md.cached_directory(second), None);
    });
    assert_eq!(one.md.lookup(to, b"y").unwrap().attr.ino, first);
}

/// A request that waits for cached names to be dropped is abandoned, and later requests are executed before it
/// continues.
#[test]
fn a_request_abandoned_while_it_waits_is_not_executed() {
    let service = service();
    let (one, two) = two(&service);
    let dir = mkdir(&one, ROOT, "d");
    assert!(two.md.look(dir, b"x").is_err() && two.md.cached_name(dir, b"x").is_some());
    let ask = |seq, op| {
        service.call_remote(Request {
            session: one.md.session(),
            seq,
            done_below: seq,
            op,
        })
    };
    thread::scope(|scope| {
        let making = scope.spawn(|| ask(1000, Op::Create(new(dir, "x", Kind::Directory))));
        let news = names_event(&two, 0);
        ask(1001, Op::Release(op::Release { inos: vec![] })).unwrap();
        forget(&two, news);
        assert!(making.join().unwrap().is_err());
    });
    assert_eq!(one.md.lookup(dir, b"x").map(drop), Err(MdError::NotFound));
}

/// A late copy of a refused request is not executed.
#[test]
fn a_copy_of_a_refused_request_is_refused() {
    let service: Arc<Service> = service();
    let one = mount(&service);
    mkdir(&one, ROOT, "d");
    let request = Request {
        session: one.md.session(),
        seq: 1000,
        done_below: 1,
        op: Op::Create(Create {
            exclusive: true,
            ..new(ROOT, "d", Kind::Directory)
        }),
    };
    assert_eq!(service.call_remote(request.clone()), Err(MdError::Exists));
    one.md.rmdir(ROOT, b"d").unwrap();
    assert_eq!(service.call_remote(request.clone()), Err(MdError::Exists));
    let other = Request {
        seq: 1001,
        ..request
    };
    assert!(matches!(service.call_remote(other), Ok(Reply::Created(_))));
}
