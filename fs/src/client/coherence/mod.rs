//! Coherence with other mounts, and between requests of this one: `rights` to data and names, advisory `locks`, and
//! `range_lock`, by which overlapping requests of this mount run one after the other.

pub(in crate::client) mod channel;
pub(in crate::client) mod locks;
pub(in crate::client) mod range_lock;
pub(in crate::client) mod rights;
