//! Random operations against a set of the standard library.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Apply(Vec<Vec<u8>>, Vec<Vec<u8>>),
    /// Begins to read, and finishes only at a later step of this kind.
    Read(Vec<u8>, Option<Vec<u8>>),
    Seek(Vec<u8>, Option<Vec<u8>>, Vec<(Vec<u8>, u8)>),
    Seal,
    Persist,
    Merge,
    /// The process ends here; the next one finds what was persisted.
    Reopen,
    Rebuild(Vec<Vec<u8>>),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0_u16..400).prop_map(|n| format!("common/key/{n:03}").into_bytes()),
        3 => vec(prop_oneof![Just(0_u8), Just(b'a'), Just(0xff)], 1..6),
        1 => vec(any::<u8>(), 1..200),
    ]
}

fn end() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![Just(None), key().prop_map(Some)]
}

fn step() -> impl Strategy<Value = Step> {
    let from = || prop_oneof![Just(Vec::new()), key()];
    prop_oneof![
        8 => (vec(key(), 0..40), vec(key(), 0..20)).prop_map(|(adds, removes)| Step::Apply(adds, removes)),
        3 => (from(), end()).prop_map(|(from, to)| Step::Read(from, to)),
        3 => (from(), end(), vec((key(), 0_u8..4), 1..8)).prop_map(|(from, to, seeks)| Step::Seek(from, to, seeks)),
        3 => Just(Step::Seal),
        3 => Just(Step::Persist),
        2 => Just(Step::Merge),
        1 => Just(Step::Reopen),
        1 => vec(key(), 0..200).prop_map(Step::Rebuild),
    ]
}

fn range(model: &Model, from: &[u8], to: Option<&[u8]>) -> Vec<Vec<u8>> {
    let within = |key: &&Vec<u8>| key.as_slice() >= from && to.is_none_or(|to| key.as_slice() < to);
    model.iter().filter(within).cloned().collect()
}

/// Seeks and reads a few entries each time, and does the same with a list.
fn seeks(
    index: &Index,
    expected: &[Vec<u8>],
    from: &[u8],
    to: Option<&[u8]>,
    seeks: &[(Vec<u8>, u8)],
) {
    let mut iter = index.iter(from, to).expect("iter");
    let mut rest = expected.iter();
    for (target, count) in seeks {
        iter.seek(target).expect("seek");
        while rest.as_slice().first().is_some_and(|next| next < target) {
            rest.next();
        }
        for _ in 0..*count {
            assert_eq!(iter.next().expect("next"), rest.next().map(Vec::as_slice));
        }
    }
    assert_eq!(read(iter).expect("rest"), rest.cloned().collect::<Vec<_>>());
}

fn run(steps: &[Step]) {
    let dir = TempDir::new().expect("dir");
    let mut index = open(dir.path()).0;
    let mut model = Model::new();
    let (mut sealed, mut persisted) = (Model::new(), Model::new());
    let mut lsn = 0;
    let mut reading: Option<(Iter, Vec<Vec<u8>>)> = None;
    for step in steps {
        match step {
            Step::Apply(adds, removes) => {
                index.apply(adds, removes).expect("applied");
                removes.iter().for_each(|key| {
                    model.remove(key);
                });
                model.extend(adds.iter().cloned());
            }
            Step::Read(from, to) => {
                if let Some((iter, expected)) = reading.take() {
                    assert_eq!(read(iter).expect("read"), expected);
                }
                let iter = index.iter(from, to.as_deref()).expect("iter");
                reading = Some((iter, range(&model, from, to.as_deref())));
            }
            Step::Seek(from, to, targets) => {
                let expected = range(&model, from, to.as_deref());
                seeks(&index, &expected, from, to.as_deref(), targets);
            }
            Step::Seal => {
                lsn += 1;
                index.seal(Lsn(lsn));
                sealed.clone_from(&model);
            }
            Step::Persist => {
                assert_eq!(index.persist(), Ok(Lsn(lsn)));
                persisted.clone_from(&sealed);
            }
            Step::Merge => drop(index.merge().expect("merged")),
            Step::Reopen => {
                drop(index);
                let (again, known) = open(dir.path());
                index = again;
                assert!(known <= Lsn(lsn));
                lsn = known.0;
                model.clone_from(&persisted);
                sealed.clone_from(&persisted);
            }
            Step::Rebuild(keys) => {
                lsn += 1;
                let rebuilt: Result<(), IndexError> = index.rebuild(Lsn(lsn), |loader| {
                    keys.iter().try_for_each(|key| loader.push(key))
                });
                rebuilt.expect("rebuilt");
                model = keys.iter().cloned().collect();
                sealed.clone_from(&model);
                persisted.clone_from(&model);
            }
        }
        assert_eq!(
            all(&index).expect("all"),
            in_order(&model),
            "after {step:?}"
        );
        assert!(index.len() >= model.len() as u64);
    }
    if let Some((iter, expected)) = reading {
        assert_eq!(read(iter).expect("read"), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn it_is_a_set_of_bytes(steps in vec(step(), 1..40)) {
        run(&steps);
    }
}
