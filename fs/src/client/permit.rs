//! Write permits: writes into the chunks of a grid while one of its servers is being emptied.
//!
//! Chunks of a grid are written in place, so a mover must not copy one while somebody writes to it. As
//! long as none of an object's servers is being emptied, a write only notes that it goes on: the list of
//! servers it goes by is held until it ends, and the metadata service hears that this mount *knows* a
//! newer list when nobody holds an older one ([`Client::knows`]). Otherwise a write takes a write permit there,
//! which is refused while a mover has the object, and finds out whether the chunks are where it thinks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slabfs_mdserver::api::{Ino, MdError, Permit, Permitted};

use super::error::FsError;
use super::geometry::Geometry;
use super::object::Object;
use super::place::Known;
use super::{Client, FORM_TRIES};

/// How long to wait before a write permit is asked for again.
const PAUSE: Duration = Duration::from_millis(20);

/// Leave to write into an object's chunks; [`Allowed::end`] when that is done.
pub(super) enum Allowed<'a> {
    /// Nobody moves them: the list of servers by which that is so.
    Free { _by: Arc<Known> },
    /// By a write permit.
    Permit(Held<'a>),
}

/// A write permit that is out.
pub(super) struct Held<'a> {
    client: &'a Client,
    ino: Ino,
    number: u64,
    given_back: bool,
}

impl Allowed<'_> {
    /// The write is done. Stale when the write permit was void: what was written may have been missed by a mover
    /// and has to be written again.
    pub(super) fn end(self) -> Result<(), FsError> {
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
            tracing::debug!(object = %self.ino, %error, "a write permit could not be given back");
        }
    }
}

impl Client {
    /// Leave to write into the chunks of a grid object, in the form the caller knows. Waits while they
    /// are being moved; stale when they are elsewhere.
    pub(super) fn allowed(
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

    /// The same for a caller who has the form to himself, and so can look it up anew.
    pub(super) fn allowed_alone(
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

    /// Asks for a write permit until it is given, or time is up.
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

    /// An exclusive pass, to move chunks; nothing while others have theirs.
    pub(super) fn exclusive(
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

    /// The version of the list of servers that all writes of this mount go by.
    pub(super) fn knows(&self) -> u64 {
        let mut elder = self.elder.lock();
        elder.retain(|list| list.strong_count() > 0);
        if elder.is_empty() {
            self.known_version
                .store(self.md().servers_version(), Ordering::Release);
        }
        self.known_version.load(Ordering::Acquire)
    }
}
