//! A service behind a socket.
//!
//! A call is sent again, on a new connection, until it is answered or its deadline is over; the
//! service keeps replies, so that it is done once. Also the way data servers register.

use slabfs_model::SessionId;
use slabfs_objstore::server::{Registrar, ServerOrders, ServerReport};
use slabfs_objstore::wire::{Key, Pool, WireError};
use slabfs_objstore::{Addr, StoreError};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::api::{MdError, Metadata, Op, Reply, Request};
use crate::server::{Envelope, KIND_CALL};
use crate::service::registrar_error;

/// A service behind a socket. Connects when it is first called.
#[derive(Debug)]
pub struct RemoteMd {
    pool: Pool,
    sessions: AtomicU32,
}

impl RemoteMd {
    /// A service at `addr`; TCP needs the shared key. Each call may take until `deadline`.
    #[must_use]
    pub fn connect(addr: Addr, key: Option<Key>, deadline: Duration) -> Self {
        Self {
            pool: Pool::new(addr, key, deadline),
            sessions: AtomicU32::new(1),
        }
    }

    /// Ends all waiting for a service that is away.
    pub fn close(&self) {
        self.pool.close();
    }

    fn unavailable(&self, error: WireError) -> MdError {
        match error {
            WireError::Unavailable { addr, detail } => MdError::Unavailable { addr, detail },
            WireError::TooLarge { .. } => MdError::Invalid(error.to_string()),
            WireError::Fault { detail, .. } => MdError::Protocol(detail),
            other => MdError::Unavailable {
                addr: self.pool.addr().to_string(),
                detail: other.to_string(),
            },
        }
    }
}

impl Metadata for RemoteMd {
    fn call(&self, request: Request) -> Result<Reply, MdError> {
        let control = postcard::to_stdvec(&request)
            .map_err(|error| MdError::Protocol(format!("cannot encode the request: {error}")))?;
        let mut payload = Vec::new();
        let reply = self
            .pool
            .call(KIND_CALL, &control, &[], &mut payload)
            .map_err(|error| self.unavailable(error))?;
        let Envelope { sessions, result } = postcard::from_bytes(&reply)
            .map_err(|error| MdError::Protocol(format!("cannot read the reply: {error}")))?;
        self.sessions.store(sessions, Ordering::Release);
        result
    }

    fn session_count(&self) -> u32 {
        self.sessions.load(Ordering::Acquire)
    }
}

impl Registrar for RemoteMd {
    fn heartbeat(&self, report: ServerReport) -> Result<ServerOrders, StoreError> {
        let op = Op::RegisterServer(report);
        let request = Request {
            session: SessionId(0),
            seq: 0,
            done_below: 0,
            op,
        };
        match self.call(request) {
            Ok(Reply::Orders(orders)) => Ok(orders),
            Ok(other) => Err(StoreError::Protocol(format!("unexpected reply {other:?}"))),
            Err(error) => Err(registrar_error(&error)),
        }
    }
}
