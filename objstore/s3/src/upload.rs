//! Uploading: what a sync names, and what others wait for meanwhile, goes to the bucket in few requests.
//!
//! Large chunks become objects first, by the threads that wait for them, at the same time ([`S3Store::put_ahead`]). Then one thread at
//! a time stores a segment, which names these objects and has all else. What is uploaded stays dirty, and so in the cache, until its
//! segment is in the bucket; it is clean then if no change was made since the upload looked at it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use crc_fast::crc32_iscsi as crc32c;
use slabfs_model::{Hyperslab, layout::boxes_of_run};
use slabfs_objstore::store::SUMMED;
use slabfs_objstore::{ChunkForm, ChunkName, ChunkStore, StoreError};

use crate::bucket::Made;
use crate::cache::{Cached, Change, Kind};
use crate::index::Stored;
use crate::journal::Record;
use crate::merge::choose;
use crate::owner::now_ms;
use crate::segment::{BLOCK, Draft, Entry, Place, What, head};
use crate::store::{S3Store, State, damaged};

/// Chunks from this size on are objects of their own.
const OWN: usize = 1 << 20;
/// The payload of a segment, about.
const SEGMENT: usize = 32 << 20;
/// Segments after which the index is stored.
const INDEX_EVERY: u64 = 256;

/// The changes of a chunk that an upload has.
enum Taken {
    Free(Change),
    Blocks(BTreeMap<u64, Change>),
}

/// A large chunk that is in the bucket, and that no segment names yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ahead {
    change: Change,
    pub(crate) key: String,
    encoded: bool,
    len: u64,
    crc: u32,
}

/// The bytes of an immutable chunk as they are stored.
struct Image {
    encoded: bool,
    bytes: Vec<u8>,
    crc: u32,
}

impl S3Store {
    /// Stores the large ones of these chunks as objects, if they are complete and dirty. Other threads may do the same with other
    /// chunks at the same time.
    pub(crate) fn put_ahead(&self, names: &[ChunkName]) -> Result<(), StoreError> {
        let (mut put, mut bytes) = (Vec::new(), 0);
        for name in names {
            let Some((ahead, image)) = self.large(name)? else {
                continue;
            };
            bytes += image.len();
            put.push((name.clone(), ahead, image));
            if bytes >= SEGMENT {
                self.put_some(std::mem::take(&mut put))?;
                bytes = 0;
            }
        }
        self.put_some(put)
    }

    /// The image of a chunk that [`S3Store::put_ahead`] stores.
    fn large(&self, name: &ChunkName) -> Result<Option<(Ahead, Bytes)>, StoreError> {
        let (form, change, number) = {
            let state = self.state.lock();
            let Some(cached) = state.cache.chunks.get(name) else {
                return Ok(None);
            };
            match cached.kind {
                Kind::Free {
                    dirty: Some(change),
                    ..
                } if cached.bytes >= OWN as u64 => (cached.form.clone(), change, state.index.next),
                _ => return Ok(None),
            }
        };
        let known = self.ahead.lock().get(name).map(|ahead| ahead.change);
        if known == Some(change) {
            return Ok(None);
        }
        let image = self.image(name, &form)?;
        let ahead = Ahead {
            change,
            key: self.own_key(name, number, change),
            encoded: image.encoded,
            len: image.bytes.len() as u64,
            crc: image.crc,
        };
        Ok((image.bytes.len() >= OWN).then(|| (ahead, Bytes::from(image.bytes))))
    }

    fn put_some(&self, put: Vec<(ChunkName, Ahead, Bytes)>) -> Result<(), StoreError> {
        let objects = put
            .iter()
            .map(|(_, ahead, bytes)| (ahead.key.clone(), bytes.clone()));
        let done = self.bucket.create_all(objects.collect());
        for (name, ahead, _) in put {
            let state = self.state.lock();
            let cached = state.cache.chunks.get(&name).map(|cached| &cached.kind);
            let is_dirty =
                matches!(cached, Some(Kind::Free { dirty, .. }) if *dirty == Some(ahead.change));
            match is_dirty && done.is_ok() {
                true => {
                    self.ahead.lock().insert(name, ahead);
                }
                // It may be there, another upload has stored the chunk, or it was deleted.
                false => self.tried.lock().push(ahead.key),
            }
        }
        done
    }

