//! Whether a query matches an object.

use slabfs_model::{Num, Tag, Value};
use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::Query;
use super::subject::{Builtin, BuiltinValue, Subject};
use super::term::{Comparison, Key, Literal, Node, Pattern, Term, Test};

impl Query {
    /// Whether the query matches.
    pub fn matches(&self, subject: &dyn Subject) -> bool {
        self.root.matches(subject)
    }

    /// Whether the query names a built-in property.
    pub fn names(&self, builtin: Builtin) -> bool {
        self.root.names(builtin)
    }

    /// A query that finds all that this one does, and more, and does not depend on names: what it says of names and paths is left out.
    #[must_use]
    pub fn without_names(&self) -> Query {
        Query {
            root: self.root.without_names(true),
        }
    }

    /// The keys of the tags that the query names, without patterns of keys.
    pub fn tags(&self) -> BTreeSet<&str> {
        let mut keys = BTreeSet::new();
        self.root.tags(&mut keys);
        keys
    }
}

impl Node {
    fn names(&self, builtin: Builtin) -> bool {
        match self {
            Self::And(nodes) | Self::Or(nodes) => nodes.iter().any(|node| node.names(builtin)),
            Self::Not(node) => node.names(builtin),
            Self::Term(term) => term.key == Key::Builtin(builtin),
        }
    }

    /// `wider`: what a name decides counts as true, so that more is found; else as false, where less is found by that.
    fn without_names(&self, wider: bool) -> Node {
        let all = |nodes: &[Node]| nodes.iter().map(|node| node.without_names(wider)).collect();
        match self {
            Self::And(nodes) => Self::And(all(nodes)),
            Self::Or(nodes) => Self::Or(all(nodes)),
            Self::Not(node) => Self::Not(Box::new(node.without_names(!wider))),
            Self::Term(Term {
                key: Key::Builtin(Builtin::Name | Builtin::Path),
                ..
            }) => {
                // Everything has a size.
                let always = Self::Term(Term {
                    key: Key::Builtin(Builtin::Size),
                    test: Test::Has,
                });
                match wider {
                    true => always,
                    false => Self::Not(Box::new(always)),
                }
            }
            Self::Term(term) => Self::Term(term.clone()),
        }
    }

    fn tags<'a>(&'a self, keys: &mut BTreeSet<&'a str>) {
        match self {
            Self::And(nodes) | Self::Or(nodes) => nodes.iter().for_each(|node| node.tags(keys)),
            Self::Not(node) => node.tags(keys),
            Self::Term(term) => {
                if let Key::Tag(key) = &term.key {
                    keys.insert(key);
                }
            }
        }
    }

    fn matches(&self, subject: &dyn Subject) -> bool {
        match self {
            Self::And(nodes) => nodes.iter().all(|node| node.matches(subject)),
            Self::Or(nodes) => nodes.iter().any(|node| node.matches(subject)),
            Self::Not(node) => !node.matches(subject),
            Self::Term(term) => term.matches(subject),
        }
    }
}

impl Term {
    fn matches(&self, subject: &dyn Subject) -> bool {
        let tag = |key: &str| {
            let tag = subject.tag(key);
            tag.is_some_and(|tag| self.test.of_tag(&tag))
        };
        match &self.key {
            Key::Tag(key) => tag(key),
            Key::Tags(pattern) => subject.each_key(&mut |key| pattern.fits(key) && tag(key)),
            Key::Builtin(builtin) => {
                let value = subject.builtin(*builtin);
                value.is_some_and(|value| self.test.of_builtin(*builtin, &value, subject))
            }
        }
    }
}

