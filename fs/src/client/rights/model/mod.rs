//! Rights, searched: every order in which what mounts and their lock server do can happen, within bounds.
//!
//! The lock server is the real one ([`slabfs_mdserver::rights::driven`]), and of a mount all that is pure: `cells`,
//! `held` and `state` beside this module. What is modelled is what lies between and around them:
//!
//! - `mount`: what a mount's threads do with that, a step for each critical section (`ask`, `op`, `poll`,
//!   `recall` and `reset` are the threads themselves, and have to be kept like this);
//! - `world`: messages on their ways, data servers with their fence, processes that die, sessions that end, a
//!   lock server that is started anew; and what a program reads and writes, as a number for each cell;
//! - `search`: the properties, and what they are shown with.
//!
//! Of messages: requests of a session are answered in any order; a reply may be lost, and the request is sent
//! again, and then its first copy may arrive at any time later (not at another run of the lock server: a connection
//! does not outlive the process at its end); replies and events overtake each other. A write on its way to a
//! data server arrives at any time, also when its session is over; what is refused then is up to the fence.
//!
//! Steps that touch nothing but a mount, and can only be late, are taken at once ([`mount::Mount`] settles): the
//! search is over what can be seen from outside.
//!
//! Not modelled: pages of mappings (their rules are in `held/tests.rs`), questions for sizes, grants that
//! take many boxes (`mdserver/src/rights/table/tests.rs`), and more objects than one.

mod mount;
mod search;
mod world;

pub(in crate::client) use world::entry;

use slabfs_mdserver::api::RightMode;
use slabfs_mdserver::rights::driven::Flaw;
use slabfs_model::Region;

use super::cells::Cells;

/// What a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Doing {
    Read(usize),
    Write(usize),
    /// Gives the object another rank.
    Declare,
}

impl Doing {
    fn mode(self) -> RightMode {
        match self {
            Doing::Read(_) => RightMode::Read,
            Doing::Write(_) | Doing::Declare => RightMode::Write,
        }
    }

    fn needs(self, rank: usize) -> Cells {
        match self {
            Doing::Read(cell) | Doing::Write(cell) => cell_area(cell, rank),
            Doing::Declare => Cells::All,
        }
    }
}

/// A cell as it is named in an object of some rank.
fn cell_area(cell: usize, rank: usize) -> Cells {
    let mut offset = vec![0; rank];
    offset[0] = cell as u64;
    Cells::of([Region::new(&offset, &vec![1; rank])])
}

/// A mistake of the mount. The model has to see each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Slip {
    /// Gives back what it has not flushed.
    GivesWithoutFlush,
    /// Keeps what it has read when it gives it back, and when it is granted anew.
    KeepsTheCache,
    /// Goes on when it was not heard for long.
    ServesWhenLapsed,
    /// Does not begin anew when its epoch is over.
    StaysInItsLife,
    /// Goes into another epoch while something runs, and does not say what that needs.
    ForgetsWhatRuns,
    /// Gives, in another epoch, what an operation touches that was only counted while the mount was alone.
    GivesWhatIsCounted,
}

/// How far the search goes.
#[derive(Debug, Clone)]
struct Bounds {
    /// What programs do, on each mount: all at the same time, in any order.
    programs: Vec<Vec<Doing>>,
    cells: usize,
    /// Mounts that come later, the last of them.
    late: usize,
    /// How often a process is killed, a mount is not heard for long, the lock server is started anew, a reply is
    /// lost, a program gives up waiting, and a mount writes back what it has written unasked.
    deaths: u8,
    lapses: u8,
    restarts: u8,
    losses: u8,
    withdrawals: u8,
    flushes: u8,
    /// Mounts close the object in the end.
    closes: bool,
    /// Operations of a mount that is alone are listed, as long ones are; else they are only counted.
    long: bool,
    flaw: Option<Flaw>,
    slip: Option<Slip>,
}
