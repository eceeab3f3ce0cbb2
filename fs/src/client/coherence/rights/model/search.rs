//! The search, its properties, and tests that the search detects injected bugs.
//!
//! A run ends where nothing but mishaps can happen, and all runs end: each step uses up something limited or
//! increments a counter, so no state occurs twice in a run. So if no program waits at the end of any run, no program
//! waits forever.

use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model, Property};

use super::world::{Step, World, Wrong};
use super::{Bounds, Doing, Flaw, Slip};
use Doing::{Declare, Read, Write};

/// Number of states at which a search stops, and the test fails.
const MOST: usize = 3_000_000;
const MOST_FAR: usize = 100_000_000;
/// More steps than any run has.
const NO_END: usize = 1000;

impl Model for Bounds {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        world.steps(self, steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut world = world.clone();
        world.step(step, self);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(CONFLICT, |_, world: &World| !world.rights_collide()),
            Property::always(RUNS, |_, world: &World| !world.runs_against()),
            Property::always(HIDDEN, |_, world: &World| !world.hides_data()),
            Property::always(OLD, |_, world: &World| world.wrong != Some(Wrong::Old)),
            Property::always(LATE, |_, world: &World| world.wrong != Some(Wrong::Late)),
            Property::always(STUCK, |bounds: &Bounds, world: &World| {
                let mut steps = Vec::new();
                world.steps(bounds, &mut steps);
                !world.a_program_waits() || steps.iter().any(|step| !step.is_mishap())
            }),
            Property::sometimes(GIVEN, |_, world: &World| {
                world.released && !world.a_program_waits()
            }),
            Property::sometimes(NEW_EPOCH, |_, world: &World| {
                world.resets > 0 && !world.a_program_waits()
            }),
            Property::sometimes(NEW_SESSION, |_, world: &World| {
                world.came_back && !world.a_program_waits()
            }),
            Property::sometimes(OVERTAKEN, |_, world: &World| world.overtaken),
        ]
    }
}

const CONFLICT: &str = "no two mounts have conflicting rights";
const RUNS: &str = "no mount has a right that conflicts with an operation on another mount";
const HIDDEN: &str = "no mount may read a cell that another mount has not written back";
const OLD: &str = "a read sees the last write";
const LATE: &str = "no write of a session that is over is stored where other mounts have rights";
const STUCK: &str = "no program waits forever";
const ALWAYS: [&str; 6] = [CONFLICT, RUNS, HIDDEN, OLD, LATE, STUCK];
const GIVEN: &str = "all is done, and rights were released";
const NEW_EPOCH: &str = "all is done, and another epoch was begun";
const NEW_SESSION: &str = "all is done, and a session was lost and another begun";
const OVERTAKEN: &str = "a mount that attaches late does not wait for operations that ran before";

/// One mount writes and the other reads, without mishaps.
fn pair() -> Bounds {
    two([&[Write(0)], &[Read(0)]])
}

/// Two mounts, without mishaps.
fn two(programs: [&[Doing]; 2]) -> Bounds {
    Bounds {
        programs: programs.map(<[Doing]>::to_vec).to_vec(),
        cells: 2,
        late: 0,
        deaths: 0,
        lapses: 0,
        restarts: 0,
        losses: 0,
        withdrawals: 0,
        flushes: 0,
        closes: false,
        long: false,
        flaw: None,
        slip: None,
    }
}

