//! Execution of requests: enters their objects, and retries those that a change of an object has undone.
//!
//! Several objects are entered together if none of them blocks; one that does is run alone, after the rest.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::RwLockReadGuard;
use slabfs_mdserver::api::{MAX_RIGHT_BOXES, RightMode};
use slabfs_objstore::{ChunkName, StoreError};
use smallvec::SmallVec;

use super::core::Begun;
use super::{read, write};
use crate::client::error::FsError;
use crate::client::flush::Scope;
use crate::client::geometry::Geometry;
use crate::client::object::Object;
use crate::client::range_lock::{RangeGuard, Touched};
use crate::client::rights::{BoxSet, By, Op, Span};
use crate::client::{Client, FORM_TRIES};

/// Takes requests that have ended, and their results.
pub(in crate::client) trait Ends {
    /// Makes the ends visible.
    fn end(&self, done: Vec<(Begun, Result<(), FsError>)>);
}

/// The client that runs requests, and who takes their ends.
#[derive(Clone, Copy)]
pub(super) struct Runner<'a> {
    pub(super) client: &'a Arc<Client>,
    ends: &'a dyn Ends,
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
    missing: Option<ChunkName>,
}

/// An entered object, for all transfers of a group. Its fields are dropped in this order.
pub(super) struct Hold<'a> {
    /// For writes: keeps flushes out.
    _shared: Option<RwLockReadGuard<'a, ()>>,
    pub(super) geometry: RwLockReadGuard<'a, Geometry>,
    _range: RangeGuard<'a>,
    _op: Op,
}

/// Runs requests to their end: writes first, so that reads see them.
pub(in crate::client) fn run(client: &Arc<Client>, ends: &dyn Ends, requests: Vec<Begun>) {
    let runner = Runner { client, ends };
    let (writes, reads): (Vec<Begun>, Vec<Begun>) =
        requests.into_iter().partition(|begun| begun.plan.writes);
    for (writes, items) in [(true, writes), (false, reads)] {
        let mut groups = grouped(writes, items);
        runner.write_back_beneath(&mut groups);
        if groups.len() > 1 {
            runner.get_rights(&mut groups);
            groups = runner.together(groups);
        }
        for group in groups {
            runner.alone(group);
        }
    }
}

/// Groups transfers by object, in the order of inode numbers.
fn grouped(writes: bool, items: Vec<Begun>) -> Vec<Group> {
    let mut items = items;
    // Stable: the transfers of one object stay in order.
    items.sort_by_key(|begun| begun.plan.handle.object.ino);
    let mut groups: Vec<Group> = Vec::new();
    for begun in items {
        let object = &begun.plan.handle.object;
        match groups.last_mut() {
            // After a close and another open, an inode has another `Object`.
            Some(group) if Arc::ptr_eq(&group.object, object) => group.items.push(begun),
            _ => groups.push(Group {
                object: object.clone(),
                writes,
                items: vec![begun],
                missing: None,
            }),
        }
    }
    groups
}

