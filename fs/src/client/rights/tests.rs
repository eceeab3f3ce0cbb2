//! Which rights belong to an object that is closed and opened again, and what a lost session leaves behind.

use std::sync::Arc;

use slabfs_mdserver::api::{RightArea, RightMode, RightRecall, RightsBegun, RightsEpoch};
use slabfs_model::ObjectId;

use super::Rights;
use super::cells::Cells;
use super::held::{By, Want};
use super::spans::Span;
use super::state::State;

/// A thread has handled the last recall of an object and not tidied up yet; then that is closed and opened.
#[test]
fn what_is_opened_again_stays_when_its_forerunner_goes() {
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

/// Pages are being dropped when the session is lost: the kernel waits there for one that it has asked for, which
/// therefore must not wait for the end of the drop.
#[test]
fn a_page_does_not_wait_for_what_a_lost_session_has_begun() {
    let page = Want {
        by: By::PageOut,
        mode: RightMode::Read,
        area: Cells::All,
        span: Some(Span::of(0, 4096)),
    };
    let mut state = State {
        working: true,
        ..State::default()
    };
    assert!(!state.is_to_be_asked(&page), "in the session that goes on");
    state.begin_session();
    assert!(state.is_to_be_asked(&page) && !state.is_stuck(&page));
    state.recalls.push_back(RightRecall {
        ino: ObjectId(7),
        serial: Default::default(),
        keep: None,
        area: RightArea::All,
    });
    assert!(!state.is_to_be_asked(&page) && state.is_stuck(&page));
    state.work_ends();
    assert!(!state.is_to_be_asked(&page) && !state.is_stuck(&page));
}
