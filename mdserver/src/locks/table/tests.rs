//! The lock table against a model that stores an owner and a mode for every byte.

use std::collections::BTreeSet;

use proptest::prelude::*;
use slabfs_model::ObjectId;

use super::*;

const BYTES: u64 = 12;

std::thread_local! {
    /// Owners and requests looked at by this thread.
    pub(super) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

fn place(ino: u64, kind: LockKind) -> Place {
    Place {
        file: LockFile {
            ino: ObjectId(ino),
            selection: None,
        },
        kind,
    }
}

fn holder(n: u64) -> Holder {
    // Two sessions, whose owners have the same numbers.
    Holder {
        session: SessionId(n % 2),
        owner: LockOwner(n / 2),
    }
}

fn wanted(n: u64, first: u64, last: u64, mode: LockMode, ticket: u64) -> Wanted {
    Wanted {
        holder: holder(n),
        pid: n as u32,
        span: LockSpan { first, last },
        mode,
        ticket: LockTicket(ticket),
        since: Instant::now(),
    }
}

use LockMode::{Exclusive, Shared};

const DONE: Taken = Taken::Now(LockOutcome::Done);

fn ticket(n: u64, ticket: u64) -> Decided {
    Decided {
        session: holder(n).session,
        ticket: LockTicket(ticket),
    }
}

#[test]
fn later_readers_do_not_overtake_a_waiting_writer() {
    let (mut table, at) = (Table::default(), place(1, LockKind::Record));
    assert_eq!(table.lock(&at, wanted(0, 0, 9, Shared, 1), true), DONE);
    assert_eq!(
        table.lock(&at, wanted(1, 0, 9, Exclusive, 2), true),
        Taken::Queued
    );
    assert_eq!(
        table.lock(&at, wanted(2, 0, 9, Shared, 3), true),
        Taken::Queued
    );
    // A non-blocking request takes what is free.
    assert_eq!(table.lock(&at, wanted(3, 0, 0, Shared, 4), false), DONE);
    table.unlock(&at, holder(3), LockSpan::ALL);
    assert_eq!(table.take_decided(), []);
    table.unlock(&at, holder(0), LockSpan::ALL);
    assert_eq!(table.take_decided(), [ticket(1, 2)]);
    table.unlock(&at, holder(1), LockSpan::ALL);
    assert_eq!(table.take_decided(), [ticket(2, 3)]);
    table.unlock(&at, holder(2), LockSpan::ALL);
    assert!(table.is_empty());
}

#[test]
fn an_owner_overtakes_requests_that_wait_for_it() {
    let (mut table, at) = (Table::default(), place(1, LockKind::Record));
    assert_eq!(table.lock(&at, wanted(0, 0, 4, Shared, 1), true), DONE);
    assert_eq!(
        table.lock(&at, wanted(1, 0, 9, Exclusive, 2), true),
        Taken::Queued
    );
    assert_eq!(table.lock(&at, wanted(0, 5, 9, Shared, 3), true), DONE);
    assert_eq!(table.lock(&at, wanted(0, 0, 2, Exclusive, 4), true), DONE);
    table.unlock(&at, holder(0), LockSpan::ALL);
    assert_eq!(table.take_decided(), [ticket(1, 2)]);
}

#[test]
fn an_owner_overtakes_also_when_the_wait_for_it_begins_later_and_elsewhere() {
    let (mut table, one) = (Table::default(), place(1, LockKind::Record));
    let other = place(2, LockKind::Record);
    table.lock(&one, wanted(0, 0, 9, Shared, 1), true);
    table.lock(&other, wanted(2, 0, 9, Exclusive, 2), true);
    // 1 waits for 0; 2 stands behind 1; then 0 waits for 2.
    assert_eq!(
        table.lock(&one, wanted(1, 0, 9, Exclusive, 3), true),
        Taken::Queued
    );
    assert_eq!(
        table.lock(&one, wanted(2, 0, 9, Shared, 4), true),
        Taken::Queued
    );
    assert_eq!(
        table.lock(&other, wanted(0, 0, 9, Shared, 5), true),
        Taken::Queued
    );
    assert_eq!(table.take_decided(), [ticket(2, 4)]);
}

#[test]
fn a_cycle_of_waits_is_refused_to_the_request_that_closes_it() {
    let (mut table, at) = (Table::default(), place(1, LockKind::Record));
    let other = place(2, LockKind::Record);
    table.lock(&at, wanted(0, 0, 0, Exclusive, 1), true);
    table.lock(&at, wanted(1, 1, 1, Exclusive, 2), true);
    table.lock(&other, wanted(2, 0, 0, Exclusive, 3), true);
    assert_eq!(
        table.lock(&at, wanted(0, 1, 1, Exclusive, 4), true),
        Taken::Queued
    );
    assert_eq!(
        table.lock(&other, wanted(1, 0, 0, Shared, 5), true),
        Taken::Queued
    );
    let deadlock = Taken::Now(LockOutcome::Deadlock);
    assert_eq!(table.lock(&at, wanted(2, 0, 0, Shared, 6), true), deadlock);
    // It may continue, and so may the others after it.
    table.unlock(&other, holder(2), LockSpan::ALL);
    assert_eq!(table.take_decided(), [ticket(1, 5)]);
    table.unlock(&at, holder(1), LockSpan::ALL);
    assert_eq!(table.take_decided(), [ticket(0, 4)]);
}

#[test]
fn two_readers_that_both_want_to_write_form_a_cycle() {
    let (mut table, at) = (Table::default(), place(1, LockKind::Record));
    table.lock(&at, wanted(0, 0, 9, Shared, 1), true);
    table.lock(&at, wanted(1, 0, 9, Shared, 2), true);
    assert_eq!(
        table.lock(&at, wanted(0, 0, 9, Exclusive, 3), true),
        Taken::Queued
    );
    let deadlock = Taken::Now(LockOutcome::Deadlock);
    assert_eq!(
        table.lock(&at, wanted(1, 0, 9, Exclusive, 4), true),
        deadlock
    );
    table.unlock(&at, holder(1), LockSpan::ALL);
    assert_eq!(table.take_decided(), [ticket(0, 3)]);
}

#[test]
fn a_downgrade_lets_waiting_readers_in() {
    let (mut table, at) = (Table::default(), place(1, LockKind::Record));
    table.lock(&at, wanted(0, 0, 9, Exclusive, 1), true);
    assert_eq!(
        table.lock(&at, wanted(1, 2, 3, Shared, 2), true),
        Taken::Queued
    );
    assert_eq!(
        table.lock(&at, wanted(2, 0, 9, Shared, 3), true),
        Taken::Queued
    );
    assert_eq!(table.lock(&at, wanted(0, 0, 4, Shared, 4), true), DONE);
    assert_eq!(table.take_decided(), [ticket(1, 2)]);
    assert_eq!(table.lock(&at, wanted(0, 0, 9, Shared, 5), false), DONE);
    assert_eq!(table.take_decided(), [ticket(2, 3)]);
}

#[test]
fn families_and_files_are_independent() {
    let mut table = Table::default();
    for (n, at) in [
        place(1, LockKind::Record),
        place(1, LockKind::File),
        place(2, LockKind::Record),
    ]
    .iter()
    .enumerate()
    {
        let all = wanted(n as u64, 0, u64::MAX, Exclusive, n as u64);
        assert_eq!(table.lock(at, all, false), DONE);
    }
}

#[test]
fn a_cancelled_request_releases_those_behind_it() {
    let (mut table, at) = (Table::default(), place(1, LockKind::Record));
    table.lock(&at, wanted(0, 0, 9, Shared, 1), true);
    table.lock(&at, wanted(1, 0, 9, Exclusive, 2), true);
    assert_eq!(
        table.lock(&at, wanted(2, 0, 9, Shared, 3), true),
        Taken::Queued
    );
    assert!(
        !table.cancel(holder(1).session, LockTicket(3)),
        "another session's"
    );
    assert!(table.cancel(holder(1).session, LockTicket(2)));
    assert_eq!(table.take_decided(), [ticket(2, 3)]);
    assert!(!table.cancel(holder(1).session, LockTicket(2)));
}

#[test]
fn a_session_that_ends_releases_its_locks_and_its_requests() {
    let (mut table, at) = (Table::default(), place(1, LockKind::Record));
    table.lock(&at, wanted(0, 0, 4, Exclusive, 1), true);
    table.lock(&at, wanted(1, 5, 9, Exclusive, 2), true);
    assert_eq!(
        table.lock(&at, wanted(2, 5, 9, Exclusive, 3), true),
        Taken::Queued
    );
    assert_eq!(
        table.lock(&at, wanted(3, 0, 9, Exclusive, 4), true),
        Taken::Queued
    );
    assert_eq!(table.count(SessionId(0)), 1);
    table.end_session(SessionId(0));
    assert_eq!(table.take_decided(), []);
    table.unlock(&at, holder(1), LockSpan::ALL);
    assert_eq!(table.take_decided(), [ticket(3, 4)]);
    table.end_session(SessionId(1));
    assert!(table.is_empty());
}

/// The number of owners and requests looked at is proportional to the number of requests, not to its square.
#[test]
fn many_requests_for_one_file_are_cheap() {
    const MANY: u64 = 4000;
    for kind in [LockKind::File, LockKind::Record] {
        // Writers, readers, and both.
        let modes: [fn(u64) -> LockMode; 3] = [
            |_| Exclusive,
            |_| Shared,
            |n| [Exclusive, Shared][n as usize % 2],
        ];
        for mode in modes {
            LOOKS.set(0);
            let (mut table, at) = (Table::default(), place(1, kind));
            let all_bytes = |n: u64, mode| Wanted {
                // A session each, and owners with the same numbers.
                holder: Holder {
                    session: SessionId(n),
                    owner: LockOwner(n % 3),
                },
                span: LockSpan::ALL,
                ..wanted(n, 0, 0, mode, n)
            };
            assert_eq!(table.lock(&at, all_bytes(0, Exclusive), true), DONE);
            for n in 1..=MANY {
                let taken = table.lock(&at, all_bytes(n, mode(n)), true);
                assert_eq!(taken, Taken::Queued);
            }
            // Every tenth gives up, the last ones first.
            for n in (1..=MANY).rev().step_by(10) {
                assert!(table.cancel(SessionId(n), LockTicket(n)));
            }
            let mut holders = std::collections::VecDeque::from([all_bytes(0, Exclusive).holder]);
            let mut granted = 0;
            while let Some(holder) = holders.pop_front() {
                assert!(table.unlock(&at, holder, LockSpan::ALL));
                for done in table.take_decided() {
                    holders.push_back(all_bytes(done.session.0, Exclusive).holder);
                    granted += 1;
                }
            }
            assert_eq!(granted, MANY - MANY / 10);
            assert!(table.is_empty());
            let looks = LOOKS.get();
            assert!(looks < 20 * MANY, "{looks} looks for {MANY} requests");
        }
    }
}

#[derive(Debug, Clone)]
struct Step {
    what: u8,
    place: u64,
    who: u64,
    span: (u64, u64),
    exclusive: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        0u8..12,
        0u64..2,
        0u64..5,
        (0..BYTES, 0..BYTES),
        any::<bool>(),
    )
        .prop_map(|(what, place, who, (a, b), exclusive)| Step {
            what,
            place,
            who,
            span: (a.min(b), a.max(b)),
            exclusive,
        });
    prop::collection::vec(step, 1..80)
}

