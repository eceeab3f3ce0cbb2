//! The language of searches: `project = climate and step >= 10 and not has broken`.
//!
//! A [`Query`] is parsed from text, evaluated on a [`Subject`] (an object or a container; [`Query::matches`]), and
//! determines which parts of the index contain all candidates ([`Query::access`]). Everything here is pure.
//! `docs/search.md` describes the language for its users. Decisions:
//!
//! - A comparison, including `!=`, requires the tag: `k != v` is `has k and not k = v`.
//! - A list matches if any of its members does; `k != v` means that none is `v`.
//! - A bare number is a number and never text; quoted it is text and never a number. An untyped tag is both. Numbers
//!   and texts are never compared with each other.
//! - Patterns apply to text.
//!
//! `token` tokenises the text, `parse` builds the tree, `literal` parses values by what they are compared with,
//! `when` parses dates; `term` is the tree, `matches` and `access` evaluate it, `display` formats it. Untrusted text
//! is limited ([`MAX_TEXT`], [`MAX_TERMS`], [`MAX_NESTING`]), so that no query can exhaust the stack: recursion is at
//! most a few calls per level of nesting.

mod access;
mod display;
mod error;
mod literal;
mod matches;
mod parse;
mod subject;
mod term;
#[cfg(test)]
mod tests;
mod token;
mod when;

pub use access::{Access, Keys};
pub use error::QueryError;
pub use subject::{Builtin, BuiltinValue, Subject, kind_name};
pub use term::KeyPattern;

use std::str::FromStr;
use term::Node;

/// Most bytes of a query.
pub const MAX_TEXT: usize = 1 << 20;
/// Most comparisons in a query.
pub const MAX_TERMS: usize = 10_000;
/// How deep parentheses and `not` may be nested.
pub const MAX_NESTING: usize = 100;

/// A search.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    root: Node,
}

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    /// It is not one, or beyond a limit; the error points at the place.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        parse::parse(text, &|_| true).map(|root| Self { root })
    }

    /// Parses a query, in which `owner` may only be compared with a name for which `is_user` returns true.
    ///
    /// # Errors
    /// As [`Query::parse`], or there is no such user.
    pub fn parse_with(text: &str, is_user: &dyn Fn(&str) -> bool) -> Result<Self, QueryError> {
        parse::parse(text, is_user).map(|root| Self { root })
    }
}

impl FromStr for Query {
    type Err = QueryError;

    fn from_str(text: &str) -> Result<Self, QueryError> {
        Self::parse(text)
    }
}
