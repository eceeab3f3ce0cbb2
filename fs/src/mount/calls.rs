//! Per-user quotas of `.slabfs/call`: open calls, and the threads that run calls and list searches.
//!
//! Any user may open `.slabfs/call`, and a request may run for long. So each user has a quota of both, and some of
//! both is reserved for root and the user who mounted, so that an administrator is never locked out. Those two have no
//! quota; only the totals limit them.
//!
//! A call that has been idle for [`IDLE`] may be ended when another user needs its place. Later requests through it
//! return `ESTALE`, and the program opens the file again. A call whose request runs is never ended.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fuser::Errno;
use parking_lot::Mutex;

use super::errno::{Outcome, refused};
use super::exchange::Exchange;
use super::guard::guarded;
use super::pool::{Job, Pool};

/// Calls that may be open on a mount at the same time.
pub(super) const MOST_OPEN: usize = 64;
/// The part of [`MOST_OPEN`] that only root and the owner of the mount may use.
const RESERVED_OPEN: usize = 8;
/// Calls that one user may have open at the same time.
const USER_OPEN: usize = 16;
/// How long a call must have been idle before another one may take its place.
const IDLE: Duration = Duration::from_secs(10);

/// Threads; a job that finds none idle waits.
const THREADS: usize = 8;
/// The part of [`THREADS`] that only root and the owner of the mount may use.
const RESERVED_THREADS: usize = 2;
/// Threads that one user may use at the same time.
const USER_THREADS: usize = 4;

/// The open calls of a mount, and the threads that run them.
pub(super) struct Calls {
    /// The user who mounted; this user and root have no quota.
    owner: u32,
    open: Arc<Mutex<HashMap<u64, Opened>>>,
    pool: Arc<Pool>,
    queue: Arc<Mutex<FairQueue>>,
}

struct Opened {
    uid: u32,
    exchange: Arc<Exchange>,
}

/// The place of an open call; dropping it releases the place.
pub(super) struct Place {
    id: u64,
    open: Arc<Mutex<HashMap<u64, Opened>>>,
    exchange: Arc<Exchange>,
}

impl Place {
    /// The request and the reply of the call.
    pub(super) fn exchange(&self) -> &Exchange {
        &self.exchange
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.lock().remove(&self.id);
    }
}

/// Running jobs, and jobs that wait for a thread. Users are served round-robin, so a user with a long queue does not
/// delay another user by its full length.
#[derive(Default)]
struct FairQueue {
    running: Running,
    /// The waiting jobs of each user, oldest first.
    waiting: HashMap<u32, VecDeque<Job>>,
    /// The users with waiting jobs; the one that got a thread last is at the end.
    users: VecDeque<u32>,
}

#[derive(Default)]
struct Running {
    by_user: HashMap<u32, usize>,
    /// The running jobs of all users with a quota.
    shared: usize,
}

impl Calls {
    /// No open calls and no running jobs, on a mount of the user `owner`.
    pub(super) fn new(owner: u32) -> Calls {
        Calls {
            owner,
            open: Arc::default(),
            pool: Arc::new(Pool::unbounded("slabfs-call", THREADS)),
            queue: Arc::default(),
        }
    }

    /// Opens a call of a user; `number` is unique among open files.
    ///
    /// # Errors
    /// `EAGAIN` where the mount or the user has reached its limit.
    pub(super) fn open(&self, number: u64, uid: u32) -> Outcome<Place> {
        let free = self.is_free(uid);
        let all = MOST_OPEN - if free { 0 } else { RESERVED_OPEN };
        let mut open = self.open.lock();
        let own = open.values().filter(|opened| opened.uid == uid).count();
        if !free && own >= USER_OPEN && !end_idle(&mut open, Some(uid)) {
            return refused(
                Errno::EAGAIN,
                "too many calls of this user are open on this mount; try again",
            );
        }
        if open.len() >= all && !end_idle(&mut open, None) {
            return refused(
                Errno::EAGAIN,
                "too many calls are open on this mount; try again",
            );
        }
        let exchange = Arc::new(Exchange::begin());
        let opened = Opened {
            uid,
            exchange: exchange.clone(),
        };
        open.insert(number, opened);
        Ok(Place {
            id: number,
            open: self.open.clone(),
            exchange,
        })
    }

