//! The parts of a batch within a part of a chunk, in an order that client and server share.
//!
//! [`Parts`] is a pure function of a plan, a range of its packed bytes, the [`Rows`] of the slab and an order: the
//! sender packs bytes in this order and the receiver unpacks them in it, so that no list of pieces is sent or built.
//! Row by row, each row is one walk of the plan; piece by piece, the rows of each piece are looked up, for few pieces
//! in many rows. A [`Cursor`] takes parts in pieces of bounded size.

use std::ops::Range;

use super::walk::{Run, Runs, nth};
use super::{Plan, Row, Rows};

/// Pieces within one row: in the batch, and their position in the chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The pieces.
    pub run: Run,
    /// The offset of the first piece in the chunk, in bytes; the others follow as in the object.
    pub chunk: u64,
}

impl Part {
    /// The span of the chunk from the first byte to the end of the last.
    pub fn chunk_span(&self) -> Range<u64> {
        let (from, to) = self.run.file_span();
        let start = self.chunk.wrapping_sub(self.run.file);
        start.wrapping_add(from)..start.wrapping_add(to)
    }

    /// The bytes of all its pieces.
    pub fn bytes(&self) -> u64 {
        self.run.bytes * self.run.count
    }
}

/// The parts of a batch within a slab; see the module.
#[derive(Debug)]
pub struct Parts<'a> {
    rows: &'a Rows,
    runs: Runs<'a>,
    steps: u64,
    pause: u64,
    order: Order,
}

#[derive(Debug)]
enum Order {
    Rows {
        row: Row,
        next: u64,
        end: u64,
    },
    Pieces {
        run: Option<Run>,
        /// The row to look up next for the piece.
        row: Option<u64>,
    },
}

impl<'a> Parts<'a> {
    /// The parts of the `packed` bytes of `plan` within `rows`, row by row or piece by piece.
    pub fn new(plan: &'a Plan, packed: Range<u64>, rows: &'a Rows, by_pieces: bool) -> Parts<'a> {
        let span = rows.file_span();
        let order = match by_pieces {
            true => Order::Pieces {
                run: None,
                row: None,
            },
            false => {
                let (from, to) = plan.file_span().unwrap_or((0, 0));
                let (next, end) = match from < to {
                    true => (
                        rows.first_behind(from),
                        rows.count().min(rows.first_behind(to - 1) + 1),
                    ),
                    false => (0, 0),
                };
                Order::Rows {
                    row: Row {
                        file: 0,
                        chunk: 0,
                        len: 0,
                    },
                    next,
                    end,
                }
            }
        };
        let first = if by_pieces { span } else { 0..0 };
        Parts {
            runs: plan.runs_within(first, packed),
            rows,
            steps: 0,
            pause: u64::MAX,
            order,
        }
    }

    /// Whether piece by piece is the cheaper order: there are fewer pieces than rows.
    pub fn few_pieces(plan: &Plan, packed: &Range<u64>, rows: &Rows) -> bool {
        /// Up to this many rows it does not matter.
        const FEW: u64 = 16;
        if rows.count() <= FEW {
            return false;
        }
        let mut runs = plan.runs_within(rows.file_span(), packed.clone());
        let mut pieces = 0u64;
        while runs.steps() < rows.count() {
            let Some(run) = runs.next() else {
                return pieces < rows.count();
            };
            pieces = pieces.saturating_add(run.count);
            if pieces >= rows.count() {
                return false;
            }
        }
        false
    }

    /// The cost of the walk so far: rows, elements and pieces examined.
    pub fn steps(&self) -> u64 {
        self.steps + self.runs.steps()
    }

    /// Pauses after this many more steps; see [`Runs::pause_at`].
    pub fn pause_after(&mut self, steps: u64) {
        self.pause = self.steps.saturating_add(steps);
        self.runs.pause_at(self.runs.steps().saturating_add(steps));
    }

    /// Whether the walk ended at a pause; else it is complete.
    pub fn is_paused(&self) -> bool {
        self.steps >= self.pause || self.runs.is_paused()
    }
}

/// Of the piece of this number of a run, the `bytes` from `skip` on.
fn slice(run: &Run, number: u64, skip: u64, bytes: u64) -> Run {
    let step = |at: u64, stride: i64| nth(at as i64, stride, number) as u64;
    Run {
        file: step(run.file, run.file_stride) + skip,
        memory: step(run.memory, run.memory_stride) + skip,
        packed: run.packed + number * run.bytes + skip,
        bytes,
        count: 1,
        ..*run
    }
}

