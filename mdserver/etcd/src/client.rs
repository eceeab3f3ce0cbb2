//! [`Etcd`]: requests to the members of an etcd cluster, from threads that may block.
//!
//! Each attempt goes to one member and takes at most [`ATTEMPT`]; after an error of the connection the next member is
//! tried, until the request's deadline. So **a request may be executed more than once, and one that has failed may be
//! executed later**: transactions carry conditions that make a repetition harmless.
//!
//! TLS and authentication are set by the variables that etcdctl reads: `ETCDCTL_CACERT`, `ETCDCTL_CERT`, `ETCDCTL_KEY`,
//! `ETCDCTL_USER` (`NAME:PASSWORD`), `ETCDCTL_PASSWORD`.

use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use etcd_client::{
    AlarmAction, AlarmType, Certificate, Client, CompactionOptions, Compare, CompareOp,
    ConnectOptions, Error, GetOptions, Identity, SortOrder, SortTarget, TlsOptions, Txn, TxnOp,
};
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use crate::address::EtcdAddr;
use crate::error::EtcdError;

/// The longest time of one attempt at one member; less where a request has less time for all of them.
const ATTEMPT: Duration = Duration::from_secs(2);
/// The pause after each member has failed once.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a member may take to say how it is.
const STATE: Duration = Duration::from_millis(300);
/// Most bytes of a reply.
const MAX_REPLY: usize = 64 << 20;

/// A key's value, the revision of etcd that created it, and its lease.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) created: i64,
    pub(crate) lease: i64,
}

/// A condition of a transaction.
#[derive(Debug, Clone)]
pub(crate) enum If {
    /// The key was created by this revision, and exists.
    Created(Vec<u8>, i64),
    /// The key does not exist.
    Absent(Vec<u8>),
}

/// A change of a transaction.
#[derive(Debug, Clone)]
pub(crate) enum Do {
    Put(Vec<u8>, Vec<u8>),
    /// A put that ends with a lease.
    PutLeased(Vec<u8>, Vec<u8>, i64),
    /// Deletes keys from the first to before the second.
    DeleteRange(Vec<u8>, Vec<u8>),
}

/// The result of a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    /// Whether the conditions were true and the changes are made.
    pub(crate) done: bool,
    /// etcd's revision of the transaction.
    pub(crate) revision: i64,
}

/// A client of an etcd cluster. Shared by all threads of a service.
pub struct Etcd {
    runtime: Runtime,
    addr: EtcdAddr,
    options: ConnectOptions,
    members: Vec<Mutex<Option<Client>>>,
    /// The member that answered last.
    current: AtomicUsize,
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Etcd").field(&self.addr).finish()
    }
}

impl Etcd {
    /// A client of the cluster at `addr`, with the settings of etcdctl's variables. Connects at the first request.
    ///
    /// # Errors
    /// Unreadable files of TLS, or settings that contradict each other.
    pub fn new(addr: &EtcdAddr) -> Result<Etcd, EtcdError> {
        let started = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("etcd")
            .enable_all()
            .build();
        let runtime = started
            .map_err(|error| EtcdError::Content(format!("cannot start a thread: {error}")))?;
        Ok(Etcd {
            runtime,
            options: settings(addr)?,
            members: addr.endpoints.iter().map(|_| Mutex::default()).collect(),
            addr: addr.clone(),
            current: AtomicUsize::new(0),
        })
    }

    /// The address.
    pub fn addr(&self) -> &EtcdAddr {
        &self.addr
    }

    /// A key of this filesystem.
    pub(crate) fn key(&self, name: &str) -> Vec<u8> {
        [self.addr.root().as_bytes(), name.as_bytes()].concat()
    }

