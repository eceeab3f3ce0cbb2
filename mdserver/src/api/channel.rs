//! Wire types that the two channels between a session and its lock server share: the channel of its locks, and that of
//! its rights. `sessions/channel.rs` describes them.

use serde::{Deserialize, Serialize};

/// An epoch of what a session and its lock server agree on: the session's locks, or its rights. Each of the two has its
/// own epochs. Never reused; a later one has a greater number.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
pub struct Epoch(pub u64);

impl Epoch {
    /// No epoch: the session has to begin one.
    pub const UNKNOWN: Self = Self(0);
}

/// An event and its number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Event<K> {
    /// Counts the session's events, from 1 in each epoch.
    pub number: u64,
    /// The event.
    pub kind: K,
}

/// Reply to a poll for events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum News<K> {
    /// The events after those that the caller has; empty if the wait timed out.
    Events(Vec<Event<K>>),
    /// The epoch is over: the session has to begin another one.
    Over,
}
