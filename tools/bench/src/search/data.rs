//! The data set: objects with ten tags each, the same for the same number, and the queries.
//!
//! Ten objects share a `run`, ten the first part of their `label`, ten others its middle, and ten others its
//! end; `temperature` is spread evenly. So every query for one of these has ten results, at any size. `quality`
//! is `common` on nine objects of ten.

use clap::ValueEnum;

/// Objects of a container.
pub(crate) const PER_CONTAINER: u64 = 1000;

/// The value of a tag.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A text.
    Text(String),
}

/// The kind of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Look {
    /// `run` equal to a number.
    Exact,
    /// `label` beginning with a word.
    Prefix,
    /// `temperature` between two numbers.
    Range,
    /// `label` ending with a word.
    Suffix,
    /// A word anywhere in `label`.
    Infix,
    /// A common and a rare tag together.
    #[value(name = "common and rare")]
    Both,
}

impl Look {
    /// The number of results of every such query.
    pub(crate) fn results(self) -> usize {
        match self {
            Look::Both => 9,
            _ => 10,
        }
    }
}

/// A data set of some number of objects, a multiple of 1000.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Data {
    /// Their number.
    pub(crate) objects: u64,
}

impl Data {
    /// The number of groups of ten.
    pub(crate) fn groups(self) -> u64 {
        self.objects / 10
    }

    /// The object's name in its container.
    pub(crate) fn name(object: u64) -> String {
        format!("object-{object:07}")
    }

    /// The name of a container in the root.
    pub(crate) fn container(number: u64) -> String {
        format!("set-{number:04}")
    }

    /// The object's path.
    pub(crate) fn path(object: u64) -> String {
        let container = Self::container(object / PER_CONTAINER);
        format!("/{container}/{}", Self::name(object))
    }

    /// The object's tags, by name.
    pub(crate) fn tags(self, object: u64) -> [(&'static str, Value); 10] {
        let groups = self.groups();
        let label = format!(
            "{}.{}.{}",
            word('p', object / 10),
            word('m', object % groups),
            word('s', (object * 7 + 3) % self.objects / 10),
        );
        let mixed = mix(object);
        let text = |text: &str| Value::Text(text.to_owned());
        let pick = |shift: u32, of: u64| (mixed >> shift) % of;
        let quality = if object.is_multiple_of(10) {
            "rare"
        } else {
            "common"
        };
        [
            (
                "comment",
                Value::Text(format!(
                    "{} {}",
                    word('c', pick(8, 1 << 20)),
                    word('d', pick(9, 500))
                )),
            ),
            ("energy", Value::Float(pick(3, 1 << 30) as f64 / 1024.0)),
            ("label", Value::Text(label)),
            ("operator", Value::Text(word('o', pick(5, 50)))),
            ("pressure", Value::Float(pick(7, 4_000_000) as f64 / 4000.0)),
            ("quality", text(quality)),
            ("run", Value::Int((object / 10) as i64)),
            ("station", Value::Int(pick(11, 100) as i64)),
            ("temperature", Value::Float(self.temperature(object))),
            ("year", Value::Int(1990 + pick(13, 36) as i64)),
        ]
    }

    /// Every step of a scale from 0 to 1000 has one object.
    fn temperature(self, object: u64) -> f64 {
        let place = object * 7919 % self.objects;
        place as f64 * 1000.0 / self.objects as f64
    }

    /// The limits of an interval with ten temperatures.
    pub(crate) fn range(self, group: u64) -> (f64, f64) {
        let step = 1000.0 / self.objects as f64;
        let first = (group * 10) as f64 * step;
        (first - step / 2.0, first + step * 9.5)
    }

    /// The word that a query for a group's part of the label uses.
    pub(crate) fn word(look: Look, group: u64) -> String {
        word(
            match look {
                Look::Prefix => 'p',
                Look::Suffix => 's',
                _ => 'm',
            },
            group,
        )
    }

    /// The query in the language of slabfs.
    pub(crate) fn query(self, look: Look, group: u64) -> String {
        let word = Self::word(look, group);
        match look {
            Look::Exact => format!("run = {group}"),
            Look::Prefix => format!("label = {word}*"),
            Look::Range => {
                let (from, to) = self.range(group);
                format!("temperature in {from}..{to}")
            }
            Look::Suffix => format!("label = *{word}"),
            Look::Infix => format!("label = *{word}*"),
            Look::Both => format!("quality = common and run = {group}"),
        }
    }
}

/// A hash of a number.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A word of eight letters and digits that begins with `first`; unique for each number.
fn word(first: char, number: u64) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    // Multiplication by an odd factor is a permutation of the numbers of 35 bits.
    let mut bits = number.wrapping_mul(0x5_deec_e66d) & ((1 << 35) - 1);
    let mut word = String::from(first);
    for _ in 0..7 {
        word.push(char::from(LETTERS[(bits & 31) as usize]));
        bits >>= 5;
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(data: Data, object: u64) -> String {
        match &data.tags(object)[2] {
            ("label", Value::Text(text)) => text.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_query_has_its_results() {
        let data = Data { objects: 1000 };
        for group in [0, 1, 57, 99] {
            let count = |test: &dyn Fn(u64) -> bool| {
                (0..data.objects).filter(|&object| test(object)).count()
            };
            let word = |look| Data::word(look, group);
            let (from, to) = data.range(group);
            assert_eq!(
                count(&|o| label(data, o).starts_with(&word(Look::Prefix))),
                10
            );
            assert_eq!(
                count(&|o| label(data, o).ends_with(&word(Look::Suffix))),
                10
            );
            assert_eq!(count(&|o| label(data, o).contains(&word(Look::Infix))), 10);
            assert_eq!(count(&|o| (from..=to).contains(&data.temperature(o))), 10);
        }
    }

    #[test]
    fn names_are_in_order() {
        let data = Data { objects: 1000 };
        let tags = data.tags(123);
        assert!(tags.is_sorted_by_key(|tag| tag.0));
        assert_eq!(tags, data.tags(123));
        assert_eq!(Data::path(1234), "/set-0001/object-0001234");
    }
}
