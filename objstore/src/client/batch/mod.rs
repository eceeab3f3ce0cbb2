//! Reads the parts of chunks that batches select, and prepares them for reads and writes (`client/write`): one message
//! a server for all of them, whatever the number of pieces.
//!
//! A batch whose packed bytes exceed a message is cut, for each server where that server's own bytes fill one;
//! smaller batches share a message. A read scatters bytes as they arrive; a write gathers those of a message when it
//! is sent. A store in this process packs and unpacks in pieces of the same size.

mod read;

use std::ops::Range;
use std::time::Instant;

use slabfs_model::batch::{Flat, Parts, Plan, Rows};
use slabfs_model::{Hyperslab, ServerId};

use super::fanout::{Failure, Sorter, weight};
use crate::batch::Share;
use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};
use crate::wire::MAX_DATA;
use crate::wire::messages::{BatchItem, BatchRequest};

/// The most bytes of one message.
const MOST: u64 = MAX_DATA as u64;
/// The estimated size of a control part at which the items of one batch in one message end.
const FULL: u64 = 4 << 20;
/// The weight of a node in a control part. More than it takes: a message is full with as many nodes as a server
/// decodes.
const NODE: u64 = super::fanout::FULL / slabfs_model::batch::MAX_NODES as u64;

/// A range of the packed bytes of a batch on an object.
#[derive(Debug, Clone)]
pub struct BatchPart<'a> {
    /// The batch.
    pub plan: &'a Plan,
    /// The range of packed bytes.
    pub packed: Range<u64>,
    /// The object's dims, the last in bytes.
    pub cells: &'a [u64],
    /// The offset of the given memory in the buffer that the plan describes.
    pub base: u64,
}

/// A part of a chunk that a batch selects from.
#[derive(Debug)]
pub struct BatchPiece<'a> {
    /// The chunk's server.
    pub server: ServerId,
    /// The chunk.
    pub name: &'a ChunkName,
    /// Its form.
    pub form: &'a ChunkForm,
    /// Its cells, in the object's coordinates.
    pub want: &'a Hyperslab,
    /// The same cells in the chunk's coordinates.
    pub slab: &'a Hyperslab,
    /// A read puts the bytes of a piece over those of lower stages; pieces of one stage must not overlap. A write
    /// ignores it.
    pub stage: usize,
    /// Set by a read: `false` where there is no such chunk. Its bytes of the buffer are then unspecified.
    pub found: bool,
}

/// One of several batches that are done together, with its memory: bytes to read into or to write from, which are the
/// caller's buffer from [`BatchPart::base`] on.
#[derive(Debug)]
pub struct BatchAsk<'a, M> {
    /// The batch.
    pub part: BatchPart<'a>,
    /// The parts of chunks it selects from.
    pub pieces: Vec<BatchPiece<'a>>,
    /// The destination or the source.
    pub memory: M,
}

impl BatchPart<'_> {
    /// Checks that memory of this length covers all that the plan selects.
    fn check_memory(&self, len: usize) -> Result<()> {
        let (from, to) = match self.plan.is_packed() {
            true => (self.packed.start, self.packed.end.min(self.plan.bytes())),
            false => self.plan.memory_span().unwrap_or((self.base, 0)),
        };
        let end = self.base.saturating_add(len as u64);
        match from >= self.base && to <= end {
            true => Ok(()),
            false => Err(StoreError::Invalid(format!(
                "a batch of the bytes {from} to {to} of a buffer that has {} to {end}",
                self.base
            ))),
        }
    }
}

/// The error of a batch whose pieces are not found in its chunks in time.
pub const TOO_SCATTERED: &str = "finding the pieces of the batch in its chunks takes too long: they are many, in no order, and lie \
     in many chunks; sort them by offset, ask for less at once, or use larger chunks";

/// A piece that a batch selects from.
pub(super) struct Item<'a> {
    number: usize,
    server: ServerId,
    stage: usize,
    want: &'a Hyperslab,
    slab: &'a Hyperslab,
    pub(super) share: Share<'a>,
}

