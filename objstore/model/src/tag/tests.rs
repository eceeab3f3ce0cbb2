//! Tests of tags: kinds, texts, limits, and the order of numbers.

use super::{
    MAX_TAG_LIST, MAX_TAG_VALUE, Num, Tag, TagError, TagKind, Value, check_tag_key, hex, unhex,
};
use proptest::prelude::*;
use std::cmp::Ordering;

fn parsed(text: &str) -> (String, TagKind, String) {
    let (key, tag) = Tag::parse_assignment(text).unwrap();
    tag.check().unwrap();
    (key, tag.kind, String::from_utf8(tag.bytes).unwrap())
}

fn refused(text: &str, part: &str) {
    let error = Tag::parse_assignment(text).unwrap_err().to_string();
    assert!(error.contains(part), "{text}: {error}");
}

#[test]
fn hexadecimal() {
    assert_eq!(hex(&[0, 255, 26]), "00ff1a");
    assert_eq!(unhex("00ff1A"), Some(vec![0, 255, 26]));
    assert_eq!(unhex(""), Some(vec![]));
    for wrong in ["0", "0g", "é"] {
        assert_eq!(unhex(wrong), None, "{wrong}");
    }
}

#[test]
fn assignments() {
    use TagKind::{Auto, Bytes, Float, Int, List, Text};
    for (text, key, kind, shown) in [
        ("k=v", "k", Text, "v"),
        ("k=", "k", Text, ""),
        ("k=a=b", "k", Text, "a=b"),
        ("k=3", "k", Int, "3"),
        ("k=-3", "k", Int, "-3"),
        ("k=2.5", "k", Float, "2.5"),
        ("k=1.0", "k", Float, "1.0"),
        ("k=1e300", "k", Float, "1e300"),
        // Numbers in another form retain their text.
        ("k=007", "k", Auto, "007"),
        ("k=+3", "k", Auto, "+3"),
        ("k=1.10", "k", Auto, "1.10"),
        ("k=1e3", "k", Auto, "1e3"),
        ("k=18446744073709551615", "k", Auto, "18446744073709551615"),
        ("k=1e999", "k", Text, "1e999"),
        ("k=inf", "k", Float, "inf"),
        ("k=-inf", "k", Float, "-inf"),
        ("k=-Infinity", "k", Auto, "-Infinity"),
        ("k=infinite", "k", Text, "infinite"),
        ("k=nan", "k", Text, "nan"),
        ("k=[1, 2.50, \"a\"]", "k", List, "[1,2.5,\"a\"]"),
        ("k=[]", "k", List, "[]"),
        ("k:text=3", "k", Text, "3"),
        ("k:int=+03", "k", Int, "3"),
        ("k:float=3", "k", Float, "3.0"),
        ("k:float=-inf", "k", Float, "-inf"),
        ("k:float=-0", "k", Float, "0.0"),
        ("k:bytes=4142", "k", Bytes, "AB"),
        ("k:auto=3", "k", Auto, "3"),
        (
            "k:list=[{\"bytes\":\"00FF\"}]",
            "k",
            List,
            "[{\"bytes\":\"00ff\"}]",
        ),
        ("dc:title=x", "dc:title", Text, "x"),
        ("a:int:text=x", "a:int", Text, "x"),
        ("a:bool:int=1", "a:bool", Int, "1"),
        ("größe=ä", "größe", Text, "ä"),
        // With the prefix of attribute names; with two of them it is the key of an attribute user.user.k.
        ("user.k=3", "k", Int, "3"),
        ("user.user.k=3", "user.k", Int, "3"),
        ("a\\=b=3", "a=b", Int, "3"),
        ("a\\\\=3", "a\\", Int, "3"),
        ("a\\b=c\\=d", "a\\b", Text, "c\\=d"),
    ] {
        let expected = (key.to_owned(), kind, shown.to_owned());
        assert_eq!(parsed(text), expected, "{text}");
    }
}

