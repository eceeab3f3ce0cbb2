//! The lock server's list and the sessions' caches together, with arbitrarily delayed messages: whatever a session
//! answers from its cache is current at that moment.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use slabfs_model::{ObjectId, SessionId};

use super::{BUSY, FEW, KEEP, MOST, MOST_WAITING, MOST_WAITING_OF_ONE, Names, SILENT, Touched};
use crate::api::{Attr, Entry, Ino, Kind, Looked, Op, RightsEpoch, SetAttr, Time, op};
use crate::client::name_cache::{Asked, NameCache, OwnChange};

const DIRECTORIES: usize = 3;
const NAMES: usize = 2;
const SESSIONS: usize = 3;

/// A step of the test. Indices are taken modulo the number of candidates.
#[derive(Debug, Clone)]
enum Step {
    /// A session looks up a name.
    Ask { by: usize, dir: usize, name: usize },
    /// The lock server answers one of the lookups: asks the list, and then reads.
    Answer { which: usize },
    /// A reply arrives.
    Arrive { which: usize },
    /// A session sends a change: a name is created or removed, or the attributes are set.
    Change {
        by: usize,
        dir: usize,
        name: Option<usize>,
    },
    /// The lock server begins one of the changes that were sent.
    Begin { which: usize },
    /// A session receives its next event.
    Hear { by: usize },
    /// The lock server makes a change that waits for no session any more.
    Make { which: usize },
    /// The reply to a change arrives.
    Made { which: usize },
    /// A session resets its rights.
    Reset { by: usize },
    /// Time elapses.
    Wait { tenths: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let by = 0..SESSIONS;
    let dir = 0..DIRECTORIES;
    let step = prop_oneof![
        6 => (by.clone(), dir.clone(), 0..NAMES).prop_map(|(by, dir, name)| Step::Ask { by, dir, name }),
        6 => (0..9_usize).prop_map(|which| Step::Answer { which }),
        6 => (0..9_usize).prop_map(|which| Step::Arrive { which }),
        4 => (by.clone(), dir, prop::option::of(0..NAMES))
            .prop_map(|(by, dir, name)| Step::Change { by, dir, name }),
        4 => (0..9_usize).prop_map(|which| Step::Begin { which }),
        8 => by.clone().prop_map(|by| Step::Hear { by }),
        6 => (0..9_usize).prop_map(|which| Step::Make { which }),
        6 => (0..9_usize).prop_map(|which| Step::Made { which }),
        1 => by.prop_map(|by| Step::Reset { by }),
        2 => (1..20_u64).prop_map(|tenths| Step::Wait { tenths }),
    ];
    prop::collection::vec(step, 1..400)
}

/// A lookup on its way to the lock server, or its reply on the way back.
struct Question {
    by: usize,
    epoch: u64,
    dir: usize,
    name: usize,
    asked: Asked,
    looked: Option<Looked>,
}

/// A change, from when it is sent until its reply arrives.
struct Change<'a> {
    by: usize,
    dir: usize,
    name: Option<usize>,
    own: Option<OwnChange<'a>>,
    /// The lock server has begun it.
    begun: bool,
    made: bool,
}

/// The names that exist (of directories), and how often attributes were set.
struct Truth {
    names: [[bool; NAMES]; DIRECTORIES],
    set: [u64; DIRECTORIES],
}

fn directory(dir: usize) -> Ino {
    ObjectId(100 + dir as u64)
}

/// The target of a name: another of the directories, so that names lead on to attributes.
fn child(dir: usize, name: usize) -> usize {
    (dir + name + 1) % DIRECTORIES
}

fn name(name: usize) -> Vec<u8> {
    vec![b'a' + name as u8]
}

fn entry(truth: &Truth, dir: usize) -> Entry {
    Entry {
        attr: Attr {
            ino: directory(dir),
            kind: Kind::Directory,
            mode: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            stored: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            crtime: Time::default(),
            change: truth.set[dir],
        },
        info: None,
    }
}

fn touched(dir: usize) -> Touched {
    Touched {
        directories: vec![directory(dir)],
        moved: Vec::new(),
    }
}