/// For every file and byte, the owner and mode; and the waiting requests, in order.
#[derive(Default)]
struct Model {
    held: [[Vec<(u64, LockMode)>; BYTES as usize]; 2],
    queue: [Vec<(u64, Wanted)>; 2],
}

impl Model {
    fn in_the_way(&self, file: usize, who: u64, wanted: &Wanted) -> BTreeSet<u64> {
        (wanted.span.first..=wanted.span.last.min(BYTES - 1))
            .flat_map(|byte| &self.held[file][byte as usize])
            .filter(|(other, mode)| *other != who && conflicting(*mode, wanted.mode))
            .map(|(other, _)| *other)
            .collect()
    }

    fn set(&mut self, file: usize, who: u64, span: LockSpan, mode: Option<LockMode>) {
        for byte in span.first..=span.last.min(BYTES - 1) {
            let held = &mut self.held[file][byte as usize];
            held.retain(|(other, _)| *other != who);
            held.extend(mode.map(|mode| (who, mode)));
        }
    }

    fn waits(&self, who: u64) -> bool {
        self.queue.iter().flatten().any(|(other, _)| *other == who)
    }

    /// The owners that an owner waits for directly.
    fn edges(&self, who: u64, queues: bool) -> BTreeSet<u64> {
        let mut all = BTreeSet::new();
        for file in 0..2 {
            for (at, (waiter, wanted)) in self.queue[file].iter().enumerate() {
                if *waiter == who {
                    all.extend(self.in_the_way(file, who, wanted));
                    if queues {
                        all.extend(self.ahead(file, at, who, wanted));
                    }
                }
            }
        }
        all
    }

