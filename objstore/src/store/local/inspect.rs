//! Describes a chunk without reading its data, for checks of metadata against chunks (`fsck`).

use super::LocalStore;
use super::file::head::Encoding;
use super::segment::Kind;
use crate::ChunkStore;
use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};

/// A chunk as its head describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The form it was stored in.
    pub form: ChunkForm,
    /// Whether it is immutable: all of it was stored. Grid chunks never are.
    pub sealed: bool,
    /// Bytes of the chunk if it is stored uncompressed; for compressed chunks only a read reveals them.
    pub raw: Option<u64>,
}

/// A store whose chunks can be checked without reading them.
pub trait Inspect: ChunkStore {
    /// Describes a chunk from its head.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is no such chunk, [`StoreError::Damaged`] if its head cannot be read or its
    /// file is shorter than the head states.
    fn describe(&self, name: &ChunkName) -> Result<Held>;
}

impl Inspect for LocalStore {
    fn describe(&self, name: &ChunkName) -> Result<Held> {
        let grid = matches!(name, ChunkName::Grid { .. });
        self.look(
            name,
            &mut |place, _| {
                let form = self.form_of(name, place)?;
                Ok(Held {
                    form,
                    sealed: !grid,
                    raw: (place.kind == Kind::Raw).then(|| place.data_len().into()),
                })
            },
            &mut |chunk| {
                let state = chunk.read_lock(0, 0);
                if state.head.sealed && state.len < state.head.content {
                    let (path, len) = (chunk.path.display(), state.len);
                    let detail = format!("{path}: {len} bytes are left of {}", state.head.content);
                    return Err(StoreError::damaged(name, detail));
                }
                let raw = state.head.sealed && state.head.encoding == Encoding::Raw;
                Ok(Held {
                    form: state.head.form.clone(),
                    sealed: state.head.sealed,
                    raw: raw.then_some(state.head.content),
                })
            },
        )
    }
}
