//! The checks are right about generated histories: they accept valid ones and refuse invalid ones.

use super::cells::Cells;
use super::check::{Promise, check, check_atomic};
use super::linear::{Model, Verdict, search};
use super::made::{self, any_order, op, read, write};
use super::names::Directory;
use super::op::{Answer, Call, How, NEVER, Op};
use super::sized::Records;
use crate::Random;

fn fine(ops: &[Op]) -> bool {
    check(ops, Promise::Strict).is_empty() && check_atomic(ops).is_empty()
}

#[test]
fn a_read_of_an_old_value_is_found_and_shown_small() {
    let mut ops: Vec<Op> = (0..200)
        .map(|i| write(0, (i * 10, i * 10 + 5), 0, i + 1))
        .collect();
    ops.extend((0..200).map(|i| read(1, (i * 10 + 6, i * 10 + 8), 0, i + 1)));
    assert!(fine(&ops));
    ops.push(read(2, (1500, 1502), 0, 17));
    let found = check(&ops, Promise::Strict);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].ops.len(), 3, "{}", found[0]);
    assert_eq!(found[0].ops[0], write(0, (160, 165), 0, 17));
    assert_eq!(found[0].ops[2], read(2, (1500, 1502), 0, 17));
}

#[test]
fn concurrent_writes_may_be_seen_or_not_but_not_reverted() {
    let long = write(0, (0, 100), 0, 1);
    assert!(fine(&[
        long.clone(),
        read(1, (10, 20), 0, 0),
        read(1, (30, 40), 0, 1)
    ]));
    assert!(!fine(&[
        long.clone(),
        read(1, (10, 20), 0, 1),
        read(2, (30, 40), 0, 0)
    ]));
    assert!(!fine(&[long.clone(), read(1, (110, 120), 0, 0)]));
    // Adjacent intervals may share an instant.
    assert!(fine(&[long, read(1, (100, 120), 0, 0)]));
    assert!(!fine(&[read(1, (0, 10), 0, 5)]), "never written");
    assert!(
        !fine(&[read(1, (0, 10), 0, 5), write(0, (11, 20), 0, 5)]),
        "from the future"
    );
}

#[test]
fn operations_that_never_returned_may_happen_late_or_never() {
    let mut lost = write(0, (0, NEVER), 0, 1);
    lost.answer = Answer::Unknown("killed".to_owned());
    let old = |at| read(1, (at, at + 5), 0, 0);
    let new = |at| read(1, (at, at + 5), 0, 1);
    assert!(fine(&[lost.clone(), old(10), old(20)]));
    assert!(fine(&[lost.clone(), old(10), new(20)]));
    assert!(!fine(&[lost.clone(), new(10), old(20)]));
    // It failed, and may still be under way.
    lost.end = 5;
    assert!(fine(&[lost, old(10), new(20)]));
}

#[test]
fn a_region_is_seen_completely() {
    let both_cells = |process, times, value| {
        let call = Call::Write {
            cells: vec![0, 1],
            value,
            how: How::Call,
        };
        op(process, times, call, Answer::Done)
    };
    let seen = |times, values: [u64; 2], how| {
        let call = Call::Read {
            cells: vec![0, 1],
            how,
        };
        op(9, times, call, Answer::Values(values.to_vec()))
    };
    let both = [both_cells(0, (0, 100), 1), both_cells(1, (0, 100), 2)];
    let with = |op: Op| [both[0].clone(), both[1].clone(), op];
    assert!(fine(&with(seen((10, 20), [2, 2], How::Call))));
    assert!(!fine(&with(seen((10, 20), [1, 2], How::Call))));
    assert!(!fine(&with(seen((110, 120), [1, 2], How::Selection))));
    assert!(
        fine(&with(seen((110, 120), [1, 2], How::Mapped))),
        "a mapping sees cells"
    );
}

