//! The rights table against a model that tracks each cell separately, with well-behaved sessions whose messages are
//! delayed.
//!
//! Random operations instead of a search of all states: faults show only in long runs (a grant overtakes a recall,
//! which overtakes a return), and a state has far too many successors. The grid is small, so that conflicts are
//! frequent.

use std::collections::BTreeMap;

use proptest::prelude::*;
use slabfs_model::Region;

use super::*;

const SESSIONS: usize = 3;
const INOS: u64 = 2;
/// Rows and columns; the last of each extends beyond every size.
const SIDE: u64 = 3;
const CELLS: usize = (SIDE * SIDE) as usize;

type Cells = [Option<RightMode>; CELLS];

fn cell_box(cell: usize) -> Region {
    let (row, column) = (cell as u64 / SIDE, cell as u64 % SIDE);
    let shape = |at| if at == SIDE - 1 { u64::MAX - at } else { 1 };
    Region::new(&[row, column], &[shape(row), shape(column)])
}

fn area_of(cells: impl IntoIterator<Item = usize>) -> BoxSet {
    let boxes = cells.into_iter().map(cell_box).collect();
    RightArea::Boxes(boxes).cells().unwrap()
}

fn holds(area: &BoxSet, cell: usize) -> bool {
    area.overlaps(&area_of([cell]))
}

fn cells_of(area: &BoxSet) -> Vec<usize> {
    (0..CELLS).filter(|&cell| holds(area, cell)).collect()
}

fn id(session: usize) -> SessionId {
    SessionId(session as u64 + 1)
}

#[derive(Debug, Clone)]
struct Giving {
    ino: Ino,
    serial: RightSerial,
    keep: Option<RightMode>,
    area: BoxSet,
    /// What the session held of it.
    had: Cells,
}

/// A well-behaved session.
#[derive(Debug, Default)]
struct Mount {
    has: BTreeMap<Ino, Cells>,
    /// Grants up to this number are processed, and later ones that arrived early; those without a number are not.
    heard: u64,
    early: BTreeMap<u64, Option<Granted>>,
    replies: VecDeque<Granted>,
    events: VecDeque<Event>,
    gives: VecDeque<Giving>,
}

impl Mount {
    fn grant(&mut self, granted: Granted) {
        self.early.insert(granted.serial.0, Some(granted));
        self.count();
    }

    /// Processes grants, in order.
    fn count(&mut self) {
        while let Some(next) = self.early.remove(&(self.heard + 1)) {
            self.heard += 1;
            if let Some(granted) = next {
                add(self.has.entry(granted.ino).or_default(), &granted);
            }
        }
    }

    /// Removes what it holds, and sends the return.
    fn take(&mut self, ino: Ino, keep: Option<RightMode>, area: &BoxSet) {
        let has = self.has.entry(ino).or_default();
        let mut had = Cells::default();
        for cell in cells_of(area) {
            if has[cell] > keep {
                had[cell] = has[cell];
                has[cell] = keep;
            }
        }
        self.gives.push_back(Giving {
            ino,
            serial: RightSerial(self.heard),
            keep,
            area: area.clone(),
            had,
        });
    }
}

fn add(cells: &mut Cells, granted: &Granted) {
    for cell in cells_of(&granted.area.cells().unwrap()) {
        cells[cell] = cells[cell].max(Some(granted.mode));
    }
}

#[derive(Debug, Clone)]
enum Do {
    Ask(usize, u64, RightMode, Option<[u64; 4]>),
    Cancel(usize, usize),
    /// Delivers the next reply, event or return.
    Reply(usize),
    Event(usize, bool),
    Deliver(usize),
    Give(usize, u64, Option<RightMode>, usize),
    Close(usize, u64),
    Forget(usize),
    Gone(u64),
    Freeze(bool),
    /// The lock server restarts.
    Restart,
}

