//! The rights of this mount: strict coherence with other mounts. docs/decisions/13-rights.md is the contract with the
//! lock server; this is the mount's side of it.
//!
//! An operation *enters* an object before it takes any of the object's locks ([`Client::enter`]), with a mode and the
//! cells it will touch, and leaves when its [`Op`] is dropped. What entering does depends on the phase:
//!
//! | phase | an operation |
//! |---|---|
//! | off | begins at once: the mount is in mode `commit` |
//! | alone | is only counted: there is no other strict mount |
//! | shared | begins if it holds the rights it needs, and otherwise asks the lock server for them and waits |
//! | closed | waits: an epoch has ended, and the next one has not begun; running operations continue into that one |
//!
//! In all phases a program's write and the kernel's pages of the same bytes exclude each other: see `page_overlap`.
//!
//! The parts: `held` the rights held on one object, its running and its waiting operations; `state` that, with the asks
//! and releases (all pure, and driven by `model`, which searches the possible orders of events); `needs` the cells that a
//! request needs; `op` entering and leaving; `ask` waiting and asking; `poll` the channel of grants and recalls
//! (`client/coherence/channel.rs`); `page_overlap` writes where the kernel has pages; `recall` the threads that handle recalls;
//! `reset` the end of an epoch.
//!
//! # Why there is no deadlock
//!
//! The poll waits for the lock server only, and for locks that are held for moments ([`Own`], never an object's).
//! Recalls wait for running operations, for the kernel to drop pages, and for servers; they hold no lock meanwhile
//! and have threads of their own. A running operation waits for servers, never for a right or for the kernel. An
//! operation that has not begun holds nothing. So there is no cycle of waits.
//!
//! # Agreement with the lock server
//!
//! The lock server knows exactly the rights of this mount, except for messages in flight; this mount may believe to
//! have less, never more. So an area is removed before the lock server is notified; while the notification is in
//! flight, no ask for the same object is sent; and a grant counts only if the ask that it answers is still recorded.
//! A release names the last grant that was received for any object: later grants stay. An earlier grant that arrives
//! after the release does not count, since it is unknown how much of it is left.
//!
//! Grants come as replies or as events, recalls as events. So a recall may arrive before a grant that it covers only
//! if that grant is the reply to an ask in flight: recalls are handled when there is no such ask.

mod ask;
mod held;
mod needs;
mod op;
mod page_overlap;
mod poll;
mod recall;
mod reset;
mod state;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use slabfs_mdserver::api::{Ino, RightSerial, RightTicket, RightsBegun, RightsEpoch};

use crate::client::Client;
use crate::client::object::Object;
use state::{LastGrant, State};

pub(in crate::client) use held::By;
pub(in crate::client) use op::{Need, Op};
pub(in crate::client) use recall::THREADS;
pub(in crate::client) use slabfs_model::{BoxSet, Span};

/// The consistency between mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// A read on any mount returns what the last completed write on any mount put there.
    Strict,
    /// Other mounts see data after `fsync` or `close`, from their next `open` on.
    Commit,
}

impl Consistency {
    /// For mounts that set no option; decided here and nowhere else.
    pub const DEFAULT: Consistency = Consistency::Strict;
}

impl Default for Consistency {
    fn default() -> Consistency {
        Consistency::DEFAULT
    }
}

/// See the table in the module documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Off,
    Alone,
    Shared,
    Closed,
}

/// The phase, for all objects, and the number of lost sessions.
#[derive(Debug, Default)]
struct Clock {
    /// A [`Phase`]; at first `Off`.
    phase: AtomicU8,
    /// Number of sessions lost: an operation that began before a loss does not count after it.
    round: AtomicU64,
}

impl Clock {
    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::Off,
            1 => Phase::Alone,
            2 => Phase::Shared,
            _ => Phase::Closed,
        }
    }

    /// Whether operations need no right from the lock server.
    fn is_free(&self) -> bool {
        matches!(self.phase(), Phase::Off | Phase::Alone)
    }

    fn set(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
    }

    fn round(&self) -> u64 {
        self.round.load(Ordering::SeqCst)
    }
}

