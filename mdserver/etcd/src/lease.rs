//! [`Lease`]: the election. The leader is the service whose key exists; the key ends with the service's lease.
//!
//! etcd ends a lease at the earliest when its time is over since the last renewal arrived. The leader counts from the
//! moment before it sent that renewal, and stops answering a tenth of the time earlier, so clocks have to agree on the
//! length of some seconds only, and not on the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use crate::client::{Do, Etcd, If};
use crate::error::EtcdError;

/// The key of the leader.
const LEADER: &str = "leader";

/// Who the leader is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Where it listens.
    pub addr: String,
    /// Its machine.
    pub host: String,
    /// Its process.
    pub pid: u32,
}

/// The leader's lease and key. Dropping it lets the lease end by itself; `resign` ends it at once.
#[derive(Debug)]
pub struct Lease {
    shared: Arc<Shared>,
    renewing: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    etcd: Arc<Etcd>,
    id: i64,
    key: Vec<u8>,
    /// The revision of etcd that created the key.
    revision: i64,
    time: Duration,
    /// Milliseconds of the clock that counts suspended time, until which the lease is valid.
    valid_until: AtomicU64,
    lost: AtomicBool,
    stopping: Mutex<bool>,
    stop: Condvar,
}

/// The clock of leases: it counts also while the machine is suspended.
fn now_ms() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(u64::MAX, |time| {
        time.tv_sec() as u64 * 1000 + time.tv_nsec() as u64 / 1_000_000
    })
}

impl Lease {
    /// Becomes the leader, if there is none; `time`: after which another one may follow when this process is dead.
    pub(crate) fn campaign(
        etcd: &Arc<Etcd>,
        who: &Leader,
        time: Duration,
    ) -> Result<Option<Lease>, EtcdError> {
        let key = etcd.key(LEADER);
        if etcd.get(&key, time)?.is_some() {
            return Ok(None);
        }
        let value = serde_json::to_vec(who)
            .map_err(|error| EtcdError::Content(format!("cannot encode the leader: {error}")))?;
        let begun = now_ms();
        let id = etcd.grant(time.as_secs().max(1) as i64, time)?;
        let put = Do::PutLeased(key.clone(), value, id);
        let won = etcd.transact(&[If::Absent(key.clone())], &[put], time);
        // After a repetition the key may be this one's own although the transaction found it there.
        let found = match &won {
            Ok(done) if done.done => Some(done.revision),
            Ok(_) | Err(EtcdError::Unavailable { .. }) => {
                let found = etcd.get(&key, time)?;
                let own = found.filter(|found| found.lease == id);
                own.map(|found| found.created)
            }
            Err(error) => return Err(error.clone()),
        };
        let Some(revision) = found else {
            if let Err(error) = etcd.revoke(id, time) {
                tracing::debug!("a lease that is not needed ends by itself: {error}");
            }
            return Ok(None);
        };
        let shared = Arc::new(Shared {
            etcd: Arc::clone(etcd),
            id,
            key,
            revision,
            time,
            valid_until: AtomicU64::new(begun + valid_ms(time)),
            lost: AtomicBool::new(false),
            stopping: Mutex::new(false),
            stop: Condvar::new(),
        });
        let renewing = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("etcd-lease".to_owned())
                .spawn(move || shared.renew())
        };
        let renewing = renewing
            .map_err(|error| EtcdError::Content(format!("cannot start a thread: {error}")))?;
        Ok(Some(Lease {
            shared,
            renewing: Mutex::new(Some(renewing)),
        }))
    }

    /// The leader now.
    pub(crate) fn leader(etcd: &Etcd, deadline: Duration) -> Result<Option<Leader>, EtcdError> {
        let found = etcd.get(&etcd.key(LEADER), deadline)?;
        let leader = found.map(|found| serde_json::from_slice(&found.value));
        leader.transpose().map_err(|error| {
            EtcdError::Content(format!("the leader's key in etcd is unreadable: {error}"))
        })
    }

    /// The condition of everything that only the leader may write.
    pub(crate) fn condition(&self) -> If {
        If::Created(self.shared.key.clone(), self.shared.revision)
    }

    /// The number of this leader: greater than that of all before.
    pub(crate) fn revision(&self) -> i64 {
        self.shared.revision
    }

    /// Fails if another service may be the leader.
    pub(crate) fn check(&self) -> Result<(), EtcdError> {
        let shared = &self.shared;
        let detail = match (
            shared.lost.load(Ordering::Acquire),
            now_ms() < shared.valid_until.load(Ordering::Acquire),
        ) {
            (false, true) => return Ok(()),
            (true, _) => "another one may have taken over",
            (false, false) => "its lease was not renewed in time",
        };
        Err(EtcdError::NotLeader {
            detail: detail.to_owned(),
        })
    }

    /// Notes that this service is not the leader any more.
    pub(crate) fn lose(&self) {
        self.shared.lost.store(true, Ordering::Release);
    }

    /// Waits for a part of the lease's time; returns whether the lease is still valid.
    pub(crate) fn watch(&self, at_most: Duration) -> bool {
        let mut stopping = self.shared.stopping.lock();
        if !*stopping {
            self.shared.stop.wait_for(&mut stopping, at_most);
        }
        drop(stopping);
        self.check().is_ok()
    }

    /// Ends the lease, so that a standby may follow at once.
    pub(crate) fn resign(&self) {
        self.end();
        self.lose();
        if let Err(error) = self.shared.etcd.revoke(self.shared.id, self.shared.time) {
            tracing::warn!("the leader's lease ends by itself: {error}");
        }
    }

    fn end(&self) {
        *self.shared.stopping.lock() = true;
        self.shared.stop.notify_all();
        if let Some(thread) = self.renewing.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that renews the lease panicked");
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.end();
    }
}

fn valid_ms(time: Duration) -> u64 {
    time.as_millis() as u64 * 9 / 10
}

impl Shared {
    fn renew(&self) {
        loop {
            {
                let mut stopping = self.stopping.lock();
                if !*stopping {
                    self.stop.wait_for(&mut stopping, self.time / 4);
                }
                if *stopping {
                    return;
                }
            }
            let begun = now_ms();
            match self.etcd.renew(self.id, self.time / 2) {
                Ok(()) => {
                    // A renewal after the end may be of a lease that etcd has not ended yet.
                    if begun < self.valid_until.load(Ordering::Acquire) {
                        let until = begun + valid_ms(self.time);
                        self.valid_until.store(until, Ordering::Release);
                        self.etcd.prefer_leader();
                    } else {
                        self.lost.store(true, Ordering::Release);
                    }
                }
                Err(EtcdError::NotLeader { .. }) => self.lost.store(true, Ordering::Release),
                Err(error) => tracing::warn!("the leader's lease is not renewed: {error}"),
            }
            if self.lost.load(Ordering::Acquire)
                || now_ms() >= self.valid_until.load(Ordering::Acquire)
            {
                self.lost.store(true, Ordering::Release);
                self.stop.notify_all();
                return;
            }
        }
    }
}
