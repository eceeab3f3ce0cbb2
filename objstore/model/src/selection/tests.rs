//! Tests of selections against Python's slices, computed by listing indices.

use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Selection {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &str) -> String {
    match text.parse::<Selection>() {
        Ok(selection) => panic!("{text} was read as {selection}"),
        Err(error) => error.to_string(),
    }
}

fn axis(start: u64, stride: u64, count: u64) -> Axis {
    Axis::every(start, stride, count)
}

#[test]
fn selections_resolve_as_in_python() {
    for (text, dims, axes) in [
        (
            "[0:10,3,::2,...]",
            &[16, 4, 5, 7, 2][..],
            &[
                axis(0, 1, 10),
                axis(3, 1, 1),
                axis(0, 2, 3),
                axis(0, 1, 7),
                axis(0, 1, 2),
            ][..],
        ),
        ("[-1]", &[5, 2], &[axis(4, 1, 1), axis(0, 1, 2)]),
        ("[...,-2:]", &[5, 4], &[axis(0, 1, 5), axis(2, 1, 2)]),
        (
            "[1,...,2]",
            &[3, 4, 5, 6],
            &[axis(1, 1, 1), axis(0, 1, 4), axis(0, 1, 5), axis(2, 1, 1)],
        ),
        ("[1,...,2]", &[3, 4], &[axis(1, 1, 1), axis(2, 1, 1)]),
        ("[:-1:3]", &[10], &[axis(0, 3, 3)]),
        ("[5:5]", &[10], &[axis(5, 1, 0)]),
        ("[7:3]", &[10], &[axis(7, 1, 0)]),
        ("[10:]", &[10], &[axis(10, 1, 0)]),
        ("[:]", &[0], &[axis(0, 1, 0)]),
        ("[0:11]", &[10], &[axis(0, 1, 10)]),
        ("[11:]", &[10], &[axis(10, 1, 0)]),
        ("[10:11]", &[10], &[axis(10, 1, 0)]),
        ("[-11:3]", &[10], &[axis(0, 1, 3)]),
        ("[-11:-10]", &[10], &[axis(0, 1, 0)]),
        ("[1:99:4]", &[10], &[axis(1, 4, 3)]),
        ("[-1:]", &[0], &[axis(0, 1, 0)]),
        ("[0:0]", &[0], &[axis(0, 1, 0)]),
        ("[::9223372036854775807]", &[10], &[axis(0, 1, 1)]),
        ("[]", &[], &[]),
        ("[...]", &[], &[]),
        ("[]", &[3], &[axis(0, 1, 3)]),
    ] {
        let slab = parse(text)
            .resolve(dims)
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(slab.axes.as_slice(), axes, "{text} of {dims:?}");
        assert!(slab.validate(dims).is_ok());
    }
    let edge = parse("[9223372036854775806]")
        .resolve(&[MAX_BYTES])
        .unwrap();
    assert_eq!(edge.axes[0], axis(MAX_BYTES - 1, 1, 1));
}

#[test]
fn display_is_canonical() {
    for (texts, canonical) in [
        (
            &[
                "[0:10]",
                "[:10]",
                "[ 0 : 10 , ... ]",
                "[00:010:1]",
                " [+0:10] ",
                "[-0:10:]",
            ][..],
            "[0:10]",
        ),
        (&["[]", "[...]", "[ ]"], "[...]"),
        (&["[3]", "[3,...]"], "[3]"),
        (&["[3:4]", "[3:4,...]"], "[3:4]"),
        (&["[-1]"], "[-1]"),
        (&["[-1:]"], "[-1:]"),
        (&["[:]", "[::]", "[0:]", "[0::1]"], "[:]"),
        (&["[::2,5:]"], "[::2,5:]"),
        (&["[0:8:2]"], "[0:8:2]"),
        (&["[...,1]"], "[...,1]"),
        (&["[-1:0]"], "[-1:0]"),
        (&["[:1]"], "[0:1]"),
    ] {
        for text in texts {
            assert_eq!(parse(text).to_string(), canonical, "{text}");
        }
        assert_eq!(parse(canonical).to_string(), canonical);
    }
    assert_eq!(Selection::all().to_string(), "[...]");
}

