//! Operations that are neither read nor write: seal, clip, punch, delete, sync, wipe, verify, space, list.

use std::time::Instant;

use serde::{Serialize, de::DeserializeOwned};
use slabfs_model::{Hyperslab, ObjectId, ServerId};
use smallvec::SmallVec;

use super::{
    ClipPiece, PunchPiece, RETRY_DELAY, RETRY_DELAY_MOST, SealPiece, Servers, Target,
    fanout::{Asker, Failure, Job, Message, Request, Sorter, decode, encode, store_error, weight},
    target,
    write::failure,
};
use crate::{
    error::{Result, StoreError},
    name::{ChunkForm, ChunkName},
    store::{ChunkStore, Space},
    wire::{
        Incoming, Pool, WireResult,
        messages::{
            Answer, BySession, ClipItem, ListQuery, Listing, PunchItem, SealItem, Wipe, kind,
        },
    },
};

impl Servers {
    /// Seals chunks.
    pub fn seal(&self, pieces: &[SealPiece<'_>]) -> Result<()> {
        type Item<'a> = SealItem<&'a ChunkName, &'a ChunkForm>;
        let local = |store: &dyn ChunkStore, items: &[Item<'_>]| {
            each(items, |i| store.seal(i.name, i.form))
        };
        self.act(kind::SEAL, local, pieces, |p| {
            (
                p.server,
                weight(p.name, Some(p.form), None),
                Item {
                    name: p.name,
                    form: p.form,
                },
            )
        })
    }

    /// Sets cells of grid chunks at or beyond a bound to fill.
    pub fn clip(&self, pieces: &[ClipPiece<'_>]) -> Result<()> {
        type Item<'a> = ClipItem<&'a ChunkName, &'a ChunkForm, &'a [u64]>;
        let local = |store: &dyn ChunkStore, items: &[Item<'_>]| {
            each(items, |i| store.clip(i.name, i.form, i.keep))
        };
        self.act(kind::CLIP, local, pieces, |p| {
            let weight = weight(p.name, Some(p.form), None) + 10 * p.keep.len() as u64;
            (
                p.server,
                weight,
                Item {
                    name: p.name,
                    form: p.form,
                    keep: p.keep,
                },
            )
        })
    }

    /// Sets cells of grid chunks to fill.
    pub fn punch(&self, pieces: &[PunchPiece<'_>]) -> Result<()> {
        type Item<'a> = PunchItem<&'a ChunkName, &'a ChunkForm, &'a Hyperslab>;
        let local = |store: &dyn ChunkStore, items: &[Item<'_>]| {
            each(items, |i| store.punch(i.name, i.form, i.slab))
        };
        self.act(kind::PUNCH, local, pieces, |p| {
            let weight = weight(p.name, Some(p.form), Some(p.slab));
            (
                p.server,
                weight,
                Item {
                    name: p.name,
                    form: p.form,
                    slab: p.slab,
                },
            )
        })
    }

    /// Deletes chunks; a chunk that does not exist is not an error.
    pub fn delete(&self, names: &[(ServerId, ChunkName)]) -> Result<()> {
        self.same_host.forget_all(names);
        let local =
            |store: &dyn ChunkStore, names: &[ChunkName]| store.delete(names).map_err(|e| (0, e));
        self.act(kind::DELETE, local, names, |(server, name)| {
            (*server, weight(name, None, None), name.clone())
        })
    }

    /// Returns when these chunks, as they are now, are durable.
    pub fn sync(&self, names: &[(ServerId, ChunkName)]) -> Result<()> {
        let local =
            |store: &dyn ChunkStore, names: &[ChunkName]| store.sync(names).map_err(|e| (0, e));
        self.act(kind::SYNC, local, names, |(server, name)| {
            (*server, weight(name, None, None), name.clone())
        })
    }

    /// Returns when everything on these servers, deletions included, is durable.
    pub fn sync_all(&self, servers: &[ServerId]) -> Result<()> {
        let local = |store: &dyn ChunkStore, _: &[ChunkName]| store.sync(&[]).map_err(|e| (0, e));
        let jobs = servers.iter().enumerate().map(|(i, &server)| Job {
            server,
            messages: vec![Acts {
                kind: kind::SYNC,
                items: Vec::<ChunkName>::new(),
                numbers: vec![i],
                local,
                failed: None,
            }],
            sent: 0,
        });
        self.fan_out(&self.table(), &mut jobs.collect::<Vec<_>>(), true)
            .map_err(|(_, e)| e)
    }

    /// Deletes, on these servers, the grid chunks of an object's generations below `below`.
    pub fn delete_generation(
        &self,
        servers: &[ServerId],
        object: ObjectId,
        below: u32,
    ) -> Result<()> {
        self.wipe(
            servers,
            Wipe {
                object,
                below: Some(below),
            },
        )
    }

    /// Deletes, on these servers, all grid chunks of an object.
    pub fn delete_grid(&self, servers: &[ServerId], object: ObjectId) -> Result<()> {
        self.wipe(
            servers,
            Wipe {
                object,
                below: None,
            },
        )
    }

    fn wipe(&self, servers: &[ServerId], wipe: Wipe) -> Result<()> {
        let local = |store: &dyn ChunkStore, items: &[Wipe]| {
            each(items, |i| match i.below {
                Some(below) => store.delete_generation(i.object, below),
                None => store.delete_grid(i.object),
            })
        };
        self.act(kind::WIPE, local, servers, |&server| (server, 32, wipe))
    }

    /// Reads and checks an entire chunk on its server.
    pub fn verify(&self, server: ServerId, name: &ChunkName) -> Result<()> {
        let local = |store: &dyn ChunkStore, names: &[ChunkName]| each(names, |n| store.verify(n));
        self.act(kind::VERIFY, local, std::slice::from_ref(name), |name| {
            (server, weight(name, None, None), name.clone())
        })
    }

    /// The disk space of a server.
    pub fn space(&self, server: ServerId) -> Result<Space> {
        self.ask(server, kind::SPACE, &(), |store| store.space())
    }

    /// Up to `limit` chunks of a server after `after`, in the order of names, with the bytes each occupies. A result
    /// shorter than `limit` may have successors; an empty one is the end.
    pub fn list(&self, server: ServerId, after: Option<ChunkName>, limit: u32) -> Result<Listing> {
        let query = ListQuery { after, limit };
        self.ask(server, kind::LIST, &query, |store| {
            store.list(query.after.clone(), limit as usize)
        })
    }

    /// Performs the same operation on each piece, one message a server.
    fn act<'a, P, T: Serialize + Send + Sync>(
        &self,
        kind: u16,
        local: fn(&dyn ChunkStore, &[T]) -> Result<(), Failure>,
        pieces: &'a [P],
        item: impl Fn(&'a P) -> (ServerId, u64, T),
    ) -> Result<()> {
        let mut sorter = Sorter::<Acts<T>>::new();
        for (number, piece) in pieces.iter().enumerate() {
            let (server, weight, item) = item(piece);
            let fresh = || Acts {
                kind,
                items: Vec::new(),
                numbers: Vec::new(),
                local,
                failed: None,
            };
            let message = sorter.message(server, 0, weight, fresh);
            message.items.push(item);
            message.numbers.push(number);
        }
        self.fan_out(&self.table(), &mut sorter.jobs(), true)
            .map_err(|(_, e)| e)
    }

    /// Queries one server for a value; retries while it answers `Unavailable`, as for want of descriptors.
    fn ask<Q: Serialize, T: DeserializeOwned>(
        &self,
        server: ServerId,
        kind: u16,
        query: &Q,
        local: impl Fn(&dyn ChunkStore) -> Result<T>,
    ) -> Result<T> {
        let (session, until) = (self.session(), self.until());
        let table = self.table();
        let target = target(&table, server)?;
        let mut pause = RETRY_DELAY;
        loop {
            let answer = match target {
                Target::Local(store) => local(store.as_ref()),
                Target::Remote(pool) => ask_once(server, pool, kind, query, until),
            };
            match answer {
                Err(StoreError::Unavailable { .. }) if self.pause(session, pause, until) => {
                    pause = (pause * 2).min(RETRY_DELAY_MOST);
                }
                answer => return answer,
            }
        }
    }
}

fn ask_once<Q: Serialize, T: DeserializeOwned>(
    server: ServerId,
    pool: &Pool,
    kind: u16,
    query: &Q,
    until: Instant,
) -> Result<T> {
    let fail = |e| store_error(server, pool, e);
    let control = encode(query).map_err(fail)?;
    let mut answer: Option<Answer<T>> = None;
    pool.call_with(kind, &control, &[], until, &mut |control, incoming| {
        answer = Some(decode(control, incoming)?);
        Ok(())
    })
    .map_err(fail)?;
    answer.unwrap_or_else(|| {
        Err(StoreError::Protocol(format!(
            "data server {server}: no answer"
        )))
    })
}

/// Items of one kind for one server.
struct Acts<T> {
    kind: u16,
    items: Vec<T>,
    /// The caller's number of each.
    numbers: Vec<usize>,
    local: fn(&dyn ChunkStore, &[T]) -> Result<(), Failure>,
    failed: Option<Failure>,
}

impl<T> Acts<T> {
    fn number(&self, item: usize) -> usize {
        self.numbers.get(item).copied().unwrap_or(0)
    }
}

impl<'a, T: Serialize + Send> Message<'a> for Acts<T> {
    fn first(&self) -> usize {
        self.number(0)
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn request(&self, asker: Asker) -> WireResult<Request<'a>> {
        Ok(Request {
            kind: self.kind,
            control: match self.kind {
                kind::CLIP | kind::PUNCH | kind::DELETE | kind::WIPE => encode(&BySession {
                    session: asker.session,
                    epoch: asker.epoch,
                    items: &self.items,
                })?,
                _ => encode(&self.items)?,
            },
            payload: SmallVec::new(),
            made: Vec::new(),
        })
    }

    fn take(&mut self, control: &[u8], incoming: &mut Incoming<'_>) -> WireResult<()> {
        let outcome = decode(control, incoming)?;
        self.failed = failure(outcome, incoming, self.items.len(), |i| self.number(i))?;
        Ok(())
    }

    fn verdict(&mut self) -> Result<(), Failure> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn local(&mut self, store: &dyn ChunkStore) -> Result<(), Failure> {
        (self.local)(store, &self.items).map_err(|(i, e)| (self.number(i), e))
    }
}

fn each<T>(items: &[T], mut act: impl FnMut(&T) -> Result<()>) -> Result<(), Failure> {
    items
        .iter()
        .enumerate()
        .try_for_each(|(i, item)| act(item).map_err(|e| (i, e)))
}
