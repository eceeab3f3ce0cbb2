//! The root while the metadata service is away.
//!
//! Every path begins with the root, also those of `.slabfs`, which tell what is the matter when the service is away.
//! So whoever asks for the attributes of the root is then told what they were last; whatever lies below waits. Who
//! has asked before that was known is answered when it is ([`Caches::drop_all`](crate::client::Caches::drop_all)).

use std::collections::HashMap;
use std::sync::Arc;

use fuser::{FileAttr, ReplyAttr};
use parking_lot::Mutex;

use super::shared::Shared;

/// What is known of the root, and who waits to hear of it.
#[derive(Debug, Default)]
pub(super) struct Root(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// As the kernel was told last.
    last: Option<FileAttr>,
    asked: HashMap<u64, ReplyAttr>,
    next: u64,
}

/// Somebody waits to hear of the root; gets an error if this is dropped.
pub(super) struct Asked {
    root: Arc<Root>,
    number: u64,
}

impl Asked {
    /// What is to be answered with, unless it has been meanwhile.
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
    fn ask(self: &Arc<Self>, reply: ReplyAttr) -> Asked {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        state.asked.insert(number, reply);
        Asked {
            root: self.clone(),
            number,
        }
    }

    fn waits(&self, asked: &Asked) -> bool {
        self.0.lock().asked.contains_key(&asked.number)
    }

    /// The kernel is told of it.
    pub(super) fn note(&self, attr: &FileAttr) {
        self.0.lock().last = Some(*attr);
    }

    /// Answers all who wait, if anything is known; they keep nothing of it.
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

impl Shared {
    /// Somebody asks for the attributes of the root, and is answered at once if the service is away; else by whom it
    /// takes, or when the service is away. Nothing is left to be taken from whoever has been answered: a job for each
    /// would wait for the service.
    pub(super) fn ask_for_root(&self, reply: ReplyAttr) -> Option<Asked> {
        let asked = self.root.ask(reply);
        // After that: the service may be found to be away in between.
        if self.client.lapsed() {
            self.root.answer_as_it_was();
        }
        self.root.waits(&asked).then_some(asked)
    }
}