#[test]
fn texts_that_are_not_selections_are_refused() {
    for (text, words) in [
        ("", "in brackets"),
        ("0:10", "in brackets"),
        ("[0:10", "in brackets"),
        ("0]", "in brackets"),
        ("[", "in brackets"),
        ("[,]", "is not an index"),
        ("[1,]", "is not an index"),
        ("[a]", "\"a\" is not"),
        ("[1.5]", "is not an index"),
        ("[1:2:3:4]", "is not an index"),
        ("[[1]]", "is not an index"),
        ("[0x1]", "is not an index"),
        ("[- 1]", "is not an index"),
        ("[..]", "is not an index"),
        ("[1 2]", "is not an index"),
        ("[--1]", "is not an index"),
        ("[٣]", "is not an index"),
        ("[::0]", "steps are at least 1"),
        ("[::-1]", "steps are at least 1"),
        ("[5:1:-2]", "is -2"),
        ("[9223372036854775808]", "2^63-1"),
        ("[::99999999999999999999]", "2^63-1"),
        ("[...,...]", "more than once"),
    ] {
        let error = error(text);
        assert!(error.contains(words), "{text}: {error}");
    }
    assert!(
        parse(&format!("[{}]", vec!["0"; 32].join(",")))
            .resolve(&[1; 32])
            .is_ok()
    );
    assert!(error(&format!("[{}]", vec!["0"; 33].join(","))).contains("33 items"));
}

#[test]
fn errors_outside_name_axis_and_limit() {
    for (text, dims, words) in [
        (
            "[0,5]",
            &[9, 5][..],
            "index 5 is outside axis 1, which has 5 elements; indices go from -5 to 4",
        ),
        ("[-6]", &[5], "index -6 is outside axis 0"),
        ("[0]", &[0], "0 elements; select nothing of it with :"),
        (
            "[1,2,3]",
            &[5, 5],
            "3 axes are selected and the object has 2 (its dims: 5,5); leave out 1",
        ),
        ("[0]", &[], "(its dims: scalar)"),
        ("[-9223372036854775808]", &[10], "is outside axis 0"),
    ] {
        let error = parse(text).resolve(dims).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    let error = parse("[1]").resolve(&[u64::MAX]).unwrap_err();
    assert_eq!(error, SelectionError::DimTooLarge { len: u64::MAX });
}

#[test]
fn selections_travel_as_text() {
    let selection = parse("[3:,...,::2]");
    let bytes = postcard::to_stdvec(&selection).unwrap();
    assert_eq!(
        postcard::from_bytes::<Selection>(&bytes).unwrap(),
        selection
    );
    let wrong = postcard::to_stdvec("[::0]").unwrap();
    assert!(postcard::from_bytes::<Selection>(&wrong).is_err());
}

/// The elements of Python's `range(len)[start:stop:step]`.
fn python(len: u64, start: Option<i64>, stop: Option<i64>, step: u64) -> Vec<u64> {
    let place = |bound: i64| if bound < 0 { bound + len as i64 } else { bound };
    let from = start.map_or(0, place).max(0);
    let to = stop.map_or(len as i64, place);
    let cells = (from..to).step_by(step as usize).map(|at| at as u64);
    cells.filter(|&at| at < len).collect()
}

fn bound() -> impl Strategy<Value = Option<i64>> {
    prop::option::of(-9..9i64)
}

proptest! {
    #[test]
    fn slices_are_python_s(len in 0..8u64, start in bound(), stop in bound(), step in 1..5u64) {
        let text = |bound: Option<i64>| bound.map(|b| b.to_string()).unwrap_or_default();
        let selection = parse(&format!("[{}:{}:{step}]", text(start), text(stop)));
        let slab = selection.resolve(&[len]).unwrap();
        prop_assert!(slab.validate(&[len]).is_ok());
        let cells: Vec<u64> = crate::naive::cells(&slab).iter().map(|cell| cell[0]).collect();
        prop_assert_eq!(cells, python(len, start, stop, step));
        prop_assert_eq!(parse(&selection.to_string()), selection);
    }

    #[test]
    fn canonical_text_reads_back(text in "\\[(([-+]?[0-9]{1,3})?(:([-+]?[0-9]{1,3})?){0,2}|\\.\\.\\.)(,( ?-?[0-9]{0,2}:?[0-9]{0,2}|\\.\\.\\.)){0,4}\\]") {
        if let Ok(selection) = text.parse::<Selection>() {
            let shown = selection.to_string();
            prop_assert_eq!(&shown.parse::<Selection>().unwrap().to_string(), &shown);
            for dims in [&[3u64, 4, 5][..], &[40, 40], &[]] {
                prop_assert_eq!(selection.resolve(dims), parse(&shown).resolve(dims));
            }
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\[?[-+0-9:,. \\[é]{0,24}\\]?", len in any::<u64>()) {
        if let Ok(selection) = text.parse::<Selection>() {
            let _ = selection.resolve(&[len, 3, 0]);
        }
    }
}