/// One of the batches that are done together.
pub(super) struct Asked<'a> {
    /// Its index among them.
    pub(super) number: usize,
    pub(super) part: BatchPart<'a>,
    flat: Flat,
    /// The pieces it selects bytes of, sorted by stage; the other pieces cause no request.
    pub(super) items: Vec<Item<'a>>,
}

impl<'a> Asked<'a> {
    pub(super) fn new<M>(
        number: usize,
        ask: &BatchAsk<'a, M>,
        len: usize,
        until: Instant,
    ) -> Result<Asked<'a>, Failure> {
        let part = ask.part.clone();
        part.check_memory(len).map_err(|e| (number, e))?;
        let (plan, packed) = (part.plan, &part.packed);
        let mut items = Vec::with_capacity(ask.pieces.len());
        for (at, piece) in ask.pieces.iter().enumerate() {
            if Instant::now() > until {
                return Err((number, StoreError::Invalid(TOO_SCATTERED.to_owned())));
            }
            let rows = Rows::new(part.cells, piece.want, &piece.form.shape, piece.slab);
            let text = |e| StoreError::Invalid(format!("{}: {e}", piece.name));
            let rows = rows.map_err(|e| (number, text(e)))?;
            let share = Share {
                name: piece.name,
                form: piece.form,
                by_pieces: Parts::few_pieces(plan, packed, &rows),
                rows,
            };
            if share.parts(plan, packed).next().is_some() {
                items.push(Item {
                    number: at,
                    server: piece.server,
                    stage: piece.stage,
                    want: piece.want,
                    slab: piece.slab,
                    share,
                });
            }
        }
        items.sort_by_key(|item| item.stage);
        Ok(Asked {
            number,
            flat: plan.flat(),
            part,
            items,
        })
    }

    /// An upper bound of the bytes it moves.
    pub(super) fn bytes(&self) -> u64 {
        let packed = &self.part.packed;
        packed
            .end
            .min(self.part.plan.bytes())
            .saturating_sub(packed.start)
    }
}

/// A part of one message: some of a batch's items on a server, all of one stage, and a range of its packed bytes.
pub(super) struct Section<'a> {
    pub(super) asked: &'a Asked<'a>,
    server: ServerId,
    stage: usize,
    pub(super) packed: Range<u64>,
    pub(super) items: Vec<&'a Item<'a>>,
    /// An upper bound of the bytes it moves.
    pub(super) bytes: u64,
    /// An upper estimate of its bytes in a control part.
    control: u64,
}

pub(super) type Request<'a> =
    BatchRequest<&'a Flat, &'a [u64], Vec<BatchItem<&'a ChunkName, &'a ChunkForm, &'a Hyperslab>>>;

impl<'a> Section<'a> {
    pub(super) fn request(&self) -> Request<'a> {
        let item = |item: &&'a Item<'a>| BatchItem {
            name: item.share.name,
            form: item.share.form,
            want: item.want,
            slab: item.slab,
            by_pieces: item.share.by_pieces,
        };
        BatchRequest {
            batch: &self.asked.flat,
            cells: self.asked.part.cells,
            packed: (self.packed.start, self.packed.end),
            items: self.items.iter().map(item).collect(),
        }
    }
}

/// Items, each with an equal part of `bytes`: an estimate of the bytes of each.
pub(super) fn shared<T>(
    bytes: u64,
    items: impl Iterator<Item = T> + Clone,
) -> impl Iterator<Item = (T, u64)> {
    let count = items.clone().count() as u64;
    let each = bytes / count.max(1);
    let mut rest = bytes - each * count;
    items.map(move |item| (item, each + std::mem::take(&mut rest)))
}

