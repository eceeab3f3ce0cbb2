//! What a store says of a chunk without reading its data: for a check of metadata against chunks.

use super::LocalStore;
use super::file::head::Encoding;
use super::segment::Kind;
use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};

/// A chunk as its head describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The form it was stored in.
    pub form: ChunkForm,
    /// Whether it is immutable: all of it was stored. Grid chunks never are.
    pub sealed: bool,
    /// Bytes of the chunk itself, where it is stored as it is; packed ones say only when read.
    pub raw: Option<u64>,
}

impl LocalStore {
    /// What the head of a chunk says of it.
    ///
    /// # Errors
    /// [`StoreError::Missing`] where there is no such chunk, [`StoreError::Damaged`] where its head
    /// cannot be read or its file is shorter than that promises.
    pub fn describe(&self, name: &ChunkName) -> Result<Held> {
        let grid = matches!(name, ChunkName::Grid { .. });
        self.look(
            name,
            &mut |place, _| {
                let form = self
                    .segments
                    .form(place)
                    .ok_or_else(|| StoreError::Damaged {
                        name: name.clone(),
                        detail: format!(
                            "{}: neither head nor foot can be read",
                            self.segments.describe(place)
                        ),
                    })?;
                Ok(Held {
                    form,
                    sealed: !grid,
                    raw: (place.kind == Kind::Raw).then(|| place.data_len().into()),
                })
            },
            &mut |chunk| {
                let state = chunk.read_lock(0, 0);
                if state.head.sealed && state.len < state.head.content {
                    return Err(StoreError::Damaged {
                        name: name.clone(),
                        detail: format!(
                            "{}: {} bytes are left of {}",
                            chunk.path.display(),
                            state.len,
                            state.head.content
                        ),
                    });
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
