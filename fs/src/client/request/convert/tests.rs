//! Conversions compared with Rust's own casts, and their errors.

use proptest::prelude::*;

use super::*;

fn dtype(text: &str) -> DType {
    text.parse().unwrap()
}

fn convert(from: &str, to: &str, bytes: &[u8]) -> Result<Vec<u8>, FsError> {
    let (from, to) = (dtype(from), dtype(to));
    let mut out = vec![0; bytes.len() / from.size() as usize * to.size() as usize];
    match Conversion::of(from, to)? {
        None => out.copy_from_slice(bytes),
        Some(way) => way.run(bytes, &mut out)?,
    }
    Ok(out)
}

fn refused(from: &str, to: &str, bytes: &[u8]) -> (u64, String) {
    match convert(from, to, bytes) {
        Err(FsError::NotRepresentable { index, value, .. }) => (index, value),
        other => panic!("{from} to {to}: {other:?}"),
    }
}

fn f8(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[test]
fn order_is_turned_by_units() {
    assert_eq!(convert("i2", ">i2", &[1, 2, 3, 4]).unwrap(), [2, 1, 4, 3]);
    let complex: Vec<u8> = (0..8).collect();
    assert_eq!(
        convert("c8", ">c8", &complex).unwrap(),
        [3, 2, 1, 0, 7, 6, 5, 4]
    );
    assert_eq!(convert("U1", ">U1", &[1, 2, 3, 4]).unwrap(), [4, 3, 2, 1]);
    assert_eq!(
        convert(">i4", "i8", &[0, 0, 1, 2]).unwrap(),
        258i64.to_le_bytes()
    );
    assert_eq!(convert("u1", ">u2", &[7]).unwrap(), [0, 7]);
}

#[test]
fn what_does_not_fit_is_reported_with_its_place() {
    assert_eq!(refused("i2", "u1", &[1, 0, 255, 255]), (1, "-1".into()));
    assert_eq!(
        refused("f8", "i4", &f8(&[3.0, -0.0, 0.5])),
        (2, "0.5".into())
    );
    assert_eq!(refused("f8", "i8", &f8(&[f64::NAN])), (0, "NaN".into()));
    assert_eq!(refused("f8", "i8", &f8(&[2f64.powi(63)])).0, 0);
    assert_eq!(refused("f8", "f4", &f8(&[1e30, 1e39])).0, 1);
    assert_eq!(refused("f8", "f2", &f8(&[65504.0, 65520.0])).0, 1);
    assert_eq!(refused("c16", "c8", &f8(&[0.0, 1.0, 2.0, 1e300])).0, 1);
    assert_eq!(refused("i8", "f8", &((1i64 << 53) + 1).to_le_bytes()).0, 0);
    assert_eq!(refused("i4", "f4", &16_777_217i32.to_le_bytes()).0, 0);
    assert_eq!(refused("u2", "f2", &2049u16.to_le_bytes()).0, 0);
    assert_eq!(refused("u1", "b1", &[0, 1, 2]), (2, "2".into()));
}

#[test]
fn what_stays_what_it_is() {
    let special = f8(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0]);
    let back = convert("f4", "f8", &convert("f8", "f4", &special).unwrap()).unwrap();
    assert_eq!(back[..16], special[..16]);
    assert!(f64::from_le_bytes(back[16..24].try_into().unwrap()).is_nan());
    assert_eq!(back[24..], special[24..]);
    for (from, to) in [
        ("c8", "f4"),
        ("S3", "S4"),
        ("V4", "i4"),
        ("i4", "U1"),
        ("f4", "c8"),
    ] {
        assert!(matches!(
            Conversion::of(dtype(from), dtype(to)),
            Err(FsError::Invalid(_))
        ));
    }
}

#[test]
fn every_half_comes_back() {
    for bits in 0..=u16::MAX {
        let bytes = bits.to_le_bytes();
        let wide = convert("f2", "f8", &bytes).unwrap();
        let nan = f64::from_le_bytes(wide.clone().try_into().unwrap()).is_nan();
        let back = convert("f8", "f2", &wide).unwrap();
        assert!(back == bytes || nan, "{bits:#x}");
    }
    // Between two neighbours the even one; one third is nearest to 0x3555.
    for (value, bits) in [(1.0 / 3.0, 0x3555u16), (2049.0, 0x6800), (2051.0, 0x6802)] {
        assert_eq!(
            convert("f8", "f2", &f8(&[value])).unwrap(),
            bits.to_le_bytes()
        );
    }
}

proptest! {
    #[test]
    fn integers_fit_or_are_refused(values in prop::collection::vec((0..64u32).prop_map(|s| i64::MAX >> s), 1..20)) {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let expected: Result<Vec<u16>, usize> = values
            .iter()
            .enumerate()
            .map(|(n, v)| u16::try_from(*v).map_err(|_| n))
            .collect();
        match (convert("i8", "u2", &bytes), expected) {
            (Ok(got), Ok(want)) => {
                prop_assert_eq!(got, want.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
            }
            (Err(FsError::NotRepresentable { index, .. }), Err(want)) => {
                prop_assert_eq!(index, want as u64);
            }
            (got, want) => prop_assert!(false, "{:?} for {:?}", got, want),
        }
    }

    #[test]
    fn floats_round_as_casts_do(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        let wanted = value as f32;
        match convert("f8", "f4", &value.to_le_bytes()) {
            Ok(got) if wanted.is_nan() => {
                prop_assert!(f32::from_le_bytes(got.try_into().unwrap()).is_nan());
            }
            Ok(got) => prop_assert_eq!(got, wanted.to_le_bytes().to_vec()),
            Err(_) => prop_assert!(wanted.is_infinite() && value.is_finite()),
        }
    }
}
