//! [`Md`]: a session with a metadata service, and the call of an operation in it.
//!
//! `md.call(op::GetAttr { ino })?` sends the request with what the session adds to it: a sequence number if it changes
//! something, retries while other sessions have names cached. What takes more than one request, or knows more of the
//! session, is in [`super::calls`].

use parking_lot::Mutex;
use slabfs_model::SessionId;
use slabfs_objstore::interrupt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::name_cache::NameCache;
use crate::api::{
    Attached, Entry, MdError, Metadata, Op, Operation, ROOT, Reply, Request, Time,
    call_without_session, op,
};

/// Longest time to retry while other sessions have names cached. The service itself gives up on them earlier.
const LONGEST_KEPT: Duration = Duration::from_secs(120);

/// Pause before the first retry of such a request, and before later ones.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(200);

/// A session with a metadata service. Clones share the session; all methods may be called from any thread. The owner
/// calls [`Md::heartbeat`] at a third of the lease, and [`op::Detach`] at the end.
#[derive(Clone)]
pub struct Md {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) metadata: Arc<dyn Metadata>,
    /// The op that attaches it.
    pub(super) attach: op::Attach,
    pub(super) numbers: Mutex<Numbers>,
    pub(super) servers_version: AtomicU64,
    requests: AtomicU64,
    commits: AtomicU64,
    /// Cached names, if the session takes part in rights.
    pub(super) names: Option<NameCache>,
}

/// Requests of one mount to its metadata service; they only grow. A request that is resent because its reply was lost
/// counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// All except heartbeats and polls, of which there are some each second in any case.
    pub all: u64,
    /// Those that make stored data part of an object ([`op::Commit`]).
    pub commits: u64,
}

/// The session and its sequence numbers: the next one, and those that are not answered yet.
pub(super) struct Numbers {
    session: SessionId,
    next: u64,
    open: Vec<u64>,
}

impl Numbers {
    fn of(session: SessionId) -> Self {
        Self {
            session,
            next: 1,
            open: Vec::new(),
        }
    }

    fn take(&mut self) -> (u64, u64) {
        let seq = self.next;
        self.next += 1;
        self.open.push(seq);
        (seq, self.floor())
    }

    fn done(&mut self, session: SessionId, seq: u64) {
        if session != self.session {
            // Its session is over; the numbers belong to another one.
            return;
        }
        if let Some(at) = self.open.iter().position(|&open| open == seq) {
            self.open.swap_remove(at);
        }
    }

    pub(super) fn floor(&self) -> u64 {
        self.open.iter().copied().min().unwrap_or(self.next)
    }
}

impl Md {
    /// Opens a session as process `pid` on machine `host`.
    pub fn attach(
        metadata: Arc<dyn Metadata>,
        host: &str,
        pid: u32,
        read_only: bool,
    ) -> Result<(Self, Attached), MdError> {
        Self::attach_as(metadata, host, pid, read_only, false)
    }

    /// Opens a session that takes part in rights ([`crate::rights`]) if it is `strict`.
    pub fn attach_as(
        metadata: Arc<dyn Metadata>,
        host: &str,
        pid: u32,
        read_only: bool,
        strict: bool,
    ) -> Result<(Self, Attached), MdError> {
        let attach = op::Attach {
            host: host.to_owned(),
            pid,
            read_only,
            strict,
        };
        let attached = call_without_session(&*metadata, attach.clone())?;
        let inner = Inner {
            metadata,
            attach,
            numbers: Mutex::new(Numbers::of(attached.session)),
            servers_version: AtomicU64::new(attached.servers_version),
            requests: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            names: strict.then(NameCache::default),
        };
        Ok((
            Self {
                inner: Arc::new(inner),
            },
            attached,
        ))
    }

    /// The session's number.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.inner.numbers.lock().session
    }

    /// Opens another session in place of one that is over. Requests under way still belong to the old one. Returns
    /// `None`, and attaches nothing, if another filesystem is at the address now: one whose root was created at another
    /// time than `root`, which a restart, a dump and its loading do not change.
    pub fn reattach(&self, root: Time) -> Result<Option<Attached>, MdError> {
        let metadata = &*self.inner.metadata;
        let attached = call_without_session(metadata, self.inner.attach.clone())?;
        // Before this session is used for anything else.
        let ask = op::GetAttr { ino: ROOT };
        let found: Entry = metadata
            .call(Request::unnumbered(attached.session, ask))?
            .try_into()?;
        if found.attr.crtime != root {
            let detach = op::Detach { clean: true };
            metadata.call(Request::unnumbered(attached.session, detach))?;
            return Ok(None);
        }
        *self.inner.numbers.lock() = Numbers::of(attached.session);
        self.inner
            .servers_version
            .store(attached.servers_version, Ordering::Release);
        Ok(Some(attached))
    }

    /// Number of sessions attached when the last reply was made, including this one.
    #[must_use]
    pub fn session_count(&self) -> u32 {
        self.inner.metadata.session_count()
    }

    /// Number of requests to the service so far.
    #[must_use]
    pub fn requests(&self) -> Requests {
        Requests {
            all: self.inner.requests.load(Ordering::Relaxed),
            commits: self.inner.commits.load(Ordering::Relaxed),
        }
    }

    /// Does an operation, and returns its reply.
    pub fn call<O: Operation>(&self, op: O) -> Result<O::Reply, MdError> {
        self.send(op.into())?.try_into()
    }

    fn send(&self, op: Op) -> Result<Reply, MdError> {
        if !op.listens() {
            self.inner.requests.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(op, Op::Commit(_)) {
            self.inner.commits.fetch_add(1, Ordering::Relaxed);
        }
        if !op.changes() {
            let request = Request::unnumbered(self.session(), op);
            return self.inner.metadata.call(request);
        }
        if !op.changes_names() {
            return self.call_numbered(op);
        }
        let names = self.inner.names.as_ref();
        let changing = names.map(|names| names.change(&op));
        let result = self.call_until_forgotten(op);
        if let (Some(changing), Err(MdError::Unavailable { .. })) = (changing, &result) {
            changing.leave_unsure();
        }
        result
    }

    /// A request that changes something, with a new sequence number.
    fn call_numbered(&self, op: Op) -> Result<Reply, MdError> {
        let (session, (seq, done_below)) = {
            let mut numbers = self.inner.numbers.lock();
            (numbers.session, numbers.take())
        };
        let result = self.inner.metadata.call(Request {
            session,
            seq,
            done_below,
            op,
        });
        self.inner.numbers.lock().done(session, seq);
        result
    }

    /// A request that changes names or directories, which other sessions may have to drop from their caches first. It
    /// is retried until that is done, since the service waits for a dead mount for longer than one try.
    fn call_until_forgotten(&self, op: Op) -> Result<Reply, MdError> {
        let until = Instant::now() + LONGEST_KEPT;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.call_numbered(op.clone()) {
                Err(MdError::NamesCached) if Instant::now() < until => {}
                other => return other,
            }
            // If too many requests wait, a try is refused at once.
            if interrupt::sleep(pause) {
                return Err(MdError::NamesCached);
            }
            pause = LAST_PAUSE.min(2 * pause);
        }
    }
}

impl std::fmt::Debug for Md {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Md")
            .field("session", &self.session())
            .finish_non_exhaustive()
    }
}
