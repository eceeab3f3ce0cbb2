//! A client's life: attaching, heartbeats, background flushes and syncs, stopping.
//!
//! One thread says that the session lives and learns of data servers (and what when it does not: `epoch`),
//! one watches whether that is answered; another flushes what is old, tells
//! the metadata service of closed objects, and brings what closed objects left unsynced onto the disks,
//! so that replaced chunks may go; another waits for locks. All end in [`Client::stop`].

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use slabfs_mdserver::api::{Beat, Md, MdError, Metadata, ServerInfo};
use slabfs_objstore::client::Servers;
use slabfs_objstore::{Addr, Moment};

use super::ahead::Windows;
use super::block_cache::BlockCache;
use super::error::FsError;
use super::flush::Scope;
use super::lease::Lease;
use super::locks::Locks;
use super::object::Object;
use super::place::Known;
use super::rights::{self, Consistency, Rights};
use super::tilings::Tilings;
use super::transfer::Transfers;
use super::write_back::Behind;
use super::{Client, ClientOptions, Settling};

/// How often the metadata service is told that the session lives, and how often at most.
const BEAT: Duration = Duration::from_secs(1);
const SHORTEST_BEAT: Duration = Duration::from_millis(100);

/// How often the background looks for old data and closed objects.
const ROUND: Duration = Duration::from_millis(500);

/// How often a request that waits for a data server asks for the list.
const SERVERS_ROUND: Duration = Duration::from_millis(100);

/// How long what a closed object left may wait for the disk.
const SETTLE_EVERY: Duration = Duration::from_secs(2);

const RIGHTS_THREAD: &str = "slabfs-rights";

impl Client {
    /// Opens a session and starts what runs in the background.
    ///
    /// # Errors
    /// When the metadata service refuses or is away.
    pub fn start(
        metadata: Arc<dyn Metadata>,
        servers: Arc<Servers>,
        options: ClientOptions,
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
        servers.set_session(attached.session);
        adopt_servers(&servers, &attached.servers);
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
            dirty: AtomicI64::new(0),
            behind: Behind::default(),
            flushes: AtomicU64::new(0),
            next_handle: AtomicU64::new(1),
            known: Mutex::new(Arc::new(known)),
            elder: Mutex::default(),
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
            locks: Locks::new(attached.locks),
            rights: Rights::new(attached.rights),
            transfers: Transfers::default(),
            lease: Lease::new(sent, lease),
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
        client.spawn("slabfs-locks", |client| client.poll_locks())?;
        if client.strict() {
            for _ in 0..rights::THREADS {
                client.spawn("slabfs-recall", |client| client.handle_all_recalls())?;
            }
            client.spawn(RIGHTS_THREAD, |client| client.poll_rights())?;
        }
        Ok(client)
    }

