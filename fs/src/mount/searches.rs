//! Listings of searches in progress.
//!
//! A directory is listed in parts, each requested by an offset, but the pages of a search have cursors that are not
//! offsets. So the position of each lister is remembered here, for a few listers. For a lister that is not remembered,
//! or that seeks back, the search starts from scratch and is read up to the offset.

use std::collections::VecDeque;

use parking_lot::Mutex;
use slabfs_mdserver::api::Hit;

use crate::client::{FsError, Search};
use crate::clients::Clients;

/// Listers that are remembered.
const LISTERS: usize = 32;
/// Hits per request: the number that a lister holds in memory.
const PAGE: u32 = 256;

/// Identifies a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lister {
    /// The directory.
    pub(super) inode: u64,
    /// The user.
    pub(super) uid: u32,
    /// The process.
    pub(super) pid: u32,
}

/// The position of a lister.
#[derive(Debug, Default)]
struct Standing {
    /// The number of the first of `hits`.
    at: u64,
    hits: Vec<Hit>,
    next: Option<Vec<u8>>,
    /// The first page was requested.
    begun: bool,
}

/// The remembered listers.
#[derive(Debug, Default)]
pub(super) struct Searches {
    listers: Mutex<VecDeque<(Lister, Standing)>>,
}

impl Searches {
    /// Gives the hits of `search`, from number `from` on, to `add`, each with the number after it, until `add` returns
    /// true: the reply is full.
    pub(super) fn list(
        &self,
        client: &Clients,
        lister: Lister,
        search: &Search,
        from: u64,
        add: &mut dyn FnMut(&Hit, u64) -> bool,
    ) -> Result<(), FsError> {
        let mut standing = self.take(lister, from).unwrap_or_default();
        let mut wanted = from;
        loop {
            while let Some(hit) = standing.get(wanted) {
                if add(hit, wanted + 1) {
                    self.put(lister, standing);
                    return Ok(());
                }
                wanted += 1;
            }
            if standing.begun && standing.next.is_none() {
                self.put(lister, standing);
                return Ok(());
            }
            let (hits, next) = client.search_page(search, PAGE, standing.next.take())?;
            standing = Standing {
                at: standing.at + standing.hits.len() as u64,
                hits,
                next,
                begun: true,
            };
        }
    }

    fn take(&self, lister: Lister, from: u64) -> Option<Standing> {
        let mut listers = self.listers.lock();
        let at = listers.iter().position(|(of, _)| *of == lister)?;
        let (_, standing) = listers.remove(at)?;
        (from >= standing.at && from > 0).then_some(standing)
    }

    fn put(&self, lister: Lister, standing: Standing) {
        let mut listers = self.listers.lock();
        listers.retain(|(of, _)| *of != lister);
        if listers.len() >= LISTERS {
            listers.pop_front();
        }
        listers.push_back((lister, standing));
    }
}

impl Standing {
    fn get(&self, number: u64) -> Option<&Hit> {
        let at = number.checked_sub(self.at)?;
        self.hits.get(usize::try_from(at).ok()?)
    }
}