    /// Makes requests until one is answered, or `deadline` is over.
    fn request<T, F: Future<Output = Result<T, Error>>>(
        &self,
        deadline: Duration,
        run: impl Fn(Client) -> F,
    ) -> Result<T, EtcdError> {
        let until = Instant::now() + deadline;
        // A member that is cut off must not use up the time of the others.
        let attempt = (deadline / (self.members.len() as u32 + 1)).min(ATTEMPT);
        let mut tried = 0;
        loop {
            let now = self.current.load(Ordering::Relaxed) % self.members.len();
            let left = until.saturating_duration_since(Instant::now());
            let error = match self.attempt(now, left.min(attempt), &run) {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if !matches!(error, EtcdError::Unavailable { .. }) {
                return Err(error);
            }
            *self.members[now].lock() = None;
            let next = (now + 1) % self.members.len();
            // Another thread may have gone on to the next one.
            let _ = self
                .current
                .compare_exchange(now, next, Ordering::Relaxed, Ordering::Relaxed);
            tried += 1;
            if Instant::now() + PAUSE >= until {
                return Err(error);
            }
            if tried % self.members.len() == 0 {
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn attempt<T, F: Future<Output = Result<T, Error>>>(
        &self,
        member: usize,
        time: Duration,
        run: &impl Fn(Client) -> F,
    ) -> Result<T, EtcdError> {
        let endpoint = &self.addr.endpoints[member];
        let unavailable = |detail: String| EtcdError::Unavailable {
            detail: format!("{endpoint}: {detail}"),
        };
        let known = self.members[member].lock().clone();
        let attempt = async {
            let client = match known {
                Some(client) => client,
                None => {
                    let client = Client::connect([endpoint], Some(self.options.clone())).await?;
                    *self.members[member].lock() = Some(client.clone());
                    client
                }
            };
            run(client).await
        };
        let timed = self
            .runtime
            .block_on(async { tokio::time::timeout(time, attempt).await });
        match timed {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => Err(classify(&error, unavailable)),
            Err(_) => Err(unavailable(format!("no answer within {time:.1?}"))),
        }
    }

    /// The value of a key, as of now.
    pub(crate) fn get(&self, key: &[u8], deadline: Duration) -> Result<Option<Found>, EtcdError> {
        let found = self.range(key.to_vec(), None, deadline)?;
        Ok(found.into_iter().next())
    }

    /// The last key from `from` to before `to`.
    pub(crate) fn last(
        &self,
        from: Vec<u8>,
        to: Vec<u8>,
        deadline: Duration,
    ) -> Result<Option<Found>, EtcdError> {
        let options = GetOptions::new()
            .with_range(to)
            .with_sort(SortTarget::Key, SortOrder::Descend)
            .with_limit(1);
        let found = self.range(from, Some(options), deadline)?;
        Ok(found.into_iter().next())
    }

    /// The first `limit` keys from `from` to before `to`.
    pub(crate) fn first(
        &self,
        from: Vec<u8>,
        to: Vec<u8>,
        limit: i64,
        deadline: Duration,
    ) -> Result<Vec<Found>, EtcdError> {
        let options = GetOptions::new()
            .with_range(to)
            .with_sort(SortTarget::Key, SortOrder::Ascend)
            .with_limit(limit);
        self.range(from, Some(options), deadline)
    }

    fn range(
        &self,
        from: Vec<u8>,
        options: Option<GetOptions>,
        deadline: Duration,
    ) -> Result<Vec<Found>, EtcdError> {
        let reply = self.request(deadline, |client| {
            let (from, options) = (from.clone(), options.clone());
            async move {
                let mut kv = client.kv_client().max_decoding_message_size(MAX_REPLY);
                kv.get(from, options).await
            }
        });
        let mut reply = reply?;
        let found = reply.take_kvs().into_iter().map(|kv| {
            let (created, lease) = (kv.create_revision(), kv.lease());
            let (key, value) = kv.into_key_value();
            Found {
                key,
                value,
                created,
                lease,
            }
        });
        Ok(found.collect())
    }

    /// Makes all changes if all conditions are true. After `Unavailable` they may be made, now or later.
    pub(crate) fn transact(
        &self,
        conditions: &[If],
        changes: &[Do],
        deadline: Duration,
    ) -> Result<Done, EtcdError> {
        let compares: Vec<Compare> = conditions
            .iter()
            .map(|condition| match condition {
                If::Created(key, revision) => {
                    Compare::create_revision(key.clone(), CompareOp::Equal, *revision)
                }
                If::Absent(key) => Compare::create_revision(key.clone(), CompareOp::Equal, 0),
            })
            .collect();
        let operations: Vec<TxnOp> = changes
            .iter()
            .map(|change| match change {
                Do::Put(key, value) => TxnOp::put(key.clone(), value.clone(), None),
                Do::PutLeased(key, value, lease) => {
                    let options = etcd_client::PutOptions::new().with_lease(*lease);
                    TxnOp::put(key.clone(), value.clone(), Some(options))
                }
                Do::DeleteRange(from, to) => {
                    let options = etcd_client::DeleteOptions::new().with_range(to.clone());
                    TxnOp::delete(from.clone(), Some(options))
                }
            })
            .collect();
        let txn = Txn::new().when(compares).and_then(operations);
        let reply = self.request(deadline, |client| {
            let txn = txn.clone();
            async move { client.kv_client().txn(txn).await }
        })?;
        Ok(Done {
            done: reply.succeeded(),
            revision: reply
                .header()
                .map_or(0, etcd_client::ResponseHeader::revision),
        })
    }

    /// A new lease of this many seconds.
    pub(crate) fn grant(&self, seconds: i64, deadline: Duration) -> Result<i64, EtcdError> {
        let reply = self.request(deadline, |client| async move {
            client.lease_client().grant(seconds, None).await
        })?;
        Ok(reply.id())
    }

    /// Renews a lease.
    ///
    /// # Errors
    /// `NotLeader` if it has ended.
    pub(crate) fn renew(&self, lease: i64, deadline: Duration) -> Result<(), EtcdError> {
        let renewed = self.request(deadline, |client| async move {
            match client.lease_client().keep_alive(lease).await {
                Ok(_) => Ok(true),
                Err(Error::LeaseKeepAliveError(_)) => Ok(false),
                Err(error) => Err(error),
            }
        })?;
        match renewed {
            true => Ok(()),
            false => Err(EtcdError::NotLeader {
                detail: "its lease has ended".to_owned(),
            }),
        }
    }

    /// Ends a lease, and the keys that were put with it.
    pub(crate) fn revoke(&self, lease: i64, deadline: Duration) -> Result<(), EtcdError> {
        self.request(deadline, |client| async move {
            client.lease_client().revoke(lease).await
        })?;
        Ok(())
    }

    /// Sends the next requests to the member that leads etcd: any other one passes writes on to it. Changes nothing if the
    /// members do not say which that is.
    pub(crate) fn prefer_leader(&self) {
        let status = |member| {
            let status = self.attempt(member, STATE, &|client: Client| async move {
                client.maintenance_client().status().await
            });
            let status = status.ok()?;
            let id = status
                .header()
                .map(etcd_client::ResponseHeader::member_id)?;
            Some((id, status.leader()))
        };
        let now = self.current.load(Ordering::Relaxed) % self.members.len();
        let Some((id, leader)) = status(now) else {
            return;
        };
        if id == leader {
            return;
        }
        let mut others = (0..self.members.len()).filter(|member| *member != now);
        if let Some(found) =
            others.find(|member| status(*member).is_some_and(|(id, _)| id == leader))
        {
            let _ = self
                .current
                .compare_exchange(now, found, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The state of the members, for people. Each has a moment to answer.
    pub(crate) fn state(&self) -> Vec<(&'static str, String)> {
        let (mut answering, mut leader, mut bytes, mut quota) = (0, String::new(), 0, 0);
        for (member, endpoint) in self.addr.endpoints.iter().enumerate() {
            let state = self.attempt(member, STATE, &|client: Client| async move {
                client.maintenance_client().status().await
            });
            let Ok(state) = state else {
                *self.members[member].lock() = None;
                continue;
            };
            answering += 1;
            bytes = bytes.max(state.db_size());
            quota = quota.max(state.db_size_quota());
            if state.header().map(etcd_client::ResponseHeader::member_id) == Some(state.leader()) {
                leader.clone_from(endpoint);
            }
        }
        let alarms = self.request(STATE, |client| async move {
            let (get, any) = (AlarmAction::Get, AlarmType::None);
            client.maintenance_client().alarm(get, any, None).await
        });
        let alarms = match alarms {
            Err(error) => error.to_string(),
            Ok(found) if found.alarms().is_empty() => "none".to_owned(),
            Ok(found) => {
                let alarms = found.alarms().iter();
                let alarms =
                    alarms.map(|one| format!("{:?} of {:x}", one.alarm(), one.member_id()));
                alarms.collect::<Vec<_>>().join(", ")
            }
        };
        let members = self.addr.endpoints.len();
        // Members before 3.6 do not say what their quota is.
        let database = match quota {
            0 => format!("{bytes} bytes"),
            quota => format!("{bytes} of {quota} bytes"),
        };
        vec![
            ("members", format!("{answering} of {members} answer")),
            ("etcd_leader", leader),
            ("database", database),
            ("alarms", alarms),
        ]
    }

    /// Frees the history of etcd before a revision.
    pub(crate) fn compact(&self, revision: i64, deadline: Duration) -> Result<(), EtcdError> {
        self.request(deadline, |client| async move {
            let options = CompactionOptions::new();
            client.kv_client().compact(revision, Some(options)).await
        })?;
        Ok(())
    }
}

/// The settings of etcdctl's variables.
fn settings(addr: &EtcdAddr) -> Result<ConnectOptions, EtcdError> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let read = |path: &str| {
        std::fs::read(path).map_err(|error| EtcdError::io("read", Path::new(path), &error))
    };
    let mut options = ConnectOptions::new()
        .with_connect_timeout(ATTEMPT)
        .with_require_leader(true)
        .with_auto_token_refresh(true);
    let password = variable("ETCDCTL_PASSWORD");
    if let Some(user) = variable("ETCDCTL_USER") {
        let (name, password) = match (user.split_once(':'), password) {
            (_, Some(password)) => (user.clone(), password),
            (Some((name, password)), None) => (name.to_owned(), password.to_owned()),
            (None, None) => {
                return Err(EtcdError::Content(
                    "ETCDCTL_USER needs a password: write NAME:PASSWORD, or set ETCDCTL_PASSWORD"
                        .to_owned(),
                ));
            }
        };
        options = options.with_user(name, password);
    }
    if !addr.is_tls() {
        return Ok(options);
    }
    let mut tls = TlsOptions::new();
    match variable("ETCDCTL_CACERT") {
        Some(path) => tls = tls.ca_certificate(Certificate::from_pem(read(&path)?)),
        None => tls = tls.with_native_roots(),
    }
    match (variable("ETCDCTL_CERT"), variable("ETCDCTL_KEY")) {
        (Some(cert), Some(key)) => {
            tls = tls.identity(Identity::from_pem(read(&cert)?, read(&key)?));
        }
        (None, None) => {}
        _ => {
            return Err(EtcdError::Content(
                "ETCDCTL_CERT and ETCDCTL_KEY belong together: set both, or none".to_owned(),
            ));
        }
    }
    Ok(options.with_tls(tls))
}

/// The kind of an error.
fn classify(error: &Error, unavailable: impl Fn(String) -> EtcdError) -> EtcdError {
    use tonic_codes as code;
    let Error::GRpcStatus(status) = error else {
        return unavailable(error.to_string());
    };
    let detail = status.message().to_owned();
    match status.code() as i32 {
        code::RESOURCE_EXHAUSTED if detail.contains("database space exceeded") => {
            EtcdError::Full { detail }
        }
        code::UNAUTHENTICATED | code::PERMISSION_DENIED => EtcdError::Refused { detail },
        code::INVALID_ARGUMENT if detail.contains("auth") || detail.contains("user name") => {
            EtcdError::Refused { detail }
        }
        code::INVALID_ARGUMENT
        | code::FAILED_PRECONDITION
        | code::OUT_OF_RANGE
        | code::UNIMPLEMENTED => EtcdError::Content(format!("etcd: {detail}")),
        code::NOT_FOUND if detail.contains("lease") => EtcdError::NotLeader { detail },
        _ => unavailable(detail),
    }
}

/// Numbers of gRPC's status codes (grpc.io, "Status codes and their use in gRPC").
mod tonic_codes {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const OUT_OF_RANGE: i32 = 11;
    pub(super) const UNIMPLEMENTED: i32 = 12;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}
