//! Rights, as this mount has them: strict coherence with other mounts. docs/decisions/rights.md is the
//! contract with the lock server; this is the mount's side of it.
//!
//! An operation *enters* an object before it takes any of its locks ([`Client::enter`]), with a mode and the
//! cells it will touch, and leaves when its [`Op`] is dropped. What that comes to depends on the phase:
//!
//! | phase | an operation |
//! |---|---|
//! | off | does as it likes: the mount is in mode `commit` |
//! | alone | is counted, and nothing else: no other strict mount is there |
//! | shared | begins if what it needs is held, and else asks the lock server for it and waits |
//! | closed | waits: an epoch is over, and the next one has not begun; what runs goes on into that |
//!
//! In all phases a program's write and the kernel's pages of the same bytes exclude each other: see
//! `page_overlap`.
//!
//! The parts: `cells` sets of cells, `spans` of bytes; `held` what is held of one object, what runs and who waits;
//! `state` that with what is asked and given (all pure, and driven by `model`, which searches what can happen);
//! `needs` which cells a request needs; `op` entering and leaving; `ask` waiting and asking; `poll` the thread
//! that hears of grants and recalls; `page_overlap` writes where the kernel has pages; `recall` the threads that take back and give; `reset` the end of an epoch.
//!
//! # Who waits for whom
//!
//! The poll waits for the lock server only, and for locks that are held for moments ([`Own`], never an object's).
//! Recalls wait for operations that have begun, for the kernel to drop pages, and for servers; they hold no
//! lock meanwhile and have threads of their own. An operation that has begun waits for servers, never for a
//! right or for the kernel. An operation that has not begun holds nothing. So there is no circle.
//!
//! # What must not go apart
//!
//! The lock server knows exactly what this mount has, but for what is on its way; this mount may believe to have less,
//! never more. So an area is taken out before the lock server is told; while it is being told nothing is asked of the
//! same object; and a grant counts only if the ask that it answers is still there. A giving names the last
//! grant that was heard of any object: what was granted later stays. An earlier one that comes after the giving
//! does not count: what of it is left is not known.
//!
//! Grants come as answers or as events, recalls as events. So a recall may come before a grant that it knows of
//! only if that is the answer to an ask that is on its way: it is looked at when there is none any more.

mod ask;
mod cells;
mod held;
mod needs;
mod op;
mod page_overlap;
mod poll;
mod recall;
mod reset;
mod spans;
mod state;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex};
use slabfs_mdserver::api::{Ino, RightSerial, RightsBegun, RightsEpoch};

use super::Client;
use super::object::Object;
use state::{Line, State};

pub(super) use cells::Cells;
pub(super) use held::By;
pub(super) use op::Op;
pub(super) use recall::THREADS;
pub(super) use spans::Span;

/// Whether what mounts see of each other is strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// A read on any mount returns what the last completed write on any mount put there.
    Strict,
    /// Other mounts see data after `fsync` or `close`, from their next `open` on.
    Commit,
}

impl Consistency {
    /// Of mounts that do not say; decided here and nowhere else.
    pub const DEFAULT: Consistency = Consistency::Strict;
}

impl Default for Consistency {
    fn default() -> Consistency {
        Consistency::DEFAULT
    }
}

/// See the table in the module's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Off,
    Alone,
    Shared,
    Closed,
}

/// Which phase it is, for all objects, and how many lives were lost.
#[derive(Debug)]
struct Clock {
    phase: AtomicU8,
    /// Sessions that were lost: what began before one was does not count after it.
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

    /// Whether nobody has to be asked for anything.
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

/// What this mount has of the rights on one object, for as long as it is open.
#[derive(Debug)]
pub(super) struct Own {
    ino: Ino,
    clock: Arc<Clock>,
    /// The object; its locks are not for everybody here.
    object: Mutex<Weak<Object>>,
    /// Operations that began in an epoch alone; those that write are counted apart.
    alone: AtomicUsize,
    writing: AtomicUsize,
    /// The kernel has asked for a page since the object was opened: writes are listed from then on.
    paged: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

/// The rights of one mount; see the module's head.
pub(super) struct Rights {
    clock: Arc<Clock>,
    /// The epoch of what is held; 0 between lives.
    epoch: AtomicU64,
    /// An epoch that is over has to be ended here.
    reset: AtomicBool,
    stopping: AtomicBool,
    owns: Mutex<HashMap<Ino, Arc<Own>>>,
    line: Mutex<Line>,
    next_ticket: AtomicU64,
    work: Mutex<recall::Work>,
    /// There is work.
    called: Condvar,
    /// For the polling thread: what it waits for has changed.
    turned: Condvar,
    turning: Mutex<()>,
    asked: AtomicU64,
    granted: AtomicU64,
    recalled: AtomicU64,
    given: AtomicU64,
}

/// What it took to agree with other mounts.
pub(super) struct Counts {
    /// Asks made.
    pub(super) asked: u64,
    /// Grants heard.
    pub(super) granted: u64,
    /// Recalls heard.
    pub(super) recalled: u64,
    /// Givings sent.
    pub(super) given: u64,
}

impl Rights {
    /// Rights of a session that attached; none if it takes no part.
    pub(super) fn new(begun: Option<RightsBegun>) -> Rights {
        let rights = Rights {
            clock: Arc::new(Clock {
                phase: AtomicU8::new(Phase::Off as u8),
                round: AtomicU64::new(0),
            }),
            epoch: AtomicU64::new(0),
            reset: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            owns: Mutex::default(),
            line: Mutex::default(),
            next_ticket: AtomicU64::new(1),
            work: Mutex::default(),
            called: Condvar::new(),
            turned: Condvar::new(),
            turning: Mutex::new(()),
            asked: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            recalled: AtomicU64::new(0),
            given: AtomicU64::new(0),
        };
        if let Some(begun) = begun {
            rights.begin(begun);
        }
        rights
    }

