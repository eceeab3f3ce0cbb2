//! Grid chunks: written in place; stored as records while small, as files once they are large.

use std::fs;
use std::io::IoSlice;

use slabfs_model::Hyperslab;

use super::index::Entry;
use super::large::{clip_boxes, clip_rows};
use super::segment::{Kind, Place};
use super::small::{cleared, written};
use super::{LocalStore, SMALL, pieces};
use crate::error::{Result, StoreError};
use crate::fill::paint;
use crate::name::{ChunkForm, ChunkName};
use crate::store::Patches;
use crate::store::extent::Extent;

fn require_grid(name: &ChunkName) -> Result<()> {
    match name {
        ChunkName::Grid { .. } => Ok(()),
        ChunkName::Free(_) => Err(StoreError::Invalid(format!(
            "{name} is immutable; write, clip and punch are for grid chunks"
        ))),
    }
}

impl LocalStore {
    pub(super) fn write_grid(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        require_grid(name)?;
        let extent = Extent::new(form, slab)?;
        extent.check_len(pieces::len(data))?;
        if extent.volume == 0 {
            return Ok(());
        }
        let _lock = self.lock(name);
        match self.entry(name) {
            None if extent.end < SMALL => self.write_small(name, form, None, &extent, data),
            None => self.store_file(name, form, |chunk| chunk.write_slab(form, &extent, data)),
            Some(Entry::Small(place)) if extent.end < SMALL => {
                self.write_small(name, form, Some(place), &extent, data)
            }
            Some(Entry::Small(place)) => {
                self.move_to_file(name, form, &place)?;
                self.write_file(name, form, &extent, data)
            }
            Some(Entry::File) => self.write_file(name, form, &extent, data),
        }
    }

    fn write_small(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        old: Option<Place>,
        extent: &Extent<'_>,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        let len = old.map_or(0, |place| u64::from(place.data_len()));
        if extent.single() == Some((0, extent.end)) && extent.end >= len {
            return self.store_small(name, form, Kind::Grid, data);
        }
        let bytes = match old {
            None => written(form, &[], extent, data)?,
            Some(place) => {
                self.with_record(name, &place, |old| written(form, old, extent, data))?
            }
        };
        self.store_small(name, form, Kind::Grid, &[IoSlice::new(&bytes)])
    }

    fn write_file(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        extent: &Extent<'_>,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        let chunk = self.files.get(name)?;
        let outcome = chunk.write_slab(form, extent, data);
        self.files.note_unsynced(name);
        outcome
    }

    pub(super) fn patch_grid(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        end: u64,
        patches: &mut dyn Patches,
    ) -> Result<()> {
        require_grid(name)?;
        if end == 0 {
            return Ok(());
        }
        if end >= i64::MAX as u64 / 2 {
            return Err(StoreError::Invalid(format!(
                "{name}: a range beyond 2^62 bytes"
            )));
        }
        let _lock = self.lock(name);
        match self.entry(name) {
            None if end < SMALL => self.patch_small(name, form, None, end, patches),
            Some(Entry::Small(place)) if end < SMALL => {
                self.patch_small(name, form, Some(place), end, patches)
            }
            None => self.store_file(name, form, |chunk| chunk.patch(form, patches)),
            Some(entry) => {
                if let Entry::Small(place) = entry {
                    self.move_to_file(name, form, &place)?;
                }
                let chunk = self.files.get(name)?;
                let outcome = chunk.patch(form, patches);
                self.files.note_unsynced(name);
                outcome
            }
        }
    }

