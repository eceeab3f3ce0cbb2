//! SIGINT and SIGTERM: they end a command at the next part of its data, so that nothing incomplete is left.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use thiserror::Error;

/// The signal that came; 0 before one comes.
static CAME: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// A signal ended the command.
#[derive(Debug, Error)]
#[error("interrupted; nothing incomplete is left")]
pub(crate) struct Interrupted {
    signal: u8,
}

impl Interrupted {
    /// The status of the process, as shells have it.
    pub(crate) fn status(&self) -> u8 {
        128 + self.signal
    }
}

/// From here on signals are noted, and do not end the process themselves.
pub(crate) fn catch() -> std::io::Result<()> {
    let came = CAME.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_usize(signal, came.clone(), signal as usize)?;
    }
    Ok(())
}

/// Fails if a signal came.
pub(crate) fn check() -> Result<(), Interrupted> {
    let signal = CAME.get().map_or(0, |came| came.load(Ordering::Relaxed));
    match u8::try_from(signal) {
        Ok(0) | Err(_) => Ok(()),
        Ok(signal) => Err(Interrupted { signal }),
    }
}