/// The caller's index of the first batch of a message.
pub(super) fn first(sections: &[Section<'_>]) -> usize {
    sections.first().map_or(0, |section| section.asked.number)
}

/// The sections of all batches, sorted by stage, and within a stage in the order of the batches.
pub(super) fn sections<'a>(all: &'a [Asked<'a>]) -> Vec<Section<'a>> {
    let stages = |asked: &'a Asked<'a>| asked.items.chunk_by(|one, other| one.stage == other.stage);
    // If everything fits in one message, the bytes of each server need not be counted.
    let most = |asked| Asked::bytes(asked).saturating_mul(stages(asked).count() as u64);
    let counted = all.iter().map(most).fold(0, u64::saturating_add) > MOST;
    let mut layers: Vec<(&Asked<'_>, &[Item<'_>])> = all
        .iter()
        .flat_map(|asked| stages(asked).map(move |items| (asked, items)))
        .collect();
    layers.sort_by_key(|(_, items)| items[0].stage);
    let mut sections = Vec::new();
    for (asked, items) in layers {
        let mut servers: Vec<(ServerId, Vec<&Item<'_>>)> = Vec::new();
        for item in items {
            match servers
                .iter_mut()
                .rfind(|(server, _)| *server == item.server)
            {
                Some((_, items)) => items.push(item),
                None => servers.push((item.server, vec![item])),
            }
        }
        for (server, items) in servers {
            asked.cut_into(server, &items, counted, &mut sections);
        }
    }
    sections
}

impl<'a> Asked<'a> {
    /// Splits the items of one server and stage into sections that fit in a message each.
    fn cut_into(
        &'a self,
        server: ServerId,
        mut rest: &[&'a Item<'a>],
        counted: bool,
        sections: &mut Vec<Section<'a>>,
    ) {
        while !rest.is_empty() {
            let mut full = 0;
            let mut control = 0;
            let fits = rest.iter().take_while(|item| {
                full += weight(item.share.name, Some(item.share.form), Some(item.slab))
                    + 40 * item.want.rank() as u64;
                if full <= FULL {
                    control = full;
                }
                full <= FULL
            });
            let (some, others) = rest.split_at(fits.count().max(1));
            rest = others;
            control += NODE * self.flat.nodes.len() as u64;
            control += 10 * self.part.cells.len() as u64 + 20;
            for (packed, bytes) in cuts(&self.part, some, counted) {
                sections.push(Section {
                    asked: self,
                    server,
                    stage: some[0].stage,
                    packed,
                    items: some.to_vec(),
                    bytes,
                    control,
                });
            }
        }
    }
}

/// Puts sections into messages, those of a server in order; `into` returns the sections of a message.
pub(super) fn sort<'a, M>(
    sections: impl IntoIterator<Item = Section<'a>>,
    sorter: &mut Sorter<M>,
    fresh: impl Fn() -> M,
    into: impl Fn(&mut M) -> &mut Vec<Section<'a>>,
) {
    for section in sections {
        let message = sorter.message(section.server, section.bytes, section.control, &fresh);
        into(message).push(section);
    }
}

/// Cuts the packed bytes where these items' share fills a message. Returns the ranges with their bytes: an upper
/// bound if not `counted`.
fn cuts(part: &BatchPart<'_>, items: &[&Item<'_>], counted: bool) -> Vec<(Range<u64>, u64)> {
    /// Bytes are counted in this many equal spans of the packed bytes.
    const SPANS: u64 = 4096;
    let packed = part.packed.start..part.packed.end.min(part.plan.bytes());
    let all = packed.end.saturating_sub(packed.start);
    if all <= MOST && !counted {
        return vec![(part.packed.clone(), all)];
    }
    let span = all.div_ceil(SPANS).max(1);
    let mut bytes = vec![0u64; SPANS as usize];
    for item in items {
        for one in item.share.parts(part.plan, &packed) {
            // The pieces of a part are contiguous among the packed bytes.
            let (mut at, mut left) = (one.run.packed - packed.start, one.bytes());
            while left > 0 {
                let here = left.min(span - at % span);
                bytes[(at / span) as usize] += here;
                (at, left) = (at + here, left - here);
            }
        }
    }
    let mut cuts = Vec::new();
    let (mut from, mut full) = (packed.start, 0);
    for (number, bytes) in (0u64..).zip(bytes) {
        let at = (packed.start + number * span).min(packed.end);
        if full > 0 && full + bytes > MOST {
            cuts.push((from..at, full));
            (from, full) = (at, 0);
        }
        full += bytes;
    }
    if full > 0 {
        cuts.push((from..packed.end, full));
    }
    cuts
}