impl Runner<'_> {
    /// Runs the groups that can be entered without blocking, all objects together; returns the rest.
    fn together(&self, groups: Vec<Group>) -> Vec<Group> {
        let objects: Vec<Arc<Object>> = groups.iter().map(|group| group.object.clone()).collect();
        let mut held = Vec::new();
        let mut rest = Vec::new();
        for (mut group, object) in groups.into_iter().zip(&objects) {
            match self.hold_now(object, &mut group) {
                Some(hold) => held.push((group, hold)),
                None => rest.push(group),
            }
        }
        rest.extend(self.carry_out(held));
        rest.retain(|group| !group.items.is_empty());
        rest
    }

    /// Runs the requests of one object until they have ended.
    fn alone(&self, mut group: Group) {
        let (client, object) = (self.client, group.object.clone());
        for _ in 0..FORM_TRIES {
            if group.items.is_empty() {
                return;
            }
            let looked = match group.missing {
                Some(_) => client.refresh_tiling(&object),
                None => Ok(()),
            };
            let hold = match looked.and_then(|()| self.hold(&object, &mut group)) {
                Ok(hold) => hold,
                Err(error) => return self.end_all(group.items, &error),
            };
            let Some(again) = self.carry_out(vec![(group, hold)]).pop() else {
                return;
            };
            group = again;
            if group.missing.is_none()
                && let Err(error) = client.refresh(&object)
            {
                return self.end_all(group.items, &error);
            }
        }
        let error = FsError::Unsettled("a transfer gave up".into());
        self.end_all(group.items, &error);
    }

    fn end_all(&self, items: Vec<Begun>, error: &FsError) {
        self.ends.end(
            items
                .into_iter()
                .map(|begun| (begun, Err(error.clone())))
                .collect(),
        );
    }

    fn carry_out(&self, held: Vec<(Group, Hold<'_>)>) -> Vec<Group> {
        match held.first() {
            Some((group, _)) if group.writes => write::write(*self, held),
            Some(_) => read::read(*self, held),
            None => Vec::new(),
        }
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
    fn weed(&self, group: &mut Group, geometry: &Geometry) {
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

    /// Writes back the overlay on the bytes that batches read: a batch reads from the servers only.
    fn write_back_beneath(&self, groups: &mut [Group]) {
        for group in groups.iter_mut().filter(|group| !group.writes) {
            let object = group.object.clone();
            let beneath = |begun: &Begun| {
                let batch = begun.plan.batch.as_ref();
                let span = batch.and_then(|batch| batch.span);
                span.is_some_and(|span| object.has_overlay(span))
            };
            if !group.items.iter().any(beneath) {
                continue;
            }
            let flushed = self
                .client
                .admit(&object)
                .and_then(|_| self.client.flush_object(&object, Scope::All));
            let Err(error) = flushed else { continue };
            let (ended, left) = std::mem::take(&mut group.items)
                .into_iter()
                .partition(|begun| begun.plan.batch.is_some());
            group.items = left;
            self.end_all(ended, &error);
        }
    }

    /// Acquires the rights that groups need, one after the other, without holding them: most likely they are still here
    /// when all groups are entered together.
    fn get_rights(&self, groups: &mut Vec<Group>) {
        if !self.client.shared() {
            return;
        }
        groups.retain_mut(|group| {
            let needs = |geometry: &Geometry, size| group.needs(geometry, size);
            let entered = self.client.admit(&group.object).and_then(|_| {
                self.client.enter(
                    &group.object,
                    By::Program,
                    group.mode(),
                    group.span(),
                    &needs,
                )
            });
            match entered {
                Ok(_) => true,
                Err(error) => {
                    self.end_all(std::mem::take(&mut group.items), &error);
                    false
                }
            }
        });
    }

    /// Enters an object for a group if that does not block.
    fn hold_now<'a>(&self, object: &'a Object, group: &mut Group) -> Option<Hold<'a>> {
        let client = self.client;
        if client.lapsed() || object.gone.load(Ordering::Acquire) || client.form_due(object) {
            return None;
        }
        let epoch = client.epoch();
        let needs = |geometry: &Geometry, size| group.needs(geometry, size);
        let op = client.enter_long_now(object, group.mode(), group.span(), &needs)?;
        let touched = group.touched(&*object.geometry.try_read()?);
        let range = object.range_locks.try_begin_all(group.writes, touched)?;
        let geometry = object.geometry.try_read()?;
        let size = object.size(&geometry);
        if epoch != client.epoch()
            || !op.covers(geometry.form(size), || group.needs(&geometry, size))
        {
            return None;
        }
        let shared = match group.writes {
            true if group.has_streams_below() => return None,
            true => Some(object.flushing.try_read()?),
            false => None,
        };
        self.weed(group, &geometry);
        Some(Hold {
            _shared: shared,
            geometry,
            _range: range,
            _op: op,
        })
    }

    /// Enters an object for a group. The caller must not have entered another one.
    fn hold<'a>(&self, object: &'a Object, group: &mut Group) -> Result<Hold<'a>, FsError> {
        let client = self.client;
        for _ in 0..FORM_TRIES {
            let epoch = client.admit(object)?;
            if client.form_due(object) {
                client.refresh(object)?;
            }
            let needs = |geometry: &Geometry, size| group.needs(geometry, size);
            let op = client.enter_long(object, group.mode(), group.span(), &needs)?;
            let touched = group.touched(&object.geometry.read());
            let range = object.range_locks.begin_all(group.writes, touched);
            let geometry = object.geometry.read();
            let size = object.size(&geometry);
            if epoch != client.epoch()
                || !op.covers(geometry.form(size), || group.needs(&geometry, size))
            {
                continue;
            }
            let shared = match group.writes {
                true => {
                    if group.has_streams_below() {
                        client.flush_shaped(object, &geometry, Scope::Streams)?;
                    }
                    Some(object.flushing.read())
                }
                false => None,
            };
            self.weed(group, &geometry);
            return Ok(Hold {
                _shared: shared,
                geometry,
                _range: range,
                _op: op,
            });
        }
        Err(FsError::Unsettled("a transfer could not begin".into()))
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

    fn mode(&self) -> RightMode {
        match self.writes {
            true => RightMode::Write,
            false => RightMode::Read,
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
    fn needs(&self, geometry: &Geometry, size: u64) -> BoxSet {
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

    /// The cells that must be read or written at once, for `range_lock`. A batch is not one atomic read or write.
    fn touched(&self, geometry: &Geometry) -> SmallVec<[Touched; 1]> {
        let selections = self.items.iter().filter(|begun| begun.plan.batch.is_none());
        let touched = selections.filter_map(|begun| {
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
    fn has_streams_below(&self) -> bool {
        let state = self.object.state.lock();
        !state.streams.is_empty()
            && state.streams.iter().any(|stream| {
                let below = |begun: &Begun| stream.may_hold(&begun.plan.slab);
                self.items.iter().any(below)
            })
    }
}
