//! Answers the messages of mounts from a chunk store.

use std::fs::File;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::resource::{Resource, getrlimit};
use serde::{Serialize, de::DeserializeOwned};
use slabfs_model::SessionId;

use super::fence::{Entered, Fence};
use super::{batch, blank, check, loans};
use crate::{
    error::{Result, StoreError},
    name::ChunkName,
    store::ChunkStore,
    wire::{
        Call, Handler, Listener, MAX_CONTROL, MAX_PAYLOAD, ServeOptions, Serving, WireError,
        WireResult,
        messages::{
            Answer, BatchWrites, BySession, ClipItem, Found, ListQuery, Outcome, PunchItem,
            ReadItem, ReadReply, SealItem, Wipe, WriteItem, WriteOp, kind,
        },
        serve_with,
    },
};

/// A chunk list's page is at most this long.
const MAX_LIST: usize = 10_000;
/// From here on a read of one immutable chunk is sent from where the store has it mapped; below, the
/// copy is cheaper than the look-up of the mapping.
const SHOW_FROM: u64 = 32 << 10;

/// From here on it is sent out of its file, without a copy; below, the calls of the system cost more.
const LEND_FROM: usize = 128 << 10;

/// A running data server; stopped when dropped.
#[derive(Debug)]
pub struct DataServer {
    serving: Serving,
}

impl DataServer {
    /// Serves `store` at `listener` to whoever asks: there is no metadata service that knows of sessions.
    pub fn start(store: Arc<dyn ChunkStore>, listener: Listener) -> WireResult<DataServer> {
        DataServer::start_with(store, listener, None, ServeOptions::default())
    }

    /// The same, but only sessions that `fence` lets in change grid chunks.
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
        let serving = serve_with(listener, Arc::new(Answerer { store, fence }), options)?;
        Ok(DataServer { serving })
    }

    /// Where it listens.
    pub fn addr(&self) -> &crate::addr::Addr {
        self.serving.addr()
    }

    /// Mounts' connections at present.
    pub fn connections(&self) -> usize {
        self.serving.connections()
    }

    /// Ends requests under way, closes all connections, joins all threads.
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
}

impl Answerer {
    /// Leave for a session to change grid chunks, for as long as it is held.
    fn enter(&self, session: SessionId) -> Result<Option<Entered<'_>>> {
        self.fence
            .as_ref()
            .map(|fence| fence.enter(session))
            .transpose()
    }
}

impl Handler for Answerer {
    fn handle(&self, mut call: Call<'_>) -> WireResult<()> {
        if call.kind != kind::FILLED {
            // Files that were lent with the request before: whoever has them thought better of it.
            call.kept = None;
        }
        let store = self.store.as_ref();
        let takes_payload = matches!(call.kind, kind::WRITE | kind::WRITE_BATCH);
        if !takes_payload && !call.payload.is_empty() {
            return stray_payload(call);
        }
        match call.kind {
            kind::READ => read(store, call),
            kind::READ_BATCH => batch::read(store, call),
            kind::WRITE => outcome(call, |control, payload| self.write(control, payload)),
            kind::WRITE_BATCH => outcome(call, |control, payload| {
                let asked: BySession<BatchWrites> = decode(control).map_err(|e| (0, e))?;
                let _entered = self.enter(asked.session).map_err(|e| (0, e))?;
                let (puts, batches) = (&asked.items.puts, &asked.items.batches);
                let (own, rest) = payload.split_at(bytes_of(puts, payload)?);
                let done = write_each(store, puts, own)?;
                match batch::write(store, batches, rest) {
                    Ok(more) => Ok(done + more),
                    Err((at, e)) => Err((done + at, e)),
                }
            }),
            kind::BLANKS => blank::lend(store, call),
            kind::FILLED => blank::adopt(store, call),
            kind::LOANS => loans::answer(store, call),
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
                    .and_then(|()| in_place.then(|| self.enter(asked.session)).transpose())
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
            kind::LIST => answer(call, |query: ListQuery| {
                query.after.as_ref().map_or(Ok(()), check::name)?;
                store.list(query.after, (query.limit as usize).clamp(1, MAX_LIST))
            }),
            other => call.reply.fault(&format!(
                "a data server listens here, and {other:#06x} is not one of its requests: is this the right address?"
            )),
        }
    }
}

/// Refuses a payload where none belongs, in the form that the request's answer has.
fn stray_payload(call: Call<'_>) -> WireResult<()> {
    let error = StoreError::Protocol("a payload where none belongs".into());
    match call.kind {
        kind::READ => {
            let pieces = vec![Found::Failed(error)];
            call.reply(&encode(&ReadReply { pieces })?, &[])
        }
        kind::SPACE | kind::LIST | kind::READ_BATCH | kind::BLANKS | kind::LOANS => {
            call.reply(&encode(&Answer::<()>::Err(error))?, &[])
        }
        _ => outcome(call, |_, _| Err((0, error))),
    }
}

