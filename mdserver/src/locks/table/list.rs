//! The list of locks for people: who holds what, and who waits.

use std::time::Instant;

use super::{Holder, Place, Table};
use crate::api::{Ino, LockMode, LockSpan};

/// A lock that is held, or a request that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::locks) struct Row {
    pub(in crate::locks) place: Place,
    pub(in crate::locks) holder: Holder,
    pub(in crate::locks) pid: u32,
    pub(in crate::locks) span: LockSpan,
    pub(in crate::locks) mode: LockMode,
    pub(in crate::locks) waits: bool,
    pub(in crate::locks) since: Instant,
}

impl Table {
    /// All locks of an object and of its selections, or of all objects: by file, those held before those that wait, and
    /// these in the order in which they are served.
    pub(in crate::locks) fn list(&self, ino: Option<Ino>) -> Vec<Row> {
        let mut places: Vec<&Place> = self
            .places
            .keys()
            .filter(|place| ino.is_none_or(|ino| place.file.ino == ino))
            .collect();
        places.sort_by_cached_key(|place| {
            let selection = place.file.selection.as_ref().map(ToString::to_string);
            (place.file.ino, selection, place.kind)
        });
        let mut rows = Vec::new();
        for place in places {
            let Some(locks) = self.places.get(place) else {
                continue;
            };
            for (holder, held) in &locks.held {
                rows.extend(held.spans.iter().map(|(span, mode)| Row {
                    place: place.clone(),
                    holder: *holder,
                    pid: held.pid,
                    span,
                    mode,
                    waits: false,
                    since: held.since,
                }));
            }
            rows.extend(locks.queue.iter().map(|wanted| Row {
                place: place.clone(),
                holder: wanted.holder,
                pid: wanted.pid,
                span: wanted.span,
                mode: wanted.mode,
                waits: true,
                since: wanted.since,
            }));
        }
        rows
    }
}
