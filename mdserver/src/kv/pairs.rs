//! [`pairs`]: all pairs of a key range, read from a store a page at a time.

use super::{KvError, MetaKv, Pair};
use crate::keys;

/// Returns the pairs with `from <= key < to`, ascending, read `page` at a time: pairs that change meanwhile are
/// returned as they are when their page is read. Ends after an error.
pub(crate) fn pairs(kv: &dyn MetaKv, (from, to): (Vec<u8>, Vec<u8>), page: usize) -> Pairs<'_> {
    Pairs {
        kv,
        from,
        to,
        page,
        read: Vec::new().into_iter(),
        last: false,
    }
}

/// The iterator of [`pairs`].
pub(crate) struct Pairs<'a> {
    kv: &'a dyn MetaKv,
    /// Where the next page begins.
    from: Vec<u8>,
    to: Vec<u8>,
    page: usize,
    read: std::vec::IntoIter<Pair>,
    /// The page in `read` is the last one.
    last: bool,
}

impl Iterator for Pairs<'_> {
    type Item = Result<Pair, KvError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.read.len() == 0 && !self.last {
            let page = self.kv.scan(&self.from, &self.to, self.page);
            self.last = !page.as_ref().is_ok_and(|page| page.len() == self.page);
            let page = match page {
                Ok(page) => page,
                Err(error) => return Some(Err(error)),
            };
            if let Some((key, _)) = page.last() {
                self.from = keys::after(key);
            }
            self.read = page.into_iter();
        }
        self.read.next().map(Ok)
    }
}
