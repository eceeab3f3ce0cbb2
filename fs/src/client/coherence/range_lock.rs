//! Range locks: make each client request atomic. A read sees all of a write or nothing of it, even if the write goes
//! to several chunks, and of two writes over the same bytes one is over the other everywhere.
//!
//! Each read and write of a program is listed while it runs, with its ranges. A request that overlaps an earlier one
//! waits for that, if one of the two writes: so they are done in order of arrival, and none is overtaken forever. A
//! request that waits here has entered the object (`rights`) and holds no lock of it; a listed request that runs
//! waits for servers only, never for another request. So there is no cycle of waits.
//!
//! Not listed: the kernel's reads and writes of pages, which must not wait for requests that are not between them and
//! a server (a mapping is atomic per page, no more), and changes of the form, which have the object exclusively.

use parking_lot::{Condvar, Mutex};
use slabfs_mdserver::api::RightMode;
use slabfs_model::{Hyperslab, Region, Span};
use smallvec::{SmallVec, smallvec};

use crate::client::coherence::rights::{By, Need, Op};
use crate::client::error::FsError;
use crate::client::handle::Handle;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;

/// The ranges that a request accesses.
#[derive(Debug, Clone)]
pub(in crate::client) struct Touched {
    /// Bytes of the object.
    bytes: Span,
    /// For a selection: its cells, their bounding box, and the bytes of its packed shape.
    selected: Option<Box<(Hyperslab, Region, Span)>>,
}

impl Touched {
    /// All of a selection of an object: its cells, and their bounding box.
    pub(in crate::client) fn selected(
        object: &Object,
        geometry: &Geometry,
        slab: &Hyperslab,
        bounds: &Region,
    ) -> Touched {
        Touched {
            bytes: around(object, geometry, bounds),
            selected: Some(Box::new((slab.clone(), bounds.clone(), Span::ALL))),
        }
    }

    fn overlaps(&self, other: &Touched) -> bool {
        if !self.bytes.overlaps(other.bytes) {
            return false;
        }
        match (self.selected.as_deref(), other.selected.as_deref()) {
            (Some((one, _, here)), Some((two, _, there))) if one == two => here.overlaps(*there),
            (Some((_, one, _)), Some((_, two, _))) => one.rank() != two.rank() || one.overlaps(two),
            _ => true,
        }
    }
}

#[derive(Debug)]
struct Listed {
    id: u64,
    writes: bool,
    touched: SmallVec<[Touched; 1]>,
}

/// The running and waiting requests of an object, in order of arrival.
#[derive(Debug, Default)]
struct List {
    last: u64,
    waiting: usize,
    requests: Vec<Listed>,
}

impl List {
    /// Whether a request that arrived before `before` conflicts.
    fn is_in_the_way(&self, before: u64, writes: bool, touched: &[Touched]) -> bool {
        let mut earlier = self.requests.iter().take_while(|one| one.id < before);
        earlier.any(|one| {
            let overlaps = |other| one.touched.iter().any(|own| own.overlaps(other));
            (writes || one.writes) && touched.iter().any(overlaps)
        })
    }

    fn add(&mut self, writes: bool, touched: SmallVec<[Touched; 1]>) -> u64 {
        self.last += 1;
        self.requests.push(Listed {
            id: self.last,
            writes,
            touched,
        });
        self.last
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(in crate::client) struct RangeLocks {
    list: Mutex<List>,
    ended: Condvar,
}

/// A running request; it ends when this is dropped.
#[derive(Debug)]
pub(in crate::client) struct RangeGuard<'a>(Option<(&'a RangeLocks, u64)>);

impl RangeLocks {
    /// Begins one request, or several as one that accesses the ranges of all, if none conflicts with it. They are listed
    /// at once, so that none of them waits for a request that waits for another of them.
    pub(in crate::client) fn try_begin_all(
        &self,
        writes: bool,
        touched: SmallVec<[Touched; 1]>,
    ) -> Option<RangeGuard<'_>> {
        let mut list = self.list.lock();
        if list.is_in_the_way(u64::MAX, writes, &touched) {
            return None;
        }
        let id = list.add(writes, touched);
        Some(RangeGuard(Some((self, id))))
    }

    /// [`RangeLocks::try_begin_all`] when the earlier requests that conflict with it have ended.
    pub(in crate::client) fn begin_all(
        &self,
        writes: bool,
        touched: SmallVec<[Touched; 1]>,
    ) -> RangeGuard<'_> {
        let mut list = self.list.lock();
        let id = list.add(writes, touched.clone());
        while list.is_in_the_way(id, writes, &touched) {
            list.waiting += 1;
            self.ended.wait(&mut list);
            list.waiting -= 1;
        }
        RangeGuard(Some((self, id)))
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let Some((range_locks, id)) = self.0 else {
            return;
        };
        let mut list = range_locks.list.lock();
        list.requests.retain(|one| one.id != id);
        if list.waiting > 0 {
            range_locks.ended.notify_all();
        }
    }
}

impl Handle {
    /// Begins a request for `len` bytes, as [`Client::enter`] does, and locks its range; without an offset, at the end
    /// of the object.
    pub(in crate::client) fn enter(
        &self,
        need: &Need<'_>,
        offset: Option<u64>,
        len: usize,
    ) -> Result<(Op, RangeGuard<'_>), FsError> {
        let op = self.client.enter(&self.object, need)?;
        let writes = need.mode == RightMode::Write;
        let lock = |touched| {
            self.object
                .range_locks
                .begin_all(writes, smallvec![touched])
        };
        let touched = self.touched(need.by, offset, len);
        Ok((op, touched.map_or(RangeGuard(None), lock)))
    }