    fn ahead(&self, file: usize, at: usize, who: u64, wanted: &Wanted) -> BTreeSet<u64> {
        self.queue[file][..at]
            .iter()
            .filter(|(other, ahead)| {
                *other != who
                    && ahead.span.overlaps(wanted.span)
                    && conflicting(ahead.mode, wanted.mode)
            })
            .map(|(other, _)| *other)
            .collect()
    }

    /// All owners that one of `from` waits for, directly or through others, and `from` itself.
    fn closure(&self, from: BTreeSet<u64>, queues: bool) -> BTreeSet<u64> {
        let mut all = from;
        loop {
            let more: BTreeSet<u64> = all
                .iter()
                .flat_map(|&who| self.edges(who, queues))
                .chain(all.iter().copied())
                .collect();
            if more == all {
                return all;
            }
            all = more;
        }
    }

    fn can_have(&self, file: usize, at: usize) -> bool {
        let (who, wanted) = &self.queue[file][at];
        self.in_the_way(file, *who, wanted).is_empty()
            && self
                .ahead(file, at, *who, wanted)
                .into_iter()
                .all(|ahead| self.closure([ahead].into(), true).contains(who))
    }

    /// Applies what the table has decided, in an order in which each decision is permitted: a request may be
    /// grantable only because of another that was decided with it.
    fn follow(&mut self, mut decided: Vec<Decided>) {
        while !decided.is_empty() {
            let next = decided.iter().enumerate().find_map(|(number, done)| {
                let (file, at) = self.find(done);
                let (who, wanted) = self.queue[file][at];
                let free = self.in_the_way(file, who, &wanted).is_empty();
                free.then_some((number, file, at))
            });
            let (number, file, at) = next.expect("granted although it conflicts with a held lock");
            decided.remove(number);
            let (who, wanted) = self.queue[file].remove(at);
            self.set(file, who, wanted.span, Some(wanted.mode));
        }
        for file in 0..2 {
            for at in 0..self.queue[file].len() {
                assert!(
                    !self.can_have(file, at),
                    "{:?} waits for nothing",
                    self.queue[file][at]
                );
            }
        }
    }

