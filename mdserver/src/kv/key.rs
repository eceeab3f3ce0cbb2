//! [`Key`]: a key in batches and tables.
//!
//! Nearly all keys are short and stored inline: a search in a table follows no pointers except the tree's own, and
//! compares machine words. The order is that of the bytes, so a `&[u8]` finds a key too.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;

/// The most bytes that are stored inline.
const SHORT: usize = 31;
/// Words that are compared as numbers.
const WORDS: usize = 3;

/// The bytes of a key.
#[derive(Clone)]
pub struct Key {
    /// The first bytes of the key, padded with zeros.
    short: [u8; SHORT],
    /// The length of a key without `long`.
    len: u8,
    /// All bytes of a longer key.
    long: Option<Box<[u8]>>,
}

impl Key {
    /// The key of these bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut short = [0; SHORT];
        match short.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                let len = bytes.len() as u8;
                Self {
                    short,
                    len,
                    long: None,
                }
            }
            None => {
                short.copy_from_slice(&bytes[..SHORT]);
                Self {
                    short,
                    len: 0,
                    long: Some(bytes.into()),
                }
            }
        }
    }

    /// The key that is a letter and a number, highest byte first.
    #[must_use]
    #[inline]
    pub fn number(letter: u8, number: u64) -> Self {
        let mut short = [0; SHORT];
        short[0] = letter;
        short[1..9].copy_from_slice(&number.to_be_bytes());
        Self {
            short,
            len: 9,
            long: None,
        }
    }

    /// The key that is a letter and two numbers, highest byte first.
    #[must_use]
    #[inline]
    pub fn numbers(letter: u8, first: u64, second: u64) -> Self {
        let mut key = Self::number(letter, first);
        key.short[9..17].copy_from_slice(&second.to_be_bytes());
        key.len = 17;
        key
    }

    /// Its bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.long {
            None => &self.short[..usize::from(self.len)],
            Some(long) => long,
        }
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.short[8 * at..8 * at + 8]);
        u64::from_be_bytes(word)
    }
}

impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        for at in 0..WORDS {
            let (mine, its) = (self.word(at), other.word(at));
            if mine != its {
                // The padding is zeros, which sort first, as the end of a key does.
                return mine.cmp(&its);
            }
        }
        self.bytes().cmp(other.bytes())
    }
}

impl PartialOrd for Key {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Key {}

impl Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.bytes().escape_ascii())
    }
}

impl<T: AsRef<[u8]>> From<T> for Key {
    fn from(bytes: T) -> Self {
        Self::new(bytes.as_ref())
    }
}

impl From<Key> for Vec<u8> {
    fn from(key: Key) -> Self {
        match key.long {
            None => key.bytes().to_vec(),
            Some(long) => long.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Few different bytes, so that many keys share a prefix, and some end in zeros.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0u8), Just(1), Just(255)];
        prop_oneof![
            prop::collection::vec(byte.clone(), 0..4),
            prop::collection::vec(Just(7u8), 20..40),
            (prop::collection::vec(Just(7u8), 5..40), byte).prop_map(|(mut all, last)| {
                all.push(last);
                all
            }),
        ]
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_the_bytes(a in bytes(), b in bytes()) {
            let (key, other) = (Key::new(&a), Key::new(&b));
            prop_assert_eq!(key.cmp(&other), a.cmp(&b));
            prop_assert_eq!(key == other, a == b);
            prop_assert_eq!(key.bytes(), &a[..]);
            prop_assert_eq!(Vec::from(key), a);
        }
    }

    #[test]
    fn numbers_lie_highest_byte_first() {
        assert_eq!(Key::number(b'i', 258).bytes(), b"i\0\0\0\0\0\0\x01\x02");
        let two = Key::numbers(b'd', 1, 2);
        assert_eq!(two.bytes(), b"d\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02");
    }
}
