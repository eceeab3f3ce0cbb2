//! Searches in the query language of `docs/search.md`: all hits or one rank's share, sorted or unsorted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use slabfs_mdserver::api::{Hit, Kind};
use slabfs_model::{Coords, DType, Tag};

use super::Session;
use super::error::Error;
use crate::call::find::{path_of_hit, under, who};
use crate::call::path::{PathText, Walk};
use crate::client::{Search, Sort};

/// A search.
///
/// ```
/// use slabfs_fs::session::Query;
///
/// let mine = Query::new("project = climate and step < 10")
///     .below("run1")
///     .part(0, 4)
///     .with_tags();
/// ```
#[derive(Debug, Clone, Default)]
pub struct Query {
    search: Search,
    below: Option<PathBuf>,
    sort: Option<String>,
}

/// A hit of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// One of its paths, from the root.
    pub path: PathBuf,
    /// Its kind.
    pub kind: Kind,
    /// Size in bytes.
    pub size: u64,
    /// Last change of data.
    pub mtime: SystemTime,
    /// Its tags by key, if requested and readable.
    pub tags: Vec<(String, Tag)>,
    /// True if it has more tags than these.
    pub tags_cut: bool,
    /// For an object, if requested: dtype and dims.
    pub array: Option<(DType, Coords)>,
}

impl Query {
    /// The query given as text.
    pub fn new(text: impl Into<String>) -> Query {
        let query = text.into();
        Query {
            search: Search {
                query,
                ..Search::default()
            },
            ..Query::default()
        }
    }

    /// Only below this container.
    #[must_use]
    pub fn below(mut self, container: impl AsRef<Path>) -> Query {
        self.below = Some(container.as_ref().to_owned());
        self
    }

    /// Only share `part` of `parts`, from 0: the shares are disjoint, and together they are all hits. For programs that
    /// search collectively.
    #[must_use]
    pub fn part(mut self, part: u32, parts: u32) -> Query {
        self.search.part = Some((part, parts));
        self
    }

    /// The maximum number of hits.
    #[must_use]
    pub fn limit(mut self, hits: u64) -> Query {
        self.search.limit = Some(hits);
        self
    }

    /// Sorts ascending by this key: `path`, `name`, `size`, `mtime`, `dims[0]`, …, or a tag's.
    #[must_use]
    pub fn sort(mut self, key: impl Into<String>) -> Query {
        self.sort = Some(key.into());
        self
    }

    /// Returns the tags of the hits.
    #[must_use]
    pub fn with_tags(mut self) -> Query {
        self.search.with_tags = true;
        self
    }

    /// Returns dtype and dims of the hits.
    #[must_use]
    pub fn with_array(mut self) -> Query {
        self.search.with_form = true;
        self
    }
}

impl Session {
    /// All hits of a query that this user may list, in memory: give a limit if there may be many, or use
    /// [`Session::find_each`].
    ///
    /// # Errors
    /// `Invalid` if the query cannot be parsed: the text points at the place.
    pub fn find(&self, query: &Query) -> Result<Vec<Found>, Error> {
        let mut all = Vec::new();
        self.find_each(query, |found| {
            all.push(found);
            true
        })?;
        Ok(all)
    }

    /// Calls `each` for each hit of a query, until it returns `false`.
    ///
    /// # Errors
    /// As [`Session::find`].
    pub fn find_each(
        &self,
        query: &Query,
        mut each: impl FnMut(Found) -> bool,
    ) -> Result<(), Error> {
        let search = self.search(query)?;
        Ok(self
            .client()?
            .search(&search, &mut |hit| each(found(hit)))?)
    }

    /// The number of hits of a query.
    ///
    /// # Errors
    /// As [`Session::find`].
    pub fn count(&self, query: &Query) -> Result<u64, Error> {
        let search = self.search(query)?;
        Ok(self.client()?.count(&search)?)
    }

    fn search(&self, query: &Query) -> Result<Search, Error> {
        let context = self.context()?;
        let mut search = query.search.clone();
        search.who = Some(who(&context.caller));
        if let Some(below) = &query.below {
            let path = PathText::of_path(below);
            search.under = Some(under(&Walk::new(&context, &path))?);
        }
        if let Some(key) = &query.sort {
            let sort = Sort::named(key).map_err(Error::invalid)?;
            search.sort = Some(sort);
        }
        Ok(search)
    }
}

fn found(hit: Hit) -> Found {
    Found {
        path: PathBuf::from(OsStr::from_bytes(path_of_hit(&hit.path))),
        kind: hit.kind,
        size: hit.size,
        mtime: hit.mtime.into(),
        tags: hit.tags,
        tags_cut: hit.tags_cut,
        array: hit.form.and_then(|form| form.array),
    }
}
