//! What a search asks for, and the orders of its hits. `clients/find.rs` does it.

use std::cmp::Ordering;

use slabfs_mdserver::api::{Caller, Find, Hit, Ino, MAX_HITS};
use slabfs_mdserver::tags::query::kind_name;
use slabfs_model::{MAX_RANK, Value, bare_key, check_tag_key};

/// The maximum number of hits that are sorted without a limit, and the maximum limit of a sorted search.
pub const MAX_SORTED: usize = 1_000_000;

/// The sort key of hits, ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sort {
    /// Their paths.
    Path,
    /// The last parts of their paths.
    Name,
    /// Their kinds.
    Kind,
    /// Their dtypes as text; hits without one last.
    DType,
    /// Their numbers of axes; hits without dims last.
    Rank,
    /// The lengths of this axis; hits without it last.
    Dim(usize),
    /// Their sizes.
    Size,
    /// Their times of modification.
    Mtime,
    /// The numeric ids of their owners.
    Owner,
    /// The least value of a tag: numbers, then texts, then bytes; hits without the tag last.
    Tag(String),
}

impl Sort {
    /// Parses a sort key in the syntax of the query language: a built-in name, or the key of a tag, in quotes if it is
    /// a word of the language.
    ///
    /// # Errors
    /// It names nothing; the text lists the possible names.
    pub fn named(name: &str) -> Result<Self, String> {
        let quoted = name
            .strip_prefix('"')
            .and_then(|name| name.strip_suffix('"'));
        let tag = |key: &str| match check_tag_key(key) {
            Ok(()) => Ok(Self::Tag(key.to_owned())),
            Err(error) => Err(error.to_string()),
        };
        Ok(match (quoted, name) {
            (Some(key), _) => tag(key)?,
            (None, "") => {
                return Err(
                    "an order has a key: a tag's, or one of name, path, kind, dtype, rank, dims[0], size, mtime, owner"
                        .to_owned(),
                );
            }
            (None, "path") => Self::Path,
            (None, "name") => Self::Name,
            (None, "kind") => Self::Kind,
            (None, "dtype") => Self::DType,
            (None, "rank") => Self::Rank,
            (None, "size") => Self::Size,
            (None, "mtime") => Self::Mtime,
            (None, "owner") => Self::Owner,
            (None, name) if name == "dims" || name.starts_with("dims[") => {
                let axis = name
                    .strip_prefix("dims[")
                    .and_then(|name| name.strip_suffix(']'));
                let axis = axis.and_then(|axis| axis.parse().ok());
                let axis = axis.filter(|axis| *axis < MAX_RANK);
                Self::Dim(axis.ok_or("an axis is written dims[0], dims[1] and so on")?)
            }
            (None, key) => tag(bare_key(key))?,
        })
    }

    /// Whether hits need [`Hit::form`] to be put in this order.
    pub fn needs_form(&self) -> bool {
        matches!(self, Self::DType | Self::Rank | Self::Dim(_) | Self::Owner)
    }

    /// Compares two hits in this order.
    pub fn compare(&self, a: &Hit, b: &Hit) -> Ordering {
        let by = self.by(a, b).unwrap_or_else(|presence| presence);
        by.then_with(|| a.path.cmp(&b.path))
    }

    /// Compares in descending order; hits without the key are still last, and equal ones are in ascending order of
    /// their paths.
    pub fn compare_descending(&self, a: &Hit, b: &Hit) -> Ordering {
        let by = match (self, self.by(a, b)) {
            (Self::Path, _) => b.path.cmp(&a.path),
            (_, Ok(order)) => order.reverse(),
            (_, Err(presence)) => presence,
        };
        by.then_with(|| a.path.cmp(&b.path))
    }

    /// Compares by the key alone; if only one of them has it, that one is first.
    fn by(&self, a: &Hit, b: &Hit) -> Result<Ordering, Ordering> {
        let array = |hit: &Hit| hit.form.as_ref().and_then(|form| form.array.clone());
        let name = |hit: &Hit| {
            hit.path
                .rsplit(|&byte| byte == b'/')
                .next()
                .map(<[u8]>::to_vec)
        };
        match self {
            Self::Path => Ok(Ordering::Equal),
            Self::Name => Ok(name(a).cmp(&name(b))),
            Self::Kind => Ok(kind_name(a.kind).cmp(kind_name(b.kind))),
            Self::Size => Ok(a.size.cmp(&b.size)),
            Self::Mtime => Ok(a.mtime.cmp(&b.mtime)),
            Self::Owner => {
                let uid = |hit: &Hit| hit.form.as_ref().map(|form| form.uid);
                present(uid(a), uid(b))
            }
            Self::DType => {
                let dtype = |hit: &Hit| array(hit).map(|(dtype, _)| dtype.to_string());
                present(dtype(a), dtype(b))
            }
            Self::Rank => {
                let rank = |hit: &Hit| array(hit).map(|(_, dims)| dims.len());
                present(rank(a), rank(b))
            }
            Self::Dim(axis) => {
                let dim = |hit: &Hit| array(hit).and_then(|(_, dims)| dims.get(*axis).copied());
                present(dim(a), dim(b))
            }
            Self::Tag(_) => by_tags(a, b),
        }
    }
}

fn by_tags(a: &Hit, b: &Hit) -> Result<Ordering, Ordering> {
    match (&a.tag, &b.tag) {
        (Some(a), Some(b)) => {
            let (a, b) = (a.values(), b.values());
            match (least(&a), least(&b)) {
                (Some(a), Some(b)) => Ok(compare(a, b)),
                (a, b) => Err(b.is_some().cmp(&a.is_some())),
            }
        }
        (a, b) => Err(b.is_some().cmp(&a.is_some())),
    }
}

fn least<'a, 'v>(values: &'a [Value<'v>]) -> Option<&'a Value<'v>> {
    values.iter().min_by(|a, b| compare(a, b))
}

fn present<T: Ord>(a: Option<T>, b: Option<T>) -> Result<Ordering, Ordering> {
    match (a, b) {
        (Some(a), Some(b)) => Ok(a.cmp(&b)),
        (a, b) => Err(b.is_some().cmp(&a.is_some())),
    }
}

fn compare(a: &Value<'_>, b: &Value<'_>) -> Ordering {
    let kind = |value: &Value<'_>| match value {
        Value::Number(_) => 0,
        Value::Text(_) => 1,
        Value::Bytes(_) => 2,
    };
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        _ => kind(a).cmp(&kind(b)),
    }
}

/// The parameters of a search.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// In the language of `docs/search.md`.
    pub query: String,
    /// Only below this container.
    pub under: Option<Ino>,
    /// The caller, for permissions; `None` finds everything.
    pub who: Option<Caller>,
    /// Only share `.0` of `.1`.
    pub part: Option<(u32, u32)>,
    /// Return all tags of the hits.
    pub with_tags: bool,
    /// Return the form of the hits.
    pub with_form: bool,
    /// The maximum number of hits.
    pub limit: Option<u64>,
    /// The sort key.
    pub sort: Option<Sort>,
}

impl Search {
    pub(crate) fn first(&self) -> Find {
        let tag = match &self.sort {
            Some(Sort::Tag(tag)) => Some(tag.clone()),
            _ => None,
        };
        Find {
            query: self.query.clone(),
            under: self.under,
            who: self.who.clone(),
            limit: MAX_HITS,
            part: self.part,
            only: None,
            count_only: false,
            with_tags: self.with_tags,
            with_tag: tag,
            with_form: self.with_form || self.sort.as_ref().is_some_and(Sort::needs_form),
            after: None,
        }
    }
}
