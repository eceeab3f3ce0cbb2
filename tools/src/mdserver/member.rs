//! One of several metadata services over a journal in etcd: a standby until it is elected, then the leader, and a standby
//! again when it has lost its lease. Only the leader listens.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use parking_lot::{Condvar, Mutex};
use slabfs_etcd::{Checkpoints, CheckpointsAddr, Etcd, EtcdAddr, EtcdError, Leader, Standby};
use slabfs_mdserver::server::MdServer;
use slabfs_mdserver::service::{Service, ServiceOptions};
use slabfs_objstore::Addr;
use slabfs_objstore::wire::{Key, Listener, WireError};

use crate::lifecycle::{Live, OwnEnd, Shutdown};
use crate::node;

/// The pause before this service takes part again after a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// What a member is started with.
pub(super) struct Settings {
    pub(super) etcd: EtcdAddr,
    pub(super) checkpoints: CheckpointsAddr,
    pub(super) lease: Duration,
    pub(super) data: PathBuf,
    pub(super) listen: Addr,
    pub(super) key: Option<Key>,
    pub(super) options: ServiceOptions,
}

/// The running member.
pub(super) struct Member {
    shared: Arc<Shared>,
    listen: Addr,
    thread: JoinHandle<anyhow::Result<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stopping: bool,
    /// The service that is led with has failed.
    failed: bool,
    role: Role,
}

#[derive(Default, Clone, PartialEq, Eq)]
enum Role {
    #[default]
    Starting,
    Following(String),
    Leading,
    Ended,
}

impl Shared {
    /// Waits; returns false once the member is about to stop.
    fn wait(&self, at_most: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.stopping {
            self.changed.wait_for(&mut state, at_most);
        }
        !state.stopping
    }

    fn set_role(&self, role: Role) {
        self.state.lock().role = role;
        self.changed.notify_all();
    }
}

impl Member {
    /// Opens the copy and takes part. Returns when it is known who the leader is.
    pub(super) fn start(settings: Settings, shutdown: &Shutdown) -> anyhow::Result<Member> {
        let etcd = Arc::new(Etcd::new(&settings.etcd)?);
        let checkpoints = Checkpoints::open(&settings.checkpoints)?;
        let first = Standby::open(&etcd, &settings.data, checkpoints, &settings.options.kv)
            .with_context(|| format!("cannot follow the journal in {}", settings.etcd))?;
        shutdown.check()?;
        if let Addr::Unix(path) = &settings.listen {
            shutdown.covers_file(path.clone());
        }
        let shared = Arc::new(Shared::default());
        let listen = settings.listen.clone();
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("member".to_owned())
                .spawn(move || {
                    let outcome = run(&settings, &etcd, first, &shared);
                    if let Err(error) = &outcome {
                        tracing::error!("{error:#}");
                    }
                    shared.set_role(Role::Ended);
                    outcome
                })
                .context("cannot start a thread")?
        };
        {
            let mut state = shared.state.lock();
            while state.role == Role::Starting {
                shared.changed.wait(&mut state);
            }
        }
        Ok(Member {
            shared,
            listen,
            thread,
        })
    }
}

fn run(
    settings: &Settings,
    etcd: &Arc<Etcd>,
    first: Standby,
    shared: &Arc<Shared>,
) -> anyhow::Result<()> {
    let mut standby = Some(first);
    let addr = node::address_for_others(&settings.listen);
    let who = Leader {
        addr: addr.to_string(),
        host: nix::unistd::gethostname()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        pid: std::process::id(),
    };
    loop {
        let outcome = take_part(settings, etcd, standby.take(), &who, shared);
        let error = match outcome {
            Ok(()) | Err(Ended::Stopping) => return Ok(()),
            Err(Ended::For(error)) => return Err(error),
            Err(Ended::Lost(error)) => error,
        };
        tracing::warn!("{error}; following again");
        if !shared.wait(AGAIN) {
            return Ok(());
        }
    }
}

/// Why a member does not go on.
enum Ended {
    Stopping,
    /// It takes part again.
    Lost(String),
    /// The process ends.
    For(anyhow::Error),
}

