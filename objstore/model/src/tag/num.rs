//! Numbers of tags: integers and floats of 64 bits in one total order, without loss of precision.
//!
//! A float that is an integer within `i64` is stored as that integer, so equal numbers are equal however they were
//! written. The order is that of [`Num::sort_key`]: the greatest `f64` not above the number, then the distance of the
//! number above it, which is less than 1024 for an `i64`.

use super::TagError;
use std::cmp::Ordering;
use std::fmt;

/// A number: an `i64`, or an `f64` that is not NaN.
#[derive(Debug, Clone, Copy)]
pub struct Num(Repr);

#[derive(Debug, Clone, Copy)]
enum Repr {
    Int(i64),
    /// Not NaN, and not an integer within `i64`.
    Float(f64),
}

/// 2^63, one more than the greatest `i64`.
const ABOVE_INTS: f64 = 9_223_372_036_854_775_808.0;

impl Num {
    /// An integer.
    pub fn int(value: i64) -> Self {
        Self(Repr::Int(value))
    }

    /// A float.
    ///
    /// # Errors
    /// NaN.
    pub fn float(value: f64) -> Result<Self, TagError> {
        if value.is_nan() {
            return Err(TagError::NotANumber);
        }
        let integral = value.trunc() == value && (-ABOVE_INTS..ABOVE_INTS).contains(&value);
        Ok(Self(match integral {
            true => Repr::Int(value as i64),
            false => Repr::Float(value),
        }))
    }

    /// Parses a plain number: an optional sign, digits with at most one point, an optional exponent; or `inf` or
    /// `infinity`, in any case, with or without a sign. Not `nan`, no spaces, no number that is too large for a
    /// float.
    pub fn read(text: &str) -> Option<Self> {
        if let Some(infinite) = infinity(text) {
            return Some(Self(Repr::Float(infinite)));
        }
        if !looks_like_a_number(text) {
            return None;
        }
        if let Ok(value) = text.parse() {
            return Some(Self::int(value));
        }
        let value: f64 = text.parse().ok()?;
        value.is_finite().then(|| Self::float(value).ok())?
    }

    /// As an `f64`, rounded to the nearest.
    pub fn as_f64(self) -> f64 {
        match self.0 {
            Repr::Int(value) => value as f64,
            Repr::Float(value) => value,
        }
    }

    /// As an `i64` if it is one.
    pub fn as_i64(self) -> Option<i64> {
        match self.0 {
            Repr::Int(value) => Some(value),
            Repr::Float(_) => None,
        }
    }

    /// A key whose byte order is the order of the numbers.
    pub fn sort_key(self) -> [u8; 10] {
        let (floor, above) = match self.0 {
            Repr::Float(value) => (value, 0),
            Repr::Int(value) => {
                let rounded = value as f64;
                let floor = match rounded as i128 > i128::from(value) {
                    true => rounded.next_down(),
                    false => rounded,
                };
                (floor, (i128::from(value) - floor as i128) as u16)
            }
        };
        let bits = floor.to_bits();
        let ordered = match bits >> 63 {
            0 => bits | 1 << 63,
            _ => !bits,
        };
        let mut key = [0; 10];
        key[..8].copy_from_slice(&ordered.to_be_bytes());
        key[8..].copy_from_slice(&above.to_be_bytes());
        key
    }
}

impl Ord for Num {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.0, other.0) {
            (Repr::Int(one), Repr::Int(two)) => one.cmp(&two),
            _ => self.sort_key().cmp(&other.sort_key()),
        }
    }
}

impl PartialOrd for Num {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Num {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Num {}

impl std::hash::Hash for Num {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.sort_key().hash(state);
    }
}

impl fmt::Display for Num {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Repr::Int(value) => value.fmt(f),
            Repr::Float(value) => f.write_str(&show_float(value)),
        }
    }
}

fn infinity(text: &str) -> Option<f64> {
    let (value, name) = match text.strip_prefix('-') {
        Some(name) => (f64::NEG_INFINITY, name),
        None => (f64::INFINITY, text.strip_prefix('+').unwrap_or(text)),
    };
    let names = ["inf", "infinity"];
    let known = names.iter().any(|known| known.eq_ignore_ascii_case(name));
    known.then_some(value)
}

fn looks_like_a_number(text: &str) -> bool {
    fn unsigned(text: &str) -> &str {
        text.strip_prefix(['+', '-']).unwrap_or(text)
    }
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (unsigned(mantissa), Some(unsigned(exponent))),
        None => (unsigned(text), None),
    };
    let (integral, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    digits(integral)
        && digits(part)
        && !(integral.is_empty() && part.is_empty())
        && exponent.is_none_or(|text| !text.is_empty() && digits(text))
}

/// Parses an integer.
pub(super) fn parse_int(text: &str) -> Result<i64, TagError> {
    let shown = || text.chars().take(80).collect();
    text.parse().map_err(|_| TagError::Int(shown()))
}

/// Parses a float, including `inf`.
pub(super) fn parse_float(text: &str) -> Result<f64, TagError> {
    let shown = || text.chars().take(80).collect();
    let value: f64 = text.parse().map_err(|_| TagError::Float(shown()))?;
    if value.is_infinite() && looks_like_a_number(text) {
        return Err(TagError::Float(shown()));
    }
    Ok(value)
}

/// The canonical text of a float: the shortest that reads as the same value, with a point or an exponent.
pub(super) fn show_float(value: f64) -> String {
    // Zero has no sign here: equal values have equal text.
    format!("{:?}", value + 0.0)
}
