//! Checks whether a batch selects bytes of the buffer twice, without listing its pieces where possible.
//!
//! Each element of data becomes a *lattice*: an offset, bytes, and a step and a count for each repetition above it,
//! smallest step first. (A place that is absolute below a repetition is selected by each repetition: that is an
//! overlap at once.) Then, in this order:
//!
//! 1. A lattice whose every step is at least as wide as everything below it does not overlap itself: it is *nested*.
//!    Strided boxes are, whatever the order of their loops.
//! 2. Lattices whose spans do not meet do not overlap; a sweep finds those that meet.
//! 3. Two that meet: if their bytes differ modulo the greatest common divisor of all their steps (columns of one
//!    table), they do not overlap; else, if both are nested and have the same steps, the differences of their
//!    outermost repetitions are tried and the levels below are compared, exactly.
//! 4. The remaining pairs are listed and sorted, up to [`MAX_LISTED`] pieces of the two; more is refused as unclear.

use super::check::{Nodes, Plan, What};
use super::{BatchError, MAX_DEPTH, Side};
use crate::hyperslab::gcd;

/// The most pieces that are listed to check whether two elements overlap.
pub const MAX_LISTED: u64 = 1 << 20;
/// The most pairs of elements compared and pieces listed, together, for an entire batch.
const MOST_WORK: u64 = 1 << 24;

/// A step and its count, at least 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dim {
    step: u64,
    count: u64,
}

/// All positions of an element of data in the buffer.
#[derive(Debug, Clone)]
struct Lattice {
    number: u32,
    /// The lowest byte.
    from: u64,
    bytes: u64,
    /// Sorted by step, smallest first; no step is 0.
    dims: Vec<Dim>,
    /// Whether every step is at least as wide as everything below it.
    nested: bool,
}

impl Lattice {
    /// The width of the first `dims` dims.
    fn width(&self, dims: usize) -> u64 {
        let below = self.dims[..dims].iter();
        self.bytes + below.map(|dim| dim.step * (dim.count - 1)).sum::<u64>()
    }

    fn end(&self) -> u64 {
        self.from + self.width(self.dims.len())
    }

    fn pieces(&self) -> u64 {
        let counts = self.dims.iter().map(|dim| dim.count);
        counts.fold(1, u64::saturating_mul)
    }

    fn list(&self, into: &mut Vec<(u64, u64)>) {
        let begun = into.len();
        into.push((self.from, self.bytes));
        for dim in &self.dims {
            let all = begun..into.len();
            for number in 1..dim.count {
                for at in all.clone() {
                    let (from, bytes) = into[at];
                    into.push((from + number * dim.step, bytes));
                }
            }
        }
    }
}

impl Plan {
    /// Refuses a batch that selects bytes of the buffer twice, which a read must not.
    ///
    /// # Errors
    /// [`BatchError::Overlap`]; [`BatchError::Unclear`] if the check would take too long.
    pub fn check_targets(&self) -> Result<(), BatchError> {
        if self.is_packed {
            return Ok(());
        }
        let mut lattices = Vec::new();
        let mut dims = Vec::with_capacity(MAX_DEPTH);
        self.collect(self.top, 0, &mut dims, &mut lattices)?;
        let mut work = MOST_WORK;
        for lattice in &lattices {
            if !lattice.nested {
                by_list(&[lattice], &mut work)?;
            }
        }
        lattices.sort_unstable_by_key(|lattice| lattice.from);
        let mut open: Vec<&Lattice> = Vec::new();
        for lattice in &lattices {
            open.retain(|one| one.end() > lattice.from);
            for one in &open {
                work = work.checked_sub(1).ok_or(unclear(one, lattice))?;
                apart(one, lattice, &mut work)?;
            }
            open.push(lattice);
        }
        Ok(())
    }

    fn collect(
        &self,
        vector: Nodes,
        base: i64,
        dims: &mut Vec<(i64, u64)>,
        lattices: &mut Vec<Lattice>,
    ) -> Result<(), BatchError> {
        for node in self.of(vector) {
            let lie = node.side(Side::Memory);
            let overlap = BatchError::Overlap {
                one: node.number,
                other: node.number,
            };
            if (lie.fixed && !dims.is_empty()) || (lie.stride == 0 && node.count > 1) {
                return Err(overlap);
            }
            let start = lie.start(base);
            let repeated = node.count > 1;
            if repeated {
                dims.push((lie.stride, node.count));
            }
            match node.what {
                What::Vector(nodes) => self.collect(nodes, start, dims, lattices)?,
                What::Data(bytes) => lattices.push(lattice(node.number, start, bytes, dims)),
            }
            if repeated {
                dims.pop();
            }
        }
        Ok(())
    }
}

