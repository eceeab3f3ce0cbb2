//! Determines which parts of the index contain all candidates of a query.
//!
//! An [`Access`] yields a superset of the hits, whatever further entries the index has. `not` yields no lookup, and
//! neither do built-in properties; in an `and` with a member that does, that does not matter.

use slabfs_model::Value;

use super::Query;
use super::term::{Comparison, Key, KeyPattern, Literal, Node, Pattern, Term, Test};
use crate::tags::entry::{self, End, Range};

/// The lookups of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Everything: the index does not help.
    Scan,
    /// A part of the index.
    Range(Range),
    /// The intersection of these; two or more, none of them `And` or `Scan`.
    And(Vec<Access>),
    /// The union of these; none of them `Or` or `Scan`. Empty: no candidates.
    Or(Vec<Access>),
}

impl Query {
    /// Lookups that yield all candidates of this query.
    pub fn access(&self) -> Access {
        self.access_with(&mut |_| None)
    }

    /// As [`Query::access`], where `keys` returns the keys that match a pattern, or `None` if they are unknown or too
    /// many to look up one by one.
    pub fn access_with(&self, keys: &mut Keys<'_>) -> Access {
        self.root.access(false, keys)
    }

    /// Whether all results of [`Query::access`] are hits, if the index has no obsolete entries, except in ranges that
    /// are [`unsure`](Range::unsure). True for comparisons of tags with values that the index stores completely,
    /// combined by `and` and `or`.
    pub fn is_precise(&self) -> bool {
        self.root.is_precise()
    }
}

/// Returns the keys that match a pattern.
pub type Keys<'a> = dyn FnMut(&KeyPattern) -> Option<Vec<String>> + 'a;

impl Node {
    /// The candidates of it, or of its negation.
    fn access(&self, negated: bool, keys: &mut Keys<'_>) -> Access {
        match (self, negated) {
            (Self::Not(node), _) => node.access(!negated, keys),
            (Self::And(nodes), false) | (Self::Or(nodes), true) => {
                Access::and(nodes.iter().map(|node| node.access(negated, keys)))
            }
            (Self::Or(nodes), false) | (Self::And(nodes), true) => {
                Access::or(nodes.iter().map(|node| node.access(negated, keys)))
            }
            (Self::Term(term), false) => term.access(keys),
            (Self::Term(_), true) => Access::Scan,
        }
    }

    fn is_precise(&self) -> bool {
        match self {
            Self::And(nodes) | Self::Or(nodes) => nodes.iter().all(Self::is_precise),
            Self::Term(term) => matches!(term.key, Key::Tag(_)) && term.test.is_precise(),
            Self::Not(_) => false,
        }
    }
}

impl Term {
    fn access(&self, keys: &mut Keys<'_>) -> Access {
        match &self.key {
            Key::Tag(key) => self.test.access(key),
            Key::Tags(pattern) => match keys(pattern) {
                Some(keys) => Access::or(keys.iter().map(|key| self.test.access(key))),
                None if pattern.prefix().is_empty() => Access::Scan,
                None => Access::Range(entry::keys(pattern.prefix())),
            },
            Key::Builtin(_) => Access::Scan,
        }
    }
}

impl Test {
    fn is_precise(&self) -> bool {
        let number = |literal: &Literal| matches!(literal, Literal::Number(_));
        match self {
            Self::Has => true,
            Self::Is(Comparison::NotEqual, _) => false,
            Self::Is(Comparison::Equal, Literal::Text(text)) => text.len() < entry::CUT,
            Self::Is(Comparison::Equal, Literal::Bytes(bytes)) => bytes.len() < entry::CUT,
            Self::Is(_, literal) => number(literal),
            Self::In(low, high) => low.iter().chain(high).all(number),
            Self::Like(Pattern::Prefix(text) | Pattern::Suffix(text)) => text.len() < entry::CUT,
            // The end of a text looks like trailing zero bytes.
            Self::Like(Pattern::Infix(text)) => {
                text.len() <= entry::WINDOW && !text.is_empty() && !text.contains('\0')
            }
            Self::Like(Pattern::Any) | Self::Unlike(_) => false,
        }
    }

    fn access(&self, key: &str) -> Access {
        let range = match self {
            Self::Has | Self::Unlike(_) | Self::Is(Comparison::NotEqual, _) => entry::has_key(key),
            Self::Is(comparison, literal) => {
                let Some(value) = literal.value() else {
                    return Access::Scan;
                };
                match comparison {
                    Comparison::Less => entry::between(key, End::Open, End::Without(&value)),
                    Comparison::LessOrEqual => entry::between(key, End::Open, End::With(&value)),
                    Comparison::Greater => entry::between(key, End::Without(&value), End::Open),
                    Comparison::GreaterOrEqual => entry::between(key, End::With(&value), End::Open),
                    _ => entry::exact(key, &value),
                }
            }
            Self::In(low, high) => {
                let low = low.as_ref().and_then(Literal::value);
                let high = high.as_ref().and_then(Literal::value);
                let low = low.as_ref().map_or(End::Open, End::With);
                let high = high.as_ref().map_or(End::Open, End::With);
                entry::between(key, low, high)
            }
            Self::Like(Pattern::Any) => entry::has_key(key),
            Self::Like(Pattern::Prefix(text)) => entry::prefix(key, text),
            Self::Like(Pattern::Suffix(text)) => entry::suffix(key, text),
            Self::Like(Pattern::Infix(text)) => {
                let windows = entry::infix(key, text);
                if !windows.is_empty() {
                    let seen = Access::and(windows.into_iter().map(Access::Range));
                    return Access::or([seen, Access::Range(entry::unseen(key))]);
                }
                entry::has_key(key)
            }
        };
        Access::Range(range)
    }
}

impl Literal {
    /// The value of a tag that equals it.
    fn value(&self) -> Option<Value<'_>> {
        match self {
            Self::Number(number) => Some(Value::Number(*number)),
            Self::Text(text) => Some(Value::Text(text.as_str().into())),
            Self::Bytes(bytes) => Some(Value::Bytes(bytes.as_slice().into())),
            Self::When(_) => None,
        }
    }
}

impl Access {
    fn and(parts: impl IntoIterator<Item = Access>) -> Self {
        let mut all = Vec::new();
        for part in parts {
            match part {
                Self::Scan => {}
                Self::And(mut inner) => all.append(&mut inner),
                Self::Or(inner) if inner.is_empty() => return Self::Or(inner),
                part => all.push(part),
            }
        }
        match all.len() {
            0 => Self::Scan,
            1 => all.remove(0),
            _ => Self::And(all),
        }
    }

    fn or(parts: impl IntoIterator<Item = Access>) -> Self {
        let mut any = Vec::new();
        for part in parts {
            match part {
                Self::Scan => return Self::Scan,
                Self::Or(mut inner) => any.append(&mut inner),
                part => any.push(part),
            }
        }
        match any.len() {
            1 => any.remove(0),
            _ => Self::Or(any),
        }
    }
}
