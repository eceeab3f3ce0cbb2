//! Rights: what mounts may keep of objects, and what they have to give back. What they mean to a mount is told
//! in `docs/decisions/rights.md`; this is the lock server's side.
//!
//! # What holds
//!
//! - **No two sessions have rights that go against each other**, also not one of which is here no more than
//!   that its end is not closed (`sessions/fence.rs`): what it wrote may still arrive.
//! - **Everyone gets on.** Asks of an object that collide are granted in the order in which they came; whoever
//!   is in the way of the next one hears so, once. Nobody waits for one that has ended and is closed.
//! - **A grant tells of the object as it was committed then, or later**, so with all that was flushed for it:
//!   who gives a right back has committed before. The reply to an ask reads the object with the core's state
//!   locked, under which it was granted; an event reads it when it is fetched.
//! - **What a session has is known here**, all of it and before it hears so; else it would be given twice. Grants
//!   and givings pass each other on their ways, so each giving names the last grant that its sender had counted in
//!   ([`crate::api::RightGive::serial`]) and takes nothing that came with a later one. It rests on what a session
//!   has to do: it counts grants in the order of their numbers; it takes out what it gives before it says so; it
//!   answers each recall, also of what it does not have; and after its last `Release` of an object it counts
//!   no grant of it that was asked for before, and asks for none before that is answered.
//! - **Lives.** What both know holds for an epoch. Requests name theirs, and do nothing when it is over. One that
//!   was alone in its epoch may keep anything, so its end makes everybody wait until it has begun anew
//!   ([`crate::api::Op::ResetRights`]) or is closed; the same is so for all sessions that were there before
//!   the lock server was started. A copy of an older request to begin anew is refused. What a session says that it keeps
//!   beyond the end of an epoch, it had in that one: so it goes against nobody's right, and it is taken in before
//!   anybody who waits is served.
//! - **A request that comes again does nothing again**: as with locks, its reply is kept until the session says
//!   that it has it.
//! - **No thread of the service is held for good.** Polls end after ten seconds, questions for sizes after
//!   two; all end when the service is about to stop.
//!
//! Who attaches while data servers may still take writes of sessions that ended before the start of the lock server
//! is not alone, and waits. Whether there are any is known from the sessions found in the store; of one whose
//! end was done with before (`sessions/end.rs`), and which a data server had not heard of when the lock server
//! stopped, nothing is known.
//!
//! # The parts
//!
//! - `area`: sets of cells; `held`: what one session has of one object; `table`: who has what, who waits, what
//!   is recalled: pure, all three.
//! - `session`: what is kept of a session; `lock_server`: the table behind a lock, with lives, events and resends.
//! - [`driven`]: the lock server without a service, for the model of rights.
//! - `sizes`: questions for sizes; `ops`: the operations.
//!
//! - `names`: who keeps names and attributes of directories.
//!
//! Deliberately elsewhere: what a mount keeps under a right, and flushing (the mount's).

mod area;
#[doc(hidden)]
pub mod driven;
mod held;
mod names;
mod ops;
mod server;
mod session;
mod sizes;
mod table;

pub(crate) use names::Touched;
pub(crate) use ops::{ask, cancel, events, forgot, give, look, reset, stat, tell_size};
pub(crate) use server::LockServer;
