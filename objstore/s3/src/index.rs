//! Where each chunk is in the bucket. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use slabfs_model::ObjectId;
use slabfs_objstore::{ChunkForm, ChunkName};

use crate::segment::{Entry, Part, Place, What};

/// A range of an object, and its checksum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) object: Object,
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) crc: u32,
}

/// An object of the bucket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Object {
    Segment(u64),
    Own(String),
}

/// A chunk in the bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stored {
    Chunk {
        form: ChunkForm,
        encoded: bool,
        span: Span,
    },
    /// Blocks that were written, by their numbers; the others are fill.
    Grid {
        form: ChunkForm,
        blocks: BTreeMap<u64, Span>,
    },
}

impl Stored {
    /// Bytes in the bucket.
    pub(crate) fn bytes(&self) -> u64 {
        self.spans().map(|span| span.len).sum()
    }

    /// The objects that have this chunk alone.
    pub(crate) fn own_objects(&self) -> Vec<String> {
        let own = self.spans().filter_map(|span| match &span.object {
            Object::Own(key) => Some(key.clone()),
            Object::Segment(_) => None,
        });
        own.collect()
    }

    pub(crate) fn spans(&self) -> impl Iterator<Item = &Span> {
        let (one, many) = match self {
            Stored::Chunk { span, .. } => (Some(span), None),
            Stored::Grid { blocks, .. } => (None, Some(blocks.values())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

/// All chunks of one identity, as of a segment.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Index {
    pub(crate) chunks: BTreeMap<ChunkName, Stored>,
    /// The number of the next segment.
    pub(crate) next: u64,
    /// Bytes of all chunks.
    pub(crate) bytes: u64,
    /// The first segment of each process, and the one before it. They are never deleted: a process that was replaced long ago
    /// finds there that it was.
    pub(crate) handovers: BTreeSet<u64>,
}

impl Index {
    /// Removes a chunk.
    pub(crate) fn remove(&mut self, name: &ChunkName) -> Option<Stored> {
        let stored = self.chunks.remove(name)?;
        self.bytes -= stored.bytes();
        Some(stored)
    }

    /// Takes over what segment `number` says. Returns the chunks' own objects that nothing refers to any more.
    pub(crate) fn apply(&mut self, number: u64, payload: u64, entries: Vec<Entry>) -> Vec<String> {
        let span = |part: Part| Span {
            object: Object::Segment(number),
            at: payload + part.at,
            len: part.len,
            crc: part.crc,
        };
        let mut gone = Vec::new();
        for Entry { name, what } in entries {
            match what {
                What::Chunk {
                    form,
                    encoded,
                    place,
                } => {
                    let span = match place {
                        Place::Here(part) => span(part),
                        Place::Object { key, len, crc } => Span {
                            object: Object::Own(key),
                            at: 0,
                            len,
                            crc,
                        },
                    };
                    let stored = Stored::Chunk {
                        form,
                        encoded,
                        span,
                    };
                    self.remove(&name);
                    self.bytes += stored.bytes();
                    self.chunks.insert(name, stored);
                }
                What::Blocks { form, blocks } => {
                    let there = self.chunks.entry(name).or_insert_with(|| Stored::Grid {
                        form: form.clone(),
                        blocks: BTreeMap::new(),
                    });
                    if let Stored::Grid {
                        form: known,
                        blocks: all,
                    } = there
                    {
                        *known = form;
                        for (block, part) in blocks {
                            let old = match part {
                                Some(part) => {
                                    self.bytes += part.len;
                                    all.insert(block, span(part))
                                }
                                None => all.remove(&block),
                            };
                            self.bytes -= old.map_or(0, |old| old.len);
                        }
                    }
                }
                What::Deleted => {
                    if let Some(stored) = self.remove(&name) {
                        gone.extend(stored.own_objects());
                    }
                }
            }
        }
        self.next = number + 1;
        gone
    }

    /// Notes that a process has begun with this segment.
    pub(crate) fn note_handover(&mut self, number: u64) {
        // The process before may have created one more without knowing it.
        self.handovers.extend([number.saturating_sub(1), number]);
    }

    /// The segments that chunks are in, with the bytes that are used of each.
    pub(crate) fn used(&self) -> BTreeMap<u64, u64> {
        let mut used = BTreeMap::new();
        for span in self.chunks.values().flat_map(Stored::spans) {
            if let Object::Segment(number) = span.object {
                *used.entry(number).or_default() += span.len;
            }
        }
        used
    }

    /// What is in these segments: chunks, and for those of grids the blocks.
    pub(crate) fn within(&self, segments: &BTreeSet<u64>) -> Vec<(ChunkName, ChunkForm, Vec<u64>)> {
        let inside = |span: &Span| match span.object {
            Object::Segment(number) => segments.contains(&number),
            Object::Own(_) => false,
        };
        let mut found = Vec::new();
        for (name, stored) in &self.chunks {
            match stored {
                Stored::Chunk { form, span, .. } if inside(span) => {
                    found.push((name.clone(), form.clone(), Vec::new()));
                }
                Stored::Chunk { .. } => {}
                Stored::Grid { form, blocks } => {
                    let blocks = blocks.iter().filter(|(_, span)| inside(span));
                    let blocks: Vec<u64> = blocks.map(|(block, _)| *block).collect();
                    if !blocks.is_empty() {
                        found.push((name.clone(), form.clone(), blocks));
                    }
                }
            }
        }
        found
    }
}

/// The names of an object's grid chunks, of generations below a number.
pub(crate) fn of_object(object: ObjectId, below: Option<u32>) -> impl Fn(&ChunkName) -> bool {
    move |name| match name {
        ChunkName::Grid {
            object: its,
            generation,
            ..
        } => *its == object && below.is_none_or(|below| *generation < below),
        ChunkName::Free(_) => false,
    }
}
