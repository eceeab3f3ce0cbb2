//! The caller's side of the metadata service: [`Md`], a session with it, over [`LocalMd`] in this process or
//! [`RemoteMd`] behind a socket; [`Shards`], the sessions with all shards of a filesystem.

mod calls;
mod local;
mod md;
pub(crate) mod name_cache;
mod remote;
mod shards;

pub use local::LocalMd;
pub use md::{Md, Requests};
pub use remote::RemoteMd;
pub use shards::Shards;
