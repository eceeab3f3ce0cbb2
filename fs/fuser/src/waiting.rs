//! Requests that wait for their reply

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;
use std::time::Instant;

use log::debug;
use parking_lot::Mutex;

use crate::Errno;
use crate::channel::ChannelSender;
use crate::ll;
use crate::ll::RequestId;
use crate::ll::reply::Response;

/// Threads that take and answer requests at the same time meet on few of them.
const SHARDS: usize = 16;

/// The requests that wait for their reply, if [`Config::track_requests`](crate::Config::track_requests) is set.
///
/// The kernel lets no thread go that waits for a reply, not even one that was killed. A filesystem that may
/// have to wait long itself, for a server that is away, can look at whom it keeps waiting with
/// [`older_than`](Self::older_than), and let those go with [`end`](Self::end) that nothing would be told to
/// any more. What was asked for may still be done: the reply then comes too late, and says so where the
/// kernel would have taken something over with it (`ReplyOpen::opened` and others return whether it did).
#[derive(Debug, Clone)]
pub struct WaitingRequests(Arc<Tables>);

struct Tables {
    shards: [Mutex<HashMap<RequestId, Waiting>>; SHARDS],
    when_late: OnceLock<Box<dyn Fn(RequestId) + Send + Sync>>,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Waiting {
    pid: u32,
    since: Instant,
    /// Replies are understood only on the device that the request was read from.
    sender: ChannelSender,
}

/// A request that waits for its reply.
#[derive(Debug, Clone, Copy)]
pub struct WaitingRequest {
    /// Its number.
    pub unique: RequestId,
    /// The thread that sent it, as seen from the pid namespace of the mount. 0 if it is not seen from there,
    /// and where the kernel writes pages back, whoever they are from.
    pub pid: u32,
    /// When it was read.
    pub since: Instant,
}

impl WaitingRequests {
    pub(crate) fn new() -> WaitingRequests {
        WaitingRequests(Arc::new(Tables {
            shards: std::array::from_fn(|_| Mutex::default()),
            when_late: OnceLock::new(),
        }))
    }

    fn shard(&self, unique: RequestId) -> &Mutex<HashMap<RequestId, Waiting>> {
        // The kernel counts in steps of two.
        &self.0.shards[(unique.0 >> 1) as usize % SHARDS]
    }

    pub(crate) fn enter(&self, unique: RequestId, pid: u32, sender: ChannelSender) {
        let waiting = Waiting {
            pid,
            since: Instant::now(),
            sender,
        };
        self.shard(unique).lock().insert(unique, waiting);
    }

    /// A reply is about to be sent; false if the request was ended.
    pub(crate) fn leave(&self, unique: RequestId) -> bool {
        let waited = self.shard(unique).lock().remove(&unique).is_some();
        if !waited {
            debug!("the reply to {unique:?} comes after its end");
            if let Some(tell) = self.0.when_late.get() {
                tell(unique);
            }
        }
        waited
    }

    /// The requests that have waited for at least `age`.
    pub fn older_than(&self, age: Duration) -> Vec<WaitingRequest> {
        let now = Instant::now();
        let mut found = Vec::new();
        for shard in &self.0.shards {
            for (&unique, waiting) in shard.lock().iter() {
                if now.saturating_duration_since(waiting.since) >= age {
                    found.push(WaitingRequest {
                        unique,
                        pid: waiting.pid,
                        since: waiting.since,
                    });
                }
            }
        }
        found
    }

    /// Answers a request with an error in place of whoever has its reply, whose answer then goes nowhere.
    /// False if it has been answered already.
    pub fn end(&self, unique: RequestId, errno: Errno) -> bool {
        let Some(waiting) = self.shard(unique).lock().remove(&unique) else {
            return false;
        };
        let sent = ll::ResponseErrno(errno).with_iovec(unique, |iov| waiting.sender.send(iov));
        if let Err(err) = sent {
            debug!("the kernel does not wait for {unique:?}: {err}");
        }
        true
    }

    /// Has `tell` called whenever a reply comes after its request was ended, before whoever replied goes on.
    /// The first one counts.
    pub fn when_late(&self, tell: impl Fn(RequestId) + Send + Sync + 'static) {
        if self.0.when_late.set(Box::new(tell)).is_err() {
            debug!("there is somebody already who is told of late replies");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::FileHandle;
    use crate::FopenFlags;
    use crate::channel::Channel;
    use crate::dev_fuse::DevFuse;
    use crate::reply::Reply;
    use crate::reply::ReplyOpen;
    use crate::reply::ReplySender;

    #[test]
    fn one_of_reply_and_end_is_sent() {
        let (read, write) = nix::unistd::pipe().unwrap();
        let sender = Channel::new(Arc::new(DevFuse(File::from(write)))).sender();
        let waiting = WaitingRequests::new();
        let late = Arc::new(AtomicU64::new(0));
        let told = late.clone();
        waiting.when_late(move |unique| told.store(unique.0, Ordering::Relaxed));
        let request = |unique| -> ReplyOpen {
            waiting.enter(RequestId(unique), 1, sender.clone());
            Reply::new(
                RequestId(unique),
                ReplySender::Tracked(sender.clone(), waiting.clone()),
            )
        };
        let opened = |reply: ReplyOpen| reply.opened(FileHandle(1), FopenFlags::empty());
        assert!(opened(request(2)));
        assert!(!waiting.end(RequestId(2), Errno::EINTR));

        let reply = request(4);
        let older = waiting.older_than(Duration::ZERO);
        assert_eq!(
            (older.len(), older[0].unique, older[0].pid),
            (1, RequestId(4), 1)
        );
        assert!(waiting.older_than(Duration::from_secs(3600)).is_empty());
        assert!(waiting.end(RequestId(4), Errno::EINTR));
        assert_eq!(late.load(Ordering::Relaxed), 0);
        assert!(!opened(reply));
        assert_eq!(late.load(Ordering::Relaxed), 4);
        assert!(waiting.older_than(Duration::ZERO).is_empty());

        drop((sender, waiting));
        let mut sent = Vec::new();
        File::from(read).read_to_end(&mut sent).unwrap();
        // What is opened has 16 bytes after the header of 16, an error none.
        let numbers =
            [&sent[8..16], &sent[40..48]].map(|n| u64::from_ne_bytes(n.try_into().unwrap()));
        assert_eq!((sent.len(), numbers), (48, [2, 4]));
    }
}
