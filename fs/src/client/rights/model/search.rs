//! The search, its properties, and what shows that it can fail.
//!
//! A run ends where nothing can happen any more but mishaps, and all runs end: each step takes something away of
//! which there is only so much, or counts something up, so no state comes twice in a run. So nobody waits for
//! ever in any run if nobody waits where it ends.

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::world::{Step, World};
use super::{Bounds, Doing, Flaw, Slip};
use Doing::{Declare, Read, Write};

/// States above which a search gives up, and the test fails.
const MOST: usize = 3_000_000;
const MOST_FAR: usize = 100_000_000;

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
            Property::always(HIDDEN, |_, world: &World| !world.hides_data()),
            Property::always(OLD, |_, world: &World| world.wrong.is_none()),
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
        ]
    }
}

const CONFLICT: &str = "no two mounts have rights that go against each other";
const HIDDEN: &str = "nobody may read what another mount has not brought out";
const OLD: &str = "a read sees the last write";
const STUCK: &str = "nobody waits for ever";
const GIVEN: &str = "all is done, and something was given";
const ANEW: &str = "all is done, and a life was begun anew";
const BACK: &str = "all is done, and a session was lost and another begun";

/// Two mounts, a read and a write of each, and no mishap.
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
        flaw: None,
        slip: None,
    }
}

/// Searches all states. What holds always has to hold, and what is `seen` sometimes to be seen.
#[track_caller]
fn holds(bounds: Bounds, seen: &[&'static str]) {
    search(bounds, seen, MOST);
}

#[track_caller]
fn search(bounds: Bounds, seen: &[&'static str], most: usize) {
    let text = format!("{bounds:?}");
    let checker = bounds
        .checker()
        .threads(2)
        .target_state_count(most)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    println!(
        "{} states, {} of them different, up to {} steps: {text}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    for name in [CONFLICT, HIDDEN, OLD, STUCK] {
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
    let always = [CONFLICT, HIDDEN, OLD, STUCK];
    let found: Vec<&str> = always
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
    let base = two([&[Write(0), Read(1)], &[Write(1), Read(0)]]);
    holds(base, &[GIVEN]);
}

#[test]
fn replies_are_lost() {
    let bounds = Bounds {
        losses: 1,
        ..two([&[Write(0)], &[Read(0), Write(1)]])
    };
    holds(bounds, &[GIVEN]);
}

#[test]
fn a_mount_comes_later() {
    let bounds = Bounds {
        late: 1,
        losses: 1,
        ..two([&[Write(0)], &[Read(0)]])
    };
    holds(bounds, &[ANEW]);
}

#[test]
fn the_home_is_started_anew() {
    let bounds = Bounds {
        restarts: 1,
        ..two([&[Write(0)], &[Write(0), Read(1)]])
    };
    holds(bounds, &[GIVEN, ANEW]);
}

#[test]
fn a_holder_dies() {
    let bounds = Bounds {
        deaths: 1,
        flushes: 1,
        ..two([&[Write(0), Write(1)], &[Read(0), Write(1)]])
    };
    holds(bounds, &[GIVEN]);
}

#[test]
fn a_holder_dies_and_the_home_is_started_anew() {
    let bounds = Bounds {
        deaths: 1,
        restarts: 1,
        flushes: 1,
        ..two([&[Write(0)], &[Read(0)]])
    };
    holds(bounds, &[GIVEN, ANEW]);
}

#[test]
fn a_session_is_lost_and_another_begun() {
    let bounds = Bounds {
        lapses: 1,
        flushes: 1,
        ..two([&[Write(0)], &[Read(0), Write(0)]])
    };
    holds(bounds, &[GIVEN, BACK]);
}

#[test]
fn programs_give_up_and_mounts_close() {
    let bounds = Bounds {
        withdrawals: 1,
        closes: true,
        ..two([&[Write(0), Read(1)], &[Write(0)]])
    };
    holds(bounds, &[GIVEN]);
}

#[test]
fn the_object_is_declared_anew() {
    let bounds = two([&[Declare, Write(0)], &[Read(0), Write(1)]]);
    holds(bounds, &[GIVEN]);
}

#[test]
fn three_mounts() {
    let bounds = Bounds {
        programs: vec![vec![Write(0)], vec![Read(0)], vec![Write(0)]],
        ..two([&[], &[]])
    };
    holds(bounds, &[GIVEN]);
}

fn flawed(flaw: Flaw, bounds: Bounds) -> Bounds {
    Bounds {
        flaw: Some(flaw),
        ..bounds
    }
}

#[test]
fn flaws_of_the_home_are_seen() {
    let plain = || two([&[Write(0)], &[Read(0), Write(1)]]);
    fails(
        flawed(Flaw::GrantsBeforeItIsGiven, plain()),
        &[CONFLICT, HIDDEN, OLD],
    );
    fails(flawed(Flaw::RecallsNothing, plain()), &[STUCK]);
    fails(
        flawed(
            Flaw::TakesWhatIsNotGiven,
            two([&[Write(0), Read(1)], &[Write(1), Read(0)]]),
        ),
        &[CONFLICT, HIDDEN, OLD],
    );
    let restarted = Bounds {
        restarts: 1,
        ..plain()
    };
    fails(
        flawed(Flaw::ForgetsHoldersAtRestart, restarted),
        &[CONFLICT, HIDDEN, OLD],
    );
    let resent = Bounds {
        losses: 1,
        ..plain()
    };
    fails(
        flawed(Flaw::KeepsNoReplies, resent),
        &[CONFLICT, HIDDEN, OLD, STUCK],
    );
    let later = Bounds { late: 1, ..plain() };
    fails(
        flawed(Flaw::LeavesAloneTheFirst, later),
        &[CONFLICT, HIDDEN, OLD],
    );
}

/// What a session that is over has sent arrives after others were given its rights.
#[test]
fn giving_away_without_a_fence_is_seen() {
    let died = Bounds {
        deaths: 1,
        flushes: 1,
        ..two([&[Write(0)], &[Read(0), Read(0)]])
    };
    fails(flawed(Flaw::GivesAwayWithoutFence, died.clone()), &[OLD]);
    let restarted = Bounds {
        restarts: 1,
        ..died
    };
    fails(flawed(Flaw::ForgetsTheDeadAtRestart, restarted), &[OLD]);
}

#[test]
fn slips_of_a_mount_are_seen() {
    let slips = |slip, bounds| Bounds {
        slip: Some(slip),
        ..bounds
    };
    let plain = || two([&[Write(0), Read(1)], &[Write(1), Read(0)]]);
    fails(
        slips(Slip::GivesWithoutFlush, plain()),
        &[CONFLICT, HIDDEN, OLD],
    );
    fails(
        slips(Slip::KeepsTheCache, two([&[Read(0), Read(0)], &[Write(0)]])),
        &[OLD],
    );
    fails(
        slips(Slip::NamesLaterGrants, plain()),
        &[CONFLICT, HIDDEN, OLD],
    );
    let restarted = Bounds {
        restarts: 1,
        ..plain()
    };
    fails(slips(Slip::StaysInItsLife, restarted), &[STUCK]);
    let lapsed = Bounds {
        lapses: 1,
        ..plain()
    };
    fails(slips(Slip::ServesWhenLapsed, lapsed), &[CONFLICT, OLD]);
}

/// As [`holds`], for longer: tools/soak.
#[track_caller]
fn holds_far(bounds: Bounds, seen: &[&'static str]) {
    search(bounds, seen, MOST_FAR);
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
        ..two([&[Write(0)], &[Read(0)]])
    };
    holds_far(bounds, &[GIVEN, ANEW, BACK]);
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
