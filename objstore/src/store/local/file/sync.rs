//! Syncs a chunk's file, seals it, and settles it before it is closed.

use std::io::IoSlice;

use super::group::{BLOCK, BLOCKS, GROUP, sum_of};
use super::{FileChunk, Slot, State, page_at};
use crate::error::{Result, StoreError};
use crate::name::ChunkForm;
use crate::store::local::pieces;

impl FileChunk {
    /// Writes the head and the checksum pages to the file where they are out of date.
    pub(in crate::store::local) fn flush(&self, state: &mut State) -> Result<()> {
        let writer = state.writer(self.shared.mark);
        if state.head_dirty {
            self.write_head(state)?;
        }
        let area = state.area;
        for (g, slot) in state.groups.iter_mut().enumerate() {
            let Slot::Loaded(group) = slot else { continue };
            let is_due = group.dirty || writer == 0 && group.marked;
            if !is_due {
                continue;
            }
            let page = group.page(g as u32, writer);
            pieces::write_at(&self.file, page_at(area, g), &[IoSlice::new(&page)])
                .map_err(|(_, e)| self.write_error(&e))?;
            (group.stored, group.dirty, group.marked) = (true, false, writer != 0);
            (state.unsynced, state.started) = (true, false);
        }
        Ok(())
    }

    pub(super) fn write_head(&self, state: &mut State) -> Result<()> {
        let head = state.head.bytes();
        pieces::write_at(&self.file, 0, &[IoSlice::new(&head)])
            .map_err(|(_, e)| self.write_error(&e))?;
        state.head_dirty = false;
        state.note_unsynced();
        Ok(())
    }

    /// Makes the chunk immutable, with this form; the content has the matching length already.
    pub(in crate::store::local) fn set_sealed(
        &self,
        state: &mut State,
        form: &ChunkForm,
    ) -> Result<()> {
        let before = state.head.clone();
        state.head.form = form.clone();
        state.head.sealed = true;
        state.head.content = state.len;
        let outcome = self.flush(state).and_then(|()| self.write_head(state));
        if outcome.is_err() {
            state.head = before;
            state.head_dirty = true;
        }
        outcome
    }

    /// Syncs the present state of the file. (The directory syncs its name.)
    pub(in crate::store::local) fn sync(&self) -> Result<()> {
        self.sync_unless(|_| false)
    }

    /// As [`Self::sync`], after [`Self::start_sync`] and then a `syncfs`. What was complete before is on disk already, and
    /// an `fdatasync` would only flush the disk's cache once more: only errors are looked for.
    pub(in crate::store::local) fn sync_after_syncfs(&self) -> Result<()> {
        self.sync_unless(|state| state.started)
    }

    fn sync_unless(&self, is_on_disk: impl Fn(&State) -> bool) -> Result<()> {
        let _one_at_a_time = self.syncing.lock();
        let is_on_disk = {
            let mut state = self.state.write();
            if state.poisoned {
                return Err(self.lost());
            }
            self.flush(&mut state)?;
            if !state.unsynced {
                return Ok(());
            }
            (state.unsynced, state.lasting) = (false, true);
            is_on_disk(&state)
        };
        let synced = match is_on_disk {
            true => self.shared.check_written(&self.file, &self.path),
            false => self.shared.sync_file(&self.file, &self.path),
        };
        synced.map_err(|e| {
            let mut state = self.state.write();
            (state.unsynced, state.poisoned) = (true, true);
            StoreError::from_io("sync", &self.path, &e)
        })
    }

    fn lost(&self) -> StoreError {
        StoreError::Io {
            what: format!("sync {}", self.path.display()),
            detail: "an earlier sync failed, and the data it covered may be lost".to_owned(),
            errno: Some(libc::EIO),
        }
    }

    /// Writes the head and the checksum pages, so that a `syncfs` covers them.
    pub(in crate::store::local) fn start_sync(&self) -> Result<()> {
        let mut state = self.state.write();
        self.flush(&mut state)?;
        state.started = true;
        Ok(())
    }

    /// Prepares the file for closing: writes the checksum pages and, if everything is on disk, clears the marks and
    /// stores the content length in the head.
    pub(in crate::store::local) fn settle(&self) -> Result<()> {
        let _one_at_a_time = self.syncing.lock();
        let mut state = self.state.write();
        self.flush(&mut state)?;
        if state.unsynced || state.poisoned {
            return Ok(());
        }
        let area = state.area;
        for (g, slot) in state.groups.iter_mut().enumerate() {
            let Slot::Loaded(group) = slot else { continue };
            if group.marked {
                let page = group.page(g as u32, 0);
                pieces::write_at(&self.file, page_at(area, g), &[IoSlice::new(&page)])
                    .map_err(|(_, e)| self.write_error(&e))?;
                group.marked = false;
            }
        }
        if !state.head.sealed && state.head.content != state.len {
            state.head.content = state.len;
            self.write_head(&mut state)?;
        }
        // These writes need no sync: if a power failure restores the marks, that only costs recomputing checksums.
        state.unsynced = false;
        Ok(())
    }

    /// Detects a file that is shorter than its head states. The missing part must not read as fill, so its blocks get
    /// checksums that cannot match.
    pub(super) fn note_cut(&self, state: &mut State) {
        let (len, promised) = (state.len, state.head.content);
        if state.head.sealed || len >= promised {
            return;
        }
        tracing::error!(
            "{}: {} lost its end: {len} bytes of {promised} are left",
            self.path.display(),
            self.name
        );
        for g in len / GROUP..promised.div_ceil(GROUP) {
            self.load(state, g as usize);
            let Ok(group) = state.group_mut(g as usize) else {
                continue;
            };
            for block in 0..BLOCKS {
                let at = g * GROUP + block as u64 * BLOCK;
                if at + BLOCK > len && at < promised && !group.has(block) {
                    group.set(block, Some(!sum_of(&[])));
                }
            }
        }
        state.len = promised;
    }
}
