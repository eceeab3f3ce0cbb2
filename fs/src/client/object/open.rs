//! Opening and closing: one `Object` for all handles of an object, as long as it is in use.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slabfs_mdserver::api::{Birth, CREATOR_RESERVE, Create, Created, Entry, Ino, op};
use slabfs_model::Selection;

use crate::client::commit::Unsynced;
use crate::client::error::FsError;
use crate::client::handle::writer::HandleId;
use crate::client::handle::{Handle, OpenMode, Selected};
use crate::client::object::geometry::Geometry;
use crate::client::object::{Object, State};
use crate::client::{Client, Settling};

/// Number of closed objects that are reported together to a metadata service in this process; the rest are reported
/// some moments later, like all to a service in another process.
const RELEASES: usize = 64;

/// The last closes of objects. Between the reply to an open and its arrival here the object may be closed by its other
/// users, who have committed meanwhile: the form in the reply is older than that commit then.
#[derive(Debug, Default)]
pub(in crate::client) struct Closes {
    /// Closes so far.
    count: u64,
    /// The objects of the last ones, the newest at the end.
    last: VecDeque<Ino>,
}

/// Closes that are remembered.
const CLOSES: usize = 64;

impl Closes {
    fn add(&mut self, ino: Ino) {
        self.count += 1;
        if self.last.len() == CLOSES {
            self.last.pop_front();
        }
        self.last.push_back(ino);
    }

    /// Whether the object of a reply may have been closed since so many closes.
    fn may_have_changed(&self, object: Ino, closes: u64) -> bool {
        let since = (self.count - closes) as usize;
        since > self.last.len() || self.last.iter().rev().take(since).any(|ino| *ino == object)
    }
}

/// An object that is held open without a handle.
pub(in crate::client) struct Borrowed {
    client: Arc<Client>,
    object: Arc<Object>,
}

impl std::ops::Deref for Borrowed {
    type Target = Object;
    fn deref(&self) -> &Object {
        &self.object
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.client.closed(&self.object);
    }
}

impl Client {
    /// Opens an object, or a selection of it.
    ///
    /// # Errors
    /// `Invalid` for a selection that does not fit the object, for an inode without data, or for
    /// appending to a selection.
    pub fn open(
        self: &Arc<Self>,
        ino: Ino,
        mode: OpenMode,
        selection: Option<&Selection>,
    ) -> Result<Arc<Handle>, FsError> {
        let handle = {
            let _attached = self.attached.read_recursive();
            let closes = self.closes.lock().count;
            let entry = self.md.call(op::Open { ino })?;
            let object = self.opened(&entry, closes)?;
            self.handle(object, mode, selection)?
        };
        self.ready(handle)
    }

    /// Before a new handle may be used, the kernel's read-only pages, which it could modify without warning, are
    /// dropped.
    fn ready(&self, handle: Arc<Handle>) -> Result<Arc<Handle>, FsError> {
        self.await_drops(&handle.object);
        if handle.writable {
            self.ready_for_writer(&handle.object);
        }
        Ok(handle)
    }

    /// Creates an object and opens it, in one request.
    ///
    /// # Errors
    /// Those of the metadata service.
    pub fn create(
        self: &Arc<Self>,
        create: Create,
        mode: OpenMode,
    ) -> Result<(Created, Arc<Handle>), FsError> {
        debug_assert!(create.open);
        let (made, handle) = {
            let _attached = self.attached.read_recursive();
            let closes = self.closes.lock().count;
            let made = self.md.call(create)?;
            let object = self.opened(&made.entry, closes)?;
            if made.created {
                object.reserved.store(CREATOR_RESERVE, Ordering::Release);
            }
            let handle = self.handle(object, mode, None)?;
            (made, handle)
        };
        Ok((made, self.ready(handle)?))
    }

    /// Has an object whose name is in another shard created here, unless it is, and opens it; `None` if it was removed since.
    ///
    /// # Errors
    /// Those of the metadata service.
    pub(crate) fn adopt_open(
        self: &Arc<Self>,
        birth: &Birth,
        mode: OpenMode,
    ) -> Result<Option<Arc<Handle>>, FsError> {
        let handle = {
            let _attached = self.attached.read_recursive();
            let adopt = op::Adopt {
                births: vec![birth.clone()],
                open: true,
            };
            let closes = self.closes.lock().count;
            let Some(entry) = self.md.call(adopt)?.pop() else {
                return Ok(None);
            };
            let object = self.opened(&entry, closes)?;
            self.handle(object, mode, None)?
        };
        self.ready(handle).map(Some)
    }

