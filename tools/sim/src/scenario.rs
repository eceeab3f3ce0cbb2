//! What programs do, on clusters of a size.

use crate::costs::{COSTS, Seconds};
use crate::engine::{Engine, Request};

/// Bytes that each program writes or reads in a step.
pub(crate) const BYTES: f64 = 8.0 * 1_048_576.0;
/// Mounts for each data server.
const MOUNTS_A_SERVER: usize = 16;

/// What all programs do at the same time, one a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Work {
    /// Each writes a file of its own, and syncs it.
    Files,
    /// All write to one array, each one chunk, and sync it.
    Shared,
    /// Each opens and reads a file that it has not seen before.
    Read,
}

/// The size of a cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) mounts: usize,
    pub(crate) shards: usize,
}

impl Size {
    pub(crate) fn servers(self) -> usize {
        self.mounts.div_ceil(MOUNTS_A_SERVER)
    }
}

/// What came of it.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// Until the last program was done.
    pub(crate) time: Seconds,
    /// How long the bytes alone take.
    pub(crate) ideal: Seconds,
    pub(crate) messages: u64,
    pub(crate) transactions: u64,
    /// The process that was busy for the longest time, and the part of the time.
    pub(crate) busiest: (String, f64),
}

/// A step of all programs.
pub(crate) fn play(work: Work, size: Size) -> Outcome {
    let Size { mounts, shards } = size;
    let servers = size.servers();
    // The shards, with the names in the first one; then etcd, the data servers, the mounts' networks.
    let etcd = shards;
    let server = |i: usize| etcd + 1 + i % servers;
    let mount = |i: usize| etcd + 1 + servers + i;
    // The first shard has names only.
    let shard_of = |object: usize| match shards {
        1 => 0,
        _ => 1 + object % (shards - 1),
    };
    let mut engine = Engine::new(etcd + 1 + servers + mounts, shards, etcd);
    let of_metadata = |program, time, log| Request {
        program,
        time,
        bytes: 0.0,
        log,
    };
    let of_data = |program, rate: f64, request| Request {
        program,
        time: request + BYTES / rate,
        bytes: BYTES,
        log: None,
    };
    // The steps of a program: each is a process and a request.
    let step = |program: usize, step: usize| {
        let object = match work {
            Work::Shared => 0,
            Work::Files | Work::Read => program + 1,
        };
        let shard = shard_of(object);
        let network = (mount(program), of_data(program, COSTS.mount_bytes, 0.0));
        let data = (
            server(program),
            of_data(program, COSTS.data_bytes, COSTS.data_request),
        );
        let steps = match work {
            // Without shards a create is one request.
            Work::Files => vec![
                Some((0, of_metadata(program, COSTS.create, Some(0)))),
                (shards > 1).then(|| (shard, of_metadata(program, COSTS.create, Some(shard)))),
                Some(network),
                Some(data),
                Some((shard, of_metadata(program, COSTS.commit, Some(shard)))),
            ],
            Work::Shared => vec![
                Some(network),
                Some(data),
                Some((shard, of_metadata(program, COSTS.commit, Some(shard)))),
            ],
            Work::Read => vec![
                Some((0, of_metadata(program, COSTS.lookup, None))),
                (shards > 1).then(|| (shard, of_metadata(program, COSTS.lookup, None))),
                // The right and the tiling.
                Some((shard, of_metadata(program, COSTS.lookup, None))),
                Some((shard, of_metadata(program, COSTS.lookup, None))),
                Some(data),
                Some(network),
            ],
        };
        steps.into_iter().flatten().nth(step)
    };
    let mut at = vec![0; mounts];
    for program in 0..mounts {
        if let Some((process, request)) = step(program, 0) {
            // Not all in the same microsecond.
            engine.send(process, request, program as f64 * 1e-7);
        }
    }
    let mut time = 0.0;
    while let Some(program) = engine.next_reply() {
        at[program] += 1;
        match step(program, at[program]) {
            Some((process, request)) => engine.send(process, request, 0.0),
            None => time = engine.now,
        }
    }
    let name = |process: usize| match process {
        0 if shards > 1 => "names".to_owned(),
        0 => "metadata".to_owned(),
        process if process < shards => "a shard".to_owned(),
        process if process == etcd => "etcd".to_owned(),
        process if process <= etcd + servers => "a data server".to_owned(),
        _ => "a mount's network".to_owned(),
    };
    let all = engine.processes.iter().enumerate();
    let busiest = all.max_by(|a, b| a.1.busy.total_cmp(&b.1.busy));
    let bytes = BYTES * mounts as f64;
    let rate = (COSTS.data_bytes * servers as f64).min(COSTS.mount_bytes * mounts as f64);
    Outcome {
        time,
        ideal: bytes / rate,
        messages: engine.processes.iter().map(|done| done.messages).sum(),
        transactions: engine.transactions(),
        busiest: busiest.map_or((String::new(), 0.0), |(process, done)| {
            (name(process), done.busy / time)
        }),
    }
}

/// The part of a second that heartbeats take, one a second of each mount and data server: of a shard, if a mount has a session
/// with all of them, and if only with the names and with those of the objects that it uses.
pub(crate) fn heartbeats(size: Size, used: usize) -> (f64, f64) {
    let servers = size.servers() as f64;
    let mounts = size.mounts as f64;
    let some = mounts * used.min(size.shards) as f64 / size.shards as f64;
    (
        (mounts + servers) * COSTS.lookup,
        (some + servers) * COSTS.lookup,
    )
}

/// Bytes of the checkpoint of a shard, and the time in which a standby without a copy loads it.
pub(crate) fn start(objects: f64, chunks: f64, shards: usize) -> (f64, Seconds) {
    let shards = shards as f64;
    let bytes = objects * COSTS.object_record + chunks * COSTS.chunk_record;
    (bytes / shards, (objects + chunks) / shards / COSTS.loads)
}
