//! The metadata service of slabfs: names, attributes, tilings, sessions, data servers.
//!
//! [`api`] holds the messages and the typed wrapper clients use; [`client`] carries them in process
//! or over a socket; [`service`] answers them; [`server`] listens. Under the service lies [`kv`], an
//! ordered store of keys whose batches are atomic: every operation that changes something is one
//! batch. What lies under which key is `docs/formats/metadata.md`; [`check`] holds a store to it.
//!
//! Inside: `core` has the locks and transactions and what they keep true; `namespace`, `tilings`,
//! `sessions` and `placement` are the operations; `keys` and `records` the stored form. [`tags`] has what
//! people say about objects, and the search for it.
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

mod brief;
mod cache;
mod core;
mod keys;
mod namespace;
mod placement;
mod records;
mod sessions;
mod tilings;
mod txn;

#[cfg(test)]
mod tests;

pub use client::{LocalMd, RemoteMd};
pub use server::MdServer;
pub use service::{Recovery, Service, ServiceError, ServiceOptions};