fn any_do() -> impl Strategy<Value = Do> {
    let session = || 0..SESSIONS;
    let ino = || 1..=INOS;
    let mode = || prop_oneof![Just(RightMode::Read), Just(RightMode::Write)];
    let rectangle = prop::option::weighted(0.8, [0..SIDE, 0..SIDE, 0..SIDE, 0..SIDE]);
    prop_oneof![
        12 => (session(), ino(), mode(), rectangle).prop_map(|(s, i, m, r)| Do::Ask(s, i, m, r)),
        1 => (session(), 0..4_usize).prop_map(|(s, n)| Do::Cancel(s, n)),
        10 => session().prop_map(Do::Reply),
        12 => (session(), any::<bool>()).prop_map(|(s, more)| Do::Event(s, more)),
        10 => session().prop_map(Do::Deliver),
        2 => (session(), ino(), prop::option::of(Just(RightMode::Read)), 0..CELLS)
            .prop_map(|(s, i, k, c)| Do::Give(s, i, k, c)),
        1 => (session(), ino()).prop_map(|(s, i)| Do::Close(s, i)),
        1 => session().prop_map(Do::Forget),
        1 => ino().prop_map(Do::Gone),
        1 => any::<bool>().prop_map(Do::Freeze),
        1 => Just(Do::Restart),
    ]
}

#[derive(Debug, Default)]
struct World {
    table: Table,
    mounts: [Mount; SESSIONS],
    /// Waiting requests, in order.
    waiting: Vec<(usize, Ask)>,
    /// Cells that were recalled and not returned: session, object, cell, mode that may stay.
    recalled: BTreeSet<(usize, Ino, usize, Option<RightMode>)>,
    tickets: u64,
}

impl World {
    fn step(&mut self, what: &Do) {
        match *what {
            Do::Ask(session, ino, mode, rectangle) => self.ask(session, ino, mode, rectangle),
            Do::Cancel(session, nth) => {
                let mine = self.waiting.iter().filter(|(by, _)| *by == session);
                if let Some(ticket) = mine.map(|(_, ask)| ask.ticket).nth(nth) {
                    assert!(self.table.cancel(id(session), ticket));
                    self.waiting.retain(|(_, ask)| ask.ticket != ticket);
                }
            }
            Do::Reply(session) => {
                if let Some(granted) = self.mounts[session].replies.pop_front() {
                    self.mounts[session].grant(granted);
                }
            }
            Do::Event(session, more) => self.event(session, more),
            Do::Deliver(session) => self.deliver(session),
            Do::Give(session, ino, keep, cell) => {
                self.mounts[session].take(slabfs_model::ObjectId(ino), keep, &area_of([cell]));
            }
            Do::Close(session, ino) => {
                // It has flushed and returned, and ignores grants of it.
                let ino = slabfs_model::ObjectId(ino);
                self.forget_at(session, |of| of == ino);
                self.table.close(id(session), ino);
            }
            Do::Forget(session) => {
                self.table.forget(id(session));
                self.forget_at(session, |_| true);
                self.mounts[session] = Mount::default();
            }
            Do::Gone(ino) => {
                let ino = slabfs_model::ObjectId(ino);
                for session in 0..SESSIONS {
                    self.forget_at(session, |of| of == ino);
                }
                self.table.gone(ino);
            }
            Do::Freeze(frozen) => self.table.freeze(frozen),
            Do::Restart => {
                *self = World {
                    tickets: self.tickets,
                    ..World::default()
                }
            }
        }
        self.hear();
        self.check();
    }