/// Runs steps; returns how many lookups were answered from a cache.
fn run(steps: &[Step]) -> Result<usize, TestCaseError> {
    let mut now = Instant::now();
    let caches: Vec<NameCache> = (0..SESSIONS).map(|_| NameCache::default()).collect();
    let mut epochs = [1; SESSIONS];
    let mut lock_server = Names::new(EPOCH);
    let mut events: Vec<VecDeque<(Vec<Ino>, u64)>> = vec![VecDeque::new(); SESSIONS];
    let mut questions: Vec<Question> = Vec::new();
    let mut changes: Vec<Change<'_>> = Vec::new();
    let mut truth = Truth {
        names: Default::default(),
        set: [0; DIRECTORIES],
    };
    let mut hits = 0;
    for step in steps {
        match *step {
            Step::Ask { by, dir, name } => questions.push(Question {
                by,
                epoch: epochs[by],
                dir,
                name,
                asked: caches[by].asked(),
                looked: None,
            }),
            Step::Answer { which } => {
                let waiting = questions.iter_mut().filter(|it| it.looked.is_none());
                if let Some(question) = nth(waiting, which) {
                    let session = SessionId(question.by as u64);
                    let epoch = RightsEpoch(epochs[question.by]);
                    // A session of which the lock server knows a later epoch gets no permission.
                    let current = question.epoch == epochs[question.by];
                    let mut keep =
                        |dir| current && lock_server.keep(session, epoch, directory(dir), now);
                    let keep_name = keep(question.dir);
                    let there = truth.names[question.dir][question.name];
                    let found = there.then(|| child(question.dir, question.name));
                    let keep_attributes = found.is_some_and(keep);
                    question.looked = Some(Looked {
                        found: found.map(|dir| entry(&truth, dir)),
                        keep_name,
                        keep_attributes,
                    });
                }
            }
            Step::Arrive { which } => {
                let answered: Vec<usize> = (0..questions.len())
                    .filter(|&at| questions[at].looked.is_some())
                    .collect();
                if let Some(&at) = nth(answered.iter(), which) {
                    let it = questions.swap_remove(at);
                    let name = name(it.name);
                    let looked = it.looked.expect("answered");
                    caches[it.by].take(it.asked, Some((directory(it.dir), &name)), &looked);
                }
            }
            Step::Change {
                by,
                dir,
                name: which,
            } => {
                let op = match which {
                    None => Op::SetAttr(op::SetAttr {
                        ino: directory(dir),
                        set: SetAttr::default(),
                    }),
                    Some(which) => Op::Unlink(op::Unlink {
                        parent: directory(dir),
                        name: name(which),
                    }),
                };
                changes.push(Change {
                    by,
                    dir,
                    name: which,
                    own: Some(caches[by].change(&op)),
                    begun: false,
                    made: false,
                });
            }
            Step::Begin { which } => {
                let waiting = changes.iter_mut().filter(|it| !it.begun);
                if let Some(change) = nth(waiting, which) {
                    let touched = touched(change.dir);
                    lock_server.begin(&touched);
                    let session = Some(SessionId(change.by as u64));
                    for (session, (number, inos)) in lock_server.recall(session, &touched, now) {
                        events[session.0 as usize].push_back((inos, number));
                    }
                    change.begun = true;
                }
            }
            Step::Hear { by } => {
                if let Some((inos, number)) = events[by].pop_front() {
                    caches[by].forget(&inos);
                    lock_server.forgot(SessionId(by as u64), number);
                }
            }
            Step::Make { which } => {
                let alive = |id: SessionId, epoch: RightsEpoch| epochs[id.0 as usize] == epoch.0;
                let ready = changes.iter_mut().filter(|it| {
                    let by = Some(SessionId(it.by as u64));
                    let begun = it.begun && !it.made;
                    begun && !lock_server.has_to_wait(by, &touched(it.dir), now, alive)
                });
                let ready: Vec<&mut Change<'_>> = ready.collect();
                if let Some(change) = nth(ready.into_iter(), which) {
                    match change.name {
                        Some(name) => {
                            let there = &mut truth.names[change.dir][name];
                            *there = !*there;
                        }
                        None => truth.set[change.dir] += 1,
                    }
                    change.made = true;
                    lock_server.end(&touched(change.dir));
                }
            }
            Step::Made { which } => {
                let made: Vec<usize> = (0..changes.len()).filter(|&at| changes[at].made).collect();
                if let Some(&at) = nth(made.iter(), which) {
                    drop(changes.swap_remove(at).own);
                }
            }
            Step::Reset { by } => {
                caches[by].forget_all();
                events[by].clear();
                epochs[by] += 1;
                lock_server.leave(SessionId(by as u64));
            }
            Step::Wait { tenths } => now += Duration::from_millis(100 * tenths),
        }
        for cache in &caches {
            hits += agrees(cache, &truth)?;
        }
    }
    Ok(hits)
}

