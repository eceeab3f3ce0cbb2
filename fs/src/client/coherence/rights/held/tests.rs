//! Tests of `Held` against a naive model with one mode for each cell.

use proptest::prelude::*;
use slabfs_model::Region;

use super::*;

const END: usize = 24;

fn cells(from: usize, len: usize) -> BoxSet {
    BoxSet::of([Region::new(&[from as u64], &[len as u64])])
}

fn want(mode: RightMode, area: BoxSet) -> Want {
    Want {
        by: By::Program,
        mode,
        area,
        span: None,
    }
}

fn page(by: By) -> Want {
    Want {
        by,
        mode: RightMode::Write,
        area: BoxSet::All,
        span: None,
    }
}

fn closing(keep: Option<RightMode>, area: BoxSet) -> Closing {
    Closing { keep, area }
}

#[derive(Debug, Clone)]
enum Step {
    Begin(bool, usize, usize),
    Wait(bool, usize, usize),
    Grant(bool, usize, usize),
    End(usize),
    Recall(bool, usize, usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let span = || (0..END, 1..8usize);
    prop_oneof![
        3 => (any::<bool>(), span()).prop_map(|(w, (at, len))| Step::Begin(w, at, len)),
        2 => (any::<bool>(), span()).prop_map(|(w, (at, len))| Step::Wait(w, at, len)),
        3 => (any::<bool>(), span()).prop_map(|(w, (at, len))| Step::Grant(w, at, len)),
        3 => (0..8usize).prop_map(Step::End),
        2 => (any::<bool>(), span(), any::<bool>()).prop_map(|(r, (at, len), more)| Step::Recall(r, at, len, more)),
    ]
}

fn mode(write: bool) -> RightMode {
    match write {
        true => RightMode::Write,
        false => RightMode::Read,
    }
}

/// The mode in which each cell is held.
type Naive = Vec<Option<RightMode>>;

fn has(naive: &Naive, mode: RightMode, at: usize, len: usize) -> bool {
    naive[at..at + len].iter().all(|cell| *cell >= Some(mode))
}

proptest! {
    #[test]
    fn no_operation_runs_without_its_rights(steps in prop::collection::vec(step(), 1..60)) {
        let mut held = Held::default();
        let mut naive: Naive = vec![None; END + 8];
        let mut running: Vec<(OpId, RightMode, usize, usize)> = Vec::new();
        let mut waiting: Vec<(OpId, RightMode, usize, usize)> = Vec::new();
        for step in steps {
            match step {
                Step::Begin(write, at, len) => {
                    let id = held.begin(&want(mode(write), cells(at, len)));
                    prop_assert_eq!(id.is_some(), has(&naive, mode(write), at, len));
                    running.extend(id.map(|id| (id, mode(write), at, len)));
                }
                Step::Wait(write, at, len) => {
                    let id = held.wait(want(mode(write), cells(at, len)));
                    held.begin_waiting();
                    waiting.push((id, mode(write), at, len));
                }
                Step::Grant(write, at, len) => {
                    held.grant(mode(write), &cells(at, len));
                    for cell in &mut naive[at..at + len] {
                        *cell = (*cell).max(Some(mode(write)));
                    }
                }
                Step::End(at) => {
                    if !running.is_empty() {
                        held.end(running.remove(at % running.len()).0);
                    }
                }
                Step::Recall(reading_stays, at, len, more) => {
                    let keep = reading_stays.then_some(RightMode::Read);
                    let closing = closing(keep, cells(at, len));
                    held.close(closing.clone());
                    prop_assert!(held.begin(&want(RightMode::Write, cells(at, len))).is_none());
                    let against = |(_, mode, from, count): &(OpId, RightMode, usize, usize)| {
                        (keep.is_none() || *mode == RightMode::Write)
                            && *from < at + len && at < from + count
                    };
                    prop_assert_eq!(held.is_busy(), running.iter().any(against));
                    running.retain(|one| {
                        let ends = against(one);
                        if ends {
                            held.end(one.0);
                        }
                        !ends
                    });
                    prop_assert!(!held.is_busy());
                    let given = held.take_out(&closing, more.then_some(&BoxSet::default()));
                    prop_assert!(given.covers(&closing.area));
                    for (at, cell) in naive.iter_mut().enumerate() {
                        if given.covers(&cells(at, 1)) {
                            *cell = (*cell).min(keep);
                        }
                    }
                    for (_, mode, from, count) in &running {
                        prop_assert!(has(&naive, *mode, *from, *count), "rights of running operations stay");
                    }
                    held.reopen();
                }
            }
            // A waiting operation begins as soon as it may, and not before.
            waiting.retain(|&(id, mode, at, len)| {
                let begun = held.take_begun(id);
                assert_eq!(begun, has(&naive, mode, at, len));
                if begun {
                    running.push((id, mode, at, len));
                }
                !begun
            });
            for (at, cell) in naive.iter().enumerate() {
                prop_assert_eq!(held.read.covers(&cells(at, 1)), cell.is_some());
                prop_assert_eq!(held.write.covers(&cells(at, 1)), *cell == Some(RightMode::Write));
            }
        }
    }
}

#[test]
fn a_release_names_all_cells_that_are_not_recently_used() {
    let mut held = Held::default();
    held.grant(RightMode::Write, &BoxSet::All);
    let id = held.begin(&want(RightMode::Write, cells(0, 10))).unwrap();
    held.end(id);
    let recall = closing(None, cells(50, 10));
    held.close(recall.clone());
    let given = held.take_out(&recall, Some(&BoxSet::default()));
    held.reopen();
    assert_eq!(given, cells(10, usize::MAX - 10));
    assert!(held.write.covers(&cells(0, 10)) && !held.read.overlaps(&given));
    // Cells that are not used between two recalls are not retained.
    let recall = closing(None, cells(0, 1));
    held.close(recall.clone());
    assert_eq!(
        held.take_out(&recall, Some(&BoxSet::default())),
        cells(0, 1)
    );
    let recall = closing(None, cells(1, 1));
    held.close(recall.clone());
    assert_eq!(
        held.take_out(&recall, Some(&BoxSet::default())),
        cells(1, 9)
    );
}

#[test]
fn waiting_operations_begin_before_a_recall_is_handled() {
    let mut held = Held::default();
    let id = held.wait(want(RightMode::Write, cells(3, 4)));
    held.grant(RightMode::Write, &cells(0, 10));
    held.close(closing(None, cells(0, 10)));
    assert!(held.take_begun(id) && held.is_busy());
    assert!(held.begin(&want(RightMode::Read, cells(0, 1))).is_none());
    held.end(id);
    assert!(!held.is_busy());
}

#[test]
fn pages_are_dropped_until_none_was_handed_out_meanwhile() {
    let mut held = Held::default();
    held.grant(RightMode::Write, &BoxSet::All);
    assert_eq!(held.page_mode(), RightMode::Read);
    held.writers = 1;
    let first = held.begin(&page(By::PageOut)).unwrap();
    held.end(first);
    held.close(closing(None, cells(0, 1)));
    assert!(held.has_pages());
    // Before and during the drop, the kernel's page requests are served.
    let second = held.begin(&page(By::PageOut)).unwrap();
    held.drop_begins(Span::ALL);
    held.end(second);
    let back = held.begin(&page(By::PageBack)).unwrap();
    let third = held.begin(&page(By::PageOut)).unwrap();
    held.end(back);
    held.drop_ended(Span::ALL);
    assert!(held.is_paging(Span::ALL) && held.begin(&page(By::PageOut)).is_none());
    let late = held.wait(page(By::PageOut));
    held.begin_waiting();
    assert!(!held.take_begun(late));
    held.end(third);
    assert!(!held.is_paging(Span::ALL) && held.has_pages());
    // The second drop admits a request that waited at the closed gate.
    held.drop_begins(Span::ALL);
    assert!(held.take_begun(late));
    held.end(late);
    held.drop_ended(Span::ALL);
    held.drop_begins(Span::ALL);
    held.drop_ended(Span::ALL);
    assert!(!held.has_pages());
    // A request that arrives now is not waited for: there is no drop.
    let after = held.wait(page(By::PageOut));
    held.begin_waiting();
    let recall = closing(None, cells(0, 1));
    let given = held.take_out(&recall, Some(&BoxSet::default()));
    assert_eq!(given, BoxSet::All);
    held.reopen();
    assert!(!held.take_begun(after));
    held.close(recall);
    assert!(!held.has_pages());
}

#[test]
fn pages_for_reading_stay_under_a_right_to_read() {
    let mut held = Held::default();
    held.grant(RightMode::Read, &BoxSet::All);
    let id = held.begin(&page(By::PageOut)).unwrap();
    held.end(id);
    held.close(closing(Some(RightMode::Read), BoxSet::All));
    assert!(!held.has_pages());
    held.reopen();
    held.writers = 1;
    assert!(held.has_pages_to_read());
    assert_eq!(
        held.page_mode(),
        RightMode::Read,
        "the mode of the existing pages"
    );
    held.drop_begins(Span::ALL);
    held.drop_ended(Span::ALL);
    held.reopen();
    assert_eq!(held.page_mode(), RightMode::Write);
    assert!(held.begin(&page(By::PageOut)).is_none());
}

/// An open for writing waits for the end of a drop of pages for reading. Otherwise pages of that file, which may come
/// back modified, would be handed out for reading, and the drop would wait for a page write that is never admitted.
#[test]
fn pages_that_are_being_dropped_count_as_pages_for_reading() {
    let mut held = Held::default();
    held.grant(RightMode::Read, &BoxSet::All);
    let id = held.begin(&page(By::PageOut)).expect("a page");
    held.end(id);
    held.close(closing(None, BoxSet::All));
    held.drop_begins(Span::ALL);
    held.writers = 1;
    assert!(held.has_pages_to_read());
    let again = held
        .begin(&page(By::PageOut))
        .expect("the drop waits for it");
    held.end(again);
    assert_eq!(held.page_mode(), RightMode::Read);
    held.drop_ended(Span::ALL);
    held.drop_begins(Span::ALL);
    held.drop_ended(Span::ALL);
    assert!(held.has_pages_to_read());
    held.reopen();
    assert!(!held.has_pages_to_read());
    assert_eq!(held.page_mode(), RightMode::Write);
}

/// The kernel holds modified pages back while the size is being set, and a drop waits for them.
#[test]
fn a_truncate_does_not_wait_for_a_drop() {
    let mut held = Held {
        writers: 1,
        ..Held::default()
    };
    held.grant(RightMode::Write, &BoxSet::All);
    let page_out = held.begin(&page(By::PageOut)).expect("a page");
    held.end(page_out);
    held.close(closing(None, BoxSet::All));
    let (truncate, write) = (held.wait(page(By::Truncate)), held.wait(page(By::Program)));
    held.begin_waiting();
    assert!(!held.take_begun(truncate), "the drop may not wait for it");
    assert!(held.has_pages());
    held.drop_begins(Span::ALL);
    assert!(held.take_begun(truncate) && !held.take_begun(write));
    held.drop_ended(Span::ALL);
    assert!(held.is_paging(Span::ALL), "it runs under the old right");
    held.end(truncate);
    assert!(!held.is_paging(Span::ALL) && held.begin(&page(By::Truncate)).is_none());
    held.take_out(&closing(None, BoxSet::All), None);
    held.reopen();
    assert!(!held.take_begun(write));
}

#[test]
fn a_truncate_without_pages_is_waited_for() {
    let mut held = Held::default();
    held.grant(RightMode::Write, &BoxSet::All);
    let truncate = held.begin(&page(By::Truncate)).expect("held");
    held.close(closing(Some(RightMode::Read), cells(3, 4)));
    assert!(held.is_busy());
    held.end(truncate);
    assert!(!held.is_busy());
}

/// A page, or a write of a program.
fn at(by: By, from: u64, len: u64) -> Want {
    Want {
        by,
        mode: RightMode::Write,
        area: BoxSet::All,
        span: Some(Span::of(from, len)),
    }
}

#[test]
fn writes_and_pages_of_the_same_bytes_exclude_each_other() {
    let mut held = Held::default();
    let (page, write) = (
        |from| at(By::PageOut, from, 100),
        |from| at(By::Program, from, 1),
    );
    let first = held.begin_alone(&page(0)).unwrap();
    assert!(held.begin_alone(&write(50)).is_none() && held.has_pages_under(&write(99)));
    let overlaps = held.begin_alone(&write(100)).unwrap();
    // The kernel has no page there, and gets none during the write.
    assert!(held.begin_alone(&page(100)).is_none());
    let span = Span::of(50, 1);
    held.drop_begins(span);
    assert!(held.begin_alone(&page(100)).is_none(), "whatever the gate");
    let late = held.begin_alone(&page(0)).unwrap();
    held.end(first);
    held.drop_ended(span);
    assert!(held.is_paging(span) && held.begin_alone(&page(0)).is_none());
    held.end(late);
    assert!(!held.is_paging(span));
    assert!(held.has_pages_under(&write(50)), "it came during the drop");
    held.drop_begins(span);
    held.drop_ended(span);
    let (elsewhere, under) = (page(200), write(50));
    let elsewhere = held.begin_alone(&elsewhere).unwrap();
    let under = held.begin_alone(&under).unwrap();
    held.reopen();
    held.end(elsewhere);
    held.end(overlaps);
    assert!(held.begin_alone(&page(0)).is_none());
    assert!(held.begin_alone(&page(100)).is_some());
    held.end(under);
    assert!(held.begin_alone(&page(0)).is_some());
    assert!(
        held.begin_alone(&want(RightMode::Write, BoxSet::All))
            .is_some(),
        "a change of form"
    );
}

#[test]
fn a_write_that_waits_for_a_right_begins_before_a_page_does() {
    let mut held = Held {
        writers: 1,
        ..Held::default()
    };
    let page = held.wait(at(By::PageOut, 0, 100));
    let write = held.wait(at(By::Program, 50, 1));
    held.grant(RightMode::Write, &BoxSet::All);
    assert!(held.take_begun(write) && !held.take_begun(page));
    held.end(write);
    assert!(held.take_begun(page));
    // Now the page would have to be dropped first.
    let again = held.wait(at(By::Program, 50, 1));
    held.begin_waiting();
    assert!(!held.take_begun(again) && held.holds(&at(By::Program, 50, 1)));
}

/// Another mount recalls other cells, for which all pages have to be dropped.
#[test]
fn a_write_waits_for_pages_that_are_dropped_for_another_mount() {
    let mut held = Held::default();
    held.grant(RightMode::Write, &BoxSet::All);
    let page = held.begin(&at(By::PageOut, 0, 100)).unwrap();
    held.end(page);
    held.close(closing(None, cells(3, 1)));
    let write = Want {
        area: cells(0, 1),
        ..at(By::Program, 50, 1)
    };
    let waits = held.wait(write.clone());
    held.drop_begins(Span::ALL);
    assert!(held.begin(&write).is_none() && !held.take_begun(waits));
    // The data stored into the page is older than the write.
    let back = held.begin(&at(By::PageBack, 0, 100)).unwrap();
    held.drop_ended(Span::ALL);
    assert!(held.begin(&write).is_none() && !held.take_begun(waits));
    held.end(back);
    assert!(held.take_begun(waits));
    held.end(waits);
    held.take_out(&closing(None, cells(3, 1)), None);
    held.reopen();
    assert!(held.begin(&write).is_some());
}
