//! The `ioctl(2)` format of batches: parts of a flat list of nodes, in native byte order.
//!
//! `fs/capi/include/slabfs_ioctl.h` defines the structures for the other side. Nodes are listed depth first, each
//! vector followed by its elements, so parsing does not nest. [`Pattern::batches`] nests them, and refuses lists that
//! do not add up. `slabfs_model::batch` checks all other constraints on a batch.

use slabfs_model::batch::{self, Batch, MAX_DEPTH, MAX_NODES, Place};
use thiserror::Error;

/// Nodes in a part.
pub const PART_NODES: usize = 200;
/// Bytes of a node.
const NODE: usize = 40;
/// Bytes before the nodes of a part.
const HEAD: usize = 32;
/// Bytes of a part.
pub const PART: usize = HEAD + PART_NODES * NODE;
/// The version of the format.
const VERSION: u32 = 1;

const ABSOLUTE: u32 = 1;
const VECTOR: u32 = 2;

/// The unit of the numbers of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of the object in canonical order.
    Bytes,
    /// Elements of the object.
    Elements,
}

/// One element of a batch, its object side only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Its place in the object, and its stride.
    pub file: Place,
    /// How often it is repeated.
    pub count: u64,
    /// The repeated content.
    pub what: What,
}

/// The content that a [`Node`] repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// So many contiguous units.
    Data(u64),
    /// So many elements, which follow in the list.
    Vector(u32),
}

/// A batch as a flat list, depth first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// The unit of its numbers.
    pub unit: Unit,
    /// Its nodes.
    pub nodes: Vec<Node>,
}

/// Why a part, or all parts together, are invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatternError {
    /// A different version or size of the structure.
    #[error(
        "a part of a view of version {0} and {1} bytes; this mount knows version {VERSION} of {PART} bytes"
    )]
    Version(u32, usize),
    /// A field has an invalid value.
    #[error("a part of a view whose field \"{0}\" holds {1}")]
    Field(&'static str, u64),
    /// A part that does not follow the previous one.
    #[error(
        "a part of a view that begins at node {first}, where {expected} is the next; set a view from one thread at a time"
    )]
    OutOfOrder {
        /// The node at which it begins.
        first: u32,
        /// The node at which it should begin.
        expected: usize,
    },
    /// The batch has too many nodes, or is nested too deep.
    #[error("{0}")]
    Batch(#[from] batch::BatchError),
    /// Vectors with fewer elements than announced, or nodes behind the last vector.
    #[error("the vectors of a view and its {0} nodes do not add up")]
    Sums(usize),
}

/// A part, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The unit of its numbers.
    pub unit: Unit,
    /// The number of nodes of all parts.
    pub total: u32,
    /// The index of its first node.
    pub first: u32,
    /// Its nodes.
    pub nodes: Vec<Node>,
}

/// The parts of a pattern that have arrived so far.
#[derive(Debug, Default)]
pub struct Gathering {
    nodes: Vec<Node>,
    of: Option<(Unit, u32)>,
}

impl Gathering {
    /// Adds a part; returns the pattern after the last one. The first part starts a new pattern, and a part out of
    /// order discards the pattern that was begun.
    ///
    /// # Errors
    /// A part that does not follow the previous one.
    pub fn take(&mut self, part: Part) -> Result<Option<Pattern>, PatternError> {
        let of = (part.unit, part.total);
        if part.first == 0 {
            self.nodes.clear();
            self.of = Some(of);
        }
        let expected = self.nodes.len();
        let all = expected + part.nodes.len();
        if self.of != Some(of) || part.first as usize != expected || all > part.total as usize {
            *self = Gathering::default();
            let first = part.first;
            return Err(PatternError::OutOfOrder { first, expected });
        }
        self.nodes.extend(part.nodes);
        if all < part.total as usize {
            return Ok(None);
        }
        let nodes = std::mem::take(&mut self.nodes);
        self.of = None;
        Ok(Some(Pattern {
            unit: part.unit,
            nodes,
        }))
    }
}

impl Part {
    /// Parses a part of [`PART`] bytes.
    ///
    /// # Errors
    /// A wrong version or size, an invalid field, or too many nodes.
    pub fn read(bytes: &[u8]) -> Result<Part, PatternError> {
        let mut fields = Fields(bytes);
        let version = fields.u32();
        if version != VERSION || bytes.len() != PART {
            return Err(PatternError::Version(version, bytes.len()));
        }
        let unit = match fields.u32() {
            0 => Unit::Bytes,
            1 => Unit::Elements,
            other => return Err(PatternError::Field("unit", other.into())),
        };
        let (total, first, count) = (fields.u32(), fields.u32(), fields.u32());
        if total as usize > MAX_NODES {
            return Err(batch::BatchError::TooLarge.into());
        }
        if count as usize > PART_NODES {
            return Err(PatternError::Field("count", count.into()));
        }
        let mut nodes = bytes[HEAD..].chunks_exact(NODE).take(count as usize);
        let nodes = nodes.try_fold(Vec::new(), |mut nodes, bytes| {
            nodes.push(Node::read(bytes)?);
            Ok::<_, PatternError>(nodes)
        })?;
        Ok(Part {
            unit,
            total,
            first,
            nodes,
        })
    }
}

