//! Plans: batches that have been checked, with offsets resolved, limits enforced and extents computed.
//!
//! Offsets relative to the previous element are converted to offsets from the parent, so that each element is
//! independent of its siblings: it lies at its own offset from the current repetition of the parent, or, `fixed`,
//! from the start. Each node knows the extent of everything below it: `floating`, relative to one of its repetitions,
//! and `fixed`, from the start. All sums are made in 128 bits and fit 64 when [`Plan::new`] returns, so that no walk
//! of a plan can overflow.

use super::{Batch, BatchError, MAX_DEPTH, MAX_NODES, Pattern, Place, Side};

/// A half-open span, from the start or relative to a repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: i64,
    pub(super) to: i64,
}

/// The position of one side of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lie {
    /// Relative to the current repetition of the parent; from the start if `fixed`.
    pub(super) offset: i64,
    pub(super) fixed: bool,
    pub(super) stride: i64,
    /// The extent of everything below, relative to one repetition of this node; `None` if all of it is fixed.
    pub(super) floating: Option<Span>,
    /// The extent below at fixed places.
    pub(super) below_fixed: Option<Span>,
}

/// The repeated content of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Bytes; not 0.
    Data(u64),
    /// Nodes.
    Vector(Nodes),
}

/// The nodes of a vector, as a range of indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nodes {
    pub(super) from: u32,
    pub(super) to: u32,
    /// All of them float in the object, and neither begin nor end before their predecessors: those that touch a range
    /// are found by bisection.
    pub(super) in_order: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    /// Its number in the batch as written.
    pub(super) number: u32,
    pub(super) file: Lie,
    pub(super) memory: Lie,
    /// Not 0.
    pub(super) count: u64,
    pub(super) what: What,
    /// The bytes of one repetition; not 0.
    pub(super) bytes: u64,
    /// The offset of the first repetition among the packed bytes, relative to the current repetition of the parent.
    pub(super) packed: u64,
}

/// A checked batch, ready to be walked. Elements without bytes are omitted.
/// Copies share the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub(super) nodes: std::sync::Arc<[Node]>,
    /// The top vector: the last nodes.
    pub(super) top: Nodes,
    /// The buffer is the packed bytes; the memory side of the nodes is unused.
    pub(super) is_packed: bool,
    bytes: u64,
    pieces: u64,
    file: Option<Span>,
    memory: Option<Span>,
}

/// A span in 128 bits.
#[derive(Clone, Copy)]
struct Wide {
    from: i128,
    to: i128,
}

impl Wide {
    fn join(one: Option<Wide>, other: Option<Wide>) -> Option<Wide> {
        match (one, other) {
            (Some(one), Some(other)) => Some(Wide {
                from: one.from.min(other.from),
                to: one.to.max(other.to),
            }),
            (one, other) => one.or(other),
        }
    }

    fn shift(self, by: i128) -> Wide {
        Wide {
            from: self.from + by,
            to: self.to + by,
        }
    }

    /// The span of all `count` repetitions.
    fn repeat(self, count: u64, stride: i64) -> Option<Wide> {
        let last = i128::from(count - 1).checked_mul(i128::from(stride))?;
        Some(Wide {
            from: self.from + last.min(0),
            to: self.to + last.max(0),
        })
    }

    fn fit(self) -> Option<Span> {
        Some(Span {
            from: i64::try_from(self.from).ok()?,
            to: i64::try_from(self.to).ok()?,
        })
    }
}

/// The position of an element after its predecessors in the vector.
#[derive(Clone, Copy, Default)]
struct At {
    offset: i64,
    fixed: bool,
}

impl At {
    /// `top`: in the top vector, whose start is the origin of absolute offsets, so that nothing there is `fixed`.
    fn next(self, place: &Place, unit: u64, top: bool) -> Option<At> {
        let own = times(place.offset, unit)?;
        Some(match place.absolute {
            true => At {
                offset: own,
                fixed: !top,
            },
            false => At {
                offset: self.offset.checked_add(own)?,
                fixed: self.fixed,
            },
        })
    }
}

fn times(value: i64, unit: u64) -> Option<i64> {
    i64::try_from(i128::from(value) * i128::from(unit)).ok()
}

