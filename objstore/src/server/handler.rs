//! Dispatches the requests of mounts to a chunk store.

use std::io::IoSlice;
use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};

use super::epochs::{Begun, ConnectionEpochs};
use super::fence::{Entered, Fence};
use super::{batch, blank, check, puts, read, same_host, write};
use crate::{
    error::{Result, StoreError},
    name::ChunkName,
    store::ChunkStore,
    wire::{
        Call, Handler, Incoming, Listener, MAX_CONTROL, MAX_DATA, ServeOptions, Serving, UntilNext,
        WireError, WireResult,
        messages::{
            AllocatedItem, Answer, BySession, ClipItem, Found, ListQuery, Outcome, PunchItem,
            ReadReply, SealItem, Wipe, kind,
        },
        serve_with,
    },
};

/// The number of items done before the one that failed, and its error.
pub(super) type Undone = (u64, StoreError);

/// The maximum page size of a chunk list.
const MAX_LIST: usize = 10_000;

/// A running data server; stopped when dropped.
#[derive(Debug)]
pub struct DataServer {
    serving: Serving,
}

impl DataServer {
    /// Serves `store` at `listener` to any client, without a fence: no metadata service manages sessions.
    pub fn start(store: Arc<dyn ChunkStore>, listener: Listener) -> WireResult<DataServer> {
        DataServer::start_with(store, listener, None, ServeOptions::default())
    }

    /// Serves `store`; only sessions admitted by `fence` may change grid chunks.
    pub fn start_fenced(
        store: Arc<dyn ChunkStore>,
        listener: Listener,
        fence: Arc<Fence>,
    ) -> WireResult<DataServer> {
        DataServer::start_with(store, listener, Some(fence), ServeOptions::default())
    }

    pub(super) fn start_with(
        store: Arc<dyn ChunkStore>,
        listener: Listener,
        fence: Option<Arc<Fence>>,
        options: ServeOptions,
    ) -> WireResult<DataServer> {
        let serving = serve_with(
            listener,
            Arc::new(Answerer {
                store,
                fence,
                epochs: ConnectionEpochs::default(),
            }),
            options,
        )?;
        Ok(DataServer { serving })
    }

    /// The address it listens at.
    pub fn addr(&self) -> &crate::addr::Addr {
        self.serving.addr()
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.serving.connections()
    }

    /// Completes running requests, closes all connections, joins all threads.
    pub fn shutdown(self) {
        self.serving.stop();
    }

    /// Breaks all connections, as the death of the process would, and joins all threads.
    pub fn abort(self) {
        self.serving.abort();
    }
}

struct Answerer {
    store: Arc<dyn ChunkStore>,
    fence: Option<Arc<Fence>>,
    epochs: ConnectionEpochs,
}

impl Answerer {
    /// Admits a request that changes grid chunks, by session and connection epoch, while the guards are held.
    fn enter<T>(&self, asked: &BySession<T>) -> Result<(Option<Entered<'_>>, Begun<'_>)> {
        let fence = || self.fence.as_ref().map(|fence| fence.enter(asked.session));
        // Check the fence first, so that sessions that are over do not enter the epoch table. Drop it before waiting
        // for earlier epochs, so that a new session list is not held up.
        drop(fence().transpose()?);
        let begun = self.epochs.begin(asked.session, asked.epoch)?;
        Ok((fence().transpose()?, begun))
    }
}

impl Handler for Answerer {
    fn take(
        &self,
        kind: u16,
        control: &[u8],
        spare: &mut Vec<u8>,
        payload: &mut Incoming<'_>,
    ) -> WireResult<Option<UntilNext>> {
        match kind {
            kind::WRITE => {
                let outcome = puts::take(self.store.as_ref(), control, spare, payload)?;
                Ok(outcome.map(|outcome| Box::new(outcome) as UntilNext))
            }
            _ => Ok(None),
        }
    }

