//! The metadata service on several machines: its journal is in etcd.
//!
//! What is the truth of a metadata service on one machine, a journal and a checkpoint in a directory, is in places that
//! any machine reaches: the journal in etcd ([`Log`]), the checkpoints in a directory that all machines share, or in a
//! bucket ([`Checkpoints`]). Several services run; one of them is the *leader*, and the others are *standbys*.
//!
//! - [`Lease`]: the leader has a key in etcd that ends with its lease. What it writes to the log has the condition
//!   that this key is still its own, so a leader that was replaced can write nothing. It also stops answering before
//!   the lease can end, by its own clock: what it reads from memory may be old after that.
//! - [`EtcdKv`]: the leader's store. A commit changes the copy in the service's directory, which is an ordinary
//!   [`LocalKv`](slabfs_mdserver::kv::LocalKv), and is queued; a sync writes the queue to the log, many commits in one
//!   transaction. No reply leaves before the commits that it may tell of are in the log
//!   ([`MetaKv::before_reply`](slabfs_mdserver::kv::MetaKv::before_reply)).
//! - [`Standby`]: follows the log into its own copy until it is the leader.
//!
//! Invariants:
//! 1. The log is the truth; a copy is a prefix of it, except that of a leader, which may have commits more. A leader
//!    marks its copy before the first commit, and removes the mark when it ends in order. A marked copy is discarded.
//! 2. A commit has the same number in the log and in each copy.
//! 3. Records are removed from the log only when they are in a checkpoint that a transaction of the leader has named.
//!
//! `docs/formats/etcd.md` has the keys and values, `docs/decisions/31-etcd.md` the reasons. Deliberately elsewhere:
//! consensus, replication and the clock of leases, which are etcd's.

mod address;
mod block;
mod checkpoints;
mod client;
mod copy;
mod error;
mod import;
mod kv;
mod lease;
mod log;
mod standby;

pub use address::EtcdAddr;
pub use checkpoints::{Checkpoints, CheckpointsAddr};
pub use client::Etcd;
pub use error::EtcdError;
pub use import::import;
pub use kv::EtcdKv;
pub use lease::{Leader, Lease};
pub use log::{Log, agree_on_shards};
pub use standby::{Elected, Standby};