fn lattice(number: u32, start: i64, bytes: u64, dims: &[(i64, u64)]) -> Lattice {
    let mut from = i128::from(start);
    let mut steps: Vec<Dim> = Vec::with_capacity(dims.len());
    for &(stride, count) in dims {
        if stride < 0 {
            from += i128::from(stride) * i128::from(count - 1);
        }
        steps.push(Dim {
            step: stride.unsigned_abs(),
            count,
        });
    }
    steps.sort_unstable_by_key(|dim| dim.step);
    let mut lattice = Lattice {
        number,
        from: from as u64,
        bytes,
        dims: Vec::with_capacity(steps.len()),
        nested: true,
    };
    for dim in steps {
        let width = lattice.width(lattice.dims.len());
        lattice.nested &= dim.step >= width;
        // A dim that continues where the one below ends is merged with it.
        match lattice.dims.last_mut() {
            None if dim.step == lattice.bytes => lattice.bytes *= dim.count,
            Some(below) if dim.step == below.step * below.count => below.count *= dim.count,
            _ => lattice.dims.push(dim),
        }
    }
    lattice
}

/// Refuses two lattices that have bytes in common.
fn apart(one: &Lattice, other: &Lattice, work: &mut u64) -> Result<(), BatchError> {
    if apart_by_divisor(one, other) {
        return Ok(());
    }
    if one.nested && other.nested {
        let same = one.dims.len() == other.dims.len()
            && one
                .dims
                .iter()
                .zip(&other.dims)
                .all(|(a, b)| a.step == b.step);
        if same {
            let shift = i128::from(other.from) - i128::from(one.from);
            return match meet(one, other, one.dims.len(), shift, work) {
                Some(true) => Err(overlap(one, other)),
                Some(false) => Ok(()),
                None => Err(unclear(one, other)),
            };
        }
    }
    by_list(&[one, other], work)
}

/// Whether the bytes of both differ modulo the greatest common divisor of all steps.
fn apart_by_divisor(one: &Lattice, other: &Lattice) -> bool {
    let steps = one.dims.iter().chain(&other.dims);
    let divisor = steps.fold(0, |divisor, dim| gcd(divisor, dim.step));
    if divisor == 0 {
        return false;
    }
    let between = |from: u64, to: u64| (to % divisor + divisor - from % divisor) % divisor;
    between(one.from, other.from) >= one.bytes && between(other.from, one.from) >= other.bytes
}

/// Whether two nested lattices of the same steps meet in their first `dims` dims, with the other `shift` after the
/// one. Exact: only a few differences of repetitions bring the levels below close enough. `None` if the work is used
/// up.
fn meet(one: &Lattice, other: &Lattice, dims: usize, shift: i128, work: &mut u64) -> Option<bool> {
    *work = work.checked_sub(1)?;
    let Some(dim) = dims.checked_sub(1) else {
        return Some(shift < i128::from(one.bytes) && -shift < i128::from(other.bytes));
    };
    let step = i128::from(one.dims[dim].step);
    let (width, others) = (i128::from(one.width(dim)), i128::from(other.width(dim)));
    // Repetition i of the one and j of the other are shift + (j - i) * step apart.
    let most = i128::from(other.dims[dim].count) - 1;
    let least = 1 - i128::from(one.dims[dim].count);
    let from = (-others - shift).div_euclid(step) + 1;
    let to = -((shift - width).div_euclid(step) + 1);
    for difference in from.max(least)..=to.min(most) {
        if meet(one, other, dim, shift + difference * step, work)? {
            return Some(true);
        }
    }
    Some(false)
}

fn by_list(lattices: &[&Lattice], work: &mut u64) -> Result<(), BatchError> {
    let (first, last) = (lattices[0], lattices[lattices.len() - 1]);
    let pieces = lattices.iter().map(|lattice| lattice.pieces());
    let pieces = pieces.fold(0, u64::saturating_add);
    if pieces > MAX_LISTED || pieces > *work {
        return Err(unclear(first, last));
    }
    *work -= pieces;
    let mut all = Vec::with_capacity(pieces as usize);
    for lattice in lattices {
        lattice.list(&mut all);
    }
    all.sort_unstable();
    let overlaps = |pair: &[(u64, u64)]| pair[0].0 + pair[0].1 > pair[1].0;
    match all.windows(2).any(overlaps) {
        true => Err(overlap(first, last)),
        false => Ok(()),
    }
}

fn overlap(one: &Lattice, other: &Lattice) -> BatchError {
    BatchError::Overlap {
        one: one.number.min(other.number),
        other: one.number.max(other.number),
    }
}

fn unclear(one: &Lattice, other: &Lattice) -> BatchError {
    BatchError::Unclear {
        one: one.number.min(other.number),
        other: one.number.max(other.number),
    }
}
