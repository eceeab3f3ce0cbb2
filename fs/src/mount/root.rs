//! The attributes of the root while the metadata service is down.
//!
//! Every path begins with the root, also those of `.slabfs`, which report the problem when the service is down. So a
//! `getattr` of the root then returns the last known attributes; requests for anything below it wait. A request that
//! came before the outage was detected is answered when it is detected
//! ([`Caches::drop_all`](crate::client::Caches::drop_all)).

use std::collections::HashMap;
use std::sync::Arc;

use fuser::{FileAttr, ReplyAttr};
use parking_lot::Mutex;

/// The last known attributes of the root, and the requests that wait for them.
#[derive(Debug, Default)]
pub(super) struct Root(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The attributes that the kernel was given last.
    last: Option<FileAttr>,
    asked: HashMap<u64, ReplyAttr>,
    next: u64,
}

/// A waiting request for the root's attributes; dropping this answers it with an error.
pub(super) struct Asked {
    root: Arc<Root>,
    number: u64,
}

impl Asked {
    /// The reply, unless the request has been answered meanwhile.
    pub(super) fn take(&self) -> Option<ReplyAttr> {
        self.root.0.lock().asked.remove(&self.number)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl Root {
    /// Registers a request.
    pub(super) fn ask(self: &Arc<Self>, reply: ReplyAttr) -> Asked {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        state.asked.insert(number, reply);
        Asked {
            root: self.clone(),
            number,
        }
    }

    /// Whether it has not been answered yet.
    pub(super) fn waits(&self, asked: &Asked) -> bool {
        self.0.lock().asked.contains_key(&asked.number)
    }

    /// Records the attributes that the kernel is given.
    pub(super) fn note(&self, attr: &FileAttr) {
        self.0.lock().last = Some(*attr);
    }

    /// Answers all waiting requests with the last known attributes, if there are any; the kernel does not cache them.
    pub(super) fn answer_as_it_was(&self) {
        let (last, asked) = {
            let mut state = self.0.lock();
            let Some(last) = state.last else { return };
            (last, std::mem::take(&mut state.asked))
        };
        for reply in asked.into_values() {
            reply.attr(&std::time::Duration::ZERO, &last);
        }
    }
}
