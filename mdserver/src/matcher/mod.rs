//! Coupled objects: readers are matched with writers.
//!
//! A read of a coupled object waits until its cells are written, or no writer is left. What is written is in the
//! object's tiling: a writer's mount *announces* data by committing its chunks, which are in its memory
//! (docs/decisions/29-coupling.md). So matching asks which cells of a read have no chunk yet, and which commit brings
//! them.
//!
//! ```text
//! reader's mount                       service                         writer's mount
//! match: cells, wait ------------->    cells missing in the tiling?
//!                                      in a table until           <--- commit: boxes of chunks
//!                                      these are cut out of it
//! the tiling with the cells  <-----    nothing is left
//! ```
//!
//! - `table` the cells that waiting reads miss: one table a matcher, an index of boxes in each (pure)
//! - `division` which cells are with which matcher (pure)
//! - `watches` sessions that are notified of every announcement
//! - `deadlock` finds programs that wait for each other (pure)
//! - `streams` who has a coupled object open, and so whether writers may still come (pure)
//! - `ops` the operations
//!
//! Invariants: a waiting read misses exactly the cells that its table has for it. It is woken when a commit brings the
//! last of them, and when a writer comes or leaves. What is missing is determined and put into the tables under the lock
//! of the object's tiling, which commits hold, too. Everything here is in memory: after a restart mounts report again
//! what they have open, and reads that wait ask again.

mod deadlock;
mod division;
mod ops;
mod streams;
mod table;
mod watches;

pub(crate) use ops::{await_name, await_room, broken, end, matched, opens, status, watch};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slabfs_model::{Hyperslab, Region, SessionId, Version};

use crate::api::{ArrayInfo, CoupledOpen, Ino, MdError};
use division::Division;
use streams::Streams;
use table::{Table, Ticket};
use watches::Watches;

/// Most reads of one session that wait at the same time.
const MOST_READS: usize = 4096;
/// Deadlocks are looked for at most this often, for all reads together.
const DEADLOCKS_EVERY: Duration = Duration::from_millis(250);

/// The matchers of all coupled objects.
#[derive(Debug)]
pub(crate) struct Matchers {
    streams: Mutex<Streams>,
    objects: Mutex<HashMap<Ino, Arc<Waiting>>>,
    watches: Watches,
    next: AtomicU64,
    /// When the service started: before its mounts have reported what they have open, no stream has ended.
    since: Instant,
    /// It was running before, and sessions may trust what they were notified of then.
    restarted: bool,
    /// Reads do not wait: the server is about to stop.
    ending: AtomicBool,
    /// New names so far, while anything waits for one.
    names: Mutex<Names>,
    named: Condvar,
    deadlocks: Mutex<Deadlocks>,
    /// Counts reports of what is open; waits for room in queues look again after each.
    reports: Mutex<u64>,
    reported: Condvar,
}

/// The reads that wait for each other, as found last.
#[derive(Debug, Default)]
struct Deadlocks {
    found: Option<Instant>,
    reads: BTreeSet<Ticket>,
}

#[derive(Debug, Default)]
struct Names {
    count: u64,
    waiting: usize,
}

/// The reads of one object that wait.
#[derive(Debug)]
struct Waiting {
    division: Division,
    tables: Box<[Mutex<Table>]>,
    reads: Mutex<BTreeMap<Ticket, Arc<Read>>>,
}

/// A read that waits.
#[derive(Debug)]
pub(crate) struct Read {
    ticket: Ticket,
    session: SessionId,
    pid: u32,
    cells: Vec<Region>,
    since: Instant,
    /// Tables in which it misses cells.
    tables: AtomicUsize,
    /// Something has changed for it: it has to look again.
    due: Mutex<bool>,
    woken: Condvar,
}

impl Read {
    fn wake(&self) {
        *self.due.lock() = true;
        self.woken.notify_all();
    }

    /// Waits until it is woken; at most until then.
    fn wait(&self, until: Instant) {
        let mut due = self.due.lock();
        while !*due && !self.woken.wait_until(&mut due, until).timed_out() {}
    }
}

