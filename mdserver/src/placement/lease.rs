//! Leases of places: a number of bytes for each server, handed out in advance so that clients need not ask for each
//! chunk.
//!
//! A lease distributes bytes like water among connected vessels: first to the server with the fewest bytes, until it
//! is level with the next one, and so on. The client spends them in any order and reports, with its next request,
//! what it has spent. A lease that is not renewed in time is void: the servers' reports show what was stored. All of
//! this is in memory only; after a restart the service knows the load from the servers' first reports.

use slabfs_model::ServerId;
use std::time::{Duration, Instant};

use super::Servers;
use crate::api::{MdError, op};
use crate::core::{Core, Ctx, State};
use crate::sessions::session_of;

/// The most bytes in one lease.
const MAX_BYTES: u64 = 4 << 30;
/// A lease that is not renewed for this long is void. Clients renew theirs well before.
const VOID: Duration = Duration::from_secs(8);

/// How many bytes a session may store on each server.
#[derive(Debug, Default)]
pub(crate) struct Places {
    leased: Vec<(ServerId, u64)>,
    since: Option<Instant>,
}

/// Renews the places of a session.
pub(crate) fn lease_places(
    core: &Core,
    ctx: &Ctx,
    op: op::LeasePlaces,
) -> Result<Vec<(ServerId, u64)>, MdError> {
    let op::LeasePlaces { bytes, ref spent } = op;
    let id = session_of(ctx)?;
    let now = Instant::now();
    let mut state = core.state();
    let state = &mut *state;
    let old = std::mem::take(&mut state.session(id)?.places);
    for (&server, known) in &mut state.servers.by_id {
        let of = |list: &[(ServerId, u64)]| {
            let its = list.iter().filter(|(of, _)| *of == server);
            its.fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes))
        };
        let (leased, spent) = (of(&old.leased), of(spent).min(MAX_BYTES));
        if leased > 0 || spent > 0 {
            known.load.give_back(leased, spent, now);
        }
    }
    let leased = deal(&mut state.servers, bytes.min(MAX_BYTES), now);
    state.session(id)?.places = Places {
        leased: leased.clone(),
        since: Some(now),
    };
    Ok(leased)
}

/// Returns the unused places of a session that ended.
pub(crate) fn return_places(servers: &mut Servers, places: Places) {
    for (server, bytes) in places.leased {
        if let Some(server) = servers.by_id.get_mut(&server) {
            server.load.forget(bytes);
        }
    }
}

/// Voids leases that were not renewed in time.
pub(crate) fn void_places(state: &mut State, now: Instant) {
    for session in state.sessions.live.values_mut() {
        let old = session.places.since;
        if old.is_some_and(|since| now.saturating_duration_since(since) > VOID) {
            return_places(&mut state.servers, std::mem::take(&mut session.places));
        }
    }
}

fn deal(servers: &mut Servers, bytes: u64, now: Instant) -> Vec<(ServerId, u64)> {
    let mut takers: Vec<_> = servers
        .by_id
        .iter_mut()
        .filter(|(_, server)| server.takes_chunks())
        .collect();
    let levels: Vec<u64> = takers.iter().map(|(_, server)| server.load.book).collect();
    let parts = fill(&levels, bytes);
    let dealt = takers.iter_mut().zip(parts);
    dealt
        .map(|((id, server), part)| {
            server.load.lease(part, now);
            (**id, part)
        })
        .collect()
}

/// Distributes `bytes` among vessels filled to `levels`, so that they end up as level as possible.
fn fill(levels: &[u64], bytes: u64) -> Vec<u64> {
    let mut sorted: Vec<u64> = levels.to_vec();
    sorted.sort_unstable();
    let (mut sum, mut height, mut rest) = (0u128, 0u128, 0u128);
    for (count, &level) in sorted.iter().enumerate() {
        let count = count as u128;
        // The bytes needed to lift all before this one to its level.
        if count > 0 && u128::from(level) * count - sum >= u128::from(bytes) {
            break;
        }
        sum += u128::from(level);
        height = (sum + u128::from(bytes)) / (count + 1);
        rest = (sum + u128::from(bytes)) % (count + 1);
    }
    let mut parts: Vec<u64> = levels
        .iter()
        .map(|&level| height.saturating_sub(u128::from(level)) as u64)
        .collect();
    // The remainder: a byte each.
    for part in parts
        .iter_mut()
        .zip(levels)
        .filter(|(_, level)| u128::from(**level) <= height)
    {
        if rest > 0 {
            *part.0 += 1;
            rest -= 1;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_lowest_are_filled_first() {
        assert_eq!(fill(&[0, 0, 0, 0], 10), [3, 3, 2, 2]);
        assert_eq!(fill(&[100, 0], 50), [0, 50]);
        assert_eq!(fill(&[100, 0], 300), [100, 200]);
        assert_eq!(fill(&[7], 5), [5]);
        assert!(fill(&[], 5).is_empty());
    }

    proptest! {
        #[test]
        fn everything_is_distributed_and_nothing_exceeds_a_vessel_that_got_some(
            levels in prop::collection::vec(0u64..1000, 1..8), bytes in 0u64..5000,
        ) {
            let parts = fill(&levels, bytes);
            prop_assert_eq!(parts.iter().sum::<u64>(), bytes);
            let heights: Vec<u64> = levels.iter().zip(&parts).map(|(level, part)| level + part).collect();
            let least = heights.iter().min().unwrap();
            for (height, part) in heights.iter().zip(&parts) {
                prop_assert!(*part == 0 || height - least <= 1, "{:?} {:?}", levels, parts);
            }
        }
    }
}
