//! Literals of Python, as the headers of `.npy` files have them: dictionaries, lists, tuples, strings, integers, `True`,
//! `False` and `None`.

use std::fmt;

/// Literals nested deeper than this are refused.
const MAX_DEPTH: usize = 32;

/// A literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Literal {
    Text(String),
    Int(u64),
    Bool(bool),
    None,
    List(Vec<Literal>),
    Tuple(Vec<Literal>),
    Dict(Vec<(Literal, Literal)>),
}

impl Literal {
    /// The literal that is all of `text`.
    pub(super) fn parse(text: &str) -> Result<Literal, String> {
        let mut parser = Parser { rest: text };
        let literal = parser.literal(0)?;
        parser.skip();
        match parser.rest.is_empty() {
            true => Ok(literal),
            false => Err(parser.unexpected()),
        }
    }

    /// The value of a key of a dictionary.
    pub(super) fn get(&self, key: &str) -> Option<&Literal> {
        let Literal::Dict(entries) = self else {
            return None;
        };
        let found = entries
            .iter()
            .find(|(known, _)| matches!(known, Literal::Text(text) if text == key));
        found.map(|(_, value)| value)
    }

    /// The members of a list or tuple.
    pub(super) fn members(&self) -> Option<&[Literal]> {
        match self {
            Literal::List(members) | Literal::Tuple(members) => Some(members),
            _ => None,
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r', '\0']);
    }

    fn unexpected(&self) -> String {
        let seen: String = self.rest.chars().take(20).collect();
        format!("is no literal of Python that NumPy writes, at {seen:?}")
    }

    /// Takes a prefix, if it is there.
    fn take(&mut self, prefix: &str) -> bool {
        self.skip();
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn literal(&mut self, depth: usize) -> Result<Literal, String> {
        if depth > MAX_DEPTH {
            return Err("is nested too deep".to_owned());
        }
        for (word, literal) in [
            ("True", Literal::Bool(true)),
            ("False", Literal::Bool(false)),
            ("None", Literal::None),
        ] {
            if self.take(word) {
                return Ok(literal);
            }
        }
        if self.take("{") {
            return self.dict(depth);
        }
        if self.take("[") {
            return Ok(Literal::List(self.members("]", depth)?.0));
        }
        if self.take("(") {
            let (mut members, comma) = self.members(")", depth)?;
            // Parentheses around one value are no tuple.
            return Ok(match members.len() == 1 && !comma {
                true => members.remove(0),
                false => Literal::Tuple(members),
            });
        }
        match self.rest.chars().next() {
            Some(quote @ ('\'' | '"')) => self.text(quote),
            Some('u' | 'b') if self.rest[1..].starts_with(['\'', '"']) => {
                let quote = self.rest[1..].chars().next().unwrap_or('\'');
                self.rest = &self.rest[1..];
                self.text(quote)
            }
            Some('0'..='9') => self.int(),
            _ => Err(self.unexpected()),
        }
    }

    /// Members to the closing bracket, and whether there was a comma after the last.
    fn members(&mut self, close: &str, depth: usize) -> Result<(Vec<Literal>, bool), String> {
        let mut members = Vec::new();
        let mut comma = false;
        while !self.take(close) {
            if !members.is_empty() && !comma {
                return Err(self.unexpected());
            }
            members.push(self.literal(depth + 1)?);
            comma = self.take(",");
        }
        Ok((members, comma))
    }

    fn dict(&mut self, depth: usize) -> Result<Literal, String> {
        let mut entries = Vec::new();
        while !self.take("}") {
            let key = self.literal(depth + 1)?;
            if !self.take(":") {
                return Err(self.unexpected());
            }
            entries.push((key, self.literal(depth + 1)?));
            if !self.take(",") {
                self.skip();
                if !self.rest.starts_with('}') {
                    return Err(self.unexpected());
                }
            }
        }
        Ok(Literal::Dict(entries))
    }

    fn int(&mut self) -> Result<Literal, String> {
        let end = self
            .rest
            .find(|char: char| !char.is_ascii_digit())
            .unwrap_or(self.rest.len());
        let value = self.rest[..end].parse().map_err(|_| self.unexpected())?;
        self.rest = &self.rest[end..];
        // Python 2 writes long integers with this letter.
        self.rest = self.rest.strip_prefix('L').unwrap_or(self.rest);
        Ok(Literal::Int(value))
    }

    fn text(&mut self, quote: char) -> Result<Literal, String> {
        let mut text = String::new();
        let mut chars = self.rest[1..].char_indices();
        while let Some((at, char)) = chars.next() {
            match char {
                '\\' => {
                    let (_, char) = chars.next().ok_or_else(|| self.unexpected())?;
                    text.push(match char {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        '\\' | '\'' | '"' => char,
                        'x' => escaped(&mut chars, 2).ok_or_else(|| self.unexpected())?,
                        'u' => escaped(&mut chars, 4).ok_or_else(|| self.unexpected())?,
                        'U' => escaped(&mut chars, 8).ok_or_else(|| self.unexpected())?,
                        _ => return Err(self.unexpected()),
                    });
                }
                char if char == quote => {
                    self.rest = &self.rest[1 + at + 1..];
                    return Ok(Literal::Text(text));
                }
                char => text.push(char),
            }
        }
        Err(self.unexpected())
    }
}

/// A character by its number in hexadecimal digits.
fn escaped(chars: &mut std::str::CharIndices<'_>, digits: usize) -> Option<char> {
    let mut number = 0;
    for _ in 0..digits {
        number = number * 16 + chars.next()?.1.to_digit(16)?;
    }
    char::from_u32(number)
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Text(text) => {
                f.write_str("'")?;
                for char in text.chars() {
                    match char {
                        '\'' | '\\' => write!(f, "\\{char}")?,
                        '\n' => f.write_str("\\n")?,
                        '\r' => f.write_str("\\r")?,
                        '\t' => f.write_str("\\t")?,
                        char => write!(f, "{char}")?,
                    }
                }
                f.write_str("'")
            }
            Literal::Int(value) => write!(f, "{value}"),
            Literal::Bool(true) => f.write_str("True"),
            Literal::Bool(false) => f.write_str("False"),
            Literal::None => f.write_str("None"),
            Literal::List(members) => {
                f.write_str("[")?;
                joined(f, members)?;
                f.write_str("]")
            }
            Literal::Tuple(members) => {
                f.write_str("(")?;
                joined(f, members)?;
                f.write_str(if members.len() == 1 { ",)" } else { ")" })
            }
            Literal::Dict(entries) => {
                f.write_str("{")?;
                for (key, value) in entries {
                    write!(f, "{key}: {value}, ")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn joined(f: &mut fmt::Formatter<'_>, members: &[Literal]) -> fmt::Result {
    for (at, member) in members.iter().enumerate() {
        let comma = if at > 0 { ", " } else { "" };
        write!(f, "{comma}{member}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_read_and_written() {
        for (text, shown) in [
            ("(5,)", "(5,)"),
            ("( 4 ,5L)", "(4, 5)"),
            ("()", "()"),
            ("(7)", "7"),
            (r#"[("a","<f4",(2,)),]"#, "[('a', '<f4', (2,))]"),
            ("u'gr\\u00f6\\xdfe'", "'größe'"),
            ("{'a':True,'b' : None}  \n", "{'a': True, 'b': None, }"),
        ] {
            let literal = Literal::parse(text).expect(text);
            assert_eq!(literal.to_string(), shown);
            assert_eq!(Literal::parse(shown), Ok(literal));
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "{",
            "(1",
            "(1 2)",
            "{'a' 1}",
            "'a",
            "-1",
            "1.5",
            "x",
            "[1,,]",
            "'\\q'",
            "1 2",
            "99999999999999999999999",
            "u",
            "é",
        ] {
            assert!(Literal::parse(text).is_err(), "{text}");
        }
        assert!(Literal::parse(&"[".repeat(100_000)).is_err());
    }
}