    fn handle(
        self: &Arc<Self>,
        object: Arc<Object>,
        mode: OpenMode,
        selection: Option<&Selection>,
    ) -> Result<Arc<Handle>, FsError> {
        let selected = match selection {
            None => Ok(None),
            Some(_) if mode.append => Err(FsError::Invalid(
                "a selection has a fixed size: nothing can be appended to it".into(),
            )),
            Some(selection) => self.resolve(&object, selection).map(Some),
        };
        let selected = match selected {
            Ok(selected) => selected,
            Err(error) => {
                self.closed(&object);
                return Err(error);
            }
        };
        let id = HandleId(self.next_handle.fetch_add(1, Ordering::Relaxed));
        let handle = Arc::new(Handle::new(
            self.clone(),
            object.clone(),
            id,
            mode,
            selected,
        ));
        {
            let mut state = object.state.lock();
            state.handles.retain(|waiting| waiting.strong_count() > 0);
            state.handles.push(Arc::downgrade(&handle.waiting));
        }
        if object.coupled.any() {
            handle.counted.store(true, Ordering::Release);
            if let Err(error) = self.coupled_opened(&handle) {
                self.coupled_closed(&handle);
                self.closed(&object);
                return Err(error);
            }
        }
        Ok(handle)
    }

    /// Resolves a selection of an object, at its size with unflushed data of other mounts.
    fn resolve(&self, object: &Object, selection: &Selection) -> Result<Selected, FsError> {
        if self.shared() {
            let entry = self.with_unflushed(self.md().stat(object.ino, false)?);
            let geometry = Geometry::new(&entry)?;
            return Selected::new(selection, &geometry, geometry.size());
        }
        let geometry = object.geometry.read();
        Selected::new(selection, &geometry, object.size(&geometry))
    }

    /// The shared `Object` of an inode that the metadata service has just counted as opened, by a request that was sent
    /// after so many closes.
    fn opened(self: &Arc<Self>, entry: &Entry, closes: u64) -> Result<Arc<Object>, FsError> {
        let ino = entry.attr.ino;
        let found = {
            let mut objects = self.objects.lock();
            match objects.get(&ino) {
                Some(object) => {
                    object.state.lock().opens += 1;
                    Some(object.clone())
                }
                None => {
                    let own = self.rights.own(ino);
                    let object = match Object::new(entry, own.clone(), self.tilings.of(ino)) {
                        Ok(object) => Arc::new(object),
                        Err(error) => {
                            self.rights.disown(&own);
                            drop(objects);
                            self.releases.lock().push(ino);
                            return Err(error);
                        }
                    };
                    object.state.lock().opens = 1;
                    own.belongs_to(&object);
                    if self.closes.lock().may_have_changed(ino, closes) {
                        own.outdate();
                    }
                    objects.insert(ino, object.clone());
                    return Ok(object);
                }
            }
        };
        let Some(object) = found else {
            return Err(FsError::Invalid("no object".into()));
        };
        if entry.attr.change > object.geometry.read().attr.change {
            let mut geometry = object.geometry.write();
            if let Err(error) = self.adopt(&object, &mut geometry, entry) {
                drop(geometry);
                self.closed(&object);
                return Err(error);
            }
        }
        Ok(object)
    }

    /// Holds an object open for a request that has no handle.
    pub(in crate::client) fn borrow(self: &Arc<Self>, ino: Ino) -> Result<Borrowed, FsError> {
        let _attached = self.attached.read_recursive();
        let closes = self.closes.lock().count;
        let entry = self.md.call(op::Open { ino })?;
        Ok(Borrowed {
            object: self.opened(&entry, closes)?,
            client: self.clone(),
        })
    }

    /// Holds an object open that this mount has open already. The kernel reports a last close late: without this, an
    /// object could be closed in the middle of an operation on it, and the metadata service would take it for
    /// completely stored.
    pub(in crate::client) fn keep_open(self: &Arc<Self>, ino: Ino) -> Option<Borrowed> {
        let _attached = self.attached.read_recursive();
        let objects = self.objects.lock();
        let object = objects.get(&ino)?.clone();
        {
            let mut state = object.state.lock();
            state.opens += 1;
            // The first close is not reported; the last one is.
            state.uncounted += 1;
        }
        Some(Borrowed {
            object,
            client: self.clone(),
        })
    }

    /// The object, if this mount has it open.
    pub(in crate::client) fn known(&self, ino: Ino) -> Option<Arc<Object>> {
        self.objects.lock().get(&ino).cloned()
    }

    /// Pages that the kernel has of an object may be older than its bytes; returns whether some of them may be modified.
    pub fn distrust_pages(&self, ino: Ino) -> bool {
        self.known(ino)
            .is_some_and(|object| object.own.distrust_pages())
    }