    fn find(&self, done: &Decided) -> (usize, usize) {
        let found = (0..2).find_map(|file| {
            let at = self.queue[file].iter().position(|(_, wanted)| {
                wanted.ticket == done.ticket && wanted.holder.session == done.session
            })?;
            Some((file, at))
        });
        found.expect("decided, and did not wait")
    }

    fn circle(&self) -> bool {
        (0..5).any(|who| self.closure(self.edges(who, false), false).contains(&who))
    }
}

fn play(steps: Vec<Step>, kind: LockKind, one_thread: bool) {
    let (mut table, mut model) = (Table::default(), Model::default());
    for (number, step) in steps.into_iter().enumerate() {
        let (file, who) = (step.place as usize, step.who);
        let at = place(step.place, kind);
        let mode = if step.exclusive { Exclusive } else { Shared };
        let want = wanted(who, step.span.0, step.span.1, mode, number as u64);
        if one_thread && step.what < 9 && model.waits(who) {
            continue;
        }
        match step.what {
            0..3 => {
                let free = model.in_the_way(file, who, &want).is_empty();
                match table.lock(&at, want, false) {
                    Taken::Now(LockOutcome::Done) => {
                        assert!(free);
                        model.set(file, who, want.span, Some(mode));
                    }
                    Taken::Now(LockOutcome::Held(conflict)) => {
                        assert!(!free && conflict.span.overlaps(want.span));
                    }
                    other => panic!("{other:?}"),
                }
            }
            3..7 => {
                let blockers = model.in_the_way(file, who, &want);
                let circle =
                    kind == LockKind::Record && model.closure(blockers, false).contains(&who);
                let taken = table.lock(&at, want, true);
                assert_eq!(taken == Taken::Now(LockOutcome::Deadlock), circle);
                match taken {
                    Taken::Now(LockOutcome::Done) => {
                        model.queue[file].push((who, want));
                        let mut decided = table.take_decided();
                        if decided.is_empty() {
                            // The requests that it overtook waited for it.
                            let last = model.queue[file].len() - 1;
                            assert!(model.can_have(file, last), "it overtook another request");
                        }
                        decided.push(Decided {
                            session: want.holder.session,
                            ticket: want.ticket,
                        });
                        model.follow(decided);
                    }
                    Taken::Queued => model.queue[file].push((who, want)),
                    Taken::Now(_) => {}
                }
            }
            7..9 => {
                table.unlock(&at, want.holder, want.span);
                model.set(file, who, want.span, None);
            }
            9..11 => {
                let waiting = model.queue[file]
                    .iter()
                    .position(|(other, _)| *other == who);
                if let Some(found) = waiting {
                    let (_, cancelled) = model.queue[file].remove(found);
                    assert!(table.cancel(cancelled.holder.session, cancelled.ticket));
                }
            }
            _ => {
                let session = SessionId(who % 2);
                table.end_session(session);
                for gone in (0..5).filter(|n| n % 2 == who % 2) {
                    for file in 0..2 {
                        model.set(file, gone, LockSpan::ALL, None);
                        model.queue[file].retain(|(other, _)| *other != gone);
                    }
                }
            }
        }
        model.follow(table.take_decided());
        if kind == LockKind::Record && one_thread {
            assert!(!model.circle(), "owners wait in a cycle");
        }
    }
    for session in 0..2 {
        table.end_session(SessionId(session));
    }
    table.take_decided();
    assert!(table.is_empty(), "{table:?}");
}

