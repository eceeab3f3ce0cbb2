//! Numbers as text and as bytes of an element; half precision by hand, as Rust has no `f16` yet.

use super::{FillError, not_a_value};
use crate::{ByteOrder, DType, DTypeKind};

pub(super) fn parse(text: &str, dtype: &DType) -> Result<Vec<u8>, FillError> {
    match dtype.kind() {
        DTypeKind::Bool => match text {
            "true" | "True" | "1" => Ok(vec![1]),
            "false" | "False" => Ok(vec![0]),
            _ => Err(not_a_value(text, dtype, "true or false")),
        },
        DTypeKind::Int | DTypeKind::UInt => integer(text, dtype),
        DTypeKind::Complex => {
            let (re, im) = complex_parts(text)
                .ok_or_else(|| not_a_value(text, dtype, "a complex number, e.g. 1+2j"))?;
            let half = dtype.size() / 2;
            let mut bytes = float(text, re, half, dtype)?;
            bytes.extend(float(text, im, half, dtype)?);
            Ok(bytes)
        }
        _ => {
            let value = read_float(text)
                .ok_or_else(|| not_a_value(text, dtype, "a number, e.g. 1.5, -1e30, inf or nan"))?;
            float(text, value, dtype.size(), dtype)
        }
    }
}

pub(super) fn show(bytes: &[u8], dtype: &DType) -> Option<String> {
    match dtype.kind() {
        DTypeKind::Bool => (bytes == [1]).then(|| "true".to_owned()),
        DTypeKind::Int => {
            let unsigned = unsigned(bytes, dtype.order());
            let shift = 64 - 8 * bytes.len() as u32;
            Some((((unsigned << shift) as i64) >> shift).to_string())
        }
        DTypeKind::UInt => Some(unsigned(bytes, dtype.order()).to_string()),
        DTypeKind::Float => Some(show_float(bytes, dtype.order())),
        DTypeKind::Complex => {
            let (re, im) = bytes.split_at(bytes.len() / 2);
            let im = show_float(im, dtype.order());
            let sign = if im.starts_with('-') { "" } else { "+" };
            Some(format!("{}{sign}{im}j", show_float(re, dtype.order())))
        }
        _ => None,
    }
}

fn integer(text: &str, dtype: &DType) -> Result<Vec<u8>, FillError> {
    let out_of_range = || FillError::OutOfRange {
        text: text.to_owned(),
        dtype: *dtype,
    };
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(not_a_value(text, dtype, "an integer"));
    }
    let value: i128 = text.parse().map_err(|_| out_of_range())?;
    let bits = 8 * dtype.size() as u32;
    let (low, high) = match dtype.kind() {
        DTypeKind::Int => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        _ => (0, (1i128 << bits) - 1),
    };
    if !(low..=high).contains(&value) {
        return Err(out_of_range());
    }
    Ok(ordered(
        (value as u64).to_le_bytes(),
        dtype.size(),
        dtype.order(),
    ))
}

fn ordered(le: [u8; 8], size: u64, order: ByteOrder) -> Vec<u8> {
    let mut bytes = le[..size as usize].to_vec();
    if order == ByteOrder::Big {
        bytes.reverse();
    }
    bytes
}

fn unsigned(bytes: &[u8], order: ByteOrder) -> u64 {
    let push = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
    match order {
        ByteOrder::Little => bytes.iter().rev().fold(0, push),
        ByteOrder::Big => bytes.iter().fold(0, push),
    }
}

/// A float in Rust's syntax, including `inf`, `infinity` and `nan`.
fn read_float(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// `1.5`, `2j`, `1+2j`, `-1e3-2e-3j`.
fn complex_parts(text: &str) -> Option<(f64, f64)> {
    let text = text
        .strip_prefix('(')
        .and_then(|t| t.strip_suffix(')'))
        .unwrap_or(text);
    let Some(plain) = text.strip_suffix(['j', 'J']) else {
        return Some((read_float(text)?, 0.0));
    };
    // The sign between the parts is the last one that is not an exponent's.
    let bytes = plain.as_bytes();
    let split = (1..bytes.len())
        .rev()
        .find(|&at| matches!(bytes[at], b'+' | b'-') && !matches!(bytes[at - 1], b'e' | b'E'));
    match split {
        Some(at) => Some((read_float(&plain[..at])?, read_float(&plain[at..])?)),
        None => Some((0.0, read_float(plain)?)),
    }
}

fn float(text: &str, value: f64, size: u64, dtype: &DType) -> Result<Vec<u8>, FillError> {
    let (le, overflow) = match size {
        2 => {
            let bits = half_from(value);
            (u64::from(bits), bits & 0x7fff == 0x7c00)
        }
        4 => {
            let single = value as f32;
            (u64::from(single.to_bits()), single.is_infinite())
        }
        _ => (value.to_bits(), value.is_infinite()),
    };
    let spelled = text.to_ascii_lowercase().contains("inf");
    if overflow && !spelled {
        return Err(FillError::OutOfRange {
            text: text.to_owned(),
            dtype: *dtype,
        });
    }
    Ok(ordered(le.to_le_bytes(), size, dtype.order()))
}

fn show_float(bytes: &[u8], order: ByteOrder) -> String {
    let bits = unsigned(bytes, order);
    match bytes.len() {
        2 => half_to(bits as u16).to_string(),
        4 => f32::from_bits(bits as u32).to_string(),
        _ => f64::from_bits(bits).to_string(),
    }
    .to_lowercase()
}

/// To half precision, to nearest, ties to even; too large becomes infinity.
fn half_from(value: f64) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let size = value.abs();
    if value.is_nan() {
        return sign | 0x7e00;
    }
    // 65520 is halfway between the largest half (65504) and the next value.
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    // The smallest step is 2^-24; from 2^-14 on ten bits follow the leading one.
    let exponent = (((size.to_bits() >> 52) as i32) - 1023).max(-14);
    let steps = (size * 2f64.powi(10 - exponent)).round_ties_even() as u32;
    // A normal number's leading one (1024 steps) adds the last 1 of the biased exponent by itself.
    let biased = (exponent + 14) as u32;
    sign | ((biased << 10) + steps) as u16
}

fn half_to(bits: u16) -> f32 {
    let fraction = f32::from(bits & 0x3ff);
    let size = match (bits >> 10) & 0x1f {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        biased => (1024.0 + fraction) * 2f32.powi(i32::from(biased) - 25),
    };
    if bits & 0x8000 != 0 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_to_nearest_even() {
        for (value, bits) in [
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (65504.0, 0x7bff),
            (65519.9, 0x7bff),
            (65520.0, 0x7c00),
            (0.1, 0x2e66),
            (2f64.powi(-24), 1),
            (2f64.powi(-25), 0),
            (2f64.powi(-25) * 1.001, 1),
            (2f64.powi(-14), 0x0400),
            (2047.5, 0x6800),
            (2048.0 + 1.0, 0x6800),
            (-0.0, 0x8000),
        ] {
            assert_eq!(half_from(value), bits, "{value}");
        }
        for bits in (0..=u16::MAX).filter(|bits| bits & 0x7c00 != 0x7c00) {
            assert_eq!(half_from(f64::from(half_to(bits))), bits);
        }
        assert!(half_to(half_from(f64::NAN)).is_nan());
    }
}
