//! Iterates over one journal file: good frames, and the stretches between them.
//!
//! After bytes that are no frame the iterator searches, at every eighth byte, for the next good one. `replay` decides
//! whether such a stretch cost a record.

use super::Lsn;
use super::frame::{ALIGN, Found, Frame, HEADER, Kind, guess_keys, look};

/// A stretch of a file that holds no good frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bad {
    /// Where it begins.
    pub(super) offset: u64,
    /// How long it is.
    pub(super) len: u64,
    /// The commit it held, if a good frame header records it and the frame is complete.
    pub(super) record: Option<Lsn>,
    /// Keys that this commit seems to have changed.
    pub(super) keys: Vec<Vec<u8>>,
    /// A description of the damage.
    pub(super) detail: String,
}

impl Bad {
    /// A stretch that holds no known record.
    pub(super) fn new(offset: u64, len: u64, detail: &str) -> Self {
        Self {
            offset,
            len,
            record: None,
            keys: Vec::new(),
            detail: detail.to_owned(),
        }
    }
}

/// One step of the walk.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// A good frame and where it ends.
    Frame(Frame<'a>, u64),
    /// No frame.
    Bad(Bad),
}

/// The iterator over a file's bytes.
#[derive(Debug, Clone)]
pub(super) struct Walk<'a> {
    bytes: &'a [u8],
    number: u64,
    at: usize,
}

impl<'a> Walk<'a> {
    /// Iterates over the frames of file `number`.
    pub(super) fn new(bytes: &'a [u8], number: u64) -> Self {
        Self {
            bytes,
            number,
            at: HEADER.min(bytes.len()),
        }
    }

    fn look(&self, at: usize) -> Found<'a> {
        look(&self.bytes[at..], self.number)
    }

    /// Skips a stretch whose next `known` bytes are bad, up to the next frame with a good header.
    fn skip(&mut self, known: usize, detail: &str) -> Bad {
        let start = self.at;
        self.at = (self.at + known).min(self.bytes.len());
        while self.at < self.bytes.len() {
            if matches!(self.look(self.at), Found::Good(_) | Found::Damaged(_)) {
                break;
            }
            self.at = (self.at + ALIGN).min(self.bytes.len());
        }
        Bad::new(start as u64, (self.at - start) as u64, detail)
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        if self.at >= self.bytes.len() {
            return None;
        }
        Some(match self.look(self.at) {
            Found::Good(frame) => {
                self.at += frame.len;
                Step::Frame(frame, self.at as u64)
            }
            Found::Damaged(frame) => {
                let bad = Bad {
                    offset: self.at as u64,
                    len: frame.len as u64,
                    record: (frame.kind == Kind::Record).then_some(frame.lsn),
                    keys: if frame.kind == Kind::Record {
                        guess_keys(frame.payload)
                    } else {
                        Vec::new()
                    },
                    detail: "the checksum of a record does not fit its bytes".to_owned(),
                };
                self.at += frame.len;
                Step::Bad(bad)
            }
            Found::Torn(lsn) => Step::Bad(self.skip(ALIGN, &format!("record {lsn} is cut off"))),
            Found::Nothing => Step::Bad(self.skip(ALIGN, "there is no record where one should be")),
        })
    }
}
