//! The lifetime of a client: attaching, heartbeats, background flushes and syncs, stopping.
//!
//! One thread sends heartbeats and receives changes of the list of data servers; one watches whether heartbeats are
//! answered (`lease` has what happens when they are not). Another flushes old data, reports closed objects to the
//! metadata service, and syncs the data that closed objects left unsynced, so that replaced chunks may be deleted.
//! Another polls for locks. All end in [`Client::stop`].

pub(in crate::client) mod lease;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use slabfs_mdserver::api::{Beat, MdError, Metadata, ROOT, ServerInfo, Shard, op};
use slabfs_mdserver::client::Md;
use slabfs_objstore::client::{Servers, Verifiers};
use slabfs_objstore::{Addr, Moment};

use crate::client::buffer::flush::Scope;
use crate::client::buffer::write_back::Behind;
use crate::client::coherence::locks::Locks;
use crate::client::coherence::rights::{self, Consistency, Rights};
use crate::client::coupling::Coupling;
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::placement::place::Known;
use crate::client::session::lease::Lease;
use crate::client::stored::ahead::Windows;
use crate::client::stored::block_cache::BlockCache;
use crate::client::stored::tilings::Tilings;
use crate::client::transfer::Transfers;
use crate::client::{Client, ClientOptions, Settling};

/// The interval of heartbeats, and the shortest one.
const BEAT: Duration = Duration::from_secs(1);
const SHORTEST_BEAT: Duration = Duration::from_millis(100);

/// The interval at which the background thread looks for old data and closed objects.
const ROUND: Duration = Duration::from_millis(500);

/// The interval at which a request that waits for a data server asks for the list.
const SERVERS_ROUND: Duration = Duration::from_millis(100);

/// How long data of a closed object may wait for its sync.
const SETTLE_EVERY: Duration = Duration::from_secs(2);

const RIGHTS_THREAD: &str = "slabfs-rights";

impl Client {
    /// Opens a session and starts the background threads.
    ///
    /// # Errors
    /// When the metadata service refuses or is unreachable.
    pub fn start(
        metadata: Arc<dyn Metadata>,
        servers: Arc<Servers>,
        options: ClientOptions,
    ) -> Result<Arc<Client>, FsError> {
        Client::start_shard(metadata, servers, options, Shard::default(), Arc::default())
    }

    /// The same for one of the shards of a filesystem, whose clients share `family`.
    ///
    /// # Errors
    /// As [`Client::start`]; `Invalid` if the service is not that shard.
    pub(crate) fn start_shard(
        metadata: Arc<dyn Metadata>,
        servers: Arc<Servers>,
        options: ClientOptions,
        shard: Shard,
        family: Arc<()>,
    ) -> Result<Arc<Client>, FsError> {
        let host = options.host.clone().unwrap_or_else(|| {
            nix::unistd::gethostname()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default()
        });
        let sent = Moment::now();
        let strict = options.consistency == Consistency::Strict;
        let pid = std::process::id();
        let (md, attached) = Md::attach_as(metadata, &host, pid, options.read_only, strict)?;
        if attached.shard != shard {
            if let Err(error) = md.call(op::Detach { clean: true }) {
                tracing::debug!("the session ends by its lease: {error}");
            }
            return Err(FsError::Invalid(wrong_shard(attached.shard, shard)));
        }
        servers.set_session(attached.session);
        adopt_servers(&servers, &attached.servers);
        let root_created = md.call(op::GetAttr { ino: ROOT })?.attr.crtime;
        let lease = Duration::from_millis(attached.lease_ms);
        let local = !attached.servers.is_empty()
            && attached
                .servers
                .iter()
                .all(|server| servers.is_local(server.id));
        let known = Known::of(&attached.servers, &host, |id| servers.is_local(id));
        let client = Arc::new(Client {
            md,
            cache: BlockCache::new(options.cache_bytes),
            tilings: Tilings::new(options.tilings_bytes),
            windows: Windows::new(options.cache_bytes / 2),
            servers,
            local,
            objects: Mutex::default(),
            closes: Mutex::default(),
            dirty: AtomicI64::new(0),
            behind: Behind::default(),
            flushes: AtomicU64::new(0),
            next_handle: AtomicU64::new(1),
            known: Mutex::new(Arc::new(known)),
            older_lists: Mutex::default(),
            known_version: AtomicU64::new(attached.servers_version),
            next_permit: AtomicU64::new(1),
            host,
            leased_ids: Mutex::default(),
            places: Mutex::default(),
            settling: Mutex::default(),
            settling_closed: Mutex::default(),
            upkeep: Mutex::default(),
            listing: Mutex::default(),
            releases: Mutex::default(),
            stopping: Mutex::new(false),
            wake: Condvar::new(),
            threads: Mutex::default(),
            locks: Locks::new(attached.locks, shard.index),
            rights: Rights::new(attached.rights),
            transfers: Transfers::default(),
            coupling: Coupling::new(options.memory.clone()),
            lease: Lease::new(sent, lease),
            names: OnceLock::new(),
            shard,
            family,
            root_created,
            replaced: AtomicBool::new(false),
            lease_time: Mutex::new(lease),
            attached: RwLock::default(),
            options,
        });
        let beat = match lease.is_zero() {
            true => BEAT,
            false => (lease / 3).clamp(SHORTEST_BEAT, BEAT),
        };
        client.spawn("slabfs-beat", move |client| client.beat_every(beat))?;
        if !lease.is_zero() {
            client.spawn("slabfs-lease", |client| client.watch_lease())?;
        }
        client.spawn("slabfs-flush", |client| client.tidy())?;
        if !client.read_only() {
            client.spawn("slabfs-behind", |client| client.write_behind())?;
        }
        client.spawn("slabfs-locks", |client| client.poll_events::<Locks>())?;
        if client.strict() {
            for _ in 0..rights::THREADS {
                client.spawn("slabfs-recall", |client| client.handle_all_recalls())?;
            }
            client.spawn(RIGHTS_THREAD, |client| client.poll_events::<Rights>())?;
        }
        Ok(client)
    }

