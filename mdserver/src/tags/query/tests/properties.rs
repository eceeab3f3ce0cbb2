//! Random queries over random tags: the index never hides a hit, and the text of a query parses to the same query.

use proptest::prelude::*;
use slabfs_model::{Num, Tag};
use std::collections::BTreeSet;

use super::support::Thing;
use crate::tags::entry;
use crate::tags::query::subject::Builtin;
use crate::tags::query::term::{Comparison, Key, KeyPattern, Literal, Node, Pattern, Term, Test};
use crate::tags::query::when::When;
use crate::tags::query::{Access, Query};

const WORDS: &[&str] = &[
    "a", "ab", "b", "and", "In", "name", "dims", "dims[0]", "x", ".", "-", "k=", "\"", "*",
];

fn keys() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[ab]{1,2}", 1 => proptest::sample::select(WORDS).prop_map(str::to_owned)]
}

fn texts() -> impl Strategy<Value = String> + Clone {
    prop_oneof![
        4 => "[abc]{0,6}",
        1 => "[ab]{250,270}",
        1 => "[-0-3.]{1,3}",
        1 => "[ab*\"'\\\\ =!<>().ä\0]{0,5}",
    ]
}

fn numbers() -> impl Strategy<Value = Num> {
    prop_oneof![
        (-3i64..4).prop_map(Num::int),
        (-3f64..4.0).prop_map(|float| Num::float(float).unwrap()),
        any::<i64>().prop_map(Num::int),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(0u8), Just(255), Just(b'a')], 0..3)
}

fn tags() -> impl Strategy<Value = Tag> {
    let number = |number: Num| match number.as_i64() {
        Some(int) => Tag::int(int),
        None => Tag::float(number.as_f64()).unwrap(),
    };
    prop_oneof![
        texts().prop_map(Tag::text),
        texts().prop_map(Tag::auto),
        numbers().prop_map(number),
        bytes().prop_map(Tag::bytes),
        bytes().prop_map(Tag::auto),
        proptest::collection::vec((texts(), -3i64..3, bytes()), 0..3).prop_map(|members| {
            let json = members.into_iter().flat_map(|(text, int, bytes)| {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                [
                    serde_json::json!(text),
                    serde_json::json!(int),
                    serde_json::json!({ "bytes": hex }),
                ]
            });
            Tag::from_json(&serde_json::Value::Array(json.collect())).unwrap()
        }),
    ]
}

fn things() -> impl Strategy<Value = Thing> {
    proptest::collection::btree_map("[ab]{1,2}", tags(), 0..4).prop_map(|tags| Thing { tags })
}

fn patterns() -> impl Strategy<Value = Pattern> {
    let some = texts().prop_filter("not empty", |text| !text.is_empty());
    prop_oneof![
        Just(Pattern::Any),
        some.clone().prop_map(Pattern::Prefix),
        some.clone().prop_map(Pattern::Suffix),
        some.prop_map(Pattern::Infix),
    ]
}

fn literals() -> impl Strategy<Value = Literal> {
    prop_oneof![
        texts().prop_map(Literal::Text),
        numbers().prop_map(Literal::Number),
        bytes().prop_map(Literal::Bytes),
    ]
}

fn comparisons() -> impl Strategy<Value = Comparison> + Clone {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    proptest::sample::select(vec![
        Equal,
        NotEqual,
        Less,
        LessOrEqual,
        Greater,
        GreaterOrEqual,
    ])
}

fn ranges() -> impl Strategy<Value = Test> {
    let pair = prop_oneof![
        (texts(), texts()).prop_map(|(low, high)| (Literal::Text(low), Literal::Text(high))),
        (numbers(), numbers()).prop_map(|(one, two)| {
            (Literal::Number(one.min(two)), Literal::Number(one.max(two)))
        }),
        (bytes(), bytes()).prop_map(|(low, high)| (Literal::Bytes(low), Literal::Bytes(high))),
    ];
    (pair, 0..3).prop_map(|((low, high), open)| match open {
        0 => Test::In(None, Some(high)),
        1 => Test::In(Some(low), None),
        _ => Test::In(Some(low), Some(high)),
    })
}

fn terms() -> impl Strategy<Value = Node> {
    let test = prop_oneof![
        1 => Just(Test::Has),
        4 => (comparisons(), literals()).prop_map(|(is, than)| Test::Is(is, than)),
        2 => ranges(),
        3 => patterns().prop_map(Test::Like),
        1 => patterns().prop_map(Test::Unlike),
    ];
    let key = prop_oneof![
        4 => keys().prop_map(Key::Tag),
        1 => patterns().prop_map(|pattern| Key::Tags(KeyPattern(pattern))),
    ];
    let tag = (key, test).prop_map(|(key, test)| Term { key, test });
    let number =
        (comparisons(), numbers()).prop_map(|(is, than)| Test::Is(is, Literal::Number(than)));
    const TIMES: &[&str] = &["2026-11-22", "2026-11-22 10:30", "-2d", "2026-11"];
    let when = proptest::sample::select(TIMES)
        .prop_map(|text| Test::Is(Comparison::Less, Literal::When(When::parse(text).unwrap())));
    let name = (comparisons(), texts()).prop_map(|(is, than)| Test::Is(is, Literal::Text(than)));
    let builtin = prop_oneof![
        number.prop_map(|test| (Builtin::Dim(31), test)),
        when.prop_map(|test| (Builtin::Mtime, test)),
        name.clone().prop_map(|test| (Builtin::Name, test)),
        name.prop_map(|test| (Builtin::Owner, test)),
        patterns().prop_map(|pattern| {
            let pattern = match pattern {
                Pattern::Prefix(text) => Pattern::Prefix(format!("/{text}")),
                pattern => pattern,
            };
            (Builtin::Path, Test::Like(pattern))
        }),
    ];
    let builtin = builtin.prop_map(|(builtin, test)| Term {
        key: Key::Builtin(builtin),
        test,
    });
    prop_oneof![5 => tag, 1 => builtin].prop_map(Node::Term)
}

