//! The deferred truncate: `O_TRUNC` on an array of fixed dims.
//!
//! A program that writes too many elements into such an array gets an error, and must not have emptied the array
//! before. So `open` with `O_TRUNC` only records that the array is to be emptied (`Object::emptied_by`). The truncate
//! takes effect
//!
//! - before the first write through that handle that is accepted,
//! - when that handle is synced or released. Not with a `close`, which need not be the last one: a shell duplicates the
//!   descriptor of `>` and closes the first one before the command runs,
//! - before any other operation of this mount on the object, and before another mount gets a right to it.
//!
//! So no program can tell it from one that took effect at once, except that it does not happen if the first write
//! through the handle is refused. It is dirty state like bytes in the write-behind buffer: it is set under the write
//! right to the entire object, a recall writes it back, and a lost session loses it.
//!
//! Only a strict mount defers: without rights, another mount may write between the `open` and the first write. Mounts of
//! mode `commit` hold no rights, so what one of them syncs between the `open` and the first write of a strict mount is
//! emptied, as if it had come before the `open`.

use std::sync::atomic::Ordering;

use slabfs_mdserver::api::{Ino, Time};

use crate::client::Client;
use crate::client::coherence::rights::By;
use crate::client::error::FsError;
use crate::client::handle::Handle;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;

/// The value of [`Object::emptied_by`] where no truncate is deferred; no handle has this number.
pub(in crate::client) const NO_HANDLE: u64 = 0;

impl Client {
    /// Whether a truncate of this object to size 0 by an `open` may be deferred.
    pub fn defers_truncate(&self, ino: Ino) -> bool {
        self.strict() && self.known(ino).is_some_and(|object| object.may_defer())
    }

    /// Executes the deferred truncate of an object, if there is one. The caller holds no lock of an object.
    ///
    /// # Errors
    /// Of the metadata service.
    pub(in crate::client) fn settle_truncate(&self, object: &Object) -> Result<(), FsError> {
        if !object.is_to_be_emptied() {
            return Ok(());
        }
        let mut geometry = object.geometry.write();
        // Another thread may have executed it meanwhile.
        if object.is_to_be_emptied() {
            self.set_size(object, &mut geometry, 0)?;
            object.emptied_by.store(NO_HANDLE, Ordering::SeqCst);
        }
        Ok(())
    }
}

impl Object {
    /// Whether it is an array of fixed dims with data, as far as is known here.
    fn may_defer(&self) -> bool {
        let geometry = self.geometry.read();
        // Readers of a coupled object have to wait for the new data from the `open` on.
        !self.coupled.any() && self.is_fixed(&geometry)
    }

    fn is_fixed(&self, geometry: &Geometry) -> bool {
        geometry.info.declared && !geometry.grows() && self.size(geometry) > 0
    }

    /// Whether a truncate is deferred.
    pub(in crate::client) fn is_to_be_emptied(&self) -> bool {
        self.emptied_by.load(Ordering::SeqCst) != NO_HANDLE
    }
}

impl Handle {
    /// Defers a truncate to size 0. Returns false, and does nothing, for objects whose truncate is not deferred.
    ///
    /// # Errors
    /// Those of entering the object.
    pub fn defer_truncate(&self) -> Result<bool, FsError> {
        let (client, object) = (&self.client, &self.object);
        if !client.strict() || !self.writable || self.selected.is_some() {
            return Ok(false);
        }
        if !object.may_defer() {
            return Ok(false);
        }
        client.admit(object)?;
        let (_op, mut geometry) = client.enter_all(object, By::Truncate, None)?;
        client.renew(object, &mut geometry)?;
        if !object.is_fixed(&geometry) {
            return Ok(false);
        }
        object.emptied_by.store(self.id.0, Ordering::SeqCst);
        *object.written.lock() = Some(Time::now());
        Ok(true)
    }

    /// Whether this handle's truncate is deferred.
    pub(in crate::client) fn has_deferred(&self) -> bool {
        self.object.emptied_by.load(Ordering::SeqCst) == self.id.0
    }

    /// Withdraws this handle's deferred truncate, since its write was refused.
    pub(in crate::client) fn withdraw_truncate(&self) {
        // Shared: a truncate that is being executed has the form's lock exclusively.
        let _geometry = self.object.geometry.read();
        let by = &self.object.emptied_by;
        let withdrawn =
            by.compare_exchange(self.id.0, NO_HANDLE, Ordering::SeqCst, Ordering::SeqCst);
        if withdrawn.is_ok() {
            tracing::info!(
                object = %self.object.ino,
                "the first write after an open with O_TRUNC was refused: the array is as it was before the open"
            );
        }
    }
}