    pub(in crate::client) fn spawn(
        self: &Arc<Self>,
        name: &str,
        run: impl FnOnce(&Arc<Client>) + Send + 'static,
    ) -> Result<(), FsError> {
        let client = self.clone();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || run(&client))
            .map_err(|error| FsError::Invalid(format!("no thread could be started: {error}")))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Waits for `time`, or until the client stops; true when it stops.
    pub(in crate::client) fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut stopping = self.stopping.lock();
        while !*stopping {
            if self.wake.wait_until(&mut stopping, until).timed_out() {
                break;
            }
        }
        *stopping
    }

    fn beat_every(&self, every: Duration) {
        let mut late = false;
        // A reply that took too long may not count: the next heartbeat is sent at once.
        while late || !self.pause(every) {
            if late && *self.stopping.lock() {
                return;
            }
            let one = self.listing.lock();
            let sent = Moment::now();
            let heard = self.md.heartbeat(self.knows());
            if let Ok(Beat {
                servers: Some(servers),
                ..
            }) = &heard
            {
                self.take_servers(servers);
            }
            drop(one);
            match heard {
                Ok(beat) => {
                    self.locks_lock_server(beat.locks);
                    late = sent.elapsed() > every;
                    match beat.lost {
                        true => self.recover(every),
                        false => self.answered(sent),
                    }
                    self.report_coupled_again();
                }
                Err(error) => {
                    late = false;
                    tracing::warn!(%error, "a heartbeat to the metadata service failed");
                }
            }
        }
    }

    /// Adopts a list of data servers.
    pub(in crate::client) fn take_servers(&self, servers: &[ServerInfo]) {
        adopt_servers(&self.servers, servers);
        let known = Known::of(servers, &self.host, |id| self.servers.is_local(id));
        let mut list = self.known.lock();
        let old = std::mem::replace(&mut *list, Arc::new(known));
        self.older_lists.lock().push(Arc::downgrade(&old));
    }

    /// The servers that new chunks may go to. If none is online, as right after a start of the metadata service,
    /// waits for one.
    pub(in crate::client) fn takers(&self) -> Result<Arc<Known>, FsError> {
        let known = self.known.lock().clone();
        if !known.takers.is_empty() {
            return Ok(known);
        }
        self.await_servers(|client| {
            let known = client.known.lock().clone();
            (!known.takers.is_empty()).then_some(known)
        })?
        .ok_or(FsError::NoServers)
    }

    /// Ensures that the address of a server is known: the list is refreshed for a server that came after this mount
    /// attached.
    pub(in crate::client) fn ensure_known(
        &self,
        server: slabfs_model::ServerId,
    ) -> Result<(), FsError> {
        if self.known.lock().all.contains(&server) {
            return Ok(());
        }
        // Whether found or not: the request itself reports what is wrong with an unknown server.
        self.await_servers(|client| client.known.lock().all.contains(&server).then_some(()))?;
        Ok(())
    }

    /// Requests the list of data servers and adopts it.
    pub(in crate::client) fn ask_servers(&self) -> Result<Arc<Known>, FsError> {
        let _one = self.listing.lock();
        let servers = self.md.call(op::Servers {})?;
        self.take_servers(&servers);
        Ok(self.known.lock().clone())
    }

    /// Requests the list of data servers until `found` returns a result, or time is up.
    fn await_servers<R>(&self, found: impl Fn(&Client) -> Option<R>) -> Result<Option<R>, FsError> {
        let until = Instant::now() + self.options.io_timeout;
        loop {
            self.ask_servers()?;
            if let Some(result) = found(self) {
                return Ok(Some(result));
            }
            if Instant::now() >= until || self.pause(SERVERS_ROUND) {
                return Ok(None);
            }
        }
    }

    fn tidy(&self) {
        let mut settled = Instant::now();
        while !self.pause(ROUND) {
            let _one = self.upkeep.lock();
            self.flush_old();
            self.send_releases();
            if settled.elapsed() >= SETTLE_EVERY {
                settled = Instant::now();
                self.try_settle_closed();
                self.settle_open();
            }
        }
    }

    /// While the guard is held, no object is flushed for its age, and closed objects are neither released nor settled
    /// in the background, so every request belongs to an operation of a program. For tests that count requests.
    pub fn without_upkeep(&self) -> MutexGuard<'_, ()> {
        self.upkeep.lock()
    }

    fn flush_old(&self) {
        let age = self.options.flush_age;
        let objects: Vec<Arc<Object>> = self.objects.lock().values().cloned().collect();
        for object in objects {
            let old = {
                let state = object.state.lock();
                state
                    .runs
                    .oldest()
                    .is_some_and(|since| since.elapsed() > age)
                    || state
                        .streams
                        .iter()
                        .any(|stream| stream.since.elapsed() > age)
            };
            if old && let Err(error) = self.flush_object(&object, Scope::All) {
                object.blame(&error);
            }
        }
    }

    /// Reports the objects that were closed since the last time to the metadata service.
    pub(in crate::client) fn send_releases(&self) {
        // Opens end with their session: none is released in the next one.
        let _attached = self.attached.read_recursive();
        let mut inos = std::mem::take(&mut *self.releases.lock());
        let closed = inos.len();
        let Err(error) = self.md.release_all(&mut inos) else {
            return;
        };
        if matches!(error, MdError::SessionLost) {
            return;
        }
        tracing::warn!(
            %error,
            closed,
            again = inos.len(),
            "closed objects could not be released; those of which that is certain are tried again, the others may stay \
             open for the metadata service until the mount ends"
        );
        self.releases.lock().extend(inos);
    }

    /// Syncs the data that closed objects left unsynced, and settles it.
    ///
    /// # Errors
    /// Those of the servers; data that is not on disk is tried again the next time.
    pub(in crate::client) fn settle_closed(&self) -> Result<(), FsError> {
        let _one = self.settling_closed.lock();
        // They stay in the list during the sync: an `fsync` of an object that was opened again has to find them.
        let (count, chunks) = {
            let waiting = self.settling.lock();
            let chunks = waiting.iter().flat_map(|one| one.chunks.chunks().cloned());
            (waiting.len(), chunks.collect::<Vec<_>>())
        };
        if count == 0 {
            return Ok(());
        }
        let mut verifiers = Verifiers::new();
        self.sync_chunks(&chunks, &mut verifiers)?;
        let done: Vec<Settling> = self.settling.lock().drain(..count).collect();
        let mut result = Ok(());
        for one in &done {
            match one.chunks.lost_at(&verifiers) {
                Some(server) => {
                    let error = FsError::Unsynced(server);
                    tracing::error!(object = %one.ino, "closed, and {error}");
                    result = Err(error);
                }
                None => self.settle_one(one),
            }
        }
        result
    }

    /// [`Client::settle_closed`] in the background.
    fn try_settle_closed(&self) {
        if let Err(error) = self.settle_closed() {
            tracing::warn!(%error, "closed objects are not on disk yet; trying again");
        }
    }

    /// Syncs the data that open objects have sent to the servers, so that replaced chunks may be deleted.
    fn settle_open(&self) {
        let objects: Vec<Arc<Object>> = self.objects.lock().values().cloned().collect();
        for object in objects {
            if object.state.lock().unsynced.is_empty() {
                continue;
            }
            match self.sync_written(&object) {
                // That is in the log, and each open handle returns it.
                Ok(()) | Err(FsError::Unsynced(_)) => {}
                Err(error) => {
                    tracing::warn!(object = %object.ino, %error, "not on disk yet; trying again");
                }
            }
        }
    }

    fn settle_one(&self, one: &Settling) {
        match self.md.call(op::Settle {
            ino: one.ino,
            version: one.version,
        }) {
            Ok(()) | Err(MdError::NotFound) => {}
            Err(error) => {
                tracing::warn!(object = %one.ino, %error, "replaced chunks stay for now");
            }
        }
    }

    /// Flushes and syncs everything.
    ///
    /// # Errors
    /// The first error met; the other objects are flushed all the same.
    pub fn sync_all(&self) -> Result<(), FsError> {
        let objects: Vec<Arc<Object>> = self.objects.lock().values().cloned().collect();
        let mut first = Ok(());
        for object in objects {
            let synced = self.sync_object(&object);
            first = first.and(synced);
        }
        first = first.and(self.settle_closed());
        self.md.call(op::Sync {})?;
        first
    }

    /// Ends the session: started transfers end, everything is flushed and synced, and the background threads are
    /// joined.
    ///
    /// # Errors
    /// When dirty data could not be written back; it is lost then, and the log names the objects.
    pub fn stop(&self) -> Result<(), FsError> {
        self.transfers.close();
        {
            let mut stopping = self.stopping.lock();
            if *stopping {
                return Ok(());
            }
            *stopping = true;
        }
        self.wake.notify_all();
        self.behind.close();
        self.stop_announcing();
        self.stop_watching();
        self.stop_locks();
        self.stop_rights();
        self.lease.close();
        let join = |thread: std::thread::JoinHandle<()>| {
            if thread.join().is_err() {
                tracing::error!("a background thread of the client panicked");
            }
        };
        // A poll for rights returns when the session has ended.
        let mut polls = Vec::new();
        loop {
            let all = std::mem::take(&mut *self.threads.lock());
            let is_poll = |thread: &std::thread::JoinHandle<()>| {
                thread.thread().name() == Some(RIGHTS_THREAD)
            };
            let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_poll);
            polls.extend(own);
            // One of them may have started another.
            if others.is_empty() {
                break;
            }
            others.into_iter().for_each(join);
        }
        let synced = self.sync_all();
        self.send_releases();
        self.stop_memory_server();
        let detached = self
            .md
            .call(op::Detach {
                clean: synced.is_ok(),
            })
            .map_err(FsError::from);
        polls.into_iter().for_each(join);
        synced.and(detached)
    }
}

