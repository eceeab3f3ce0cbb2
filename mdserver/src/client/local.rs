//! A metadata service in this process: calls are function calls.

use std::sync::Arc;

use crate::api::{MdError, Metadata, Reply, Request};
use crate::service::Service;

/// A client of a service in this process.
#[derive(Debug, Clone)]
pub struct LocalMd(pub Arc<Service>);

impl Metadata for LocalMd {
    fn call(&self, request: Request) -> Result<Reply, MdError> {
        self.0.call(request)
    }

    fn session_count(&self) -> u32 {
        self.0.session_count()
    }
}
