//! [`Service`]: the metadata service of one directory, without sockets.
//!
//! It answers requests ([`Service::call`]) from this process and, through [`crate::server`], from
//! others. One background thread expires silent sessions and servers, takes apart what was emptied or
//! removed, and moves the limits of numbers. What the operations do is in `namespace`,
//! `tilings`, `sessions` and `placement`.

mod dispatch;
mod start;
mod upkeep;

use slabfs_objstore::StoreError;
use slabfs_objstore::server::{Registrar, ServerOrders, ServerReport};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::api::{MdError, Reply, Request};
use crate::core::Core;
use crate::keys;
use crate::kv::{Batch, KvError, KvOptions, LocalKv, Lsn, MetaKv, Recovery as KvRecovery};
use crate::records::encode;
pub(crate) use start::FORMAT;
pub(crate) use start::known_format;
use upkeep::Upkeep;

/// Bounds and times of a service.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// How the store under the service is opened; `accept_loss` is in there.
    pub kv: KvOptions,
    /// A session in another process that is not heard for so long is lost.
    pub lease: Duration,
    /// A data server that is not heard for so long is offline.
    pub silence: Duration,
    /// Bytes of a chunk of a byte object.
    pub byte_chunk: u64,
    /// Largest chunk of the `aligned` layout that clients make, in bytes.
    pub chunk_limit: u64,
    /// Inodes kept in memory, and as many names.
    pub cached_inodes: usize,
    /// Records of tilings kept in memory.
    pub cached_records: usize,
    /// How often the background thread looks around.
    pub upkeep: Duration,
    /// A dump of which nobody asked for a page for so long is given up.
    pub dump_patience: Duration,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self {
            kv: KvOptions {
                remembered: Some(keys::INODE),
                ..KvOptions::default()
            },
            lease: Duration::from_secs(10),
            silence: Duration::from_secs(5),
            byte_chunk: 8 << 20,
            chunk_limit: crate::api::CHUNK_LIMIT,
            cached_inodes: 1 << 16,
            cached_records: 1 << 20,
            upkeep: Duration::from_millis(500),
            dump_patience: Duration::from_secs(600),
        }
    }
}

impl ServiceOptions {
    /// The cache the other defaults are made for, in bytes.
    const CACHE: u64 = 256 << 20;

    /// These options with about `bytes` of metadata kept in memory (at least 16 MiB), shared out over
    /// the caches as the defaults are.
    #[must_use]
    pub fn with_cache(self, bytes: u64) -> Self {
        let bytes = bytes.max(16 << 20);
        let scaled = |count: usize| {
            let scaled = count as u128 * u128::from(bytes) / u128::from(Self::CACHE);
            usize::try_from(scaled).unwrap_or(usize::MAX).max(1)
        };
        Self {
            cached_inodes: scaled(self.cached_inodes),
            cached_records: scaled(self.cached_records),
            kv: KvOptions {
                cache_bytes: bytes,
                ..self.kv
            },
            ..self
        }
    }
}

/// What opening a service found.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// What the store says.
    pub kv: KvRecovery,
    /// Inodes there are.
    pub inodes: u64,
    /// Sessions of other processes that carry on.
    pub sessions: usize,
    /// Sessions that ended with the last stop, or whose end was interrupted.
    pub ended: usize,
    /// Inodes without a name that nobody has open any more; removed now.
    pub orphans: usize,
    /// Data servers known.
    pub servers: usize,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kv,
            inodes,
            sessions,
            ended,
            orphans,
            servers,
        } = self;
        write!(f, "metadata {kv}; {inodes} inodes, {servers} data servers")?;
        if *sessions > 0 {
            write!(f, "; {sessions} sessions carry on")?;
        }
        if *ended > 0 {
            write!(f, "; {ended} sessions ended")?;
        }
        if *orphans > 0 {
            write!(f, "; {orphans} unlinked files that nobody has open removed")?;
        }
        Ok(())
    }
}

/// The metadata service of one directory. Dropping it stops its thread; [`Service::close`] also says
/// whether everything is on disk.
pub struct Service {
    core: Arc<Core>,
    upkeep: Upkeep,
    closed: AtomicBool,
}

impl Service {
    /// Opens the service in `dir`, which is made if it is missing.
    ///
    /// # Errors
    /// As [`LocalKv::open`]: locked by another process, damaged (and `accept_loss` not set).
    pub fn open(dir: &Path, options: ServiceOptions) -> Result<(Self, Recovery), ServiceError> {
        let (kv, found) = LocalKv::open(dir, options.kv.clone())?;
        // What clients in other processes know may be among what is gone: they must not carry on.
        let lossy = found.unsynced.is_some() || !found.losses.is_empty();
        let (service, mut recovery) = Self::start(
            Box::new(kv),
            options,
            lossy,
            Some((&dir.join("index"), found.last)),
        )?;
        if !found.losses.is_empty() {
            // Before anybody can ask: which data servers it had may be among what is gone.
            let mut batch = Batch::new();
            batch.put(keys::LOSSY, encode(&true)?);
            service.core.kv.commit(batch).map_err(MdError::from)?;
        }
        recovery.kv = found;
        Ok((service, recovery))
    }