#[test]
fn records_and_names() {
    let append = |value, place| {
        op(
            0,
            (value * 10, value * 10 + 5),
            Call::Append { value },
            place,
        )
    };
    let at = Answer::Number;
    let two = [append(1, at(0)), append(2, at(1))];
    let all = |values: &[u64]| {
        op(
            1,
            (100, 110),
            Call::ReadAll,
            Answer::Values(values.to_vec()),
        )
    };
    let with = |op: Op| [two[0].clone(), two[1].clone(), op];
    assert!(fine(&with(all(&[1, 2]))));
    assert!(!fine(&with(all(&[2, 1]))));
    assert!(!fine(&with(all(&[2]))), "one landed on the other");
    assert!(!fine(&with(op(1, (100, 110), Call::Size, at(1)))));
    assert!(
        !fine(&[append(1, at(0)), append(2, at(0)), all(&[1, 2])]),
        "the same place twice"
    );

    let name = || "a".to_owned();
    let create = |process, file| {
        op(
            process,
            (0, 10),
            Call::Create { name: name() },
            Answer::File(file),
        )
    };
    let look = |answer| op(2, (20, 30), Call::Look { name: name() }, answer);
    let gone = || Answer::Refused("ENOENT".to_owned());
    assert!(fine(&[create(0, 7), look(Answer::File(7))]));
    assert!(!fine(&[create(0, 7), look(Answer::File(8))]));
    assert!(!fine(&[create(0, 7), look(gone())]));
    assert!(!fine(&[create(0, 7), create(1, 8)]), "two made it");
    let to = || "b".to_owned();
    let rename = op(
        1,
        (12, 15),
        Call::Rename {
            from: name(),
            to: to(),
        },
        Answer::Done,
    );
    assert!(fine(&[create(0, 7), rename.clone(), look(gone())]));
    let again = op(3, (11, 17), rename.call.clone(), Answer::Done);
    assert!(
        fine(&[create(0, 7), rename.clone(), again.clone()]),
        "it found one file under both names"
    );
    assert!(!fine(&[again]), "there was nothing to rename");
    assert!(!fine(&[create(0, 7), rename, look(Answer::File(7))]));
    let mut lost = create(0, 7);
    (lost.end, lost.answer) = (NEVER, Answer::Unknown("killed".to_owned()));
    assert!(fine(&[lost.clone(), look(gone())]));
    assert!(fine(&[lost.clone(), look(Answer::File(9))]));
    let later = op(2, (40, 50), Call::Look { name: name() }, Answer::File(10));
    assert!(
        !fine(&[lost, look(Answer::File(9)), later]),
        "two files of one creation"
    );
}

#[test]
fn locks() {
    let lock = |process, times, first, exclusive| {
        let call = Call::Lock {
            first,
            len: 10,
            exclusive,
            wait: false,
        };
        op(process, times, call, Answer::Done)
    };
    let unlock = |process, times| op(process, times, Call::Unlock, Answer::Done);
    let held = [lock(0, (0, 10), 0, true), unlock(0, (50, 60))];
    let with = |other: Op| [held[0].clone(), held[1].clone(), other, unlock(1, (80, 90))];
    assert!(!fine(&with(lock(1, (20, 30), 5, true))));
    assert!(!fine(&with(lock(1, (20, 30), 5, false))));
    assert!(fine(&with(lock(1, (20, 30), 10, true))), "other bytes");
    assert!(
        fine(&with(lock(1, (20, 55), 5, true))),
        "given back meanwhile"
    );
    assert!(fine(&[
        lock(0, (0, 10), 0, false),
        lock(1, (20, 30), 0, false)
    ]));
    let mut refused = lock(1, (20, 30), 0, true);
    refused.answer = Answer::Refused("EAGAIN".to_owned());
    assert!(fine(&with(refused.clone())));
    refused.start = 61;
    refused.end = 70;
    assert!(!fine(&with(refused)), "refused what is free");
}

