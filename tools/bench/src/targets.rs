//! The targets, from the project's issues on speed and memory, and on the metadata service.

/// One target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Target {
    /// The column whose number counts.
    pub(crate) column: &'static str,
    /// The columns of which it is a multiple: of the best of them; none, and the number itself counts.
    pub(crate) of: &'static [&'static str],
    /// Whether the bound is the most that is allowed, and not the least.
    pub(crate) at_most: bool,
    /// The bound.
    pub(crate) bound: f64,
}

fn times(column: &'static str, of: &'static [&'static str], bound: f64) -> Target {
    Target {
        column,
        of,
        at_most: false,
        bound,
    }
}

fn at_least(column: &'static str, bound: f64) -> Target {
    times(column, &[], bound)
}

fn at_most(column: &'static str, bound: f64) -> Target {
    Target {
        at_most: true,
        ..at_least(column, bound)
    }
}

/// The targets of a row of a table; most have none.
pub(crate) fn of(table: &str, labels: &[&str]) -> Vec<Target> {
    match table {
        "cases" => of_groups(labels),
        "search" => of_search(labels).into_iter().collect(),
        "mpi" => of_mpi(labels),
        "transfer" => of_transfer(labels),
        _ => Vec::new(),
    }
}

fn of_groups(labels: &[&str]) -> Vec<Target> {
    let split = times("split", &["up"], 0.7);
    let pages = |up| vec![times("up", &["pages"], up), split];
    let null = |up, split| vec![times("up", &["null"], up), times("split", &["null"], split)];
    match labels {
        ["seq", _, "1024", "1", "read"] => null(0.65, 0.35),
        ["seq", _, "1024", "1", "write"] => [null(0.60, 0.35), pages(0.8)].concat(),
        ["seq", _, "1024", "1", "overwrite" | "sustained"] => null(0.60, 0.35),
        ["seq", _, "1024", "4", "read"] => null(0.55, 0.20),
        ["seq", _, "1024", "4", "sustained"] => null(0.45, 0.20),
        ["iops", _, _, _, "read"] => vec![times("up", &["null"], 0.80)],
        ["meta", _, _, _, "create" | "open" | "unlink"] => pages(0.8),
        ["pages", ..] => pages(0.8),
        ["programs", .., "untar"] => vec![times("up", &["bindfs"], 0.8), split],
        ["programs", .., "sqlite"] => pages(0.7),
        ["columns", _, _, _, "both"] => vec![times("up", &["bindfs"], 3.0)],
        ["memory", _, _, _, "peak"] => vec![at_most("up", 512.0), at_most("split", 512.0)],
        _ => Vec::new(),
    }
}

/// From the issue on the metadata service, for four clients and up to a million objects.
fn of_search(labels: &[&str]) -> Option<Target> {
    let own = "slabfs";
    Some(match labels.last().copied()? {
        "exact" | "prefix" | "range" => at_least(own, 20_000.0),
        "suffix" | "infix" => at_least(own, 2000.0),
        "common and rare: times an exact one" => at_most(own, 1.5),
        "tag puts" => at_least(own, 12_000.0),
        "tag puts in batches of 100" => at_least(own, 20_000.0),
        "creates" => at_least(own, 15_000.0),
        "creates in batches of 100" => at_least(own, 60_000.0),
        "opens" => at_least(own, 30_000.0),
        "start after a clean stop" | "start after kill -9" => at_most(own, 5.0),
        "memory at the end" | "memory at most, under load" | "memory at most since the start" => {
            at_most(own, 1024.0)
        }
        _ => return None,
    })
}

/// The least speed-up over the faster of GlusterFS and MooseFS, and over bindfs on one node; for writing and
/// for reading alike.
fn of_mpi(labels: &[&str]) -> Vec<Target> {
    let distributed = |bound| times("slabfs", &["glusterfs", "moosefs"], bound);
    match labels {
        ["box", _] => vec![distributed(2.0), times("slabfs-unix", &["bindfs"], 1.0)],
        ["strided", _] => vec![distributed(2.0)],
        ["own", _] => vec![distributed(1.2)],
        _ => Vec::new(),
    }
}

fn of_transfer(labels: &[&str]) -> Vec<Target> {
    let own = "slabfs";
    match labels {
        ["nested read", "8"] => vec![times(own, &["pread"], 50.0)],
        ["nested read", "16" | "32"] => Vec::new(),
        ["nested read", "512"] => {
            vec![times(own, &["sieving"], 5.0), times(own, &["raw"], 0.5)]
        }
        ["nested read", _] => vec![times(own, &["raw"], 0.5)],
        ["regions written" | "regions read", _] => vec![times(own, &["raw"], 0.8)],
        ["small written", _] => vec![at_least(own, 30_000.0)],
        ["small read", _] => vec![at_least(own, 60_000.0)],
        ["hidden by a sleep", _] => vec![at_least(own, 90.0)],
        _ => Vec::new(),
    }
}
