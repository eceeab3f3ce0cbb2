//! Advisory locks (`fcntl` and `flock`) of all mounts of the filesystem, arbitrated by the lock server.
//!
//! ```text
//!   mount                                  lock server
//!   Lock { ask } ------------------------> granted, refused, a deadlock: Decided
//!                                          conflicting lock held: Queued, in order of arrival
//!   LockEvents { seen, wait } -----------> (one poll per mount, for all its waiting requests)
//!                  <---------------------- the request with this ticket has its lock
//!   CancelLock { ticket } ---------------> its process was killed: it leaves the queue at once
//! ```
//!
//! A lock without conflict costs one message, and so does its release. Locks are not stored: when the lock server
//! begins a new epoch, each mount reclaims what it holds.
//!
//! # A lock whose file is being closed
//!
//! A kernel reports the last close of a file to its mount after `close` has returned, or after its process has ended.
//! An observer of that `close` would then find the `flock` lock still held, and be refused. But the kernel reports
//! every `close` of a descriptor *before* it returns (FUSE `flush`). A mount reports that a descriptor of a file with
//! such a lock was closed ([`crate::api::LockWant::Ending`]) before it lets the `close` return. A non-blocking
//! request for the lock that comes then waits nevertheless, for at most a second, and is refused after that: another
//! descriptor of the file was open. (Locks of `fcntl` on open file descriptions end late too, but are not handled
//! this way: waits for record locks are checked for deadlocks, and such a wait is none.)
//!
//! # Invariants
//!
//! - No two conflicting locks are held at the same time, on whatever mounts.
//! - Waiting requests are served in order of arrival (`table` describes the one exception), and none starves.
//! - The changes of a session's locks are numbered without a gap, and each reply and event carries its number. The
//!   mount receives them on several connections and in any order, and so knows at any time what it holds, in the
//!   order of the changes here.
//! - A session that ends loses its locks and its waiting requests at the same moment.
//! - **Epochs** (`sessions/channel.rs`; resends: `sessions/answers.rs`). Each start of the service begins an epoch with a
//!   number of its own. The answer to a request for another epoch is `Reclaim`. The mount then reclaims everything it holds
//!   ([`crate::api::Op::ReclaimLocks`]), which begins an epoch of that session, and repeats its waiting requests. It does
//!   the same when it cannot know the outcome of a request, for example when the lock server was unreachable for too long.
//! - **After a reclaim, lock server and mount agree on the session's locks, byte for byte.** The mount reclaims what
//!   its programs believe to hold. That may be too much: an unlock whose reply was lost was done, and another mount
//!   may hold the bytes by now. So of the reclaimed locks, the session gets each byte as far as others' locks allow
//!   it (of an exclusive lock that meets shared ones, a shared one), and the reply names the rest, which the mount
//!   removes from its records. Both halves matter. If the server refused the entire span for one byte of it, the
//!   session would lose bytes that it certainly holds, and another mount would be granted what a program here holds.
//!   If the mount did not learn which bytes it lost, it would reclaim them again the next time, after their owner had
//!   released them, for a program that unlocked them long ago; and an unlock would find nothing at the lock server to
//!   number, so that the mount would never drop them.
//! - **Grace.** After a start no lock is granted until every session that was attached before has reclaimed its locks
//!   or has ended, at most for one lease: requests are queued, and decided in order when the grace period ends.
//!   Unlocking works meanwhile.
//!
//! # The parts
//!
//! - `table`: who holds what, which requests wait, their order, deadlocks; pure. `table/list`: the same for people.
//! - `server`: the table behind a mutex, with sessions, epochs and grace; `tries`: non-blocking requests that wait for
//!   locks whose files are being closed; `ops`: the operations.
//!
//! Deliberately elsewhere: which locks `close` releases and what a signal interrupts (the mount's side, which its
//! kernel informs of both); flushing data written under a lock.

mod ops;
mod server;
mod table;
mod tries;

use crate::api::LockMode;

pub(crate) use ops::{cancel, events, list, lock, reclaim};
pub(crate) use server::LockServer;

/// The locks of one owner on one file, by their bytes. Setting a span replaces what was there, as POSIX requires. Mounts
/// use it too, to record what they hold.
pub type Spans = slabfs_model::Spans<LockMode>;
