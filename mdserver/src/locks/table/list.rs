//! The list of locks for people: who holds what, and who waits.

use std::time::Instant;

use super::{Holder, Locks, Place, Table};
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
    /// The locks of an object and of its selections, or of all objects: by file, those held before those that wait, and
    /// these in the order in which they are served. At most `most` that are held and `most` that wait; and how many
    /// there are besides.
    pub(in crate::locks) fn list(&self, ino: Option<Ino>, most: usize) -> (Vec<Row>, u64) {
        let mut places: Vec<(&Place, &Locks)> = self
            .places
            .iter()
            .filter(|(place, _)| ino.is_none_or(|ino| place.file.ino == ino))
            .collect();
        places.sort_by_cached_key(|(place, _)| {
            let selection = place.file.selection.as_ref().map(ToString::to_string);
            (place.file.ino, selection, place.kind)
        });
        let (mut rows, mut left) = (Vec::new(), 0);
        let (mut held, mut waiting) = (0, 0);
        for (place, locks) in places {
            for (holder, mine) in &locks.held {
                for (span, mode) in mine.spans.iter() {
                    held += 1;
                    if held > most {
                        left += 1;
                        continue;
                    }
                    rows.push(Row {
                        place: place.clone(),
                        holder: *holder,
                        pid: mine.pid,
                        span,
                        mode,
                        waits: false,
                        since: mine.since,
                    });
                }
            }
            for wanted in locks.queue.values() {
                waiting += 1;
                if waiting > most {
                    left += 1;
                    continue;
                }
                rows.push(Row {
                    place: place.clone(),
                    holder: wanted.holder,
                    pid: wanted.pid,
                    span: wanted.span,
                    mode: wanted.mode,
                    waits: true,
                    since: wanted.since,
                });
            }
        }
        (rows, left)
    }
}
