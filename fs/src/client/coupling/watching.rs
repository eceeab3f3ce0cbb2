//! Watches coupled objects: this mount is notified of every announcement, and reads of what it knows ask nothing.
//!
//! An object is watched from the first read on that was matched, while it is read again and again. One thread polls for all of
//! them. It brings what is new in their tilings; a read whose cells are all there takes the ordinary steps at once. One
//! whose cells are not there waits a moment for the next news, and then asks the matcher, where a read that waits is
//! seen and ends.
//!
//! What is known may be trusted for [`TRUST`] since the last poll that was answered was sent: for longer than that the
//! service waits for this mount before a commit that hides cells is answered (`mdserver/src/matcher/watches.rs`). An
//! object counts only when a poll with it has been answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slabfs_mdserver::api::{Entry, Ino, MAX_WATCHED, Stored, TilingReply, Watching as Known, op};
use slabfs_model::{Hyperslab, Region, ServerId, Version};
use slabfs_objstore::ChunkName;

use crate::client::Client;
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;
use crate::client::stored::committed::MOST_PARTS;
use crate::client::stored::tilings::Chunks;

/// How long one poll waits.
const WAIT: Duration = Duration::from_secs(1);
/// How long what is known is trusted, less than `watches::SILENT` of the service.
const TRUST: Duration = Duration::from_secs(3);
/// How long a read waits for news before it asks the matcher.
const PATIENCE: Duration = Duration::from_millis(100);
/// An object that was not read for so long is not watched any more.
const UNUSED: Duration = Duration::from_secs(10);
/// Pause after a poll that failed.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Watching {
    state: Mutex<State>,
    /// Signalled when there is news, or something to watch.
    changed: Condvar,
    matches: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    objects: HashMap<Ino, Watched>,
    /// When the last poll was sent that was answered, in this session.
    sent: Option<Instant>,
    /// Counts news.
    news: u64,
    runs: bool,
    stopping: bool,
}

#[derive(Debug)]
struct Watched {
    object: Weak<Object>,
    /// A poll with it was answered.
    confirmed: bool,
    ended: bool,
    used: Instant,
    /// A form that is newer than that of the object; reads adopt it.
    entry: Option<Entry>,
}

impl Watching {
    pub(super) fn count_match(&self) {
        self.matches.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn matches(&self) -> u64 {
        self.matches.load(Ordering::Relaxed)
    }
}

impl State {
    /// Whether what is known of an object may be used.
    fn trusts(&self, ino: Ino) -> bool {
        let fresh = self.sent.is_some_and(|sent| sent.elapsed() < TRUST);
        fresh && self.objects.get(&ino).is_some_and(|one| one.confirmed)
    }
}

impl Client {
    /// Counts a read that asks a matcher.
    pub(super) fn count_match(&self) {
        self.coupling.watching.count_match();
    }

    /// Watches an object from now on, or for longer.
    pub(super) fn watch(self: &Arc<Self>, object: &Arc<Object>) {
        let mut state = self.coupling.watching.state.lock();
        if state.stopping
            || state.objects.len() >= MAX_WATCHED && !state.objects.contains_key(&object.ino)
        {
            return;
        }
        let weak = Arc::downgrade(object);
        let watched = state.objects.entry(object.ino).or_insert_with(|| Watched {
            object: weak.clone(),
            confirmed: false,
            ended: false,
            used: Instant::now(),
            entry: None,
        });
        if !watched.object.ptr_eq(&weak) {
            watched.object = weak;
            watched.confirmed = false;
        }
        watched.used = Instant::now();
        let starts = !std::mem::replace(&mut state.runs, true);
        drop(state);
        self.coupling.watching.changed.notify_all();
        if starts && let Err(error) = self.spawn("slabfs-watch", |client| client.watch_all()) {
            tracing::debug!(%error, "coupled objects are not watched: each read asks");
            self.coupling.watching.state.lock().runs = false;
        }
    }

    /// As [`Client::knows_cells`], without waiting for news or for a lock; `form` is the version of the object's form.
    pub(super) fn knows_now(&self, object: &Object, form: Version, cells: &[Region]) -> bool {
        {
            let Some(mut state) = self.coupling.watching.state.try_lock() else {
                return false;
            };
            if !state.trusts(object.ino) {
                return false;
            }
            let Some(watched) = state.objects.get_mut(&object.ino) else {
                return false;
            };
            if watched.entry.is_some() {
                // A newer form is adopted first.
                return false;
            }
            watched.used = Instant::now();
        }
        let chunks = object.tiling.try_read();
        let is_known = chunks.is_some_and(|chunks| covers(&chunks, form, cells));
        // What was known before may have been replaced while it was not trusted.
        is_known && self.coupling.watching.state.lock().trusts(object.ino)
    }

    /// Whether all cells are known to be written, by an object that is watched. Waits a moment for news.
    pub(super) fn knows_cells(
        &self,
        object: &Object,
        cells: &dyn Fn(&Geometry) -> Vec<Region>,
    ) -> Result<bool, FsError> {
        let watching = &self.coupling.watching;
        let until = Instant::now() + PATIENCE;
        loop {
            let (news, entry) = {
                let mut state = watching.state.lock();
                if !state.trusts(object.ino) {
                    return Ok(false);
                }
                let news = state.news;
                let Some(watched) = state.objects.get_mut(&object.ino) else {
                    return Ok(false);
                };
                watched.used = Instant::now();
                (news, watched.entry.take())
            };
            if let Some(entry) = entry {
                self.adopt_entry(object, &entry)?;
            }
            let (cells, form) = {
                let geometry = object.geometry.read();
                (cells(&geometry), geometry.info.tiling)
            };
            if covers(&object.tiling.read(), form, &cells) {
                // What was known before may have been replaced while it was not trusted.
                return Ok(watching.state.lock().trusts(object.ino));
            }
            let mut state = watching.state.lock();
            let ended = state.objects.get(&object.ino).is_none_or(|one| one.ended);
            if ended || Instant::now() >= until {
                return Ok(false);
            }
            if state.news == news {
                watching.changed.wait_until(&mut state, until);
            }
        }
    }

