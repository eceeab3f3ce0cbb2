//! Free chunks: put in full, or appended and sealed; then immutable.

use std::io::IoSlice;
use std::path::Path;

use super::decode::Fetch;
use super::file::FileChunk;
use super::file::head::{Encoding, Head};
use super::index::Entry;
use super::segment::Kind;
use super::{LocalStore, SMALL, SMALL_ENCODED, pieces};
use crate::codec::coded::{Encoder, ONE_BLOCK_MAX, TAIL_LEN, Table, block_len};
use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};

pub(super) fn require_free(name: &ChunkName) -> Result<()> {
    match name {
        ChunkName::Free(_) => Ok(()),
        ChunkName::Grid { .. } => Err(StoreError::Invalid(format!(
            "{name} is written in place; put, append and seal are for free chunks"
        ))),
    }
}

pub(super) fn require_volume(name: &ChunkName, form: &ChunkForm) -> Result<u64> {
    form.volume().ok_or_else(|| {
        StoreError::Invalid(format!("{name} of shape {:?} is too large", form.shape))
    })
}

impl LocalStore {
    pub(super) fn put_free(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        require_free(name)?;
        let volume = require_volume(name, form)?;
        if pieces::len(data) != volume {
            return Err(StoreError::Invalid(format!(
                "{name} of shape {:?} has {volume} bytes, and {} were given",
                form.shape,
                pieces::len(data)
            )));
        }
        let _lock = self.lock(name);
        if self.is_resend(name, &|| self.is_same(name, form, data))? {
            return Ok(());
        }
        if form.codec.is_none() {
            return self.store_complete(name, form, Encoding::Raw, data);
        }
        let mut joined = Vec::new();
        let coded = encode(form, volume, &mut |range, push| match &pieces::part(
            data,
            range.start,
            range.end - range.start,
        )[..]
        {
            [one] => push(one),
            _ => {
                joined.resize((range.end - range.start) as usize, 0);
                pieces::copy(data, range.start, &mut joined);
                push(&joined)
            }
        })?;
        if coded.len() as u64 >= volume {
            return self.store_complete(name, form, Encoding::Raw, data);
        }
        self.store_complete(name, form, Encoding::Coded, &[IoSlice::new(&coded)])
    }