    /// Opens the service over a store; the index of tags is kept nowhere.
    ///
    /// # Errors
    /// When the store fails or holds what this program does not understand.
    pub fn over(
        kv: Box<dyn MetaKv>,
        options: ServiceOptions,
    ) -> Result<(Self, Recovery), ServiceError> {
        Self::start(kv, options, false, None)
    }

    fn start(
        kv: Box<dyn MetaKv>,
        options: ServiceOptions,
        lossy: bool,
        index: Option<(&Path, Lsn)>,
    ) -> Result<(Self, Recovery), ServiceError> {
        let (core, recovery) = start::start(kv, options, lossy, index)?;
        let core = Arc::new(core);
        let weak = Arc::downgrade(&core);
        core.kv.before_checkpoint(Box::new(move |lsn| {
            if let Some(core) = weak.upgrade()
                && let Err(error) = core.tags.persist(&*core.kv, lsn)
            {
                tracing::warn!(
                    "the index of tags is not on disk, the next start builds it anew: {error}"
                );
            }
        }));
        let upkeep = Upkeep::start(Arc::clone(&core))?;
        let service = Self {
            core,
            upkeep,
            closed: AtomicBool::new(false),
        };
        Ok((service, recovery))
    }

    /// What the operations share.
    #[cfg(test)]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Answers a request of a session in this process.
    pub fn call(&self, request: Request) -> Result<Reply, MdError> {
        dispatch::call(&self.core, request, false)
    }

    /// Answers a request of a session in another process: its reply is kept for resends, its openings
    /// outlive a restart of the service.
    pub fn call_remote(&self, request: Request) -> Result<Reply, MdError> {
        dispatch::call(&self.core, request, true)
    }

    /// Sessions attached.
    #[must_use]
    pub fn session_count(&self) -> u32 {
        self.core.session_count.load(Ordering::Acquire)
    }

    /// Takes a data server's report and gives its orders.
    pub fn register(&self, report: ServerReport) -> Result<ServerOrders, MdError> {
        crate::placement::register(&self.core, report)
    }

    /// Does now what the background thread would do soon.
    pub fn settle_down(&self) -> Result<(), MdError> {
        upkeep::round(&self.core)
    }

    /// Brings all that was changed to disk; only then are data servers told to delete what it left behind.
    pub fn sync(&self) -> Result<(), MdError> {
        self.core.kv.sync()?;
        Ok(())
    }

    /// Writes a full dump of the metadata now and lets the journal before it go.
    pub fn checkpoint(&self) -> Result<(), MdError> {
        Ok(self.core.kv.checkpoint()?)
    }

    /// Lets polls for locks and rights wait, or not any longer: whoever serves other processes is about to stop.
    pub(crate) fn hold_polls(&self, hold: bool) {
        self.core.locks.hold_polls(hold);
        self.core.rights.hold_polls(hold);
    }

    /// Brings everything to disk, stops the thread and releases the directory. Sessions of other
    /// processes carry on when it is opened again.
    pub fn close(&self) -> Result<(), ServiceError> {
        self.upkeep.stop();
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if let Err(error) = self.core.tags.close(&*self.core.kv) {
            tracing::warn!(
                "the index of tags is not on disk, the next start brings it up: {error}"
            );
        }
        self.core.kv.close()?;
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Not left to the parts: the store's own thread borrows the core before a checkpoint, and must
        // not be the one that drops it.
        if let Err(error) = self.close() {
            tracing::error!("closing the metadata service failed: {error}");
        }
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

impl Registrar for Service {
    fn heartbeat(&self, report: ServerReport) -> Result<ServerOrders, StoreError> {
        self.register(report)
            .map_err(|error| registrar_error(&error))
    }
}

/// How a data server sees an error of the metadata service.
pub(crate) fn registrar_error(error: &MdError) -> StoreError {
    match error {
        MdError::Invalid(text) => StoreError::Invalid(text.clone()),
        MdError::Protocol(text) => StoreError::Protocol(text.clone()),
        MdError::NoSpace => StoreError::NoSpace,
        other => StoreError::Io {
            what: "registering at the metadata service".to_owned(),
            detail: other.to_string(),
            errno: None,
        },
    }
}

/// Why a service does not open or close.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Its store.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// What lies in its store.
    #[error("the metadata cannot be used: {0}")]
    Content(MdError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl From<MdError> for ServiceError {
    fn from(error: MdError) -> Self {
        Self::Content(error)
    }
}