    fn handle(&self, mut call: Call<'_>) -> WireResult<()> {
        if call.kind != kind::FILLED {
            // The client did not return the files handed out with its previous request: drop them.
            call.until_next = None;
        }
        let store = self.store.as_ref();
        if let Err(error) = store.may_answer() {
            // Without a reply it is sent again, and to another process once that has these chunks.
            return Err(WireError::Unavailable {
                addr: "of this process".to_owned(),
                detail: error.to_string(),
            });
        }
        let takes_payload = matches!(call.kind, kind::WRITE | kind::WRITE_BATCH);
        if !takes_payload && !call.payload.is_empty() {
            return stray_payload(store, call);
        }
        match call.kind {
            kind::READ => read::read(store, call),
            kind::READ_BATCH => batch::read(store, call),
            kind @ (kind::WRITE | kind::WRITE_BATCH) => {
                match call.taken.take().map(|taken| taken.downcast::<Outcome>()) {
                    Some(Ok(outcome)) => call.reply(&encode(&*outcome)?, &[]),
                    _ => outcome(store, call, |control, payload| self.write(kind, control, payload)),
                }
            }
            kind::BLANKS => blank::answer(store, call),
            kind::FILLED => blank::adopt(store, call),
            kind::SAME_HOST_FILES => same_host::answer(store, call),
            kind::SEAL => each(store, call, |item: SealItem| {
                check::kind_of(&item.name, false, "sealed")?;
                check::form(&item.name, &item.form)?;
                store.seal(&item.name, &item.form)
            }),
            kind::CLIP => self.each_in_place(call, |item: ClipItem| {
                check::kind_of(&item.name, true, "clipped")?;
                check::form(&item.name, &item.form)?;
                if item.keep.len() != item.form.shape.len() {
                    return Err(StoreError::Invalid(format!("{}: clipped with another rank", item.name)));
                }
                store.clip(&item.name, &item.form, &item.keep)
            }),
            kind::PUNCH => self.each_in_place(call, |item: PunchItem| {
                check::kind_of(&item.name, true, "punched")?;
                check::form(&item.name, &item.form)?;
                check::slab(&item.name, &item.form, &item.slab)?;
                store.punch(&item.name, &item.form, &item.slab)
            }),
            kind::DELETE => outcome(store, call, |control, _| {
                let asked: BySession<Vec<ChunkName>> = decode(control).map_err(|e| (0, e))?;
                let names = &asked.items;
                let in_place = names.iter().any(|name| matches!(name, ChunkName::Grid { .. }));
                names
                    .iter()
                    .try_for_each(check::name)
                    .and_then(|()| in_place.then(|| self.enter(&asked)).transpose())
                    .and_then(|_entered| store.delete(names))
                    .map_err(|e| (0, e))?;
                Ok(names.len() as u64)
            }),
            kind::SYNC => names(store, call, |names| store.sync(names)),
            kind::VERIFY => each(store, call, |name: ChunkName| {
                check::name(&name)?;
                store.verify(&name)
            }),
            kind::WIPE => self.each_in_place(call, |item: Wipe| match item.below {
                Some(below) => store.delete_generation(item.object, below),
                None => store.delete_grid(item.object),
            }),
            kind::SPACE => answer(call, |()| store.space()),
            kind::ALLOCATED => answer(call, |items: Vec<AllocatedItem>| {
                let look = |item: &AllocatedItem| {
                    check::name(&item.name)?;
                    check::kind_of(&item.name, true, "looked through for holes")?;
                    store.allocated(&item.name, item.from)
                };
                items.iter().map(look).collect::<Result<Vec<_>>>()
            }),
            kind::READ_ENCODED => read_encoded(store, call),
            kind::LIST => answer(call, |query: ListQuery| {
                query.after.as_ref().map_or(Ok(()), check::name)?;
                store.list(query.after, (query.limit as usize).clamp(1, MAX_LIST))
            }),
            other => call.reply.fault(&format!(
                "this is a data server, and {other:#06x} is not one of its requests: is this the right address?"
            )),
        }
    }
}

/// Replies with the stored bytes of a chunk that is encoded.
fn read_encoded(store: &dyn ChunkStore, call: Call<'_>) -> WireResult<()> {
    let found = decode::<ChunkName>(call.control).and_then(|name| {
        check::name(&name)?;
        check::kind_of(&name, false, "read as it is encoded")?;
        let found = store.read_encoded(&name)?;
        match &found {
            Some(bytes) if bytes.len() > MAX_DATA => Err(StoreError::Invalid(format!(
                "{name}: {} encoded bytes do not fit one message of {MAX_DATA}",
                bytes.len()
            ))),
            _ => Ok(found),
        }
    });
    let answer: Answer<bool> = found.as_ref().map(Option::is_some).map_err(Clone::clone);
    let bytes = found.ok().flatten().unwrap_or_default();
    call.reply(&encode(&answer)?, &[IoSlice::new(&bytes)])
}

