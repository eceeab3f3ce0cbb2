//! The way a data server's heartbeat takes to the metadata service: the one join between the two
//! crates, which know nothing of each other's clients.

use std::sync::Arc;

use slabfs_mdserver::api::{MdError, Metadata, Op, Reply, Request};
use slabfs_model::SessionId;
use slabfs_objstore::StoreError;
use slabfs_objstore::server::{Registrar, ServerOrders, ServerReport};

/// Reports to a metadata service, in this process or behind a socket.
pub(crate) struct ToMetadata(pub(crate) Arc<dyn Metadata>);

impl Registrar for ToMetadata {
    fn heartbeat(&self, report: ServerReport) -> Result<ServerOrders, StoreError> {
        let request = Request {
            // A report belongs to no session and may arrive twice.
            session: SessionId(0),
            seq: 0,
            done_below: 0,
            op: Op::RegisterServer(report),
        };
        match self.0.call(request) {
            Ok(Reply::Orders(orders)) => Ok(orders),
            Ok(_) => Err(StoreError::Protocol(
                "the metadata service answered a heartbeat with something else".to_owned(),
            )),
            Err(error) => Err(away(&error)),
        }
    }
}

fn away(error: &MdError) -> StoreError {
    StoreError::Io {
        what: "reporting to the metadata service".to_owned(),
        detail: error.to_string(),
        errno: None,
    }
}
