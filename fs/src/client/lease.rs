//! Whether this mount's session lives, as far as its own clock can tell, and what happens when it does not.
//!
//! The metadata service ends a session that it has not heard for a lease, and then lets others write what
//! this mount had. So a mount counts from when it *sent* the last heartbeat that was answered:
//!
//! - After four fifths of the lease it has *lapsed*: operations wait ([`Client::wait_alive`]), and what
//!   the mount and the kernel hold of other people's data is dropped. Unflushed data stays: the session
//!   may live.
//! - When the service answers that the session is over it is *lost*: what was not flushed is gone, and the
//!   handles of such objects are told once. Then another session is attached, what is open is opened
//!   again in it, and operations go on. What was removed meanwhile is [`FsError::Gone`].
//!
//! **Nothing of a lost session is written in the name of the next one.** Whatever changes an object in
//! place holds its form's lock for the whole of it, and dirty data is dropped under that lock alone, before
//! the next session is attached; a write that had not come to that lock by then is let in anew
//! ([`Client::admit`]); what is still on its way to a server names the old session, and is refused
//! there. Pages that a program changed in a mapping come back as writes of the kernel's: those say in
//! which epoch of the mount they came ([`Client::epoch`]), and one of an earlier epoch is refused.
//!
//! A session in the service's own process lives as long as that and never lapses.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slabfs_mdserver::api::{Entry, Ino, MdError, RightsBegun};
use slabfs_model::SessionId;
use slabfs_objstore::{Moment, StoreError};

use super::Client;
use super::error::FsError;
use super::geometry::Geometry;
use super::object::Object;

/// An object that was opened again, and what it is now.
type Reopened = (Arc<Object>, Entry);

/// `until` of a session that lives as long as this process.
const FOR_EVER: u64 = u64::MAX;

/// What holds data for programs beside the client: the kernel, by way of the mount.
pub trait Caches: Send + Sync {
    /// Others may change what was read: it is forgotten. What programs have changed comes back as writes.
    fn drop_all(&self);
    /// The session is over: everything is forgotten, and what programs have changed is refused until it is.
    /// Returns as soon as it is refused.
    fn discard_all(&self);
    /// Others, or a program's write, are about to change bytes of an object: its pages of those are dropped, of
    /// selections all. Returns when they are; what programs have changed in them has come back as writes by then.
    fn drop_pages(&self, ino: Ino, bytes: Range<u64>);
    /// Others are about to change names and attributes: what is kept of them is forgotten. False where that
    /// cannot be done, and has to be waited out.
    fn forget_names(&self) -> bool;
}

/// The epoch of a session by this mount's clock.
pub(super) struct Lease {
    base: Moment,
    /// When the session counts as lapsed, in nanoseconds since `base`.
    until: AtomicU64,
    /// How many sessions were lost before this one.
    number: AtomicU64,
    closed: Mutex<bool>,
    /// Somebody answered, or there is nothing to wait for any more.
    changed: Condvar,
    caches: Mutex<Option<Weak<dyn Caches>>>,
}

impl Lease {
    /// Of a session that was asked for at `sent`; `lease` is zero where it lives as long as this process.
    pub(super) fn new(sent: Moment, lease: Duration) -> Lease {
        let new = Lease {
            base: sent,
            until: AtomicU64::new(FOR_EVER),
            number: AtomicU64::new(0),
            closed: Mutex::new(false),
            changed: Condvar::new(),
            caches: Mutex::new(None),
        };
        new.heard(sent, lease);
        new
    }

    /// What was sent at `sent` has been answered.
    fn heard(&self, sent: Moment, lease: Duration) {
        if !lease.is_zero() {
            let until = sent + (lease - lease / 5);
            let until = until.since(self.base).as_nanos();
            // Not 0, which is for a session that is not to be trusted any more.
            self.until.store((until as u64).max(1), Ordering::SeqCst);
        }
        let _order = self.closed.lock();
        self.changed.notify_all();
    }

    fn end(&self) {
        if self.until.load(Ordering::SeqCst) != FOR_EVER {
            self.until.store(0, Ordering::SeqCst);
        }
        let _order = self.closed.lock();
        self.changed.notify_all();
    }

