//! Write permits: keep in-place writes to grid chunks and the copies made by `drain` apart.
//!
//! Grid chunks are written in place, so `drain` must not copy one during a write. While none of an object's servers
//! is being drained, a write takes no permit: it only holds the list of servers that it uses until it ends, and the
//! metadata service learns that this mount *knows* a newer list once no write holds an older one ([`Client::knows`]).
//! Otherwise the write takes a permit, which is refused while a drain has the object, and which returns where the
//! chunks are.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slabfs_mdserver::api::{Ino, MdError, Permit, Permitted};

use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;
use crate::client::placement::place::Known;
use crate::client::{Client, FORM_TRIES};

/// Pause before a write permit is requested again.
const PAUSE: Duration = Duration::from_millis(20);

/// Permission to write to an object's chunks; ended by [`Allowed::end`].
pub(in crate::client) enum Allowed<'a> {
    /// No chunk is being moved, by this list of servers.
    Free { _by: Arc<Known> },
    /// With a write permit.
    Permit(Held<'a>),
}

/// A write permit that is held.
pub(in crate::client) struct Held<'a> {
    client: &'a Client,
    ino: Ino,
    number: u64,
    given_back: bool,
}

impl Allowed<'_> {
    /// The write is done. Stale if the permit was void: a drain may have missed the written data, which has to be
    /// written again.
    pub(in crate::client) fn end(self) -> Result<(), FsError> {
        match self {
            Allowed::Free { .. } => Ok(()),
            Allowed::Permit(mut held) => {
                held.given_back = true;
                Ok(held.client.md().give_permit(held.ino, held.number)?)
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.given_back {
            return;
        }
        if let Err(error) = self.client.md().give_permit(self.ino, self.number) {
            tracing::debug!(object = %self.ino, %error, "a write permit could not be released");
        }
    }
}

impl Client {
    /// Permission to write to the chunks of a grid object, in the form the caller knows. Waits while they are being
    /// moved; stale when they are elsewhere.
    pub(in crate::client) fn allowed(
        &self,
        object: &Object,
        geometry: &Geometry,
    ) -> Result<Allowed<'_>, FsError> {
        let known = self.known.lock().clone();
        let info = &geometry.info;
        if !info.stripe.iter().any(|id| known.draining.contains(id)) {
            return Ok(Allowed::Free { _by: known });
        }
        let number = self.next_permit.fetch_add(1, Ordering::Relaxed);
        let permitted = self.wait_for_permit(object.ino, Permit::Write(number))?;
        let held = Held {
            client: self,
            ino: object.ino,
            number,
            given_back: false,
        };
        let there = permitted.entry.info.as_ref();
        let same = there.is_some_and(|there| {
            there.generation == info.generation && there.stripe == info.stripe
        });
        if same {
            Ok(Allowed::Permit(held))
        } else {
            Err(FsError::Md(MdError::Stale))
        }
    }

    /// [`Client::allowed`] for a caller that holds the form exclusively, and so can refresh it.
    pub(in crate::client) fn allowed_alone(
        &self,
        object: &Object,
        geometry: &mut Geometry,
    ) -> Result<Allowed<'_>, FsError> {
        for _ in 0..FORM_TRIES {
            match self.allowed(object, geometry) {
                Err(error) if error.is_stale() => self.renew(object, geometry)?,
                other => return other,
            }
        }
        Err(FsError::Unsettled("its chunks are being moved".into()))
    }

    /// Requests a write permit until it is granted, or time is up.
    fn wait_for_permit(&self, ino: Ino, permit: Permit) -> Result<Permitted, FsError> {
        let until = Instant::now() + self.others_timeout();
        loop {
            match self.md().take_permit(ino, permit) {
                Err(MdError::Busy) if Instant::now() < until => {
                    self.pause(PAUSE);
                }
                other => return Ok(other?),
            }
        }
    }

    /// An exclusive permit, to move chunks; `None` while other mounts hold permits.
    pub(in crate::client) fn exclusive(
        &self,
        ino: Ino,
        to: slabfs_model::ServerId,
    ) -> Result<Option<(Held<'_>, Permitted)>, FsError> {
        let number = self.next_permit.fetch_add(1, Ordering::Relaxed);
        match self.md().take_permit(ino, Permit::Move(number, to)) {
            Err(MdError::Busy) => Ok(None),
            other => {
                let permitted = other?;
                let held = Held {
                    client: self,
                    ino,
                    number,
                    given_back: false,
                };
                Ok(Some((held, permitted)))
            }
        }
    }

    /// The version of the list of servers that all running writes of this mount use.
    pub(in crate::client) fn knows(&self) -> u64 {
        let mut older_lists = self.older_lists.lock();
        older_lists.retain(|list| list.strong_count() > 0);
        if older_lists.is_empty() {
            self.known_version
                .store(self.md().servers_version(), Ordering::Release);
        }
        self.known_version.load(Ordering::Acquire)
    }
}
