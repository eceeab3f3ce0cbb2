//! Leases of chunk ids. An id is handed out once, ever; each is recorded as committed or not, so that the others can
//! be swept when the session dies.

use slabfs_model::{ChunkId, SessionId};
use std::collections::BTreeMap;
use std::ops::Range;

use crate::api::{Lease, MAX_LEASE, MdError, op};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::records::{LeaseRecord, encode};

/// Ids in one record of a lease.
const PART: u32 = 1024;

/// The leases of one session, in parts.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    parts: BTreeMap<u64, LeaseRecord>,
}

impl Leases {
    /// Adds a part found in the store.
    pub(crate) fn found(&mut self, first: u64, record: LeaseRecord) {
        self.parts.insert(first, record);
    }

    /// The first id of the part that holds `chunk`.
    fn part(&self, chunk: ChunkId) -> Option<(u64, &LeaseRecord)> {
        let (&first, part) = self.parts.range(..=chunk.0).next_back()?;
        (chunk.0 - first < u64::from(part.count)).then_some((first, part))
    }

    /// The parts after `chunks` are committed.
    ///
    /// # Errors
    /// If one of them is not leased to the session, or was committed already.
    pub(crate) fn using(&self, chunks: &[ChunkId]) -> Result<BTreeMap<u64, LeaseRecord>, MdError> {
        let mut changed: BTreeMap<u64, LeaseRecord> = BTreeMap::new();
        for &chunk in chunks {
            let bad = |what| Err(MdError::Invalid(format!("chunk id {chunk} {what}")));
            let Some((first, part)) = self.part(chunk) else {
                return bad("is not leased to this session, or was committed");
            };
            let part = changed.entry(first).or_insert_with(|| part.clone());
            let bit = chunk.0 - first;
            let (word, mask) = ((bit / 64) as usize, 1 << (bit % 64));
            match part.used.get_mut(word) {
                Some(used) if *used & mask == 0 => *used |= mask,
                _ => return bad("was committed already"),
            }
        }
        Ok(changed)
    }

    /// Stores parts returned by [`Leases::using`]; those completely used are dropped.
    pub(crate) fn set(&mut self, changed: BTreeMap<u64, LeaseRecord>) {
        for (first, part) in changed {
            if is_used_up(&part) {
                self.parts.remove(&first);
            } else {
                self.parts.insert(first, part);
            }
        }
    }
}

/// Whether all ids of a part are committed.
pub(crate) fn is_used_up(part: &LeaseRecord) -> bool {
    let used: u32 = part.used.iter().map(|word| word.count_ones()).sum();
    used >= part.count
}

/// The ids of a part that are not committed.
pub(crate) fn unused(first: u64, part: &LeaseRecord) -> impl Iterator<Item = ChunkId> + '_ {
    let bits: Range<u64> = 0..u64::from(part.count);
    bits.filter(|bit| {
        let word = part.used.get((bit / 64) as usize).copied().unwrap_or(0);
        word & (1 << (bit % 64)) == 0
    })
    .map(move |bit| ChunkId(first + bit))
}

/// Leases `count` ids to the session.
pub(crate) fn lease_chunks(core: &Core, ctx: &Ctx, op: op::LeaseChunks) -> Result<Lease, MdError> {
    let op::LeaseChunks { count } = op;
    if count == 0 || count > MAX_LEASE {
        return Err(MdError::Invalid(format!(
            "{count} chunk ids; 1 to {MAX_LEASE} at a time"
        )));
    }
    let session = session_of(ctx)?;
    core.ensure_ids(0, u64::from(count))?;
    let mut txn = core.begin(ctx)?;
    let first = txn.state.ids.chunk;
    let end = first + u64::from(count);
    if end > txn.state.ids.chunk_limit {
        return Err(MdError::Busy);
    }
    let mut parts = BTreeMap::new();
    let mut at = first;
    while at < end {
        let count = (end - at).min(u64::from(PART)) as u32;
        let part = LeaseRecord {
            count,
            used: vec![0; count.div_ceil(64) as usize],
        };
        txn.batch.put(keys::lease(session, at), encode(&part)?);
        parts.insert(at, part);
        at += u64::from(count);
    }
    let lease = Lease {
        first: ChunkId(first),
        count,
    };
    txn.commit_then(lease, |state| {
        state.ids.chunk = end;
        if let Ok(session) = state.session(session) {
            session.leases.set(parts);
        }
    })
}

/// The session of a request.
pub(crate) fn session_of(ctx: &Ctx) -> Result<SessionId, MdError> {
    ctx.session.ok_or(MdError::SessionLost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_is_committed_once() {
        let mut leases = Leases::default();
        leases.found(
            100,
            LeaseRecord {
                count: 3,
                used: vec![0],
            },
        );
        assert!(leases.using(&[ChunkId(99)]).is_err());
        assert!(leases.using(&[ChunkId(103)]).is_err());
        assert!(leases.using(&[ChunkId(101), ChunkId(101)]).is_err());
        let used = leases.using(&[ChunkId(101)]).unwrap();
        assert_eq!(
            unused(100, &used[&100]).collect::<Vec<_>>(),
            [ChunkId(100), ChunkId(102)]
        );
        leases.set(used);
        assert!(leases.using(&[ChunkId(101)]).is_err());
        let rest = leases.using(&[ChunkId(100), ChunkId(102)]).unwrap();
        assert!(is_used_up(&rest[&100]));
        leases.set(rest);
        assert!(leases.using(&[ChunkId(100)]).is_err());
    }
}
