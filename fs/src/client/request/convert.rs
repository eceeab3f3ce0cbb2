//! Conversion of elements from one dtype to another: exact, or refused.
//!
//! | from | to | rule |
//! |---|---|---|
//! | integer, bool | integer | the value fits |
//! | integer, bool | float | the type has exactly this value |
//! | float | integer | an integral value in range; NaN and infinities are refused |
//! | float | float | the nearest value; a finite number that would become infinite is refused |
//! | integer, bool | bool | 0 or 1 |
//! | complex | complex | both parts as floats |
//!
//! Any type converts to itself in the other byte order. Text and `V` convert only to the same kind and length. A
//! refused element is reported with its index and value, and the caller discards the elements converted before it.
//! Equal types are never converted. Pure.

use slabfs_model::{ByteOrder, DType, DTypeKind};

use crate::client::error::FsError;

/// The conversion between two dtypes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) struct Conversion {
    from: DType,
    to: DType,
    way: Way,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Reverse the bytes of units of this size.
    Swap(usize),
    /// Convert numbers, this many per element.
    Numbers(usize),
}

/// A number of any type, without loss.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Wide {
    Int(i128),
    Float(f64),
}

/// An element of a number type, read and written in little-endian order.
trait Number: Sized {
    const SIZE: usize;
    fn load(bytes: &[u8]) -> Wide;
    /// `None` if the type cannot represent the value.
    fn store(value: Wide, out: &mut [u8]) -> Option<()>;
}

impl Conversion {
    /// The conversion, or `None` for equal types; an error if there is none.
    pub(super) fn of(from: DType, to: DType) -> Result<Option<Conversion>, FsError> {
        if from == to {
            return Ok(None);
        }
        let unit = |dtype: DType| match dtype.kind() {
            DTypeKind::Complex => dtype.size() as usize / 2,
            DTypeKind::Unicode => 4,
            _ => dtype.size() as usize,
        };
        let way = if from.kind() == to.kind() && from.size() == to.size() {
            Way::Swap(unit(from))
        } else {
            match (numbers(from), numbers(to)) {
                (Some(some), Some(same)) if some == same => Way::Numbers(some),
                _ => {
                    return Err(FsError::Invalid(format!(
                        "elements of dtype {from} cannot be made {to}: numbers become numbers, complex ones \
                         complex ones, and text and V stay what they are"
                    )));
                }
            }
        };
        Ok(Some(Conversion { from, to, way }))
    }

    /// Converts all elements of `from` into `to`, which has room for as many.
    ///
    /// # Errors
    /// `NotRepresentable` for the first element without a representation in `to`'s type; `to` is then unusable.
    pub(in crate::client) fn run(&self, from: &[u8], to: &mut [u8]) -> Result<(), FsError> {
        match self.way {
            Way::Swap(unit) => {
                for (from, to) in from.chunks_exact(unit).zip(to.chunks_exact_mut(unit)) {
                    for (to, from) in to.iter_mut().zip(from.iter().rev()) {
                        *to = *from;
                    }
                }
                Ok(())
            }
            Way::Numbers(parts) => self.numbers(parts, from, to),
        }
    }

    fn numbers(&self, parts: usize, from: &[u8], to: &mut [u8]) -> Result<(), FsError> {
        let kind = |dtype: DType| match dtype.kind() {
            DTypeKind::Complex => (DTypeKind::Float, dtype.size() as usize / 2),
            kind => (kind, dtype.size() as usize),
        };
        let swaps = (
            self.from.order() == ByteOrder::Big,
            self.to.order() == ByteOrder::Big,
        );
        macro_rules! to {
            ($from:ty) => {
                match kind(self.to) {
                    (DTypeKind::Bool, _) => all::<$from, bool>(swaps, from, to),
                    (DTypeKind::Int, 1) => all::<$from, i8>(swaps, from, to),
                    (DTypeKind::Int, 2) => all::<$from, i16>(swaps, from, to),
                    (DTypeKind::Int, 4) => all::<$from, i32>(swaps, from, to),
                    (DTypeKind::Int, _) => all::<$from, i64>(swaps, from, to),
                    (DTypeKind::Float, 2) => all::<$from, Half>(swaps, from, to),
                    (DTypeKind::Float, 4) => all::<$from, f32>(swaps, from, to),
                    (DTypeKind::Float, _) => all::<$from, f64>(swaps, from, to),
                    (_, 1) => all::<$from, u8>(swaps, from, to),
                    (_, 2) => all::<$from, u16>(swaps, from, to),
                    (_, 4) => all::<$from, u32>(swaps, from, to),
                    (_, _) => all::<$from, u64>(swaps, from, to),
                }
            };
        }
        let done = match kind(self.from) {
            (DTypeKind::Bool, _) => to!(bool),
            (DTypeKind::Int, 1) => to!(i8),
            (DTypeKind::Int, 2) => to!(i16),
            (DTypeKind::Int, 4) => to!(i32),
            (DTypeKind::Int, _) => to!(i64),
            (DTypeKind::Float, 2) => to!(Half),
            (DTypeKind::Float, 4) => to!(f32),
            (DTypeKind::Float, _) => to!(f64),
            (_, 1) => to!(u8),
            (_, 2) => to!(u16),
            (_, 4) => to!(u32),
            (_, _) => to!(u64),
        };
        done.map_err(|(number, value)| FsError::NotRepresentable {
            index: (number / parts) as u64,
            value: match value {
                Wide::Int(value) => value.to_string(),
                // With an exponent for large values: 1e300, and not three hundred zeros.
                Wide::Float(value) => format!("{value:?}").trim_end_matches(".0").to_owned(),
            },
            dtype: self.to,
        })
    }
}

