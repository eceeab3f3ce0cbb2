//! The object store: arrays in, bytes out.
//!
//! This crate stores *chunks*: boxes of cells, each stored contiguously on one data server, with a codec and
//! checksums. Names of objects, dims and tilings belong to the metadata service.
//!
//! - [`name`], [`addr`], [`error`], [`Moment`]: the basic types.
//! - [`codec`] and [`checksum`]: pure functions over bytes.
//! - [`store`]: the [`ChunkStore`] trait, the engine over a local directory, and the conformance suite.
//! - [`interrupt`]: calls that end when the user of a program presses Ctrl-C.
//! - `cut`: cuts a slab that is too large for one message or one read.
//! - `batch`: the bytes of nested strided requests, read from chunks and written to them.
//! - [`wire`]: frames and connections, used by the metadata service as well.
//! - [`server`]: a data server: a chunk store behind a listener.
//! - [`client`]: all data servers a mount knows, and the fan-out over them.

pub mod addr;
mod batch;
pub mod checksum;
pub mod client;
pub mod codec;
mod cut;
pub mod error;
mod fill;
pub mod interrupt;
mod moment;
pub mod name;
pub mod server;
pub mod store;
pub mod wire;

pub use addr::{Addr, Addrs};
pub use error::StoreError;
pub use moment::Moment;
pub use name::{ChunkForm, ChunkName};
pub use store::ChunkStore;
