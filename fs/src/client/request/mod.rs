//! Requests: (object, direction, pattern, memory), one or many at a time, of one object or several.
//!
//! ```text
//! plan       what it moves: a selection or a batch (plan), and where its bytes are in memory (memory, strided, convert, elements)
//!   ▼
//! enter      for each object: rights ─▶ range lock ─▶ form (run)
//!   ▼
//! look up    which parts of which chunks on which servers (read; write, with cut, in_place, pieces)
//!   ▼
//! move       all objects together, one message a server (read; commit/send)
//!   ▼
//! commit     writes: one commit an object (commit), then cached tilings and dirty runs below
//! paint      reads: the overlay of dirty data over what came
//! ```
//!
//! Started transfers (`transfer`) wait in a queue for a thread that runs them; batches of a handle (`batch`) and chunks that
//! are encoded already (`encoded`) are run by the thread that asks. Plain reads and writes of a handle go through caches and dirty data first (`read`, `write` of
//! the client) and share the steps below.
//!
//! Several objects are entered without blocking on any of them: an object that cannot be entered at once is run alone,
//! after the rest. See docs/decisions/19-transfers.md for why that cannot deadlock.

mod away;
mod batch;
mod convert;
pub(super) mod core;
mod cut;
mod elements;
mod encoded;
pub(super) mod group;
mod in_place;
mod memory;
mod pieces;
pub(super) mod plan;
mod read;
pub(super) mod run;
mod strided;
mod wanted;
mod write;

pub(super) use elements::room;
pub use encoded::EncodedChunk;
pub(super) use in_place::A_SERVER;
pub use memory::Memory;
