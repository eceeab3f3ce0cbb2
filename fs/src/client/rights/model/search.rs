//! The search, its properties, and what shows that it can fail.
//!
//! A run ends where nothing can happen any more but mishaps, and all runs end: each step takes something away of
//! which there is only so much, or counts something up, so no state comes twice in a run. So nobody waits for
//! ever in any run if nobody waits where it ends.

use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model, Property};

use super::world::{Step, World, Wrong};
use super::{Bounds, Doing, Flaw, Slip};
use Doing::{Declare, Read, Write};

/// States above which a search gives up, and the test fails.
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
                !world.somebody_waits() || steps.iter().any(|step| !step.is_mishap())
            }),
            Property::sometimes(GIVEN, |_, world: &World| {
                world.gave && !world.somebody_waits()
            }),
            Property::sometimes(ANEW, |_, world: &World| {
                world.resets > 0 && !world.somebody_waits()
            }),
            Property::sometimes(BACK, |_, world: &World| {
                world.came_back && !world.somebody_waits()
            }),
            Property::sometimes(PASSED, |_, world: &World| world.passed),
        ]
    }
}

const CONFLICT: &str = "no two mounts have rights that go against each other";
const RUNS: &str = "nobody has a right that goes against what runs on another mount";
const HIDDEN: &str = "nobody may read what another mount has not written back";
const OLD: &str = "a read sees the last write";
const LATE: &str = "nothing of a session that is over is stored where others have rights";
const STUCK: &str = "nobody waits for ever";
const ALWAYS: [&str; 6] = [CONFLICT, RUNS, HIDDEN, OLD, LATE, STUCK];
const GIVEN: &str = "all is done, and something was given";
const ANEW: &str = "all is done, and an epoch was begun anew";
const BACK: &str = "all is done, and a session was lost and another begun";
const PASSED: &str = "what came later does not wait for what ran when it came";

/// One writes and the other reads, and there is no mishap.
fn pair() -> Bounds {
    two([&[Write(0)], &[Read(0)]])
}

/// Two mounts, and no mishap.
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

/// Searches all states, breadth first: what goes wrong comes with the fewest steps. What holds always has to hold,
/// and what is `seen` sometimes to be seen.
#[track_caller]
fn holds(bounds: Bounds, seen: &[&'static str]) {
    to_depth(bounds, seen, NO_END);
}

/// The same up to a number of steps.
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
            panic!("not so: {name}; after {steps:?}; {text}");
        }
    }
    assert!(
        checker.state_count() < most,
        "the search was not finished: {text}"
    );
    for &name in seen {
        assert!(checker.discovery(name).is_some(), "never: {name}; {text}");
    }
}

/// Searches until something goes wrong. It has to be this.
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
    assert!(!found.is_empty(), "nothing was seen to go wrong: {text}");
    assert!(
        found.iter().any(|found| wrong.contains(found)),
        "{found:?}, and not {wrong:?}: {text}"
    );
}

#[test]
fn two_mounts_that_are_in_each_others_way() {
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
    holds(bounds, &[ANEW]);
}

/// What runs then is not waited for.
#[test]
fn a_mount_comes_while_something_long_runs() {
    let later = |programs| Bounds {
        late: 1,
        losses: 1,
        long: true,
        ..two(programs)
    };
    holds(later([&[Write(0)], &[Read(0)]]), &[ANEW]);
    holds(later([&[Read(0)], &[Write(0)]]), &[ANEW]);
    holds(later([&[Write(0)], &[Write(1)]]), &[ANEW, PASSED]);
    // What is only counted lets those pass that read beside a read.
    let short = Bounds {
        long: false,
        ..later([&[Read(0)], &[Read(1)]])
    };
    holds(short, &[ANEW, PASSED]);
}

#[test]
fn a_mount_comes_and_others_close() {
    let later = Bounds {
        late: 1,
        closes: true,
        ..pair()
    };
    holds(later, &[ANEW]);
}

#[test]
fn a_mount_comes_and_a_session_is_lost() {
    let later = Bounds {
        late: 1,
        lapses: 1,
        ..pair()
    };
    holds(later, &[ANEW, BACK]);
}

#[test]
fn a_mount_comes_and_the_lock_server_is_started_anew() {
    let later = Bounds {
        late: 1,
        restarts: 1,
        long: true,
        ..pair()
    };
    holds(later, &[ANEW]);
}

#[test]
fn the_lock_server_is_started_anew() {
    let bounds = Bounds {
        restarts: 1,
        ..pair()
    };
    holds(bounds, &[GIVEN, ANEW]);
}

#[test]
fn a_holder_dies() {
    let bounds = Bounds {
        deaths: 1,
        ..pair()
    };
    holds(bounds, &[GIVEN]);
}

/// What died with a write on its way, shortly before the lock server did.
#[test]
fn a_holder_dies_and_the_lock_server_is_started_anew() {
    let bounds = Bounds {
        deaths: 1,
        restarts: 1,
        flushes: 1,
        ..pair()
    };
    // All of it takes minutes: tools/soak.
    to_depth(bounds, &[], 16);
}

