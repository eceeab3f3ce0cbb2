//! Searches: pages of all shards one after the other, sorted if requested.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use slabfs_mdserver::api::{Find, Found, Hit, Ino, MAX_HITS, MAX_PATHS, MdError, ROOT, Time, op};
use slabfs_mdserver::client::Md;
use slabfs_mdserver::tags::fits;
use slabfs_mdserver::tags::query::{Builtin, Query};

use super::Clients;
use crate::client::{FsError, MAX_SORTED, Search, Sort};

impl Clients {
    /// Calls `each` for the hits of a search until it returns `false`. An unsorted search needs memory for a page, a
    /// sorted one for the hits that are returned, at most [`MAX_SORTED`].
    ///
    /// # Errors
    /// The query cannot be parsed (the text points at the place), too many hits to sort, or errors of the metadata
    /// service.
    pub fn search(
        &self,
        search: &Search,
        each: &mut dyn FnMut(Hit) -> bool,
    ) -> Result<(), FsError> {
        match &search.sort {
            None => self.unsorted(search, each),
            Some(sort) => {
                for hit in self.sorted(search, sort)? {
                    if !each(hit) {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// The number of hits of a search.
    ///
    /// # Errors
    /// As [`Clients::search`].
    pub fn count(&self, search: &Search) -> Result<u64, FsError> {
        let enough = |count| search.limit.is_some_and(|limit| count >= limit);
        let most = |count: u64| search.limit.map_or(count, |limit| count.min(limit));
        let mut count = 0u64;
        if self.divided() {
            let mut after = None;
            loop {
                let (hits, next) = self.search_page(search, MAX_HITS, after)?;
                count += hits.len() as u64;
                match next {
                    Some(next) if !enough(count) => after = Some(next),
                    _ => return Ok(most(count)),
                }
            }
        }
        let mut find = search.first();
        find.count_only = true;
        find.with_tags = false;
        loop {
            let Found {
                count: page, next, ..
            } = self.names().md().call(find.clone())?;
            count += page;
            match next {
                Some(next) if !enough(count) => find.after = Some(next),
                _ => return Ok(most(count)),
            }
        }
    }

    /// A page of at most `limit` unsorted hits after the position `after`; and the position of the next page.
    ///
    /// # Errors
    /// As [`Clients::search`].
    pub fn search_page(
        &self,
        search: &Search,
        limit: u32,
        after: Option<Vec<u8>>,
    ) -> Result<(Vec<Hit>, Option<Vec<u8>>), FsError> {
        let mut find = search.first();
        find.limit = limit;
        if !self.divided() {
            find.after = after;
            loop {
                let (hits, next) = page(self.names().md(), &find)?;
                match next {
                    Some(next) if hits.is_empty() => find.after = Some(next),
                    next => return Ok((hits, next)),
                }
            }
        }
        let named = Named::of(search)?;
        // The position is the shard and the position in it.
        let mut at = 0;
        if let Some((&shard, rest)) = after.as_deref().and_then(<[u8]>::split_first) {
            at = usize::from(shard);
            find.after = (!rest.is_empty()).then(|| rest.to_vec());
        }
        let mut hits = Vec::new();
        while let Some(client) = self.all.get(at) {
            hits.extend(match at {
                0 => {
                    let (found, next) = page(client.md(), &find)?;
                    find.after = next;
                    found
                }
                _ => {
                    let (found, next) = page(client.md(), &named.find(&find))?;
                    find.after = next;
                    named.choose(self, search, self.with_paths(search, found)?)?
                }
            });
            if find.after.is_none() {
                at += 1;
            }
            if !hits.is_empty() {
                let position = [&[at as u8], find.after.as_deref().unwrap_or_default()].concat();
                return Ok((hits, (at < self.all.len()).then_some(position)));
            }
        }
        Ok((hits, None))
    }

    /// The inode as a hit of a search, if it is one.
    ///
    /// # Errors
    /// As [`Clients::search`].
    pub fn hit(&self, search: &Search, ino: Ino) -> Result<Option<Hit>, FsError> {
        let find = Find {
            only: Some(ino),
            limit: 1,
            ..search.first()
        };
        let hits = match self.shards.is_remote(ino) {
            true => {
                let named = Named::of(search)?;
                let (hits, _) = page(self.md(ino), &named.find(&find))?;
                named.choose(self, search, self.with_paths(search, hits)?)?
            }
            false => page(self.md(ino), &find)?.0,
        };
        Ok(hits.into_iter().next())
    }

    /// The hits of another shard that the caller could list, below the container that is searched, with their paths.
    fn with_paths(&self, search: &Search, mut hits: Vec<Hit>) -> Result<Vec<Hit>, FsError> {
        let md = self.names().md();
        let mut under = Vec::new();
        if let Some(ino) = search.under.filter(|ino| *ino != ROOT) {
            let inos = vec![ino];
            under = md.call(op::Paths { inos, who: None })?.concat();
            if under.is_empty() {
                return Ok(Vec::new());
            }
        }
        under.push(b'/');
        let mut named = Vec::with_capacity(hits.len());
        while !hits.is_empty() {
            let later = hits.split_off(hits.len().min(MAX_PATHS));
            let inos = hits.iter().map(|hit| hit.ino).collect();
            let who = search.who.clone();
            let paths = md.call(op::Paths { inos, who })?;
            for (mut hit, path) in hits.into_iter().zip(paths) {
                if path.starts_with(&under) {
                    hit.path = path;
                    named.push(hit);
                }
            }
            hits = later;
        }
        Ok(named)
    }

    fn unsorted(&self, search: &Search, each: &mut dyn FnMut(Hit) -> bool) -> Result<(), FsError> {
        let mut left = search.limit.unwrap_or(u64::MAX);
        let mut after = None;
        while left > 0 {
            let limit = u32::try_from(left).unwrap_or(MAX_HITS).min(MAX_HITS);
            let (hits, next) = self.search_page(search, limit, after)?;
            left = left.saturating_sub(hits.len() as u64);
            for hit in hits {
                if !each(hit) {
                    return Ok(());
                }
            }
            match next {
                Some(_) => after = next,
                None => break,
            }
        }
        Ok(())
    }

    /// The least hits of a search, sorted; only as many are held as are requested.
    fn sorted(&self, search: &Search, sort: &Sort) -> Result<Vec<Hit>, FsError> {
        let limit = search.limit.map_or(MAX_SORTED, |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX)
        });
        if limit > MAX_SORTED {
            return Err(FsError::Invalid(format!(
                "at most {MAX_SORTED} hits are sorted"
            )));
        }
        let mut heap = BinaryHeap::with_capacity(limit.min(4096) + 1);
        let mut after = None;
        loop {
            let (hits, next) = self.search_page(search, MAX_HITS, after)?;
            for hit in hits {
                heap.push(Ordered { hit, sort });
                if heap.len() > limit {
                    if search.limit.is_none() {
                        return Err(FsError::Invalid(format!(
                            "more than {MAX_SORTED} hits cannot be sorted: give a limit on their number (--limit), \
                             or leave out the order"
                        )));
                    }
                    heap.pop();
                }
            }
            match next {
                Some(_) => after = next,
                None => break,
            }
        }
        let sorted = heap.into_sorted_vec();
        Ok(sorted.into_iter().map(|ordered| ordered.hit).collect())
    }
}

/// A search for objects whose names are in another shard: their own shard looks for what does not depend on names, and the rest is
/// decided here.
///
/// The query, and its text without names; none if names do not matter.
struct Named(Option<(Query, String)>);

impl Named {
    fn of(search: &Search) -> Result<Named, MdError> {
        let query = Query::parse(&search.query);
        let query = query.map_err(|error| MdError::Invalid(error.to_string()))?;
        if !query.names(Builtin::Name) && !query.names(Builtin::Path) {
            return Ok(Named(None));
        }
        let without = query.without_names().to_string();
        Ok(Named(Some((query, without))))
    }

    /// What the objects' shard is asked for.
    fn find(&self, find: &Find) -> Find {
        match &self.0 {
            None => find.clone(),
            Some((_, without)) => Find {
                query: without.clone(),
                with_tags: true,
                with_form: true,
                ..find.clone()
            },
        }
    }

    /// The hits that fit the query with their names.
    fn choose(
        &self,
        clients: &Clients,
        search: &Search,
        hits: Vec<Hit>,
    ) -> Result<Vec<Hit>, FsError> {
        let Some((query, _)) = &self.0 else {
            return Ok(hits);
        };
        let now = Time::now();
        let mut chosen = Vec::with_capacity(hits.len());
        for mut hit in hits {
            if hit.tags_cut {
                let (few, all) = (hit.tags, clients.md(hit.ino).tags(hit.ino)?);
                hit.tags = all;
                let fits = fits(query, &hit, now);
                hit.tags = few;
                if !fits {
                    continue;
                }
            } else if !fits(query, &hit, now) {
                continue;
            }
            let asked = search.first();
            if !asked.with_tags {
                (hit.tags, hit.tags_cut) = (Vec::new(), false);
            }
            if !asked.with_form {
                hit.form = None;
            }
            chosen.push(hit);
        }
        Ok(chosen)
    }
}

fn page(md: &Md, find: &Find) -> Result<(Vec<Hit>, Option<Vec<u8>>), MdError> {
    let Found { hits, next, .. } = md.call(find.clone())?;
    Ok((hits, next))
}

/// A hit with its sort key.
struct Ordered<'a> {
    hit: Hit,
    sort: &'a Sort,
}

impl Ord for Ordered<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sort.compare(&self.hit, &other.hit)
    }
}

impl PartialOrd for Ordered<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ordered<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ordered<'_> {}
