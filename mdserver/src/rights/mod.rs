//! Rights: what mounts may cache or buffer of an object, and what they have to return (NFSv4: delegations).
//! `docs/decisions/13-rights.md` describes the mount's side; this module is the lock server's side.
//!
//! # Invariants
//!
//! - **No two sessions hold conflicting rights.** This includes a session that has ended but whose end is not closed
//!   (`sessions/fence.rs`): its writes may still arrive.
//! - **Progress.** Conflicting requests for an object are granted in order of arrival. A holder that blocks the next
//!   request gets one recall. No request waits for a session that has ended and is closed.
//! - **A grant describes the object as committed at the time of the grant, or later**, so it includes everything that
//!   was flushed for it: a session commits before it returns a right. The reply to a request reads the object under
//!   the lock on the core's state under which the right was granted; an event reads it when it is fetched.
//! - **The lock server knows everything that a session holds**, and knows it before the session does; otherwise a
//!   right could be granted twice. Grants and returns cross on the network, so each return names the last grant that
//!   its sender had processed ([`crate::api::RightGive::serial`]), and removes nothing that came with a later one.
//!   This relies on what a session must do: it processes grants in the order of their numbers; it removes a right
//!   locally before it returns it; it answers each recall, also of what it does not hold; and after its last
//!   `Release` of an object it ignores every grant that it requested before, and requests none before that `Release`
//!   is answered.
//! - **Epochs** (`sessions/channel.rs`; resends: `sessions/answers.rs`). What both sides know holds for one epoch. A
//!   session that was alone in its epoch may hold anything, so when that epoch ends all others wait until the session has
//!   reset its rights ([`crate::api::Op::ResetRights`]) or is closed. The same holds for all sessions that existed before
//!   the lock server started. The rights that a session retains across a reset are rights that it held in the previous
//!   epoch, so they conflict with no other session's; they are recorded before any waiting request is served.
//! - **No thread of the service blocks indefinitely.** Polls end after ten seconds, size queries after two; all end
//!   when the service is about to stop.
//!
//! A session that attaches while data servers may still accept writes of sessions that ended before the lock server
//! started is not alone, and waits. Whether there are such sessions is derived from the sessions found in the store.
//! A session whose end was completed earlier (`sessions/end.rs`), but of which a data server had not been notified
//! when the lock server stopped, leaves no trace.
//!
//! # The parts
//!
//! - `held`: what one session holds of one object; `table`: who holds what, which requests wait, what is recalled. Both
//!   are pure.
//! - `session`: the state of one session; `server`: the table behind a lock, with epochs and events.
//! - `driven`: the lock server without a service, for the model of rights.
//! - `sizes`: size queries; `ops`: the operations.
//! - `names`: which sessions cache names and attributes of directories.
//!
//! Deliberately elsewhere: what a mount caches under a right, and flushing (the mount's side).

#[cfg(feature = "model")]
#[doc(hidden)]
pub mod driven;
mod held;
mod names;
mod ops;
mod server;
mod session;
mod sizes;
mod table;
mod widen;

pub(crate) use names::Touched;
pub(crate) use ops::{ask, cancel, events, forgot, give, look, report_size, reset, stat};
pub(crate) use server::LockServer;
