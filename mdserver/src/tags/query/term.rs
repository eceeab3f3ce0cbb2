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

/// What is compared.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Key {
    /// The tag of this key.
    Tag(String),
    /// Any tag whose key fits.
    Tags(KeyPattern),
    /// What is built in.
    Builtin(Builtin),
}

/// A pattern of keys of tags; a query's `temp* = 3` is about each that fits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyPattern(pub(super) Pattern);

impl KeyPattern {
    /// What all keys that fit begin with; often nothing.
    pub fn prefix(&self) -> &str {
        match &self.0 {
            Pattern::Prefix(prefix) => prefix,
            _ => "",
        }
    }

    /// Whether a key fits.
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

/// What is asked about it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Test {
    /// It is there.
    Has,
    /// It compares so.
    Is(Comparison, Literal),
    /// It lies between, both ends included; at least one is there, and both are of one type.
    In(Option<Literal>, Option<Literal>),
    /// It fits.
    Like(Pattern),
    /// It is there and does not fit.
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

/// What it is compared with.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Number(Num),
    Text(String),
    Bytes(Vec<u8>),
    When(When),
}