#[test]
fn a_session_is_lost_and_another_begun() {
    let bounds = Bounds {
        lapses: 1,
        ..pair()
    };
    holds(bounds, &[GIVEN, BACK]);
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
fn the_object_is_declared_anew() {
    holds(two([&[Declare], &[Read(0)]]), &[GIVEN]);
}

fn flawed(flaw: Flaw, bounds: Bounds) -> Bounds {
    Bounds {
        flaw: Some(flaw),
        ..bounds
    }
}

#[test]
fn a_lock_server_that_grants_before_it_is_given_is_seen() {
    let flawed = flawed(Flaw::GrantsBeforeItIsGiven, pair());
    fails(flawed, &[CONFLICT, HIDDEN, OLD]);
}

#[test]
fn a_lock_server_that_recalls_nothing_is_seen() {
    fails(flawed(Flaw::RecallsNothing, pair()), &[STUCK]);
}

/// It takes two that have just what the other wants (and in `mdserver/src/rights/table/tests.rs` chance).
#[test]
#[ignore = "takes minutes: tools/soak"]
fn a_lock_server_that_takes_what_is_not_given_is_seen() {
    let bounds = two([&[Write(0), Write(1)], &[Write(1), Write(0)]]);
    let flawed = flawed(Flaw::TakesWhatIsNotGiven, bounds);
    fails(flawed, &[CONFLICT, HIDDEN, OLD]);
}

#[test]
fn a_lock_server_that_forgets_holders_is_seen() {
    let restarted = Bounds {
        restarts: 1,
        ..pair()
    };
    let flawed = flawed(Flaw::ForgetsHoldersAtRestart, restarted);
    // A mount that it does not know is not heard, so it is stuck before others are granted what it has.
    fails(flawed, &[CONFLICT, HIDDEN, OLD, STUCK]);
}

#[test]
fn a_lock_server_that_does_not_wait_for_who_was_alone_is_seen() {
    let later = Bounds { late: 1, ..pair() };
    let flawed = flawed(Flaw::LeavesAloneTheFirst, later);
    fails(flawed, &[CONFLICT, HIDDEN, OLD]);
}

/// What a session that is over has sent arrives after others were given its rights.
#[test]
fn a_lock_server_without_a_fence_is_seen() {
    let died = Bounds {
        deaths: 1,
        flushes: 1,
        ..pair()
    };
    fails(flawed(Flaw::GivesAwayWithoutFence, died), &[LATE]);
}

/// The same with a lock server that is started anew in between: this was so.
#[test]
fn a_lock_server_that_forgets_the_dead_is_seen() {
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
fn a_mount_that_gives_without_a_flush_is_seen() {
    let slips = slips(Slip::GivesWithoutFlush, pair());
    fails(slips, &[CONFLICT, HIDDEN, OLD]);
}

#[test]
fn a_mount_that_keeps_its_cache_is_seen() {
    let reads = two([&[Read(0), Read(0)], &[Write(0)]]);
    fails(slips(Slip::KeepsTheCache, reads), &[OLD]);
}

#[test]
fn a_mount_that_stays_in_its_epoch_is_seen() {
    let restarted = Bounds {
        restarts: 1,
        ..pair()
    };
    fails(slips(Slip::StaysInItsLife, restarted), &[STUCK]);
}

#[test]
fn a_mount_that_does_not_say_what_runs_is_seen() {
    let later = Bounds { late: 1, ..pair() };
    fails(slips(Slip::ForgetsWhatRuns, later), &[RUNS]);
}

#[test]
fn a_mount_that_gives_what_it_only_counts_is_seen() {
    let later = Bounds { late: 1, ..pair() };
    fails(slips(Slip::GivesWhatIsCounted, later), &[RUNS]);
}

#[test]
fn a_mount_that_serves_when_it_has_lapsed_is_seen() {
    let lapsed = Bounds {
        lapses: 1,
        ..pair()
    };
    fails(slips(Slip::ServesWhenLapsed, lapsed), &[CONFLICT, OLD]);
}

/// As [`holds`], for longer: tools/soak. Depth first, which keeps of a state no more than its fingerprint; breadth
/// first these have more states waiting than fit into memory.
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
    holds_far(bounds, &[GIVEN, ANEW, BACK]);
}

#[test]
#[ignore = "takes minutes: tools/soak"]
fn far_a_mount_comes_while_something_runs() {
    let later = Bounds {
        late: 1,
        long: true,
        lapses: 1,
        losses: 1,
        ..two([&[Write(0), Read(1)], &[Write(1)]])
    };
    holds_far(later, &[ANEW, BACK, PASSED]);
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
    holds_far(bounds, &[GIVEN, ANEW]);
}

#[test]
#[ignore = "takes minutes: tools/soak"]
fn far_three_mounts_and_a_restart() {
    let bounds = Bounds {
        programs: vec![vec![Write(0)], vec![Read(0)], vec![Write(0)]],
        restarts: 1,
        ..two([&[], &[]])
    };
    holds_far(bounds, &[GIVEN, ANEW]);
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
fn far_a_holder_dies_and_the_lock_server_is_started_anew() {
    let bounds = Bounds {
        deaths: 1,
        restarts: 1,
        flushes: 1,
        ..pair()
    };
    holds_far(bounds, &[GIVEN, ANEW]);
}
