//! Dispatches the requests of mounts to a chunk store.

use std::io::IoSlice;
use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};

use super::epochs::{Begun, ConnectionEpochs};
use super::fence::{Entered, Fence};
use super::{batch, blank, check, puts, read, same_host};
use crate::{
    error::{Result, StoreError},
    name::ChunkName,
    store::ChunkStore,
    wire::{
        Call, Handler, Incoming, Listener, MAX_CONTROL, ServeOptions, Serving, UntilNext,
        WireError, WireResult,
        messages::{
            AllocatedItem, Answer, BatchWrites, BySession, ClipItem, Found, ListQuery, Outcome,
            PunchItem, ReadReply, SealItem, Wipe, WriteItem, WriteOp, kind,
        },
        serve_with,
    },
};

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
        let takes_payload = matches!(call.kind, kind::WRITE | kind::WRITE_BATCH);
        if !takes_payload && !call.payload.is_empty() {
            return stray_payload(call);
        }
        match call.kind {
            kind::READ => read::read(store, call),
            kind::READ_BATCH => batch::read(store, call),
            kind::WRITE => match call.taken.take().map(|taken| taken.downcast::<Outcome>()) {
                Some(Ok(outcome)) => call.reply(&encode(&*outcome)?, &[]),
                _ => outcome(call, |control, payload| self.write(control, payload)),
            },
            kind::WRITE_BATCH => outcome(call, |control, payload| {
                let asked: BySession<BatchWrites> = decode(control).map_err(|e| (0, e))?;
                let _entered = self.enter(&asked).map_err(|e| (0, e))?;
                let (puts, batches) = (&asked.items.puts, &asked.items.batches);
                let (own, rest) = payload.split_at(bytes_of(puts, payload)?);
                let done = write_each(store, puts, own)?;
                match batch::write(store, batches, rest) {
                    Ok(more) => Ok(done + more),
                    Err((at, e)) => Err((done + at, e)),
                }
            }),
            kind::BLANKS => blank::answer(store, call),
            kind::FILLED => blank::adopt(store, call),
            kind::SAME_HOST_FILES => same_host::answer(store, call),
            kind::SEAL => each(call, |item: SealItem| {
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
            kind::DELETE => outcome(call, |control, _| {
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
            kind::SYNC => names(call, |names| store.sync(names)),
            kind::VERIFY => each(call, |name: ChunkName| {
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

/// Refuses a payload where none belongs, in the request's own reply format.
fn stray_payload(call: Call<'_>) -> WireResult<()> {
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
        | kind::ALLOCATED => call.reply(&encode(&Answer::<()>::Err(error))?, &[]),
        _ => outcome(call, |_, _| Err((0, error))),
    }
}

impl Answerer {
    /// Writes pieces in order until one fails.
    fn write(&self, control: &[u8], payload: &[u8]) -> std::result::Result<u64, (u64, StoreError)> {
        let asked: BySession<Vec<WriteItem>> = decode(control).map_err(|e| (0, e))?;
        let items = &asked.items;
        let bytes = items
            .iter()
            .try_fold(0u64, |n, item| n.checked_add(item.bytes));
        if bytes != Some(payload.len() as u64) {
            return Err((
                0,
                StoreError::Protocol("pieces and payload are not equally long".into()),
            ));
        }
        let in_place = items
            .iter()
            .any(|item| matches!(item.op, WriteOp::Write(_)));
        let _entered = match in_place {
            true => Some(self.enter(&asked).map_err(|e| (0, e))?),
            false => None,
        };
        write_each(self.store.as_ref(), items, payload)
    }

    /// Applies `act` to each item in order until one fails; the items change grid chunks.
    fn each_in_place<T: DeserializeOwned>(
        &self,
        call: Call<'_>,
        mut act: impl FnMut(T) -> Result<()>,
    ) -> WireResult<()> {
        outcome(call, |control, _| {
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

/// The bytes of the complete chunks in a payload with batches; other writes are refused there.
fn bytes_of(puts: &[WriteItem], payload: &[u8]) -> std::result::Result<usize, (u64, StoreError)> {
    let refuse = |text: &str| (0, StoreError::Protocol(text.into()));
    if puts.iter().any(|item| item.op != WriteOp::Put) {
        return Err(refuse("only complete chunks may accompany batches"));
    }
    puts.iter()
        .try_fold(0u64, |n, item| n.checked_add(item.bytes))
        .and_then(|bytes| usize::try_from(bytes).ok())
        .filter(|&bytes| bytes <= payload.len())
        .ok_or_else(|| refuse("pieces and payload are not equally long"))
}

/// Writes pieces in order until one fails; the payload holds exactly their bytes.
fn write_each(
    store: &dyn ChunkStore,
    items: &[WriteItem],
    mut payload: &[u8],
) -> std::result::Result<u64, (u64, StoreError)> {
    for (i, item) in items.iter().enumerate() {
        let (data, rest) = payload.split_at(item.bytes as usize);
        payload = rest;
        write_one(store, item, data).map_err(|e| (i as u64, e))?;
    }
    Ok(items.len() as u64)
}

pub(super) fn write_one(store: &dyn ChunkStore, item: &WriteItem, data: &[u8]) -> Result<()> {
    let (name, form) = (&item.name, &item.form);
    check::form(name, form)?;
    let wrong = |text: &str| {
        Err(StoreError::Invalid(format!(
            "{name}: {} bytes {text}",
            data.len()
        )))
    };
    let slices = [IoSlice::new(data)];
    match &item.op {
        WriteOp::Put => {
            check::kind_of(name, false, "put")?;
            if form.volume() != Some(item.bytes) {
                return wrong("are not the complete chunk");
            }
            store.put(name, form, &slices)
        }
        WriteOp::Append { at } => {
            check::kind_of(name, false, "appended to")?;
            match (at.checked_add(item.bytes), form.volume()) {
                (Some(end), Some(volume)) if end <= volume => {
                    store.append(name, form, *at, &slices)
                }
                _ => wrong("go beyond the end of the chunk"),
            }
        }
        WriteOp::Write(slab) => {
            check::kind_of(name, true, "written in place")?;
            if check::slab(name, form, slab)? != item.bytes {
                return wrong("are not the cells of the slab");
            }
            store.write(name, form, slab, &slices)
        }
    }
}

/// Applies `act` to each item in order until one fails.
fn each<T: DeserializeOwned>(
    call: Call<'_>,
    mut act: impl FnMut(T) -> Result<()>,
) -> WireResult<()> {
    outcome(call, |control, _| {
        let items = decode::<Vec<T>>(control).map_err(|e| (0, e))?;
        let count = items.len() as u64;
        for (i, item) in items.into_iter().enumerate() {
            act(item).map_err(|e| (i as u64, e))?;
        }
        Ok(count)
    })
}

/// Applies `act` to a list of names at once.
fn names(call: Call<'_>, act: impl FnOnce(&[ChunkName]) -> Result<()>) -> WireResult<()> {
    outcome(call, |control, _| {
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
    call: Call<'_>,
    act: impl FnOnce(&[u8], &[u8]) -> std::result::Result<u64, (u64, StoreError)>,
) -> WireResult<()> {
    let outcome = match act(call.control, call.payload) {
        Ok(done) => Outcome { done, failed: None },
        Err((done, e)) => Outcome {
            done,
            failed: Some(e),
        },
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