/// Reads pieces into the connection's buffer; large ones of immutable chunks are sent from where they lie.
fn read(store: &dyn ChunkStore, call: Call<'_>) -> WireResult<()> {
    let checked = decode::<Vec<ReadItem>>(call.control).and_then(|items| {
        let sizes = sizes(&items)?;
        Ok((items, sizes))
    });
    let (items, sizes) = match checked {
        Ok(checked) => checked,
        // The first piece stands for all of them.
        Err(e) => {
            return call.reply(
                &encode(&ReadReply {
                    pieces: vec![Found::Failed(e)],
                })?,
                &[],
            );
        }
    };
    if let ([item], &[bytes]) = (&items[..], &sizes[..])
        && bytes >= SHOW_FROM
        && matches!(item.name, ChunkName::Free(_))
    {
        return read_one(store, call, item, bytes as usize);
    }
    let Call { spare, reply, .. } = call;
    let mut at = 0;
    let mut pieces = Vec::with_capacity(items.len());
    let mut parts: Vec<Part> = Vec::new();
    let mut opened: Option<(&ChunkName, Arc<Opened>)> = None;
    let may_lend = |item: &ReadItem, bytes: u64| {
        matches!(item.name, ChunkName::Free(_)) && bytes >= LEND_FROM as u64
    };
    let copied = items.iter().zip(&sizes);
    let copied = copied.filter(|&(item, &bytes)| !may_lend(item, bytes));
    let room = copied.map(|(_, &bytes)| bytes as usize).sum();
    if spare.len() < room {
        spare.resize(room, 0);
    }
    for (item, bytes) in items.iter().zip(sizes) {
        let is_lent = may_lend(item, bytes);
        let bytes = bytes as usize;
        if is_lent {
            let known = opened.take().filter(|(name, _)| **name == item.name);
            let mut file = known.map(|(_, file)| file);
            let mut lent = None;
            // What is wrong with the chunk is found again below, and told.
            let _ = store.lend(&item.name, &item.form, &item.slab, &mut |part| {
                file = file.take().or_else(|| Opened::again(part.file));
                lent = (file.clone()).map(|file| Part::File(file, part.at, part.len));
            });
            opened = file.map(|file| (&item.name, file));
            if let Some(lent) = lent {
                parts.push(lent);
                pieces.push(Found::Yes);
                continue;
            }
        }
        if spare.len() < at + bytes {
            spare.resize(at + bytes, 0);
        }
        let out = &mut spare[at..at + bytes];
        let found = found(store.read(&item.name, &item.form, &item.slab, out));
        if found == Found::Yes {
            match parts.last_mut() {
                Some(Part::Copied(range)) => range.end += bytes,
                _ => parts.push(Part::Copied(at..at + bytes)),
            }
            at += bytes;
        }
        pieces.push(found);
    }
    let control = encode(&ReadReply { pieces })?;
    if !parts.iter().any(|part| matches!(part, Part::File(..))) {
        return reply.send(&control, &[IoSlice::new(&spare[..at])]);
    }
    let total = parts.iter().map(Part::len).sum();
    let mut outgoing = reply.begin(&control, total)?;
    parts.iter().try_for_each(|part| match part {
        Part::Copied(range) => outgoing.give(&spare[range.clone()]),
        Part::File(file, at, len) => outgoing.give_file(&file.0, *at, *len),
    })
}

/// A part of a reply.
enum Part {
    /// These bytes of the connection's buffer.
    Copied(Range<usize>),
    /// So many bytes from there in a file, which stays although the chunk may be deleted meanwhile.
    File(Arc<Opened>, u64, u64),
}

/// A chunk's file, open once more for a reply. Of all that this process may open these take a small share, so that peers
/// that do not take their replies keep it from nothing else.
#[derive(Debug)]
struct Opened(File);

static OPENED: AtomicU64 = AtomicU64::new(0);

impl Opened {
    /// Opens it, unless too many are.
    fn again(file: &File) -> Option<Arc<Opened>> {
        let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft / 16);
        if OPENED.fetch_add(1, Ordering::Relaxed) < most
            && let Ok(file) = file.try_clone()
        {
            return Some(Arc::new(Opened(file)));
        }
        OPENED.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        OPENED.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Part::Copied(range) => range.len() as u64,
            Part::File(_, _, len) => *len,
        }
    }
}