    /// Whether a put repeats an earlier one, for which `is_same` compares the content. Other content is an error.
    fn is_resend(&self, name: &ChunkName, is_same: &dyn Fn() -> Result<bool>) -> Result<bool> {
        let Some(entry) = self.entry(name) else {
            return Ok(false);
        };
        match is_same() {
            Ok(true) => Ok(true),
            Ok(false) => Err(StoreError::Invalid(format!(
                "{name} exists already, with other content"
            ))),
            // Most likely a crash interrupted the first attempt, and this is the retry. In any case, what is put is the
            // complete chunk.
            Err(StoreError::Damaged { detail, .. }) => {
                tracing::warn!("{name} is put again, as the stored one is damaged: {detail}");
                if entry == Entry::File {
                    self.index.write().remove(name);
                    self.shared.decoded.forget(name);
                    self.files.remove(name)?;
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn is_same(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<bool> {
        use crate::store::ChunkStore;
        let mut there = vec![0; pieces::len(data) as usize];
        self.read(
            name,
            form,
            &slabfs_model::Hyperslab::all(&form.shape),
            &mut there,
        )?;
        let sealed = match self.entry(name) {
            Some(Entry::File) => self.files.get(name)?.read_lock(0, 0).head.sealed,
            _ => true,
        };
        Ok(sealed && are_bytes(data, &there))
    }

    pub(super) fn put_free_encoded(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        require_free(name)?;
        let volume = require_volume(name, form)?;
        check_encoded(form, volume, data)
            .map_err(|why| StoreError::Invalid(format!("{name}: encoded bytes: {why}")))?;
        let _lock = self.lock(name);
        let is_same = || {
            let there = self.encoded(name)?;
            Ok(there.is_some_and(|there| are_bytes(data, &there)))
        };
        if self.is_resend(name, &is_same)? {
            return Ok(());
        }
        self.store_complete(name, form, Encoding::Coded, data)
    }

    /// The stored bytes of an encoded chunk.
    pub(super) fn encoded(&self, name: &ChunkName) -> Result<Option<Vec<u8>>> {
        require_free(name)?;
        self.look(
            name,
            &mut |place, bytes| Ok((place.kind == Kind::Coded).then(|| bytes.to_vec())),
            &mut |chunk| chunk.encoded(),
        )
    }

    fn store_complete(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        encoding: Encoding,
        content: &[IoSlice<'_>],
    ) -> Result<()> {
        let len = pieces::len(content);
        let limit = match encoding {
            Encoding::Raw => SMALL,
            Encoding::Coded => SMALL_ENCODED,
        };
        if len < limit {
            let kind = if encoding == Encoding::Coded {
                Kind::Coded
            } else {
                Kind::Raw
            };
            return self.store_small(name, form, kind, content);
        }
        let path = self.directory.chunk_path(name);
        let chunk = self.make_complete(&path, name, form, encoding, content)?;
        self.enter(chunk);
        Ok(())
    }

    /// Creates the file of a new chunk, which `fill` writes, and enters it into the index.
    pub(super) fn store_file(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        fill: impl FnOnce(&FileChunk) -> Result<()>,
    ) -> Result<()> {
        let path = self.directory.chunk_path(name);
        let chunk = self.make_file(&path, self.new_head(name, form), fill)?;
        self.enter(chunk);
        Ok(())
    }

    /// Creates a file, which `fill` writes; on failure, removes it.
    pub(super) fn make_file(
        &self,
        path: &Path,
        head: Head,
        fill: impl FnOnce(&FileChunk) -> Result<()>,
    ) -> Result<FileChunk> {
        let chunk = self.files.create(path, head)?;
        match fill(&chunk) {
            Ok(()) => Ok(chunk),
            Err(error) => {
                self.files.unlink(path)?;
                Err(error)
            }
        }
    }

    /// Gives a temporary file of a chunk its name, after a sync if it `must_last`; on failure, removes it.
    pub(super) fn name_file(&self, mut chunk: FileChunk, must_last: bool) -> Result<FileChunk> {
        let path = self.directory.chunk_path(&chunk.name);
        let synced = if must_last { chunk.sync() } else { Ok(()) };
        let outcome = synced.and_then(|()| {
            std::fs::rename(&chunk.path, &path)
                .map_err(|e| StoreError::from_io("rename", &chunk.path, &e))
        });
        if let Err(error) = outcome {
            self.files.unlink(&chunk.path)?;
            return Err(error);
        }
        self.directory.note_change(&path);
        chunk.path = path;
        Ok(chunk)
    }

    /// Makes a file the one of its chunk.
    pub(super) fn enter(&self, chunk: FileChunk) {
        let chunk = self.files.adopt(chunk);
        self.index.write().set(&chunk.name, Entry::File);
    }

    /// Writes the file of a sealed chunk; on failure, removes it.
    fn make_complete(
        &self,
        path: &Path,
        name: &ChunkName,
        form: &ChunkForm,
        encoding: Encoding,
        content: &[IoSlice<'_>],
    ) -> Result<FileChunk> {
        let mut head = self.new_head(name, form);
        head.encoding = encoding;
        head.sealed = true;
        head.content = pieces::len(content);
        self.make_file(path, head, |chunk| chunk.begin(content))
    }

    pub(super) fn new_head(&self, name: &ChunkName, form: &ChunkForm) -> Head {
        Head {
            name: name.clone(),
            form: form.clone(),
            sequence: self.segments.next_sequence(),
            encoding: Encoding::Raw,
            sealed: false,
            content: 0,
        }
    }

    pub(super) fn append_free(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        at: u64,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        require_free(name)?;
        let volume = require_volume(name, form)?;
        let end = at
            .checked_add(pieces::len(data))
            .filter(|end| *end <= volume)
            .ok_or_else(|| {
                StoreError::Invalid(format!(
                    "{name} of shape {:?} has {volume} bytes, and more than that were appended",
                    form.shape
                ))
            })?;
        let _lock = self.lock(name);
        match self.entry(name) {
            None if at > 0 => Err(StoreError::Missing(name.clone())),
            None => self.store_file(name, form, |chunk| chunk.begin(data)),
            Some(Entry::Small(_)) => Err(StoreError::Invalid(format!("{name} is sealed"))),
            Some(Entry::File) => {
                let chunk = self.files.get(name)?;
                let mut state = chunk.write_lock();
                if state.head.sealed {
                    return Err(StoreError::Invalid(format!("{name} is sealed")));
                }
                if at > state.len {
                    let detail = format!(
                        "{name} has {} bytes so far, and bytes {at}..{end} were appended",
                        state.len
                    );
                    return Err(StoreError::Invalid(detail));
                }
                chunk.write(&mut state, at, data)?;
                drop(state);
                self.files.note_unsynced(name);
                Ok(())
            }
        }
    }

    pub(super) fn seal_free(&self, name: &ChunkName, form: &ChunkForm) -> Result<()> {
        require_free(name)?;
        let volume = require_volume(name, form)?;
        let _lock = self.lock(name);
        match self.entry(name) {
            None => Err(StoreError::Missing(name.clone())),
            // Only sealed chunks are small.
            Some(Entry::Small(_)) => Ok(()),
            Some(Entry::File) => {
                let chunk = self.files.get(name)?;
                self.seal_file(&chunk, form, volume)
            }
        }
    }

    fn seal_file(&self, chunk: &FileChunk, form: &ChunkForm, volume: u64) -> Result<()> {
        let name = &chunk.name;
        {
            let state = chunk.read_lock(0, volume);
            if state.head.sealed {
                let same = state.head.form == *form;
                return if same {
                    Ok(())
                } else {
                    Err(StoreError::Invalid(format!(
                        "{name} is sealed with another form"
                    )))
                };
            }
            if volume > state.len {
                let detail = format!(
                    "{name} has {} bytes, and was to be sealed with {volume}",
                    state.len
                );
                return Err(StoreError::Invalid(detail));
            }
            if !form.codec.is_none() {
                let coded = encode(form, volume, &mut |range, push| {
                    chunk.fetch(&state, range, push)
                })?;
                drop(state);
                if (coded.len() as u64) < volume {
                    return self.replace_coded(chunk, form, &coded);
                }
            }
        }
        let mut state = chunk.write_lock();
        chunk.truncate(&mut state, volume)?;
        chunk.set_sealed(&mut state, form)?;
        drop(state);
        self.files.note_unsynced(name);
        Ok(())
    }

    /// Replaces the appended file by a compressed one; on failure the appended file is unchanged.
    fn replace_coded(&self, chunk: &FileChunk, form: &ChunkForm, coded: &[u8]) -> Result<()> {
        let name = &chunk.name;
        let temporary = self.directory.chunk_path(name).with_extension("tmp");
        let content = [IoSlice::new(coded)];
        let packed = self.make_complete(&temporary, name, form, Encoding::Coded, &content)?;
        // Data that was durable must stay durable.
        let packed = self.name_file(packed, chunk.is_lasting())?;
        self.files.adopt(packed);
        Ok(())
    }
}

/// Whether the slices are these bytes.
fn are_bytes(data: &[IoSlice<'_>], bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let same = data.iter().all(|piece| {
        let (head, tail) = rest.split_at(rest.len().min(piece.len()));
        rest = tail;
        head == &**piece
    });
    same && rest.is_empty()
}

/// Checks table and tail of a chunk that was encoded elsewhere.
fn check_encoded(form: &ChunkForm, volume: u64, data: &[IoSlice<'_>]) -> Result<(), String> {
    if form.codec.is_none() {
        return Err("the chunk has no codec".to_owned());
    }
    let stored = pieces::len(data);
    let last = |len: u64| {
        let at = stored.checked_sub(len).ok_or("they are too short")?;
        let mut bytes = vec![0; len as usize];
        pieces::copy(data, at, &mut bytes);
        Ok::<_, String>(bytes)
    };
    let table = Table::parse(&last(Table::needs(&last(TAIL_LEN)?)?)?, stored)?;
    if table.raw_len() != volume {
        return Err(format!(
            "they are {} bytes decoded, and its shape is {:?}",
            table.raw_len(),
            form.shape
        ));
    }
    let block = table.raw_range(0);
    match block.end - block.start > ONE_BLOCK_MAX {
        true => Err(format!("a block of more than {ONE_BLOCK_MAX} bytes")),
        false => Ok(()),
    }
}

/// Compresses a chunk, whose bytes `fetch` passes on, block by block.
fn encode(form: &ChunkForm, volume: u64, fetch: &mut Fetch<'_>) -> Result<Vec<u8>> {
    let block = block_len(&form.shape);
    let mut encoder = Encoder::new(form.codec, form.elem as usize, block);
    let mut at = 0;
    while at < volume {
        let end = volume.min(at + u64::from(block));
        fetch(at..end, &mut |raw| {
            let pushed = encoder.push(raw);
            pushed.map_err(|e| StoreError::Invalid(e.to_string()))
        })?;
        at = end;
    }
    Ok(encoder.finish())
}