/// Bytes, owners (out of five), and modes: of requested or reclaimed locks.
fn locks() -> impl Strategy<Value = Vec<(u64, u64, u64, bool)>> {
    let lock = (0u64..5, 0..BYTES, 0..BYTES, any::<bool>());
    let lock = lock.prop_map(|(who, a, b, exclusive)| (who, a.min(b), a.max(b), exclusive));
    prop::collection::vec(lock, 0..20)
}

/// The mode that an owner has of a byte.
fn mode_of(table: &Table, at: &Place, who: u64, byte: u64) -> Option<LockMode> {
    let held = table.places.get(at)?.held.get(&holder(who))?;
    let one = LockSpan {
        first: byte,
        last: byte,
    };
    held.spans.within(one).next().map(|(_, mode)| mode)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Others lose nothing, and the session gets each reclaimed byte as far as others' locks allow.
    #[test]
    fn a_reclaim_loses_what_others_hold_and_no_more(
        before in locks(),
        events in locks(),
    ) {
        let (mut table, at) = (Table::default(), place(1, LockKind::Record));
        let mode = |exclusive| if exclusive { Exclusive } else { Shared };
        for (who, first, last, exclusive) in before {
            table.lock(&at, wanted(who, first, last, mode(exclusive), 0), false);
        }
        let others = [1, 3];
        let was = |table: &Table| -> Vec<_> {
            let bytes = (0..BYTES).flat_map(|byte| others.map(|who| (who, byte)));
            bytes.map(|(who, byte)| mode_of(table, &at, who, byte)).collect()
        };
        let theirs = was(&table);
        // One owner reclaims; what several of them reclaim does not conflict.
        let mut says = Spans::default();
        for (_, first, last, exclusive) in events {
            says.set(LockSpan { first, last }, Some(mode(exclusive)));
        }
        let reclaimed = HeldLocks {
            file: at.file.clone(),
            kind: at.kind,
            owner: holder(0).owner,
            pid: 0,
            spans: says.iter().collect(),
        };
        let lost = table.replace(SessionId(0), [reclaimed]);
        prop_assert_eq!(was(&table), theirs);
        prop_assert!(lost.iter().all(|one| one.owner == holder(0).owner));
        let lost: Vec<_> = lost.into_iter().flat_map(|one| one.spans).collect();
        for &(span, left) in &lost {
            says.set(span, left);
        }
        for byte in 0..BYTES {
            let one = LockSpan { first: byte, last: byte };
            let has = mode_of(&table, &at, 0, byte);
            let heard = says.within(one).next().map(|(_, mode)| mode);
            prop_assert_eq!(has, heard, "lock server and session disagree");
            let worst = others.iter().filter_map(|&who| mode_of(&table, &at, who, byte));
            let go_together = |mode| worst.clone().all(|other| !conflicting(other, mode));
            prop_assert!(has.is_none_or(go_together), "granted twice");
        }
        for &(span, left) in &lost {
            for byte in span.first..=span.last {
                let worst = others.iter().filter_map(|&who| mode_of(&table, &at, who, byte));
                let excluded = worst.clone().any(|other| other == Exclusive);
                prop_assert_eq!(left, (!excluded).then_some(Shared), "lost too much");
                prop_assert!(worst.count() > 0, "lost without a conflict");
            }
        }
        table.end_session(SessionId(0));
        table.end_session(SessionId(1));
        prop_assert!(table.is_empty());
    }

    #[test]
    fn the_table_agrees_with_a_model_of_one_lock_per_byte(steps in steps()) {
        play(steps, LockKind::Record, true);
    }

    #[test]
    fn threads_of_one_owner_may_wait_and_request_at_once(steps in steps()) {
        play(steps, LockKind::Record, false);
    }

    #[test]
    fn file_locks_wait_in_the_same_way(steps in steps()) {
        play(steps, LockKind::File, false);
    }

    /// The scan of a queue ends early only where nothing behind could be granted.
    #[test]
    fn locks_of_all_bytes_wait_in_the_same_way(steps in steps(), threads in any::<bool>()) {
        let all_bytes = |step| Step { span: (0, u64::MAX), ..step };
        let steps: Vec<Step> = steps.into_iter().map(all_bytes).collect();
        play(steps.clone(), LockKind::File, !threads);
        play(steps, LockKind::Record, !threads);
    }
}
