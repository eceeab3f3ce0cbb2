//! Requests by object: those that are entered together, what takes their results, and what becomes of each.

use std::sync::Arc;

use parking_lot::RwLockReadGuard;
use slabfs_mdserver::api::{MAX_RIGHT_BOXES, RightMode};
use slabfs_objstore::{ChunkName, StoreError};
use smallvec::SmallVec;

use super::core::Begun;
use crate::client::Client;
use crate::client::coherence::range_lock::{RangeGuard, Touched};
use crate::client::coherence::rights::{BoxSet, By, Need, Op, Span};
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;

/// Takes requests that have ended, and their results.
pub(in crate::client) trait Ends {
    /// Makes the ends visible.
    fn end(&self, done: Vec<(Begun, Result<(), FsError>)>);
}

/// The client that runs requests, and what takes their results.
#[derive(Clone, Copy)]
pub(super) struct Runner<'a> {
    pub(super) client: &'a Arc<Client>,
    pub(super) ends: &'a dyn Ends,
}

/// The result of one attempt at a request.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It has ended.
    Over(Result<(), FsError>),
    /// The object's form has changed: the transfer had no effect and is to be retried.
    Again,
    /// The same, because of a chunk that no longer exists.
    Missing(ChunkName),
}

impl From<FsError> for Verdict {
    fn from(error: FsError) -> Verdict {
        match error {
            error if error.is_stale() => Verdict::Again,
            FsError::Store(StoreError::Missing(name)) => Verdict::Missing(name),
            error => Verdict::Over(Err(error)),
        }
    }
}

/// The reads or the writes of a batch on one object, in the order of their starts.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) object: Arc<Object>,
    pub(super) writes: bool,
    pub(super) items: Vec<Begun>,
    /// The chunk that was missing last.
    pub(super) missing: Option<ChunkName>,
}

/// An entered object, for all transfers of a group. Its fields are dropped in this order.
pub(super) struct Hold<'a> {
    /// For writes: keeps flushes out.
    pub(super) _shared: Option<RwLockReadGuard<'a, ()>>,
    pub(super) geometry: RwLockReadGuard<'a, Geometry>,
    pub(super) _range: RangeGuard<'a>,
    pub(super) _op: Op,
}

impl Runner<'_> {
    pub(super) fn end_all(&self, items: Vec<Begun>, error: &FsError) {
        self.ends.end(
            items
                .into_iter()
                .map(|begun| (begun, Err(error.clone())))
                .collect(),
        );
    }

    /// Applies verdicts: ends the requests that are over; returns the group with the rest, if there is any.
    pub(super) fn judge(&self, group: Group, verdicts: Vec<Verdict>) -> Option<Group> {
        let mut ended = Vec::with_capacity(group.items.len());
        let (mut again, mut missing) = (Vec::new(), None);
        for (begun, verdict) in group.items.into_iter().zip(verdicts) {
            match verdict {
                Verdict::Over(result) => {
                    if result.as_ref().is_err_and(FsError::is_loss) {
                        self.client.suspect();
                    }
                    // The error of a cancelled request is of no interest.
                    let cancelled = result.is_err() && begun.is_cancelled();
                    let result = if cancelled {
                        Err(FsError::Cancelled)
                    } else {
                        result
                    };
                    ended.push((begun, result));
                }
                Verdict::Again => again.push(begun),
                // The same chunk twice in a row is not replaced but lost.
                Verdict::Missing(name) if group.missing.as_ref() == Some(&name) => {
                    ended.push((begun, Err(FsError::Store(StoreError::Missing(name)))));
                }
                Verdict::Missing(name) => {
                    missing.get_or_insert(name);
                    again.push(begun);
                }
            }
        }
        self.ends.end(ended);
        (!again.is_empty()).then_some(Group {
            items: again,
            missing,
            ..group
        })
    }

    /// Ends the requests that no longer fit the object, and those that were cancelled.
    pub(super) fn weed(&self, group: &mut Group, geometry: &Geometry) {
        let size = group.object.size(geometry);
        let check = |begun: &Begun| match begun.is_cancelled() {
            true => Err(FsError::Cancelled),
            false => begun
                .plan
                .check(geometry, size)
                .and_then(|()| begun.plan.handle.waiting.check_locks()),
        };
        if group.items.iter().all(|begun| check(begun).is_ok()) {
            return;
        }
        let mut ended = Vec::new();
        for begun in std::mem::take(&mut group.items) {
            match check(&begun) {
                Ok(()) => group.items.push(begun),
                Err(error) => ended.push((begun, Err(error))),
            }
        }
        self.ends.end(ended);
    }
}