/// A run without its first pieces.
fn behind(run: &Run, pieces: u64) -> Option<Run> {
    (pieces < run.count).then(|| Run {
        count: run.count - pieces,
        ..slice(run, pieces, 0, run.bytes)
    })
}

impl Iterator for Parts<'_> {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        match &mut self.order {
            Order::Rows { row, next, end } => loop {
                if self.steps >= self.pause {
                    return None;
                }
                if let Some(run) = self.runs.next() {
                    return Some(Part {
                        chunk: row.chunk + (run.file - row.file),
                        run,
                    });
                }
                if *next >= *end || self.runs.is_paused() {
                    return None;
                }
                *row = self.rows.get(*next);
                *next += 1;
                self.steps += 1;
                self.runs.seek(row.file..row.file + row.len);
            },
            Order::Pieces { run: held, row } => loop {
                if self.steps >= self.pause {
                    return None;
                }
                let run = match held {
                    Some(run) => *run,
                    None => {
                        let run = self.runs.next()?;
                        *held = Some(run);
                        *row = None;
                        run
                    }
                };
                self.steps += 1;
                let number = row.unwrap_or_else(|| self.rows.first_behind(run.file));
                let found = (number < self.rows.count()).then(|| self.rows.get(number));
                let Some(found) = found.filter(|found| found.file < run.file + run.bytes) else {
                    *held = behind(&run, 1);
                    *row = None;
                    continue;
                };
                let (from, to) = run.file_span();
                let row_end = found.file + found.len;
                if found.file <= from && to <= row_end {
                    *held = None;
                    return Some(Part {
                        chunk: found.chunk + (run.file - found.file),
                        run,
                    });
                }
                let start = run.file.max(found.file);
                let end = (run.file + run.bytes).min(row_end);
                *row = Some(number + 1);
                return Some(Part {
                    chunk: found.chunk + (start - found.file),
                    run: slice(&run, 0, start - run.file, end - start),
                });
            },
        }
    }
}

/// Takes parts in pieces of bounded size.
#[derive(Debug)]
pub struct Cursor<'a> {
    parts: Parts<'a>,
    /// The parts that were cut off, the next one last.
    left: Vec<Part>,
}

impl<'a> Cursor<'a> {
    /// A cursor at the first of these parts.
    pub fn new(parts: Parts<'a>) -> Cursor<'a> {
        Cursor {
            parts,
            left: Vec::with_capacity(4),
        }
    }

    /// The next pieces: at most `most` bytes (not 0) within a span of at most `span` of the object (not less than
    /// `most`), and only one piece if more than `gap` bytes lie between them.
    pub fn take(&mut self, most: u64, span: u64, gap: u64) -> Option<Part> {
        let part = match self.left.pop() {
            Some(part) => part,
            None => self.parts.next()?,
        };
        let run = part.run;
        if run.bytes > most {
            let rest = Run {
                file: run.file + most,
                memory: run.memory + most,
                packed: run.packed + most,
                bytes: run.bytes - most,
                count: 1,
                ..run
            };
            if let Some(behind) = behind(&run, 1) {
                self.left.push(moved(part, behind));
            }
            self.left.push(moved(part, rest));
            return Some(moved(part, slice(&run, 0, 0, most)));
        }
        let stride = run.file_stride.unsigned_abs();
        let count = match run.count {
            1 => 1,
            _ if stride > run.bytes.saturating_add(gap) => 1,
            count => {
                let by_span = (span - run.bytes)
                    .checked_div(stride)
                    .map_or(count, |n| n + 1);
                count.min(most / run.bytes).min(by_span)
            }
        };
        if let Some(behind) = behind(&run, count) {
            self.left.push(moved(part, behind));
        }
        Some(moved(part, Run { count, ..run }))
    }

    /// Puts back the part that was taken last.
    pub fn put_back(&mut self, part: Part) {
        self.left.push(part);
    }
}

/// Another run in the row of a part.
fn moved(part: Part, run: Run) -> Part {
    Part {
        chunk: part
            .chunk
            .wrapping_add(run.file.wrapping_sub(part.run.file)),
        run,
    }
}
