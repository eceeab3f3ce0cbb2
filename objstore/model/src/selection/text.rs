//! Parses a selection's text, and formats the canonical one.

use super::{Item, Selection, SelectionError};
use crate::MAX_RANK;
use smallvec::SmallVec;
use std::fmt;
use std::str::FromStr;

impl FromStr for Selection {
    type Err = SelectionError;

    fn from_str(text: &str) -> Result<Selection, SelectionError> {
        let trimmed = text.trim();
        let inner = trimmed
            .strip_prefix('[')
            .and_then(|t| t.strip_suffix(']'))
            .ok_or_else(|| SelectionError::NoBrackets {
                text: text.to_owned(),
            })?
            .trim();
        if inner.is_empty() {
            return Ok(Selection::all());
        }
        let mut items: SmallVec<[Item; 4]> = SmallVec::new();
        let (mut named, mut ellipses) = (0, 0);
        for item in inner.split(',') {
            let item = item.trim();
            if item == "..." {
                ellipses += 1;
                items.push(Item::Ellipsis);
            } else {
                named += 1;
                items.push(parse_item(item)?);
            }
            // Checked as they come, so that a text of a million commas does not make a million items.
            if ellipses > 1 {
                return Err(SelectionError::TwoEllipses);
            }
            if named > MAX_RANK {
                let items = inner.split(',').count() - ellipses;
                return Err(SelectionError::TooManyItems { items });
            }
        }
        if named > 0 && items.last() == Some(&Item::Ellipsis) {
            items.pop();
        }
        Ok(Selection { items })
    }
}

fn parse_item(item: &str) -> Result<Item, SelectionError> {
    let parts: SmallVec<[&str; 3]> = item.splitn(4, ':').map(str::trim).collect();
    match *parts.as_slice() {
        [index] => match parse_number(index, item)? {
            Some(index) => Ok(Item::Index(index)),
            None => Err(SelectionError::BadItem {
                item: item.to_owned(),
            }),
        },
        [start, stop] => Ok(slice(
            parse_number(start, item)?,
            parse_number(stop, item)?,
            1,
        )),
        [start, stop, step] => {
            let step = match parse_number(step, item)? {
                None => 1,
                Some(number) => match u64::try_from(number) {
                    Ok(number) if number > 0 => number,
                    _ => {
                        let (step, item) = (step.to_owned(), item.to_owned());
                        return Err(SelectionError::BadStep { step, item });
                    }
                },
            };
            Ok(slice(
                parse_number(start, item)?,
                parse_number(stop, item)?,
                step,
            ))
        }
        _ => Err(SelectionError::BadItem {
            item: item.to_owned(),
        }),
    }
}

/// A slice, in which an open start is 0. `3:4` is not `3`: outside of the axis it selects nothing.
fn slice(start: Option<i64>, stop: Option<i64>, step: u64) -> Item {
    Item::Slice {
        start: start.filter(|&start| start != 0),
        stop,
        step,
    }
}

/// `None` for the empty text.
fn parse_number(number: &str, item: &str) -> Result<Option<i64>, SelectionError> {
    if number.is_empty() {
        return Ok(None);
    }
    let digits = number.strip_prefix(['-', '+']).unwrap_or(number);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(SelectionError::BadItem {
            item: item.to_owned(),
        });
    }
    number
        .parse()
        .map(Some)
        .map_err(|_| SelectionError::TooLarge {
            number: number.to_owned(),
            item: item.to_owned(),
        })
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (at, item) in self.items.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            item.fmt(f)?;
        }
        f.write_str("]")
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Item::Ellipsis => f.write_str("..."),
            Item::Index(index) => index.fmt(f),
            Item::Slice { start, stop, step } => {
                if start.is_none() && stop.is_some() {
                    f.write_str("0")?;
                }
                for (bound, mark) in [(start, ":"), (stop, "")] {
                    if let Some(bound) = bound {
                        bound.fmt(f)?;
                    }
                    f.write_str(mark)?;
                }
                if step != 1 {
                    write!(f, ":{step}")
                } else {
                    Ok(())
                }
            }
        }
    }
}
