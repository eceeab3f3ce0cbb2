//! Elements as numbers that can be drawn.

use anyhow::bail;
use half::f16;
use slabfs_model::{ByteOrder, DType, DTypeKind};

/// The numbers of packed elements; of complex ones their magnitude.
///
/// # Errors
/// Types that are no numbers.
pub(super) fn numbers(dtype: &DType, bytes: &[u8]) -> anyhow::Result<Vec<f64>> {
    let size = dtype.size() as usize;
    let big = dtype.order() == ByteOrder::Big;
    let convert: fn(u128, usize) -> f64 = match (dtype.kind(), size) {
        (DTypeKind::UInt, _) => |bits, _| bits as f64,
        (DTypeKind::Bool, _) => |bits, _| if bits == 0 { 0.0 } else { 1.0 },
        (DTypeKind::Int, _) => |bits, size| {
            let unused = 128 - 8 * size as u32;
            ((bits << unused) as i128 >> unused) as f64
        },
        (DTypeKind::Float | DTypeKind::Complex, _) => |bits, size| match size {
            2 => f16::from_bits(bits as u16).to_f64(),
            4 => f64::from(f32::from_bits(bits as u32)),
            _ => f64::from_bits(bits as u64),
        },
        (DTypeKind::Bytes | DTypeKind::Unicode | DTypeKind::Void, _) => {
            bail!("elements of type {dtype} are no numbers, which could be drawn");
        }
    };
    let complex = dtype.kind() == DTypeKind::Complex;
    let part = if complex { size / 2 } else { size };
    if part > 8 {
        bail!("elements of type {dtype} are too wide to be drawn");
    }
    let one = |bytes: &[u8]| {
        let mut bits = 0u128;
        for at in 0..part {
            let byte = bytes[if big { at } else { part - 1 - at }];
            bits = bits << 8 | u128::from(byte);
        }
        convert(bits, part)
    };
    let elements = bytes.chunks_exact(size);
    Ok(elements
        .map(|element| match complex {
            true => one(&element[..part]).hypot(one(&element[part..])),
            false => one(element),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dtype: &str, bytes: &[u8]) -> Vec<f64> {
        numbers(&dtype.parse().expect("a dtype"), bytes).expect("numbers")
    }

    #[test]
    fn elements_of_all_kinds() {
        assert_eq!(of("u1", &[0, 255]), [0.0, 255.0]);
        assert_eq!(of("i1", &[0x80, 0x7f]), [-128.0, 127.0]);
        assert_eq!(of("i2", &(-2i16).to_le_bytes()), [-2.0]);
        assert_eq!(of(">i4", &(-70_000i32).to_be_bytes()), [-70_000.0]);
        assert_eq!(of("i8", &i64::MIN.to_le_bytes()), [i64::MIN as f64]);
        assert_eq!(of("u8", &u64::MAX.to_le_bytes()), [u64::MAX as f64]);
        assert_eq!(of("b1", &[0, 1, 2]), [0.0, 1.0, 1.0]);
        assert_eq!(of("f2", &[0x00, 0x3e]), [1.5]);
        assert_eq!(of(">f8", &1.25f64.to_be_bytes()), [1.25]);
        assert_eq!(
            of(
                "f4",
                &[1.5f32.to_le_bytes(), f32::NEG_INFINITY.to_le_bytes()].concat()
            ),
            [1.5, f64::NEG_INFINITY]
        );
        assert!(of("f4", &f32::NAN.to_le_bytes())[0].is_nan());
        assert_eq!(
            of("c8", &[3f32.to_le_bytes(), 4f32.to_le_bytes()].concat()),
            [5.0]
        );
    }

    #[test]
    fn texts_are_refused() {
        for dtype in ["S4", "U3", "V5"] {
            assert!(numbers(&dtype.parse().expect("a dtype"), &[]).is_err());
        }
    }
}
