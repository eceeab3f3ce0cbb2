//! A walk over the rows of the index, page by page.
//!
//! A page may have rows that lie behind the fence of the next one: whoever was killed while he cut it left them there.
//! Nobody reads them; a walk that passes what cannot be read remembers both, so that the comparison at a start can
//! mend them.

use super::index::{Fault, guarded, unsealed, wrong_page};
use super::pages::{self, Malformed};

/// One row: the key, and its value. Without a value: a page of this fence, which cannot be read.
pub(super) type Entry = (sled::IVec, Option<sled::IVec>);

/// Rows in ascending order.
pub(super) struct Entries {
    /// `None` at the end, so that a tree that grows behind it is not read on.
    iter: Option<sled::Iter>,
    /// The page behind `page`: its place, and what is stored there.
    ahead: Option<(sled::IVec, sled::IVec)>,
    /// The page that is read, and where its next row begins.
    page: Option<(sled::IVec, sled::IVec)>,
    at: usize,
    /// Rows before this one are passed over.
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    /// Pages that cannot be read are passed, and told.
    passes: bool,
    /// From where to where these reach; without an end, to the end.
    gaps: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Fences of pages that have rows behind the fence of the next.
    leftovers: Vec<Vec<u8>>,
}

impl Entries {
    /// The rows of the pages that `iter` gives, with `from <= key`, and `key < to` when there is a `to`. `passes`: pages
    /// that cannot be read are no fault.
    pub(super) fn new(iter: sled::Iter, from: &[u8], to: Option<&[u8]>, passes: bool) -> Entries {
        Entries {
            iter: Some(iter),
            ahead: None,
            page: None,
            at: 0,
            from: from.to_vec(),
            to: to.map(<[u8]>::to_vec),
            passes,
            gaps: Vec::new(),
            leftovers: Vec::new(),
        }
    }

    /// The next row, or the fence of a page that is passed.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Fault> {
        loop {
            if let Some((place, page)) = &self.page {
                let row = pages::row_at(page, self.at);
                let row = row.map_err(|Malformed| wrong_page(place))?;
                // What lies behind the next fence was left there when a page was cut.
                let is_left = row.as_ref().is_some_and(|(key, _)| {
                    let next = self.ahead.as_ref();
                    next.is_some_and(|(next, _)| page[key.clone()] >= next[1..])
                });
                if is_left && self.passes {
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
                None if !self.passes => return Err(wrong_page(&place)),
                None => {
                    let next = self.ahead.as_ref().map(|(next, _)| next[1..].to_vec());
                    self.gaps.push((place[1..].to_vec(), next));
                    return Ok(Some((place.subslice(1, place.len() - 1), None)));
                }
            }
        }
    }

    /// Whether a key lies in a page that was passed.
    pub(super) fn has_passed(&self, key: &[u8]) -> bool {
        let at = self
            .gaps
            .partition_point(|(from, _)| from.as_slice() <= key);
        let gap = at.checked_sub(1).map(|at| &self.gaps[at]);
        gap.is_some_and(|(_, to)| to.as_ref().is_none_or(|to| key < to.as_slice()))
    }

    /// The fences of pages that have rows behind the fence of the next, as far as was read.
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