    fn watch_all(&self) {
        let watching = &self.coupling.watching;
        loop {
            {
                let mut state = watching.state.lock();
                state
                    .objects
                    .retain(|_, one| one.used.elapsed() < UNUSED && one.object.strong_count() > 0);
                if state.objects.is_empty() && state.sent.take().is_some() {
                    drop(state);
                    // The service waits for a mount that watches.
                    if let Err(error) = self.poll_watched() {
                        tracing::debug!(%error, "the service does not know yet that nothing is watched");
                    }
                    state = watching.state.lock();
                    state.sent = None;
                }
                while state.objects.is_empty() && !state.stopping {
                    watching.changed.wait(&mut state);
                }
                if state.stopping {
                    return;
                }
            }
            if let Err(error) = self.poll_watched() {
                tracing::debug!(%error, "polling for announcements failed; reads ask until it works again");
                let mut state = watching.state.lock();
                state.sent = None;
                state
                    .objects
                    .values_mut()
                    .for_each(|one| one.confirmed = false);
                drop(state);
                if self.pause(PAUSE) {
                    return;
                }
            }
        }
    }

    fn poll_watched(&self) -> Result<(), FsError> {
        let watching = &self.coupling.watching;
        let epoch = self.epoch();
        let mut list = Vec::new();
        {
            let state = watching.state.lock();
            for (&ino, one) in &state.objects {
                if let Some(object) = one.object.upgrade() {
                    list.push((ino, object, one.ended));
                }
            }
        }
        let objects: Vec<Known> = list
            .iter()
            .map(|(ino, object, ended)| Known {
                ino: *ino,
                known: object.tiling.read().version.unwrap_or(Version(0)),
                ended: *ended,
            })
            .collect();
        let sent = Instant::now();
        let news = self.md.call(op::Watch {
            objects: objects.clone(),
            wait_ms: op::millis(WAIT.min(self.options.io_timeout / 2)),
        })?;
        if epoch != self.epoch() {
            // The service watched for a session that is over.
            return Ok(());
        }
        let mut entries = HashMap::new();
        let mut ahead: Vec<(ServerId, ChunkName)> = Vec::new();
        for one in news {
            let ino = one.entry.attr.ino;
            let place = list.iter().position(|(of, ..)| *of == ino);
            if let Some(place) = place {
                let (object, known) = (&list[place].1, objects[place].known);
                let newest = one.entry.info.as_ref().map(|info| info.tiling);
                if one.tiling.is_none() && newest != Some(known) {
                    // It does not fit into a reply.
                    self.forget_watched(ino);
                    continue;
                }
                ahead.extend(one.tiling.iter().flat_map(announced));
                self.adopt_tiling(object, known, &one.entry, one.tiling)?;
                entries.insert(ino, (one.entry, one.ended));
            }
        }
        self.look_ahead(ahead);
        let mut state = watching.state.lock();
        state.sent = Some(sent);
        state.news += 1;
        for (ino, object, _) in &list {
            let Some(watched) = state.objects.get_mut(ino) else {
                continue;
            };
            if !watched.object.ptr_eq(&Arc::downgrade(object)) {
                continue;
            }
            watched.confirmed = true;
            if let Some((entry, ended)) = entries.remove(ino) {
                watched.entry = Some(entry);
                watched.ended = ended;
            }
        }
        drop(state);
        watching.changed.notify_all();
        Ok(())
    }

    /// Requests where new chunks are in the memory of other mounts, before they are read.
    fn look_ahead(&self, mut chunks: Vec<(ServerId, ChunkName)>) {
        chunks.sort_unstable();
        for some in chunks.chunk_by(|one, other| one.0 == other.0) {
            let names: Vec<ChunkName> = some.iter().map(|(_, name)| name.clone()).collect();
            self.servers().look_ahead(some[0].0, &names);
        }
    }

    /// Does not watch an object any more, until the next read of it is matched.
    pub(in crate::client) fn forget_watched(&self, ino: Ino) {
        self.coupling.watching.state.lock().objects.remove(&ino);
    }

    /// Ends the thread.
    pub(in crate::client) fn stop_watching(&self) {
        self.coupling.watching.state.lock().stopping = true;
        self.coupling.watching.changed.notify_all();
    }
}

/// Whether the cached tiling of an object has data for all cells, and its form, which is that of version `form`, is as new:
/// the size belongs to the form.
fn covers(chunks: &Chunks, form: Version, cells: &[Region]) -> bool {
    if chunks.version.is_none_or(|version| version > form) || !chunks.has_all() {
        return false;
    }
    let (mut parts, mut holes) = (Vec::new(), Vec::new());
    cells.iter().all(|region| {
        parts.clear();
        let want = Hyperslab::from_region(region);
        let planned = chunks
            .tiling
            .plan_within(&want, MOST_PARTS, &mut parts, &mut holes);
        planned.is_ok() && holes.is_empty()
    })
}

/// The chunks that a reply adds to a tiling.
fn announced(reply: &TilingReply) -> Vec<(ServerId, ChunkName)> {
    let TilingReply::Changes { added, .. } = reply else {
        return Vec::new();
    };
    let chunks = added.iter().filter_map(|record| match &record.value {
        Stored::Chunk(stored) => Some((stored.server, stored.name())),
        Stored::Fill | Stored::Dropped => None,
    });
    chunks.collect()
}
