//! Names that sessions keep, through the service: who is told, who waits, what is never believed.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::rights::{LONG, Mount, mount, two};
use super::support::*;
use crate::Service;
use crate::api::{
    Create, Ino, Kind, MdError, Op, ROOT, RenameFlags, Reply, Request, RightEventKind,
};

/// The directories that a mount is told to forget next, and the number of that.
fn told(mount: &Mount, seen: u64) -> (Vec<Ino>, u64) {
    match &mount.poll(seen, LONG)[..] {
        [event, ..] => match &event.kind {
            RightEventKind::Names { inos, change } => (inos.clone(), *change),
            other => panic!("{other:?}"),
        },
        [] => panic!("nothing was told"),
    }
}

fn forget(mount: &Mount, (inos, change): (Vec<Ino>, u64)) {
    mount.md.forget_names(&inos);
    mount
        .md
        .tell_forgot(mount.begun.epoch, Some(change))
        .unwrap();
}

fn mkdir(mount: &Mount, parent: Ino, name: &str) -> Ino {
    make(&mount.md, parent, name, Kind::Directory).unwrap()
}

#[test]
fn who_keeps_is_told_and_waited_for() {
    let service = service();
    let (one, two) = two(&service);
    let dir = mkdir(&one, ROOT, "d");
    assert_eq!(two.md.look(dir, b"x").map(drop), Err(MdError::NotFound));
    assert_eq!(two.md.cached_name(dir, b"x"), Some(Err(MdError::NotFound)));
    thread::scope(|scope| {
        let making = scope.spawn(|| mkdir(&one, dir, "x"));
        let news = told(&two, 0);
        assert_eq!(news.0, [dir]);
        // It waits, over several tries, and nothing is kept meanwhile.
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

/// A session that begins anew forgets, and is not waited for; nor is one that says so before it does.
#[test]
fn who_begins_anew_has_forgotten() {
    let service = service();
    for anew in [true, false] {
        let (one, mut two) = two(&service);
        let dir = mkdir(&one, ROOT, if anew { "d" } else { "e" });
        assert!(two.md.look(dir, b"x").is_err() && two.md.cached_name(dir, b"x").is_some());
        thread::scope(|scope| {
            let making = scope.spawn(|| mkdir(&one, dir, "x"));
            told(&two, 0);
            two.md.forget_all_names();
            match anew {
                true => two.reset(),
                false => two.md.tell_forgot(two.begun.epoch, None).unwrap(),
            }
            making.join().unwrap();
        });
        assert!(two.md.look(dir, b"x").is_ok());
        one.md.detach(true).unwrap();
        two.md.detach(true).unwrap();
    }
}

/// What has a name may be another directory when nobody has to be waited for any more.
#[test]
fn a_directory_that_came_to_its_name_while_somebody_waited_is_forgotten_too() {
    let service = service();
    let (one, two) = two(&service);
    let three = mount(&service);
    let (from, to) = (mkdir(&one, ROOT, "from"), mkdir(&one, ROOT, "to"));
    let first = mkdir(&one, from, "z");
    // Two keeps what is in `from`, so that the rename has to wait.
    assert!(two.md.look(from, b"x").is_err() && two.md.cached_name(from, b"x").is_some());
    thread::scope(|scope| {
        let renaming = scope.spawn(|| {
            let flags = RenameFlags::Replace;
            one.md.rename(from, b"z", to, b"y", flags)
        });
        let news = told(&two, 0);
        let second = mkdir(&two, to, "y");
        three.md.stat(second, true).unwrap();
        assert!(three.md.cached_directory(second).is_some());
        forget(&two, news);
        let seen = told(&three, 0);
        assert_eq!(seen.0, [second]);
        forget(&three, seen);
        renaming.join().unwrap().unwrap();
        assert_eq!(three.md.cached_directory(second), None);
    });
    assert_eq!(one.md.lookup(to, b"y").unwrap().attr.ino, first);
}

/// A request that waits for who keeps names is given up, and later ones are done before it goes on.
#[test]
fn what_was_given_up_while_it_waited_is_not_done() {
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
        let news = told(&two, 0);
        ask(1001, Op::Release { inos: vec![] }).unwrap();
        forget(&two, news);
        assert!(making.join().unwrap().is_err());
    });
    assert_eq!(one.md.lookup(dir, b"x").map(drop), Err(MdError::NotFound));
}

/// A request that was refused is not done by a copy of it that comes late.
#[test]
fn a_copy_of_what_was_refused_is_refused() {
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