    /// The key of a chunk's own object, while `number` is the number of the next segment. Changes are numbered by each process and
    /// segments across processes, so a chunk that is deleted and stored again is another object.
    fn own_key(&self, name: &ChunkName, number: u64, change: Change) -> String {
        format!("{}/chunks/{}.{number:x}.{change:x}", self.id, key_of(name))
    }

    /// Uploads what is dirty of these chunks, and the deletions so far.
    pub(crate) fn upload(&self, names: &BTreeSet<ChunkName>) -> Result<(), StoreError> {
        // The next upload takes what all waiting syncs name; these find it done, or try themselves.
        self.wanted.lock().extend(names.iter().cloned());
        let mut uploading = self.uploading.lock();
        self.check()?;
        let mut all = std::mem::take(&mut *self.wanted.lock());
        all.extend(names.iter().cloned());
        let mut rest: Vec<ChunkName> = {
            let state = self.state.lock();
            let dirty = |name: &&ChunkName| {
                let cached = state.cache.chunks.get(*name);
                cached.is_some_and(Cached::is_dirty)
            };
            all.iter().filter(dirty).cloned().collect()
        };
        let mut failed = Vec::new();
        loop {
            let deleted = std::mem::take(&mut self.state.lock().deleted);
            if rest.is_empty() && deleted.is_empty() {
                // Those who wait for others try these themselves.
                let own = failed.into_iter().find(|(name, _)| names.contains(name));
                return own.map_or(Ok(()), |(_, error)| Err(error));
            }
            let mut taken = Vec::new();
            let (draft, own) = self.build(&mut rest, &mut taken, &deleted, &mut failed);
            let mut tried = Vec::new();
            tried.extend(own.iter().map(|(key, _)| key.clone()));
            // The segment names them, so they come first.
            let created = self.bucket.create_all(own);
            let stored = created.and_then(|()| self.store_segment(draft));
            if let Err(error) = stored {
                // They may be there, and their chunks may be deleted before the next attempt.
                self.tried.lock().extend(tried);
                let mut state = self.state.lock();
                for (name, own) in deleted {
                    state.deleted.entry(name).or_default().extend(own);
                }
                return Err(error);
            }
            for (name, taken) in taken {
                // No change of it is under way, so the record is right.
                let _stripe = self.stripe(&name).read();
                let stored = {
                    let mut state = self.state.lock();
                    let cached = state.cache.chunks.get_mut(&name);
                    cached.and_then(|cached| cached.note_uploaded(&taken))
                };
                // What was put ahead is named now, or the chunk has another object.
                if let Some(ahead) = self.ahead.lock().remove(&name) {
                    self.tried.lock().push(ahead.key);
                }
                if let Some(blocks) = stored {
                    self.journal.note(&Record::Stored { name, blocks });
                }
            }
            self.garbage.lock().extend(deleted.into_values().flatten());
            *uploading += 1;
            if uploading.is_multiple_of(INDEX_EVERY)
                && let Err(error) = self.store_index()
            {
                tracing::warn!("the index is stored later: {error}");
            }
        }
    }

    /// Fills a segment from the front of `names`, which are removed. Chunks whose bytes cannot be read are in `failed` then.
    fn build(
        &self,
        names: &mut Vec<ChunkName>,
        taken: &mut Vec<(ChunkName, Taken)>,
        deleted: &BTreeMap<ChunkName, Vec<String>>,
        failed: &mut Vec<(ChunkName, StoreError)>,
    ) -> (Draft, Vec<(String, Bytes)>) {
        // A chunk that is deleted and stored again is another object.
        let number = self.state.lock().index.next;
        let mut draft = Draft::default();
        let (mut own, mut own_bytes) = (Vec::new(), 0);
        for name in deleted.keys() {
            draft.entries.push(Entry {
                name: name.clone(),
                what: What::Deleted,
            });
        }
        while draft.bytes() + own_bytes < SEGMENT {
            let Some(name) = names.pop() else { break };
            let (form, took) = {
                let state = self.state.lock();
                let Some(cached) = state.cache.chunks.get(&name) else {
                    continue;
                };
                let took = match &cached.kind {
                    // A stream that is not sealed is of no object yet.
                    Kind::Free { sealed: false, .. } | Kind::Free { dirty: None, .. } => continue,
                    Kind::Free {
                        dirty: Some(change),
                        ..
                    } => Taken::Free(*change),
                    Kind::Grid { dirty, .. } if dirty.is_empty() => continue,
                    Kind::Grid { dirty, .. } => Taken::Blocks(dirty.clone()),
                };
                (cached.form.clone(), took)
            };
            let before = own.len();
            match self.packed(&name, form, &took, number, (&mut draft, &mut own)) {
                Ok(what) => {
                    own_bytes += own[before..]
                        .iter()
                        .map(|(_, bytes)| bytes.len())
                        .sum::<usize>();
                    taken.push((name.clone(), took));
                    draft.entries.push(Entry { name, what });
                }
                Err(error) => {
                    tracing::error!("{name} cannot be stored: {error}");
                    failed.push((name, error));
                }
            }
        }
        (draft, own)
    }