    /// Whether this mount takes part.
    pub(super) fn strict(&self) -> bool {
        self.clock.phase() != Phase::Off
    }

    /// Whether this mount takes part, and no other does.
    pub(super) fn alone(&self) -> bool {
        self.clock.phase() == Phase::Alone
    }

    /// Whether rights have to be asked for.
    pub(super) fn shared(&self) -> bool {
        matches!(self.clock.phase(), Phase::Shared | Phase::Closed)
    }

    /// Whether names may be kept: not while one epoch is over and the next one has not begun.
    pub(super) fn keeps_names(&self) -> bool {
        self.clock.phase() == Phase::Shared
    }

    fn epoch(&self) -> RightsEpoch {
        RightsEpoch(self.epoch.load(Ordering::SeqCst))
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// What is held of an object that is being opened.
    pub(super) fn own(&self, ino: Ino) -> Arc<Own> {
        let mut owns = self.owns.lock();
        let own = owns
            .entry(ino)
            .or_insert_with(|| Own::new(ino, &self.clock));
        own.state.lock().open = true;
        own.clone()
    }

    /// An object is closed: nothing is held of it any more. The lock server will hear of it in its time.
    pub(super) fn disown(&self, own: &Arc<Own>) {
        let mut owns = self.owns.lock();
        let mut state = own.state.lock();
        state.disown();
        if state.is_idle() {
            drop(state);
            forget(&mut owns, own);
        }
    }

    /// A recall is done with; its object may have been closed meanwhile, and opened again.
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

    /// Lets everybody look again.
    fn stir(&self) {
        for own in self.all() {
            let _order = own.state.lock();
            own.changed.notify_all();
        }
        let _order = self.turning.lock();
        self.turned.notify_all();
    }

    /// Begins an epoch in which nothing is held.
    pub(super) fn begin(&self, begun: RightsBegun) {
        {
            let mut line = self.line.lock();
            *line = Line::of(begun.epoch);
        }
        self.epoch.store(begun.epoch.0, Ordering::SeqCst);
        self.clock.set(match begun.alone {
            true => Phase::Alone,
            false => Phase::Shared,
        });
        self.stir();
    }

    /// A grant has been heard; false if its epoch is over.
    fn hear(&self, epoch: RightsEpoch, serial: RightSerial) -> bool {
        let counts = self.line.lock().hear(epoch, serial);
        if counts {
            self.granted.fetch_add(1, Ordering::Relaxed);
        }
        counts
    }

    /// The latest grant that was heard in an epoch, if that is not over.
    fn heard(&self, epoch: RightsEpoch) -> Option<RightSerial> {
        self.line.lock().heard(epoch)
    }

    /// Objects with rights.
    pub(super) fn held(&self) -> usize {
        let held = |own: &Arc<Own>| own.state.lock().held.any();
        self.all().iter().filter(|own| held(own)).count()
    }

    /// Messages so far.
    pub(super) fn counts(&self) -> Counts {
        Counts {
            asked: self.asked.load(Ordering::Relaxed),
            granted: self.granted.load(Ordering::Relaxed),
            recalled: self.recalled.load(Ordering::Relaxed),
            given: self.given.load(Ordering::Relaxed),
        }
    }
}

/// Takes out `own`, and not another one that has come in its place: grants would not find that any more, and a recall
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
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Says whose rights these are.
    pub(super) fn belongs_to(&self, object: &Arc<Object>) {
        *self.object.lock() = Arc::downgrade(object);
    }

    fn object(&self) -> Option<Arc<Object>> {
        self.object.lock().upgrade()
    }
}

impl Client {
    /// Whether this mount takes part in rights: what it reads is never old.
    pub fn strict(&self) -> bool {
        self.rights.strict()
    }

    /// Whether operations may have to wait for rights.
    pub fn shared(&self) -> bool {
        self.rights.shared()
    }
}

#[cfg(test)]
pub(super) mod model;
#[cfg(test)]
mod tests;
