//! Model checking of rights: a search over all orders of events of mounts and their lock server, within bounds.
//!
//! The lock server is the real one ([`slabfs_mdserver::rights::driven`]), and so are the pure parts of a mount:
//! `cells`, `held` and `state` next to this module. The rest is modelled:
//!
//! - `mount`: the mount's threads, a step for each critical section (the real threads are `ask`, `op`, `poll`,
//!   `recall` and `reset`; the model has to follow them);
//! - `world`: messages in flight, data servers with their fence, processes that die, sessions that end, restarts of
//!   the lock server; and the data that programs read and write, as a number for each cell;
//! - `search`: the properties, and the tests that check them.
//!
//! Messages: requests of a session are answered in any order; a reply may be lost, and the request is sent again, and
//! then its first copy may arrive at any later time (but not at another run of the lock server: a connection ends
//! with the process at its end); replies and events overtake each other. A write in flight to a data server arrives
//! at any time, also after the end of its session; rejecting it is then up to the fence.
//!
//! Steps that affect nothing but one mount, and can only be late, are taken at once ([`mount::Mount`] settles): the
//! search is over the externally visible steps.
//!
//! Not modelled: pages of mappings (their rules are tested in `held/tests.rs`), size requests, grants of many boxes
//! (`mdserver/src/rights/table/tests.rs`), and more than one object.

mod mount;
mod search;
mod world;

pub(in crate::client) use world::entry;

use slabfs_mdserver::api::RightMode;
use slabfs_mdserver::rights::driven::Flaw;
use slabfs_model::Region;

use slabfs_model::BoxSet;

/// An operation of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Doing {
    Read(usize),
    Write(usize),
    /// Changes the rank of the object.
    Declare,
}

impl Doing {
    fn mode(self) -> RightMode {
        match self {
            Doing::Read(_) => RightMode::Read,
            Doing::Write(_) | Doing::Declare => RightMode::Write,
        }
    }

    fn needs(self, rank: usize) -> BoxSet {
        match self {
            Doing::Read(cell) | Doing::Write(cell) => cell_area(cell, rank),
            Doing::Declare => BoxSet::All,
        }
    }
}

/// A cell, as a region of an object of some rank.
fn cell_area(cell: usize, rank: usize) -> BoxSet {
    let mut offset = vec![0; rank];
    offset[0] = cell as u64;
    BoxSet::of([Region::new(&offset, &vec![1; rank])])
}

/// A bug injected into the mount. The search has to detect each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Slip {
    /// Releases rights without flushing.
    ReleasesWithoutFlush,
    /// Keeps its cached blocks when it releases rights, and when it is granted them again.
    KeepsTheCache,
    /// Continues to serve after its lease has lapsed.
    ServesWhenLapsed,
    /// Does not begin another epoch when its epoch is over.
    StaysInItsEpoch,
    /// Begins another epoch while operations run, and does not report the rights they need.
    ForgetsRunningOps,
    /// Releases, in another epoch, the cells of an operation that was only counted while the mount was alone.
    ReleasesCountedRights,
}

/// The bounds of the search.
#[derive(Debug, Clone)]
struct Bounds {
    /// The operations of programs, on each mount: all at the same time, in any order.
    programs: Vec<Vec<Doing>>,
    cells: usize,
    /// Number of mounts that attach late, the last ones of the list.
    late: usize,
    /// How often a process is killed, a lease lapses, the lock server is restarted, a reply is lost, a program stops
    /// waiting, and a mount writes back dirty data without a recall.
    deaths: u8,
    lapses: u8,
    restarts: u8,
    losses: u8,
    withdrawals: u8,
    flushes: u8,
    /// Mounts close the object in the end.
    closes: bool,
    /// Operations of a mount that is alone are listed, as long ones are; otherwise they are only counted.
    long: bool,
    flaw: Option<Flaw>,
    slip: Option<Slip>,
}
