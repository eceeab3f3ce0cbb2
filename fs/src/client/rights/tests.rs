//! Which rights belong to an object that is closed and opened again.

use std::sync::Arc;

use slabfs_mdserver::api::{RightsBegun, RightsLife};
use slabfs_model::ObjectId;

use super::Rights;

/// A thread has handled the last recall of an object and not tidied up yet; then that is closed and opened.
#[test]
fn what_is_opened_again_stays_when_its_forerunner_goes() {
    let rights = Rights::new(Some(RightsBegun {
        life: RightsLife(1),
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
