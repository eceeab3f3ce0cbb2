//! The parser: `or` of `and` of `not` of comparisons.

use std::ops::Range;

use super::error::QueryError;
use super::literal;
use super::subject::Builtin;
use super::term::{Comparison, Key, KeyPattern, Node, Term, Test};
use super::token::{Lexer, Token, Word};
use super::{MAX_NESTING, MAX_TERMS, MAX_TEXT};

type Span = Range<usize>;

pub(super) fn parse(text: &str) -> Result<Node, QueryError> {
    if text.len() > MAX_TEXT {
        let message = format!(
            "a query has at most {MAX_TEXT} bytes, this has {}",
            text.len()
        );
        return Err(QueryError::new(text, 0..0, message));
    }
    let mut lexer = Lexer::new(text);
    let (token, span) = lexer.next()?;
    let mut parser = Parser {
        lexer,
        token,
        span,
        terms: 0,
        depth: 0,
    };
    if parser.token == Token::End {
        return Err(parser.error("nothing is searched for; write e.g. step >= 10, or has *"));
    }
    let root = parser.or()?;
    match parser.token {
        Token::End => Ok(root),
        Token::Close => Err(parser.error("this parenthesis closes nothing")),
        _ => Err(parser.error("write and or or between two comparisons")),
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The token that comes next, and where.
    token: Token,
    span: Span,
    terms: usize,
    depth: usize,
}

impl Parser<'_> {
    fn error(&self, message: impl Into<String>) -> QueryError {
        self.error_at(self.span.clone(), message)
    }

    fn error_at(&self, span: Span, message: impl Into<String>) -> QueryError {
        QueryError::new(self.lexer.text, span, message)
    }

    /// Takes the token and looks at the next.
    fn take(&mut self) -> Result<(Token, Span), QueryError> {
        let (token, span) = self.lexer.next()?;
        Ok((
            std::mem::replace(&mut self.token, token),
            std::mem::replace(&mut self.span, span),
        ))
    }

    fn at(&self, keyword: &str) -> bool {
        matches!(&self.token, Token::Word(word) if word.is(keyword))
    }

    fn or(&mut self) -> Result<Node, QueryError> {
        let mut nodes = vec![self.and()?];
        while self.at("or") {
            self.take()?;
            nodes.push(self.and()?);
        }
        Ok(joined(nodes, false))
    }

    fn and(&mut self) -> Result<Node, QueryError> {
        let mut nodes = vec![self.not()?];
        while self.at("and") {
            self.take()?;
            nodes.push(self.not()?);
        }
        Ok(joined(nodes, true))
    }

    fn not(&mut self) -> Result<Node, QueryError> {
        let node = if self.at("not") {
            self.enter()?;
            self.take()?;
            Node::Not(Box::new(self.not()?))
        } else if self.token == Token::Open {
            self.enter()?;
            let (_, open) = self.take()?;
            let node = self.or()?;
            match self.token {
                Token::Close => self.take()?,
                Token::End => {
                    return Err(self.error_at(open, "this parenthesis is never closed"));
                }
                _ => return Err(self.error("write and, or, or a closing parenthesis here")),
            };
            node
        } else {
            return self.term().map(Node::Term);
        };
        self.depth -= 1;
        Ok(node)
    }

    fn enter(&mut self) -> Result<(), QueryError> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(self.error(format!(
                "parentheses and not are nested more than {MAX_NESTING} deep here"
            )));
        }
        Ok(())
    }

    fn term(&mut self) -> Result<Term, QueryError> {
        self.terms += 1;
        if self.terms > MAX_TERMS {
            let message = format!("a query has at most {MAX_TERMS} comparisons");
            return Err(self.error(message));
        }
        if self.at("has") {
            self.take()?;
            let (word, span) = self.word("the key of a tag after has, e.g. has step")?;
            let key = self.key(&word, span)?;
            let test = Test::Has;
            return Ok(Term { key, test });
        }
        let (word, span) = self.word("a comparison, e.g. step >= 10, or has step")?;
        let key = self.key(&word, span.clone())?;
        if self.at("in") {
            self.take()?;
            let (word, span) = self.word("a range after in, e.g. 3..9")?;
            let (low, high) = self.said(span, literal::range(&key, &word))?;
            let test = Test::In(low, high);
            return Ok(Term { key, test });
        }
        let Token::Compare(comparison) = self.token else {
            let key = &self.lexer.text[span];
            let shown: String = key.chars().take(40).collect();
            return Err(self.error(format!(
                "write a comparison after {shown}: =, !=, <, <=, >, >=, in; or has {shown}"
            )));
        };
        self.take()?;
        let after = format!("a value after {}", comparison.text());
        let (word, span) = self.word(&after)?;
        let test = self.test(&key, comparison, &word, span)?;
        Ok(Term { key, test })
    }

    /// A word that is none of the language.
    fn word(&mut self, wanted: &str) -> Result<(Word, Span), QueryError> {
        match &self.token {
            Token::Word(word) => match word.keyword() {
                Some(keyword) => Err(self.error(format!(
                    "write {wanted}; \"{keyword}\" is a word of the language, to be quoted if it is meant as a key or value"
                ))),
                None => match self.take()? {
                    (Token::Word(word), span) => Ok((word, span)),
                    (_, span) => Err(self.error_at(span, format!("write {wanted}"))),
                },
            },
            _ => Err(self.error(format!("write {wanted}"))),
        }
    }

    fn key(&self, word: &Word, span: Span) -> Result<Key, QueryError> {
        if word.has_star() {
            let pattern = self.said(span, literal::pattern(word))?;
            return Ok(Key::Tags(KeyPattern(pattern)));
        }
        if let Some(name) = word.bare()
            && let Some(builtin) = self.said(span.clone(), Builtin::named(name))?
        {
            return Ok(Key::Builtin(builtin));
        }
        let key = word.text();
        let checked = slabfs_model::check_tag_key(&key);
        self.said(span, checked)?;
        Ok(Key::Tag(key))
    }

    fn test(
        &self,
        key: &Key,
        comparison: Comparison,
        word: &Word,
        span: Span,
    ) -> Result<Test, QueryError> {
        if !word.has_star() {
            let literal = literal::value(key, comparison, word);
            return Ok(Test::Is(comparison, self.said(span, literal)?));
        }
        self.said(span.clone(), literal::takes_patterns(key))?;
        let pattern = self.said(span.clone(), literal::pattern(word))?;
        match comparison {
            Comparison::Equal => Ok(Test::Like(pattern)),
            Comparison::NotEqual => Ok(Test::Unlike(pattern)),
            _ => Err(self.error_at(
                span,
                format!(
                    "a pattern goes with = or !=, not with {}; quote a star that is meant as a star",
                    comparison.text()
                ),
            )),
        }
    }

    /// The result, its error put at its place.
    fn said<T, E: ToString>(&self, span: Span, result: Result<T, E>) -> Result<T, QueryError> {
        result.map_err(|error| self.error_at(span, error.to_string()))
    }
}

/// One node of these, those of the same kind taken apart.
fn joined(mut nodes: Vec<Node>, and: bool) -> Node {
    if nodes.len() == 1
        && let Some(node) = nodes.pop()
    {
        return node;
    }
    let mut flat = Vec::with_capacity(nodes.len());
    for node in nodes {
        match node {
            Node::And(mut inner) if and => flat.append(&mut inner),
            Node::Or(mut inner) if !and => flat.append(&mut inner),
            node => flat.push(node),
        }
    }
    match and {
        true => Node::And(flat),
        false => Node::Or(flat),
    }
}