    fn lapsed(&self) -> bool {
        let until = self.until.load(Ordering::SeqCst);
        until != FOR_EVER && self.base.elapsed().as_nanos() as u64 >= until
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        *self.closed.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until the session has lapsed (`lapsed`), or lives; false when there is nothing to wait for.
    fn wait(&self, lapsed: bool) -> bool {
        let mut closed = self.closed.lock();
        while !*closed && self.lapsed() != lapsed {
            let until = self.until.load(Ordering::SeqCst);
            if lapsed && until != FOR_EVER {
                let at = self.base + Duration::from_nanos(until);
                self.changed.wait_for(&mut closed, at.since(Moment::now()));
            } else {
                self.changed.wait(&mut closed);
            }
        }
        !*closed
    }

    pub(super) fn caches(&self) -> Option<Arc<dyn Caches>> {
        self.caches.lock().as_ref().and_then(Weak::upgrade)
    }
}

impl Client {
    /// Says who holds data beside the client.
    pub fn set_caches(&self, caches: Weak<dyn Caches>) {
        *self.lease.caches.lock() = Some(caches);
    }

    /// Whether the metadata service has not answered for so long that the session may be over.
    pub fn lapsed(&self) -> bool {
        self.lease.lapsed()
    }

    /// How many sessions this mount has lost.
    pub fn epoch(&self) -> u64 {
        self.lease.number.load(Ordering::SeqCst)
    }

    /// Waits until the metadata service has answered, and what is lost is done with. Whoever calls it holds
    /// no lock of an object.
    ///
    /// # Errors
    /// `Lapsed` after `io_timeout`; `Closed` once the client is being stopped.
    pub fn wait_alive(&self) -> Result<(), FsError> {
        if !self.lapsed() {
            return Ok(());
        }
        let until = Instant::now() + self.options.io_timeout;
        let mut closed = self.lease.closed.lock();
        while self.lease.lapsed() {
            if *closed {
                return Err(FsError::Closed);
            }
            if self
                .lease
                .changed
                .wait_until(&mut closed, until)
                .timed_out()
            {
                return Err(FsError::Lapsed(self.options.io_timeout));
            }
        }
        Ok(())
    }

    /// How long an operation waits for what another session has. One that is dead is known to be when its lease is
    /// over, and what it had is free when data servers obey that, or were silent for a lease themselves. They are
    /// not away whom it waits for, so that a short `io_timeout` is not what ends it.
    pub(super) fn others_timeout(&self) -> Duration {
        let lease = *self.lease_time.lock();
        self.options.io_timeout.max(lease * 5 / 2)
    }

    /// Whether an operation on an object may begin; waits while the mount has lapsed. Says in which epoch of
    /// the mount it begins.
    pub(super) fn admit(&self, object: &Object) -> Result<u64, FsError> {
        // Before the wait: a loss after this is seen by whoever compares.
        let epoch = self.epoch();
        self.wait_alive()?;
        if object.gone.load(Ordering::Acquire) {
            return Err(FsError::Gone);
        }
        Ok(epoch)
    }

    /// A service has said that the session is over: nothing is begun until that is cleared up.
    pub(super) fn suspect(&self) {
        self.lease.end();
    }

    /// Takes over that what was sent at `sent` was answered.
    pub(super) fn answered(&self, sent: Moment) {
        self.lease.heard(sent, *self.lease_time.lock());
    }

    /// Drops what is held of other people's data each time the session lapses, until the client stops.
    pub(super) fn watch_lease(&self) {
        while self.lease.wait(true) {
            tracing::warn!(
                "the metadata service has not answered in time: operations wait until it does"
            );
            self.forget_read();
            if let Some(caches) = self.lease.caches() {
                caches.drop_all();
            }
            if !self.lease.wait(false) {
                return;
            }
            tracing::info!("the metadata service answers again");
        }
    }

    /// Forgets what was read.
    fn forget_read(&self) {
        for object in self.open_objects() {
            object.epoch.fetch_add(1, Ordering::AcqRel);
            self.cache().forget_object(&object);
        }
    }

    fn open_objects(&self) -> Vec<Arc<Object>> {
        self.objects.lock().values().cloned().collect()
    }

    /// The session is over: gives up what was not flushed, and goes on in another one. Returns when that is
    /// done or the client stops.
    pub(super) fn recover(&self, every: Duration) {
        tracing::error!(
            "the metadata service has given up this session; what was not flushed is lost"
        );
        if let Some(caches) = self.lease.caches() {
            caches.discard_all();
        }
        // In this order: whoever is let in in the next epoch has waited for its session. And after the pages
        // are refused: a write of the kernel's that was not came in the epoch that ends here.
        self.lease.end();
        self.lease.number.fetch_add(1, Ordering::SeqCst);
        self.lose_rights();
        // What waits for a server to let it in is not waited for.
        self.servers.set_session(SessionId(0));
        for object in self.open_objects() {
            self.abandon(&object);
        }
        self.lose_locks();
        loop {
            let sent = Moment::now();
            match self.attach_anew() {
                Ok((opened, rights)) => {
                    opened.iter().for_each(|(object, entry)| {
                        if let Err(error) = self.renew_form(object, entry) {
                            tracing::error!(object = %object.ino, %error, "cannot be opened again");
                            object.gone.store(true, Ordering::Release);
                        }
                    });
                    self.rights_anew(rights);
                    tracing::warn!(session = %self.md.session(), "attached anew");
                    return self.answered(sent);
                }
                Err(error) => tracing::warn!(%error, "not attached anew yet; trying on"),
            }
            if self.pause(every) {
                return;
            }
        }
    }

