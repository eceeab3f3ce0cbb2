//! The wire: frames over sockets, between mounts, data servers and the metadata service.
//!
//! A request and its reply are one **frame** each: a fixed header of 32 bytes, a *control* part
//! (small, postcard, checked by the header's CRC) and a *payload* (bulk bytes, exactly as they lie
//! in memory). A payload is sent with one vectored write from where the bytes are, and received
//! straight into where they belong. `docs/formats/wire.md` draws all of it to the byte.
//!
//! The parts, bottom up:
//! - [`Key`]: the shared secret of TCP connections, and the proofs made with it;
//! - `frame`: the header; `stream`: unix and TCP sockets as one type;
//! - [`Connection`]: frames over one stream, each with a deadline; `hello`: how one begins
//!   (versions, then who is who);
//! - [`Listener`] and [`serve`]: the serving side, a thread a connection, bounded in number; when the
//!   bound is reached the connection idle for longest makes room; [`Serving::stop`] joins them all;
//! - [`Pool`]: the calling side: idle connections kept last-in first-out, reconnect and resend until
//!   the deadline. **Everything sent through a pool must be idempotent**: a request whose reply was
//!   lost is sent again;
//! - [`messages`]: what mounts and data servers say to each other. The metadata service has its own
//!   messages and uses everything else here.
//!
//! Blocking sockets and threads: a wake-up of a sleeping thread dominates a small request (28 µs on
//! a unix socket), and an async runtime adds to that and costs a third of the stream bandwidth.
//!
//! Deliberately absent: encryption (use a tunnel; the key proves who connects, and nothing protects
//! later bytes from somebody who can change packets), checksums of payloads (chunk stores keep their
//! own), several requests at the same time on one connection (open another).

mod connection;
mod error;
mod frame;
mod hello;
mod key;
mod listener;
pub mod messages;
mod pool;
mod roster;
mod serve;
mod stream;
#[cfg(test)]
mod tests;
mod trailer;

pub use connection::{Buffers, Connection, Frame, Incoming};
pub use error::{WireError, WireResult};
pub use frame::{FIRST_FREE_KIND, MAX_CONTROL, MAX_DATA, MAX_FILES, MAX_PAYLOAD, REPLY, VERSIONS};
pub use key::Key;
pub use listener::Listener;
pub use pool::{FilesReply, Flight, Pool, Second, Take, Until};
pub use serve::{
    Call, Handler, Outgoing, Replier, ServeOptions, Serving, UntilNext, serve, serve_with,
};
pub(crate) use trailer::{TRAILER, read as read_trailer, trailer};
