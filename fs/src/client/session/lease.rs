//! The lease of this mount's session: when it lapses by the mount's own clock, and the recovery after a lost session.
//!
//! The metadata service ends a session that sent no heartbeat for a lease, and then lets other mounts write what this
//! mount had rights to. So a mount counts from when it *sent* the last heartbeat that was answered:
//!
//! - After four fifths of the lease it has *lapsed*: operations wait ([`Client::wait_alive`]), and cached data that
//!   other mounts may change is dropped, here and in the kernel. Unflushed data stays: the session may still be
//!   alive.
//! - When the service replies that the session is over it is *lost*: unflushed data is dropped, and each handle of
//!   such an object gets the error once. Then another session is attached, open objects are opened again in it, and
//!   operations continue. An object that was removed meanwhile is [`FsError::Gone`]. If another filesystem is at the
//!   address by then, none of it is served: every operation is [`FsError::Replaced`] until this one is back.
//!
//! **No data of a lost session is written in the name of the next one.** Every operation that changes an object in
//! place holds the lock of its form for its entire duration, and dirty data is dropped under that lock, held
//! exclusively, before the next session is attached. A write that had not taken the lock by then has to be admitted
//! again ([`Client::admit`]); a write in flight to a server carries the old session, and is rejected there. Modified
//! pages of a mapping arrive as writes of the kernel: each carries the epoch of the mount in which it arrived
//! ([`Client::epoch`]), and one of an earlier epoch is rejected.
//!
//! A session in the service's own process ends with that process and never lapses.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slabfs_mdserver::api::{Entry, Ino, MdError, RightsBegun, op};
use slabfs_model::{SessionId, ShardId};
use slabfs_objstore::{Moment, StoreError, interrupt};

use crate::client::Client;
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::deferred::NO_HANDLE;
use crate::client::object::geometry::Geometry;

/// An object that was opened again, with its current entry.
type Reopened = (Arc<Object>, Entry);

/// `until` of a session that lasts as long as this process.
const FOREVER: u64 = u64::MAX;

/// The interval at which a mount looks whether its filesystem is back at the address.
const REPLACED_PAUSE: Duration = Duration::from_secs(5);

/// A cache above the client: the kernel's, through the mount.
pub trait Caches: Send + Sync {
    /// Other mounts may change cached data of objects of a shard (`None`: of all objects): it is dropped. Data modified by
    /// programs arrives as writes.
    fn drop_all(&self, shard: Option<ShardId>);
    /// The session with a shard is over: everything of its objects is dropped, and data modified by programs is rejected until it
    /// is. Returns as soon as it is rejected.
    fn discard_all(&self, shard: Option<ShardId>);
    /// Other mounts, or a program's write, are about to change bytes of an object: its pages of those bytes are
    /// dropped, and all pages of selections. Returns when they are; data that programs have modified in them has
    /// arrived as writes by then.
    fn drop_pages(&self, ino: Ino, bytes: Range<u64>);
    /// An object of which the kernel may have pages was closed: its bytes have this change number, if that is known, and may be
    /// changed by others from now on. Takes no lock but for a moment.
    fn retain(&self, ino: Ino, change: Option<u64>);
    /// Other mounts are about to change names and attributes: cached ones are dropped. False where that is
    /// impossible, and the caller has to wait until they expire.
    fn forget_names(&self) -> bool;
}

/// The lease of a session, by this mount's clock.
pub(in crate::client) struct Lease {
    base: Moment,
    /// When the session counts as lapsed, in nanoseconds since `base`.
    until: AtomicU64,
    /// Number of sessions lost before this one.
    number: AtomicU64,
    closed: Mutex<bool>,
    /// Signals a reply of the service, or the end of all waiting.
    changed: Condvar,
    caches: Mutex<Option<Weak<dyn Caches>>>,
}

impl Lease {
    /// The lease of a session that was requested at `sent`; `lease` is zero where it lasts as long as this process.
    pub(in crate::client) fn new(sent: Moment, lease: Duration) -> Lease {
        let new = Lease {
            base: sent,
            until: AtomicU64::new(FOREVER),
            number: AtomicU64::new(0),
            closed: Mutex::new(false),
            changed: Condvar::new(),
            caches: Mutex::new(None),
        };
        new.renew(sent, lease);
        new
    }

    /// Renews the lease: a request that was sent at `sent` has been answered.
    fn renew(&self, sent: Moment, lease: Duration) {
        if !lease.is_zero() {
            let until = sent + (lease - lease / 5);
            let until = until.since(self.base).as_nanos();
            // Not 0: that marks a session that may be lost.
            self.until.store((until as u64).max(1), Ordering::SeqCst);
        }
        self.wake();
    }

