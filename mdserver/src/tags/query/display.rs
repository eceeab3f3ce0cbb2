//! A query as text; parsing it gives the same query.

use std::fmt::{self, Display, Formatter, Write};

use slabfs_model::bare_key;

use super::Query;
use super::subject::Builtin;
use super::term::{Key, Literal, Node, Pattern, Term, Test};
use super::token::{Lexer, Token};

impl Display for Query {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.root.fmt(f)
    }
}

impl Display for Node {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::And(nodes) => list(nodes, " and ", f),
            Self::Or(nodes) => list(nodes, " or ", f),
            Self::Not(node) => {
                f.write_str("not ")?;
                member(node, f)
            }
            Self::Term(term) => term.fmt(f),
        }
    }
}

fn list(nodes: &[Node], between: &str, f: &mut Formatter<'_>) -> fmt::Result {
    for (at, node) in nodes.iter().enumerate() {
        if at > 0 {
            f.write_str(between)?;
        }
        match node {
            // Binds more tightly than `or` by itself.
            Node::And(_) => node.fmt(f)?,
            _ => member(node, f)?,
        }
    }
    Ok(())
}

fn member(node: &Node, f: &mut Formatter<'_>) -> fmt::Result {
    match node {
        Node::And(_) | Node::Or(_) => write!(f, "({node})"),
        Node::Not(_) | Node::Term(_) => node.fmt(f),
    }
}

impl Display for Term {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let key = Shown(&self.key);
        match &self.test {
            Test::Has => write!(f, "has {key}"),
            Test::Is(comparison, literal) => write!(f, "{key} {} {literal}", comparison.text()),
            Test::In(low, high) => {
                write!(f, "{key} in ")?;
                low.iter().try_for_each(|low| low.fmt(f))?;
                f.write_str("..")?;
                high.iter().try_for_each(|high| high.fmt(f))
            }
            Test::Like(pattern) => write!(f, "{key} = {pattern}"),
            Test::Unlike(pattern) => write!(f, "{key} != {pattern}"),
        }
    }
}

struct Shown<'a>(&'a Key);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Key::Builtin(builtin) => builtin.fmt(f),
            Key::Tags(pattern) => pattern.0.fmt(f),
            Key::Tag(key) if matches!(Builtin::named(key), Ok(None)) && bare_key(key) == key => {
                word(key, f)
            }
            Key::Tag(key) => quoted(key, f),
        }
    }
}

impl Display for Pattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_char('*'),
            Self::Prefix(text) => {
                word(text, f)?;
                f.write_char('*')
            }
            Self::Suffix(text) => {
                f.write_char('*')?;
                word(text, f)
            }
            Self::Infix(text) => {
                f.write_char('*')?;
                word(text, f)?;
                f.write_char('*')
            }
        }
    }
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            // Also where a bare word would be a number, or an owner's number.
            Self::Text(text) if slabfs_model::Num::read(text).is_some() => quoted(text, f),
            Self::Text(text) => word(text, f),
            Self::Bytes(bytes) => {
                f.write_str("x\"")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_char('"')
            }
            Self::When(when) => word(&when.text, f),
        }
    }
}

/// The text bare if it parses to the same, else in quotes.
fn word(text: &str, f: &mut Formatter<'_>) -> fmt::Result {
    let mut lexer = Lexer::new(text);
    let plain = match lexer.next() {
        Ok((Token::Word(word), span)) => {
            span == (0..text.len())
                && word.bare() == Some(text)
                && word.keyword().is_none()
                && !text.contains("..")
                && !(text.starts_with('.') || text.ends_with('.'))
        }
        _ => false,
    };
    match plain {
        true => f.write_str(text),
        false => quoted(text, f),
    }
}

fn quoted(text: &str, f: &mut Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for char in text.chars() {
        if matches!(char, '"' | '\\') {
            f.write_char('\\')?;
        }
        f.write_char(char)?;
    }
    f.write_char('"')
}