/// This mount's rights on one object, for as long as it is open.
#[derive(Debug)]
pub(in crate::client) struct Own {
    ino: Ino,
    clock: Arc<Clock>,
    /// The object; this module does not take its locks in general.
    object: Mutex<Weak<Object>>,
    /// Operations that began in a phase `alone`; writes are counted separately.
    alone: AtomicUsize,
    writing: AtomicUsize,
    /// The kernel has asked for a page since the object was opened: from then on, writes are listed.
    paged: AtomicBool,
    /// Pages may be older than the object's bytes.
    distrusted: AtomicBool,
    /// Epochs `alone` that began since the form was last fetched. Other mounts may have written before such an epoch, and
    /// no grant in it brings the form: the next operation fetches it.
    outdated: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

/// The rights of one mount; see the module documentation.
#[derive(Default)]
pub(in crate::client) struct Rights {
    clock: Arc<Clock>,
    /// The epoch is over, and the polling thread has to end it.
    reset: AtomicBool,
    stopping: AtomicBool,
    owns: Mutex<HashMap<Ino, Arc<Own>>>,
    /// The epoch of the rights held, none between epochs, and the latest grant in it. No other lock is taken under this
    /// one.
    last_grant: Mutex<LastGrant>,
    last_ticket: AtomicU64,
    work: Mutex<recall::Work>,
    /// Signals work to the recall threads.
    called: Condvar,
    /// Wakes the polling thread when the epoch has changed.
    epoch_changed: Condvar,
    epoch_wait: Mutex<()>,
    /// Since when this session is the only one, though not alone in its epoch.
    only_since: Mutex<Option<(RightsEpoch, Instant)>>,
    pub(in crate::client) counts: Counts,
}

/// Message counts.
#[derive(Default)]
pub(in crate::client) struct Counts {
    /// Asks sent.
    pub(in crate::client) asked: AtomicU64,
    /// Grants received.
    pub(in crate::client) granted: AtomicU64,
    /// Recalls received.
    pub(in crate::client) recalled: AtomicU64,
    /// Releases sent.
    pub(in crate::client) given: AtomicU64,
}

impl Rights {
    /// The rights of a session that attached; `None` in mode `commit`.
    pub(in crate::client) fn new(begun: Option<RightsBegun>) -> Rights {
        let rights = Rights::default();
        if let Some(begun) = begun {
            rights.begin(rights.clock.round(), begun);
        }
        rights
    }

    /// Whether this mount is strict.
    pub(in crate::client) fn strict(&self) -> bool {
        self.clock.phase() != Phase::Off
    }

    /// Whether this mount is the only strict one.
    pub(in crate::client) fn alone(&self) -> bool {
        self.clock.phase() == Phase::Alone
    }

    /// Whether operations need rights.
    pub(in crate::client) fn shared(&self) -> bool {
        matches!(self.clock.phase(), Phase::Shared | Phase::Closed)
    }

    /// Whether names may be cached: not between two epochs.
    pub(in crate::client) fn keeps_names(&self) -> bool {
        self.clock.phase() == Phase::Shared
    }

    fn epoch(&self) -> RightsEpoch {
        self.last_grant.lock().epoch()
    }

