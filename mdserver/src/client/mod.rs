//! Clients of a metadata service: [`LocalMd`] in this process, [`RemoteMd`] over a socket.

mod local;
mod remote;

pub use local::LocalMd;
pub use remote::RemoteMd;
