//! Tests of the complete service, over a store in memory or on disk.

mod arrays;
mod bounds;
mod cached;
mod clocks;
mod cuts;
mod defaults;
pub(crate) mod dumps;
mod fencing;
mod find;
mod glances;
mod locks;
mod million;
mod moving;
mod names;
mod placing;
mod power;
mod reserves;
mod restarts;
mod retiring;
mod rights;
mod sessions;
mod short;
mod sockets;
mod speed;
pub(crate) mod support;
mod tags;
mod tilings;
