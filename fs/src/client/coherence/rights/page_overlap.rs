//! Program writes that overlap pages which the kernel holds for mappings.
//!
//! A program's write bypasses the page cache (`write(2)`, also as direct I/O). The kernel writes back and drops the
//! pages under such a write before it sends it, but pages that it reads while the write is in flight are old: a load
//! sees old bytes after other mounts have seen the new ones, and the next store into that page writes back the entire
//! page, over the write. So the kernel has no page of the bytes that a program writes, from before the write begins
//! until it has ended:
//!
//! 1. No other thread releases rights of the object or drops its pages (`State::working`).
//! 2. The kernel drops its pages of those bytes ([`Client::drop_once`]). Until that has returned, its page reads and
//!    writes are served, since the drop waits for them. Data stored into the pages arrives here, so before the write.
//! 3. Access to pages of those bytes is closed, and running kernel requests for them end. If one of those bytes was
//!    handed out since step 2, step 2 is repeated: the page may have been read in after the kernel had cleared its
//!    place.
//! 4. The write begins, and is listed. From here on it keeps the kernel from those pages: a page read waits until the
//!    write has ended (`Held::is_admitted`). Page access is opened again.
//!
//! # Why no data is lost
//!
//! At step 4 the kernel has no page of those bytes. Pages read before step 2 were dropped in it, even if the read was
//! still in flight (its page is locked until the reply, and the drop waits for the lock); pages read since were
//! detected at step 3. So none is modified either, and no modified page is on its way here: a drop waits for those. A
//! page that is read later is read after the write, and contains it.
//!
//! # Why there is no deadlock
//!
//! A thread that drops pages runs no operation, holds no lock, and is not needed by the kernel. The drop waits for
//! the kernel's page reads and writes. Those begin during a drop: pages were handed out, so the entire object is held
//! in the mode they need, and no thread releases it before the drop is over. Only a page read under a running write
//! waits, for that write; and a running write waits for servers, never for the kernel. Page reads that find access
//! closed at step 3 block nothing: no drop is running, and none begins before they are admitted.
//!
//! # What it costs
//!
//! For an object of which no page was requested since it was opened: a load of [`Own`]'s `paged`, and a counter for
//! writes apart from the one for reads. The counter makes the first page request wait for writes that had not seen
//! the mark: a write increments the counter first and checks the mark then, a page request sets the mark first and
//! checks the counter then. After that, writes are listed, which costs a lock and an entry. A drop is needed only for
//! bytes that the kernel has read since their last drop.
//!
//! Pages that are pinned in the kernel (direct I/O of another file straight from the mapping) are not dropped, here
//! as elsewhere.

use std::sync::Arc;
use std::time::Instant;

use slabfs_objstore::interrupt;

use super::held::Want;
use super::op::Op;
use super::{Own, Phase, Span};
use crate::client::Client;
use crate::client::error::FsError;

impl Client {
    /// Waits until `want` may begin: for a right, for the end of another operation, or for the kernel. `None` when it
    /// has to be tried again.
    pub(super) fn await_beginning(
        &self,
        own: &Arc<Own>,
        want: Want,
        until: Instant,
    ) -> Result<Option<Op>, FsError> {
        if let Some(span) = own.pages_under(&want)
            && let Some(op) = self.enter_past_pages(own, &want, span, until)?
        {
            return Ok(Some(op));
        }
        match own.clock.is_free() {
            true => self.await_end(own, &want, until),
            false => self.await_right(own, want, until),
        }
    }

    /// Has the pages of `span` dropped, unless another thread is doing so, and begins `want`, which writes there.
    fn enter_past_pages(
        &self,
        own: &Arc<Own>,
        want: &Want,
        span: Span,
        until: Instant,
    ) -> Result<Option<Op>, FsError> {
        let round = own.clock.round();
        let mut state = own.state.lock();
        let between_epochs = || own.clock.phase() == Phase::Closed;
        while state.held.has_pages_under(want) && (state.working || between_epochs()) {
            self.check_deadline(until)?;
            interrupt::wait_until(&own.changed, &mut state, until);
        }
        let held = own.clock.is_free() || state.held.holds(want);
        if !held || !state.held.has_pages_under(want) {
            return Ok(None);
        }
        state.working = true;
        while state.held.has_pages_under(want) && round == own.clock.round() {
            state = self.drop_once(own, state, span);
        }
        // Not if the session was lost meanwhile.
        let op = match round == own.clock.round() {
            true => own.begin(&mut state, want, round),
            false => None,
        };
        self.rights.end_drop(own, state);
        Ok(op)
    }

    /// In a phase without rights: waits until the running operations allow `want` to begin.
    fn await_end(
        &self,
        own: &Arc<Own>,
        want: &Want,
        until: Instant,
    ) -> Result<Option<Op>, FsError> {
        let mut state = own.state.lock();
        loop {
            let round = own.clock.round();
            if !own.clock.is_free() || state.held.has_pages_under(want) {
                return Ok(None);
            }
            if let Some(op) = own.begin(&mut state, want, round) {
                return Ok(Some(op));
            }
            self.check_deadline(until)?;
            interrupt::wait_until(&own.changed, &mut state, until);
        }
    }

    fn check_deadline(&self, until: Instant) -> Result<(), FsError> {
        match self.rights.stopping() || Instant::now() >= until || interrupt::is_raised() {
            true => Err(FsError::Withheld(self.options.io_timeout)),
            false => Ok(()),
        }
    }
}

impl Own {
    /// The bytes of which pages have to be dropped before `want` begins, if there are any.
    fn pages_under(&self, want: &Want) -> Option<Span> {
        let state = self.state.lock();
        want.span.filter(|_| state.held.has_pages_under(want))
    }
}