    /// Drops all that was not flushed of an object, after what was being done to it in the session that is
    /// over.
    fn abandon(&self, object: &Object) {
        let geometry = object.geometry.write();
        let _alone = object.flushing.write();
        let dirty = object.is_dirty() || object.grown.load(Ordering::Acquire) > geometry.size();
        let streams = {
            let mut state = object.state.lock();
            state.runs = Default::default();
            state.taken = None;
            self.account(&mut state);
            std::mem::take(&mut state.streams)
        };
        for stream in streams {
            // Its chunk goes with the session.
            let mut progress = stream.progress.lock();
            progress.ended = true;
            self.charge(-(progress.tail.len() as i64));
            progress.tail = Vec::new();
        }
        object.grown.store(0, Ordering::Release);
        object.reserved.store(0, Ordering::Release);
        object.touched.store(false, Ordering::Release);
        object.stored.store(0, Ordering::Release);
        *object.written.lock() = None;
        object.placed.lock().clear();
        object.epoch.fetch_add(1, Ordering::AcqRel);
        self.cache().forget_object(object);
        if dirty {
            tracing::error!(object = %object.ino, "what was not flushed of it is lost");
            object.blame(&FsError::Lost);
        }
    }

    /// Attaches, and opens once what is open.
    fn attach_anew(&self) -> Result<(Vec<Reopened>, Option<RightsBegun>), FsError> {
        let _alone = self.attached.write();
        let _one = self.listing.lock();
        let attached = self.md.reattach()?;
        *self.leased_ids.lock() = Default::default();
        *self.places.lock() = Default::default();
        *self.lease_time.lock() = Duration::from_millis(attached.lease_ms);
        self.take_servers(&attached.servers);
        // They were of openings that ended with the session.
        self.releases.lock().clear();
        self.tilings.clear();
        let mut opened = Vec::new();
        for object in self.open_objects() {
            let entry = match self.md.open(object.ino) {
                Ok(entry) => Some(entry),
                Err(MdError::NotFound) => None,
                Err(error) => return Err(error.into()),
            };
            let mut state = object.state.lock();
            match entry {
                Some(entry) => {
                    state.untold = state.opens.saturating_sub(1);
                    drop(state);
                    opened.push((object, entry));
                }
                None => {
                    state.untold = state.opens;
                    drop(state);
                    object.gone.store(true, Ordering::Release);
                }
            }
        }
        self.locks_anew(attached.locks);
        self.servers.set_session(attached.session);
        Ok((opened, attached.rights))
    }

    /// Takes over the form an object has now, whatever was known of it.
    fn renew_form(&self, object: &Object, entry: &Entry) -> Result<(), FsError> {
        let mut geometry = object.geometry.write();
        if geometry.attr.crtime != entry.attr.crtime {
            // Of another filesystem at the same address, or made after a loss of metadata.
            return Err(FsError::Gone);
        }
        *geometry = Geometry::new(entry)?;
        object.tiling.outdate();
        object.epoch.fetch_add(1, Ordering::AcqRel);
        self.cache().forget_object(object);
        *object.checked.lock() = Instant::now();
        Ok(())
    }
}

impl FsError {
    /// Whether it says that the session is over.
    pub(super) fn is_loss(&self) -> bool {
        matches!(
            self,
            FsError::Md(MdError::SessionLost) | FsError::Store(StoreError::Fenced(_))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    #[test]
    fn a_session_lapses_before_the_service_ends_it() {
        let now = Moment::now();
        let lease = Lease::new(now, LEASE);
        assert!(!lease.lapsed());
        let Some(earlier) = now.checked_sub(LEASE * 4 / 5) else {
            return;
        };
        // Heard last when its last heartbeat was sent, not when that was answered.
        lease.heard(earlier, LEASE);
        assert!(lease.lapsed() && lease.wait(true));
        lease.heard(now, LEASE);
        assert!(!lease.lapsed() && lease.wait(false));
        lease.end();
        assert!(lease.lapsed());
        lease.close();
        assert!(!lease.wait(false));
    }

    #[test]
    fn a_session_of_this_process_never_lapses() {
        let lease = Lease::new(Moment::now(), Duration::ZERO);
        lease.end();
        assert!(!lease.lapsed());
    }
}