    fn end(&self) {
        if self.until.load(Ordering::SeqCst) != FOREVER {
            self.until.store(0, Ordering::SeqCst);
        }
        self.wake();
    }

    /// Lets waiting operations look again whether they still have to wait.
    fn wake(&self) {
        let _order = self.closed.lock();
        self.changed.notify_all();
    }

    fn lapsed(&self) -> bool {
        let until = self.until.load(Ordering::SeqCst);
        until != FOREVER && self.base.elapsed().as_nanos() as u64 >= until
    }

    /// Ends all waiting.
    pub(in crate::client) fn close(&self) {
        *self.closed.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until the session has lapsed (`lapsed`) or is alive; false when the client stops.
    fn wait(&self, lapsed: bool) -> bool {
        let mut closed = self.closed.lock();
        while !*closed && self.lapsed() != lapsed {
            let until = self.until.load(Ordering::SeqCst);
            if lapsed && until != FOREVER {
                let at = self.base + Duration::from_nanos(until);
                self.changed.wait_for(&mut closed, at.since(Moment::now()));
            } else {
                self.changed.wait(&mut closed);
            }
        }
        !*closed
    }

    pub(in crate::client) fn caches(&self) -> Option<Arc<dyn Caches>> {
        self.caches.lock().as_ref().and_then(Weak::upgrade)
    }
}

impl Client {
    /// Sets the cache above the client.
    pub fn set_caches(&self, caches: Weak<dyn Caches>) {
        *self.lease.caches.lock() = Some(caches);
    }

    /// Whether the metadata service has not answered for so long that the session may be over.
    pub fn lapsed(&self) -> bool {
        self.lease.lapsed()
    }

    /// Whether another filesystem is at the address of the metadata service.
    pub fn replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }

    /// Number of sessions that this mount has lost.
    pub fn epoch(&self) -> u64 {
        self.lease.number.load(Ordering::SeqCst)
    }