/// The spans of everything below a vector: relative to it, and at fixed places.
#[derive(Clone, Copy, Default)]
struct Spans {
    floating: Option<Wide>,
    fixed: Option<Wide>,
}

impl Spans {
    fn of_data(bytes: i64) -> Spans {
        Spans {
            floating: Some(Wide {
                from: 0,
                to: bytes.into(),
            }),
            fixed: None,
        }
    }

    /// Adds a node that lies `at`, with the spans below it.
    fn add(&mut self, below: Spans, at: At, stride: i64, count: u64) -> Option<()> {
        if let Some(span) = below.floating {
            let own = span.repeat(count, stride)?.shift(at.offset.into());
            own.fit()?;
            let spans = match at.fixed {
                true => &mut self.fixed,
                false => &mut self.floating,
            };
            *spans = Wide::join(*spans, Some(own));
        }
        self.fixed = Wide::join(self.fixed, below.fixed);
        Some(())
    }
}

/// One side of a vector.
#[derive(Clone, Copy, Default)]
struct Touched {
    /// The bytes that are moved.
    data: Spans,
    /// The same, extended by the positions of vectors, which a walk computes too.
    places: Spans,
}

impl Touched {
    fn add(&mut self, below: Touched, at: At, stride: i64, count: u64) -> Option<()> {
        let mut places = below.places;
        places.floating = Wide::join(places.floating, Some(Wide { from: 0, to: 0 }));
        self.data.add(below.data, at, stride, count)?;
        self.places.add(places, at, stride, count)
    }
}

/// The origin of a relative offset.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Relative {
    /// As in a [`Batch`].
    ToElementBefore,
    /// As in a plan.
    ToParent,
}

struct Checker {
    unit: u64,
    relative: Relative,
    is_packed: bool,
    seen: usize,
    nodes: Vec<Node>,
}

/// A vector that has been checked.
struct Vector {
    nodes: Vec<Node>,
    file: Touched,
    memory: Touched,
    bytes: u64,
    pieces: u64,
}

impl Checker {
    fn vector(&mut self, batches: &[Batch], depth: usize) -> Result<Vector, BatchError> {
        if depth > MAX_DEPTH {
            return Err(BatchError::TooDeep);
        }
        let mut vector = Vector {
            nodes: Vec::new(),
            file: Touched::default(),
            memory: Touched::default(),
            bytes: 0,
            pieces: 0,
        };
        let (mut file, mut memory) = (At::default(), At::default());
        for batch in batches {
            if self.seen == MAX_NODES {
                return Err(BatchError::TooLarge);
            }
            let number = self.seen as u32;
            self.seen += 1;
            let over = || BatchError::Overflow(number);
            if self.relative == Relative::ToParent {
                (file, memory) = (At::default(), At::default());
            }
            let top = depth == 1;
            file = file.next(&batch.file, self.unit, top).ok_or_else(over)?;
            if !self.is_packed {
                memory = memory
                    .next(&batch.memory, self.unit, top)
                    .ok_or_else(over)?;
            }
            self.element(batch, number, [file, memory], depth, &mut vector)?;
        }
        Ok(vector)
    }

    /// Stores the nodes of a vector.
    fn store(&mut self, nodes: Vec<Node>) -> Nodes {
        let from = self.nodes.len() as u32;
        let in_order = in_order(&nodes);
        self.nodes.extend(nodes);
        Nodes {
            from,
            to: self.nodes.len() as u32,
            in_order,
        }
    }