/// Refuses a payload where none belongs, in the request's own reply format.
fn stray_payload(store: &dyn ChunkStore, call: Call<'_>) -> WireResult<()> {
    let error = StoreError::Protocol("a payload where none belongs".into());
    match call.kind {
        kind::READ => {
            let pieces = vec![Found::Failed(error)];
            call.reply(&encode(&ReadReply::before(pieces))?, &[])
        }
        kind::SPACE
        | kind::LIST
        | kind::READ_BATCH
        | kind::BLANKS
        | kind::SAME_HOST_FILES
        | kind::ALLOCATED
        | kind::READ_ENCODED => call.reply(&encode(&Answer::<()>::Err(error))?, &[]),
        _ => outcome(store, call, |_, _| Err((0, error))),
    }
}

impl Answerer {
    /// Writes pieces and batches in order until one fails.
    fn write(&self, kind: u16, control: &[u8], payload: &[u8]) -> Result<u64, Undone> {
        let asked = write::decode(kind, control).map_err(|e| (0, e))?;
        let entered = write::is_in_place(kind, &asked.items).then(|| self.enter(&asked));
        let _entered = entered.transpose().map_err(|e| (0, e))?;
        write::write(self.store.as_ref(), &asked.items, payload)
    }

    /// Applies `act` to each item in order until one fails; the items change grid chunks.
    fn each_in_place<T: DeserializeOwned>(
        &self,
        call: Call<'_>,
        mut act: impl FnMut(T) -> Result<()>,
    ) -> WireResult<()> {
        outcome(self.store.as_ref(), call, |control, _| {
            let asked: BySession<Vec<T>> = decode(control).map_err(|e| (0, e))?;
            let count = asked.items.len() as u64;
            let _entered = self.enter(&asked).map_err(|e| (0, e))?;
            for (i, item) in asked.items.into_iter().enumerate() {
                act(item).map_err(|e| (i as u64, e))?;
            }
            Ok(count)
        })
    }
}

/// Applies `act` to each item in order until one fails.
fn each<T: DeserializeOwned>(
    store: &dyn ChunkStore,
    call: Call<'_>,
    mut act: impl FnMut(T) -> Result<()>,
) -> WireResult<()> {
    outcome(store, call, |control, _| {
        let items = decode::<Vec<T>>(control).map_err(|e| (0, e))?;
        let count = items.len() as u64;
        for (i, item) in items.into_iter().enumerate() {
            act(item).map_err(|e| (i as u64, e))?;
        }
        Ok(count)
    })
}

/// Applies `act` to a list of names at once.
fn names(
    store: &dyn ChunkStore,
    call: Call<'_>,
    act: impl FnOnce(&[ChunkName]) -> Result<()>,
) -> WireResult<()> {
    outcome(store, call, |control, _| {
        let names = decode::<Vec<ChunkName>>(control).map_err(|e| (0, e))?;
        names
            .iter()
            .try_for_each(check::name)
            .and_then(|()| act(&names))
            .map_err(|e| (0, e))?;
        Ok(names.len() as u64)
    })
}

/// Replies with an [`Outcome`]: the number of items done, and the error if one failed.
pub(super) fn outcome(
    store: &dyn ChunkStore,
    call: Call<'_>,
    act: impl FnOnce(&[u8], &[u8]) -> Result<u64, Undone>,
) -> WireResult<()> {
    let (done, failed) = match act(call.control, call.payload) {
        Ok(done) => (done, None),
        Err((done, e)) => (done, Some(e)),
    };
    let outcome = Outcome {
        done,
        failed,
        verifier: store.verifier(),
    };
    call.reply(&encode(&outcome)?, &[])
}

/// Replies with a value.
fn answer<Q: DeserializeOwned, T: Serialize>(
    call: Call<'_>,
    act: impl FnOnce(Q) -> Result<T>,
) -> WireResult<()> {
    let value = decode::<Q>(call.control).and_then(act);
    call.reply(&encode(&value)?, &[])
}

pub(super) fn decode<T: DeserializeOwned>(control: &[u8]) -> Result<T> {
    match postcard::take_from_bytes(control) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(StoreError::Protocol("bytes behind the request".into())),
        Err(e) => Err(StoreError::Protocol(format!(
            "the request cannot be read: {e}"
        ))),
    }
}

pub(super) fn encode<T: Serialize>(value: &T) -> WireResult<Vec<u8>> {
    postcard::to_allocvec(value).map_err(|_| WireError::TooLarge {
        what: "control part",
        bytes: 0,
        limit: MAX_CONTROL as u64,
    })
}
