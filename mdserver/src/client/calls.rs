//! What [`Md`] does with more than one request, or with more than the reply: heartbeats, the cache of names, pages of tags
//! and tilings, releases of opens, write permits.

use slabfs_model::{Tag, Version};
use std::sync::atomic::Ordering;

use super::Md;
use super::name_cache::NameCache;
use crate::api::{
    Beat, Entry, Ino, MAX_RELEASE, MdError, Permit, Permitted, TilingReply, WantedPart, op,
};

impl Md {
    /// Version of the list of data servers as of the last reply.
    #[must_use]
    pub fn servers_version(&self) -> u64 {
        self.inner.servers_version.load(Ordering::Acquire)
    }

    /// Keeps the session alive, and reports that all its writes use version `knows` of the list of data servers;
    /// returns the list if it changed.
    pub fn heartbeat(&self, knows: u64) -> Result<Beat, MdError> {
        let floor = self.inner.numbers.lock().floor();
        let beat = self.call(op::Heartbeat {
            floor,
            servers_version: self.servers_version(),
            knows,
            strict: self.inner.attach.strict,
        })?;
        self.inner
            .servers_version
            .store(beat.servers_version, Ordering::Release);
        Ok(beat)
    }

    /// Finds a name as [`op::Lookup`]; caches the answer if permitted.
    pub fn look(&self, parent: Ino, name: &[u8]) -> Result<Entry, MdError> {
        let asked = self.inner.names.as_ref().map(NameCache::asked);
        let looked = self.call(op::Look {
            parent,
            name: name.to_vec(),
        })?;
        if let (Some(names), Some(asked)) = (&self.inner.names, asked) {
            names.take(asked, Some((parent, name)), &looked);
        }
        looked.found.ok_or(MdError::NotFound)
    }

    /// Attributes of an inode, including unflushed writes of other sessions; `keep`: caches those of a directory if
    /// permitted.
    pub fn stat(&self, ino: Ino, keep: bool) -> Result<Entry, MdError> {
        let asked = self
            .inner
            .names
            .as_ref()
            .filter(|_| keep)
            .map(NameCache::asked);
        let looked = self.call(op::Stat { ino, keep })?;
        if let (Some(names), Some(asked)) = (&self.inner.names, asked) {
            names.take(asked, None, &looked);
        }
        looked.found.ok_or(MdError::NotFound)
    }

    /// The answer of [`Md::look`], if it is cached.
    #[must_use]
    pub fn cached_name(&self, parent: Ino, name: &[u8]) -> Option<Result<Entry, MdError>> {
        let found = self.inner.names.as_ref()?.find(parent, name)?;
        Some(found.ok_or(MdError::NotFound))
    }

    /// The answer of [`Md::stat`], if it is cached: of directories.
    #[must_use]
    pub fn cached_directory(&self, ino: Ino) -> Option<Entry> {
        self.inner.names.as_ref()?.directory(ino)
    }

    /// Number of answers from the name cache.
    #[must_use]
    pub fn name_cache_hits(&self) -> u64 {
        self.inner.names.as_ref().map_or(0, NameCache::hits)
    }

    /// Drops cached entries of directories.
    pub fn forget_names(&self, directories: &[Ino]) {
        if let Some(names) = &self.inner.names {
            names.forget(directories);
        }
    }

    /// Drops all cached names.
    pub fn forget_all_names(&self) {
        if let Some(names) = &self.inner.names {
            names.forget_all();
        }
    }

    /// All tags of an inode, by name.
    pub fn tags(&self, ino: Ino) -> Result<Vec<(String, Tag)>, MdError> {
        let mut all: Vec<(String, Tag)> = Vec::new();
        loop {
            let after = all.last().map(|(name, _)| name.clone());
            let page = self.call(op::Tags { ino, after })?;
            let more = page.more && !page.tags.is_empty();
            all.extend(page.tags);
            if !more {
                return Ok(all);
            }
        }
    }

    /// Drops one open for each inode named.
    pub fn release(&self, mut inos: Vec<Ino>) -> Result<(), MdError> {
        self.release_all(&mut inos)
    }

    /// Drops one open for each inode named. After an error, `inos` holds those that have to be retried; the others
    /// are released, or may be, now or later. An open of these may last until the session ends, and keeps an unlinked
    /// inode until then; a retry could drop the open of another caller that has opened the object since.
    pub fn release_all(&self, inos: &mut Vec<Ino>) -> Result<(), MdError> {
        while !inos.is_empty() {
            let rest = inos.split_off(inos.len().min(MAX_RELEASE));
            let now = std::mem::replace(inos, rest);
            let unanswered = self.inner.metadata.unanswered();
            if let Err(error) = self.call(op::Release { inos: now.clone() }) {
                let unsure = match error {
                    MdError::Unavailable { .. } => self.inner.metadata.unanswered() != unanswered,
                    MdError::Protocol(_) => true,
                    _ => false,
                };
                if !unsure {
                    inos.extend(now);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// The tiling since the version `known` (`Version(0)` for none), all pages merged.
    pub fn tiling(&self, ino: Ino, known: Version) -> Result<TilingReply, MdError> {
        self.tiling_part(ino, known, None)
    }

    /// As [`Md::tiling`]; of an unknown tiling with many records, only the part that is `wanted`.
    pub fn tiling_part(
        &self,
        ino: Ino,
        known: Version,
        wanted: Option<WantedPart>,
    ) -> Result<TilingReply, MdError> {
        loop {
            let first = self.tiling_page(ino, known, None, wanted.clone())?;
            if let Some(all) = self.tiling_pages(ino, first)? {
                return Ok(all);
            }
            // A commit between two pages: start again.
        }
    }

    /// Appends the other pages to the first one, if they are of the same version.
    fn tiling_pages(
        &self,
        ino: Ino,
        mut first: TilingReply,
    ) -> Result<Option<TilingReply>, MdError> {
        let Some(all) = first.page() else {
            return Ok(Some(first));
        };
        let region = all.region.cloned();
        let wanted = region.map(|region| WantedPart { region, most: 0 });
        while *all.more {
            let after = all.records.last().map(|record| record.order);
            let mut next = self.tiling_page(ino, Version(0), after, wanted.clone())?;
            match next.page() {
                Some(page)
                    if page.version == all.version
                        && page.region.is_some() == wanted.is_some()
                        && !page.records.is_empty() =>
                {
                    all.records.append(page.records);
                    *all.more = *page.more;
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(first))
    }

    fn tiling_page(
        &self,
        ino: Ino,
        known: Version,
        after: Option<u64>,
        wanted: Option<WantedPart>,
    ) -> Result<TilingReply, MdError> {
        self.call(op::Tiling {
            ino,
            known,
            after,
            wanted,
        })
    }

    /// Takes a write permit of a grid object: [`Permit::Write`] or [`Permit::Move`].
    pub fn take_permit(&self, ino: Ino, permit: Permit) -> Result<Permitted, MdError> {
        let taken = self.call(op::Permit { ino, permit })?;
        let taken = taken.ok_or_else(|| MdError::Protocol("no permit was taken".to_owned()))?;
        Ok(*taken)
    }

    /// Returns the write permit of this number.
    pub fn give_permit(&self, ino: Ino, number: u64) -> Result<(), MdError> {
        let permit = Permit::Back(number);
        self.call(op::Permit { ino, permit }).map(drop)
    }
}
