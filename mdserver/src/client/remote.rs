//! Client of a metadata service behind a socket.
//!
//! A call is resent, on a new connection, until it is answered or its deadline expires; the service's reply cache
//! makes it happen only once. Data servers register this way, too.

use slabfs_model::SessionId;
use slabfs_objstore::server::{Registrar, ServerOrders, ServerReport};
use slabfs_objstore::wire::{Key, Pool, WireError};
use slabfs_objstore::{Addrs, StoreError};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::api::{MdError, Metadata, Op, Reply, Request, call_without_session, op};
use crate::server::{Envelope, KIND_CALL};
use crate::service::registrar_error;

/// A heartbeat that is unanswered for this long is sent again on a new connection, then after twice this time, and so
/// on. After a link was cut for some seconds, retransmission on the old connection takes that long again; the session
/// would be over by then.
const HURRY: Duration = Duration::from_secs(2);

/// A client of a service behind a socket. Connects at the first call.
#[derive(Debug)]
pub struct RemoteMd {
    pool: Pool,
    sessions: AtomicU32,
}

impl RemoteMd {
    /// A client of the service at this address, or at one of these; TCP needs the shared key. Each call may take until
    /// `deadline`.
    #[must_use]
    pub fn connect(addrs: impl Into<Addrs>, key: Option<Key>, deadline: Duration) -> Self {
        Self {
            pool: Pool::new(addrs, key, deadline),
            sessions: AtomicU32::new(1),
        }
    }

    /// Ends all waiting for an unreachable service.
    pub fn close(&self) {
        self.pool.close();
    }

    /// Checks, for at most `patience`, whether a metadata service answers and accepts this process.
    ///
    /// # Errors
    /// A transient one ([`WireError::is_transient`]) if none answers yet; another if the peer refuses this process,
    /// or is no metadata service.
    pub fn greet(&self, patience: Duration) -> Result<(), WireError> {
        let protocol = |detail: String| WireError::Protocol {
            addr: self.pool.addr().to_string(),
            detail,
        };
        let request = Request::unnumbered(SessionId(0), op::Servers {});
        let control = postcard::to_stdvec(&request)
            .map_err(|error| protocol(format!("cannot encode the request: {error}")))?;
        let until = Instant::now() + patience;
        let reply = self
            .pool
            .call_until(KIND_CALL, &control, &[], until, &mut Vec::new())?;
        match postcard::from_bytes::<Envelope>(&reply) {
            Ok(_) => Ok(()),
            Err(error) => Err(protocol(format!("cannot read the reply: {error}"))),
        }
    }

    /// Makes a call that is repeated, within its deadline, if the answer takes long.
    fn hurried(&self, control: &[u8]) -> Result<Vec<u8>, WireError> {
        let until = Instant::now() + self.pool.deadline();
        let mut patience = HURRY;
        loop {
            let end = until.min(Instant::now() + patience);
            let asked = self.pool.addr();
            let reply = self
                .pool
                .call_until(KIND_CALL, control, &[], end, &mut Vec::new());
            match reply {
                Err(WireError::Unavailable { .. }) if end < until => {
                    self.pool.leave(&asked);
                    patience *= 2;
                }
                other => return other,
            }
        }
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
        let reply = match request.op {
            Op::Heartbeat(_) | Op::RegisterServer(_) => self.hurried(&control),
            _ => self.pool.call(KIND_CALL, &control, &[], &mut Vec::new()),
        };
        let reply = reply.map_err(|error| self.unavailable(error))?;
        let Envelope { sessions, result } = postcard::from_bytes(&reply)
            .map_err(|error| MdError::Protocol(format!("cannot read the reply: {error}")))?;
        self.sessions.store(sessions, Ordering::Release);
        result
    }

    fn session_count(&self) -> u32 {
        self.sessions.load(Ordering::Acquire)
    }

    fn unanswered(&self) -> u64 {
        self.pool.epoch()
    }
}

impl Registrar for RemoteMd {
    fn heartbeat(&self, report: ServerReport) -> Result<ServerOrders, StoreError> {
        call_without_session(self, op::RegisterServer { report })
            .map_err(|error| registrar_error(&error))
    }
}
