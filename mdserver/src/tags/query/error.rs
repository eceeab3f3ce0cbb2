//! The error of a query: what is wrong, and where.

use std::fmt;
use std::ops::Range;

/// Characters of the query that are shown around the position.
const SHOWN: usize = 36;

/// A mistake in a query; displayed with the position marked below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryError {
    /// The bytes of the query that are wrong; empty at its end.
    pub span: Range<usize>,
    /// What is wrong, and what to write instead.
    pub message: String,
    /// The part of the query around the place.
    excerpt: String,
    /// Characters of the excerpt before the place.
    before: usize,
    /// Characters of the place, at least one.
    width: usize,
}

impl std::error::Error for QueryError {}

impl QueryError {
    /// The mistake at `span` of `text`; the bounds of the span are character boundaries.
    pub(super) fn new(text: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        // The message is one line, whatever part of the query it contains.
        let message: String = message.into();
        let message = message.replace(char::is_control, " ");
        let (left, rest) = text.split_at_checked(span.start).unwrap_or((text, ""));
        let marked = rest.get(..span.len()).unwrap_or(rest);
        let right = rest.get(marked.len()..).unwrap_or("");
        let skipped = left.chars().rev().nth(SHOWN).is_some();
        let start = left.char_indices().rev().nth(SHOWN - 1);
        let left = &left[start.map_or(0, |(at, _)| at)..];
        let mut excerpt = String::from(if skipped { "…" } else { "" });
        excerpt.push_str(left);
        let before = excerpt.chars().count();
        excerpt.extend(marked.chars().take(SHOWN));
        let width = excerpt.chars().count() - before;
        excerpt.extend(right.chars().take(SHOWN));
        if marked.chars().nth(SHOWN).is_some() || right.chars().nth(SHOWN).is_some() {
            excerpt.push('…');
        }
        // One character per column, so that the mark is below the position.
        let excerpt = excerpt.chars().map(|char| match char.is_control() {
            true => ' ',
            false => char,
        });
        Self {
            span,
            message,
            excerpt: excerpt.collect(),
            before,
            width: width.max(1),
        }
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.message)?;
        writeln!(f, "  {}", self.excerpt.trim_end())?;
        write!(f, "  {}{}", " ".repeat(self.before), "^".repeat(self.width))
    }
}
