//! The metadata service of slabfs: names, attributes, tilings, sessions, data servers.
//!
//! [`api`] holds the messages and the typed wrapper clients use; [`client`] carries them in process
//! or over a socket; [`service`] answers them; [`server`] listens. Under the service lies [`kv`], an
//! ordered store of keys whose batches are atomic: every operation that changes something is one
//! batch. What lies under which key is `docs/formats/metadata.md`.
//!
//! Deliberately elsewhere: data (`slabfs_objstore`), geometry (`slabfs_model`), permission checks
//! (the kernel's).

pub mod api;
pub mod kv;
