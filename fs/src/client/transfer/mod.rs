//! Transfers of regions: between a selection of the caller's memory and a selection of an object.
//!
//! A transfer is *created* ([`Handle::write_transfer`], [`Handle::read_transfer`], [`scope`] for borrowed
//! buffers), *started*, and *waited for*; `start` returns at once. [`start_all`] starts many as one: what they
//! need of one data server travels in one message, writes before reads.
//!
//! # The flow
//!
//! ```text
//! start ─▶ queue: room? who is in the way? ─▶ an engine thread takes all that may run: a batch
//!    writes, then reads; of each object:
//!       enter (rights) ─▶ turn (whole) ─▶ form ─▶ plan
//!    all objects together:  one message a server
//!    of each object: writes: commit, known tiling, dirty runs beneath;  reads: what is newer over it
//! ◀─ result, wakers
//! ```
//!
//! By file: `memory` the memory side (`strided` by distances in bytes), `convert` types, `core` state and memory (all `unsafe`), `queue` order
//! (pure), `engine` threads and room, `scope` borrowed buffers, `own` what a caller holds, `control` what others may
//! hold beside; `batched` nested patterns as transfers; `run` entering objects,
//! `put` writes, `source` their bytes, `cut` their chunks, `get` reads; `put_batch` and `get_batch` where nested patterns
//! are among them.
//!
//! # What stays true
//!
//! - *Order.* Of transfers of one client on one object whose bounds overlap, one of them a write, the one
//!   started earlier is done first. A read so sees a write that was started before it, waited for or not. Other
//!   operations, plain reads and writes of a handle, see a transfer when it has ended.
//! - *RangeLocks.* Each transfer is seen whole, as each plain read and write is: it is listed with them (`whole`).
//! - *Memory.* Nobody but the engine touches a buffer from `start` to the end, and nobody but the caller before
//!   and after. A scope does not return before its transfers have ended.
//! - *Bounds.* The bytes under way are bounded by `ClientOptions::transfer_limit`, threads by
//!   `transfer_threads`; what the engine gathers or converts is that of batches under way.
//! - *Each ends*, with its own result: every wait inside has a deadline, and a panic ends what it hit.
//! - *Data first, receipt, commit*, as for a flush: a write has ended well when the commit was answered.
//!   `fsync` brings it to the disks.
//!
//! # Who waits for whom
//!
//! Several objects in one batch are entered without waiting for any: what cannot be had at once is left to be
//! run alone, after the rest. See docs/decisions/transfers.md for why that cannot hang, and for what else
//! was decided.
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