fn nodes() -> impl Strategy<Value = Node> {
    let flat = |nodes: Vec<Node>, and: bool| {
        let nodes = nodes.into_iter().flat_map(|node| match node {
            Node::And(inner) if and => inner,
            Node::Or(inner) if !and => inner,
            node => vec![node],
        });
        match and {
            true => Node::And(nodes.collect()),
            false => Node::Or(nodes.collect()),
        }
    };
    terms().prop_recursive(4, 12, 3, move |inner| {
        let many = proptest::collection::vec(inner.clone(), 2..4);
        prop_oneof![
            many.clone().prop_map(move |nodes| flat(nodes, true)),
            many.prop_map(move |nodes| flat(nodes, false)),
            inner.prop_map(|node| Node::Not(Box::new(node))),
        ]
    })
}

type Inos = BTreeSet<u64>;

/// The result of reading the complete index.
fn candidates(access: &Access, index: &BTreeSet<Vec<u8>>, everything: &Inos) -> Inos {
    let of = |part: &Access| candidates(part, index, everything);
    match access {
        Access::Scan => everything.clone(),
        Access::Range(range) => {
            let entries = index.range(range.from.clone()..range.to.clone());
            let inos: Vec<_> = entries
                .map(|entry| entry::ino_of(entry).unwrap().0)
                .collect();
            assert!(!range.posting || inos.is_sorted_by(|one, two| one < two));
            inos.into_iter().collect()
        }
        Access::And(parts) => {
            assert!(parts.len() > 1);
            let all = parts.iter().map(of);
            all.reduce(|one, two| &one & &two).unwrap_or_default()
        }
        Access::Or(parts) => parts.iter().flat_map(of).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_index_hides_no_hit(things in proptest::collection::vec(things(), 0..6), root in nodes()) {
        let query = Query { root };
        let mut index = BTreeSet::new();
        for (ino, thing) in things.iter().enumerate() {
            index.extend(thing.entries(ino as u64));
        }
        let everything: Inos = (0..things.len() as u64).collect();
        let hits: Inos = (0u64..).zip(&things)
            .filter(|(_, thing)| query.matches(*thing))
            .map(|(ino, _)| ino)
            .collect();
        let found = candidates(&query.access(), &index, &everything);
        prop_assert!(hits.is_subset(&found), "{query}: {hits:?} {found:?}");
        // Then the tags themselves are not verified.
        prop_assert!(!query.is_precise() || hits == found, "{query}: {hits:?} {found:?}");
        let known: BTreeSet<_> = things.iter().flat_map(|thing| thing.tags.keys()).collect();
        let access = query.access_with(&mut |pattern: &KeyPattern| {
            let fit = known.iter().filter(|key| pattern.fits(key));
            Some(fit.map(|key| key.to_string()).collect())
        });
        let found = candidates(&access, &index, &everything);
        prop_assert!(hits.is_subset(&found), "{query}: {hits:?} {found:?}");
    }

    #[test]
    fn the_text_of_a_query_is_the_query(root in nodes()) {
        let query = Query { root };
        let text = query.to_string();
        let again = Query::parse(&text);
        prop_assert_eq!(again.map_err(|error| error.to_string()), Ok(query), "{}", text);
    }

    #[test]
    fn any_text_is_a_query_or_a_mistake(
        words in proptest::collection::vec(
            prop_oneof![
                proptest::sample::select(&[
                    "(", ")", "and", "or", "not", "has", "in", "=", "!=", "<", ">=", "k", "name", "dims[0]",
                    "size", "mtime", "3", "3..9", "..", "\"x y\"", "x\"00\"", "*", "a*", "*b*", "-2d", "\\", "'",
                ][..]).prop_map(str::to_owned),
                ".{0,4}",
            ], 0..12),
        spaces in any::<bool>(),
    ) {
        let text = words.join(if spaces { " " } else { "" });
        match Query::parse(&text) {
            Ok(query) => {
                let again = Query::parse(&query.to_string());
                prop_assert_eq!(again.map_err(|error| error.to_string()), Ok(query));
            }
            Err(error) => {
                prop_assert!(text.get(error.span.clone()).is_some());
                prop_assert_eq!(error.to_string().matches('\n').count(), 2);
            }
        }
    }
}
