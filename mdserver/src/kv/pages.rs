//! Pages: adjacent rows, stored as one value of the index.
//!
//! sled takes about ten microseconds for an insert of any size, and some hundred bytes of memory for each entry.
//! Therefore rows are grouped into pages: a page has all rows from its *fence*, a key, up to the fence of the next
//! page. Rows that are changed together are sorted and mostly adjacent, so that one insert covers many rows.
//!
//! A page is the sequence of its rows, ascending. A row is the key's length (two bytes), the value's length (four
//! bytes), both little-endian, the key, the value. Pages have at most about [`FULL`] bytes; a longer row has a page of
//! its own.
//!
//! Deliberately elsewhere: checksums, sled, and the order in which pages are written to it (`index`).

use super::memtable::Change;
use std::ops::Range;

/// A page of more bytes is split.
const FULL: usize = 1024;
/// Bytes of the pages it is split into, roughly.
const GOOD: usize = 768;
/// Bytes before a key.
const HEAD: usize = 6;

/// The bytes are not a valid page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The ranges of a row's key and value in a page.
pub(super) type Row = (Range<usize>, Range<usize>);

/// Returns the row that begins at byte `at` of a page; `None` at the page's end.
pub(super) fn row_at(page: &[u8], at: usize) -> Result<Option<Row>, Malformed> {
    let Some(rest) = page.get(at..).filter(|rest| !rest.is_empty()) else {
        return Ok(None);
    };
    let (key_len, rest) = rest.split_first_chunk().ok_or(Malformed)?;
    let (value_len, _) = rest.split_first_chunk().ok_or(Malformed)?;
    let key = at + HEAD..at + HEAD + usize::from(u16::from_le_bytes(*key_len));
    let value = key.end..key.end + u32::from_le_bytes(*value_len) as usize;
    match value.end <= page.len() {
        true => Ok(Some((key, value))),
        false => Err(Malformed),
    }
}

/// Returns the range of the value of `key` in a page.
pub(super) fn find(page: &[u8], key: &[u8]) -> Result<Option<Range<usize>>, Malformed> {
    let mut at = 0;
    while let Some((found, value)) = row_at(page, at)? {
        match page[found].cmp(key) {
            std::cmp::Ordering::Less => at = value.end,
            std::cmp::Ordering::Equal => return Ok(Some(value)),
            std::cmp::Ordering::Greater => break,
        }
    }
    Ok(None)
}

/// Builds pages, and reuses its buffers.
#[derive(Debug, Default)]
pub(super) struct Editor {
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

impl Editor {
    /// Applies changes, ascending, to the rows of a page that come before the fence of the `next` one. All changes are
    /// within the page's range.
    pub(super) fn edit(
        &mut self,
        page: &[u8],
        next: Option<&[u8]>,
        changes: &[Change<'_>],
    ) -> Result<(), Malformed> {
        self.bytes.clear();
        self.rows.clear();
        let mut changes = changes.iter().peekable();
        let mut at = 0;
        while let Some((key, value)) = row_at(page, at)? {
            at = value.end;
            let (key, value) = (&page[key], &page[value]);
            if next.is_some_and(|next| key >= next) {
                break;
            }
            let mut is_changed = false;
            while let Some((changed, change)) = changes.next_if(|change| change.0 <= key) {
                is_changed |= *changed == key;
                self.push(changed, *change);
            }
            if !is_changed {
                self.push(key, Some(value));
            }
        }
        for (key, change) in changes {
            self.push(key, *change);
        }
        Ok(())
    }

    fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        let Some(value) = value else { return };
        self.bytes.extend((key.len() as u16).to_le_bytes());
        self.bytes.extend((value.len() as u32).to_le_bytes());
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let behind = at + key.len();
        self.rows.push((at..behind, behind..self.bytes.len()));
    }

