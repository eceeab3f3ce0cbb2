//! Entries sort as values do, and every lookup finds all that it must.

use super::*;
use proptest::prelude::*;
use slabfs_model::Num;

const INO: Ino = ObjectId(7);

fn hits(range: &Range, tag: &Tag) -> bool {
    let entries = entries(INO, &[("k", tag.clone())]);
    assert!(range.from <= range.to);
    let hit = |entry: &Vec<u8>| *entry >= range.from && *entry < range.to;
    entries.iter().any(hit)
}

fn infix_hits(needle: &str, tag: &Tag) -> bool {
    let ranges = infix("k", needle);
    hits(&unseen("k"), tag) || ranges.iter().all(|range| hits(range, tag))
}

#[test]
fn an_entry_names_its_inode_and_key() {
    let tags = [("key", Tag::auto("12")), ("z", Tag::text("abcd"))];
    let all = entries(ObjectId(0x0102), &tags);
    assert!(all.is_sorted());
    for entry in &all {
        assert_eq!(ino_of(entry), Some(ObjectId(0x0102)));
        assert!(matches!(key_of(entry), Some("key" | "z")));
    }
    // Key, number, text and reversed text of the first, two windows; key, text, reversed, four windows of the other.
    assert_eq!(all.len(), 4 + 2 + 3 + 4);
    assert_eq!(all[2], *b"gz\0abcd\0\0\0\0\0\0\0\0\0\0\x01\x02");
    assert_eq!((ino_of(b"short"), key_of(b"")), (None, None));
}

#[test]
fn keys_that_cannot_be_sought_are_left_out() {
    let tag = Tag::int(1);
    let keys: [&[u8]; 3] = [b"\xff", b"a\0b", b"ok"];
    let tags = keys.map(|key| (key, tag.clone()));
    assert!(entries(INO, &tags).iter().all(|e| key_of(e) == Some("ok")));
}

#[test]
fn a_key_is_not_the_beginning_of_another() {
    let other = entries(INO, &[("key", Tag::text("\0abc"))]);
    for range in [
        has_key("ke"),
        prefix("ke", ""),
        suffix("ke", ""),
        between("ke", End::Open, End::With(&Value::Text("zzz".into()))),
        unseen("ke"),
    ] {
        assert!(other.iter().all(|e| *e < range.from || *e >= range.to));
    }
    assert!(
        other
            .iter()
            .any(|e| *e >= keys("ke").from && *e < keys("ke").to)
    );
}

#[test]
fn long_values_are_cut_and_stay_candidates() {
    let long = "ab\u{e4}".repeat(30_000 / 4);
    let wild: String = (0u32..2000)
        .map(|n| char::from(33 + (n * n % 89) as u8))
        .collect();
    for text in [long, wild] {
        let tag = Tag::text(text.clone());
        let all = entries(INO, &[("k", tag.clone())]);
        assert!(all.len() < 10 + MAX_WINDOWS && all.iter().all(|entry| entry.len() < 600));
        let value = Value::Text(text.as_str().into());
        assert!(hits(&exact("k", &value), &tag));
        assert!(hits(&prefix("k", &text[..1000]), &tag));
        assert!(hits(&suffix("k", &text[1000..]), &tag));
        assert!(infix_hits(&text[500..900], &tag));
        assert!(infix("k", &text).len() <= LOOKED_UP);
        for end in [End::With(&value), End::Without(&value)] {
            assert!(hits(
                &between("k", end, End::Open),
                &Tag::text(format!("{text}x"))
            ));
            assert!(hits(
                &between("k", End::Open, end),
                &Tag::text(&text[..1000])
            ));
        }
    }
    // A list cannot have more windows than one text.
    let many: Vec<String> = (0..1000).map(|n| format!("\"{}\"", n * 7919)).collect();
    let list = Tag::infer(&format!("[{}]", many.join(","))).unwrap();
    assert!(hits(&unseen("k"), &list));
    assert!(entries(INO, &[("k", list)]).len() <= 2 + 2 * 1000);
}

#[test]
fn a_text_that_repeats_itself_has_all_its_windows() {
    let text = "ab".repeat(200) + "needle";
    let tag = Tag::text(text);
    assert!(infix_hits("needle", &tag));
    assert!(!hits(&unseen("k"), &tag));
    // At the limit, over the members of a list, and beyond it.
    let members = |count: u32| {
        let members: Vec<_> = (0..count)
            .map(|n| {
                format!(
                    "\"{}\"",
                    char::from_u32(0x1000 + n).unwrap().to_string().repeat(2)
                )
            })
            .collect();
        Tag::infer(&format!("[{}]", members.join(","))).unwrap()
    };
    for count in 1..200 {
        let tag = members(count);
        let last = char::from_u32(0x1000 + count - 1).unwrap().to_string();
        assert!(infix_hits(&last, &tag), "{count}");
    }
    assert!(!hits(&unseen("k"), &members(60)));
    assert!(hits(&unseen("k"), &members(199)));
}

