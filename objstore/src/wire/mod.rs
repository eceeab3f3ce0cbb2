//! The wire protocol: frames over sockets, between mounts, data servers and the metadata service.
//!
//! A request and its reply are one **frame** each: a fixed header of 32 bytes, a *control* part (small, postcard,
//! checked by the header's CRC) and a *payload* (bulk bytes, exactly as they are in memory). A payload is sent with
//! one vectored write from the sender's memory, and received straight into its destination. `docs/formats/wire.md`
//! draws all of it to the byte.
//!
//! The parts, bottom up:
//! - [`Key`]: the shared secret of TCP connections, and the proofs made with it;
//! - `frame`: the header; `stream`: unix and TCP sockets as one type;
//! - [`Connection`]: frames over one stream, each with a deadline; `hello`: the opening of a connection (versions,
//!   then authentication);
//! - [`Listener`] and [`serve`]: the serving side, a thread a connection, bounded in number; at the bound the
//!   connection that is idle for longest is closed to make room; [`Serving::stop`] joins all threads;
//! - [`Pool`]: the calling side: idle connections in last-in first-out order, reconnect and resend until the
//!   deadline. **Everything sent through a pool must be idempotent**: a request whose reply was lost is sent again;
//! - [`messages`]: the messages between mounts and data servers. The metadata service has its own messages and uses
//!   everything else here.
//!
//! Blocking sockets and threads: the wake-up of a sleeping thread dominates a small request (28 µs on a unix socket),
//! and an async runtime adds to that and costs a third of the stream bandwidth.
//!
//! Deliberately absent: encryption (use a tunnel; the key authenticates the peers when they connect, and later bytes
//! are not protected from an attacker who can change packets), checksums of payloads on unix sockets (over TCP they
//! have one, against damage on the way; chunk stores have their own), several concurrent requests on one connection
//! (open another).

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
