//! What each step costs. Measured ones are from `docs/benchmarks.md` (two processors of a virtual machine that all processes share,
//! so a machine of its own is faster); those that are assumed say so.

/// Seconds.
pub(crate) type Seconds = f64;

/// The costs of a cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Costs {
    /// A request to a metadata service that changes something: a create is 1 / 43,546 s, a commit 1 / 59,778 s.
    pub(crate) create: Seconds,
    pub(crate) commit: Seconds,
    /// One that reads: a lookup is 1 / 115,353 s. Heartbeats and requests for rights are taken to cost the same.
    pub(crate) lookup: Seconds,
    /// A transaction of etcd, without its bytes: 2,000 small ones a second were seen.
    pub(crate) transaction: Seconds,
    /// Bytes a second that etcd writes to its log; assumed.
    pub(crate) etcd_bytes: f64,
    /// A record of one commit in the journal, and of one chunk in a checkpoint, in bytes. The latter was measured (a dump of 800 chunks
    /// had 38,306 bytes), the former is assumed to be four times as long, with the inode that changes.
    pub(crate) record: f64,
    pub(crate) chunk_record: f64,
    /// A request to a data server, without its bytes; assumed.
    pub(crate) data_request: Seconds,
    /// Bytes a second of a data server to its store: 643 MiB/s to a bucket were measured.
    pub(crate) data_bytes: f64,
    /// Bytes a second of a mount's network; assumed (25 Gbit/s).
    pub(crate) mount_bytes: f64,
    /// A message from one machine to another; assumed.
    pub(crate) latency: Seconds,
    /// Objects a second that a standby loads: 1,000,000 in 3.0 s.
    pub(crate) loads: f64,
    /// The bytes of a checkpoint of 1,000,000 objects divided by their number; assumed.
    pub(crate) object_record: f64,
}

pub(crate) const COSTS: Costs = Costs {
    create: 1.0 / 43_546.0,
    commit: 1.0 / 59_778.0,
    lookup: 1.0 / 115_353.0,
    transaction: 1.0 / 2000.0,
    etcd_bytes: 100e6,
    record: 192.0,
    chunk_record: 48.0,
    data_request: 20e-6,
    data_bytes: 643.0 * 1_048_576.0,
    mount_bytes: 3.1e9,
    latency: 50e-6,
    loads: 1e6 / 3.0,
    object_record: 200.0,
};