impl Waiting {
    fn new(info: &ArrayInfo, rank: usize) -> Waiting {
        let matchers = info.couple.on().map_or(1, |couple| couple.matchers.max(1));
        let division = Division::new(info, usize::from(matchers));
        Waiting {
            tables: (0..division.tables())
                .map(|_| Mutex::new(Table::new(rank)))
                .collect(),
            division,
            reads: Mutex::default(),
        }
    }

    fn add(&self, read: &Arc<Read>, missing: &[Region]) {
        let mut by_table: BTreeMap<usize, Vec<Region>> = BTreeMap::new();
        for region in missing {
            for (table, part) in self.division.parts(region) {
                by_table.entry(table).or_default().push(part);
            }
        }
        read.tables.store(by_table.len(), Ordering::SeqCst);
        self.reads.lock().insert(read.ticket, Arc::clone(read));
        for (table, parts) in by_table {
            let mut table = self.tables[table].lock();
            for part in &parts {
                table.add(read.ticket, part);
            }
        }
    }

    fn announce(&self, slab: &Hyperslab) {
        let Some(bounds) = slab.bounds() else { return };
        let region = slab.as_region();
        let mut ready: Vec<Ticket> = Vec::new();
        for table in self.division.tables_of(&bounds) {
            let mut table = self.tables[table].lock();
            if table.is_empty() {
                continue;
            }
            match &region {
                Some(region) => {
                    let complete = table.cut(region);
                    drop(table);
                    let reads = self.reads.lock();
                    ready.extend(complete.into_iter().filter(|ticket| {
                        let read = reads.get(ticket);
                        read.is_some_and(|read| read.tables.fetch_sub(1, Ordering::SeqCst) == 1)
                    }));
                }
                // A lattice has gaps: whether cells are still missing is looked up again.
                None => ready.extend(table.within(&bounds)),
            }
        }
        let reads = self.reads.lock();
        ready
            .iter()
            .filter_map(|ticket| reads.get(ticket))
            .for_each(|read| read.wake());
    }

    fn remove(&self, ticket: Ticket) {
        self.reads.lock().remove(&ticket);
        for table in &self.tables {
            table.lock().remove(ticket);
        }
    }

    fn missing(&self, ticket: Ticket) -> Vec<Region> {
        self.tables
            .iter()
            .flat_map(|table| table.lock().missing(ticket))
            .collect()
    }
}

impl Matchers {
    /// No object is coupled yet. `restarted`: sessions from before the start of the service continue.
    pub(crate) fn new(restarted: bool) -> Matchers {
        Matchers {
            streams: Mutex::default(),
            objects: Mutex::default(),
            watches: Watches::default(),
            next: AtomicU64::new(1),
            since: Instant::now(),
            restarted,
            ending: AtomicBool::new(false),
            names: Mutex::default(),
            named: Condvar::new(),
            deadlocks: Mutex::default(),
            reports: Mutex::default(),
            reported: Condvar::new(),
        }
    }

