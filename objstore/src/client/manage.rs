//! Operations that are neither read nor write: seal, clip, punch, delete, sync, wipe, verify, space, list, allocated.

use serde::{Serialize, de::DeserializeOwned};
use slabfs_model::{ObjectId, ServerId};

use super::{
    ClipPiece, PunchPiece, SealPiece, Servers, Verifiers,
    fanout::{Asker, Failure, Job, Message, Request, Sorter, decode, encode, failure, weight},
};
use crate::{
    error::{Result, StoreError},
    name::ChunkName,
    store::{Allocated, ChunkStore, Space},
    wire::{
        Incoming, WireResult,
        messages::{AllocatedItem, Answer, ListQuery, Listing, Wipe, kind},
    },
};

impl Servers {
    /// Seals chunks; returns the servers' verifiers.
    pub fn seal(&self, pieces: &[SealPiece<'_>]) -> Result<Verifiers> {
        let seal = each(|store, p: &SealPiece<'_>| store.seal(p.name, p.form));
        self.act(kind::SEAL, seal, pieces, |p| {
            (p.server, weight(p.name, Some(p.form), None), *p)
        })
    }

    /// Sets cells of grid chunks at or beyond a bound to fill; returns the servers' verifiers.
    pub fn clip(&self, pieces: &[ClipPiece<'_>]) -> Result<Verifiers> {
        let clip = each(|store, p: &ClipPiece<'_>| store.clip(p.name, p.form, p.keep));
        let clipped = self.act(kind::CLIP, clip, pieces, |p| {
            let weight = weight(p.name, Some(p.form), None) + 10 * p.keep.len() as u64;
            (p.server, weight, *p)
        });
        let chunks = pieces.iter().map(|p| (p.server, p.name));
        clipped.inspect_err(|error| self.note_unanswered(error, chunks))
    }

    /// Sends a server a change of no chunk, which it orders after all earlier ones.
    pub(super) fn change_nothing(&self, server: ServerId) -> Result<()> {
        self.verifier(server).map(drop)
    }

    /// The present verifier of a server: see [`ChunkStore::verifier`].
    pub fn verifier(&self, server: ServerId) -> Result<u64> {
        let none: Vec<ClipPiece<'_>> = Vec::new();
        let clip = at_once(|store, _: &Vec<ClipPiece<'_>>| Ok(store.verifier()));
        self.ask(server, Ask::new(kind::CLIP, none, done, clip))
    }

    /// Sets cells of grid chunks to fill; returns the servers' verifiers.
    pub fn punch(&self, pieces: &[PunchPiece<'_>]) -> Result<Verifiers> {
        let punch = each(|store, p: &PunchPiece<'_>| store.punch(p.name, p.form, p.slab));
        let punched = self.act(kind::PUNCH, punch, pieces, |p| {
            (p.server, weight(p.name, Some(p.form), Some(p.slab)), *p)
        });
        let chunks = pieces.iter().map(|p| (p.server, p.name));
        punched.inspect_err(|error| self.note_unanswered(error, chunks))
    }

    /// Deletes chunks; a chunk that does not exist is not an error.
    pub fn delete(&self, names: &[(ServerId, ChunkName)]) -> Result<()> {
        self.same_host.forget_all(names);
        let delete = at_once(|store, names: &Vec<ChunkName>| {
            store.delete(names)?;
            Ok(store.verifier())
        });
        self.act(kind::DELETE, delete, names, |(server, name)| {
            (*server, weight(name, None, None), name.clone())
        })
        .map(drop)
    }

    /// Returns when these chunks, as they are now, are durable, with the servers' verifiers: what was written under another
    /// one may be lost.
    pub fn sync(&self, names: &[(ServerId, ChunkName)]) -> Result<Verifiers> {
        let sync = at_once(|store, names: &Vec<ChunkName>| {
            store.sync(names)?;
            Ok(store.verifier())
        });
        self.act(kind::SYNC, sync, names, |(server, name)| {
            (*server, weight(name, None, None), name.clone())
        })
    }

    /// Returns when everything on these servers, deletions included, is durable.
    pub fn sync_all(&self, servers: &[ServerId]) -> Result<()> {
        let sync = at_once(|store, none: &Vec<ChunkName>| {
            store.sync(none)?;
            Ok(store.verifier())
        });
        let jobs = servers.iter().enumerate().map(|(number, &server)| {
            let mut ask = Ask::new(kind::SYNC, Vec::new(), done, sync);
            ask.numbers.push(number);
            Job::of(server, ask)
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
        let below = Some(below);
        self.wipe(servers, Wipe { object, below })
    }

    /// Deletes, on these servers, all grid chunks of an object.
    pub fn delete_grid(&self, servers: &[ServerId], object: ObjectId) -> Result<()> {
        let below = None;
        self.wipe(servers, Wipe { object, below })
    }

    fn wipe(&self, servers: &[ServerId], wipe: Wipe) -> Result<()> {
        let local = each(|store, i: &Wipe| match i.below {
            Some(below) => store.delete_generation(i.object, below),
            None => store.delete_grid(i.object),
        });
        self.act(kind::WIPE, local, servers, |&server| (server, 32, wipe))
            .map(drop)
    }

    /// Reads and checks an entire chunk on its server.
    pub fn verify(&self, server: ServerId, name: &ChunkName) -> Result<()> {
        let verify = each(|store, name: &ChunkName| store.verify(name));
        self.act(kind::VERIFY, verify, std::slice::from_ref(name), |name| {
            (server, weight(name, None, None), name.clone())
        })
        .map(drop)
    }

    /// The disk space of a server.
    pub fn space(&self, server: ServerId) -> Result<Space> {
        let space = at_once(|store, (): &()| store.space());
        self.ask(server, Ask::new(kind::SPACE, (), value, space))
    }

    /// Up to `limit` chunks of a server after `after`, in the order of names, with the bytes each occupies. A result
    /// shorter than `limit` may have successors; an empty one is the end.
    pub fn list(&self, server: ServerId, after: Option<ChunkName>, limit: u32) -> Result<Listing> {
        let list = at_once(|store, query: &ListQuery| {
            store.list(query.after.clone(), query.limit as usize)
        });
        let query = ListQuery { after, limit };
        self.ask(server, Ask::new(kind::LIST, query, value, list))
    }

    /// Which bytes of chunks occupy disk space, for each chunk from a given byte on; see [`ChunkStore::allocated`].
    /// One message a server.
    pub fn allocated(&self, chunks: &[(ServerId, ChunkName, u64)]) -> Result<Vec<Allocated>> {
        type Items<'a> = Vec<AllocatedItem<&'a ChunkName>>;
        let look = at_once(|store, items: &Items<'_>| {
            let each = items.iter().map(|i| store.allocated(i.name, i.from));
            each.collect::<Result<Vec<_>>>()
        });
        let fresh = || Ask::new(kind::ALLOCATED, Items::new(), values, look);
        let mut jobs = jobs_of(chunks, fresh, |(server, name, from)| {
            let item = AllocatedItem { name, from: *from };
            (*server, weight(name, None, None), item)
        });
        self.fan_out(&self.table(), &mut jobs, false)
            .map_err(|(_, e)| e)?;
        let mut all = vec![Allocated::default(); chunks.len()];
        for message in jobs.iter().flat_map(|job| &job.messages) {
            let found = message.answer.iter().flatten();
            for (&number, &one) in message.numbers.iter().zip(found) {
                all[number] = one;
            }
        }
        Ok(all)
    }

    /// Performs the same operation on each piece, one message a server; returns the servers' verifiers.
    fn act<'a, P, T: Serialize + Send + Sync>(
        &self,
        kind: u16,
        local: impl Local<Vec<T>, u64>,
        pieces: &'a [P],
        item: impl Fn(&'a P) -> (ServerId, u64, T),
    ) -> Result<Verifiers> {
        let fresh = || Ask::new(kind, Vec::new(), done, local);
        let mut jobs = jobs_of(pieces, fresh, item);
        self.fan_out(&self.table(), &mut jobs, true)
            .map_err(|(_, e)| e)?;
        let mut verifiers = Verifiers::new();
        for job in &jobs {
            for verifier in job.messages.iter().filter_map(|message| message.answer) {
                let one = (job.server, verifier);
                if !verifiers.contains(&one) {
                    verifiers.push(one);
                }
            }
        }
        Ok(verifiers)
    }

    /// Queries one server for a value.
    fn ask<Q: Serialize + Send, A: Send>(
        &self,
        server: ServerId,
        ask: Ask<Q, A, impl Local<Q, A>>,
    ) -> Result<A> {
        let mut jobs = [Job::of(server, ask)];
        self.fan_out(&self.table(), &mut jobs, false)
            .map_err(|(_, e)| e)?;
        let [job] = jobs;
        let answer = job.messages.into_iter().find_map(|ask| ask.answer);
        answer.ok_or_else(|| StoreError::Protocol(format!("data server {server}: no answer")))
    }
}

/// One message a server for all pieces, as long as the limits allow.
fn jobs_of<'a, P, T, A, L>(
    pieces: &'a [P],
    fresh: impl Fn() -> Ask<Vec<T>, A, L>,
    item: impl Fn(&'a P) -> (ServerId, u64, T),
) -> Vec<Job<Ask<Vec<T>, A, L>>> {
    let mut sorter = Sorter::new();
    for (number, piece) in pieces.iter().enumerate() {
        let (server, weight, item) = item(piece);
        let ask = sorter.message(server, 0, weight, &fresh);
        ask.query.push(item);
        ask.count += 1;
        ask.numbers.push(number);
    }
    sorter.jobs()
}

/// Performs a query on a store in this process.
trait Local<Q, A>: Fn(&dyn ChunkStore, &Q) -> Result<A, Failure> + Copy + Send {}

impl<Q, A, F: Fn(&dyn ChunkStore, &Q) -> Result<A, Failure> + Copy + Send> Local<Q, A> for F {}

/// Acts on each item, until one fails; the answer is the store's verifier.
fn each<T>(
    act: impl Fn(&dyn ChunkStore, &T) -> Result<()> + Copy + Send,
) -> impl Local<Vec<T>, u64> {
    move |store: &dyn ChunkStore, items: &Vec<T>| {
        let mut items = items.iter().enumerate();
        items.try_for_each(|(i, item)| act(store, item).map_err(|e| (i, e)))?;
        Ok(store.verifier())
    }
}

/// Acts on the query at once.
fn at_once<Q, A>(act: impl Fn(&dyn ChunkStore, &Q) -> Result<A> + Copy + Send) -> impl Local<Q, A> {
    move |store: &dyn ChunkStore, query: &Q| act(store, query).map_err(|e| (0, e))
}

/// Decodes the reply to a query of this many items.
type Decode<A> = fn(&[u8], &Incoming<'_>, usize) -> WireResult<Result<A, Failure>>;

/// A request without bytes of chunks, and its answer.
struct Ask<Q, A, L> {
    kind: u16,
    query: Q,
    /// The items of the query.
    count: usize,
    /// The caller's number of each.
    numbers: Vec<usize>,
    decode: Decode<A>,
    local: L,
    answer: Option<A>,
}

/// The reply to items that are acted on: the server's verifier.
fn done(control: &[u8], incoming: &Incoming<'_>, count: usize) -> WireResult<Result<u64, Failure>> {
    failure(decode(control, incoming)?, incoming, count)
}

/// The reply with a value.
fn value<A: DeserializeOwned>(
    control: &[u8],
    incoming: &Incoming<'_>,
    _: usize,
) -> WireResult<Result<A, Failure>> {
    Ok(decode::<Answer<A>>(control, incoming)?.map_err(|e| (0, e)))
}

/// The reply with a value for each item.
fn values<A: DeserializeOwned>(
    control: &[u8],
    incoming: &Incoming<'_>,
    count: usize,
) -> WireResult<Result<Vec<A>, Failure>> {
    match value::<Vec<A>>(control, incoming, count)? {
        Ok(all) if all.len() != count => {
            let text = format!("{} answers to {count} items", all.len());
            Err(incoming.protocol(text))
        }
        answer => Ok(answer),
    }
}

impl<Q, A, L: Local<Q, A>> Ask<Q, A, L> {
    fn new(kind: u16, query: Q, decode: Decode<A>, local: L) -> Self {
        Ask {
            kind,
            query,
            count: 0,
            numbers: Vec::new(),
            decode,
            local,
            answer: None,
        }
    }

    fn answered(&mut self, answer: Result<A, Failure>) -> Result<(), Failure> {
        let number = |item: usize| self.numbers.get(item).copied().unwrap_or(0);
        self.answer = Some(answer.map_err(|(item, e)| (number(item), e))?);
        Ok(())
    }
}

impl<'a, Q: Serialize + Send, A: Send, L: Local<Q, A>> Message<'a> for Ask<Q, A, L> {
    fn first(&self) -> usize {
        self.numbers.first().copied().unwrap_or(0)
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn request(&self, asker: Asker) -> WireResult<Request<'a>> {
        let control = match self.kind {
            kind::CLIP | kind::PUNCH | kind::DELETE | kind::WIPE => asker.encode(&self.query)?,
            _ => encode(&self.query)?,
        };
        Ok(Request::bare(self.kind, control))
    }

    fn take(
        &mut self,
        control: &[u8],
        incoming: &mut Incoming<'_>,
    ) -> WireResult<Result<(), Failure>> {
        let answer = (self.decode)(control, incoming, self.count)?;
        Ok(self.answered(answer))
    }

    fn local(&mut self, store: &dyn ChunkStore) -> Result<(), Failure> {
        let answer = (self.local)(store, &self.query);
        self.answered(answer)
    }
}