    /// Puts the bytes of a chunk into a segment, or makes them an object.
    fn packed(
        &self,
        name: &ChunkName,
        form: ChunkForm,
        took: &Taken,
        number: u64,
        (draft, own): (&mut Draft, &mut Vec<(String, Bytes)>),
    ) -> Result<What, StoreError> {
        let change = match took {
            Taken::Blocks(blocks) => {
                let mut parts = Vec::new();
                for &block in blocks.keys() {
                    let bytes = self.block(name, &form, block)?;
                    let part = (!bytes.is_empty()).then(|| draft.push(&bytes));
                    parts.push((block, part));
                }
                return Ok(What::Blocks {
                    form,
                    blocks: parts,
                });
            }
            Taken::Free(change) => *change,
        };
        let ahead = self.ahead.lock().get(name).cloned();
        if let Some(ahead) = ahead.filter(|ahead| ahead.change == change) {
            return Ok(What::Chunk {
                form,
                encoded: ahead.encoded,
                place: Place::Object {
                    key: ahead.key,
                    len: ahead.len,
                    crc: ahead.crc,
                },
            });
        }
        let Image {
            encoded,
            bytes,
            crc,
        } = self.image(name, &form)?;
        let place = if bytes.len() < OWN {
            Place::Here(draft.push(&bytes))
        } else {
            let key = self.own_key(name, number, change);
            let len = bytes.len() as u64;
            own.push((key.clone(), Bytes::from(bytes)));
            Place::Object { key, len, crc }
        };
        Ok(What::Chunk {
            form,
            encoded,
            place,
        })
    }

    /// The bytes of an immutable chunk as they are stored.
    fn image(&self, name: &ChunkName, form: &ChunkForm) -> Result<Image, StoreError> {
        let image = |encoded, bytes: Vec<u8>| Image {
            encoded,
            crc: crc32c(&bytes),
            bytes,
        };
        if let Some(bytes) = self.local.read_encoded(name)? {
            return Ok(image(true, bytes));
        }
        let all = Hyperslab::from_region(&slabfs_model::Region::all(&form.shape));
        // Out of its file, whose checksums are known; or out of a segment of the cache.
        let mut of_file = None;
        self.local.file_part(name, form, &all, &mut |part| {
            let mut bytes = vec![0; part.len as usize];
            let read = part.file.read_exact_at(&mut bytes, part.at);
            // What fails here is read below, with the error.
            if let (Ok(()), Ok(crc)) = (read, (part.sum)()) {
                of_file = Some(Image {
                    encoded: false,
                    bytes,
                    crc,
                });
            }
        })?;
        if let Some(image) = of_file {
            return Ok(image);
        }
        let mut bytes = Vec::new();
        let shown = self.local.show(name, form, &all, &mut |cells| {
            bytes.extend_from_slice(cells);
        })?;
        if !shown {
            bytes = vec![0; form.volume().unwrap_or(0) as usize];
            self.local.read(name, form, &all, &mut bytes)?;
        }
        Ok(image(false, bytes))
    }