    /// Data has come to an object: the chunks of a commit. The caller holds the lock of its tiling.
    pub(crate) fn announce<'a>(&self, ino: Ino, slabs: impl Iterator<Item = &'a Hyperslab>) {
        let waiting = self.objects.lock().get(&ino).cloned();
        if let Some(waiting) = waiting {
            slabs.for_each(|slab| waiting.announce(slab));
        }
        self.watches.changed(ino);
    }

    /// Waits until all other sessions that watch an object know this version of its tiling. The caller holds no lock.
    pub(crate) fn settle(&self, ino: Ino, version: Version, session: SessionId) {
        let since = self.restarted.then_some(self.since);
        self.watches.settle(ino, version, session, since);
    }

    /// What is written of an object has changed in another way, or whether more may come: its reads look again.
    pub(crate) fn wake(&self, ino: Ino) {
        let waiting = self.objects.lock().get(&ino).cloned();
        if let Some(waiting) = waiting {
            waiting.reads.lock().values().for_each(|read| read.wake());
        }
        self.watches.changed(ino);
    }

    /// A name was made.
    pub(crate) fn named(&self) {
        let mut names = self.names.lock();
        names.count += 1;
        if names.waiting > 0 {
            self.named.notify_all();
        }
    }

    /// An object is emptied or removed: its stream begins again.
    pub(crate) fn restart(&self, ino: Ino) {
        self.streams.lock().restart(ino);
        self.wake(ino);
    }

    /// A session is over.
    pub(crate) fn ended(&self, session: SessionId) {
        self.watches.ended(session);
        let changed = self.streams.lock().ended(session);
        changed.into_iter().for_each(|ino| self.wake(ino));
        self.has_report();
    }

    /// Sessions have opened or closed objects, or have read on.
    fn has_report(&self) {
        *self.reports.lock() += 1;
        self.reported.notify_all();
    }

    /// Reads may wait, or return at once.
    pub(crate) fn hold(&self, hold: bool) {
        self.ending.store(!hold, Ordering::SeqCst);
        self.watches.wake_all();
        self.named.notify_all();
        self.has_report();
        let all: Vec<Arc<Waiting>> = self.objects.lock().values().cloned().collect();
        for waiting in all {
            waiting.reads.lock().values().for_each(|read| read.wake());
        }
    }

    /// A read of a session begins to wait for cells. The caller holds the lock of the object's tiling.
    fn begin(
        &self,
        ino: Ino,
        info: &ArrayInfo,
        (session, pid, waited): (SessionId, u32, Duration),
        missing: &[Region],
        cells: &[Region],
    ) -> Result<Begun<'_>, MdError> {
        let rank = info.dims.len().max(1);
        let mut objects = self.objects.lock();
        let waiting = objects
            .entry(ino)
            .or_insert_with(|| Arc::new(Waiting::new(info, rank)));
        let count = {
            let reads = waiting.reads.lock();
            reads
                .values()
                .filter(|read| read.session == session)
                .count()
        };
        if count >= MOST_READS {
            return Err(MdError::Busy);
        }
        let read = Arc::new(Read {
            ticket: Ticket(self.next.fetch_add(1, Ordering::Relaxed)),
            session,
            pid,
            cells: cells.to_vec(),
            since: Instant::now()
                .checked_sub(waited)
                .unwrap_or_else(Instant::now),
            tables: AtomicUsize::new(0),
            due: Mutex::new(false),
            woken: Condvar::new(),
        });
        waiting.add(&read, missing);
        Ok(Begun {
            matchers: self,
            ino,
            waiting: Arc::clone(waiting),
            read,
        })
    }

    /// Whether a read waits for threads that wait themselves, and all of these reads have waited for so long that
    /// what their threads have written before is announced.
    fn is_deadlocked(&self, ticket: Ticket, settled: Duration) -> bool {
        let mut deadlocks = self.deadlocks.lock();
        let is_due = |found: Instant| found.elapsed() >= DEADLOCKS_EVERY;
        if deadlocks.found.is_none_or(is_due) {
            deadlocks.reads = self.deadlocked(settled);
            deadlocks.found = Some(Instant::now());
        }
        deadlocks.reads.contains(&ticket)
    }

    fn deadlocked(&self, settled: Duration) -> BTreeSet<Ticket> {
        let all: Vec<(Ino, Arc<Waiting>)> = {
            let objects = self.objects.lock();
            let all = objects.iter();
            all.map(|(ino, waiting)| (*ino, Arc::clone(waiting)))
                .collect()
        };
        let streams = self.streams.lock();
        let mut reads = BTreeMap::new();
        for (ino, waiting) in all {
            let writers: Vec<deadlock::Thread> = streams.writing(ino);
            for read in waiting.reads.lock().values() {
                if read.since.elapsed() >= settled {
                    let thread = (read.session, read.pid);
                    reads.insert(read.ticket, (thread, writers.clone()));
                }
            }
        }
        deadlock::deadlocked(&reads)
    }

    fn opens_of(&self, ino: Ino) -> Vec<(SessionId, CoupledOpen)> {
        self.streams.lock().of(ino)
    }
}

/// A read while it waits; it is removed from the tables when this is dropped.
struct Begun<'a> {
    matchers: &'a Matchers,
    ino: Ino,
    waiting: Arc<Waiting>,
    read: Arc<Read>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.waiting.remove(self.read.ticket);
        let mut objects = self.matchers.objects.lock();
        let idle = |waiting: &Arc<Waiting>| {
            Arc::ptr_eq(waiting, &self.waiting) && waiting.reads.lock().is_empty()
        };
        if objects.get(&self.ino).is_some_and(idle) {
            objects.remove(&self.ino);
        }
    }
}
