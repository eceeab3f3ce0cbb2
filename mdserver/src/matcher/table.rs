//! The cells that waiting reads miss: the table of one matcher.
//!
//! Each missing box is a record in an R-tree. A box of new data is cut out of those that it overlaps: what is left of each
//! takes its place. So an announcement costs O(log n) and its overlaps, and a read that has no box left has all its cells.
//! Pure: no locks, no clocks.

use std::collections::{BTreeSet, HashMap};

use slabfs_model::layout::tiling::{Record, Tiling};
use slabfs_model::{Hyperslab, Region};

/// A waiting read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

/// The table; see the module documentation.
#[derive(Debug)]
pub(crate) struct Table {
    boxes: Tiling<Ticket>,
    next: u64,
    /// The boxes of each read.
    reads: HashMap<Ticket, BTreeSet<u64>>,
}

impl Table {
    /// An empty table, for objects of this many axes.
    pub(crate) fn new(rank: usize) -> Table {
        Table {
            boxes: Tiling::new(rank),
            next: 0,
            reads: HashMap::new(),
        }
    }

    /// Whether no read waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Adds a box that a read misses. A box of another rank, or without cells, is not added.
    pub(crate) fn add(&mut self, ticket: Ticket, missing: &Region) {
        if missing.is_empty() || missing.rank() != self.boxes.rank() {
            return;
        }
        let record = Record {
            slab: Hyperslab::from_region(missing),
            clip: None,
            order: self.next,
            value: ticket,
        };
        if self.boxes.insert(record).is_ok() {
            self.reads.entry(ticket).or_default().insert(self.next);
            self.next += 1;
        }
    }

    /// Cuts a box of new data out of what reads miss. Returns those that miss nothing any more; they are removed.
    pub(crate) fn cut(&mut self, data: &Region) -> Vec<Ticket> {
        let mut complete = Vec::new();
        let mut left = Vec::new();
        for order in self.boxes.orders_within(data) {
            let Some(record) = self.boxes.remove(order) else {
                continue;
            };
            let ticket = record.value;
            if let Some(orders) = self.reads.get_mut(&ticket) {
                orders.remove(&order);
            }
            left.clear();
            if let Some(missing) = record.slab.as_region() {
                missing.subtract(data, &mut left);
            }
            for rest in &left {
                self.add(ticket, rest);
            }
            if self.reads.get(&ticket).is_some_and(BTreeSet::is_empty) {
                self.reads.remove(&ticket);
                complete.push(ticket);
            }
        }
        complete
    }

    /// The reads that miss cells of a box.
    pub(crate) fn within(&self, data: &Region) -> BTreeSet<Ticket> {
        let orders = self.boxes.orders_within(data).into_iter();
        let records = orders.filter_map(|order| self.boxes.get(order));
        records.map(|record| record.value).collect()
    }

    /// Removes a read. Returns whether it was there.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> bool {
        let Some(orders) = self.reads.remove(&ticket) else {
            return false;
        };
        for order in orders {
            self.boxes.remove(order);
        }
        true
    }

    /// What a read misses.
    pub(crate) fn missing(&self, ticket: Ticket) -> Vec<Region> {
        let orders = self.reads.get(&ticket).into_iter().flatten();
        let records = orders.filter_map(|order| self.boxes.get(*order));
        records
            .filter_map(|record| record.slab.as_region())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIDE: u64 = 8;

    #[derive(Debug, Clone)]
    enum Step {
        Ask(u64, Vec<Region>),
        Data(Region),
        Leave(u64),
    }

    fn region() -> impl Strategy<Value = Region> {
        let axis = (0..SIDE, 1..=SIDE).prop_map(|(at, len)| (at, len.min(SIDE - at)));
        (axis.clone(), axis)
            .prop_map(|(one, other)| Region::new(&[one.0, other.0], &[one.1, other.1]))
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0u64..6, prop::collection::vec(region(), 1..4)).prop_map(|(of, boxes)| Step::Ask(of, boxes)),
            3 => region().prop_map(Step::Data),
            1 => (0u64..6).prop_map(Step::Leave),
        ]
    }

    fn cells(region: &Region) -> BTreeSet<(u64, u64)> {
        let rows = region.offset[0]..region.end(0);
        rows.flat_map(|row| (region.offset[1]..region.end(1)).map(move |column| (row, column)))
            .collect()
    }

    proptest! {
        /// Reads in any order with data: each ends exactly when its last cell has come.
        #[test]
        fn a_read_ends_when_its_last_cell_has_come(steps in prop::collection::vec(step(), 1..40)) {
            let mut table = Table::new(2);
            let mut naive: HashMap<Ticket, BTreeSet<(u64, u64)>> = HashMap::new();
            for step in steps {
                match step {
                    Step::Ask(of, boxes) => {
                        for one in &boxes {
                            table.add(Ticket(of), one);
                            naive.entry(Ticket(of)).or_default().extend(cells(one));
                        }
                    }
                    Step::Data(data) => {
                        let touched = table.within(&data);
                        let complete: BTreeSet<Ticket> = table.cut(&data).into_iter().collect();
                        let written = cells(&data);
                        let mut wanted = BTreeSet::new();
                        for (ticket, missing) in &mut naive {
                            prop_assert_eq!(touched.contains(ticket), !missing.is_disjoint(&written));
                            missing.retain(|cell| !written.contains(cell));
                            if missing.is_empty() {
                                wanted.insert(*ticket);
                            }
                        }
                        naive.retain(|_, missing| !missing.is_empty());
                        prop_assert_eq!(complete, wanted);
                    }
                    Step::Leave(of) => {
                        prop_assert_eq!(table.remove(Ticket(of)), naive.remove(&Ticket(of)).is_some());
                    }
                }
                prop_assert_eq!(table.is_empty(), naive.is_empty());
                for (ticket, missing) in &naive {
                    let left: BTreeSet<_> = table.missing(*ticket).iter().flat_map(cells).collect();
                    prop_assert_eq!(&left, missing);
                }
            }
        }
    }
}
