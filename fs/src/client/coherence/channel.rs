//! The mount's end of its two channels to the lock server: of its locks (`locks`) and of its rights (`rights`). The
//! server's end, and the protocol, is `mdserver/src/sessions/channel.rs`.
//!
//! On each channel:
//!
//! - Requests are made for the current *epoch*. The mount ends it when the lock server says that it is over, when a
//!   heartbeat shows that the lock server was restarted, and when the outcome of a request is unknown, after an error.
//!   Then the mount tells the lock server what it has and keeps, and another epoch begins ([`Channel::renew`]). Replies
//!   and events of an epoch that is over do not count.
//! - One thread polls for *events* ([`Client::poll_events`]). It waits for the lock server only. A poll acknowledges the
//!   events before it, and events that arrive again are not handled again.
//! - A lost *session* ends the epoch too: what was held is lost. The next session begins with an epoch in which nothing is
//!   held (`lease`).

use std::time::{Duration, Instant};

use slabfs_mdserver::api::{Epoch, MdError, News, Operation, op};

use crate::client::Client;

/// Longest wait of one poll; every poll is cut to half of the request timeout.
const POLL: Duration = Duration::from_secs(5);
/// Pause before a failed step is tried again, and before a poll that the lock server answered at once is repeated.
pub(in crate::client) const PAUSE: Duration = Duration::from_millis(100);

/// What a polling thread does next.
pub(in crate::client) enum Next {
    /// Polls for the events of an epoch, in the mount's session of this number: the next session may be in an epoch of
    /// the same number, and its events are counted from 1 again.
    Poll(Epoch, u64),
    /// Checks again: it has done other work.
    Again,
    /// The same, after a pause: the work has failed.
    Pause,
    /// The client stops.
    Stop,
}

/// One of the two channels; see the module documentation.
pub(in crate::client) trait Channel {
    /// Its name in messages.
    const NAME: &'static str;
    /// Its events.
    type Kind;
    /// The poll for them.
    type Poll: Operation<Reply = News<Self::Kind>>;

    /// Waits until there is anything to do, after a failure at least for `PAUSE`; does all of it but polling.
    fn next(client: &Client, failed: bool) -> Result<Next, MdError>;

    /// The poll for events of an epoch after number `seen`.
    fn poll(epoch: Epoch, seen: u64, wait_ms: u32) -> Self::Poll;

    /// Handles an event of an epoch, which may be over.
    fn happened(client: &Client, epoch: Epoch, kind: Self::Kind);

    /// Begins another epoch, unless another thread has done so since epoch `over` ended.
    fn renew(client: &Client, over: Epoch) -> Result<(), MdError>;

    /// A poll for an epoch has failed, or the work before it.
    fn failed(client: &Client, epoch: Epoch, error: &MdError);
}

impl Client {
    /// Main loop of a polling thread; it runs until the client stops.
    pub(in crate::client) fn poll_events<C: Channel>(&self) {
        // The number of the last event, and of what.
        let (mut of, mut seen) = ((Epoch::UNKNOWN, 0), 0);
        let mut failed = false;
        loop {
            let done = match C::next(self, failed) {
                Ok(Next::Poll(epoch, session)) => {
                    if of != (epoch, session) {
                        (of, seen) = ((epoch, session), 0);
                    }
                    self.poll_once::<C>(epoch, &mut seen)
                }
                Ok(Next::Again) => Ok(true),
                Ok(Next::Pause) => Ok(false),
                Ok(Next::Stop) => return,
                Err(error) => Err(error),
            };
            failed = !done.unwrap_or_else(|error| {
                if error != MdError::SessionLost {
                    let name = C::NAME;
                    tracing::debug!(%error, "polling the {name} events failed; trying again");
                }
                C::failed(self, of.0, &error);
                false
            });
        }
    }

    /// One poll; false if it achieved nothing and took no time.
    fn poll_once<C: Channel>(&self, epoch: Epoch, seen: &mut u64) -> Result<bool, MdError> {
        let wait = POLL.min(self.options.io_timeout / 2);
        let begun = Instant::now();
        match self.md.call(C::poll(epoch, *seen, op::millis(wait)))? {
            News::Events(events) => {
                let any = !events.is_empty();
                for event in events {
                    if event.number > *seen {
                        *seen = event.number;
                        C::happened(self, epoch, event.kind);
                    }
                }
                Ok(any || begun.elapsed() >= wait / 2)
            }
            News::Over => C::renew(self, epoch).map(|()| true),
        }
    }
}