/// The numbers per element of a number type; a complex element has two, so it never converts to a real one.
fn numbers(dtype: DType) -> Option<usize> {
    match dtype.kind() {
        DTypeKind::Int | DTypeKind::UInt | DTypeKind::Float | DTypeKind::Bool => Some(1),
        DTypeKind::Complex => Some(2),
        DTypeKind::Bytes | DTypeKind::Unicode | DTypeKind::Void => None,
    }
}

/// Converts all numbers; the error is the first that cannot be converted.
fn all<A: Number, B: Number>(
    (swap_from, swap_to): (bool, bool),
    from: &[u8],
    to: &mut [u8],
) -> Result<(), (usize, Wide)> {
    let pairs = from.chunks_exact(A::SIZE).zip(to.chunks_exact_mut(B::SIZE));
    for (number, (from, to)) in pairs.enumerate() {
        let value = if swap_from {
            let mut swapped = [0; 8];
            for (to, from) in swapped.iter_mut().zip(from.iter().rev()) {
                *to = *from;
            }
            A::load(&swapped[..A::SIZE])
        } else {
            A::load(from)
        };
        B::store(value, to).ok_or((number, value))?;
        if swap_to {
            to.reverse();
        }
    }
    Ok(())
}

/// The value as an integer, if it is integral.
fn integral(value: Wide) -> Option<i128> {
    match value {
        Wide::Int(value) => Some(value),
        // Within these bounds every integral f64 is an i128, and no integer type reaches beyond.
        Wide::Float(value) if value.fract() == 0.0 && value.abs() < 2f64.powi(100) => {
            Some(value as i128)
        }
        Wide::Float(_) => None,
    }
}

macro_rules! integer {
    ($($type:ty),*) => { $(
        impl Number for $type {
            const SIZE: usize = size_of::<$type>();
            fn load(bytes: &[u8]) -> Wide {
                let mut own = [0; size_of::<$type>()];
                own.copy_from_slice(bytes);
                Wide::Int(i128::from(<$type>::from_le_bytes(own)))
            }
            fn store(value: Wide, out: &mut [u8]) -> Option<()> {
                let value = <$type>::try_from(integral(value)?).ok()?;
                out.copy_from_slice(&value.to_le_bytes());
                Some(())
            }
        }
    )* };
}

integer!(i8, i16, i32, i64, u8, u16, u32, u64);

impl Number for bool {
    const SIZE: usize = 1;
    fn load(bytes: &[u8]) -> Wide {
        Wide::Int(i128::from(bytes[0] != 0))
    }
    fn store(value: Wide, out: &mut [u8]) -> Option<()> {
        out[0] = match integral(value)? {
            0 => 0,
            1 => 1,
            _ => return None,
        };
        Some(())
    }
}

impl Number for f64 {
    const SIZE: usize = 8;
    fn load(bytes: &[u8]) -> Wide {
        let mut own = [0; 8];
        own.copy_from_slice(bytes);
        Wide::Float(f64::from_le_bytes(own))
    }
    fn store(value: Wide, out: &mut [u8]) -> Option<()> {
        let value = match value {
            Wide::Float(value) => value,
            Wide::Int(value) => {
                let wanted = value as f64;
                (wanted as i128 == value).then_some(wanted)?
            }
        };
        out.copy_from_slice(&value.to_le_bytes());
        Some(())
    }
}

impl Number for f32 {
    const SIZE: usize = 4;
    fn load(bytes: &[u8]) -> Wide {
        let mut own = [0; 4];
        own.copy_from_slice(bytes);
        Wide::Float(f64::from(f32::from_le_bytes(own)))
    }
    fn store(value: Wide, out: &mut [u8]) -> Option<()> {
        let value = match value {
            Wide::Float(value) => {
                let wanted = value as f32;
                (wanted.is_finite() || !value.is_finite()).then_some(wanted)?
            }
            Wide::Int(value) => {
                let wanted = value as f32;
                (wanted as i128 == value).then_some(wanted)?
            }
        };
        out.copy_from_slice(&value.to_le_bytes());
        Some(())
    }
}

/// IEEE 754 with 5 bits of exponent and 10 of fraction.
struct Half;

impl Number for Half {
    const SIZE: usize = 2;
    fn load(bytes: &[u8]) -> Wide {
        let bits = u16::from_le_bytes([bytes[0], bytes[1]]);
        let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
        let size = match exponent {
            0 => fraction * 2f64.powi(-24),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
        };
        Wide::Float(if bits >> 15 == 1 { -size } else { size })
    }
    fn store(value: Wide, out: &mut [u8]) -> Option<()> {
        let (value, exact) = match value {
            Wide::Float(value) => (value, false),
            // A half reaches no value that an f64 cannot represent.
            Wide::Int(value) => (value as f64, true),
        };
        let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
        let size = value.abs();
        let bits = if value.is_nan() {
            0x7e00
        } else if value.is_infinite() {
            0x7c00
        } else if size < 2f64.powi(-14) {
            // In steps of the smallest subnormal; rounding up from the largest subnormal gives the smallest normal.
            (size * 2f64.powi(24)).round_ties_even() as u16
        } else {
            // 2^exponent is at most `size`: the exponent of an f64 is in its bits.
            let exponent = ((size.to_bits() >> 52) & 0x7ff) as i32 - 1023;
            if exponent > 15 {
                return None;
            }
            let steps = (size * 2f64.powi(10 - exponent)).round_ties_even() as u32;
            let bits = ((exponent + 15) as u32 * 1024 + steps - 1024) as u16;
            (bits < 0x7c00).then_some(bits)?
        };
        out.copy_from_slice(&(sign | bits).to_le_bytes());
        (!exact || Half::load(out) == Wide::Float(value)).then_some(())
    }
}

#[cfg(test)]
mod tests;
