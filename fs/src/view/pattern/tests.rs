//! Tests of patterns: round trips, and malformed parts.

use proptest::prelude::*;

use super::*;

fn place() -> impl Strategy<Value = Place> {
    (any::<i64>(), any::<bool>(), any::<i64>()).prop_map(|(offset, absolute, stride)| Place {
        offset,
        absolute,
        stride,
    })
}

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let leaf = (place(), any::<u64>(), any::<u64>()).prop_map(|(file, count, size)| {
        Batch::repeated(file, Place::after(0), count, batch::Pattern::Data(size))
    });
    let tree = leaf.prop_recursive(4, 60, 6, |inner| {
        (place(), any::<u64>(), prop::collection::vec(inner, 0..6)).prop_map(
            |(file, count, below)| {
                let pattern = batch::Pattern::Vector(below);
                Batch::repeated(file, Place::after(0), count, pattern)
            },
        )
    });
    prop::collection::vec(tree, 0..20)
}

/// Encodes a pattern into parts and decodes these.
fn sent(pattern: &Pattern) -> Result<Option<Pattern>, PatternError> {
    let mut gathering = Gathering::default();
    let mut last = None;
    for part in pattern.parts() {
        assert!(last.is_none(), "complete before the last part");
        last = gathering.take(Part::read(&part)?)?;
    }
    Ok(last)
}

proptest! {
    #[test]
    fn a_pattern_arrives_as_it_was_sent(batches in batches(), elements: bool) {
        let unit = if elements { Unit::Elements } else { Unit::Bytes };
        let pattern = Pattern::new(&batches, unit);
        prop_assert_eq!(pattern.top() as usize, batches.len());
        prop_assert_eq!(pattern.batches().unwrap(), batches);
        prop_assert_eq!(sent(&pattern).unwrap(), Some(pattern));
    }

    #[test]
    fn arbitrary_bytes_are_parsed_or_refused(
        mut bytes in prop::collection::vec(any::<u8>(), PART),
        small in 0u8..4,
    ) {
        // Mostly a valid head, so that the nodes are parsed.
        if small > 0 {
            bytes[..HEAD].fill(0);
            bytes[0] = 1;
            bytes[8] = small;
            bytes[16] = small;
            for node in bytes[HEAD..].chunks_exact_mut(NODE) {
                node[32] &= 3;
                node[33..36].fill(0);
                node[37..40].fill(0);
                if node[32] & 2 == 0 { node[36] = 0 } else { node[24..32].fill(0) }
            }
        }
        if let Ok(part) = Part::read(&bytes)
            && let Ok(Some(pattern)) = Gathering::default().take(part)
            && let Ok(batches) = pattern.batches()
        {
            prop_assert_eq!(Pattern::new(&batches, pattern.unit), pattern);
        }
    }
}

#[test]
fn an_empty_pattern_is_one_empty_part() {
    let empty = Pattern::new(&[], Unit::Bytes);
    assert_eq!(empty.parts().count(), 1);
    assert_eq!(sent(&empty).unwrap(), Some(empty));
}

#[test]
fn a_part_out_of_order_discards_the_pattern() {
    let many = vec![Batch::data(Place::after(1), Place::after(0), 1); 2 * PART_NODES + 1];
    let pattern = Pattern::new(&many, Unit::Bytes);
    let parts: Vec<Part> = pattern
        .parts()
        .map(|part| Part::read(&part).unwrap())
        .collect();
    assert_eq!(parts.len(), 3);
    let mut gathering = Gathering::default();
    assert_eq!(gathering.take(parts[0].clone()), Ok(None));
    let late = gathering.take(parts[2].clone());
    assert!(
        matches!(
            late,
            Err(PatternError::OutOfOrder {
                first: 400,
                expected: 200
            })
        ),
        "{late:?}"
    );
    let over = gathering.take(parts[1].clone());
    assert!(
        matches!(over, Err(PatternError::OutOfOrder { .. })),
        "{over:?}"
    );
    assert_eq!(sent(&pattern), Ok(Some(pattern)));
}

#[test]
fn inconsistent_patterns_are_refused() {
    let node = |what| Node {
        file: Place::after(0),
        count: 1,
        what,
    };
    let of = |nodes| Pattern {
        unit: Unit::Bytes,
        nodes,
    };
    let short = of(vec![node(What::Vector(2)), node(What::Data(1))]);
    assert_eq!(short.batches(), Err(PatternError::Sums(2)));
    let deep = of(vec![node(What::Vector(1)); MAX_DEPTH + 1]);
    assert_eq!(deep.batches(), Err(batch::BatchError::TooDeep.into()));
    let mut part = of(vec![node(What::Data(1))]).part(0, 0);
    part[8..12].copy_from_slice(&(MAX_NODES as u32 + 1).to_ne_bytes());
    assert_eq!(Part::read(&part), Err(batch::BatchError::TooLarge.into()));
    assert!(matches!(
        Part::read(&part[..100]),
        Err(PatternError::Version(1, 100))
    ));
    assert!(matches!(Part::read(&[]), Err(PatternError::Version(0, 0))));
}