    /// Waits until the metadata service has answered, and the recovery from a lost session is done. The caller holds
    /// no lock of an object.
    ///
    /// # Errors
    /// `Lapsed` after `io_timeout`; `Replaced` while another filesystem is at the address; `Closed` once the client is
    /// being stopped.
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
            if self.replaced() {
                return Err(FsError::Replaced);
            }
            if interrupt::wait_until(&self.lease.changed, &mut closed, until) {
                return Err(FsError::Lapsed(self.options.io_timeout));
            }
        }
        Ok(())
    }

    /// How long an operation waits for rights of another session. A dead session is detected when its lease is over,
    /// and its rights are free once data servers have fenced it, or were silent for a lease themselves. The servers
    /// are up during that wait, so a short `io_timeout` must not end it.
    pub(in crate::client) fn others_timeout(&self) -> Duration {
        let lease = *self.lease_time.lock();
        self.options.io_timeout.max(lease * 5 / 2)
    }

    /// Checks that an operation on an object may begin; waits while the mount has lapsed. Returns the epoch of the
    /// mount in which it begins.
    pub(in crate::client) fn admit(&self, object: &Object) -> Result<u64, FsError> {
        // Before the wait: the caller detects a later loss by comparing epochs.
        let epoch = self.epoch();
        self.wait_alive()?;
        if object.gone.load(Ordering::Acquire) {
            return Err(FsError::Gone);
        }
        Ok(epoch)
    }

    /// A service has reported that the session is over: no operation begins until that is verified.
    pub(in crate::client) fn suspect(&self) {
        self.lease.end();
    }

    /// Renews the lease after a reply to a request that was sent at `sent`.
    pub(in crate::client) fn answered(&self, sent: Moment) {
        self.lease.renew(sent, *self.lease_time.lock());
    }

    /// Drops cached data of other mounts each time the session lapses, until the client stops.
    pub(in crate::client) fn watch_lease(&self) {
        while self.lease.wait(true) {
            tracing::warn!(
                "the metadata service has not answered in time: operations wait until it does"
            );
            self.drop_cached();
            if let Some(caches) = self.lease.caches() {
                caches.drop_all(self.only_shard());
            }
            if !self.lease.wait(false) {
                return;
            }
            tracing::info!("the metadata service answers again");
        }
    }

    /// Drops cached data that was read.
    fn drop_cached(&self) {
        for object in self.open_objects() {
            object.epoch.fetch_add(1, Ordering::AcqRel);
            self.cache().forget_object(&object);
        }
    }

    fn open_objects(&self) -> Vec<Arc<Object>> {
        self.objects.lock().values().cloned().collect()
    }

    /// Recovers from a lost session: drops unflushed data, and attaches another session. Returns when that is done or
    /// the client stops.
    pub(in crate::client) fn recover(&self, every: Duration) {
        tracing::error!(
            "the metadata service has given up this session; what was not flushed is lost"
        );
        if let Some(caches) = self.lease.caches() {
            caches.discard_all(self.only_shard());
        }
        // This order: an operation admitted in the next epoch has waited for its session. And after the kernel's
        // pages are rejected: a page write that was not rejected arrived in the epoch that ends here.
        self.lease.end();
        self.lease.number.fetch_add(1, Ordering::SeqCst);
        self.lose_rights();
        // Requests that wait for a server to accept the session do not delay the recovery.
        self.servers.set_session(SessionId(0));
        for object in self.open_objects() {
            self.abandon(&object);
        }
        self.lose_locks();
        loop {
            let sent = Moment::now();
            match self.attach_again() {
                Ok((opened, rights)) => {
                    opened.iter().for_each(|(object, entry)| {
                        if let Err(error) = self.renew_form(object, entry) {
                            tracing::error!(object = %object.ino, %error, "cannot be opened again");
                            object.gone.store(true, Ordering::Release);
                        }
                    });
                    self.rights_new_session(rights);
                    tracing::warn!(session = %self.md.session(), "attached again");
                    self.replaced.store(false, Ordering::Release);
                    return self.answered(sent);
                }
                Err(error @ FsError::Replaced) => {
                    if !self.replaced.swap(true, Ordering::AcqRel) {
                        let addr = self.metadata_addr().unwrap_or_default();
                        tracing::error!(addr, "{error}; this mount serves nothing until then");
                        self.lease.wake();
                    }
                }
                Err(error) => tracing::warn!(%error, "attaching again failed; trying again"),
            }
            // The other filesystem is there to stay, and each attempt opens a session in it.
            let pause = if self.replaced() {
                REPLACED_PAUSE
            } else {
                every
            };
            if self.pause(pause) {
                return;
            }
        }
    }

    /// Drops all unflushed data of an object, after the operations of the lost session on it have ended.
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
            // Its chunk is lost with the session.
            let mut progress = stream.progress.lock();
            progress.ended = true;
            self.charge(-(progress.tail.len() as i64));
            progress.tail = Vec::new();
        }
        object.grown.store(0, Ordering::Release);
        object.reserved.store(0, Ordering::Release);
        object.emptied_by.store(NO_HANDLE, Ordering::SeqCst);
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

    /// Attaches another session, and opens each open object once in it.
    fn attach_again(&self) -> Result<(Vec<Reopened>, Option<RightsBegun>), FsError> {
        let _alone = self.attached.write();
        let _one = self.listing.lock();
        let attached = self.md.reattach(self.root_created)?;
        let attached = attached.ok_or(FsError::Replaced)?;
        *self.leased_ids.lock() = Default::default();
        *self.places.lock() = Default::default();
        *self.lease_time.lock() = Duration::from_millis(attached.lease_ms);
        self.take_servers(&attached.servers);
        // They are for opens that ended with the session.
        self.releases.lock().clear();
        self.tilings.clear();
        let mut opened = Vec::new();
        for object in self.open_objects() {
            let entry = match self.md.call(op::Open { ino: object.ino }) {
                Ok(entry) => Some(entry),
                Err(MdError::NotFound) => None,
                Err(error) => return Err(error.into()),
            };
            let mut state = object.state.lock();
            match entry {
                Some(entry) => {
                    state.uncounted = state.opens.saturating_sub(1);
                    drop(state);
                    opened.push((object, entry));
                }
                None => {
                    state.uncounted = state.opens;
                    drop(state);
                    object.gone.store(true, Ordering::Release);
                }
            }
        }
        self.locks_new_session(attached.locks);
        self.servers.set_session(attached.session);
        Ok((opened, attached.rights))
    }

    /// Adopts the form an object has now, replacing the known one.
    fn renew_form(&self, object: &Object, entry: &Entry) -> Result<(), FsError> {
        let mut geometry = object.geometry.write();
        if geometry.attr.crtime != entry.attr.crtime {
            // It belongs to another filesystem at the same address, or was created after a loss of metadata.
            return Err(FsError::Gone);
        }
        let fresh = Geometry::new(entry)?;
        object.coupled.set(&fresh.info);
        *geometry = fresh;
        object.tiling.outdate();
        object.epoch.fetch_add(1, Ordering::AcqRel);
        self.cache().forget_object(object);
        *object.checked.lock() = Instant::now();
        Ok(())
    }
}

impl FsError {
    /// Whether it reports that the session is over.
    pub(in crate::client) fn is_loss(&self) -> bool {
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
        // The lease counts from when the last heartbeat was sent, not from its reply.
        lease.renew(earlier, LEASE);
        assert!(lease.lapsed() && lease.wait(true));
        lease.renew(now, LEASE);
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