impl From<EtcdError> for Ended {
    fn from(error: EtcdError) -> Ended {
        match error {
            EtcdError::Stopping => Ended::Stopping,
            EtcdError::NotLeader { .. }
            | EtcdError::Unavailable { .. }
            | EtcdError::Bucket { .. }
            | EtcdError::Full { .. } => Ended::Lost(error.to_string()),
            other => Ended::For(other.into()),
        }
    }
}

/// Follows until elected, and leads until it is stopped or has lost its lease.
fn take_part(
    settings: &Settings,
    etcd: &Arc<Etcd>,
    standby: Option<Standby>,
    who: &Leader,
    shared: &Arc<Shared>,
) -> Result<(), Ended> {
    let standby = match standby {
        Some(standby) => standby,
        None => {
            let checkpoints = Checkpoints::open(&settings.checkpoints)?;
            Standby::open(etcd, &settings.data, checkpoints, &settings.options.kv)?
        }
    };
    let elected = standby.until_elected(who, settings.lease, |leader, at_most| {
        if let Some(leader) = leader {
            shared.set_role(Role::Following(format!(
                "{} (host {}, process {})",
                leader.addr, leader.host, leader.pid
            )));
        }
        shared.wait(at_most)
    })?;
    let copy = (&*elected.dir, elected.last);
    let options = settings.options.clone();
    let fatal = |error: anyhow::Error| Ended::For(error);
    let (service, recovery) = Service::over_copy(Box::new(elected.kv), copy, options)
        .map_err(|error| fatal(anyhow!("cannot use the metadata: {error}")))?;
    let service = Arc::new(service);
    let listener = Listener::bind(&settings.listen, settings.key.clone()).map_err(|error| {
        let advice = match &error {
            WireError::AddrInUse { .. } => "stop that one, or choose another address with --listen",
            _ => "choose another address with --listen",
        };
        fatal(anyhow!("{error}; {advice}"))
    })?;
    let server = MdServer::start(Arc::clone(&service), listener)
        .map_err(|error| fatal(anyhow!("cannot listen: {error}")))?;
    tracing::info!("this service is the leader: {recovery}");
    shared.state.lock().failed = false;
    shared.set_role(Role::Leading);
    let watching = {
        let (service, shared) = (Arc::clone(&service), Arc::clone(shared));
        std::thread::Builder::new()
            .name("member-watch".to_owned())
            .spawn(move || {
                let error = service.wait_for_sync_failure();
                shared.state.lock().failed = true;
                shared.changed.notify_all();
                error
            })
            .map_err(|error| fatal(anyhow!("cannot start a thread: {error}")))?
    };
    let stopping = {
        let mut state = shared.state.lock();
        while !state.stopping && !state.failed {
            shared.changed.wait(&mut state);
        }
        state.stopping
    };
    server.shutdown();
    let closed = service.close();
    let lost = watching
        .join()
        .map_err(|_| fatal(anyhow!("a thread panicked")))?;
    match (lost, closed, stopping) {
        (Some(error), _, false) => Err(Ended::Lost(error.to_string())),
        (_, Err(error), _) => Err(fatal(anyhow!("closing the metadata service: {error}"))),
        (_, Ok(()), _) => Ok(()),
    }
}

impl Live for Member {
    fn ready_line(&self) -> String {
        match &self.shared.state.lock().role {
            Role::Following(leader) => format!("metadata service, standby of {leader}"),
            Role::Leading => format!("metadata service at {}, leader", self.listen),
            Role::Starting | Role::Ended => "metadata service".to_owned(),
        }
    }

    fn own_ends(&self) -> Vec<OwnEnd> {
        let shared = Arc::clone(&self.shared);
        vec![Box::new(move || {
            let mut state = shared.state.lock();
            while state.role != Role::Ended {
                shared.changed.wait(&mut state);
            }
            Ok("it cannot take part any more")
        })]
    }

    fn stop(self: Box<Self>) -> anyhow::Result<()> {
        self.shared.state.lock().stopping = true;
        self.shared.changed.notify_all();
        self.thread
            .join()
            .map_err(|_| anyhow!("a thread panicked"))?
    }
}
