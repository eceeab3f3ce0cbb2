//! Transfers of regions: between a selection of the caller's memory and a selection of an object.
//!
//! A transfer is *created* ([`Handle::write_transfer`], [`Handle::read_transfer`], [`scope`] for borrowed
//! buffers), *started*, and *waited for*; `start` returns at once. [`start_all`] starts many together: their requests
//! to one data server travel in one message, writes before reads.
//!
//! A transfer is a request (`request`) that waits in a queue: an engine thread takes all that may run, up to a size, and
//! runs them together. By file: `queue` the order (pure), `engine` threads and the limit, `scope` borrowed buffers, `own`
//! the handle that a caller holds, `control` a second handle for other threads.
//!
//! # Invariants
//!
//! - *Order.* If the bounds of two transfers of one client on one object overlap, and one of them is a write, the one
//!   started earlier is done first. So a read sees a write that was started before it, waited for or not. Other
//!   operations, plain reads and writes of a handle, see a transfer when it has ended.
//! - *Range locks.* Each transfer of a selection is atomic, as each plain read and write is: it takes a range lock as
//!   they do (`range_lock`). A batch is not one atomic read or write.
//! - *Memory.* Only the engine touches a buffer from `start` to the end, and only the caller before and after. A scope
//!   does not return before its transfers have ended.
//! - *Limits.* The bytes in flight are limited by `ClientOptions::transfer_limit`, threads by `transfer_threads`; the
//!   engine gathers and converts only bytes of batches in flight.
//! - *Each transfer ends*, with its own result: every wait inside has a deadline, and a panic ends the transfers it
//!   hit.
//! - *Data first, receipt, commit*, as for a flush: a write has succeeded when its commit was confirmed. `fsync` syncs
//!   it to the disks.
//!
//! [`Handle::write_transfer`]: crate::client::Handle::write_transfer
//! [`Handle::read_transfer`]: crate::client::Handle::read_transfer

mod control;
mod engine;
mod own;
mod queue;
mod scope;

pub use control::Control;
pub use own::{Failed, StartAll, Startable, Transfer, start_all, start_all_async, wait_all};
pub use scope::{Scope, scope};

pub use crate::client::request::Memory;

pub(super) use engine::Transfers;