    /// Counts one open less. The last one drops the object; its unsynced chunks are synced in the background.
    fn closed(&self, object: &Arc<Object>) {
        let _attached = self.attached.read_recursive();
        let counted;
        let left = {
            let mut objects = self.objects.lock();
            let mut state = object.state.lock();
            state.opens = state.opens.saturating_sub(1);
            counted = state.uncounted == 0;
            state.uncounted = state.uncounted.saturating_sub(1);
            (state.opens == 0).then(|| {
                objects.remove(&object.ino);
                self.closes.lock().add(object.ino);
                // Before the rights go, and before the object can be opened again.
                if object.own.was_paged()
                    && let Some(caches) = self.lease.caches()
                {
                    caches.retain(object.ino, self.settled_change(object, &state));
                }
                self.rights.disown(&object.own);
                let runs = std::mem::take(&mut state.runs);
                let streams = std::mem::take(&mut state.streams);
                self.account(&mut state);
                if !runs.is_empty() || !streams.is_empty() {
                    object.give_up();
                }
                (streams, state.unsynced.take())
            })
        };
        if let Some((streams, unsynced)) = left {
            self.drop_streams(&streams);
            self.leave(object, unsynced);
            // A read that is still running caches nothing.
            object.epoch.fetch_add(1, Ordering::AcqRel);
            // It scans the entire cache: skipped for objects that were never read.
            if object.cached.load(Ordering::Acquire) {
                self.cache().forget_object(object);
            }
        }
        if !counted {
            return;
        }
        let waiting = {
            let mut releases = self.releases.lock();
            releases.push(object.ino);
            releases.len()
        };
        // In one process a report costs no message, and many at once cost one commit.
        if self.local && waiting >= RELEASES {
            self.send_releases();
        }
    }

    /// The change number of an object that is being closed, if all data of this mount is part of it, as far as can be known
    /// without waiting.
    fn settled_change(&self, object: &Object, state: &State) -> Option<u64> {
        let dirty = !state.runs.is_empty()
            || state.taken.is_some()
            || !state.streams.is_empty()
            || object.touched.load(Ordering::Acquire)
            || object.grown.load(Ordering::Acquire) > 0
            || object.is_to_be_emptied();
        if dirty || self.lapsed() || object.own.distrusts_pages() {
            return None;
        }
        let geometry = object.geometry.try_read()?;
        Some(geometry.attr.change)
    }

    fn leave(&self, object: &Object, chunks: Unsynced) {
        if chunks.is_empty() {
            return;
        }
        let version = object.version();
        self.settling.lock().push(Settling {
            ino: object.ino,
            version,
            chunks,
        });
    }
}

impl Handle {
    /// Ends the handle: waits for started transfers, and flushes the data written since its last flush (through a
    /// mapping, for example).
    ///
    /// # Errors
    /// Those of the flush; the handle is closed all the same.
    pub fn release(&self) -> Result<(), FsError> {
        self.released.store(true, Ordering::Release);
        self.client.transfers().wait_for(self);
        let emptied = match self.has_deferred() {
            true => self.client.settle_truncate(&self.object).inspect_err(|error| {
                // No later call of the program could return it.
                tracing::error!(
                    object = %self.object.ino, %error,
                    "closed, and the truncate of its open with O_TRUNC could not be executed: the old data is still there"
                );
            }),
            false => Ok(()),
        };
        let flushed = emptied.and(self.flush());
        *self.stream.lock() = None;
        self.client.windows().forget(self.id);
        if self.writable {
            self.client.writer_is_done(&self.object);
        }
        if flushed.is_err() && self.writable && self.object.coupled.in_memory() {
            self.client.break_stream(&self.object);
        }
        if self.counted.swap(false, Ordering::AcqRel) {
            self.client.coupled_closed(self);
        }
        self.client.closed(&self.object);
        flushed
    }
}

#[cfg(test)]
mod tests {
    use slabfs_model::ObjectId;

    use super::*;

    #[test]
    fn closes_since_an_open_was_sent() {
        let mut closes = Closes::default();
        closes.add(ObjectId(1));
        let sent = closes.count;
        assert!(!closes.may_have_changed(ObjectId(1), sent));
        closes.add(ObjectId(2));
        assert!(
            closes.may_have_changed(ObjectId(2), sent)
                && !closes.may_have_changed(ObjectId(1), sent)
        );
        assert!(closes.may_have_changed(ObjectId(1), 0));
        for other in 10..10 + CLOSES as u64 {
            closes.add(ObjectId(other));
        }
        assert!(
            closes.may_have_changed(ObjectId(1), sent),
            "too many to know"
        );
        assert!(!closes.may_have_changed(ObjectId(1), closes.count - 1));
    }
}
