//! Tests: the rights of an object that is closed and opened again, and the work left by a lost session.

use std::sync::Arc;

use slabfs_mdserver::api::{RightArea, RightMode, RightRecall, RightsBegun, RightsEpoch};
use slabfs_model::ObjectId;

use super::Rights;
use super::held::{By, Want};
use super::state::State;
use slabfs_model::{BoxSet, Span};

/// A thread has handled the last recall of an object but not tidied up yet; then the object is closed and opened
/// again.
#[test]
fn tidying_up_an_object_leaves_its_successor() {
    let rights = Rights::new(Some(RightsBegun {
        epoch: RightsEpoch(1),
        alone: false,
    }));
    let ino = ObjectId(7);
    let first = rights.own(ino);
    rights.disown(&first);
    let second = rights.own(ino);
    rights.tidy(&first);
    let found = rights.find(ino).expect("it is open");
    assert!(Arc::ptr_eq(&found, &second));
    rights.disown(&first);
    assert!(rights.find(ino).is_some());
    rights.disown(&second);
    assert!(rights.find(ino).is_none());
}

/// Pages are being dropped when the session is lost. The kernel's drop waits for a page that it has requested, so
/// that request must not wait for the end of the drop.
#[test]
fn a_page_request_does_not_wait_for_work_of_a_lost_session() {
    let page = Want {
        by: By::PageOut,
        mode: RightMode::Read,
        area: BoxSet::All,
        span: Some(Span::of(0, 4096)),
    };
    let mut state = State {
        working: true,
        ..State::default()
    };
    assert!(!state.needs_ask(&page), "in the current session");
    state.begin_session();
    assert!(state.needs_ask(&page) && !state.is_stuck(&page));
    state.recalls.push_back(RightRecall {
        ino: ObjectId(7),
        serial: Default::default(),
        keep: None,
        area: RightArea::All,
    });
    assert!(!state.needs_ask(&page) && state.is_stuck(&page));
    state.work_ends();
    assert!(!state.needs_ask(&page) && !state.is_stuck(&page));
}

/// An object is closed while the kernel drops its pages for a recall. The pages that it reads for the next opening would
/// have to wait for that recall, and the drop for them: the next open waits until the drop has ended.
#[test]
fn an_open_waits_for_a_drop_that_began_before_the_close() {
    let mut state = State::default();
    state.drop_begins(Span::ALL);
    assert!(!state.left_drops, "its pages are those of open files");
    state.disown();
    state.drop_begins(Span::of(0, 1));
    state.drop_ended(Span::of(0, 1));
    assert!(state.left_drops, "one of them runs");
    state.drop_ended(Span::ALL);
    assert!(!state.left_drops);
}
