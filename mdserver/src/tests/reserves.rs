//! Tests of reservations of grid objects, and of the tails that dead sessions leave.

use slabfs_model::Coords;

use super::support::*;
use crate::api::{CREATOR_RESERVE, MdError, ResizeHow, op};

#[test]
fn the_creator_has_room() {
    let (_service, md) = ready();
    let ino = file(&md, "a");
    let mut commit = commit_of(&md, ino);
    commit.size_at_least = 1000;
    assert_eq!(md.call(commit).unwrap().attr.size, 1000);
    let reply = md.reserve(ino, CREATOR_RESERVE + 1).unwrap();
    assert!(reply.upto > CREATOR_RESERVE && reply.clear.is_none());
    assert!(matches!(md.reserve(ino, u64::MAX), Err(MdError::TooBig(_))));
}

#[test]
fn a_dead_tail_is_cleared_before_growth() {
    let (service, dead) = ready();
    let ino = file(&dead, "a");
    let mut commit = commit_of(&dead, ino);
    commit.size_at_least = 1000;
    dead.call(commit.clone()).unwrap();
    dead.call(op::Detach { clean: false }).unwrap();

    let md = attach(&service);
    let other = attach(&service);
    commit.size_at_least = 2000;
    assert_eq!(md.call(commit.clone()), Err(MdError::NeedsClear));
    let longer = Coords::from_slice(&[2000]);
    let grow = || md.resize(ino, longer.clone(), ResizeHow::Truncate);
    assert_eq!(grow().map(|_| ()), Err(MdError::NeedsClear));
    assert_eq!(
        md.reserve(ino, 2000),
        Err(MdError::Busy),
        "the data server may still take a write of the dead session"
    );
    beat(&service, vec![]);
    let reply = md.reserve(ino, 2000).unwrap();
    assert_eq!(reply.clear, Some((1000, CREATOR_RESERVE)));
    assert_eq!(
        other.reserve(ino, 2000),
        Err(MdError::Busy),
        "another session is clearing"
    );
    assert_eq!(
        md.call(commit.clone()),
        Err(MdError::NeedsClear),
        "not cleared yet"
    );
    let reply = md.reserve(ino, 2000).unwrap();
    assert!(reply.clear.is_none() && reply.upto >= 2000);
    assert_eq!(md.call(commit).unwrap().attr.size, 2000);
    assert!(other.reserve(ino, 3000).unwrap().clear.is_none());
    grow().unwrap();
}

#[test]
fn clearing_is_continued_after_a_session_dies() {
    let (service, dead) = ready();
    let ino = file(&dead, "a");
    dead.call(op::Detach { clean: false }).unwrap();
    let also_dead = attach(&service);
    beat(&service, vec![]);
    assert!(also_dead.reserve(ino, 10).unwrap().clear.is_some());
    also_dead.call(op::Detach { clean: false }).unwrap();
    let md = attach(&service);
    assert_eq!(md.reserve(ino, 10), Err(MdError::Busy), "it may clear late");
    beat(&service, vec![]);
    assert_eq!(
        md.reserve(ino, 10).unwrap().clear,
        Some((0, CREATOR_RESERVE))
    );
    assert_eq!(md.reserve(ino, 10).unwrap().clear, None);
}

#[test]
fn an_emptied_object_has_no_tail() {
    let (service, dead) = ready();
    let ino = file(&dead, "a");
    dead.call(op::Detach { clean: false }).unwrap();
    let md = attach(&service);
    md.call(op::Clear { ino }).unwrap();
    assert_eq!(md.reserve(ino, 10).unwrap().clear, None);
}

#[test]
fn reservations_of_live_sessions_remain() {
    let (service, dead) = ready();
    let ino = file(&dead, "a");
    let md = attach(&service);
    md.reserve(ino, CREATOR_RESERVE).unwrap();
    dead.call(op::Detach { clean: false }).unwrap();
    // A live session's reservation reaches beyond the dead one's end: there is nothing to clear.
    assert_eq!(md.reserve(ino, 10).unwrap().clear, None);
}