    /// [`Handle::enter`] without waiting; `None` where it would have to wait.
    pub(in crate::client) fn enter_now(
        &self,
        need: &Need<'_>,
        offset: Option<u64>,
        len: usize,
    ) -> Option<(Op, RangeGuard<'_>)> {
        let op = self.client.enter_now(&self.object, need)?;
        let writes = need.mode == RightMode::Write;
        let lock = |touched| {
            let locks = &self.object.range_locks;
            locks.try_begin_all(writes, smallvec![touched])
        };
        let touched = self.touched(need.by, offset, len);
        Some((op, touched.map_or(Some(RangeGuard(None)), lock)?))
    }

    /// The ranges of a request; `None` if it is not listed.
    fn touched(&self, by: By, offset: Option<u64>, len: usize) -> Option<Touched> {
        if by != By::Program {
            return None;
        }
        let bytes = match (offset, &self.selected) {
            (None, _) => Span::of(self.append_at(self.size()), u64::MAX),
            (Some(offset), None) => Span::of(offset, len as u64),
            (Some(offset), Some(selected)) => {
                let bounds = selected.slab.bounds()?;
                let bytes = around(&self.object, &self.object.geometry.read(), &bounds);
                let packed = Span::of(offset, len as u64);
                return Some(Touched {
                    bytes,
                    selected: Some(Box::new((selected.slab.clone(), bounds, packed))),
                });
            }
        };
        Some(Touched {
            bytes,
            selected: None,
        })
    }
}

/// The bytes of an object from the first cell of a box to the last.
fn around(object: &Object, geometry: &Geometry, bounds: &Region) -> Span {
    let cells = geometry.cells_at(object.size(geometry));
    if cells.len() != bounds.rank() {
        return Span::ALL;
    }
    let (mut first, mut last) = (0u64, 0u64);
    for (axis, &len) in cells.iter().enumerate() {
        let end = bounds.end(axis).saturating_sub(1);
        first = first
            .saturating_mul(len)
            .saturating_add(bounds.offset[axis]);
        last = last.saturating_mul(len).saturating_add(end);
    }
    Span { first, last }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    impl RangeLocks {
        fn try_begin(&self, writes: bool, touched: Touched) -> Option<RangeGuard<'_>> {
            self.try_begin_all(writes, smallvec![touched])
        }
    }

    fn plain(from: u64, len: u64) -> Touched {
        Touched {
            bytes: Span::of(from, len),
            selected: None,
        }
    }

    fn selected(region: Region, packed: Span) -> Touched {
        Touched {
            bytes: Span::of(0, 100),
            selected: Some(Box::new((Hyperslab::from_region(&region), region, packed))),
        }
    }

    #[test]
    fn overlapping_requests_exclude_each_other_unless_both_read() {
        let range_locks = RangeLocks::default();
        let read = range_locks.try_begin(false, plain(0, 10)).unwrap();
        let overlaps = range_locks.try_begin(false, plain(5, 10)).unwrap();
        assert!(range_locks.try_begin(true, plain(9, 1)).is_none());
        let write = range_locks.try_begin(true, plain(15, 5)).unwrap();
        assert!(range_locks.try_begin(false, plain(0, 16)).is_none());
        drop(read);
        assert!(range_locks.try_begin(true, plain(0, 5)).is_some());
        drop((overlaps, write));
        assert!(range_locks.try_begin(true, plain(0, 100)).is_some());
    }

    #[test]
    fn selections_overlap_by_cells_and_in_themselves_by_bytes() {
        let left = |packed| selected(Region::new(&[0, 0], &[10, 5]), packed);
        let right = selected(Region::new(&[0, 5], &[10, 5]), Span::of(0, 50));
        let across = selected(Region::new(&[2, 0], &[1, 10]), Span::of(0, 10));
        assert!(!left(Span::of(0, 50)).overlaps(&right));
        assert!(left(Span::of(0, 50)).overlaps(&across) && across.overlaps(&right));
        assert!(!left(Span::of(0, 10)).overlaps(&left(Span::of(10, 10))));
        assert!(left(Span::of(0, 10)).overlaps(&left(Span::of(9, 10))));
        assert!(right.overlaps(&plain(99, 1)) && !right.overlaps(&plain(100, 1)));
    }

    #[test]
    fn several_requests_as_one_lock_all_their_ranges() {
        let range_locks = RangeLocks::default();
        let both = range_locks
            .try_begin_all(true, smallvec![plain(0, 5), plain(20, 5)])
            .unwrap();
        assert!(range_locks.try_begin(false, plain(24, 9)).is_none());
        let between = range_locks.try_begin(true, plain(5, 15)).unwrap();
        assert!(
            range_locks
                .try_begin_all(false, smallvec![plain(40, 1), plain(6, 1)])
                .is_none()
        );
        drop(both);
        assert!(range_locks.try_begin(true, plain(20, 5)).is_some());
        drop(between);
    }

    #[test]
    fn a_waiting_writer_is_not_overtaken() {
        let range_locks = RangeLocks::default();
        let (begun, begins) = mpsc::channel();
        std::thread::scope(|scope| {
            let first = range_locks.try_begin(false, plain(0, 10)).unwrap();
            scope.spawn(|| {
                let _range = range_locks.begin_all(true, smallvec![plain(5, 10)]);
                begun.send(()).unwrap();
            });
            while range_locks.list.lock().waiting == 0 {
                std::thread::yield_now();
            }
            assert!(range_locks.try_begin(false, plain(12, 1)).is_none());
            assert!(range_locks.try_begin(false, plain(0, 5)).is_some());
            assert!(begins.try_recv().is_err());
            drop(first);
            begins.recv().unwrap();
        });
        assert!(range_locks.try_begin(true, plain(0, 100)).is_some());
    }
}