#[test]
fn refusals_say_what_to_do() {
    refused("k", "write key=value");
    refused("=v", "it is empty");
    refused("a\0b=v", "zero byte");
    refused("slabfs.dims=3", "slabfs set");
    refused(&format!("{}=v", "k".repeat(251)), "250 bytes");
    refused("k:int=1.5", "not an integer");
    refused("k:int=9223372036854775808", "use float or text");
    refused("k:float=x", "is not a number");
    refused("k:float=1e999", "is not a number");
    refused("k:float=nan", "cannot be nan");
    refused("k:bytes=0", "hexadecimal");
    refused("k:bytes=0g", "hexadecimal");
    refused("k:list=[1", "not a list");
    refused("k=[1,]", "trailing comma at character 4");
    refused("k=[1,", "ends with ]");
    refused("k=[1,", "key:text=");
    refused("user.slabfs.dims=3", "slabfs set");
    refused("n:integer=3", "write auto, int, float");
    refused("k=[1,[2]]", "a list in a list");
    refused("k=[true]", "write them in quotes");
    refused("k=[18446744073709551615]", "not an integer");
    refused(
        &format!("k={}", "x".repeat(MAX_TAG_VALUE + 1)),
        "262144 bytes",
    );
    let many = vec!["1"; MAX_TAG_LIST + 1].join(",");
    refused(&format!("k=[{many}]"), "1024 members");
    assert!(check_tag_key("slabfsx").is_ok());
    assert_eq!("x".parse::<TagKind>(), Err(TagError::Kind("x".to_owned())));
}

#[test]
fn values_of_each_kind() {
    let number = |value| Value::Number(Num::int(value));
    let text = |text: &'static str| Value::Text(text.into());
    assert_eq!(Tag::auto("3").values()[..], [number(3), text("3")]);
    assert_eq!(Tag::auto("1.50").values()[1], text("1.50"));
    assert_eq!(Tag::auto("x").values()[..], [text("x")]);
    let bytes = Value::Bytes(vec![0xff].into());
    assert_eq!(Tag::auto([0xff]).values()[0], bytes);
    assert_eq!(Tag::bytes([0xff]).values()[..], [bytes]);
    assert_eq!(Tag::text("3").values()[..], [text("3")]);
    assert_eq!(Tag::int(3).values()[..], [number(3)]);
    assert_eq!(Tag::float(3.0).unwrap().values()[..], [number(3)]);
    let list = Tag::infer("[1,2.0,\"a\",{\"bytes\":\"41\"}]").unwrap();
    let bytes = Value::Bytes(b"A".to_vec().into());
    assert_eq!(list.values()[..], [number(1), number(2), text("a"), bytes]);
    // Bytes that do not match the kind are treated as untyped.
    let kind = TagKind::Int;
    let bytes = b"x".to_vec();
    let broken = Tag { kind, bytes };
    assert_eq!(broken.values()[..], [text("x")]);
    assert!(broken.check().is_err());
}

#[test]
fn numbers_at_the_edges() {
    let float = |value| Num::float(value).unwrap();
    let ascending = [
        float(f64::NEG_INFINITY),
        float(f64::MIN),
        float((i64::MIN as f64).next_down()),
        Num::int(i64::MIN),
        Num::int(i64::MIN + 1),
        Num::int(-1),
        float(-0.5),
        float(-f64::from_bits(1)),
        Num::int(0),
        float(f64::from_bits(1)),
        float(0.5),
        Num::int(1),
        float(1.5),
        Num::int((1 << 53) - 1),
        Num::int(1 << 53),
        Num::int((1 << 53) + 1),
        Num::int(i64::MAX - 1),
        Num::int(i64::MAX),
        float(9_223_372_036_854_775_808.0),
        float(f64::MAX),
        float(f64::INFINITY),
    ];
    for (at, one) in ascending.iter().enumerate() {
        for (other, two) in ascending.iter().enumerate() {
            assert_eq!(one.cmp(two), at.cmp(&other), "{one} {two}");
        }
    }
    assert_eq!(float(-0.0), Num::int(0));
    assert_eq!(Num::float(f64::NAN), Err(TagError::NotANumber));
    for text in [
        "", "+", ".", "e5", "1e", "1e+", "0x10", " 1", "1 ", "1_0", "--1", "nan", "infx", "--inf",
    ] {
        assert_eq!(Num::read(text), None, "{text}");
    }
    for text in [
        "1",
        "+1.",
        ".5",
        "1e5",
        "-1.5E-3",
        "inf",
        "-inf",
        "+Infinity",
        "INF",
    ] {
        assert!(Num::read(text).is_some(), "{text}");
    }
}

/// The exact comparison, case by case.
fn exact(int: i64, float: f64) -> Ordering {
    if float >= 9_223_372_036_854_775_808.0 {
        return Ordering::Less;
    }
    if float < -9_223_372_036_854_775_808.0 {
        return Ordering::Greater;
    }
    let floor = float.floor();
    let by_floor = i128::from(int).cmp(&(floor as i128));
    match by_floor {
        Ordering::Equal if float > floor => Ordering::Less,
        other => other,
    }
}

