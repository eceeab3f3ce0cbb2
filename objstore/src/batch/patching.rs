//! Packed bytes on their way into a chunk: the changes that a batch makes to it.

use slabfs_model::batch::Cursor;

use super::{Patience, SPAN, Window};
use crate::error::Result;
use crate::store::{Patch, Patches};

/// The changes of one share.
#[derive(Debug)]
pub(crate) struct Patching<'a> {
    cursor: Cursor<'a>,
    window: Window,
    /// Packed bytes that are not in the chunk yet.
    packed: &'a [u8],
    patience: Option<Patience>,
    /// What ended them before all were made.
    given_up: Result<()>,
}

impl<'a> Patching<'a> {
    /// `packed` has the bytes of all parts.
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
            given_up: Ok(()),
        }
    }

    /// Whether all were made, once the store has them.
    pub(crate) fn end(self) -> Result<()> {
        self.given_up
    }
}

impl Patches for Patching<'_> {
    fn next(&mut self) -> Option<Patch> {
        if let Some(patience) = &self.patience {
            self.given_up = patience.check();
            if self.given_up.is_err() {
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
