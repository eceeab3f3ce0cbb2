//! Catches panics in handlers, so that a panic does not end the session.
//!
//! fuser ends a session when one of its threads panics, and every program on the mount with it. So each handler runs
//! in here. Unwinding drops what the handler held: a reply that was not sent answers `EIO`. State behind a lock stays
//! as it was (the locks do not poison). The panic is a bug and is logged as one.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f`; a panic in it is logged under `what` and does not propagate.
pub(super) fn guarded<F: FnOnce()>(what: &'static str, f: F) {
    tried(what, || {
        f();
        None::<()>
    });
}

/// The same for a handler that may answer the request; otherwise it returns the reply, which is still to be sent.
pub(super) fn tried<T>(what: &'static str, f: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        tracing::error!("a bug in {what}, the request fails with EIO: {text}");
        None
    })
}