fn nth<T>(of: impl Iterator<Item = T>, which: usize) -> Option<T> {
    let mut all: Vec<T> = of.collect();
    (!all.is_empty()).then(|| all.swap_remove(which % all.len()))
}

/// Checks that everything that a session would answer is current; returns the number of answers.
fn agrees(cache: &NameCache, truth: &Truth) -> Result<usize, TestCaseError> {
    let mut hits = 0;
    for dir in 0..DIRECTORIES {
        if let Some(cached) = cache.directory(directory(dir)) {
            prop_assert_eq!(cached, entry(truth, dir));
            hits += 1;
        }
        for which in 0..NAMES {
            if let Some(cached) = cache.find(directory(dir), &name(which)) {
                let there = truth.names[dir][which];
                prop_assert_eq!(cached, there.then(|| entry(truth, child(dir, which))));
                hits += 1;
            }
        }
    }
    Ok(hits)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cached_entries_are_current(steps in steps()) {
        run(&steps)?;
    }
}

/// Guards against a vacuous property.
#[test]
fn something_is_cached() {
    let looks = [
        Step::Change {
            by: 0,
            dir: 0,
            name: Some(0),
        },
        Step::Begin { which: 0 },
        Step::Make { which: 0 },
        Step::Made { which: 0 },
        Step::Ask {
            by: 1,
            dir: 0,
            name: 0,
        },
        Step::Answer { which: 0 },
        Step::Arrive { which: 0 },
    ];
    // The name, and the attributes of its target.
    assert_eq!(run(&looks).expect("it holds"), 2);
}

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const EPOCH: RightsEpoch = RightsEpoch(7);

/// A change by `by`: the sessions that have to drop entries for it. They acknowledge at once.
fn events(names: &mut Names, by: SessionId, now: Instant) -> Vec<SessionId> {
    names.begin(&touched(0));
    let events = names.recall(Some(by), &touched(0), now);
    events
        .into_iter()
        .map(|(session, (number, _))| {
            assert!(names.forgot(session, number));
            session
        })
        .collect()
}

fn waits(names: &mut Names, by: SessionId, now: Instant) -> bool {
    names.has_to_wait(Some(by), &touched(0), now, |_, epoch| epoch == EPOCH)
}

#[test]
fn two_changes_wait_for_one_session_that_is_notified_once() {
    let (mut names, now) = (Names::new(EPOCH), Instant::now());
    assert!(names.keep(B, EPOCH, directory(0), now));
    names.begin(&touched(0));
    let first = names.recall(Some(A), &touched(0), now);
    let (number, inos) = &first[&B];
    assert_eq!(*inos, [directory(0)]);
    names.begin(&touched(0));
    assert!(names.recall(Some(A), &touched(0), now).is_empty());
    assert!(waits(&mut names, A, now));
    assert!(!names.forgot(A, *number), "the recall was not sent to A");
    assert!(names.forgot(B, *number));
    assert!(!waits(&mut names, A, now));
    assert!(!names.forgot(B, *number));
}

