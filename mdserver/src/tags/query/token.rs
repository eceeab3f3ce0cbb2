//! Tokeniser: splits the text of a query into words, comparisons and parentheses.
//!
//! A word consists of adjacent bare characters, quoted parts and stars. A backslash quotes the next character. A word
//! records which of its characters are bare, as only those can be stars, keywords, numbers and the two points of a
//! range.

use std::ops::Range;

use super::error::QueryError;
use super::term::Comparison;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Open,
    Close,
    Compare(Comparison),
    Word(Word),
    End,
}

/// A word: its parts in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Word {
    pub(super) parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    /// Characters without quotes.
    Bare(String),
    /// Characters in quotes or after a backslash.
    Quoted(String),
    /// A bare star, with its position.
    Star(usize),
}

impl Word {
    /// The text if all of it is bare.
    pub(super) fn bare(&self) -> Option<&str> {
        match &self.parts[..] {
            [Part::Bare(text)] => Some(text),
            _ => None,
        }
    }

    /// The keyword that it is, if any.
    pub(super) fn keyword(&self) -> Option<&'static str> {
        let bare = self.bare()?;
        let words = ["and", "or", "not", "has", "in"];
        words
            .into_iter()
            .find(|word| word.eq_ignore_ascii_case(bare))
    }

    pub(super) fn is(&self, keyword: &str) -> bool {
        self.keyword() == Some(keyword)
    }

    /// All its characters; a star yields `*`.
    pub(super) fn text(&self) -> String {
        let text = |part: &Part| match part {
            Part::Bare(text) | Part::Quoted(text) => text.clone(),
            Part::Star(_) => "*".to_owned(),
        };
        self.parts.iter().map(text).collect()
    }

    pub(super) fn has_star(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Star(_)))
    }

    /// The words between bare commas; without a comma, the word itself.
    pub(super) fn between_commas(&self) -> Vec<Word> {
        let mut words = vec![Word::default()];
        for part in &self.parts {
            let Part::Bare(text) = part else {
                words
                    .last_mut()
                    .into_iter()
                    .for_each(|word| word.parts.push(part.clone()));
                continue;
            };
            for (at, text) in text.split(',').enumerate() {
                if at > 0 {
                    words.push(Word::default());
                }
                if let Some(word) = words.last_mut().filter(|_| !text.is_empty()) {
                    word.parts.push(Part::Bare(text.to_owned()));
                }
            }
        }
        words
    }

    /// The words before and after the first two bare points.
    pub(super) fn range(&self) -> Option<(Word, Word)> {
        let points = |part: &Part| match part {
            Part::Bare(text) => text.find(".."),
            _ => None,
        };
        let at = self.parts.iter().position(|part| points(part).is_some())?;
        let (before, after) = match &self.parts[at] {
            Part::Bare(text) => text.split_once("..")?,
            _ => return None,
        };
        let bare = |text: &str| (!text.is_empty()).then(|| Part::Bare(text.to_owned()));
        let low = self.parts[..at].iter().cloned().chain(bare(before));
        let high = bare(after)
            .into_iter()
            .chain(self.parts[at + 1..].iter().cloned());
        Some((Word::of(low), Word::of(high)))
    }

    fn of(parts: impl Iterator<Item = Part>) -> Self {
        let parts = parts.collect();
        Self { parts }
    }

    fn push(&mut self, char: char, quoted: bool) {
        match (self.parts.last_mut(), quoted) {
            (Some(Part::Bare(text)), false) | (Some(Part::Quoted(text)), true) => text.push(char),
            (_, true) => self.parts.push(Part::Quoted(char.into())),
            (_, false) => self.parts.push(Part::Bare(char.into())),
        }
    }
}

/// Splits a text, one token at a time.
pub(super) struct Lexer<'a> {
    pub(super) text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let char = self.peek()?;
        self.at += char.len_utf8();
        Some(char)
    }

    /// The next token and its bytes.
    pub(super) fn next(&mut self) -> Result<(Token, Range<usize>), QueryError> {
        while self.peek().is_some_and(char::is_whitespace) {
            self.take();
        }
        let start = self.at;
        let token = match self.peek() {
            None => Token::End,
            Some('(') => {
                self.take();
                Token::Open
            }
            Some(')') => {
                self.take();
                Token::Close
            }
            Some('=' | '!' | '<' | '>') => self.comparison()?,
            Some(_) => Token::Word(self.word()?),
        };
        Ok((token, start..self.at))
    }

    fn comparison(&mut self) -> Result<Token, QueryError> {
        let start = self.at;
        while matches!(self.peek(), Some('=' | '!' | '<' | '>')) {
            self.take();
        }
        Ok(Token::Compare(match &self.text[start..self.at] {
            "=" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            text => {
                let message = match text.strip_prefix('=') {
                    Some("<" | ">") => {
                        "this is not a comparison; write =, !=, <, <=, > or >=, and a value that begins with < or > in quotes"
                    }
                    _ => "this is not a comparison; write =, !=, <, <=, > or >=",
                };
                return Err(QueryError::new(self.text, start..self.at, message));
            }
        }))
    }

    fn word(&mut self) -> Result<Word, QueryError> {
        let mut word = Word::default();
        while let Some(char) = self.peek() {
            let at = self.at;
            match char {
                '(' | ')' | '=' | '<' | '>' => break,
                '!' if self.text[at + 1..].starts_with('=') => break,
                char if char.is_whitespace() => break,
                '"' | '\'' => self.quoted(char, &mut word)?,
                '\\' => {
                    self.take();
                    self.escaped(at, &mut word)?;
                }
                '*' => {
                    self.take();
                    // Two adjacent stars are one.
                    if !matches!(word.parts.last(), Some(Part::Star(_))) {
                        word.parts.push(Part::Star(at));
                    }
                }
                char => {
                    self.take();
                    word.push(char, false);
                }
            }
        }
        Ok(word)
    }

    /// A quoted part; it is part of the word even if it is empty.
    fn quoted(&mut self, quote: char, word: &mut Word) -> Result<(), QueryError> {
        let start = self.at;
        self.take();
        if !matches!(word.parts.last(), Some(Part::Quoted(_))) {
            word.parts.push(Part::Quoted(String::new()));
        }
        loop {
            let at = self.at;
            match self.take() {
                Some('\\') => self.escaped(at, word)?,
                Some(char) if char == quote => return Ok(()),
                Some(char) => word.push(char, true),
                None => {
                    let message = format!(
                        "the quote that opens here is never closed; a quote itself is written \\{quote}"
                    );
                    return Err(QueryError::new(self.text, start..start + 1, message));
                }
            }
        }
    }

    fn escaped(&mut self, at: usize, word: &mut Word) -> Result<(), QueryError> {
        match self.take() {
            Some(char) => {
                word.push(char, true);
                Ok(())
            }
            None => {
                let message = "a backslash at the end; write \\\\ for a backslash itself";
                Err(QueryError::new(self.text, at..at + 1, message))
            }
        }
    }
}