#[test]
fn commit_lets_see_old_values_until_the_next_open() {
    let on = |process, times, call| op(process, times, call, Answer::Done);
    let history = |opened: u64, value: u64| {
        let mut ops = vec![
            on(0, (0, 5), Call::Open),
            write(0, (10, 20), 0, 1),
            on(0, (21, 25), Call::Sync),
            write(0, (30, 40), 0, 2),
            on(0, (50, 60), Call::Sync),
            on(1, (opened, opened + 1), Call::Open),
            read(1, (100, 110), 0, value),
        ];
        ops.sort_by_key(|op| op.start);
        ops
    };
    let holds = |ops: Vec<Op>| check(&ops, Promise::Commit).is_empty();
    assert!(holds(history(70, 2)));
    assert!(!holds(history(70, 1)), "what was replaced");
    assert!(holds(history(55, 1)), "opened before the sync had ended");
    assert!(!holds(history(55, 0)), "older than what was known");
    assert!(holds(history(22, 0)));
    assert!(!holds(history(22, 3)), "never written");
    // On the same mount nothing has to be synced.
    let mut same = history(3, 1);
    same.iter_mut().for_each(|op| op.mount = 0);
    assert!(!holds(same));
    // Without a sync the value may be seen or not.
    for value in [0, 1, 2] {
        let ops: Vec<Op> = history(70, value)
            .into_iter()
            .filter(|op| op.call != Call::Sync)
            .collect();
        assert!(holds(ops));
    }
}

/// Any order of the operations, within their times, is found.
#[test]
fn random_histories_that_happened_are_accepted() {
    let mut random = Random::new(71);
    for processes in [1, 2, 4, 8] {
        for round in 0..10 {
            let histories = [
                made::history(&mut random, processes, 300, made::cells),
                made::history(&mut random, processes, 300, made::records),
                made::history(&mut random, processes, 300, made::names),
            ];
            for mut ops in histories {
                if round % 2 == 1 {
                    made::forget(&mut random, &mut ops);
                }
                let mut found = check(&ops, Promise::Strict);
                found.extend(check_atomic(&ops));
                assert!(
                    found.is_empty(),
                    "{processes} processes, round {round}: {}",
                    found[0]
                );
            }
        }
    }
}

/// A read that returns a value that was certainly replaced is found, wherever it is.
#[test]
fn random_histories_with_one_old_answer_are_refused() {
    let mut random = Random::new(72);
    let mut spoiled = 0;
    for _ in 0..60 {
        let ops = made::history(&mut random, 4, 300, made::cells);
        let at = random.range(0, ops.len() as u64) as usize;
        let Some(old) = certainly_replaced(&ops, at) else {
            continue;
        };
        let mut wrong = ops.clone();
        let Answer::Values(values) = &mut wrong[at].answer else {
            unreachable!("it is a read")
        };
        values[0] = old;
        assert!(fine(&ops));
        let found = check(&wrong, Promise::Strict);
        assert_eq!(found.len(), 1);
        assert!(found[0].ops.len() <= 4, "{}", found[0]);
        spoiled += 1;
    }
    assert!(spoiled > 10, "{spoiled}");
}

/// A value of the first cell of the operation that was replaced before it began.
fn certainly_replaced(ops: &[Op], at: usize) -> Option<u64> {
    let Call::Read { cells, .. } = &ops[at].call else {
        return None;
    };
    let writes = |op: &Op| match &op.call {
        Call::Write {
            cells: of, value, ..
        } if of.contains(&cells[0]) => Some(*value),
        _ => None,
    };
    let new = ops
        .iter()
        .find(|op| writes(op).is_some() && op.end < ops[at].start)?;
    let old = ops
        .iter()
        .find(|op| writes(op).is_some() && op.end < new.start);
    Some(old.map_or(0, |old| writes(old).expect("a write")))
}

