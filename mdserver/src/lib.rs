//! The metadata service of slabfs: names, attributes, tilings, sessions, data servers.
//!
//! [`api`] declares the operations, a type each with its reply; [`client`] calls them, in process or over a socket;
//! [`service`] answers them; [`server`] listens. The service stores everything in [`kv`], an ordered
//! key-value store with atomic batches: every operation that changes something is one batch.
//! `docs/formats/metadata.md` defines the keys and values; [`check`] verifies a store against it.
//!
//! Inside: `core` has the locks and transactions and their invariants; `namespace`, `tilings`, `sessions` and
//! `placement` are the operations; `keys` and `records` the stored form. [`tags`] has the users' tags on objects, and
//! the search for them.
//!
//! Deliberately elsewhere: data (`slabfs_objstore`), geometry (`slabfs_model`), permission checks
//! (the kernel's).

pub mod api;
pub mod check;
pub mod client;
pub mod dump;
pub mod kv;
pub mod locks;
pub mod rights;
pub mod server;
pub mod service;
pub mod tags;

mod cache;
mod core;
mod keys;
mod matcher;
mod namespace;
mod placement;
mod records;
mod sessions;
mod shards;
mod tilings;
mod txn;

#[cfg(test)]
mod tests;

pub use client::{LocalMd, RemoteMd};
pub use server::MdServer;
pub use service::{Recovery, Service, ServiceError, ServiceOptions};
