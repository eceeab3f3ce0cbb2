//! Ranges of chunk files that a reply is sent out of, without a copy.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::resource::{Resource, getrlimit};

use crate::name::ChunkName;
use crate::store::ChunkStore;
use crate::wire::messages::ReadItem;
use crate::wire::{Outgoing, WireResult};

/// A range of a chunk's file, readable even if the chunk is deleted meanwhile.
pub(super) struct InFile {
    file: Arc<Opened>,
    at: u64,
    pub(super) len: u64,
    /// Its checksum, if the reply carries one.
    sum: u32,
}

impl InFile {
    pub(super) fn send(&self, outgoing: &mut Outgoing<'_>) -> WireResult<()> {
        outgoing.give_file(&self.file.0, self.at, self.len, self.sum)
    }
}

/// The chunk files that a reply is sent out of.
#[derive(Default)]
pub(super) struct Files<'a> {
    /// The last one, and its chunk.
    opened: Option<(&'a ChunkName, Arc<Opened>)>,
}

impl<'a> Files<'a> {
    /// The file range of a piece, if it can be sent from there. Errors are ignored here: the read that follows finds
    /// and reports them.
    pub(super) fn part(
        &mut self,
        store: &dyn ChunkStore,
        item: &'a ReadItem,
        summed: bool,
    ) -> Option<InFile> {
        let known = self.opened.take().filter(|(name, _)| **name == item.name);
        let mut file = known.map(|(_, file)| file);
        let mut in_file = None;
        let _ = store.file_part(&item.name, &item.form, &item.slab, &mut |part| {
            let Ok(sum) = (if summed { (part.sum)() } else { Ok(0) }) else {
                return;
            };
            file = file.take().or_else(|| Opened::again(part.file));
            in_file = file.clone().map(|file| InFile {
                file,
                at: part.at,
                len: part.len,
                sum,
            });
        });
        self.opened = file.map(|file| (&item.name, file));
        in_file
    }
}

/// A duplicated descriptor of a chunk's file, open until its reply is sent. These may take only a small share of
/// `RLIMIT_NOFILE`, so that peers that do not read their replies cannot exhaust the process's descriptors.
#[derive(Debug)]
struct Opened(File);

static OPENED: AtomicU64 = AtomicU64::new(0);

impl Opened {
    /// Duplicates the descriptor, unless too many are open.
    fn again(file: &File) -> Option<Arc<Opened>> {
        let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft / 16);
        if OPENED.fetch_add(1, Ordering::Relaxed) < most
            && let Ok(file) = file.try_clone()
        {
            return Some(Arc::new(Opened(file)));
        }
        OPENED.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        OPENED.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_open_only_a_share_of_the_descriptor_limit() {
        let (may, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let file = tempfile::tempfile().unwrap();
        let all: Vec<_> = (0..may).map_while(|_| Opened::again(&file)).collect();
        assert!(
            !all.is_empty() && all.len() as u64 <= may / 16,
            "{}",
            all.len()
        );
        drop(all);
        assert!(Opened::again(&file).is_some());
    }
}
