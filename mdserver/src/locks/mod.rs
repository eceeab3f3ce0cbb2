//! Advisory locks, `fcntl` and `flock`, of all mounts of the filesystem: they meet here, at the lock server.
//!
//! ```text
//!   mount                                  lock server
//!   Lock { ask } ------------------------> granted, refused, a deadlock: Decided
//!                                          somebody is in the way: Queued, in order of arrival
//!   LockEvents { seen, wait } -----------> (one poll a mount, for all that waits there)
//!                  <---------------------- the request with this ticket has its lock
//!   CancelLock { ticket } ---------------> its process was killed: it leaves the queue at once
//! ```
//!
//! A lock that nobody is in the way of costs one message, and so does giving it up. Nothing of a lock is
//! stored: when the lock server begins a new epoch, each mount tells what it holds.
//!
//! # A lock whose file is being closed
//!
//! A kernel tells its mount of the last close of a file after `close` has returned, or its process has ended;
//! so somebody who saw that would find the whole-file lock still held, and be refused. But it tells of every
//! `close` of a descriptor *before* that returns. A mount passes on that one of a file with such a lock was
//! closed ([`crate::api::LockWant::Ending`]) before it lets the `close` return. Whoever then asks for the lock without wanting
//! to wait waits all the same for a second at most, after which he is refused: another descriptor of the file
//! was open. (Locks of `fcntl` on open file descriptions end late too, and it is not done for them: waits of
//! record locks are looked through for deadlocks, and such a wait is none.)
//!
//! # What holds
//!
//! - No two locks that exclude each other are held at the same time, on whatever mounts.
//! - Who waits gets on in the order of arrival (`table` says in which one case not), and starves nobody.
//! - A request that comes twice, or long after its answer, does nothing the second time: it has a number
//!   ([`crate::api::Request::seq`]), its reply is kept until the session says that it has it, and what is
//!   below that is refused.
//! - The changes of a session's locks are numbered without a gap, and each reply and event carries its
//!   number. So the mount, to which they come on several connections and in any order, knows at any time
//!   what it holds, in the order in which it happened here.
//! - A session that ends has no locks and waits for none, from the same moment on.
//! - **Lives.** Each start of the service begins an epoch with a number of its own. A request names the epoch it
//!   is made for; in another it does nothing, and the answer is `Reclaim`. The mount then tells all it holds
//!   ([`crate::api::Op::ReclaimLocks`]), which begins an epoch of that session, and what waited asks anew. It
//!   does the same when it cannot know what became of a request, as when the lock server was away for too long.
//! - **After it was told, lock server and mount have the same of the session's locks, byte for byte.** The mount tells
//!   what programs know that they have. That may be more than there is: an unlock whose reply was lost was
//!   done, and another mount has the bytes by now. So of what is told, the session gets each byte as far as
//!   others' locks allow it (of an exclusive lock that meets shared ones, a shared one), and the reply names
//!   the rest, which the mount takes out of what it knows. Both halves matter. Were the whole span refused for
//!   one byte of it, the session would lose bytes that it was never in doubt of, and another mount would be
//!   given what a program here holds. Were the mount not told which, it would claim those bytes once more the
//!   next time, when their owner has given them up, for a program that has long unlocked them; and an unlock
//!   would find nothing at the lock server to number, so that the mount never forgot them.
//! - What was told before is not taken in after what was told later, however long a copy was on its way.
//! - **Grace.** After a start nothing is given to anybody until every session that was attached before has
//!   told what it holds or has ended, at most for one lease: requests are queued, and decided in their order
//!   when the grace is over. Unlocking works meanwhile.
//!
//! # The parts
//!
//! - `spans`: the locks of one owner on one file. Mounts use it to keep what they hold.
//! - `table`: who holds what, who waits, who goes first, deadlocks; pure.
//! - `lock_server`: the table behind a lock, with sessions, lives, events and resends; `ending`: whose files are being closed;
//!   `tries`: who does not want to wait; `ops`: the operations.
//!
//! Deliberately elsewhere: what `close` lets go and what a signal interrupts (the mount's, which hears of
//! both from its kernel); flushing what was written under a lock.

mod ending;
mod ops;
mod server;
mod spans;
mod table;
mod tries;

pub use spans::Spans;

pub(crate) use ops::{cancel, events, lock, reclaim};
pub(crate) use server::LockServer;
