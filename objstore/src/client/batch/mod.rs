//! Reading and writing what a batch names of parts of chunks: one message a server, whatever the number of pieces.
//!
//! Above the size of a message the packed bytes are cut, for each server where its own bytes fill one. `read` takes
//! bytes apart as they come; `write` gathers those of a message when it is sent. A store in this process packs and
//! takes apart in the same bites.

mod read;
mod write;

use std::ops::Range;

use slabfs_model::batch::{Flat, Parts, Plan, Rows};
use slabfs_model::{Hyperslab, ServerId};

use super::fanout::{Failure, Job, weight};
use crate::batch::{Share, TRAILER};
use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};
use crate::wire::MAX_PAYLOAD;
use crate::wire::messages::{BatchItem, BatchRequest};

/// The most bytes of one message.
const MOST: u64 = (MAX_PAYLOAD - TRAILER) as u64;
/// A control part is full at this estimate.
const FULL: u64 = 8 << 20;

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
    /// Set by a read: `false` where there is no such chunk. Its bytes of the buffer are then unspecified.
    pub found: bool,
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

/// A piece that the batch goes through.
struct Item<'a> {
    number: usize,
    server: ServerId,
    want: &'a Hyperslab,
    slab: &'a Hyperslab,
    share: Share<'a>,
}

/// The pieces of which the batch names something; of others nobody is asked.
fn items<'a>(part: &BatchPart<'_>, pieces: &[BatchPiece<'a>]) -> Result<Vec<Item<'a>>, Failure> {
    let (plan, packed) = (part.plan, &part.packed);
    let mut items = Vec::with_capacity(pieces.len());
    for (number, piece) in pieces.iter().enumerate() {
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
                number,
                server: piece.server,
                want: piece.want,
                slab: piece.slab,
                share,
            });
        }
    }
    Ok(items)
}

/// One message: some of a server's items, and some of the packed bytes.
struct Section<'a> {
    part: &'a BatchPart<'a>,
    flat: &'a Flat,
    packed: Range<u64>,
    items: Vec<&'a Item<'a>>,
}

type Asked<'a> =
    BatchRequest<&'a Flat, &'a [u64], Vec<BatchItem<&'a ChunkName, &'a ChunkForm, &'a Hyperslab>>>;

impl<'a> Section<'a> {
    fn first(&self) -> usize {
        self.items.first().map_or(0, |item| item.number)
    }

    /// About how many bytes it moves, for the choice of threads.
    fn bytes(&self) -> u64 {
        (self.packed.end - self.packed.start).min(MOST)
    }

    fn asked(&self) -> Asked<'a> {
        let item = |item: &&'a Item<'a>| BatchItem {
            name: item.share.name,
            form: item.share.form,
            want: item.want,
            slab: item.slab,
            by_pieces: item.share.by_pieces,
        };
        BatchRequest {
            batch: self.flat,
            cells: self.part.cells,
            packed: (self.packed.start, self.packed.end),
            items: self.items.iter().map(item).collect(),
        }
    }
}

/// The messages for all servers; `message` makes one.
fn jobs<'a, M>(
    part: &'a BatchPart<'a>,
    flat: &'a Flat,
    items: &'a [Item<'a>],
    message: impl Fn(Section<'a>) -> M,
) -> Vec<Job<M>> {
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
    let mut jobs = Vec::with_capacity(servers.len());
    for (server, items) in servers {
        let mut messages = Vec::new();
        let mut rest = &items[..];
        while !rest.is_empty() {
            let mut full = 0;
            let fits = rest.iter().take_while(|item| {
                full += weight(item.share.name, Some(item.share.form), Some(item.slab))
                    + 40 * item.want.rank() as u64;
                full <= FULL
            });
            let (some, others) = rest.split_at(fits.count().max(1));
            rest = others;
            for packed in cuts(part, some) {
                messages.push(message(Section {
                    part,
                    flat,
                    packed,
                    items: some.to_vec(),
                }));
            }
        }
        jobs.push(Job { server, messages });
    }
    jobs
}

/// The packed bytes, cut where what these items have of them fills a message.
fn cuts(part: &BatchPart<'_>, items: &[&Item<'_>]) -> Vec<Range<u64>> {
    /// Bytes are counted by so many equal spans of the packed bytes.
    const SPANS: u64 = 4096;
    let packed = &part.packed;
    let all = packed.end.saturating_sub(packed.start);
    if all <= MOST {
        return vec![packed.clone()];
    }
    let span = all.div_ceil(SPANS);
    let mut bytes = vec![0u64; SPANS as usize];
    for item in items {
        for one in item.share.parts(part.plan, packed) {
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
            cuts.push(from..at);
            (from, full) = (at, 0);
        }
        full += bytes;
    }
    if full > 0 {
        cuts.push(from..packed.end);
    }
    cuts
}