impl Test {
    fn of_tag(&self, tag: &Tag) -> bool {
        let any = |test: &dyn Fn(&Value<'_>) -> bool| tag.values().iter().any(test);
        match self {
            Self::Has => true,
            Self::Is(Comparison::NotEqual, literal) => {
                !any(&|value| literal.compare(value) == Some(Ordering::Equal))
            }
            Self::Is(..) | Self::In(..) => {
                any(&|value| self.of_order(&|literal| literal.compare(value)))
            }
            Self::Like(pattern) => {
                *pattern == Pattern::Any || any(&|value| text_fits(pattern, value))
            }
            Self::Unlike(pattern) => {
                *pattern != Pattern::Any && !any(&|value| text_fits(pattern, value))
            }
        }
    }

    /// Whether a value fits a test for its order; `order` is how it compares with a literal.
    fn of_order(&self, order: &dyn Fn(&Literal) -> Option<Ordering>) -> bool {
        match self {
            Self::Is(Comparison::NotEqual, literal) => order(literal) != Some(Ordering::Equal),
            Self::Is(comparison, literal) => order(literal).is_some_and(|is| comparison.allows(is)),
            Self::In(low, high) => {
                let above = |low: &Literal| order(low).is_some_and(Ordering::is_ge);
                let below = |high: &Literal| order(high).is_some_and(Ordering::is_le);
                low.as_ref().is_none_or(above) && high.as_ref().is_none_or(below)
            }
            _ => false,
        }
    }

    fn of_builtin(
        &self,
        builtin: Builtin,
        value: &BuiltinValue<'_>,
        subject: &dyn Subject,
    ) -> bool {
        match self {
            Self::Has => true,
            Self::Is(..) | Self::In(..) => {
                self.of_order(&|literal| compare_builtin(value, literal, subject))
            }
            Self::Like(pattern) => text_of(value).is_some_and(|text| pattern.fits(text)),
            // An owner without a name fits no pattern.
            Self::Unlike(pattern) => match text_of(value) {
                Some(text) => !pattern.fits(text),
                None => builtin == Builtin::Owner,
            },
        }
    }
}

fn text_fits(pattern: &Pattern, value: &Value<'_>) -> bool {
    match value {
        Value::Text(text) => pattern.fits(text),
        _ => false,
    }
}

fn text_of<'a>(value: &'a BuiltinValue<'_>) -> Option<&'a str> {
    match value {
        BuiltinValue::Text(text) => Some(text),
        BuiltinValue::Owner { name, .. } => name.as_deref(),
        _ => None,
    }
}

/// How the value compares with the literal, if both are of one type.
fn compare_builtin(
    value: &BuiltinValue<'_>,
    literal: &Literal,
    subject: &dyn Subject,
) -> Option<Ordering> {
    match (value, literal) {
        (BuiltinValue::Number(number), Literal::Number(_)) => {
            literal.compare(&Value::Number(number_of(*number)))
        }
        (BuiltinValue::Owner { uid, .. }, Literal::Number(_)) => {
            literal.compare(&Value::Number(Num::int(i64::from(*uid))))
        }
        (BuiltinValue::Time(time), Literal::When(when)) => {
            Some(when.order_of(*time, subject.now()))
        }
        (_, Literal::Text(literal)) => text_of(value).map(|text| text.cmp(literal)),
        _ => None,
    }
}

/// The number; from 2^63 on, the closest float.
fn number_of(number: u64) -> Num {
    let float = || Num::float(number as f64).unwrap_or(Num::int(i64::MAX));
    i64::try_from(number).map_or_else(|_| float(), Num::int)
}

impl Literal {
    /// How a value compares with this literal, if both are of one type.
    fn compare(&self, value: &Value<'_>) -> Option<Ordering> {
        match (value, self) {
            (Value::Number(value), Self::Number(literal)) => Some(value.cmp(literal)),
            (Value::Text(value), Self::Text(literal)) => Some(value.as_ref().cmp(literal)),
            (Value::Bytes(value), Self::Bytes(literal)) => Some(value.as_ref().cmp(literal)),
            _ => None,
        }
    }
}

impl Comparison {
    fn allows(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}