    /// Queues a job of a user, and starts all jobs that may run now.
    pub(super) fn submit(&self, uid: u32, job: Job) {
        let next = {
            let mut queue = self.queue.lock();
            queue.wait(uid, job);
            queue.next(self.owner)
        };
        for (uid, job) in next {
            run(&self.pool, &self.queue, self.owner, uid, job);
        }
    }

    /// Finishes all submitted jobs, then ends the threads.
    pub(super) fn stop(&self) {
        self.pool.stop();
    }

    fn is_free(&self, uid: u32) -> bool {
        is_free(uid, self.owner)
    }
}

fn is_free(uid: u32, owner: u32) -> bool {
    uid == 0 || uid == owner
}

/// Ends the call, of this user or of all, that has been idle longest, if it has been idle for [`IDLE`].
fn end_idle(open: &mut HashMap<u64, Opened>, of: Option<u32>) -> bool {
    let longest = open
        .iter()
        .filter(|(_, opened)| of.is_none_or(|uid| opened.uid == uid))
        .filter_map(|(&id, opened)| Some((opened.exchange.idle_since()?, id)))
        .min();
    let Some((since, id)) = longest else {
        return false;
    };
    let ended = since.elapsed() >= IDLE
        && open
            .get(&id)
            .is_some_and(|opened| opened.exchange.end(since));
    if ended {
        open.remove(&id);
    }
    ended
}

/// Runs a job, and then starts the jobs that may run because it has ended.
fn run(pool: &Arc<Pool>, queue: &Arc<Mutex<FairQueue>>, owner: u32, uid: u32, job: Job) {
    let (next_pool, queue) = (pool.clone(), queue.clone());
    pool.submit(Box::new(move || {
        // A job that panics releases its thread too.
        guarded("slabfs-call", job);
        let next = {
            let mut queue = queue.lock();
            queue.running.end(uid, is_free(uid, owner));
            queue.next(owner)
        };
        for (uid, job) in next {
            run(&next_pool, &queue, owner, uid, job);
        }
    }));
}

impl FairQueue {
    fn wait(&mut self, uid: u32, job: Job) {
        let own = self.waiting.entry(uid).or_default();
        if own.is_empty() {
            self.users.push_back(uid);
        }
        own.push_back(job);
    }

    /// Removes and returns all jobs that may run now.
    fn next(&mut self, owner: u32) -> Vec<(u32, Job)> {
        let mut next = Vec::new();
        // Round-robin, until every user has been skipped since the last job was taken.
        let mut skipped = 0;
        while skipped < self.users.len() {
            let Some(uid) = self.users.pop_front() else {
                break;
            };
            if !self.running.begin(uid, is_free(uid, owner)) {
                self.users.push_back(uid);
                skipped += 1;
                continue;
            }
            skipped = 0;
            let own = self.waiting.get_mut(&uid);
            next.extend(own.and_then(VecDeque::pop_front).map(|job| (uid, job)));
            match self.waiting.get(&uid) {
                Some(own) if !own.is_empty() => self.users.push_back(uid),
                _ => drop(self.waiting.remove(&uid)),
            }
        }
        next
    }
}

impl Running {
    /// Counts one more job of a user if its quota allows. Users without a quota wait in the pool's own queue.
    fn begin(&mut self, uid: u32, free: bool) -> bool {
        if free {
            return true;
        }
        let own = self.by_user.get(&uid).copied().unwrap_or(0);
        if own >= USER_THREADS || self.shared >= THREADS - RESERVED_THREADS {
            return false;
        }
        self.by_user.insert(uid, own + 1);
        self.shared += 1;
        true
    }