    pub(super) fn spawn(
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
    pub(super) fn pause(&self, time: Duration) -> bool {
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
        // An answer that took long may count as none: the next one is asked for at once.
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
                }
                Err(error) => {
                    late = false;
                    tracing::warn!(%error, "the metadata service did not hear this mount");
                }
            }
        }
    }

    /// Takes over the list of data servers.
    pub(super) fn take_servers(&self, servers: &[ServerInfo]) {
        adopt_servers(&self.servers, servers);
        let known = Known::of(servers, &self.host, |id| self.servers.is_local(id));
        let mut list = self.known.lock();
        let old = std::mem::replace(&mut *list, Arc::new(known));
        self.elder.lock().push(Arc::downgrade(&old));
    }

    /// Servers new chunks may go to. Where none is online, as right after a start of the metadata service,
    /// one is waited for.
    pub(super) fn takers(&self) -> Result<Arc<Known>, FsError> {
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

    /// Makes sure that this mount knows where a server is: one that has come since it attached is asked for.
    pub(super) fn ensure_known(&self, server: slabfs_model::ServerId) -> Result<(), FsError> {
        if self.known.lock().all.contains(&server) {
            return Ok(());
        }
        // Whether it is found or not: the request itself says what is wrong with a server that is not.
        self.await_servers(|client| client.known.lock().all.contains(&server).then_some(()))?;
        Ok(())
    }

    /// Asks for the list of data servers and goes by it from now on.
    pub(super) fn ask_servers(&self) -> Result<Arc<Known>, FsError> {
        let _one = self.listing.lock();
        let servers = self.md.servers()?;
        self.take_servers(&servers);
        Ok(self.known.lock().clone())
    }

    /// Asks for the list of data servers until `found` finds what it looks for, or time is up.
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
            self.tell_releases();
            if settled.elapsed() >= SETTLE_EVERY {
                settled = Instant::now();
                self.try_settle_closed();
                self.settle_open();
            }
        }
    }

    /// While it is held, nothing is flushed for its age, and what is closed is neither released nor settled in
    /// the background: every request is one of somebody's operations. For counting them.
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

    /// Tells the metadata service which objects were closed since the last time.
    pub(super) fn tell_releases(&self) {
        // Openings end with their session: none of one is taken back in the next.
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

    /// Brings what closed objects left unsynced onto the disks, and settles it.
    ///
    /// # Errors
    /// Of the servers; what is not on disk is tried again the next time.
    pub(super) fn settle_closed(&self) -> Result<(), FsError> {
        let _one = self.settling_closed.lock();
        // They stay in the list while they are on their way: an `fsync` of an object that was opened again
        // has to find them.
        let (count, chunks) = {
            let waiting = self.settling.lock();
            let chunks: Vec<_> = waiting.iter().flat_map(|one| one.chunks.clone()).collect();
            (waiting.len(), chunks)
        };
        if count == 0 {
            return Ok(());
        }
        self.sync_chunks(&chunks)?;
        let done: Vec<Settling> = self.settling.lock().drain(..count).collect();
        for one in &done {
            self.settle_one(one);
        }
        Ok(())
    }

    /// The same in the background.
    fn try_settle_closed(&self) {
        if let Err(error) = self.settle_closed() {
            tracing::warn!(%error, "closed objects are not on disk yet; trying again");
        }
    }

    /// Brings what open objects have sent to the servers onto the disks, so that what it replaced may go.
    fn settle_open(&self) {
        let objects: Vec<Arc<Object>> = self.objects.lock().values().cloned().collect();
        for object in objects {
            if object.state.lock().unsynced.is_empty() {
                continue;
            }
            if let Err(error) = self.sync_written(&object) {
                tracing::warn!(object = %object.ino, %error, "not on disk yet; trying again");
            }
        }
    }

    fn settle_one(&self, one: &Settling) {
        match self.md.settle(one.ino, one.version) {
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
        self.md.sync()?;
        first
    }

    /// Ends the session: transfers that were started end, everything is flushed and synced, and the background threads are joined.
    ///
    /// # Errors
    /// When something could not be written back; it is lost then, and the log names the objects.
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
        self.stop_locks();
        self.stop_rights();
        self.lease.close();
        let join = |thread: std::thread::JoinHandle<()>| {
            if thread.join().is_err() {
                tracing::error!("a background thread of the client had panicked");
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
            // One of them may have made another.
            if others.is_empty() {
                break;
            }
            others.into_iter().for_each(join);
        }
        let synced = self.sync_all();
        self.tell_releases();
        let detached = self.md.detach(synced.is_ok()).map_err(FsError::from);
        polls.into_iter().for_each(join);
        synced.and(detached)
    }
}

fn adopt_servers(servers: &Servers, infos: &[ServerInfo]) {
    for info in infos {
        let Some(addr) = &info.addr else { continue };
        if servers.is_local(info.id) {
            continue;
        }
        match addr.parse::<Addr>() {
            Ok(addr) => servers.set_remote(info.id, addr),
            Err(error) => {
                tracing::error!(server = %info.id, %error, "a data server has an address of no use");
            }
        }
    }
}
