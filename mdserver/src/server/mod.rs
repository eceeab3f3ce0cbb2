//! Serves a metadata service on a listener, over the frames of [`slabfs_objstore::wire`].
//!
//! There is one kind of frame: its control part is a [`Request`] in postcard; the reply's control part is the number
//! of attached sessions and the result. An unreadable request causes an error for its caller and affects nothing
//! else.

use serde::{Deserialize, Serialize};
use slabfs_objstore::wire::{
    Call, FIRST_FREE_KIND, Handler, Listener, Serving, WireError, WireResult, serve,
};
use std::sync::Arc;

use crate::api::{MdError, Reply, Request};
use crate::service::Service;

/// The frame kind of a request.
pub(crate) const KIND_CALL: u16 = FIRST_FREE_KIND + 0x100;

/// The control part of a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Envelope {
    /// Sessions attached.
    pub(crate) sessions: u32,
    /// The reply.
    pub(crate) result: Result<Reply, MdError>,
}

/// A metadata service on a listener. Dropping it stops listening; the service continues.
#[derive(Debug)]
pub struct MdServer {
    // Dropped first: serving ends when every request has ended.
    polls: Polls,
    serving: Serving,
}

/// Polls for locks and rights wait as long as this exists.
#[derive(Debug)]
struct Polls(Arc<Service>);

impl Drop for Polls {
    fn drop(&mut self) {
        self.0.hold_polls(false);
    }
}

impl MdServer {
    /// Starts answering requests on `listener`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(service: Arc<Service>, listener: Listener) -> WireResult<Self> {
        service.hold_polls(true);
        let polls = Polls(Arc::clone(&service));
        let serving = serve(listener, Arc::new(Answerer { service }))?;
        Ok(Self { polls, serving })
    }

    /// Stops listening and ends all connections; requests being executed are completed first.
    pub fn shutdown(self) {
        drop(self.polls);
        self.serving.stop();
    }
}

struct Answerer {
    service: Arc<Service>,
}

impl Handler for Answerer {
    fn handle(&self, call: Call<'_>) -> WireResult<()> {
        if call.kind != KIND_CALL {
            let text = format!("kind {} is none of the metadata service's", call.kind);
            return call.reply.fault(&text);
        }
        let request: Request = match read(call.control) {
            Ok(request) => request,
            Err(text) => return call.reply.fault(&text),
        };
        let result = self.service.call_remote(request);
        if let Err(MdError::Unavailable { addr, detail }) = result {
            // Nothing was done. Without a reply it is resent, to the service after a restart.
            return Err(WireError::Unavailable { addr, detail });
        }
        let envelope = Envelope {
            sessions: self.service.session_count(),
            result,
        };
        call.spare.clear();
        let control = match postcard::to_extend(&envelope, std::mem::take(call.spare)) {
            Ok(control) => control,
            Err(error) => {
                return call
                    .reply
                    .fault(&format!("cannot encode the reply: {error}"));
            }
        };
        match call.reply.send(&control, &[]) {
            Err(error @ WireError::TooLarge { .. }) => {
                tracing::error!("a reply does not fit a frame: {error}");
                Err(error)
            }
            other => other,
        }
    }
}

/// Decodes the request in a control part; no bytes may follow it.
pub(crate) fn read(control: &[u8]) -> Result<Request, String> {
    match postcard::take_from_bytes::<Request>(control) {
        Ok((request, [])) => Ok(request),
        Ok((_, rest)) => Err(format!("{} bytes behind the request", rest.len())),
        Err(error) => Err(format!("not a request: {error}")),
    }
}
