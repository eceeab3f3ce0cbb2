//! Tests of fill values: text to bytes and back, and painting.

use super::*;
use proptest::prelude::*;

fn dtype(text: &str) -> DType {
    text.parse().unwrap()
}

fn parse(text: &str, name: &str) -> Result<Fill, FillError> {
    Fill::parse(text, &dtype(name))
}

#[test]
fn values_become_the_bytes_of_an_element() {
    for (text, name, bytes) in [
        ("1.5", "f4", &1.5f32.to_le_bytes()[..]),
        ("1.5", ">f4", &1.5f32.to_be_bytes()),
        ("-1e30", "f8", &(-1e30f64).to_le_bytes()),
        ("nan", "f4", &f32::NAN.to_le_bytes()),
        ("-inf", "f8", &f64::NEG_INFINITY.to_le_bytes()),
        ("1", "f2", &[0x00, 0x3c]),
        ("-1", "i2", &[0xff, 0xff]),
        ("-128", "i1", &[0x80]),
        ("18446744073709551615", "u8", &[0xff; 8]),
        ("258", ">u4", &[0, 0, 1, 2]),
        ("true", "b1", &[1]),
        ("1+2j", "c8", &[0, 0, 128, 63, 0, 0, 0, 64]),
        ("2j", ">c8", &[0, 0, 0, 0, 64, 0, 0, 0]),
        ("0x01020304", "i4", &[1, 2, 3, 4]),
        ("0x010203", "V3", &[1, 2, 3]),
        ("ab", "S4", b"ab\0\0"),
        ("é", "U2", &[0xe9, 0, 0, 0, 0, 0, 0, 0]),
        ("é", ">U1", &[0, 0, 0, 0xe9]),
    ] {
        let fill = parse(text, name).unwrap();
        assert_eq!(fill.bytes(), bytes, "{text} as {name}");
        let shown = fill.show(&dtype(name));
        assert_eq!(
            parse(&shown, name).unwrap(),
            fill,
            "{text} as {name} shown as {shown}"
        );
    }
}

#[test]
fn zero_is_zero_in_any_type() {
    for name in ["f4", "i8", "c16", "b1", "S3", "U1", "V7"] {
        for text in ["0", "", " 0 "] {
            let fill = parse(text, name).unwrap();
            assert!(fill.is_zero() && fill == Fill::zero() && fill.bytes().is_empty());
            assert_eq!(fill.show(&dtype(name)), "0");
        }
    }
    assert_eq!(parse("0.0", "f4").unwrap(), Fill::zero());
    assert_eq!(parse("false", "b1").unwrap(), Fill::zero());
    assert_eq!(parse("0x0000", "i2").unwrap(), Fill::zero());
    assert!(!parse("-0.0", "f4").unwrap().is_zero());
}

#[test]
fn errors_say_what_to_write() {
    for (text, name, words) in [
        ("x", "f4", "a number"),
        ("1.5", "i4", "an integer"),
        ("--1", "i4", "an integer"),
        ("2", "b1", "true or false"),
        ("1+j2", "c8", "1+2j"),
        ("7", "V4", "0x00000000"),
        ("0xzz", "u1", "0x00"),
        ("0x123", "u2", "4 digits"),
        ("0x", "u2", "4 digits"),
        ("256", "u1", "does not fit"),
        ("-1", "u1", "does not fit"),
        (
            "170141183460469231731687303715884105728",
            "i8",
            "does not fit",
        ),
        ("1e39", "f4", "does not fit"),
        ("65520", "f2", "does not fit"),
        ("1e999", "f8", "does not fit"),
        ("abcd", "S3", "needs 4 bytes"),
        ("ab", "U1", "needs 8 bytes"),
    ] {
        let error = parse(text, name).unwrap_err().to_string();
        assert!(error.contains(words), "{text} as {name}: {error}");
    }
}

#[test]
fn values_without_text_are_shown_in_hex() {
    assert_eq!(Fill::from_bytes(b"a\nb").show(&dtype("S3")), "0x610a62");
    assert_eq!(Fill::from_bytes(&[0xff]).show(&dtype("S1")), "0xff");
    assert_eq!(Fill::from_bytes(b"0").show(&dtype("S1")), "0x30");
    assert_eq!(Fill::from_bytes(&[7]).show(&dtype("b1")), "0x07");
    assert_eq!(Fill::from_bytes(&[1, 2]).show(&dtype("V2")), "0x0102");
    // A NaN with a payload differs from the plain one.
    assert_eq!(
        Fill::from_bytes(&[1, 0, 0xc0, 0x7f]).show(&dtype("f4")),
        "0x0100c07f"
    );
}

#[test]
fn sizes_are_compared() {
    assert!(Fill::zero().fits(4) && Fill::from_bytes(&[1, 2]).fits(2));
    assert!(!Fill::from_bytes(&[1, 2]).fits(4));
    assert_eq!(Fill::from_bytes(&[7, 7]).uniform_byte(), Some(7));
    assert_eq!(Fill::from_bytes(&[7, 0]).uniform_byte(), None);
    assert_eq!(
        Fill::from_bytes(&[1, 2, 3]).cell_pattern(3, 1).as_slice(),
        &[2, 3, 1]
    );
    assert_eq!(Fill::zero().cell_pattern(3, 1).as_slice(), &[0, 0, 0]);
}

proptest! {
    #[test]
    fn any_bytes_are_shown_and_read_back(
        (name, bytes) in prop::sample::select(vec![
            "i1", "i2", ">i4", "i8", "u1", ">u2", "u4", "u8", "f2", ">f2", "f4", ">f8", "c8", ">c16", "b1",
            "S5", "U2", ">U1", "V3",
        ]).prop_flat_map(|name| {
            let size = dtype(name).size() as usize;
            let byte = prop_oneof![any::<u8>(), Just(0u8), Just(b'a')];
            (Just(name), prop::collection::vec(byte, size))
        }),
    ) {
        let fill = Fill::from_bytes(&bytes);
        let shown = fill.show(&dtype(name));
        prop_assert_eq!(parse(&shown, name), Ok(fill), "{}", shown);
    }

    #[test]
    fn paint_repeats_the_element(
        bytes in prop::collection::vec(any::<u8>(), 1..9), len in 0..50usize, cell in 0..100u64,
    ) {
        let mut out = vec![0; len];
        Fill::from_bytes(&bytes).paint(&mut out, cell);
        for (at, byte) in out.iter().enumerate() {
            prop_assert_eq!(*byte, bytes[(cell as usize + at) % bytes.len()]);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,12}", name in prop::sample::select(vec!["f2", "i8", "c8", "S3", "V2"])) {
        let _ = parse(&text, name);
        let _ = text.parse::<DType>();
        let _ = text.parse::<crate::Codec>();
        let _ = text.parse::<crate::Layout>();
        let _ = crate::parse_dims(&text);
        let _ = crate::parse_max_dims(&text);
    }
}