    fn patch_small(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        old: Option<Place>,
        end: u64,
        patches: &mut dyn Patches,
    ) -> Result<()> {
        let mut bytes = match old {
            None => Vec::new(),
            Some(place) => self.with_record(name, &place, |bytes| Ok(bytes.to_vec()))?,
        };
        let had = bytes.len();
        if (had as u64) < end {
            bytes.resize(end as usize, 0);
            paint(form, had as u64, &mut bytes[had..]);
        }
        while let Some(patch) = patches.next() {
            let place = bytes.get_mut(patch.from as usize..patch.to as usize);
            let place = place.ok_or_else(|| {
                StoreError::Invalid(format!("{name}: a range beyond the declared end"))
            })?;
            patches.apply(place);
        }
        self.store_small(name, form, Kind::Grid, &[IoSlice::new(&bytes)])
    }

    /// Moves a small chunk to a file. If the chunk was durable, the file is on disk before the records are deleted.
    fn move_to_file(&self, name: &ChunkName, form: &ChunkForm, place: &Place) -> Result<()> {
        let temporary = self.directory.chunk_path(name).with_extension("tmp");
        let must_last = self.has_durable_past(name, place);
        let chunk = self.make_file(&temporary, self.new_head(name, form), |chunk| {
            self.with_record(name, place, |bytes| chunk.begin(&[IoSlice::new(bytes)]))
        })?;
        let chunk = self.name_file(chunk, must_last)?;
        if must_last {
            self.directory.sync(&self.shared, [&*chunk.path], false)?;
        }
        self.enter(chunk);
        self.retire_for_file(name, place)
    }

    pub(super) fn clip_grid(&self, name: &ChunkName, form: &ChunkForm, keep: &[u64]) -> Result<()> {
        require_grid(name)?;
        if keep.len() != form.shape.len() {
            let detail = format!(
                "{name} has {} axes, and {} were given to keep",
                form.shape.len(),
                keep.len()
            );
            return Err(StoreError::Invalid(detail));
        }
        self.change(
            name,
            &|bytes| {
                bytes.truncate(clip_rows(form, keep).min(bytes.len() as u64) as usize);
                let boxes = clip_boxes(form, keep, bytes.len() as u64);
                boxes
                    .iter()
                    .try_for_each(|slab| cleared(form, bytes, &Extent::new(form, slab)?))
            },
            &|chunk| chunk.clip_to(form, keep),
            form,
        )
    }

    pub(super) fn punch_grid(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
    ) -> Result<()> {
        require_grid(name)?;
        let extent = Extent::new(form, slab)?;
        self.change(
            name,
            &|bytes| cleared(form, bytes, &extent),
            &|chunk| chunk.punch_slab(form, &extent),
            form,
        )
    }

    /// Changes an existing chunk, small or large; a missing one stays missing.
    fn change(
        &self,
        name: &ChunkName,
        small: &dyn Fn(&mut Vec<u8>) -> Result<()>,
        large: &dyn Fn(&super::file::FileChunk) -> Result<()>,
        form: &ChunkForm,
    ) -> Result<()> {
        let _lock = self.lock(name);
        match self.entry(name) {
            None => Ok(()),
            Some(Entry::Small(place)) => {
                let mut bytes = self.with_record(name, &place, |bytes| Ok(bytes.to_vec()))?;
                let before = bytes.clone();
                small(&mut bytes)?;
                if bytes == before {
                    return Ok(());
                }
                self.store_small(name, form, Kind::Grid, &[IoSlice::new(&bytes)])
            }
            Some(Entry::File) => {
                let chunk = self.files.get(name)?;
                let outcome = large(&chunk);
                self.files.note_unsynced(name);
                outcome
            }
        }
    }

    /// The disk space of a chunk's file; `None` if there is no file.
    pub(super) fn taken(&self, name: &ChunkName) -> Result<Option<u64>> {
        use std::os::unix::fs::MetadataExt;
        let path = self.directory.chunk_path(name);
        match fs::metadata(&path) {
            Ok(meta) => Ok(Some(meta.blocks() * 512)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && self.entry(name).is_none() => {
                Ok(None)
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Some(0)),
            Err(e) => Err(StoreError::from_io("stat", &path, &e)),
        }
    }
}