    fn element(
        &mut self,
        batch: &Batch,
        number: u32,
        [file, memory]: [At; 2],
        depth: usize,
        vector: &mut Vector,
    ) -> Result<(), BatchError> {
        let over = || BatchError::Overflow(number);
        let (what, below, bytes, pieces) = match &batch.pattern {
            Pattern::Data(size) => {
                let bytes = size.checked_mul(self.unit).ok_or_else(over)?;
                let spans = Spans::of_data(i64::try_from(bytes).map_err(|_| over())?);
                let touched = Touched {
                    data: spans,
                    places: spans,
                };
                (What::Data(bytes), [touched; 2], bytes, 1)
            }
            Pattern::Vector(batches) => {
                let inner = self.vector(batches, depth + 1)?;
                let what = What::Vector(self.store(inner.nodes));
                (what, [inner.file, inner.memory], inner.bytes, inner.pieces)
            }
        };
        if bytes == 0 || batch.count == 0 {
            return Ok(());
        }
        let lie = |at: At, place: &Place, below: Touched| -> Option<Lie> {
            let fit = |span: Option<Wide>| match span {
                Some(span) => span.fit().map(Some),
                None => Some(None),
            };
            Some(Lie {
                offset: at.offset,
                fixed: at.fixed,
                stride: times(place.stride, self.unit)?,
                floating: fit(below.data.floating)?,
                below_fixed: fit(below.data.fixed)?,
            })
        };
        let file_lie = lie(file, &batch.file, below[0]).ok_or_else(over)?;
        let node = Node {
            number,
            file: file_lie,
            memory: match self.is_packed {
                true => Lie::NOWHERE,
                false => lie(memory, &batch.memory, below[1]).ok_or_else(over)?,
            },
            count: batch.count,
            what,
            bytes,
            packed: vector.bytes,
        };
        let count = node.count;
        let added = vector.file.add(below[0], file, node.file.stride, count);
        added.ok_or_else(over)?;
        if !self.is_packed {
            let added = vector
                .memory
                .add(below[1], memory, node.memory.stride, count);
            added.ok_or_else(over)?;
        }
        let node = joined(node, self.is_packed);
        let bytes = bytes.checked_mul(batch.count).ok_or_else(over)?;
        vector.bytes = vector.bytes.checked_add(bytes).ok_or_else(over)?;
        let pieces = u64::saturating_mul(pieces, node.count);
        vector.pieces = vector.pieces.saturating_add(pieces);
        if vector.bytes > i64::MAX as u64 {
            return Err(over());
        }
        vector.nodes.push(node);
        Ok(())
    }
}

impl Lie {
    /// The memory side of a plan whose buffer is the packed bytes.
    const NOWHERE: Lie = Lie {
        offset: 0,
        fixed: false,
        stride: 0,
        floating: None,
        below_fixed: None,
    };

    /// The position of the first repetition, if the parent's repetition is at `base`.
    pub(super) fn start(&self, base: i64) -> i64 {
        match self.fixed {
            true => self.offset,
            false => base.wrapping_add(self.offset),
        }
    }

    /// The extent of all `count` repetitions, relative to the parent, if all of it moves with the parent.
    pub(super) fn all(&self, count: u64) -> Option<Span> {
        let span = self.floating?;
        if self.fixed || self.below_fixed.is_some() {
            return None;
        }
        let last = i128::from(self.stride) * i128::from(count - 1);
        let offset = i128::from(self.offset);
        // They fit: the plan has been checked.
        Some(Span {
            from: (offset + i128::from(span.from) + last.min(0)) as i64,
            to: (offset + i128::from(span.to) + last.max(0)) as i64,
        })
    }
}

/// See [`Nodes::in_order`].
fn in_order(nodes: &[Node]) -> bool {
    let mut before = Span {
        from: i64::MIN,
        to: i64::MIN,
    };
    nodes.iter().all(|node| match node.file.all(node.count) {
        Some(span) => {
            let behind = span.from >= before.from && span.to >= before.to;
            before = span;
            behind
        }
        None => false,
    })
}

/// Joins pieces that are contiguous on both sides.
fn joined(mut node: Node, is_packed: bool) -> Node {
    if let What::Data(bytes) = node.what
        && (node.count == 1
            || (node.file.stride == bytes as i64
                && (is_packed || node.memory.stride == bytes as i64)))
        && let Some(all) = bytes.checked_mul(node.count)
        && let Ok(to) = i64::try_from(all)
    {
        let span = Some(Span { from: 0, to });
        node.what = What::Data(all);
        node.bytes = all;
        node.count = 1;
        (node.file.stride, node.memory.stride) = (0, 0);
        (node.file.floating, node.memory.floating) = (span, span);
    }
    node
}

impl Plan {
    /// Checks a batch. `unit` is 1 for offsets and sizes in bytes, or the size of an element for those in elements.
    ///
    /// # Errors
    /// Too many elements or levels, sums that exceed 63 bits, offsets below 0 at any repetition.
    pub fn new(batches: &[Batch], unit: u64) -> Result<Plan, BatchError> {
        Plan::checked(batches, unit, Relative::ToElementBefore, false)
    }

