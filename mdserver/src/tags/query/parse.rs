//! The parser: `or` of `and` of `not` of comparisons.

use std::ops::Range;

use super::error::QueryError;
use super::literal;
use super::subject::Builtin;
use super::term::{Comparison, Key, KeyPattern, Literal, Node, Pattern, Term, Test};
use super::token::{Lexer, Part, Token, Word};
use super::{MAX_NESTING, MAX_TERMS, MAX_TEXT};

type Span = Range<usize>;

/// Parses a query; `is_user` returns whether a user of this name exists.
pub(super) fn parse(text: &str, is_user: &dyn Fn(&str) -> bool) -> Result<Node, QueryError> {
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
        is_user,
    };
    if parser.token == Token::End {
        return Err(parser.error("nothing is searched for; write e.g. step >= 10, or has *"));
    }
    let root = parser.or()?;
    match parser.token {
        Token::End => Ok(root),
        Token::Close => Err(parser.error("this parenthesis closes nothing")),
        _ => Err(parser.error("write \"and\" or \"or\" between two comparisons")),
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token, and its position.
    token: Token,
    span: Span,
    terms: usize,
    depth: usize,
    is_user: &'a dyn Fn(&str) -> bool,
}

impl Parser<'_> {
    fn error(&self, message: impl Into<String>) -> QueryError {
        self.error_at(self.span.clone(), message)
    }

    fn error_at(&self, span: Span, message: impl Into<String>) -> QueryError {
        QueryError::new(self.lexer.text, span, message)
    }

    /// Takes the token and reads the next one.
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
            return self.term();
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

    fn count_term(&mut self, span: Span) -> Result<(), QueryError> {
        self.terms += 1;
        if self.terms > MAX_TERMS {
            let message = format!("a query has at most {MAX_TERMS} comparisons");
            return Err(self.error_at(span, message));
        }
        Ok(())
    }

    fn term(&mut self) -> Result<Node, QueryError> {
        self.count_term(self.span.clone())?;
        if self.at("has") {
            self.take()?;
            let (word, span) = self.word("the key of a tag after has, e.g. has step")?;
            let key = self.key(&word, span)?;
            let test = Test::Has;
            return Ok(Node::Term(Term { key, test }));
        }
        let (word, span) = self.word("a comparison, e.g. step >= 10, or has step")?;
        let key = self.key(&word, span.clone())?;
        if self.at("in") {
            self.take()?;
            if self.token == Token::Open {
                return self.list(&key);
            }
            let (word, span) = self.word("a range after in, e.g. 3..9, or a list, e.g. (3, 5)")?;
            let (low, high) = self.said(span, literal::range(&key, &word))?;
            let test = Test::In(low, high);
            return Ok(Node::Term(Term { key, test }));
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
        if matches!(self.token, Token::Compare(_)) {
            return Err(self.error(format!(
                "write {after}; one that begins with <, > or = is quoted, e.g. dtype = \"<f4\""
            )));
        }
        let (word, span) = self.word(&after)?;
        let test = self.test(&key, comparison, &word, span)?;
        Ok(Node::Term(Term { key, test }))
    }

    /// `(a, b, c)` after `in`: any of these.
    fn list(&mut self, key: &Key) -> Result<Node, QueryError> {
        let (_, open) = self.take()?;
        let mut nodes = Vec::new();
        // Whether the last item was a value, so that a comma has to follow.
        let mut valued = false;
        loop {
            match &self.token {
                Token::Word(_) => {}
                Token::Close if valued => {
                    self.take()?;
                    return Ok(joined(nodes, false));
                }
                Token::End => {
                    return Err(self.error_at(open, "this parenthesis is never closed"));
                }
                _ => {
                    return Err(self.error("write values with commas between them, e.g. in (3, 5)"));
                }
            }
            let (Token::Word(word), span) = self.take()? else {
                continue;
            };
            for (at, piece) in word.between_commas().into_iter().enumerate() {
                if at > 0 && !std::mem::take(&mut valued) {
                    return Err(self.error_at(span, "a value is missing before a comma"));
                }
                if piece.parts.is_empty() {
                    continue;
                }
                if valued || piece.keyword().is_some() {
                    let message =
                        "write commas between values, and a word of the language in quotes";
                    return Err(self.error_at(span, message));
                }
                self.count_term(span.clone())?;
                let test = self.test(key, Comparison::Equal, &piece, span.clone())?;
                let key = key.clone();
                nodes.push(Node::Term(Term { key, test }));
                valued = true;
            }
        }
    }

    /// A word that is no keyword of the language.
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
            let pattern = match (self.said(span, literal::pattern(word))?, word.parts.first()) {
                (Pattern::Prefix(text), Some(Part::Bare(_))) => {
                    match slabfs_model::bare_key(&text) {
                        "" => Pattern::Any,
                        key => Pattern::Prefix(key.to_owned()),
                    }
                }
                (pattern, _) => pattern,
            };
            return Ok(Key::Tags(KeyPattern(pattern)));
        }
        if let Some(name) = word.bare()
            && let Some(builtin) = self.said(span.clone(), Builtin::named(name))?
        {
            return Ok(Key::Builtin(builtin));
        }
        // The prefix of attribute names is removed; in quotes it is part of the key.
        let key = match word.bare() {
            Some(name) => slabfs_model::bare_key(name).to_owned(),
            None => word.text(),
        };
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
            if literal::is_range(key, word) {
                let message = "a range is asked for with in, e.g. step in 3..9; quote it if it is meant as text";
                return Err(self.error_at(span, message));
            }
            let literal = self.said(span.clone(), literal::value(key, comparison, word))?;
            if let Literal::Text(text) = &literal
                && matches!(comparison, Comparison::Equal | Comparison::NotEqual)
            {
                self.said(span.clone(), literal::can_be(key, text))?;
            }
            if let (Key::Builtin(Builtin::Owner), Literal::Text(name)) = (key, &literal)
                && matches!(comparison, Comparison::Equal | Comparison::NotEqual)
                && !(self.is_user)(name)
            {
                let message = format!(
                    "the metadata service knows no user \"{name}\"; write the name or the number of one"
                );
                return Err(self.error_at(span, message));
            }
            return Ok(Test::Is(comparison, literal));
        }
        self.said(span.clone(), literal::takes_patterns(key))?;
        let pattern = self.said(span.clone(), literal::pattern(word))?;
        if let Pattern::Prefix(text) = &pattern {
            self.said(span.clone(), literal::can_be(key, text))?;
        }
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

    /// Attaches the position to the error of a result.
    fn said<T, E: ToString>(&self, span: Span, result: Result<T, E>) -> Result<T, QueryError> {
        result.map_err(|error| self.error_at(span, error.to_string()))
    }
}

/// One node with these members; members of the same kind are flattened.
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