fn ints() -> impl Strategy<Value = i64> + Clone {
    prop_oneof![
        any::<i64>(),
        -5i64..5,
        (0u32..63, -3i64..3).prop_map(|(bits, off)| (1i64 << bits).saturating_add(off)),
        (0u32..63, -3i64..3).prop_map(|(bits, off)| (-(1i64 << bits)).saturating_add(off)),
    ]
}

fn floats() -> impl Strategy<Value = f64> {
    let rounded = ints().prop_map(|int| int as f64);
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        rounded.clone(),
        rounded.clone().prop_map(f64::next_up),
        rounded.prop_map(f64::next_down),
        -4.0f64..4.0,
    ]
    .prop_filter("not NaN", |float| !float.is_nan())
}

proptest! {
    #[test]
    fn numbers_compare_exactly(int in ints(), other in ints(), one in floats(), two in floats()) {
        let (i, j) = (Num::int(int), Num::int(other));
        let (x, y) = (Num::float(one).unwrap(), Num::float(two).unwrap());
        prop_assert_eq!(i.cmp(&j), int.cmp(&other));
        prop_assert_eq!(Some(x.cmp(&y)), one.partial_cmp(&two));
        prop_assert_eq!(i.cmp(&x), exact(int, one));
        prop_assert_eq!(x.cmp(&i), exact(int, one).reverse());
        for (a, b) in [(i, j), (x, y), (i, x)] {
            prop_assert_eq!(a.sort_key().cmp(&b.sort_key()), a.cmp(&b));
        }
    }

    #[test]
    fn canonical_text_reads_as_the_same(int in any::<i64>(), float in floats(), text in ".{0,20}") {
        for tag in [
            Tag::int(int),
            Tag::float(float).unwrap(),
            Tag::text(text.clone()),
            Tag::auto(text.clone()),
            Tag::bytes(text.clone()),
        ] {
            tag.check().unwrap();
            prop_assert_eq!(&Tag::from_attribute(tag.kind, &tag.bytes).unwrap(), &tag);
            if tag.kind != TagKind::Auto {
                prop_assert_eq!(&Tag::from_json(&tag.to_json()).unwrap(), &tag);
            }
        }
        let json = serde_json::json!([int, text, {"bytes": "00ff"}, 1.0]);
        let list = Tag::from_json(&json).unwrap();
        list.check().unwrap();
        prop_assert_eq!(list.values().len(), 4);
        prop_assert_eq!(&Tag::from_json(&list.to_json()).unwrap(), &list);
    }

    #[test]
    fn an_assignment_retains_its_text(text in "[-+0-9.eE]{1,12}|.{0,20}") {
        if let Ok((_, tag)) = Tag::parse_assignment(&format!("k={text}")) {
            tag.check().unwrap();
            if tag.kind != TagKind::List {
                prop_assert_eq!(&tag.bytes[..], text.as_bytes());
            }
        }
    }

    #[test]
    fn a_shown_tag_reads_as_the_same(
        key in "(user\\.)?[a-z=\\\\:.]{0,4}(:int|:auto)?",
        text in "[-+0-9.eE]{1,6}|[\\[\\]0-9,]{0,5}|inf|.{0,8}",
        kind in 0usize..4,
    ) {
        let tag = match kind {
            0 => Tag::auto(text),
            1 => Tag::text(text),
            2 => Tag::bytes(text),
            _ => Tag::infer(&text).unwrap_or(Tag::int(3)),
        };
        prop_assume!(check_tag_key(&key).is_ok());
        let shown = tag.show_assignment(&key);
        prop_assert!(!shown.contains('\0'));
        let read = match tag.bytes.contains(&0) {
            true => Tag::bytes(tag.bytes.clone()),
            false => tag.clone(),
        };
        prop_assert_eq!(Tag::parse_assignment(&shown), Ok((key, read)), "{}", shown);
        prop_assert_eq!(&Tag::from_json(&tag.to_typed_json()).unwrap(), &tag);
    }

    #[test]
    fn nothing_from_outside_panics(kind in 0usize..6, bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        use TagKind::{Auto, Bytes, Float, Int, List, Text};
        let kind = [Auto, Int, Float, Text, Bytes, List][kind];
        let tag = Tag { kind, bytes };
        let _ = tag.check();
        let _ = tag.values();
        let _ = tag.to_json();
        let _ = Tag::parse_assignment(&String::from_utf8_lossy(&tag.bytes));
    }
}
