//! Transfers of regions: between a selection of the caller's memory and a selection of an object.
//!
//! A transfer is *created* ([`Handle::write_transfer`], [`Handle::read_transfer`], [`scope`] for borrowed
//! buffers), *started*, and *waited for*; `start` returns at once. [`start_all`] starts many together: their requests
//! to one data server travel in one message, writes before reads.
//!
//! # The flow
//!
//! ```text
//! start ─▶ queue: room? conflicts? ─▶ an engine thread takes all that may run: a batch
//!    writes, then reads; for each object:
//!       enter (rights) ─▶ range lock ─▶ form ─▶ plan
//!    all objects together:  one message a server
//!    for each object:
//!       writes: commit, cached tiling, dirty runs below
//!       reads:  the overlay painted over the data
//! ◀─ result, wakers
//! ```
//!
//! By file: `memory` is the memory side (`strided` by distances in bytes), `convert` converts dtypes, `core` holds the
//! state and memory (all `unsafe`), `queue` the order (pure), `engine` threads and the limit, `scope` borrowed buffers,
//! `own` the handle that a caller holds, `control` a second handle for other threads; `batched` makes nested patterns
//! transfers; `run` enters objects, `put` writes, `source` packs their bytes, `cut` divides them into chunks, `get`
//! reads; `put_batch` and `get_batch` do so where nested patterns are among them.
//!
//! # Invariants
//!
//! - *Order.* If the bounds of two transfers of one client on one object overlap, and one of them is a write, the one
//!   started earlier is done first. So a read sees a write that was started before it, waited for or not. Other
//!   operations, plain reads and writes of a handle, see a transfer when it has ended.
//! - *Range locks.* Each transfer is atomic, as each plain read and write is: it takes a range lock as they do
//!   (`range_lock`).
//! - *Memory.* Only the engine touches a buffer from `start` to the end, and only the caller before and after. A scope
//!   does not return before its transfers have ended.
//! - *Limits.* The bytes in flight are limited by `ClientOptions::transfer_limit`, threads by `transfer_threads`; the
//!   engine gathers and converts only bytes of batches in flight.
//! - *Each transfer ends*, with its own result: every wait inside has a deadline, and a panic ends the transfers it
//!   hit.
//! - *Data first, receipt, commit*, as for a flush: a write has succeeded when its commit was confirmed. `fsync` syncs
//!   it to the disks.
//!
//! # Waiting
//!
//! Several objects in one batch are entered without blocking on any of them: an object that cannot be entered at once
//! is run alone, after the rest. See docs/decisions/19-transfers.md for why that cannot deadlock, and for other
//! decisions.
//!
//! [`Handle::write_transfer`]: super::Handle::write_transfer
//! [`Handle::read_transfer`]: super::Handle::read_transfer

mod batched;
mod control;
mod convert;
mod core;
mod cut;
mod engine;
mod get;
mod get_batch;
mod memory;
mod own;
mod put;
mod put_batch;
mod queue;
mod run;
mod scope;
mod source;
mod strided;

pub use control::Control;
pub use memory::Memory;
pub use own::{Failed, StartAll, Startable, Transfer, start_all, start_all_async, wait_all};
pub use scope::{Scope, scope};

pub(super) use engine::Transfers;
