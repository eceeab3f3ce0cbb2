//! [`Standby`]: a metadata service that is not the leader. It follows the log, and becomes the leader when there is none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use slabfs_mdserver::kv::{KvOptions, LocalKv, Lsn, MetaKv};

use crate::checkpoints::Checkpoints;
use crate::client::Etcd;
use crate::copy::{Copy, Place};
use crate::error::EtcdError;
use crate::kv::EtcdKv;
use crate::lease::{Leader, Lease};
use crate::log::{Log, REQUEST};

/// How often a standby looks for new commits, and for the leader.
const ROUND: Duration = Duration::from_millis(250);

/// A service that follows.
#[derive(Debug)]
pub struct Standby {
    etcd: Arc<Etcd>,
    log: Log,
    place: Place,
    checkpoints: Checkpoints,
    options: KvOptions,
    /// None where it has to be rebuilt.
    copy: Option<Copy>,
}

/// The leader's store, and what is needed to start a service over it.
#[derive(Debug)]
pub struct Elected {
    /// The store.
    pub kv: EtcdKv,
    /// The directory of the copy; files derived from it go there, too.
    pub dir: PathBuf,
    /// The last commit.
    pub last: Lsn,
}

impl Standby {
    /// Opens the copy in `dir`, and brings it up to the log.
    ///
    /// # Errors
    /// No etcd, another log than that of the copy, a checkpoint that is not there.
    pub fn open(
        etcd: &Arc<Etcd>,
        dir: &Path,
        checkpoints: Checkpoints,
        options: &KvOptions,
    ) -> Result<Standby, EtcdError> {
        let log = Log::open(etcd)?;
        checkpoints.check(log.checkpoint()?.as_ref())?;
        let place = Place::new(dir, &log)?;
        let copy = place.open(&log, &checkpoints, options)?;
        Ok(Standby {
            etcd: Arc::clone(etcd),
            log,
            place,
            checkpoints,
            options: options.clone(),
            copy: Some(copy),
        })
    }

    /// Follows the log until this service is the leader as `who`; `time`: that of its lease, in complete seconds.
    /// `wait` gets the leader, waits for at most the time given, and returns false when the service is about to stop.
    ///
    /// # Errors
    /// `Stopping` when `wait` has said so; a copy that cannot follow.
    pub fn until_elected(
        mut self,
        who: &Leader,
        time: Duration,
        mut wait: impl FnMut(Option<&Leader>, Duration) -> bool,
    ) -> Result<Elected, EtcdError> {
        let mut is_away = false;
        let mut leader = None;
        loop {
            match self.round(who, time) {
                Ok(Some(lease)) => return self.lead(lease),
                Ok(None) => {
                    if std::mem::take(&mut is_away) {
                        tracing::info!("etcd answers again");
                    }
                    leader = Lease::leader(&self.etcd, REQUEST).unwrap_or(leader);
                }
                Err(error) if error.is_transient() => {
                    if !is_away {
                        tracing::warn!("this standby cannot follow: {error}");
                        is_away = true;
                    }
                }
                Err(error) => return Err(error),
            }
            if !wait(leader.as_ref(), ROUND) {
                if let Some(copy) = self.copy {
                    copy.kv.close()?;
                }
                return Err(EtcdError::Stopping);
            }
        }
    }

    fn round(&mut self, who: &Leader, time: Duration) -> Result<Option<Lease>, EtcdError> {
        let copy = match &mut self.copy {
            Some(copy) => copy,
            None => {
                let copy = self
                    .place
                    .open(&self.log, &self.checkpoints, &self.options)?;
                self.copy.insert(copy)
            }
        };
        if copy.follow(&self.log)? {
            return Lease::campaign(&self.etcd, who, time);
        }
        tracing::info!("the log has gone on without this standby: its copy is rebuilt");
        if let Some(copy) = self.copy.take() {
            copy.kv.close()?;
        }
        self.place.discard()?;
        Ok(None)
    }

    /// Reads the rest of the log, which is complete now, and makes the copy the leader's store.
    fn lead(mut self, lease: Lease) -> Result<Elected, EtcdError> {
        let copy = loop {
            lease.check()?;
            let Some(copy) = &mut self.copy else {
                return Err(EtcdError::Content("there is no copy".to_owned()));
            };
            match copy.follow(&self.log) {
                Ok(true) => break copy,
                Ok(false) => {
                    let text = "the copy is too old for the log";
                    return Err(EtcdError::Content(text.to_owned()));
                }
                Err(error) if error.is_transient() => {
                    tracing::warn!("reading the rest of the log: {error}");
                }
                Err(error) => return Err(error),
            }
        };
        let last = copy.last;
        self.log.cut(&lease, last)?;
        copy.kv.close()?;
        self.copy = None;
        // Opened again, it knows what changed since the files derived from it were written.
        let dir = self.place.store();
        let (kv, found) = LocalKv::open(&dir, self.options.clone())?;
        if found.last != last {
            return Err(EtcdError::Content(format!(
                "the copy ends at commit {} and not at {last}",
                found.last
            )));
        }
        let limit = self.options.journal_limit;
        let parts = (self.log, lease, self.checkpoints);
        let kv = EtcdKv::new((kv, last), self.place, parts, limit)?;
        Ok(Elected { kv, dir, last })
    }
}
