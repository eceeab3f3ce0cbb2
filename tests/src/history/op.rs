//! One operation of a history: process, times, request and answer.

use serde::{Deserialize, Serialize};

/// The end of an operation that never returned.
pub const NEVER: u64 = u64::MAX;

/// The value of a cell whose words differ: no write wrote that.
pub const TORN: u64 = u64::MAX;

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// The worker, which does one operation after the other.
    pub process: u32,
    /// The mount it works on.
    pub mount: u32,
    /// Just before the request, in ns of `CLOCK_MONOTONIC`.
    pub start: u64,
    /// Just after the answer; [`NEVER`] without one.
    pub end: u64,
    /// An object, or a directory of names.
    pub object: String,
    /// The request.
    pub call: Call,
    /// The answer.
    pub answer: Answer,
}

/// How cells are accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// By `pread` and `pwrite` of the handle that is open.
    Call,
    /// Through a mapping of it.
    Mapped,
    /// Through a selection `name@[…]`, which is opened and closed for each access.
    Selection,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// For cells: opens a handle.
    Open,
    /// `fsync` of the handle.
    Sync,
    /// `close` of the handle.
    Close,
    /// Writes one value into each of these cells.
    Write {
        /// Their numbers.
        cells: Vec<u32>,
        /// The value.
        value: u64,
        /// How.
        how: How,
    },
    /// Reads these cells.
    Read {
        /// Their numbers.
        cells: Vec<u32>,
        /// How.
        how: How,
    },
    /// Reads the attributes by name: only that there is an answer matters.
    Stat,
    /// For records: appends one (`O_APPEND`).
    Append {
        /// The record.
        value: u64,
    },
    /// Sets the number of records (`ftruncate`); new ones are zero.
    Resize {
        /// Their number.
        records: u64,
    },
    /// Reads the number of records (`fstat`).
    Size,
    /// Reads all records (`pread` from 0 on with room for more than there are).
    ReadAll,
    /// For names: creates a file (`O_CREAT | O_EXCL`).
    Create {
        /// Its name.
        name: String,
    },
    /// Removes a name.
    Unlink {
        /// Which.
        name: String,
    },
    /// Renames a file, replacing an existing one.
    Rename {
        /// Its name.
        from: String,
        /// The new, different one.
        to: String,
    },
    /// Looks a name up (`stat`, or `open` and `fstat`).
    Look {
        /// The name.
        name: String,
    },
    /// Takes a `fcntl` lock on a range, waiting or not.
    Lock {
        /// First byte.
        first: u64,
        /// Number of bytes.
        len: u64,
        /// Whether the lock is exclusive.
        exclusive: bool,
        /// Whether it waits.
        wait: bool,
    },
    /// Releases all locks of the process on the object.
    Unlock,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Success.
    Done,
    /// Values of cells, in the order of the request, or of all records.
    Values(Vec<u64>),
    /// A number of records, or the place of a new one where it is known.
    Number(u64),
    /// A file, by its inode number.
    File(u64),
    /// Refused because of the state, without an effect: `ENOENT`, `EEXIST`, `EAGAIN`.
    Refused(String),
    /// It failed, or never ended: it may have happened or not.
    Unknown(String),
}

impl Op {
    /// Whether it may have happened or not.
    pub fn is_doubtful(&self) -> bool {
        self.end == NEVER || matches!(self.answer, Answer::Unknown(_))
    }

    /// Whether it only reads.
    pub fn only_looks(&self) -> bool {
        use Call::{Look, Read, ReadAll, Size};
        matches!(self.call, Read { .. } | Size | ReadAll | Look { .. })
            || matches!(self.answer, Answer::Refused(_))
    }
}
