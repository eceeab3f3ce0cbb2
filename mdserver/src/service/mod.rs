//! [`Service`]: the metadata service of one directory, without sockets.
//!
//! It answers requests ([`Service::call`]) from this process and, through [`crate::server`], from other processes.
//! One background thread expires silent sessions and servers, purges emptied and removed objects, and moves the
//! limits of numbers. The operations are in `namespace`, `tilings`, `sessions` and `placement`.

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

use crate::api::{MdError, Reply, Request, Shard, op};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::kv::{Batch, KvError, KvOptions, LocalKv, Lsn, MetaKv, Recovery as KvRecovery};
use crate::records::encode;
pub(crate) use dispatch::{engine, servers, statfs, sync};
pub(crate) use start::FORMAT;
pub(crate) use start::known_format;
use upkeep::Upkeep;

/// Limits and times of a service.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// How the store under the service is opened; `accept_loss` is in there.
    pub kv: KvOptions,
    /// A session in another process without a heartbeat for this long is lost.
    pub lease: Duration,
    /// A data server without a report for this long is offline.
    pub silence: Duration,
    /// Bytes of a chunk of a byte object.
    pub byte_chunk: u64,
    /// Largest chunk of the `aligned` layout that clients make, in bytes.
    pub chunk_limit: u64,
    /// Inodes cached in memory, and as many names.
    pub cached_inodes: usize,
    /// Records of tilings cached in memory.
    pub cached_records: usize,
    /// Period of the background thread.
    pub upkeep: Duration,
    /// A dump of which no page is requested for this long is dropped.
    pub dump_patience: Duration,
    /// Which shard it is; fixed when the store is made.
    pub shard: Shard,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self {
            kv: KvOptions {
                remembered: Some(keys::INODE),
                ..KvOptions::default()
            },
            lease: Duration::from_secs(10),
            silence: Duration::from_secs(4),
            byte_chunk: 8 << 20,
            chunk_limit: crate::api::CHUNK_LIMIT,
            cached_inodes: 1 << 16,
            cached_records: 1 << 20,
            upkeep: Duration::from_millis(500),
            dump_patience: Duration::from_secs(600),
            shard: Shard::default(),
        }
    }
}

impl ServiceOptions {
    /// The cache size that the other defaults are made for, in bytes.
    const CACHE: u64 = 256 << 20;

    /// These options with about `bytes` of cached metadata (at least 16 MiB), distributed over the caches in the
    /// proportions of the defaults.
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

/// The findings of opening a service.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// The findings of the store.
    pub kv: KvRecovery,
    /// Number of inodes.
    pub inodes: u64,
    /// Sessions of other processes that continue.
    pub sessions: usize,
    /// Sessions that ended with the last stop, or whose end was interrupted.
    pub ended: usize,
    /// Inodes without a name that no session has open any more; now removed.
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
            write!(f, "; {orphans} unlinked files that were not open removed")?;
        }
        Ok(())
    }
}

/// The metadata service of one directory. Dropping it stops its thread; [`Service::close`] also reports whether
/// everything is on disk.
pub struct Service {
    core: Arc<Core>,
    upkeep: Upkeep,
    closed: AtomicBool,
}

impl Service {
    /// Opens the service in `dir`, which is created if it is missing.
    ///
    /// # Errors
    /// As [`LocalKv::open`]: locked by another process, damaged (and `accept_loss` not set).
    pub fn open(dir: &Path, options: ServiceOptions) -> Result<(Self, Recovery), ServiceError> {
        let (kv, found) = LocalKv::open(dir, options.kv.clone())?;
        // Clients in other processes may rely on lost state: they must not continue.
        let lossy = found.unsynced.is_some() || !found.losses.is_empty();
        let (service, mut recovery) = Self::start(
            Box::new(kv),
            options,
            lossy,
            Some((&dir.join("index"), found.last)),
        )?;
        if !found.losses.is_empty() {
            // Before any request: the record of which data servers it had may be lost.
            let mut batch = Batch::new();
            batch.put(keys::LOSSY, encode(&true)?);
            service.core.kv.commit(batch).map_err(MdError::from)?;
        }
        recovery.kv = found;
        Ok((service, recovery))
    }

    /// Opens the service over a store whose copy is in `dir` and ends at commit `last`.
    ///
    /// # Errors
    /// As [`Service::over`].
    pub fn over_copy(
        kv: Box<dyn MetaKv>,
        (dir, last): (&Path, Lsn),
        options: ServiceOptions,
    ) -> Result<(Self, Recovery), ServiceError> {
        Self::start(kv, options, false, Some((&dir.join("index"), last)))
    }

    /// Opens the service over a store; the index of tags is not stored on disk.
    ///
    /// # Errors
    /// If the store fails or holds what this program does not understand.
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
                    "the index of tags is not on disk, the next start rebuilds it: {error}"
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

    /// The shared state of the operations.
    #[cfg(test)]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Answers a request of a session in this process.
    pub fn call(&self, request: Request) -> Result<Reply, MdError> {
        dispatch::call(&self.core, request, false)
    }

    /// Answers a request of a session in another process: its reply is cached for resends, and its opens survive a
    /// restart of the service.
    pub fn call_remote(&self, request: Request) -> Result<Reply, MdError> {
        dispatch::call(&self.core, request, true)
    }

    /// Sessions attached.
    #[must_use]
    pub fn session_count(&self) -> u32 {
        self.core.session_count.load(Ordering::Acquire)
    }

    /// Processes a data server's report and returns its orders.
    pub fn register(&self, report: ServerReport) -> Result<ServerOrders, MdError> {
        crate::placement::register(&self.core, &Ctx::SERVICE, op::RegisterServer { report })
    }

    /// Does at once what the background thread would do soon.
    pub fn settle_down(&self) -> Result<(), MdError> {
        upkeep::round(&self.core)
    }

    /// Writes all changes to disk; only then do data servers get the orders to delete what became garbage.
    pub fn sync(&self) -> Result<(), MdError> {
        self.core.kv.sync()?;
        Ok(())
    }

    /// Blocks until the journal could not be synced, after which every change is refused until the service is opened
    /// again, and returns the error; `None` once the service is closed.
    #[must_use]
    pub fn wait_for_sync_failure(&self) -> Option<KvError> {
        self.core.kv.wait_for_sync_failure()
    }

    /// Writes a checkpoint of all metadata now and drops the journal before it.
    pub fn checkpoint(&self) -> Result<(), MdError> {
        Ok(self.core.kv.checkpoint()?)
    }

    /// Makes polls for locks and rights wait, or return at once because the server for other processes is about to
    /// stop.
    pub(crate) fn hold_polls(&self, hold: bool) {
        self.core.locks.hold_polls(hold);
        self.core.rights.hold_polls(hold);
        self.core.matchers.hold(hold);
    }

    /// Writes everything to disk, stops the thread and releases the directory. Sessions of other processes continue
    /// when it is opened again.
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
        // Not left to the drops of the fields: the store's own thread borrows the core before a checkpoint, and must
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

/// Converts an error of the metadata service for a data server.
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

/// Why a service cannot be opened or closed.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Its store.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// The content of its store.
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