#[test]
fn what_continues_after_the_cut_is_beyond_what_ends_there() {
    for length in [CUT - 1, CUT, CUT + 1] {
        let literal = "a".repeat(length);
        let tag = Tag::text(format!("{literal}b"));
        let value = Value::Text(literal.as_str().into());
        assert!(hits(&between("k", End::Without(&value), End::Open), &tag));
        assert!(hits(&between("k", End::With(&value), End::Open), &tag));
    }
}

fn values() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![
        (-3i64..3).prop_map(|int| Value::Number(Num::int(int))),
        (-3f64..3.0).prop_map(|float| Value::Number(Num::float(float).unwrap())),
        "[ab\0]{0,4}".prop_map(|text| Value::Text(text.into())),
        "[ab]{254,258}".prop_map(|text| Value::Text(text.into())),
        proptest::collection::vec(prop_oneof![Just(0u8), Just(255), Just(1)], 0..4)
            .prop_map(|bytes| Value::Bytes(bytes.into())),
    ]
}

fn tag_of(value: &Value<'_>) -> Tag {
    match value {
        Value::Number(number) => match number.as_i64() {
            Some(int) => Tag::int(int),
            None => Tag::float(number.as_f64()).unwrap(),
        },
        Value::Text(text) => Tag::text(text.clone()),
        Value::Bytes(bytes) => Tag::bytes(bytes.clone()),
    }
}

/// The order of two values of one type; none of two types.
fn order(one: &Value<'_>, two: &Value<'_>) -> Option<std::cmp::Ordering> {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => Some(one.cmp(two)),
        (Value::Text(one), Value::Text(two)) => Some(one.cmp(two)),
        (Value::Bytes(one), Value::Bytes(two)) => Some(one.cmp(two)),
        _ => None,
    }
}

proptest! {
    #[test]
    fn ranges_have_what_is_between(value in values(), low in values(), high in values()) {
        let tag = tag_of(&value);
        let above = order(&value, &low);
        let below = order(&value, &high);
        let short = [&value, &low, &high].iter().all(|value| !is_cut(value));
        let lows = [
            (End::Open, Some(true)),
            (End::With(&low), above.map(|above| above.is_ge())),
            (End::Without(&low), above.map(|above| above.is_gt())),
        ];
        let highs = [
            (End::Open, Some(true)),
            (End::With(&high), below.map(|below| below.is_le())),
            (End::Without(&high), below.map(|below| below.is_lt())),
        ];
        for (low, above) in lows {
            for (high, below) in highs {
                let inside = above == Some(true) && below == Some(true);
                let hit = hits(&between("k", low, high), &tag);
                prop_assert!(hit || !inside, "{value:?} {low:?} {high:?}");
                // Short values are exact.
                prop_assert!(!hit || inside || !short, "{value:?} {low:?} {high:?}");
            }
        }
        let equal = order(&value, &low) == Some(std::cmp::Ordering::Equal);
        let hit = hits(&exact("k", &low), &tag);
        prop_assert!(hit == equal || (hit && !short));
    }

    #[test]
    fn parts_of_a_text_find_it(text in "[ab\0ä]{0,14}", part in "[ab\0ä]{0,12}") {
        let tag = Tag::text(text.clone());
        prop_assert_eq!(hits(&prefix("k", &part), &tag), text.starts_with(&part));
        prop_assert_eq!(hits(&suffix("k", &part), &tag), text.ends_with(&part));
        prop_assert!(infix_hits(&part, &tag) || !text.contains(&part));
    }

    #[test]
    fn an_infix_of_up_to_a_window_finds_nothing_else(text in "[abä]{0,14}", part in "[abä]{1,3}") {
        let found = infix_hits(&part, &Tag::text(text.clone()));
        prop_assert_eq!(found, text.contains(&part));
    }

    #[test]
    fn parts_of_parts_of_a_text_find_it(text in "[ab\0ä]{0,40}", from in 0usize..40, len in 1usize..24) {
        let part: String = text.chars().skip(from).take(len).collect();
        prop_assert!(part.is_empty() || infix_hits(&part, &Tag::text(text)));
    }

    #[test]
    fn postings_ascend(inos in proptest::collection::btree_set(any::<u64>(), 1..20)) {
        let tag = Tag::text("abcdefgh");
        let all: BTreeSet<_> = inos.iter().flat_map(|&ino| entries(ObjectId(ino), &[("k", tag.clone())])).collect();
        let value = Value::Text("abcdefgh".into());
        let mut ranges = infix("k", "abcdefgh");
        ranges.extend([exact("k", &value), has_key("k")]);
        for range in ranges {
            prop_assert!(range.posting);
            let found: Vec<_> = all.range(range.from..range.to).map(|e| ino_of(e).unwrap().0).collect();
            prop_assert!(found.iter().eq(inos.iter()));
        }
    }
}