/// Sends an immutable chunk's cells from where they lie, if the store can show them.
fn read_one(
    store: &dyn ChunkStore,
    call: Call<'_>,
    item: &ReadItem,
    bytes: usize,
) -> WireResult<()> {
    let Call { spare, reply, .. } = call;
    let mut reply = Some(reply);
    let mut sent = Ok(());
    let yes = encode(&ReadReply {
        pieces: vec![Found::Yes],
    })?;
    if bytes >= LEND_FROM {
        // What is wrong with the chunk is found again below, and told.
        let _ = store.lend(&item.name, &item.form, &item.slab, &mut |part| {
            if let Some(reply) = reply.take() {
                sent = reply.send_file(&yes, part.file, part.at, part.len);
            }
        });
        if reply.is_none() {
            return sent;
        }
    }
    let shown = store.show(&item.name, &item.form, &item.slab, &mut |cells| {
        if let Some(reply) = reply.take() {
            sent = reply.send(&yes, &[IoSlice::new(cells)]);
        }
    });
    let Some(reply) = reply else { return sent };
    let result = match shown {
        Ok(_) => {
            if spare.len() < bytes {
                spare.resize(bytes, 0);
            }
            store.read(&item.name, &item.form, &item.slab, &mut spare[..bytes])
        }
        Err(e) => Err(e),
    };
    match found(result) {
        Found::Yes => reply.send(&yes, &[IoSlice::new(&spare[..bytes])]),
        other => reply.send(
            &encode(&ReadReply {
                pieces: vec![other],
            })?,
            &[],
        ),
    }
}

fn found(result: Result<()>) -> Found {
    match result {
        Ok(()) => Found::Yes,
        Err(StoreError::Missing(_)) => Found::No,
        Err(e) => Found::Failed(e),
    }
}

/// The bytes of each piece, all pieces checked.
fn sizes(items: &[ReadItem]) -> Result<Vec<u64>> {
    let mut total = 0u64;
    items
        .iter()
        .map(|item| {
            check::form(&item.name, &item.form)?;
            let bytes = check::slab(&item.name, &item.form, &item.slab)?;
            total = total.saturating_add(bytes);
            if total > MAX_PAYLOAD as u64 {
                return Err(StoreError::Invalid(format!(
                    "a read of more than {MAX_PAYLOAD} bytes in one message"
                )));
            }
            Ok(bytes)
        })
        .collect()
}

impl Answerer {
    /// Writes pieces in order, until one fails.
    fn write(&self, control: &[u8], payload: &[u8]) -> std::result::Result<u64, (u64, StoreError)> {
        let asked: BySession<Vec<WriteItem>> = decode(control).map_err(|e| (0, e))?;
        let items = asked.items;
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
            true => self.enter(asked.session).map_err(|e| (0, e))?,
            false => None,
        };
        write_each(self.store.as_ref(), &items, payload)
    }

    /// Does something to grid chunks for each item in order, until one fails.
    fn each_in_place<T: DeserializeOwned>(
        &self,
        call: Call<'_>,
        mut act: impl FnMut(T) -> Result<()>,
    ) -> WireResult<()> {
        outcome(call, |control, _| {
            let asked: BySession<Vec<T>> = decode(control).map_err(|e| (0, e))?;
            let count = asked.items.len() as u64;
            let _entered = self.enter(asked.session).map_err(|e| (0, e))?;
            for (i, item) in asked.items.into_iter().enumerate() {
                act(item).map_err(|e| (i as u64, e))?;
            }
            Ok(count)
        })
    }
}

/// How many of the bytes of a payload are those of whole chunks, which is all that goes with batches.
fn bytes_of(puts: &[WriteItem], payload: &[u8]) -> std::result::Result<usize, (u64, StoreError)> {
    let refuse = |text: &str| (0, StoreError::Protocol(text.into()));
    if puts.iter().any(|item| item.op != WriteOp::Put) {
        return Err(refuse("what goes with batches is whole chunks"));
    }
    puts.iter()
        .try_fold(0u64, |n, item| n.checked_add(item.bytes))
        .and_then(|bytes| usize::try_from(bytes).ok())
        .filter(|&bytes| bytes <= payload.len())
        .ok_or_else(|| refuse("pieces and payload are not equally long"))
}

/// Writes pieces in order, until one fails; the payload is just theirs.
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

fn write_one(store: &dyn ChunkStore, item: &WriteItem, data: &[u8]) -> Result<()> {
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
                return wrong("are not the whole chunk");
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

/// Does something for each item in order, until one fails.
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

/// Does something for a list of names as a whole.
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

/// Replies with how far something got.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_open_a_share_of_the_files_that_may_be_open() {
        let (may, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let file = tempfile::tempfile().unwrap();
        let all: Vec<_> = (0..may).map_while(|_| Opened::again(&file)).collect();
        assert!(
            !all.is_empty() && all.len() as u64 <= may / 16,
            "{}",
            all.len()
        );
        drop(all);
        assert!(Opened::again(&file).is_some());
    }
}