/// Says that a service is another shard than the one it was taken for.
fn wrong_shard(is: Shard, wanted: Shard) -> String {
    match (is.divided(), wanted.divided()) {
        (true, false) => format!(
            "the metadata of this filesystem is in {} shards, and this service is number {}: give the addresses of all, in the order of \
             their numbers (--md once for each)",
            is.of, is.index
        ),
        (false, true) => format!(
            "the metadata of this filesystem is not in shards, and the addresses of {} were given: give --md once",
            wanted.of
        ),
        _ => format!(
            "this metadata service is shard {} of {}, and was given as shard {} of {}: give --md once for each shard, in the order of \
             their numbers",
            is.index, is.of, wanted.index, wanted.of
        ),
    }
}

/// How long a memory server that does not answer is waited for.
const MEMORY_PATIENCE: Duration = Duration::from_secs(3);

fn adopt_servers(servers: &Servers, infos: &[ServerInfo]) {
    for info in infos {
        let Some(addr) = &info.addr else { continue };
        if servers.is_local(info.id) {
            continue;
        }
        match addr.parse::<Addr>() {
            // The data ends with the mount that has it in memory: the matcher knows more, sooner.
            Ok(addr) if info.memory => servers.set_remote_for(info.id, addr, MEMORY_PATIENCE),
            Ok(addr) => servers.set_remote(info.id, addr),
            Err(error) => {
                tracing::error!(server = %info.id, %error, "a data server has an invalid address");
            }
        }
    }
}