    fn ask(&mut self, session: usize, ino: u64, mode: RightMode, rectangle: Option<[u64; 4]>) {
        let ino = slabfs_model::ObjectId(ino);
        let area = rectangle.map_or(BoxSet::All, |[a, b, c, d]| {
            let inside = |cell: &usize| {
                let (row, column) = (*cell as u64 / SIDE, *cell as u64 % SIDE);
                (a.min(b)..=a.max(b)).contains(&row) && (c.min(d)..=c.max(d)).contains(&column)
            };
            area_of((0..CELLS).filter(inside))
        });
        self.tickets += 1;
        let ask = Ask {
            ino,
            mode,
            area,
            ticket: RightTicket(self.tickets),
        };
        self.waiting.push((session, ask.clone()));
        if let Some(granted) = self.table.ask(id(session), ask) {
            self.granted(session, &granted);
            self.mounts[session].replies.push_back(granted);
        }
    }

    /// Checks that a grant is in order and contains what was requested.
    fn granted(&mut self, session: usize, granted: &Granted) {
        assert!(!self.table.is_frozen());
        let of = |(_, ask): &(usize, Ask)| ask.ticket == granted.ticket;
        let at = self.waiting.iter().position(of).expect("it waits");
        let (by, ask) = self.waiting.remove(at);
        assert_eq!(
            (by, ask.mode, ask.ino),
            (session, granted.mode, granted.ino)
        );
        let area = granted.area.cells().unwrap();
        for cell in cells_of(&ask.area) {
            assert!(holds(&area, cell), "less than was requested");
        }
        let mine = (id(by), ask);
        for (other, ask) in &self.waiting {
            let other = (id(*other), ask.clone());
            let ahead = other.1.ticket < granted.ticket;
            assert!(
                other.1.ino != mine.1.ino || !ahead || !collide(&other, &mine),
                "out of order"
            );
        }
    }

    /// Delivers the table's events.
    fn hear(&mut self) {
        for (session, events) in self.table.take_events() {
            let session = session.0 as usize - 1;
            match &events {
                Event::Granted(granted) => self.granted(session, granted),
                Event::Refused(_) => {}
                Event::Recall(recall) => {
                    for cell in cells_of(&recall.area.cells().unwrap()) {
                        let all = (session, recall.ino, cell, None);
                        assert!(!self.recalled.contains(&all), "recalled again");
                        let this = (session, recall.ino, cell, recall.keep);
                        assert!(self.recalled.insert(this), "recalled again");
                    }
                }
                Event::Lost => panic!("lost track"),
            }
            self.mounts[session].events.push_back(events);
        }
    }

    fn event(&mut self, session: usize, more: bool) {
        let mount = &mut self.mounts[session];
        match mount.events.front() {
            Some(Event::Recall(recall)) if recall.serial.0 > mount.heard => return,
            _ => {}
        }
        match mount.events.pop_front() {
            Some(Event::Granted(granted)) => mount.grant(granted),
            Some(Event::Recall(recall)) => {
                let area = match more {
                    true => BoxSet::All,
                    false => recall.area.cells().unwrap(),
                };
                mount.take(recall.ino, recall.keep, &area);
            }
            Some(Event::Refused(_) | Event::Lost) | None => {}
        }
    }

    fn deliver(&mut self, session: usize) {
        let Some(give) = self.mounts[session].gives.pop_front() else {
            return;
        };
        for cell in cells_of(&give.area) {
            self.recalled.retain(|&(by, ino, at, keep)| {
                (by, ino, at) != (session, give.ino, cell) || keep < give.keep
            });
        }
        self.table
            .give(id(session), give.ino, give.serial, give.keep, &give.area);
    }

    /// A session holds nothing of some objects any more, and ignores grants of them.
    fn forget_at(&mut self, session: usize, which: impl Fn(Ino) -> bool) {
        let mount = &mut self.mounts[session];
        mount.has.retain(|&ino, _| !which(ino));
        mount.gives.retain(|give| !which(give.ino));
        for granted in std::mem::take(&mut mount.replies) {
            match which(granted.ino) {
                true => drop(mount.early.insert(granted.serial.0, None)),
                false => mount.replies.push_back(granted),
            }
        }
        for events in std::mem::take(&mut mount.events) {
            match events {
                Event::Granted(granted) if which(granted.ino) => {
                    mount.early.insert(granted.serial.0, None);
                }
                events => mount.events.push_back(events),
            }
        }
        for early in mount.early.values_mut() {
            early.take_if(|granted| which(granted.ino));
        }
        mount.count();
        self.waiting
            .retain(|(by, ask)| *by != session || !which(ask.ino));
        self.recalled
            .retain(|&(by, ino, ..)| by != session || !which(ino));
    }

