//! Which process has an identity: the one that has created the newest segment. Others find that out and stop.

use std::sync::atomic::Ordering;
use std::time::Duration;

use slabfs_objstore::StoreError;

use crate::bucket::Made;
use crate::reuse::Reused;
use crate::segment::{Draft, HEADER, head};
use crate::store::{Result, S3Store};

/// How often it is looked whether another process has the identity.
pub(crate) const LOOK: Duration = Duration::from_millis(500);
/// How long after such a look this process may answer.
const OWNED: Duration = Duration::from_secs(2);
/// How long a process that takes over waits for the one before, if that has not ended in order: it answers nothing any more then.
const GRACE: Duration = Duration::from_millis(2500);

impl S3Store {
    /// Creates a segment without chunks: a process that this one replaces can create none of that number any more. `reused` has the
    /// verifier of the process before if its cache is used again: it has ended, since it had the same directory.
    pub(crate) fn take_over(&mut self, reused: Option<Reused>) -> Result<()> {
        let number = self.state.lock().index.next;
        let bytes = Draft::default().finish(number, self.writer)?;
        let begun = now_ms();
        let made = self
            .bucket
            .create(&self.segment_key(number), bytes.into())?;
        if made == Made::Exists {
            // By another process; or by this one, in an attempt whose answer was lost.
            self.look_for_another()?;
        }
        {
            let mut state = self.state.lock();
            state.index.next = number + 1;
            state.index.note_handover(number);
        }
        let ended = self.bucket.find(&self.closed_key(number), 8)?;
        if let Some(verifier) = ended.as_deref().and_then(|bytes| bytes.try_into().ok()) {
            // It has lost nothing.
            self.verifier = u64::from_le_bytes(verifier);
        } else if let Some(Reused {
            verifier: Some(verifier),
        }) = reused
        {
            self.verifier = verifier;
        }
        if number > 0 && ended.is_none() && reused.is_none() {
            tracing::info!(
                "waiting until the process that served these chunks before answers nothing any more"
            );
            std::thread::sleep(GRACE);
            return self.look_for_another();
        }
        self.note_owned(begun);
        Ok(())
    }

    /// Looks whether another process has the identity: then it has created the next segment, or the one behind a segment of this
    /// process whose creation was not answered.
    pub(crate) fn look_for_another(&self) -> Result<()> {
        let begun = now_ms();
        let mut number = self.state.lock().index.next;
        while let Some(bytes) = self.bucket.find(&self.segment_key(number), HEADER as u64)? {
            let is_own = head(&bytes, number).is_ok_and(|head| head.writer == self.writer);
            if !is_own {
                return Err(self.replaced());
            }
            number += 1;
        }
        self.note_owned(begun);
        Ok(())
    }

    /// Notes that this process had the identity at this time.
    pub(crate) fn note_owned(&self, begun: u64) {
        self.owned.fetch_max(begun, Ordering::AcqRel);
    }

    /// Blocks until another process has this identity, or this one is closed.
    pub fn wait_replaced(&self) {
        let mut waiting = self.replacing.0.lock();
        while !self.is_replaced.load(Ordering::Acquire) {
            self.replacing.1.wait(&mut waiting);
        }
    }

    /// Ends all that `wait_replaced` waits for.
    pub(crate) fn note_end(&self) {
        let _waiting = self.replacing.0.lock();
        self.is_replaced.store(true, Ordering::Release);
        self.replacing.1.notify_all();
    }

    /// Fails if another process has this identity now, or may have.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_replaced.load(Ordering::Acquire) {
            return Err(self.replaced());
        }
        let since = now_ms().saturating_sub(self.owned.load(Ordering::Acquire));
        match since < OWNED.as_millis() as u64 {
            true => Ok(()),
            // It was stopped, or the bucket did not answer.
            false => self.look_for_another(),
        }
    }

    /// Notes that another process has this identity.
    pub(crate) fn replaced(&self) -> StoreError {
        if !self.is_replaced.load(Ordering::Acquire) {
            tracing::error!("another process serves the chunks of {} now", self.id);
            self.note_end();
        }
        StoreError::Io {
            what: format!("storing chunks of {}", self.id),
            detail: "another process has taken them over; this one has to be started again"
                .to_owned(),
            errno: None,
        }
    }
}

/// The clock of ownership: it counts also while the machine is suspended.
pub(crate) fn now_ms() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(u64::MAX, |time| {
        time.tv_sec() as u64 * 1000 + time.tv_nsec() as u64 / 1_000_000
    })
}