/// For short histories, valid or modified, the search agrees with trying all orders.
#[test]
fn the_search_agrees_with_all_orders() {
    let mut random = Random::new(73);
    let mut verdicts = [0; 2];
    for _ in 0..2000 {
        let len = random.range(1, 8);
        let mut ops = match random.range(0, 3) {
            0 => made::history(&mut random, 3, len, made::cells),
            1 => made::history(&mut random, 3, len, made::records),
            _ => made::history(&mut random, 3, len, made::names),
        };
        made::forget(&mut random, &mut ops);
        if random.one_in(2) {
            // Two operations exchange their answers: that may be valid as well.
            let [one, other] = [(); 2].map(|()| random.range(0, ops.len() as u64) as usize);
            let answer = ops[one].answer.clone();
            if std::mem::discriminant(&ops[one].call) == std::mem::discriminant(&ops[other].call) {
                ops[one].answer = std::mem::replace(&mut ops[other].answer, answer);
            }
        }
        let possible = match &ops[0].call {
            Call::Write { .. } | Call::Read { .. } => agree(&Cells::of(&ops), &ops),
            Call::Append { .. } | Call::Resize { .. } | Call::Size | Call::ReadAll => {
                // The place is not always known.
                for op in &mut ops {
                    if matches!(op.call, Call::Append { .. }) && random.one_in(2) {
                        op.answer = Answer::Done;
                    }
                }
                let possible = agree(&Records::default(), &ops);
                assert_eq!(
                    search(&Records::of(&ops), &ops) == Verdict::Fine,
                    possible,
                    "{ops:#?}"
                );
                possible
            }
            _ => agree(&Directory, &ops),
        };
        verdicts[usize::from(possible)] += 1;
    }
    assert!(verdicts.iter().all(|&count| count > 50), "{verdicts:?}");
}

fn agree<M: Model>(model: &M, ops: &[Op]) -> bool {
    let possible = any_order(model, &model.initial(), ops);
    assert_eq!(search(model, ops) == Verdict::Fine, possible, "{ops:#?}");
    possible
}

/// Overlapping appends without reads in between have too many orders to try each.
#[test]
fn many_unread_appends_are_checked_quickly() {
    let appends = |from: u64, count: u64| {
        (from..from + count).map(move |number| {
            let begin = number * 10;
            let call = Call::Append { value: number };
            op(number as u32 % 4, (begin, begin + 35), call, Answer::Done)
        })
    };
    let size = op(5, (900, 910), Call::Size, Answer::Number(40));
    let unread: Vec<Op> = appends(1, 40).chain([size]).collect();
    assert!(fine(&unread));
    let mut seen: Vec<u64> = (1..41).collect();
    seen.swap(7, 9);
    let read = |values: &[u64]| {
        op(
            5,
            (900, 910),
            Call::ReadAll,
            Answer::Values(values.to_vec()),
        )
    };
    let all: Vec<Op> = appends(1, 40).chain([read(&seen)]).collect();
    assert!(fine(&all));
    // The first had ended when the other began.
    seen.swap(20, 30);
    let all: Vec<Op> = appends(1, 40).chain([read(&seen)]).collect();
    assert!(!fine(&all));
}

#[test]
fn logs_are_read_back() {
    let area = crate::Area::new();
    let path = area.at("log");
    let mut log = super::log::Log::create(&path).expect("a log");
    let call = Call::Lock {
        first: 3,
        len: 4,
        exclusive: true,
        wait: false,
    };
    log.note("x", call.clone(), || Answer::Done);
    let mut text = std::fs::read_to_string(&path).expect("text");
    let last = text
        .replace("Done", "Nothing")
        .lines()
        .next()
        .expect("a line")
        .to_owned();
    text.push_str(&last);
    text.push_str("\n{\"Ended\":{\"en");
    std::fs::write(&path, text).expect("written");
    let ops = super::log::read(&path, 5, 2).expect("read");
    assert_eq!(ops.len(), 2);
    assert_eq!((ops[0].process, ops[0].mount, &ops[0].call), (5, 2, &call));
    assert!(!ops[0].is_doubtful() && ops[0].end >= ops[0].start);
    assert!(ops[1].is_doubtful() && ops[1].end == NEVER);
    let path = area.at("history");
    super::log::keep(&path, &ops).expect("stored");
    assert_eq!(super::log::load(&path).expect("loaded"), ops);
}
