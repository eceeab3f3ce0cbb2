//! The changes that a batch makes to a chunk, made from packed bytes.

use slabfs_model::batch::Cursor;

use super::{Patience, SPAN, Window};
use crate::error::Result;
use crate::store::{Patch, Patches};

/// The changes of one share.
#[derive(Debug)]
pub(crate) struct Patching<'a> {
    cursor: Cursor<'a>,
    window: Window,
    /// The packed bytes that have not been applied.
    packed: &'a [u8],
    patience: Option<Patience>,
    /// The error if the time limit ended the changes early.
    result: Result<()>,
}

impl<'a> Patching<'a> {
    /// The changes of the share that `cursor` walks. `packed` holds the bytes of all its parts.
    pub(crate) fn new(
        cursor: Cursor<'a>,
        packed: &'a [u8],
        patience: Option<Patience>,
    ) -> Patching<'a> {
        Patching {
            cursor,
            window: Window::default(),
            packed,
            patience,
            result: Ok(()),
        }
    }

    /// Returns the error that ended the changes early, if any. Called after the store has applied them.
    pub(crate) fn end(self) -> Result<()> {
        self.result
    }
}

impl Patches for Patching<'_> {
    fn next(&mut self) -> Option<Patch> {
        if let Some(patience) = &self.patience {
            self.result = patience.check();
            if self.result.is_err() {
                return None;
            }
        }
        let more = self.window.take(&mut self.cursor, SPAN as usize);
        more.then(|| self.window.patch())
    }

    fn apply(&mut self, bytes: &mut [u8]) {
        let (pieces, rest) = self.packed.split_at(self.window.bytes());
        self.packed = rest;
        self.window.unpack(pieces, bytes);
    }
}