#[test]
fn the_changing_session_keeps_its_entries_and_others_drop_theirs() {
    let (mut names, now) = (Names::new(EPOCH), Instant::now());
    for session in [A, B] {
        assert!(names.keep(session, EPOCH, directory(0), now));
    }
    assert_eq!(events(&mut names, A, now), [B]);
    // During the change no session gets permission.
    assert!(!names.keep(A, EPOCH, directory(0), now));
    names.end(&touched(0));
    // B has dropped its entries; A has not, and need not for its own next change.
    assert_eq!(events(&mut names, A, now), []);
    names.end(&touched(0));
    assert_eq!(events(&mut names, B, now), [A]);
}

#[test]
fn the_moving_session_also_drops_its_entries() {
    let (mut names, now) = (Names::new(EPOCH), Instant::now());
    assert!(names.keep(A, EPOCH, directory(0), now));
    let moved = Touched {
        directories: vec![directory(1)],
        moved: vec![directory(0)],
    };
    let events = names.recall(Some(A), &moved, now);
    assert_eq!(events[&A].1, [directory(0)]);
}

#[test]
fn a_recalled_directory_is_not_cached_again_for_a_moment() {
    let (mut names, now) = (Names::new(EPOCH), Instant::now());
    assert!(names.keep(B, EPOCH, directory(0), now));
    events(&mut names, A, now);
    names.end(&touched(0));
    assert!(!names.keep(A, EPOCH, directory(0), now + BUSY / 2));
    assert!(names.keep(A, EPOCH, directory(0), now + BUSY));
}

#[test]
fn permissions_expire_and_end_with_their_epoch() {
    let (mut names, now) = (Names::new(EPOCH), Instant::now());
    assert!(names.keep(B, EPOCH, directory(0), now));
    assert_eq!(events(&mut names, A, now + KEEP), []);
    assert!(!waits(&mut names, A, now + KEEP));
    names.end(&touched(0));
    assert!(names.keep(B, RightsEpoch(8), directory(0), now));
    assert!(!waits(&mut names, A, now));
}

/// Even if it keeps asking for permission.
#[test]
fn a_silent_session_is_given_up() {
    let (mut names, mut now) = (Names::new(EPOCH), Instant::now());
    assert!(names.keep(B, EPOCH, directory(0), now));
    names.begin(&touched(0));
    assert_eq!(names.recall(Some(A), &touched(0), now).len(), 1);
    let end = now + SILENT;
    while now <= end {
        assert!(waits(&mut names, A, now));
        names.end(&touched(0));
        assert!(!names.keep(B, EPOCH, directory(0), now + BUSY));
        names.begin(&touched(0));
        now += BUSY + Duration::from_millis(1);
    }
    assert!(!waits(&mut names, A, now));
}

#[test]
fn the_number_of_waiting_changes_is_limited() {
    let mut names = Names::new(EPOCH);
    let waiting = |names: &mut Names, by| (0..1000).filter(|_| names.wait(by)).count();
    assert_eq!(waiting(&mut names, Some(A)), MOST_WAITING_OF_ONE);
    for session in 0..100 {
        waiting(&mut names, Some(SessionId(100 + session)));
    }
    assert_eq!(names.waiting.len(), MOST_WAITING);
    assert!(!names.wait(Some(B)));
    names.waits_no_more(Some(A));
    assert!(names.wait(Some(B)));
}

#[test]
fn expired_permissions_are_dropped() {
    let (mut names, now) = (Names::new(EPOCH), Instant::now());
    for at in 0..10 * FEW as u64 {
        let now = now + Duration::from_secs(at);
        assert!(names.keep(A, EPOCH, ObjectId(at), now));
    }
    assert!(names.keepers.len() <= 2 * FEW, "{}", names.keepers.len());
}

/// A walk through more directories than the list may hold: after they expire there is room again.
#[test]
fn there_is_room_again_after_the_limit_was_reached() {
    let (mut names, now) = (Names::new(EPOCH), Instant::now());
    for at in 0..MOST as u64 + 10 {
        let pace = Duration::from_micros(20 * at);
        names.keep(A, EPOCH, ObjectId(at), now + pace);
    }
    assert!(!names.keep(A, EPOCH, ObjectId(1 << 40), now + KEEP / 2));
    assert!(names.keep(A, EPOCH, ObjectId(1 << 40), now + 2 * KEEP));
    assert_eq!(names.keepers.len(), 1);
}
