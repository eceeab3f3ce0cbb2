//! The targets, from the project's issues on speed and memory, and on the metadata service.

use crate::results::Case;
use crate::systems::Kind;

/// The reference of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reference {
    /// At least this many times as good as that system in the same case.
    Ratio(Kind),
    /// The number itself, at most.
    AtMost,
}

/// One target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Target {
    /// The system.
    pub(crate) system: Kind,
    /// The reference.
    pub(crate) reference: Reference,
    /// The bound.
    pub(crate) bound: f64,
}

/// The targets of a case; most cases have none.
pub(crate) fn of(case: &Case) -> Vec<Target> {
    let ratio = |system, to, bound| Target {
        system,
        reference: Reference::Ratio(to),
        bound,
    };
    let null = |up, split| {
        vec![
            ratio(Kind::Up, Kind::Null, up),
            ratio(Kind::Split, Kind::Null, split),
        ]
    };
    match (case.group, case.request, case.jobs, case.what) {
        ("seq", 1024, 1, "read") => null(0.65, 0.35),
        ("seq", 1024, 1, "write" | "overwrite" | "sustained") => null(0.60, 0.35),
        ("seq", 1024, 4, "read") => null(0.55, 0.20),
        ("seq", 1024, 4, "sustained") => null(0.45, 0.20),
        ("iops", _, _, "read") => vec![ratio(Kind::Up, Kind::Null, 0.80)],
        ("meta", _, _, "create") => vec![ratio(Kind::Up, Kind::Memory, 0.6)],
        ("meta", _, _, "unlink") => vec![ratio(Kind::Up, Kind::Memory, 0.5)],
        ("columns", _, _, "both") => vec![ratio(Kind::Up, Kind::Bindfs, 3.0)],
        ("memory", _, _, "peak") => [Kind::Up, Kind::Split]
            .map(|system| Target {
                system,
                reference: Reference::AtMost,
                bound: 512.0,
            })
            .to_vec(),
        _ => Vec::new(),
    }
}

/// A bound for a number of `slabfs-bench search`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    /// At least.
    AtLeast(f64),
    /// At most.
    AtMost(f64),
}

/// The target of a line of `slabfs-bench search`, from the issue on the metadata service, for four clients and
/// up to a million objects; some lines have none.
pub(crate) fn of_search(what: &str) -> Option<Bound> {
    Some(match what {
        "exact" | "prefix" | "range" => Bound::AtLeast(20_000.0),
        "suffix" | "infix" => Bound::AtLeast(2000.0),
        "common and rare: times an exact one" => Bound::AtMost(1.5),
        "tag puts" => Bound::AtLeast(12_000.0),
        "tag puts in batches of 100" => Bound::AtLeast(20_000.0),
        "creates" => Bound::AtLeast(15_000.0),
        "creates in batches of 100" => Bound::AtLeast(60_000.0),
        "opens" => Bound::AtLeast(30_000.0),
        "start after a clean stop" | "start after kill -9" => Bound::AtMost(5.0),
        "memory at the end" | "memory at most, under load" | "memory at most since the start" => {
            Bound::AtMost(1024.0)
        }
        _ => return None,
    })
}

/// The least speed-up that `slabfs-bench mpi` requires of slabfs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MpiTarget {
    /// Over the faster of GlusterFS and MooseFS.
    pub(crate) distributed: f64,
    /// Over bindfs on one node.
    pub(crate) bindfs: Option<f64>,
}

/// The targets of a pattern, for writing and for reading alike.
pub(crate) fn of_mpi(pattern: crate::mpi::Pattern) -> MpiTarget {
    use crate::mpi::Pattern;
    let (distributed, bindfs) = match pattern {
        Pattern::Box => (2.0, Some(1.0)),
        Pattern::Strided => (2.0, None),
        Pattern::Own => (1.2, None),
    };
    MpiTarget {
        distributed,
        bindfs,
    }
}

/// A bound for a number of `slabfs-bench transfer`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TransferTarget {
    /// As a multiple of this column; the number itself if `None`.
    pub(crate) times: Option<&'static str>,
    /// At least.
    pub(crate) bound: f64,
}

/// The targets of a case of `slabfs-bench transfer` with pieces or regions of `bytes` bytes.
pub(crate) fn of_transfer(case: &str, bytes: u64) -> Vec<TransferTarget> {
    let times = |column, bound| TransferTarget {
        times: Some(column),
        bound,
    };
    let number = |bound| TransferTarget { times: None, bound };
    match (case, bytes) {
        ("nested read", 8) => vec![times("pread", 50.0)],
        ("nested read", 512) => vec![times("sieving", 5.0), times("raw", 0.5)],
        ("nested read", 64..) => vec![times("raw", 0.5)],
        ("regions written" | "regions read", _) => vec![times("raw", 0.8)],
        ("small written", _) => vec![number(30_000.0)],
        ("small read", _) => vec![number(60_000.0)],
        ("hidden by a sleep", _) => vec![number(90.0)],
        _ => Vec::new(),
    }
}
