//! The wire form of a plan's object side: its nodes in sequence, parents before children, each with the number of its
//! children. Nothing is nested, so that the decoder needs no stack.
//!
//! Invariants: the result of [`Flat::plan`] is checked like any batch, and limits are enforced before anything is
//! built. Offsets are in bytes; a relative one counts from the current repetition of the parent, also after other
//! elements, and an absolute one from the start of the object. The buffer of such a plan is the packed bytes.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::check::{Nodes, Plan, What};
use super::{Batch, BatchError, MAX_DEPTH, MAX_NODES, Pattern, Place};

/// One node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlatNode {
    /// The start of its first repetition, in bytes.
    pub offset: i64,
    /// Whether the offset counts from the start of the object.
    pub absolute: bool,
    /// The distance from one repetition to the next, in bytes.
    pub stride: i64,
    /// Repetitions.
    pub count: u64,
    /// The repeated content.
    pub what: FlatWhat,
}

/// The repeated content of a [`FlatNode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlatWhat {
    /// This many bytes.
    Data(u64),
    /// This many nodes, which follow, each with its descendants.
    Vector(u32),
}

/// The nodes of a plan; see the module.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Flat {
    /// At most [`MAX_NODES`] if it was decoded.
    #[serde(deserialize_with = "nodes")]
    pub nodes: Vec<FlatNode>,
}

fn nodes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<FlatNode>, D::Error> {
    decode_bounded(deserializer, |_| 1)
}

/// Decodes a list whose items have at most [`MAX_NODES`] nodes together. Nodes are counted while they are decoded,
/// before memory is allocated for more.
///
/// # Errors
/// Of the decoder; [`BatchError::TooLarge`] as text.
pub fn decode_bounded<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
    nodes: fn(&T) -> usize,
) -> Result<Vec<T>, D::Error> {
    struct Bounded<T>(fn(&T) -> usize);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "at most {MAX_NODES} nodes of batches")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let (mut all, mut nodes) = (Vec::new(), 0);
            while let Some(one) = seq.next_element()? {
                nodes += (self.0)(&one);
                if nodes > MAX_NODES {
                    return Err(A::Error::custom(BatchError::TooLarge));
                }
                all.push(one);
            }
            Ok(all)
        }
    }
    deserializer.deserialize_seq(Bounded(nodes))
}

impl Plan {
    /// The object side, in its wire form.
    pub fn flat(&self) -> Flat {
        let mut flat = Vec::with_capacity(self.nodes.len());
        let mut open: Vec<Nodes> = vec![self.top];
        while let Some(nodes) = open.last_mut() {
            if nodes.from == nodes.to {
                open.pop();
                continue;
            }
            let node = &self.nodes[nodes.from as usize];
            nodes.from += 1;
            flat.push(FlatNode {
                offset: node.file.offset,
                absolute: node.file.fixed,
                stride: node.file.stride,
                count: node.count,
                what: match node.what {
                    What::Data(bytes) => FlatWhat::Data(bytes),
                    What::Vector(below) => FlatWhat::Vector(below.to - below.from),
                },
            });
            if let What::Vector(below) = node.what {
                open.push(below);
            }
        }
        Flat { nodes: flat }
    }
}

impl Flat {
    /// Checks it and returns the plan of the object side, whose buffer is the packed bytes.
    ///
    /// # Errors
    /// As [`Plan::new`]; also numbers of children that do not match the nodes.
    pub fn plan(&self) -> Result<Plan, BatchError> {
        self.check_shape()?;
        // From the last node back: the children of a node are built before it.
        let mut made: Vec<Batch> = Vec::new();
        for node in self.nodes.iter().rev() {
            let pattern = match node.what {
                FlatWhat::Data(bytes) => Pattern::Data(bytes),
                FlatWhat::Vector(children) => {
                    let below = made.len().saturating_sub(children as usize);
                    let mut vector = made.split_off(below);
                    vector.reverse();
                    Pattern::Vector(vector)
                }
            };
            let file = Place {
                offset: node.offset,
                absolute: node.absolute,
                stride: node.stride,
            };
            made.push(Batch::repeated(file, Place::default(), node.count, pattern));
        }
        made.reverse();
        Plan::packed_from_parents(&made)
    }

    /// Checks the numbers of nodes, children and levels: what is built afterwards is no deeper than a batch may be.
    fn check_shape(&self) -> Result<(), BatchError> {
        if self.nodes.len() > MAX_NODES {
            return Err(BatchError::TooLarge);
        }
        // The children still to come, for each level.
        let mut open: Vec<u32> = Vec::new();
        for node in &self.nodes {
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            match node.what {
                FlatWhat::Vector(0) | FlatWhat::Data(_) => {}
                FlatWhat::Vector(children) => {
                    if open.len() + 1 == MAX_DEPTH {
                        return Err(BatchError::TooDeep);
                    }
                    open.push(children);
                }
            }
            while open.last() == Some(&0) {
                open.pop();
            }
        }
        match open.is_empty() {
            true => Ok(()),
            false => Err(BatchError::Broken),
        }
    }
}
