//! Committed bytes: which parts of which chunks have them, and what of them is cached here.
//!
//! `tilings` are the cached tilings, `committed` plans and reads parts of chunks, `grid_io` computes and changes the
//! chunks of grids, `holes` and `layout` report them. `block_cache` and `ahead` keep bytes, `same_host` reads through
//! files of data servers on this host.

pub(in crate::client) mod ahead;
pub(in crate::client) mod block_cache;
pub(in crate::client) mod committed;
pub(in crate::client) mod grid_io;
pub(in crate::client) mod holes;
pub(in crate::client) mod layout;
pub(in crate::client) mod same_host;
pub(in crate::client) mod tilings;