    /// Returns the pages that the rows make, at least one: the bytes, and the fence of each page except the first,
    /// whose fence does not change.
    pub(super) fn pages(&self) -> Vec<(Option<&[u8]>, &[u8])> {
        let all = self.bytes.len();
        let count = if all > FULL { all.div_ceil(GOOD) } else { 1 };
        let good = all.div_ceil(count.max(1));
        let mut pages = Vec::with_capacity(count);
        let (mut fence, mut from) = (None, 0);
        for (key, value) in &self.rows {
            let at = key.start - HEAD;
            if at > from && value.end - from > good && all > FULL {
                pages.push((fence, &self.bytes[from..at]));
                (fence, from) = (Some(&self.bytes[key.clone()]), at);
            }
        }
        pages.push((fence, &self.bytes[from..]));
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn rows(pages: &[(Option<&[u8]>, &[u8])]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut rows = Vec::new();
        for (fence, page) in pages {
            let mut at = 0;
            while let Some((key, value)) = row_at(page, at).unwrap() {
                if at == 0 {
                    assert!(fence.is_none_or(|fence| *fence == page[key.clone()]));
                }
                at = value.end;
                rows.push((page[key].to_vec(), page[value].to_vec()));
            }
        }
        rows
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 1..3),
            proptest::collection::vec(any::<u8>(), 1..40),
        ]
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        let len = prop_oneof![0usize..60, 0usize..600, 0usize..3000];
        len.prop_map(|len| (0..len).map(|at| at as u8).collect())
    }

    proptest! {
        /// Against a map: all rows are there, no page is empty or too long, and each row is found in its page.
        #[test]
        fn rows_are_edited(
            old in proptest::collection::btree_map(key(), value(), 0..40),
            changes in proptest::collection::btree_map(key(), proptest::option::of(value()), 0..40),
            next in proptest::option::of(key()),
        ) {
            let mut editor = Editor::default();
            let before: Vec<Change<'_>> = old.iter().map(|(k, v)| (&k[..], Some(&v[..]))).collect();
            editor.edit(&[], None, &before).unwrap();
            let page = editor.bytes.clone();
            let within = |key: &[u8]| next.as_deref().is_none_or(|next| key < next);
            let mut model: Model = old;
            model.retain(|key, _| within(key));
            let mut made = Vec::new();
            for (key, value) in changes.iter().filter(|(key, _)| within(key)) {
                made.push((&key[..], value.as_deref()));
                match value {
                    Some(value) => model.insert(key.clone(), value.clone()),
                    None => model.remove(key),
                };
            }
            editor.edit(&page, next.as_deref(), &made).unwrap();
            let pages = editor.pages();
            prop_assert_eq!(rows(&pages), model.clone().into_iter().collect::<Vec<_>>());
            prop_assert!(pages[0].0.is_none() && pages[1..].iter().all(|page| page.0.is_some()));
            for (_, page) in &pages {
                let longest = row_at(page, 0).unwrap().map_or(0, |row| row.1.end);
                prop_assert!(pages.len() == 1 || !page.is_empty());
                prop_assert!(page.len() <= FULL || longest == page.len());
            }
            for (key, value) in &model {
                let at = pages.iter().rposition(|page| page.0.is_none_or(|fence| fence <= &key[..]));
                let page = pages[at.unwrap()].1;
                let found = find(page, key).unwrap().unwrap();
                prop_assert_eq!(&page[found], &value[..]);
            }
            for key in changes.keys().filter(|key| !model.contains_key(*key)) {
                for (_, page) in &pages {
                    prop_assert_eq!(find(page, key), Ok(None));
                }
            }
        }

        #[test]
        fn any_bytes_are_a_page_or_malformed(page in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (mut at, mut end) = (0, false);
            while let Ok(Some((_, value))) = row_at(&page, at) {
                prop_assert!(value.end > at && value.end <= page.len());
                at = value.end;
                end = at == page.len();
            }
            prop_assert_eq!(row_at(&page, page.len()), Ok(None));
            prop_assert!(end || page.is_empty() || row_at(&page, at).is_err());
        }
    }

    /// Repeated appends leave pages that are nearly full.
    #[test]
    fn pages_of_a_sequence_are_nearly_full() {
        let keys: Vec<[u8; 8]> = (0..3000u64).map(u64::to_be_bytes).collect();
        let mut editor = Editor::default();
        let (mut last, mut pages, mut bytes) = (Vec::new(), 0, 0);
        for some in keys.chunks(100) {
            let changes: Vec<Change<'_>> = some
                .iter()
                .map(|key| (&key[..], Some(&[7; 80][..])))
                .collect();
            editor.edit(&last, None, &changes).unwrap();
            let made = editor.pages();
            let (end, others) = made.split_last().unwrap();
            pages += others.len();
            bytes += others.iter().map(|page| page.1.len()).sum::<usize>();
            last = end.1.to_vec();
        }
        assert!(
            bytes / pages > GOOD * 4 / 5,
            "{bytes} bytes in {pages} pages"
        );
    }
}
