//! One operation of a history: who, when, what was asked and what was answered.

use serde::{Deserialize, Serialize};

/// The end of an operation that never returned.
pub const NEVER: u64 = u64::MAX;

/// The value of a cell whose words are not all the same: no write wrote that.
pub const TORN: u64 = u64::MAX;

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// The worker: it does one operation after the other.
    pub process: u32,
    /// The mount it works on.
    pub mount: u32,
    /// Just before it asked, in ns of `CLOCK_MONOTONIC`.
    pub start: u64,
    /// Just after it was answered; [`NEVER`] for one that was not.
    pub end: u64,
    /// What it was done to: an object, or a directory of names.
    pub object: String,
    /// What was asked.
    pub call: Call,
    /// What was answered.
    pub answer: Answer,
}

/// How cells are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// By `pread` and `pwrite` of the handle that is open.
    Call,
    /// Through a mapping of it.
    Mapped,
    /// Through a selection `name@[…]`, which is opened and closed for it.
    Selection,
}

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// Of cells: a handle is opened.
    Open,
    /// `fsync` of the handle.
    Sync,
    /// `close` of the handle.
    Close,
    /// One value into each of these cells.
    Write {
        /// Their numbers.
        cells: Vec<u32>,
        /// The value.
        value: u64,
        /// By which way.
        how: How,
    },
    /// The values of these cells.
    Read {
        /// Their numbers.
        cells: Vec<u32>,
        /// By which way.
        how: How,
    },
    /// The attributes by the name: only that there is an answer matters.
    Stat,
    /// Of records: one more at the end (`O_APPEND`).
    Append {
        /// The record.
        value: u64,
    },
    /// There are to be so many records (`ftruncate`); new ones are zero.
    Resize {
        /// Their number.
        records: u64,
    },
    /// How many records there are (`fstat`).
    Size,
    /// All records (`pread` from 0 on with room for more than there are).
    ReadAll,
    /// Of names: a new file (`O_CREAT | O_EXCL`).
    Create {
        /// Its name.
        name: String,
    },
    /// The name is to go.
    Unlink {
        /// Which.
        name: String,
    },
    /// The file is to have another name, over whatever has it.
    Rename {
        /// Its name.
        from: String,
        /// The new one, another.
        to: String,
    },
    /// Which file has the name (`stat`, or `open` and `fstat`).
    Look {
        /// The name.
        name: String,
    },
    /// A `fcntl` lock on a range, waited for or only tried.
    Lock {
        /// First byte.
        first: u64,
        /// Number of bytes.
        len: u64,
        /// Whether nobody else may have one there.
        exclusive: bool,
        /// Whether it is waited for.
        wait: bool,
    },
    /// All locks of the process on the object go.
    Unlock,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Done,
    /// Values of cells, in the order in which they were asked for, or of all records.
    Values(Vec<u64>),
    /// A number of records, or the place of a new one where that was looked at.
    Number(u64),
    /// A file, by its inode number.
    File(u64),
    /// It is refused because of what there is; nothing has happened: `ENOENT`, `EEXIST`, `EAGAIN`.
    Refused(String),
    /// It failed, or never ended: nobody knows whether it happened.
    Unknown(String),
}

impl Op {
    /// Whether it may have happened or not.
    pub fn is_doubtful(&self) -> bool {
        self.end == NEVER || matches!(self.answer, Answer::Unknown(_))
    }

    /// Whether it only looks.
    pub fn only_looks(&self) -> bool {
        use Call::{Look, Read, ReadAll, Size};
        matches!(self.call, Read { .. } | Size | ReadAll | Look { .. })
            || matches!(self.answer, Answer::Refused(_))
    }
}