    fn next_ticket(&self) -> RightTicket {
        RightTicket(self.last_ticket.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The rights state of an object that is being opened.
    pub(in crate::client) fn own(&self, ino: Ino) -> Arc<Own> {
        let mut owns = self.owns.lock();
        let own = owns
            .entry(ino)
            .or_insert_with(|| Own::new(ino, &self.clock));
        own.state.lock().open = true;
        own.clone()
    }

    /// An object is closed: its rights are dropped here. The lock server is notified later.
    pub(in crate::client) fn disown(&self, own: &Arc<Own>) {
        let mut owns = self.owns.lock();
        let mut state = own.state.lock();
        state.disown();
        if state.is_idle() {
            drop(state);
            forget(&mut owns, own);
        }
    }

    /// Called after a recall is handled; its object may have been closed meanwhile, and opened again.
    fn tidy(&self, own: &Arc<Own>) {
        let mut owns = self.owns.lock();
        let unused = {
            let state = own.state.lock();
            !state.open && state.is_idle()
        };
        if unused {
            forget(&mut owns, own);
        }
    }

    fn find(&self, ino: Ino) -> Option<Arc<Own>> {
        self.owns.lock().get(&ino).cloned()
    }

    fn all(&self) -> Vec<Arc<Own>> {
        self.owns.lock().values().cloned().collect()
    }

    /// Wakes all threads that wait, to check again.
    fn wake_all(&self) {
        for own in self.all() {
            let _order = own.state.lock();
            own.changed.notify_all();
        }
        let _order = self.epoch_wait.lock();
        self.epoch_changed.notify_all();
    }

    /// Begins an epoch in which nothing is held, unless the session of `round` is lost.
    fn begin(&self, round: u64, begun: RightsBegun) {
        let phase = match begun.alone {
            true => Phase::Alone,
            false => Phase::Shared,
        };
        if begun.alone {
            for own in self.all() {
                own.outdated.fetch_add(1, Ordering::SeqCst);
            }
        }
        let mut last_grant = self.last_grant.lock();
        if round == self.clock.round() {
            *last_grant = LastGrant::of(begun.epoch);
            self.clock.set(phase);
        }
        drop(last_grant);
        self.wake_all();
    }

    /// Records that a grant was received; false if its epoch is over.
    fn hear(&self, epoch: RightsEpoch, serial: RightSerial) -> bool {
        let counts = self.last_grant.lock().hear(epoch, serial);
        if counts {
            self.counts.granted.fetch_add(1, Ordering::Relaxed);
        }
        counts
    }

    /// The latest grant received in an epoch, if that is not over.
    fn heard(&self, epoch: RightsEpoch) -> Option<RightSerial> {
        self.last_grant.lock().heard(epoch)
    }

    /// The number of objects with rights.
    pub(in crate::client) fn held(&self) -> usize {
        let held = |own: &Arc<Own>| own.state.lock().held.any();
        self.all().iter().filter(|own| held(own)).count()
    }
}

/// Removes `own`, but not another entry that has replaced it: grants would no longer find that one, and a recall
/// would be answered without it.
fn forget(owns: &mut HashMap<Ino, Arc<Own>>, own: &Arc<Own>) {
    if owns
        .get(&own.ino)
        .is_some_and(|there| Arc::ptr_eq(there, own))
    {
        owns.remove(&own.ino);
    }
}

impl Own {
    fn new(ino: Ino, clock: &Arc<Clock>) -> Arc<Own> {
        Arc::new(Own {
            ino,
            clock: clock.clone(),
            object: Mutex::new(Weak::new()),
            alone: AtomicUsize::new(0),
            writing: AtomicUsize::new(0),
            paged: AtomicBool::new(false),
            distrusted: AtomicBool::new(false),
            outdated: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Sets the object that these rights are for.
    pub(in crate::client) fn belongs_to(&self, object: &Arc<Object>) {
        *self.object.lock() = Arc::downgrade(object);
    }

    /// Whether the kernel may have pages of the object.
    pub(in crate::client) fn was_paged(&self) -> bool {
        self.paged.load(Ordering::SeqCst)
    }

    /// Pages that the kernel has of the object may be older than its bytes: they are not used again once it is closed.
    /// Returns whether some of them may be modified.
    pub(in crate::client) fn distrust_pages(&self) -> bool {
        self.distrusted.store(true, Ordering::SeqCst);
        self.state.lock().held.has_pages_to_write()
    }

    /// Whether pages may be older than the object's bytes.
    pub(in crate::client) fn distrusts_pages(&self) -> bool {
        self.distrusted.load(Ordering::SeqCst) || !self.state.lock().held.knows_pages()
    }

    /// The number of open files of this mount that can write.
    pub(in crate::client) fn writers(&self) -> usize {
        self.state.lock().held.writers
    }

    fn object(&self) -> Option<Arc<Object>> {
        self.object.lock().upgrade()
    }
}

impl Client {
    /// Whether this mount is strict: its reads never return old data.
    pub fn strict(&self) -> bool {
        self.rights.strict()
    }

    /// Whether operations may have to wait for rights.
    pub fn shared(&self) -> bool {
        self.rights.shared()
    }
}

#[cfg(test)]
pub(in crate::client) mod model;
#[cfg(test)]
mod tests;
