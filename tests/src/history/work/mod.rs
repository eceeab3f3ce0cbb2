//! The workloads of a worker: random operations from a seed, on one mount, concurrent with its peers on others.
//!
//! | workload | operations | ordered by |
//! |---|---|---|
//! | `cells` | reads and writes of overlapping cells, by offset and through selections | nothing |
//! | the same, in place | on layouts where writes through selections are done in place | nothing |
//! | `mapped` | cells around the boundary of two pages: one page through a mapping, the other by writes | nothing |
//! | the same, mixed | both pages by both | nothing |
//! | `records` | appends, truncates, sizes, and reads of all | nothing |
//! | `names` | creates, removes, renames and looks up few names | nothing |
//! | `ordered` | overlapping writes without `fsync` that others read | `fcntl` locks, messages, or barriers |
//! | `neighbours` | each worker its own bytes, all of them neighbours | nothing |
//! | `hunt` | a reader, a writer, a mapping and `stat` of the same cells | nothing |
//!
//! A worker does not check answers: the checks do. It panics, and so ends with a status that its runner sees,
//! only where it cannot continue: an object that cannot be opened, a partial append.

mod cells;
mod desk;
mod hunt;
mod mapped;
mod names;
mod neighbours;
mod object;
mod ordered;
mod peers;
mod records;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::check::Promise;
pub use desk::Desk;

/// The workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the table above explains each")]
pub enum Workload {
    Cells,
    InPlace,
    Mapped,
    Mixed,
    Records,
    Names,
    Locked,
    Notified,
    Barriers,
    Neighbours,
    Hunt,
}

/// The parameters of a worker; its only argument, as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    /// Its number, from 0 on.
    pub process: u32,
    /// The number of workers.
    pub processes: u32,
    /// The number of mounts.
    pub mounts: u32,
    /// The path of the object on its mount.
    pub object: PathBuf,
    /// The workload.
    pub workload: Workload,
    /// The promise that the workers rely on.
    pub promise: Promise,
    /// The number of operations.
    pub operations: u64,
    /// The seed of the run: the same for all workers.
    pub seed: u64,
    /// The directory of its log and the pipes to its peers.
    pub dir: PathBuf,
}

/// Runs a task.
///
/// # Panics If something is refused that must not be.
pub fn work(task: Task) {
    let mut desk = Desk::new(task);
    desk.peers.barrier();
    match desk.task.workload {
        Workload::Cells | Workload::InPlace => cells::work(&mut desk),
        Workload::Mapped => mapped::apart(&mut desk),
        Workload::Mixed => mapped::mixed(&mut desk),
        Workload::Records => records::work(&mut desk),
        Workload::Names => names::work(&mut desk),
        Workload::Locked => ordered::by_locks(&mut desk),
        Workload::Notified => ordered::by_messages(&mut desk),
        Workload::Barriers => ordered::by_barriers(&mut desk),
        Workload::Neighbours => neighbours::work(&mut desk),
        Workload::Hunt => hunt::work(&mut desk),
    }
    desk.peers.barrier();
}

/// Creates the workers' object on one mount, before they start.
///
/// # Panics If that fails.
pub fn prepare(workload: Workload, object: &std::path::Path, layout: u64) {
    use crate::{file, tool};
    let array = |dims: &str, dtype: &str, layouts: [&str; 3]| {
        let layout = layouts[layout as usize % 3];
        tool::create(object, dims, dtype, &["--layout", layout]);
    };
    match workload {
        Workload::Cells => array("4,4", "V512", ["aligned"; 3]),
        Workload::InPlace => array("4,4", "V512", ["grid:3,3", "canonical", "grid:2,4"]),
        Workload::Locked | Workload::Notified | Workload::Barriers => {
            array("4,4", "V512", ["aligned", "grid:3,3", "canonical"]);
        }
        Workload::Mapped | Workload::Mixed => {
            array("1024", "u8", ["aligned", "grid:100", "canonical"])
        }
        Workload::Neighbours => array("8,16", "u1", ["aligned", "grid:3,5", "canonical"]),
        Workload::Hunt => array("64,512", "u8", ["aligned", "grid:10,100", "canonical"]),
        Workload::Records => file::write(object, ""),
        Workload::Names => std::fs::create_dir(object).expect("a directory"),
    }
    if workload == Workload::Locked {
        file::write(&file::named(object, ".lock"), "");
    }
}

/// Creates the pipes between workers, before they start.
///
/// # Panics If that fails.
pub fn pipes(dir: &std::path::Path, processes: u32) {
    peers::make(dir, processes);
}
