//! What is to be reached, as the project's issue on speed and memory says it.

use crate::results::Case;
use crate::systems::Kind;

/// What a bound is measured against.
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
    /// Whose.
    pub(crate) system: Kind,
    /// Against what.
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
        ("meta", _, _, "create" | "unlink") => vec![ratio(Kind::Up, Kind::Memory, 0.5)],
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