    /// What a session holds according to the table.
    fn held(&self, session: usize, ino: Ino) -> Cells {
        let held = self.table.objects.get(&ino);
        let held = held.and_then(|object| object.held.get(&id(session)));
        let mut cells = Cells::default();
        if let Some(held) = held {
            cells_of(&held.read)
                .into_iter()
                .for_each(|cell| cells[cell] = Some(RightMode::Read));
            for cell in cells_of(&held.write) {
                assert!(cells[cell].is_some());
                cells[cell] = Some(RightMode::Write);
            }
        }
        cells
    }

    fn check(&self) {
        for ino in (1..=INOS).map(slabfs_model::ObjectId) {
            let held: Vec<Cells> = (0..SESSIONS).map(|one| self.held(one, ino)).collect();
            for cell in 0..CELLS {
                let has = |mode| held.iter().filter(|one| one[cell] >= Some(mode)).count();
                assert!(
                    has(RightMode::Write) == 0 || has(RightMode::Read) == 1,
                    "conflicting rights"
                );
            }
            for (mount, held) in self.mounts.iter().zip(held) {
                let mut known = mount.has.get(&ino).copied().unwrap_or_default();
                for give in mount.gives.iter().filter(|give| give.ino == ino) {
                    for (known, had) in known.iter_mut().zip(give.had) {
                        *known = (*known).max(had);
                    }
                }
                let events = mount.events.iter().filter_map(|events| match events {
                    Event::Granted(granted) => Some(granted),
                    _ => None,
                });
                let early = mount.early.values().flatten();
                for granted in mount.replies.iter().chain(events).chain(early) {
                    if granted.ino == ino {
                        add(&mut known, granted);
                    }
                }
                assert_eq!(known, held, "lock server and session differ");
            }
        }
    }

