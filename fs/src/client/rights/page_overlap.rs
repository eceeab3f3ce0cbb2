//! Writes of programs beside pages of mappings that the kernel holds.
//!
//! A program writes past the page cache (`write(2)`, also as direct I/O). The kernel writes back and drops the
//! pages under such a write before it sends it, but what it fetches while the write is on its way is old: a load
//! sees old bytes after others have seen the new ones, and the next store into that page brings it back whole,
//! over the write. So of bytes that a program writes the kernel has no page, from before the write begins until
//! it has ended:
//!
//! 1. Nobody else takes something back of the object, or drops its pages (`State::working`).
//! 2. The kernel drops its pages of those bytes ([`Client::drop_once`]). Until that has returned its reads and
//!    writes of pages are done: it waits for just them. What was stored into the pages comes in here, and so
//!    before the write.
//! 3. The door to pages of those bytes is shut, and the kernel's requests for them that run end. Was one of
//!    those bytes handed out since 2, then 2 again: the page may have come after its place was cleared.
//! 4. The write begins, and is listed. From here on it is what keeps the kernel from those pages: a read of one
//!    waits until the write has ended (`Held::is_let_in`). The door is opened.
//!
//! # Why nothing is lost
//!
//! At 4 no page of those bytes is in the kernel: what was read before 2 was dropped in it, be it that the read
//! was still on its way (its page is locked until it is answered, and the drop waits for the lock), and what was
//! read since would have been seen at 3. So none is changed either, and no changed one is on its way here: a drop
//! waits for those. A page that is read later is read after the write, and has it.
//!
//! # Why nobody waits for ever
//!
//! Whoever drops pages has begun nothing, has no lock, and is on a thread that the kernel does not need. The drop
//! waits for the kernel's reads and writes of pages. Those begin while it goes on: pages were out, so all of the
//! object is held in the mode they are for, and nobody takes it back before the drop is over. Only a read under a
//! write that runs waits, for that write; and one that runs waits for servers, and never for the kernel. Reads
//! that find the door shut at 3 are waited for by nobody: no drop goes on, and none begins before somebody has
//! been let in.
//!
//! # What it costs
//!
//! An object of which no page was ever asked for since it was opened: a load of [`Own`]'s `paged`, and writes are
//! counted where reads and writes were counted together. The count is what makes the first page wait for the
//! writes that had not seen the mark: whoever writes counts first and looks at the mark then, whoever wants a page
//! marks first and looks at the count then. After that, writes are listed, which is a lock and an entry. A drop is
//! only for bytes that the kernel has read since they were dropped last.
//!
//! Pages that something else in the kernel holds on to (direct I/O of another file straight from the mapping) are
//! not dropped by it, here as elsewhere.

use std::sync::Arc;
use std::time::Instant;

use super::super::Client;
use super::super::error::FsError;
use super::held::Want;
use super::op::Op;
use super::spans::Span;
use super::{Own, Phase};

impl Client {
    /// Waits until `want` may begin: for a right, for another one's end, or for the kernel. Nothing when it has
    /// to be tried again.
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

    /// Has the pages of `span` dropped, if nobody does so already, and begins `want`, which writes there.
    fn enter_past_pages(
        &self,
        own: &Arc<Own>,
        want: &Want,
        span: Span,
        until: Instant,
    ) -> Result<Option<Op>, FsError> {
        let round = own.clock.round();
        let mut state = own.state.lock();
        let turning = || own.clock.phase() == Phase::Closed;
        while state.held.has_pages_under(want) && (state.working || turning()) {
            self.give_in(until)?;
            own.changed.wait_until(&mut state, until);
        }
        let held = own.clock.is_free() || state.held.holds(want);
        if !held || !state.held.has_pages_under(want) {
            return Ok(None);
        }
        state.working = true;
        while state.held.has_pages_under(want) && round == own.clock.round() {
            state = self.drop_once(own, state, span);
        }
        // Nothing if the session was lost meanwhile.
        let op = match round == own.clock.round() {
            true => own.begin(&mut state, want, round),
            false => None,
        };
        state.held.reopen();
        state.work_ends();
        own.changed.notify_all();
        let more = !state.recalls.is_empty();
        drop(state);
        if more {
            self.rights.call(own.clone());
        }
        Ok(op)
    }

    /// Where nobody has to be asked: waits until what runs lets `want` begin.
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
            self.give_in(until)?;
            own.changed.wait_until(&mut state, until);
        }
    }

    fn give_in(&self, until: Instant) -> Result<(), FsError> {
        match self.rights.stopping() || Instant::now() >= until {
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