    /// As [`Plan::new`], for a buffer that is the packed bytes of the object side: the memory side of the batches is
    /// ignored.
    ///
    /// # Errors
    /// As [`Plan::new`], of the object side.
    pub fn packed(batches: &[Batch], unit: u64) -> Result<Plan, BatchError> {
        Plan::checked(batches, unit, Relative::ToElementBefore, true)
    }

    /// As [`Plan::packed`], in bytes, with each relative offset counted from the parent.
    pub(super) fn packed_from_parents(batches: &[Batch]) -> Result<Plan, BatchError> {
        Plan::checked(batches, 1, Relative::ToParent, true)
    }

    fn checked(
        batches: &[Batch],
        unit: u64,
        relative: Relative,
        is_packed: bool,
    ) -> Result<Plan, BatchError> {
        let mut checker = Checker {
            unit,
            relative,
            is_packed,
            seen: 0,
            nodes: Vec::new(),
        };
        let vector = checker.vector(batches, 1)?;
        let top = checker.store(vector.nodes);
        let all = |touched: Touched| Wide::join(touched.data.floating, touched.data.fixed);
        let fit = |span: Option<Wide>| span.and_then(Wide::fit);
        let in_packed = || {
            let to = vector.bytes as i64;
            (to > 0).then_some(Span { from: 0, to })
        };
        let plan = Plan {
            top,
            is_packed,
            bytes: vector.bytes,
            pieces: vector.pieces,
            file: fit(all(vector.file)),
            memory: match is_packed {
                true => in_packed(),
                false => fit(all(vector.memory)),
            },
            nodes: checker.nodes.into(),
        };
        plan.below_start(Side::File, plan.file)?;
        plan.below_start(Side::Memory, plan.memory)?;
        Ok(plan)
    }

    fn below_start(&self, side: Side, span: Option<Span>) -> Result<(), BatchError> {
        match span {
            Some(span) if span.from < 0 => Err(BatchError::Negative {
                element: self.lowest(side),
                side,
                by: span.from.unsigned_abs(),
            }),
            _ => Ok(()),
        }
    }

    /// The number of the data element that reaches lowest.
    fn lowest(&self, side: Side) -> u32 {
        let mut vector = self.top;
        loop {
            let nodes = self.of(vector);
            let low = |node: &Node| {
                let lie = node.side(side);
                let last = i128::from(node.count - 1) * i128::from(lie.stride);
                // A node that moves nothing counts as highest. Plain numbers instead of `Option`s: valgrind reports
                // the comparison of `None`s as a use of uninitialised memory.
                let own = match lie.floating {
                    Some(span) => i128::from(span.from) + last.min(0) + i128::from(lie.offset),
                    None => i128::MAX,
                };
                let below = match lie.below_fixed {
                    Some(span) => span.from.into(),
                    None => i128::MAX,
                };
                own.min(below)
            };
            let Some(node) = nodes.iter().min_by_key(|node| low(node)) else {
                return 0;
            };
            match node.what {
                What::Data(_) => return node.number,
                What::Vector(nodes) => vector = nodes,
            }
        }
    }

    /// The nodes of a vector.
    pub(super) fn of(&self, nodes: Nodes) -> &[Node] {
        &self.nodes[nodes.from as usize..nodes.to as usize]
    }

    /// Whether the buffer is the packed bytes.
    pub fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// The bytes that it moves.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of its pieces, counting contiguous ones (on both sides) as one; at most 2^64-1.
    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    /// The span of the object from the first byte to the end of the last; `None` if nothing is moved.
    pub fn file_span(&self) -> Option<(u64, u64)> {
        self.file.map(|span| (span.from as u64, span.to as u64))
    }

    /// The span of the buffer from the first byte to the end of the last: the buffer's required size.
    pub fn memory_span(&self) -> Option<(u64, u64)> {
        self.memory.map(|span| (span.from as u64, span.to as u64))
    }
}

impl Node {
    pub(super) fn side(&self, side: Side) -> &Lie {
        match side {
            Side::File => &self.file,
            Side::Memory => &self.memory,
        }
    }
}
