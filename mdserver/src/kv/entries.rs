//! An iterator over the rows of the index, page by page.
//!
//! A page may have rows at or after the fence of the next one, left there by a kill during a split. The iterator does
//! not return them. An iterator that skips unreadable pages records both these pages and the leftover rows, so that the
//! comparison at a start can repair them.

use super::index::{Fault, guarded, unsealed, wrong_page};
use super::pages::{self, Malformed};

/// One row: the key and its value. Without a value: the fence of an unreadable page.
pub(super) type Entry = (sled::IVec, Option<sled::IVec>);

/// Rows in ascending order.
pub(super) struct Entries {
    /// `None` at the end, so that rows added after the end are not read.
    iter: Option<sled::Iter>,
    /// The page after `page`: its place and its stored bytes.
    ahead: Option<(sled::IVec, sled::IVec)>,
    /// The page being read.
    page: Option<(sled::IVec, sled::IVec)>,
    /// Where the next row begins in `page`.
    at: usize,
    /// Rows before this key are skipped.
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    /// Unreadable pages are skipped and recorded instead of being a fault.
    skips_unreadable: bool,
    /// The key ranges of the skipped pages; without an end, to the end.
    gaps: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Fences of pages that have rows at or after the fence of the next page.
    leftovers: Vec<Vec<u8>>,
}

impl Entries {
    /// Iterates over the rows of the pages that `iter` returns, with `from <= key`, and `key < to` if there is a `to`.
    /// With `skips_unreadable`, an unreadable page is no fault.
    pub(super) fn new(
        iter: sled::Iter,
        from: &[u8],
        to: Option<&[u8]>,
        skips_unreadable: bool,
    ) -> Entries {
        Entries {
            iter: Some(iter),
            ahead: None,
            page: None,
            at: 0,
            from: from.to_vec(),
            to: to.map(<[u8]>::to_vec),
            skips_unreadable,
            gaps: Vec::new(),
            leftovers: Vec::new(),
        }
    }

    /// Returns the next row, or the fence of a skipped page.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Fault> {
        loop {
            if let Some((place, page)) = &self.page {
                let row = pages::row_at(page, self.at);
                let row = row.map_err(|Malformed| wrong_page(place))?;
                // Rows at or after the next fence were left there by a kill during a split.
                let is_left = row.as_ref().is_some_and(|(key, _)| {
                    let next = self.ahead.as_ref();
                    next.is_some_and(|(next, _)| page[key.clone()] >= next[1..])
                });
                if is_left && self.skips_unreadable {
                    self.leftovers.push(place[1..].to_vec());
                }
                if let (Some((key, value)), false) = (row, is_left) {
                    self.at = value.end;
                    let found = &page[key.clone()];
                    if *found < *self.from {
                        continue;
                    }
                    if self.to.as_ref().is_some_and(|to| *found >= **to) {
                        (self.page, self.ahead, self.iter) = (None, None, None);
                        return Ok(None);
                    }
                    let key = page.subslice(key.start, key.len());
                    return Ok(Some((key, Some(page.subslice(value.start, value.len())))));
                }
                self.page = None;
            }
            let current = match self.ahead.take() {
                Some(ahead) => Some(ahead),
                None => self.advance()?,
            };
            let Some((place, stored)) = current else {
                return Ok(None);
            };
            self.ahead = self.advance()?;
            self.at = 0;
            match unsealed(&place, stored) {
                Some(page) => self.page = Some((place, page)),
                None if !self.skips_unreadable => return Err(wrong_page(&place)),
                None => {
                    let next = self.ahead.as_ref().map(|(next, _)| next[1..].to_vec());
                    self.gaps.push((place[1..].to_vec(), next));
                    return Ok(Some((place.subslice(1, place.len() - 1), None)));
                }
            }
        }
    }

    /// True if a key belongs to a skipped page.
    pub(super) fn is_skipped(&self, key: &[u8]) -> bool {
        let at = self
            .gaps
            .partition_point(|(from, _)| from.as_slice() <= key);
        let gap = at.checked_sub(1).map(|at| &self.gaps[at]);
        gap.is_some_and(|(_, to)| to.as_ref().is_none_or(|to| key < to.as_slice()))
    }

    /// The fences of the pages read so far that have rows at or after the fence of the next page.
    pub(super) fn leftovers(&self) -> &[Vec<u8>] {
        &self.leftovers
    }

    fn advance(&mut self) -> Result<Option<(sled::IVec, sled::IVec)>, Fault> {
        let Some(iter) = &mut self.iter else {
            return Ok(None);
        };
        let next = guarded(|| iter.next().transpose())?;
        if next.is_none() {
            self.iter = None;
        }
        Ok(next)
    }
}
