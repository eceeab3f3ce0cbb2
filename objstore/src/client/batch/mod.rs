//! Reading and writing what batches name of parts of chunks: one message a server for all of them, whatever the number of
//! pieces.
//!
//! Above the size of a message the packed bytes of a batch are cut, for each server where its own bytes fill one; batches
//! that are less share one. `read` takes bytes apart as they come; `write` gathers those of a message when it is sent. A
//! store in this process packs and takes apart in the same bites.

mod read;
mod write;

use std::ops::Range;

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
/// The items of one batch in one message end at this estimate of a control part.
const FULL: u64 = 4 << 20;
/// What a node counts for in a control part. More than it takes: a message is full with as many as a server decodes.
const NODE: u64 = super::fanout::FULL / slabfs_model::batch::MAX_NODES as u64;

/// Which bytes of an object: a range of the packed bytes of a batch.
#[derive(Debug, Clone)]
pub struct BatchPart<'a> {
    /// The batch.
    pub plan: &'a Plan,
    /// Which of its packed bytes.
    pub packed: Range<u64>,
    /// The object's dims, the last in bytes.
    pub cells: &'a [u64],
    /// Where the memory that is given begins in the buffer that the plan names.
    pub base: u64,
}

/// A part of a chunk that a batch goes through.
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
    /// What a read finds in a piece is put over what it finds in those of lower stages; pieces of one stage must not
    /// overlap. A write takes no notice.
    pub stage: usize,
    /// Set by a read: `false` where there is no such chunk. Its bytes of the buffer are then unspecified.
    pub found: bool,
}

/// A batch among others that are done as one, with the memory that is given, which is the caller's buffer from
/// [`BatchPart::base`] on: bytes to read into, or to write from.
#[derive(Debug)]
pub struct BatchAsk<'a, M> {
    /// Which bytes.
    pub part: BatchPart<'a>,
    /// Where they are.
    pub pieces: Vec<BatchPiece<'a>>,
    /// Where they go to, or come from.
    pub memory: M,
}

impl BatchPart<'_> {
    /// That so much memory has all that the plan names.
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

/// A piece that a batch goes through.
struct Item<'a> {
    number: usize,
    server: ServerId,
    stage: usize,
    want: &'a Hyperslab,
    slab: &'a Hyperslab,
    share: Share<'a>,
}

/// One batch among those that are done as one.
struct Asked<'a> {
    /// Its number among them.
    number: usize,
    part: BatchPart<'a>,
    flat: Flat,
    /// The pieces of which it names something, by their stages; of others nobody is asked.
    items: Vec<Item<'a>>,
}

impl<'a> Asked<'a> {
    fn new<M>(number: usize, ask: &BatchAsk<'a, M>, len: usize) -> Result<Asked<'a>, Failure> {
        let part = ask.part.clone();
        part.check_memory(len).map_err(|e| (number, e))?;
        let (plan, packed) = (part.plan, &part.packed);
        let mut items = Vec::with_capacity(ask.pieces.len());
        for (at, piece) in ask.pieces.iter().enumerate() {
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

    /// The most bytes that it moves.
    fn bytes(&self) -> u64 {
        let packed = &self.part.packed;
        packed
            .end
            .min(self.part.plan.bytes())
            .saturating_sub(packed.start)
    }
}

/// Of one message: some of a batch's items on a server, all of one stage, and some of its packed bytes.
struct Section<'a> {
    asked: &'a Asked<'a>,
    server: ServerId,
    stage: usize,
    packed: Range<u64>,
    items: Vec<&'a Item<'a>>,
    /// What it moves, or more.
    bytes: u64,
    /// About what it takes in a control part, and not less.
    control: u64,
}

type Request<'a> =
    BatchRequest<&'a Flat, &'a [u64], Vec<BatchItem<&'a ChunkName, &'a ChunkForm, &'a Hyperslab>>>;

impl<'a> Section<'a> {
    fn request(&self) -> Request<'a> {
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

/// The caller's number of the first batch of a message.
fn first(sections: &[Section<'_>]) -> usize {
    sections.first().map_or(0, |section| section.asked.number)
}

/// The sections of all batches: stage by stage, those of a stage in the order of the batches.
fn sections<'a>(all: &'a [Asked<'a>]) -> Vec<Section<'a>> {
    let stages = |asked: &'a Asked<'a>| asked.items.chunk_by(|one, other| one.stage == other.stage);
    // As long as all of it fits a message nobody counts whose bytes are where.
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
    /// Items of one server and stage, no more than a message holds in each section.
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

/// Puts sections into messages, those of a server in their order; `into` gives the sections of a message.
fn sort<'a, M>(
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

/// The packed bytes, cut where what these items have of them fills a message, and how many that are: at most, if it is
/// not to be counted.
fn cuts(part: &BatchPart<'_>, items: &[&Item<'_>], counted: bool) -> Vec<(Range<u64>, u64)> {
    /// Bytes are counted by so many equal spans of the packed bytes.
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
            // The pieces of a part lie together among the packed bytes.
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
