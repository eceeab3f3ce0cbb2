//! Range scans: merges the two tables and the base below them.

use super::Pair;
use super::base::Base;
use super::entries::Entry;
use super::index::Fault;
use super::memtable::Tables;

/// The fault of a value with a wrong checksum.
pub(super) fn wrong(key: &[u8]) -> Fault {
    Fault(format!(
        "the checksum of the value of {} is wrong",
        key.escape_ascii()
    ))
}

/// Returns the first `limit` pairs with `from <= key < to`. The caller holds the tables' lock: the sealed table stays
/// visible, so a scan is consistent even while that table is being moved into the index.
pub(super) fn scan(
    base: &Base,
    tables: &Tables,
    from: &[u8],
    to: &[u8],
    limit: usize,
) -> Result<Vec<Pair>, Fault> {
    let (active, sealed) = tables.both();
    let mut active = active.range(from, to).peekable();
    let mut sealed = sealed
        .map(|sealed| sealed.range(from, to))
        .into_iter()
        .flatten()
        .peekable();
    let mut entries = base.range(from, to)?;
    let mut entry: Option<Entry> = entries.next()?;
    let mut pairs = Vec::new();
    while pairs.len() < limit {
        let heads = [
            active.peek().map(|head| head.0),
            sealed.peek().map(|head| head.0),
        ];
        let heads = heads
            .into_iter()
            .chain([entry.as_ref().map(|(key, _)| &key[..])]);
        let Some(key) = heads.flatten().min().map(<[u8]>::to_vec) else {
            break;
        };
        let newest = active.next_if(|head| head.0 == key);
        let older = sealed.next_if(|head| head.0 == key);
        let stored = if entry
            .as_ref()
            .is_some_and(|(stored, _)| stored[..] == key[..])
        {
            std::mem::replace(&mut entry, entries.next()?)
        } else {
            None
        };
        let value = match newest.or(older) {
            Some((_, value)) => value.map(<[u8]>::to_vec),
            None => match stored {
                Some((_, value)) => Some(value.ok_or_else(|| wrong(&key))?.to_vec()),
                None => None,
            },
        };
        pairs.extend(value.map(|value| (key, value)));
    }
    Ok(pairs)
}
