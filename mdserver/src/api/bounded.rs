//! Deserialises lists in requests with a bound on their length.
//!
//! A list with two bytes per member in a request may take two hundred per member in memory, so untrusted lists are
//! measured while they are read, not afterwards.

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Reads a list of at most `MOST` members.
pub(super) fn list<'de, D, T, const MOST: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    weighed(from, MOST, |_| 1)
}

/// Reads a list whose members have a total weight of at most `most`.
pub(super) fn weighed<'de, D, T>(
    from: D,
    most: usize,
    weight: impl Fn(&T) -> usize,
) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_seq(Bounded {
        most,
        weight,
        of: PhantomData,
    })
}

struct Bounded<T, W> {
    most: usize,
    weight: W,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>, W: Fn(&T) -> usize> Visitor<'de> for Bounded<T, W> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {}", self.most)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<Vec<T>, A::Error> {
        const AT_ONCE: usize = 1024;
        let announced = members.size_hint().unwrap_or(0);
        if announced > self.most {
            return Err(A::Error::invalid_length(announced, &self));
        }
        let mut list = Vec::with_capacity(announced.min(AT_ONCE));
        let mut weight = 0;
        while let Some(member) = members.next_element()? {
            weight += (self.weight)(&member).max(1);
            if weight > self.most {
                return Err(A::Error::invalid_length(weight, &self));
            }
            list.push(member);
        }
        Ok(list)
    }
}