    /// The bytes of a block of a grid chunk, without the fill at its end.
    pub(crate) fn block(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        block: u64,
    ) -> Result<Vec<u8>, StoreError> {
        let mut bytes = match self.run(name, form, block * BLOCK, BLOCK) {
            Err(error @ StoreError::Damaged { .. }) => {
                self.repaired(name, form, block)?.ok_or(error)?
            }
            read => read?,
        };
        if form.fill.is_zero() {
            let used = bytes.iter().rposition(|&byte| byte != 0);
            bytes.truncate(used.map_or(0, |last| last + 1));
        }
        Ok(bytes)
    }

    /// A run of bytes of a grid chunk, in the cache's files.
    fn run(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        at: u64,
        len: u64,
    ) -> Result<Vec<u8>, StoreError> {
        let mut boxes = Vec::new();
        boxes_of_run(&form.shape, at, len, &mut boxes);
        let mut bytes = Vec::new();
        for region in boxes {
            let from = bytes.len();
            bytes.resize(from + region.volume() as usize, 0);
            let slab = Hyperslab::from_region(&region);
            self.local.read(name, form, &slab, &mut bytes[from..])?;
        }
        Ok(bytes)
    }

    /// The bytes of a block of which parts are damaged in the cache. Such a part was not changed since the block was stored, or its checksum
    /// would be right, so the bucket has it. `None` if it does not have the block.
    fn repaired(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        block: u64,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let span = match self.state.lock().index.chunks.get(name) {
            Some(Stored::Grid { blocks, .. }) => blocks.get(&block).cloned(),
            _ => None,
        };
        let Some(span) = span else { return Ok(None) };
        let stored = self.fetch(name, &span)?;
        let mut bytes = Vec::new();
        for at in (0..BLOCK).step_by(SUMMED as usize) {
            match self.run(name, form, block * BLOCK + at, SUMMED) {
                Ok(read) => bytes.extend_from_slice(&read),
                Err(StoreError::Damaged { detail, .. }) => {
                    tracing::warn!("{name}: {detail}; the bucket has it undamaged");
                    let from = (at as usize).min(stored.len());
                    let to = ((at + SUMMED) as usize).min(stored.len());
                    bytes.extend_from_slice(&stored[from..to]);
                    bytes.resize((at + SUMMED) as usize, 0);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(bytes))
    }

    /// Creates the next segment. Fails for good if another process has.
    fn store_segment(&self, draft: Draft) -> Result<(), StoreError> {
        loop {
            let number = self.state.lock().index.next;
            let bytes = draft.finish(number, self.writer)?;
            let key = self.segment_key(number);
            let own = head(&bytes, number).map_err(|why| damaged(&key, why))?;
            let begun = now_ms();
            if self.bucket.create(&key, Bytes::from(bytes))? == Made::Exists {
                // An attempt of this process may have created it, whose answer was lost.
                let (theirs, entries) = self.read_table(number)?;
                if theirs.writer != self.writer {
                    return Err(self.replaced());
                }
                if theirs != own {
                    // An earlier one, with something else: it is as good as any.
                    self.note_owned(begun);
                    self.adopt(number, theirs.payload, entries);
                    continue;
                }
            }
            self.note_owned(begun);
            let gone = {
                let mut state = self.state.lock();
                state.index.apply(number, own.payload, draft.entries)
            };
            self.garbage.lock().extend(gone);
            return Ok(());
        }
    }

    /// Takes over what a segment of this process says whose creation was not answered.
    fn adopt(&self, number: u64, payload: u64, entries: Vec<Entry>) {
        let mut state = self.state.lock();
        let gone = state.index.apply(number, payload, entries);
        // What was deleted meanwhile stays so.
        let State { index, deleted, .. } = &mut *state;
        for (name, own) in deleted {
            if let Some(stored) = index.remove(name) {
                own.extend(stored.own_objects());
            }
        }
        drop(state);
        self.garbage.lock().extend(gone);
    }

    /// Stores the index, and deletes what it does not need: older ones, segments and objects without chunks. The caller
    /// uploads nothing else meanwhile.
    ///
    /// First a segment names the deletions so far. It shows that this process is not replaced, and that its index is what
    /// the segments say: a successor, which has read them, needs nothing of what is deleted here.
    pub(crate) fn store_index(&self) -> Result<(), StoreError> {
        let deleted = std::mem::take(&mut self.state.lock().deleted);
        let mut draft = Draft::default();
        draft.entries.extend(deleted.keys().map(|name| Entry {
            name: name.clone(),
            what: What::Deleted,
        }));
        if let Err(error) = self.store_segment(draft) {
            let mut state = self.state.lock();
            for (name, own) in deleted {
                state.deleted.entry(name).or_default().extend(own);
            }
            return Err(error);
        }
        self.garbage.lock().extend(deleted.into_values().flatten());
        let (number, bytes, used) = {
            let state = self.state.lock();
            let bytes = postcard::to_stdvec(&state.index);
            let bytes = bytes.map_err(|error| {
                StoreError::Invalid(format!("cannot encode the index: {error}"))
            })?;
            (state.index.next, bytes, state.index.used())
        };
        let mut summed = crc32c(&bytes).to_le_bytes().to_vec();
        summed.extend_from_slice(&bytes);
        let key = self.index_key(number);
        self.bucket.create(&key, Bytes::from(summed))?;
        let mut garbage = std::mem::take(&mut *self.garbage.lock());
        let tried = std::mem::take(&mut *self.tried.lock());
        if !tried.is_empty() {
            let state = self.state.lock();
            let chunks = state.index.chunks.values();
            let used: BTreeSet<String> = chunks.flat_map(Stored::own_objects).collect();
            let dirty: BTreeSet<String> = state.cache.dirty().map(key_of).collect();
            for key in tried {
                let chunk = key
                    .rsplit('/')
                    .next()
                    .and_then(|name| name.split('.').next());
                if used.contains(&key) {
                    continue;
                }
                match chunk.is_some_and(|chunk| dirty.contains(chunk)) {
                    // It is tried again.
                    true => self.tried.lock().push(key),
                    false => garbage.push(key),
                }
            }
        }
        self.bucket.delete_all(&garbage)?;
        let numbered = |folder: &str| -> Result<Vec<(u64, u64)>, StoreError> {
            let names = self.bucket.list_sizes(&format!("{}/{folder}", self.id))?;
            let number = |(name, size): &(String, u64)| {
                let number = u64::from_str_radix(name, 16).ok()?;
                Some((number, *size))
            };
            Ok(names.iter().filter_map(number).collect())
        };
        let mut segments = numbered("segments")?;
        segments.retain(|(segment, _)| *segment < number);
        let handovers = self.state.lock().index.handovers.clone();
        let dead = segments
            .iter()
            .filter(|(segment, _)| !used.contains_key(segment) && !handovers.contains(segment))
            .map(|(segment, _)| self.segment_key(*segment));
        self.bucket.delete_all(&dead.collect::<Vec<_>>())?;
        *self.to_merge.lock() = choose(&segments, &used);
        for folder in ["index", "closed"] {
            let older = numbered(folder)?
                .into_iter()
                .filter(|(older, _)| *older < number)
                .map(|(older, _)| format!("{}/{folder}/{older:016x}", self.id));
            self.bucket.delete_all(&older.collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

impl Cached {
    /// Clears the marks of what was uploaded and has not changed since; returns that: of a grid chunk its blocks.
    fn note_uploaded(&mut self, taken: &Taken) -> Option<BTreeSet<u64>> {
        match (&mut self.kind, taken) {
            (Kind::Free { dirty, .. }, Taken::Free(change)) if *dirty == Some(*change) => {
                *dirty = None;
                Some(BTreeSet::new())
            }
            (Kind::Grid { dirty, synced, .. }, Taken::Blocks(blocks)) => {
                let clean = |(block, change): &(&u64, &Change)| dirty.get(*block) == Some(change);
                let clean: BTreeSet<u64> = blocks
                    .iter()
                    .filter(clean)
                    .map(|(block, _)| *block)
                    .collect();
                dirty.retain(|block, _| !clean.contains(block));
                synced.retain(|block| !clean.contains(block));
                (!clean.is_empty()).then_some(clean)
            }
            _ => None,
        }
    }
}

/// A chunk's name in a key.
fn key_of(name: &ChunkName) -> String {
    match name {
        ChunkName::Free(id) => format!("{:016x}", id.0),
        ChunkName::Grid { .. } => String::new(),
    }
}
