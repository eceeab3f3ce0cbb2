//! Counters of requests to data servers: the numbers by which layouts are compared.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use crate::name::ChunkForm;

/// A volume above this is not a chunk's size but that of an unbounded grid chunk; see [`touched`].
const UNBOUNDED: u64 = 1 << 48;

/// Counters of a mount, separate for reads and writes. They only grow.
#[derive(Debug, Default)]
pub struct Counters {
    /// Reads.
    pub read: Side,
    /// Writes.
    pub write: Side,
    /// Messages to servers of other processes; a resent message counts once.
    pub messages: AtomicU64,
}

/// Counters of one direction.
#[derive(Debug, Default)]
pub struct Side {
    /// Transfers: requests of a program. Counted by the client library.
    pub transfers: AtomicU64,
    /// Bytes those transfers selected. Counted by the client library.
    pub bytes_selected: AtomicU64,
    /// Pieces of chunks requested.
    pub server_ops: AtomicU64,
    /// Messages to other processes that carried those pieces.
    pub messages: AtomicU64,
    /// Bytes of those pieces.
    pub bytes_sent: AtomicU64,
    /// Bytes of the complete chunks of those pieces: what a store without partial reads would move.
    pub bytes_touched: AtomicU64,
}

impl Counters {
    /// All numbers now.
    pub fn snapshot(&self) -> CountersSnapshot {
        CountersSnapshot {
            read: self.read.snapshot(),
            write: self.write.snapshot(),
            messages: self.messages.load(Relaxed),
        }
    }
}

impl Side {
    /// Counts one transfer of a program.
    pub fn transfer(&self, bytes_selected: u64) {
        self.transfers.fetch_add(1, Relaxed);
        self.bytes_selected.fetch_add(bytes_selected, Relaxed);
    }

    /// Counts messages that were answered.
    pub(super) fn answered(&self, messages: u64) {
        self.messages.fetch_add(messages, Relaxed);
    }

    /// Counts one piece.
    pub(super) fn piece(&self, sent: u64, touched: u64) {
        self.server_ops.fetch_add(1, Relaxed);
        self.bytes_sent.fetch_add(sent, Relaxed);
        self.bytes_touched.fetch_add(touched, Relaxed);
    }

    fn snapshot(&self) -> SideSnapshot {
        SideSnapshot {
            transfers: self.transfers.load(Relaxed),
            bytes_selected: self.bytes_selected.load(Relaxed),
            server_ops: self.server_ops.load(Relaxed),
            messages: self.messages.load(Relaxed),
            bytes_sent: self.bytes_sent.load(Relaxed),
            bytes_touched: self.bytes_touched.load(Relaxed),
        }
    }
}

/// [`Counters`] at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CountersSnapshot {
    /// Reads.
    pub read: SideSnapshot,
    /// Writes.
    pub write: SideSnapshot,
    /// See [`Counters::messages`].
    pub messages: u64,
}

/// [`Side`] at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SideSnapshot {
    /// See [`Side::transfers`].
    pub transfers: u64,
    /// See [`Side::bytes_selected`].
    pub bytes_selected: u64,
    /// See [`Side::server_ops`].
    pub server_ops: u64,
    /// See [`Side::messages`].
    pub messages: u64,
    /// See [`Side::bytes_sent`].
    pub bytes_sent: u64,
    /// See [`Side::bytes_touched`].
    pub bytes_touched: u64,
}

/// The bytes a piece of `sent` bytes touches: its entire chunk, or only the piece itself where the chunk is an
/// unbounded file in canonical order.
pub(super) fn touched(form: &ChunkForm, sent: u64) -> u64 {
    form.volume().filter(|&v| v < UNBOUNDED).unwrap_or(sent)
}