/// Searches all states, breadth first, so that a violation is found with the fewest steps. The `ALWAYS` properties
/// have to hold, and those in `seen` have to occur.
#[track_caller]
fn holds(bounds: Bounds, seen: &[&'static str]) {
    to_depth(bounds, seen, NO_END);
}

/// [`holds`] up to a number of steps.
#[track_caller]
fn to_depth(bounds: Bounds, seen: &[&'static str], depth: usize) {
    let text = format!("{bounds:?}");
    let found = prepared(bounds, MOST).target_max_depth(depth);
    judge(&found.spawn_bfs().join(), &text, seen, MOST);
}

fn prepared(bounds: Bounds, most: usize) -> CheckerBuilder<Bounds> {
    bounds
        .checker()
        .threads(2)
        .target_state_count(most)
        .finish_when(HasDiscoveries::AnyFailures)
}

#[track_caller]
fn judge(checker: &impl Checker<Bounds>, text: &str, seen: &[&'static str], most: usize) {
    println!(
        "{} states, {} of them different, up to {} steps: {text}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    for name in ALWAYS {
        if let Some(path) = checker.discovery(name) {
            let steps: Vec<Step> = path.into_actions();
            panic!("violated: {name}; after {steps:?}; {text}");
        }
    }
    assert!(
        checker.state_count() < most,
        "the search did not finish: {text}"
    );
    for &name in seen {
        assert!(checker.discovery(name).is_some(), "never: {name}; {text}");
    }
}

/// Searches until a property is violated. It has to be one of `wrong`.
#[track_caller]
fn fails(bounds: Bounds, wrong: &[&str]) {
    let text = format!("{bounds:?}");
    let checker = bounds
        .checker()
        .threads(2)
        .target_state_count(MOST)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found: Vec<&str> = ALWAYS
        .into_iter()
        .filter(|name| checker.discovery(name).is_some())
        .collect();
    println!("{found:?} after {} states: {text}", checker.state_count());
    assert!(!found.is_empty(), "no violation was found: {text}");
    assert!(
        found.iter().any(|found| wrong.contains(found)),
        "{found:?}, and not {wrong:?}: {text}"
    );
}

#[test]
fn two_mounts_with_conflicting_operations() {
    holds(two([&[Write(0)], &[Write(1), Read(0)]]), &[GIVEN]);
}

#[test]
fn three_mounts() {
    let bounds = Bounds {
        programs: vec![vec![Write(0)], vec![Read(0)], vec![Write(0)]],
        ..two([&[], &[]])
    };
    holds(bounds, &[GIVEN]);
}

#[test]
fn replies_are_lost() {
    let bounds = Bounds {
        losses: 1,
        ..pair()
    };
    holds(bounds, &[GIVEN]);
}

#[test]
fn a_mount_comes_later() {
    let bounds = Bounds {
        late: 1,
        losses: 1,
        ..pair()
    };
    holds(bounds, &[NEW_EPOCH]);
}

/// The operations that run then are not waited for.
#[test]
fn a_mount_attaches_while_a_long_operation_runs() {
    let later = |programs| Bounds {
        late: 1,
        losses: 1,
        long: true,
        ..two(programs)
    };
    holds(later([&[Write(0)], &[Read(0)]]), &[NEW_EPOCH]);
    holds(later([&[Read(0)], &[Write(0)]]), &[NEW_EPOCH]);
    holds(later([&[Write(0)], &[Write(1)]]), &[NEW_EPOCH, OVERTAKEN]);
    // A read that is only counted lets other reads overtake it.
    let short = Bounds {
        long: false,
        ..later([&[Read(0)], &[Read(1)]])
    };
    holds(short, &[NEW_EPOCH, OVERTAKEN]);
}

#[test]
fn a_mount_comes_and_others_close() {
    let later = Bounds {
        late: 1,
        closes: true,
        ..pair()
    };
    holds(later, &[NEW_EPOCH]);
}

#[test]
fn a_mount_comes_and_a_session_is_lost() {
    let later = Bounds {
        late: 1,
        lapses: 1,
        ..pair()
    };
    holds(later, &[NEW_EPOCH, NEW_SESSION]);
}

#[test]
fn a_mount_comes_and_the_lock_server_is_restarted() {
    let later = Bounds {
        late: 1,
        restarts: 1,
        long: true,
        ..pair()
    };
    holds(later, &[NEW_EPOCH]);
}

#[test]
fn the_lock_server_is_restarted() {
    let bounds = Bounds {
        restarts: 1,
        ..pair()
    };
    holds(bounds, &[GIVEN, NEW_EPOCH]);
}

#[test]
fn a_holder_dies() {
    let bounds = Bounds {
        deaths: 1,
        ..pair()
    };
    holds(bounds, &[GIVEN]);
}

/// The holder dies with a write in flight, shortly before the lock server does.
#[test]
fn a_holder_dies_and_the_lock_server_is_restarted() {
    let bounds = Bounds {
        deaths: 1,
        restarts: 1,
        flushes: 1,
        ..pair()
    };
    // The full search takes minutes: tools/soak.
    to_depth(bounds, &[], 16);
}

#[test]
fn a_session_is_lost_and_another_begun() {
    let bounds = Bounds {
        lapses: 1,
        ..pair()
    };
    holds(bounds, &[GIVEN, NEW_SESSION]);
}

#[test]
fn programs_give_up_waiting() {
    let bounds = Bounds {
        withdrawals: 1,
        ..pair()
    };
    holds(bounds, &[GIVEN]);
}

#[test]
fn mounts_close() {
    let bounds = Bounds {
        closes: true,
        ..pair()
    };
    holds(bounds, &[GIVEN]);
}

#[test]
fn the_object_is_declared_again() {
    holds(two([&[Declare], &[Read(0)]]), &[GIVEN]);
}

fn flawed(flaw: Flaw, bounds: Bounds) -> Bounds {
    Bounds {
        flaw: Some(flaw),
        ..bounds
    }
}

#[test]
fn a_lock_server_that_grants_before_a_release_is_detected() {
    let flawed = flawed(Flaw::GrantsBeforeItIsGiven, pair());
    fails(flawed, &[CONFLICT, HIDDEN, OLD]);
}

#[test]
fn a_lock_server_that_recalls_nothing_is_detected() {
    fails(flawed(Flaw::RecallsNothing, pair()), &[STUCK]);
}

/// It takes two mounts that each hold what the other wants (and in `mdserver/src/rights/table/tests.rs` chance).
#[test]
#[ignore = "takes minutes: tools/soak"]
fn a_lock_server_that_takes_unreleased_rights_is_detected() {
    let bounds = two([&[Write(0), Write(1)], &[Write(1), Write(0)]]);
    let flawed = flawed(Flaw::TakesWhatIsNotGiven, bounds);
    fails(flawed, &[CONFLICT, HIDDEN, OLD]);
}

#[test]
fn a_lock_server_that_forgets_holders_is_detected() {
    let restarted = Bounds {
        restarts: 1,
        ..pair()
    };
    let flawed = flawed(Flaw::ForgetsHoldersAtRestart, restarted);
    // A mount unknown to the lock server gets no replies, so it is stuck before its rights are granted to others.
    fails(flawed, &[CONFLICT, HIDDEN, OLD, STUCK]);
}

#[test]
fn a_lock_server_that_does_not_wait_for_the_mount_that_was_alone_is_detected() {
    let later = Bounds { late: 1, ..pair() };
    let flawed = flawed(Flaw::LeavesAloneTheFirst, later);
    fails(flawed, &[CONFLICT, HIDDEN, OLD]);
}

/// A write of a session that is over arrives after its rights were granted to another mount.
#[test]
fn a_lock_server_without_a_fence_is_detected() {
    let died = Bounds {
        deaths: 1,
        flushes: 1,
        ..pair()
    };
    fails(flawed(Flaw::GivesAwayWithoutFence, died), &[LATE]);
}

/// The same with a restart of the lock server in between: this was a real bug.
#[test]
fn a_lock_server_that_forgets_dead_sessions_is_detected() {
    let died = Bounds {
        deaths: 1,
        restarts: 1,
        flushes: 1,
        ..pair()
    };
    fails(flawed(Flaw::ForgetsTheDeadAtRestart, died), &[LATE]);
}

fn slips(slip: Slip, bounds: Bounds) -> Bounds {
    Bounds {
        slip: Some(slip),
        ..bounds
    }
}

#[test]
fn a_mount_that_releases_without_a_flush_is_detected() {
    let slips = slips(Slip::ReleasesWithoutFlush, pair());
    fails(slips, &[CONFLICT, HIDDEN, OLD]);
}

#[test]
fn a_mount_that_keeps_its_cache_is_detected() {
    let reads = two([&[Read(0), Read(0)], &[Write(0)]]);
    fails(slips(Slip::KeepsTheCache, reads), &[OLD]);
}

#[test]
fn a_mount_that_stays_in_its_epoch_is_detected() {
    let restarted = Bounds {
        restarts: 1,
        ..pair()
    };
    fails(slips(Slip::StaysInItsEpoch, restarted), &[STUCK]);
}

#[test]
fn a_mount_that_does_not_report_running_operations_is_detected() {
    let later = Bounds { late: 1, ..pair() };
    fails(slips(Slip::ForgetsRunningOps, later), &[RUNS]);
}

#[test]
fn a_mount_that_releases_counted_operations_rights_is_detected() {
    let later = Bounds { late: 1, ..pair() };
    fails(slips(Slip::ReleasesCountedRights, later), &[RUNS]);
}

#[test]
fn a_mount_that_serves_after_its_lease_is_detected() {
    let lapsed = Bounds {
        lapses: 1,
        ..pair()
    };
    fails(slips(Slip::ServesWhenLapsed, lapsed), &[CONFLICT, OLD]);
}

/// [`holds`] for longer: tools/soak. Depth first, which stores only a fingerprint of each state; breadth first, these
/// searches have more pending states than fit into memory.
#[track_caller]
fn holds_far(bounds: Bounds, seen: &[&'static str]) {
    let text = format!("{bounds:?}");
    let found = prepared(bounds, MOST_FAR).spawn_dfs().join();
    judge(&found, &text, seen, MOST_FAR);
}

#[test]
#[ignore = "takes minutes: tools/soak"]
fn far_two_mounts_and_lost_replies() {
    let bounds = Bounds {
        losses: 1,
        flushes: 1,
        ..two([&[Write(0), Read(1)], &[Write(1), Read(0)]])
    };
    holds_far(bounds, &[GIVEN]);
}

#[test]
#[ignore = "takes minutes: tools/soak"]
fn far_every_mishap_once() {
    let bounds = Bounds {
        lapses: 1,
        restarts: 1,
        losses: 1,
        flushes: 1,
        ..pair()
    };
    holds_far(bounds, &[GIVEN, NEW_EPOCH, NEW_SESSION]);
}

#[test]
#[ignore = "takes minutes: tools/soak"]
fn far_a_mount_attaches_while_an_operation_runs() {
    let later = Bounds {
        late: 1,
        long: true,
        lapses: 1,
        losses: 1,
        ..two([&[Write(0), Read(1)], &[Write(1)]])
    };
    holds_far(later, &[NEW_EPOCH, NEW_SESSION, OVERTAKEN]);
}

#[test]
#[ignore = "takes minutes: tools/soak"]
fn far_deaths_and_two_restarts() {
    let bounds = Bounds {
        deaths: 1,
        restarts: 2,
        flushes: 1,
        ..two([&[Write(0)], &[Read(0), Write(0)]])
    };
    holds_far(bounds, &[GIVEN, NEW_EPOCH]);
}

#[test]
#[ignore = "takes minutes: tools/soak"]
fn far_three_mounts_and_a_restart() {
    let bounds = Bounds {
        programs: vec![vec![Write(0)], vec![Read(0)], vec![Write(0)]],
        restarts: 1,
        ..two([&[], &[]])
    };
    holds_far(bounds, &[GIVEN, NEW_EPOCH]);
}

#[test]
#[ignore = "takes minutes: tools/soak"]
fn far_closing_and_declaring() {
    let bounds = Bounds {
        withdrawals: 1,
        closes: true,
        ..two([&[Write(0), Read(1)], &[Write(0)]])
    };
    holds_far(bounds, &[GIVEN]);
    holds_far(two([&[Declare, Write(0)], &[Read(0), Write(1)]]), &[GIVEN]);
}

#[test]
#[ignore = "takes minutes: tools/soak"]
fn far_a_holder_dies_and_the_lock_server_is_restarted() {
    let bounds = Bounds {
        deaths: 1,
        restarts: 1,
        flushes: 1,
        ..pair()
    };
    holds_far(bounds, &[GIVEN, NEW_EPOCH]);
}