impl Group {
    pub(super) fn has_batches(&self) -> bool {
        self.items.iter().any(|begun| begun.plan.batch.is_some())
    }

    /// Whether no other transfer of the group touches the bounding box of this one.
    pub(super) fn has_for_itself(&self, begun: &Begun) -> bool {
        let Some(bounds) = &begun.plan.bounds else {
            return true;
        };
        self.items.iter().all(|other| {
            let others = other.plan.bounds.as_ref();
            std::ptr::eq(other, begun) || others.is_none_or(|others| !others.overlaps(bounds))
        })
    }

    /// What they need to begin, of these cells.
    pub(super) fn need<'a>(&self, cells: &'a dyn Fn(&Geometry, u64) -> BoxSet) -> Need<'a> {
        let mode = match self.writes {
            true => RightMode::Write,
            false => RightMode::Read,
        };
        Need {
            by: By::Program,
            mode,
            long: true,
            span: self.span(),
            cells,
        }
    }

    /// The bytes whose mapped pages a write makes stale: all for selections.
    fn span(&self) -> Option<Span> {
        let batches = self.items.iter().map(|begun| begun.plan.batch.as_ref());
        let spans: Option<Vec<(u64, u64)>> = batches.map(|batch| batch?.span).collect();
        let span = spans.unwrap_or_default().into_iter();
        let span = span.reduce(|one, two| (one.0.min(two.0), one.1.max(two.1)));
        let some = span.map_or(Span::ALL, |(from, to)| Span::of(from, to - from));
        self.writes.then_some(some)
    }

    /// The cells they touch; all cells if the object, as it is known, does not contain them all.
    pub(super) fn needs(&self, geometry: &Geometry, size: u64) -> BoxSet {
        let holds = |begun: &Begun| begun.plan.check(geometry, size).is_ok();
        if !self.items.iter().all(holds) {
            return BoxSet::All;
        }
        if self.items.len() > 64 {
            let bounds = self
                .items
                .iter()
                .filter_map(|begun| begun.plan.bounds.clone());
            return BoxSet::of(bounds.reduce(|one, two| one.union_bounds(&two)));
        }
        let needed = |begun: &Begun| begun.plan.needed(geometry, size);
        BoxSet::of(self.items.iter().flat_map(needed)).bounded(MAX_RIGHT_BOXES)
    }

    /// The cells that must be read or written at once, for `range_lock`. A batch is not one atomic read or write, but in
    /// an `aligned` object bytes between its pieces may be read, and written back with them (`pieces`).
    pub(super) fn touched(&self, geometry: &Geometry) -> SmallVec<[Touched; 1]> {
        let may_pack = self.writes && geometry.grid.is_none();
        let listed = |begun: &&Begun| begun.plan.batch.is_none() || may_pack;
        let touched = self.items.iter().filter(listed).filter_map(|begun| {
            let bounds = begun.plan.bounds.as_ref()?;
            Some(Touched::selected(
                &self.object,
                geometry,
                &begun.plan.slab,
                bounds,
            ))
        });
        touched.collect()
    }

    /// Whether an uncommitted stream may hold older bytes of their cells.
    pub(super) fn has_streams_below(&self) -> bool {
        let state = self.object.state.lock();
        !state.streams.is_empty()
            && state.streams.iter().any(|stream| {
                let below = |begun: &Begun| stream.may_hold(&begun.plan.slab);
                self.items.iter().any(below)
            })
    }
}
