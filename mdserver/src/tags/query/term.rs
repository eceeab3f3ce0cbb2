//! The tree of a query.
//!
//! `And` and `Or` have two or more members and none of their own kind, so the depth of a tree is
//! bounded by the nesting of parentheses and `not` in its text.

use slabfs_model::Num;

use super::subject::Builtin;
use super::when::When;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Term(Term),
}

/// A comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Term {
    pub(super) key: Key,
    pub(super) test: Test,
}

/// The left side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Key {
    /// The tag of this key.
    Tag(String),
    /// Any tag whose key matches.
    Tags(KeyPattern),
    /// A built-in property.
    Builtin(Builtin),
}

/// A pattern of tag keys; a query's `temp* = 3` applies to each key that matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyPattern(pub(super) Pattern);

impl KeyPattern {
    /// The common prefix of all keys that match; often empty.
    pub fn prefix(&self) -> &str {
        match &self.0 {
            Pattern::Prefix(prefix) => prefix,
            _ => "",
        }
    }

    /// Whether a key matches.
    pub fn fits(&self, key: &str) -> bool {
        self.0.fits(key)
    }
}

/// A text with stars at its ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Pattern {
    /// `*`
    Any,
    /// `v*`
    Prefix(String),
    /// `*v`
    Suffix(String),
    /// `*v*`
    Infix(String),
}

impl Pattern {
    pub(super) fn fits(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Prefix(part) => text.starts_with(part.as_str()),
            Self::Suffix(part) => text.ends_with(part.as_str()),
            Self::Infix(part) => text.contains(part.as_str()),
        }
    }
}

/// The condition of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Test {
    /// It exists.
    Has,
    /// It compares so with the literal.
    Is(Comparison, Literal),
    /// It is between the bounds, both inclusive; at least one is given, and both are of one type.
    In(Option<Literal>, Option<Literal>),
    /// It matches the pattern.
    Like(Pattern),
    /// It exists and does not match the pattern.
    Unlike(Pattern),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

/// The right side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Number(Num),
    Text(String),
    Bytes(Vec<u8>),
    When(When),
}
