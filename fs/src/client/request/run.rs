//! Execution of requests: enters their objects, and retries those that a change of an object has undone.
//!
//! Several objects are entered together if none of them blocks; one that does is run alone, after the rest.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::core::Begun;
use super::group::{Ends, Group, Hold, Runner};
use super::{read, write};
use crate::client::buffer::flush::Scope;
use crate::client::coherence::rights::Need;
use crate::client::coupling::Awaited;
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;
use crate::client::{Client, FORM_TRIES};

/// Runs requests to their end: writes first, so that reads see them.
pub(in crate::client) fn run(client: &Arc<Client>, ends: &dyn Ends, requests: Vec<Begun>) {
    let runner = Runner { client, ends };
    let requests = runner.await_peers(requests);
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
    /// Waits for the data that reads of coupled objects need, and for room in the queues that writes go to; ends those that
    /// wait in vain. Requests that may wait are run alone, or by a caller that has only them to wait for.
    fn await_peers(&self, requests: Vec<Begun>) -> Vec<Begun> {
        let mut left = Vec::with_capacity(requests.len());
        for mut begun in requests {
            if !begun.awaits_peers() {
                left.push(begun);
                continue;
            }
            let handle = &begun.plan.handle;
            let wanted = || !begun.is_cancelled() && !self.client.transfers().is_closed();
            let boxes = |geometry: &Geometry| {
                let size = handle.object.size(geometry);
                begun.plan.needed(geometry, size)
            };
            let awaited = match (begun.plan.writes, &begun.plan.bounds) {
                (true, Some(bounds)) => handle
                    .await_rows((bounds.offset[0], bounds.end(0)), &wanted)
                    .map(|()| Awaited::Nothing),
                (true, None) => Ok(Awaited::Nothing),
                (false, _) => handle.await_boxes(&boxes, &wanted),
            };
            match awaited {
                Ok(awaited) => {
                    begun.awaited = awaited;
                    left.push(begun);
                }
                Err(error) => self.end_all(vec![begun], &error),
            }
        }
        left
    }

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
            // Those whose data was removed after they had waited for it wait again.
            group.items = self.await_peers(group.items);
            if group.missing.is_none()
                && let Err(error) = client.refresh(&object)
            {
                return self.end_all(group.items, &error);
            }
        }
        let error = FsError::Unsettled("a transfer gave up".into());
        self.end_all(group.items, &error);
    }

    fn carry_out(&self, held: Vec<(Group, Hold<'_>)>) -> Vec<Group> {
        match held.first() {
            Some((group, _)) if group.writes => write::write(*self, held),
            Some(_) => read::read(*self, held),
            None => Vec::new(),
        }
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
            let need = Need {
                long: false,
                ..group.need(&needs)
            };
            let entered = self.client.admit(&group.object);
            let entered = entered.and_then(|_| self.client.enter(&group.object, &need));
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
        let need = group.need(&needs);
        let op = client.enter_now(object, &need)?;
        let touched = group.touched(&*object.geometry.try_read()?);
        let range = object.range_locks.try_begin_all(group.writes, touched)?;
        let geometry = object.geometry.try_read()?;
        if epoch != client.epoch() || !op.covers(&need, object, &geometry) {
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
            let need = group.need(&needs);
            let op = client.enter(object, &need)?;
            let touched = group.touched(&object.geometry.read());
            let range = object.range_locks.begin_all(group.writes, touched);
            let geometry = object.geometry.read();
            if epoch != client.epoch() || !op.covers(&need, object, &geometry) {
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