    /// Delivers all messages; then no request waits, and nothing is left once all rights are returned.
    fn drain(&mut self) {
        self.step(&Do::Freeze(false));
        let busy = |world: &World| {
            let idle = |one: &Mount| {
                one.replies.is_empty() && one.events.is_empty() && one.gives.is_empty()
            };
            !world.mounts.iter().all(idle)
        };
        let mut rounds = 0;
        while busy(self) {
            rounds += 1;
            assert!(rounds < 10_000, "it does not end");
            for session in 0..SESSIONS {
                self.step(&Do::Reply(session));
                self.step(&Do::Event(session, false));
                self.step(&Do::Deliver(session));
            }
        }
        assert!(
            self.waiting.is_empty(),
            "a request waits although nothing conflicts with it"
        );
        for session in 0..SESSIONS {
            for ino in 1..=INOS {
                let all = &BoxSet::All;
                self.mounts[session].take(slabfs_model::ObjectId(ino), None, all);
                self.deliver(session);
            }
        }
        assert!(self.table.objects.is_empty());
        let left = |it: &Present| !it.inos.is_empty() || !it.tickets.is_empty();
        assert!(!self.table.sessions.values().any(left));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn the_table_agrees_with_the_model(steps in prop::collection::vec(any_do(), 1..120)) {
        let mut world = World::default();
        for step in &steps {
            world.step(step);
        }
        world.drain();
    }
}

const INO: Ino = slabfs_model::ObjectId(7);
/// All grants so far.
const HEARD: RightSerial = RightSerial(u64::MAX);

fn ask(table: &mut Table, session: usize, mode: RightMode, area: BoxSet) -> Option<RightArea> {
    let waiting = table
        .sessions
        .values()
        .map(|it| it.tickets.len())
        .sum::<usize>();
    let ask = Ask {
        ino: INO,
        mode,
        area,
        ticket: RightTicket(100 + waiting as u64),
    };
    table.ask(id(session), ask).map(|granted| granted.area)
}

fn line(from: u64, len: u64) -> BoxSet {
    BoxSet::of([Region::new(&[from], &[len])])
}

#[test]
fn a_right_extends_to_the_nearest_conflict() {
    let mut table = Table::default();
    use RightMode::{Read, Write};
    assert_eq!(ask(&mut table, 0, Read, line(0, 1)), Some(RightArea::All));
    assert_eq!(ask(&mut table, 1, Read, line(9, 1)), Some(RightArea::All));
    // For readers, only the area that the writer requested.
    assert_eq!(ask(&mut table, 2, Write, line(5, 2)), None);
    let events = table.take_events();
    assert_eq!(events.len(), 2);
    for (_, events) in events {
        let Event::Recall(recall) = events else {
            panic!("{events:?}");
        };
        assert_eq!(recall.keep, None);
        assert_eq!(recall.area.cells().unwrap(), line(5, 2));
    }
    table.give(id(0), INO, HEARD, None, &BoxSet::All);
    table.give(id(1), INO, HEARD, None, &line(3, 100));
    let events = table.take_events();
    let [(_, Event::Granted(granted))] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(
        granted.area,
        RightArea::Boxes(vec![Region::new(&[3], &[100])])
    );
    assert_eq!(granted.serial, RightSerial(1));
    table.give(id(1), INO, HEARD, None, &BoxSet::All);
    let all = ask(&mut table, 2, Write, line(0, 1));
    assert_eq!(all, Some(RightArea::All));
}

#[test]
fn boxes_of_another_rank_are_recalled_completely() {
    let mut table = Table::default();
    use RightMode::Write;
    ask(&mut table, 0, Write, line(0, 1));
    table.give(id(0), INO, HEARD, None, &line(4, 4));
    table.take_events();
    assert_eq!(ask(&mut table, 1, Write, area_of([0])), None);
    let recalled: Vec<BoxSet> = table
        .take_events()
        .into_iter()
        .map(|(_, events)| match events {
            Event::Recall(recall) => recall.area.cells().unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    let [area] = &recalled[..] else {
        panic!("{recalled:?}");
    };
    assert!(holds_line(area, 0) && holds_line(area, 8) && !holds_line(area, 5));
    table.give(id(0), INO, HEARD, None, area);
    assert!(matches!(table.take_events()[..], [(_, Event::Granted(_))]));
}

fn holds_line(area: &BoxSet, at: u64) -> bool {
    area.overlaps(&line(at, 1))
}

#[test]
fn a_holding_with_many_boxes_is_recalled_before_it_is_lost_track_of() {
    let mut table = Table::default();
    ask(&mut table, 0, RightMode::Write, BoxSet::All);
    for at in 0..MANY_BOXES as u64 {
        assert!(table.take_events().is_empty());
        table.give(id(0), INO, HEARD, None, &line(2 * at + 1, 1));
    }
    let events = table.take_events();
    let [(_, Event::Recall(recall))] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((&recall.area, recall.keep), (&RightArea::All, None));
    for at in MANY_BOXES as u64..TOO_MANY_BOXES as u64 {
        assert!(table.take_events().is_empty());
        table.give(id(0), INO, HEARD, None, &line(2 * at + 1, 1));
    }
    assert_eq!(table.take_events(), [(id(0), Event::Lost)]);
    // It counts as holding everything until it resets its rights.
    assert_eq!(ask(&mut table, 1, RightMode::Read, line(1, 1)), None);
    assert!(table.take_events().is_empty());
    table.forget(id(0));
    assert!(matches!(table.take_events()[..], [(_, Event::Granted(_))]));
}
