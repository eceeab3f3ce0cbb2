//! A data server that waits until no other one serves the chunks of its identity, and serves them then.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use parking_lot::{Condvar, Mutex};
use slabfs_mdserver::RemoteMd;
use slabfs_mdserver::api::{Metadata, ServerInfo, op};
use slabfs_mdserver::client::Md;
use slabfs_objstore::Addr;
use slabfs_objstore::wire::messages::kind;
use slabfs_objstore::wire::{Key, Listener, Pool};
use slabfs_s3::{Bucket, S3Addr, find_uuid, uuid_of};

use super::Args;
use crate::lifecycle::{Live, OwnEnd};
use crate::node::{self, DataNode};

/// How often the list of data servers is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How long a server that the metadata service does not hear has to answer, before it is replaced.
const ANSWER: Duration = Duration::from_secs(1);

/// The standby, and later the server.
pub(super) struct Standby {
    shared: Arc<Shared>,
    metadata: Vec<Arc<RemoteMd>>,
    identity: String,
    /// The bucket had nothing of the identity.
    is_new: bool,
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
    ended: bool,
}

impl Shared {
    /// Waits; returns false once it is about to stop.
    fn wait(&self, at_most: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.stopping {
            self.changed.wait_for(&mut state, at_most);
        }
        !state.stopping
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }
}

impl Standby {
    pub(super) fn start(
        args: &Args,
        addr: &S3Addr,
        identity: &str,
        (metadata, key): (Vec<Arc<RemoteMd>>, Option<Key>),
    ) -> anyhow::Result<Standby> {
        let cannot = || format!("cannot use the store {addr}");
        let bucket = Bucket::open(addr).with_context(cannot)?;
        let is_new = find_uuid(&bucket, identity).with_context(cannot)?.is_none();
        let uuid = uuid_of(&bucket, identity).with_context(cannot)?;
        let shared = Arc::new(Shared::default());
        let thread = {
            let (args, addr, identity) = (args.clone(), addr.clone(), identity.to_owned());
            let (shared, metadata) = (Arc::clone(&shared), metadata.clone());
            std::thread::Builder::new()
                .name("standby".to_owned())
                .spawn(move || {
                    let free = follow(&metadata[0], uuid, key.as_ref(), &shared);
                    let done = free.and_then(|free| match free {
                        true => serve(&args, &addr, &identity, (metadata, key), &shared),
                        false => Ok(()),
                    });
                    if let Err(error) = &done {
                        tracing::error!("{error:#}");
                    }
                    shared.set(|state| state.ended = true);
                    done
                })
                .context("cannot start a thread")?
        };
        Ok(Standby {
            shared,
            metadata,
            identity: identity.to_owned(),
            is_new,
            thread,
        })
    }
}

/// Waits until no server of this id is online, or answers; false if the process is about to stop.
fn follow(
    metadata: &Arc<RemoteMd>,
    uuid: [u8; 16],
    key: Option<&Key>,
    shared: &Shared,
) -> anyhow::Result<bool> {
    let service = Arc::clone(metadata) as Arc<dyn Metadata>;
    let mut session: Option<(Md, Vec<ServerInfo>)> = None;
    loop {
        let known = match session.take() {
            None => {
                let host = "standby";
                Md::attach(Arc::clone(&service), host, std::process::id(), true)
                    .map(|(md, attached)| (md, attached.servers))
            }
            Some((md, servers)) => md
                .heartbeat(md.servers_version())
                .map(|beat| (md, beat.servers.unwrap_or(servers), beat.lost))
                .and_then(|(md, servers, lost)| match lost {
                    // Attached again at the next look.
                    true => Err(slabfs_mdserver::api::MdError::Stale),
                    false => Ok((md, servers)),
                }),
        };
        match known {
            Ok((md, servers)) => {
                let known = servers.iter().find(|one| one.uuid == uuid);
                // After a restart of the metadata service it has heard none until they report.
                if !known.is_some_and(|one| one.online || answers(one, key)) {
                    if let Err(error) = md.call(op::Detach { clean: true }) {
                        tracing::debug!("the session ends by its lease: {error}");
                    }
                    return Ok(true);
                }
                session = Some((md, servers));
            }
            Err(error) => {
                tracing::debug!("the metadata service is looked for: {error}");
            }
        }
        if !shared.wait(LOOK) {
            return Ok(false);
        }
    }
}

/// Whether a server answers, although the metadata service does not hear it: what it has not stored yet would be lost if it
/// was replaced.
fn answers(server: &ServerInfo, key: Option<&Key>) -> bool {
    let Some(addr) = server
        .addr
        .as_ref()
        .and_then(|addr| addr.parse::<Addr>().ok())
    else {
        return false;
    };
    let pool = Pool::new(addr, key.cloned(), ANSWER);
    let answer = pool.call(kind::SPACE, &[], &[], &mut Vec::new());
    let answers = answer.is_ok();
    if answers {
        tracing::debug!(
            "the metadata service does not hear data server {}, but it answers: it is not replaced",
            server.id
        );
    }
    answers
}

/// Serves the chunks until the process stops, or another one serves them.
fn serve(
    args: &Args,
    addr: &S3Addr,
    identity: &str,
    (metadata, key): (Vec<Arc<RemoteMd>>, Option<Key>),
    shared: &Arc<Shared>,
) -> anyhow::Result<()> {
    tracing::info!("no other server serves the chunks of {identity}: this one does from now on");
    let listener = Listener::bind(&args.listen, key).context("cannot listen")?;
    let store = node::open_bucket(addr, &args.data, Some(identity), args.cache_size)?;
    let registrars = super::registrars(&metadata);
    let data = DataNode::start(store, registrars, Some(listener), args.host.clone())?;
    let replaced = data.own_end();
    let watching = {
        let shared = Arc::clone(shared);
        std::thread::Builder::new()
            .name("standby-watch".to_owned())
            .spawn(move || {
                if let Some(replaced) = replaced
                    && let Err(error) = replaced()
                {
                    tracing::error!("{error:#}");
                }
                shared.set(|state| state.stopping = true);
            })
            .context("cannot start a thread")?
    };
    while shared.wait(Duration::from_secs(3600)) {}
    let stopped = data.stop();
    watching.join().map_err(|_| anyhow!("a thread panicked"))?;
    stopped
}

impl Live for Standby {
    fn ready_line(&self) -> String {
        let new = match self.is_new {
            true => ", an identity that is new in the bucket",
            false => "",
        };
        format!("data server, standby of {}{new}", self.identity)
    }

    fn own_ends(&self) -> Vec<OwnEnd> {
        let shared = Arc::clone(&self.shared);
        vec![Box::new(move || {
            let mut state = shared.state.lock();
            while !state.ended {
                shared.changed.wait(&mut state);
            }
            Ok("it serves no chunks any more")
        })]
    }

    fn stop(self: Box<Self>) -> anyhow::Result<()> {
        self.shared.set(|state| state.stopping = true);
        let done = self
            .thread
            .join()
            .map_err(|_| anyhow!("a thread panicked"))?;
        self.metadata.iter().for_each(|shard| shard.close());
        done
    }
}