    fn end(&mut self, uid: u32, free: bool) {
        if free {
            return;
        }
        self.shared -= 1;
        if let Some(own) = self.by_user.get_mut(&uid) {
            *own -= 1;
            if *own == 0 {
                self.by_user.remove(&uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const OWNER: u32 = 1000;

    /// Opens calls of a user until one is refused.
    fn open_all(calls: &Calls, uid: u32) -> Vec<Place> {
        (0..=MOST_OPEN as u64)
            .map_while(|at| calls.open(u64::from(uid) << 32 | at, uid).ok())
            .collect()
    }

    #[test]
    fn users_have_a_quota_and_root_and_the_owner_a_reserve() {
        let calls = Calls::new(OWNER);
        let one = open_all(&calls, 1);
        assert_eq!(one.len(), USER_OPEN);
        let others: Vec<_> = (2..10).map(|uid| open_all(&calls, uid)).collect();
        let all = others.iter().map(Vec::len).sum::<usize>() + one.len();
        assert_eq!(all, MOST_OPEN - RESERVED_OPEN);
        let reserved = open_all(&calls, 0);
        assert_eq!(reserved.len(), RESERVED_OPEN);
        assert!(calls.open(1, OWNER).is_err());
        drop(reserved);
        assert_eq!(open_all(&calls, OWNER).len(), RESERVED_OPEN);
        drop(one);
        assert_eq!(open_all(&calls, 1).len(), USER_OPEN);
        drop(others);
        assert!(calls.open.lock().is_empty());
    }

    /// Makes the call look as if it had been idle for long.
    fn age(place: &Place) {
        place.exchange().age(IDLE);
    }

    #[test]
    fn an_idle_call_makes_room() {
        let calls = Calls::new(OWNER);
        let mut own = open_all(&calls, 1);
        age(&own[3]);
        let more = calls.open(77, 1).expect("in the place of the idle one");
        assert!(calls.open(78, 1).is_err());
        assert!(own[3].exchange().idle_since().is_some());
        // Closing the call that was ended does not free a second place.
        own.remove(3);
        assert!(calls.open(78, 1).is_err());
        // The idle call of another user is ended where the mount is full.
        let _others: Vec<_> = (2..10).map(|uid| open_all(&calls, uid)).collect();
        assert!(calls.open(79, 11).is_err());
        age(&own[0]);
        let _last = calls.open(79, 11).expect("in the place of the idle one");
        drop(more);
    }

    #[test]
    fn a_user_has_some_threads() {
        let calls = Calls::new(OWNER);
        let (started, starts) = mpsc::channel();
        let mut ends = HashMap::<u32, Vec<mpsc::Sender<()>>>::new();
        let mut submit = |uid: u32| {
            let (end, ended) = mpsc::channel::<()>();
            ends.entry(uid).or_default().push(end);
            let started = started.clone();
            let job = move || {
                started.send(uid).expect("listened to");
                // Until the other end is dropped.
                ended.recv().expect_err("nothing is sent");
            };
            calls.submit(uid, Box::new(job));
        };
        for _ in 0..20 {
            submit(1);
        }
        for _ in 0..USER_THREADS {
            assert_eq!(starts.recv(), Ok(1));
        }
        submit(2);
        assert_eq!(starts.recv(), Ok(2));
        submit(3);
        assert_eq!(starts.recv(), Ok(3));
        submit(4);
        submit(0);
        assert_eq!(starts.recv(), Ok(0));
        submit(OWNER);
        assert_eq!(starts.recv(), Ok(OWNER));
        // The remaining jobs run as others end, and a panic ends a job too.
        ends.remove(&3);
        assert_eq!(starts.recv(), Ok(4));
        calls.submit(2, Box::new(|| panic!("on purpose")));
        ends.clear();
        assert_eq!(starts.iter().take(16).filter(|&uid| uid == 1).count(), 16);
        calls.stop();
        let queue = calls.queue.lock();
        assert!(queue.waiting.is_empty() && queue.users.is_empty());
        assert_eq!((queue.running.shared, queue.running.by_user.len()), (0, 0));
    }

    /// Two users have all unreserved threads and long queues: a third user waits for one job of each.
    #[test]
    fn a_long_queue_of_one_user_does_not_delay_another() {
        let mut queue = FairQueue::default();
        let mut begun = Vec::new();
        let mut start =
            |queue: &mut FairQueue| begun.extend(queue.next(OWNER).into_iter().map(|(uid, _)| uid));
        for uid in [1, 2] {
            (0..100).for_each(|_| queue.wait(uid, Box::new(|| ())));
            start(&mut queue);
        }
        queue.wait(3, Box::new(|| ()));
        start(&mut queue);
        for uid in [1, 2, 1] {
            queue.running.end(uid, false);
            start(&mut queue);
        }
        assert_eq!(begun[..6], [1, 1, 1, 1, 2, 2]);
        assert_eq!(begun.len(), 9);
        assert!(begun[6..].contains(&3), "{begun:?}");
    }
}