impl Node {
    fn read(bytes: &[u8]) -> Result<Node, PatternError> {
        let mut fields = Fields(bytes);
        let (offset, stride) = (fields.i64(), fields.i64());
        let (count, size) = (fields.u64(), fields.u64());
        let (flags, children) = (fields.u32(), fields.u32());
        let what = match (flags & VECTOR != 0, size, children) {
            (true, 0, _) => What::Vector(children),
            (true, size, _) => return Err(PatternError::Field("size", size)),
            (false, _, 0) => What::Data(size),
            (false, ..) => return Err(PatternError::Field("children", children.into())),
        };
        if flags & !(ABSOLUTE | VECTOR) != 0 {
            return Err(PatternError::Field("flags", flags.into()));
        }
        Ok(Node {
            file: Place {
                offset,
                absolute: flags & ABSOLUTE != 0,
                stride,
            },
            count,
            what,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let (vector, size, children) = match self.what {
            What::Data(size) => (0, size, 0),
            What::Vector(children) => (VECTOR, 0, children),
        };
        let flags = vector | if self.file.absolute { ABSOLUTE } else { 0 };
        out.extend(self.file.offset.to_ne_bytes());
        out.extend(self.file.stride.to_ne_bytes());
        out.extend(self.count.to_ne_bytes());
        out.extend(size.to_ne_bytes());
        out.extend(flags.to_ne_bytes());
        out.extend(children.to_ne_bytes());
    }
}

impl Pattern {
    /// Flattens the object side of these batches.
    pub fn new(batches: &[Batch], unit: Unit) -> Pattern {
        let mut nodes = Vec::new();
        flatten(batches, &mut nodes);
        Pattern { unit, nodes }
    }

    /// The nested batches, with an empty memory side: offsets and strides in memory are 0.
    ///
    /// # Errors
    /// Vectors that do not add up, or are nested too deep.
    pub fn batches(&self) -> Result<Vec<Batch>, PatternError> {
        let mut at = 0;
        let mut top = Vec::new();
        while at < self.nodes.len() {
            top.push(self.nest(&mut at, 1)?);
        }
        Ok(top)
    }

    /// The element that begins at node `at`, with everything below it; advances `at` past that.
    fn nest(&self, at: &mut usize, depth: usize) -> Result<Batch, PatternError> {
        if depth > MAX_DEPTH {
            return Err(batch::BatchError::TooDeep.into());
        }
        let sums = PatternError::Sums(self.nodes.len());
        let node = self.nodes.get(*at).ok_or(sums)?;
        *at += 1;
        let pattern = match node.what {
            What::Data(size) => batch::Pattern::Data(size),
            What::Vector(children) => {
                let mut vector = Vec::new();
                for _ in 0..children {
                    vector.push(self.nest(at, depth + 1)?);
                }
                batch::Pattern::Vector(vector)
            }
        };
        Ok(Batch::repeated(
            node.file,
            Place::after(0),
            node.count,
            pattern,
        ))
    }

    /// The number of elements of the outermost vector.
    fn top(&self) -> u32 {
        let mut top = 0;
        let mut at = 0;
        while at < self.nodes.len() {
            top += 1;
            let mut open = 1u64;
            while open > 0 && at < self.nodes.len() {
                open -= 1;
                if let What::Vector(children) = self.nodes[at].what {
                    open += u64::from(children);
                }
                at += 1;
            }
        }
        top
    }

    /// The part that begins at node `first`, encoded; `bytes` is the size of the view in bytes.
    pub fn part(&self, first: u32, bytes: u64) -> Vec<u8> {
        let from = (first as usize).min(self.nodes.len());
        let nodes = &self.nodes[from..(from + PART_NODES).min(self.nodes.len())];
        let unit: u32 = match self.unit {
            Unit::Bytes => 0,
            Unit::Elements => 1,
        };
        let mut out = Vec::with_capacity(PART);
        for field in [
            VERSION,
            unit,
            self.nodes.len() as u32,
            first,
            nodes.len() as u32,
            self.top(),
        ] {
            out.extend(field.to_ne_bytes());
        }
        out.extend(bytes.to_ne_bytes());
        for node in nodes {
            node.write(&mut out);
        }
        out.resize(PART, 0);
        out
    }

    /// All parts, encoded, as they are sent to set a view.
    pub fn parts(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        let firsts = (0..self.nodes.len().max(1)).step_by(PART_NODES);
        firsts.map(|first| self.part(first as u32, 0))
    }
}

fn flatten(batches: &[Batch], nodes: &mut Vec<Node>) {
    for batch in batches {
        let what = match &batch.pattern {
            batch::Pattern::Data(size) => What::Data(*size),
            batch::Pattern::Vector(below) => What::Vector(below.len() as u32),
        };
        nodes.push(Node {
            file: batch.file,
            count: batch.count,
            what,
        });
        if let batch::Pattern::Vector(below) = &batch.pattern {
            flatten(below, nodes);
        }
    }
}

/// Consecutive integers of a buffer; behind its end they read as 0.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((field, rest)) => {
                self.0 = rest;
                *field
            }
            None => {
                self.0 = &[];
                [0; N]
            }
        }
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    fn i64(&mut self) -> i64 {
        i64::from_ne_bytes(self.take())
    }
}

#[cfg(test)]
mod tests;
