//! Handles: numbers for sessions, objects and lists, until they are closed or freed.
//!
//! A number is never reused, and unknown numbers are not found: a handle that was closed, was never set or is of
//! another kind gives an error, not a crash. A call holds a reference to the target of its handle, so that another
//! thread may close it meanwhile. After `fork` a child has none of its parent's handles: see `process`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use slabfs_fs::session::{Object, ObjectSpec, Session, Tag};

use crate::error::{Failure, SLABFS_EHANDLE};
use crate::pending::Pending;
use crate::process::Own;

/// A session with a filesystem, from `slabfs_connect` to `slabfs_close`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabfs_session {
    /// The handle's number; never 0.
    pub id: u64,
}

/// An open object, from `slabfs_open` or `slabfs_create` to `slabfs_object_close`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabfs_object {
    /// The handle's number; never 0.
    pub id: u64,
}

/// The properties of objects to create, from `slabfs_spec_new` to `slabfs_spec_free`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabfs_spec {
    /// The handle's number; never 0.
    pub id: u64,
}

/// A list of names, from `slabfs_list` or `slabfs_find` to `slabfs_entries_free`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabfs_entries {
    /// The handle's number; never 0.
    pub id: u64,
}

/// A list of tags, from `slabfs_tags_of` to `slabfs_tags_free`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabfs_tags {
    /// The handle's number; never 0.
    pub id: u64,
}

/// A transfer, from `slabfs_transfer_read` or a similar call to `slabfs_transfer_free`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabfs_transfer {
    /// The handle's number; never 0.
    pub id: u64,
}

/// The handles of a kind. An ordered map allocates nothing while it is empty, so leak checkers report nothing.
pub(crate) struct Table<T> {
    kind: &'static str,
    held: Own<Held<T>>,
}

struct Held<T>(RwLock<BTreeMap<u64, Arc<T>>>);

impl<T> Default for Held<T> {
    fn default() -> Held<T> {
        Held(RwLock::new(BTreeMap::new()))
    }
}

/// All kinds share one counter, so that a handle of one kind is never valid for another.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl<T: Send + Sync + 'static> Table<T> {
    pub(crate) const fn new(kind: &'static str) -> Table<T> {
        Table {
            kind,
            held: Own::new(),
        }
    }

    /// Assigns a handle.
    pub(crate) fn put(&self, one: T) -> u64 {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        self.held.here().0.write().insert(id, Arc::new(one));
        id
    }

    /// Whether an ancestor of this process has used any.
    pub(crate) fn inherited(&self) -> bool {
        self.held.inherited()
    }

    /// The target of a handle.
    pub(crate) fn get(&self, id: u64) -> Result<Arc<T>, Failure> {
        let found = self.held.here().0.read().get(&id).cloned();
        found.ok_or_else(|| self.unknown(id))
    }

    /// Removes a handle, and returns its target.
    pub(crate) fn take(&self, id: u64) -> Result<Arc<T>, Failure> {
        let found = self.held.here().0.write().remove(&id);
        found.ok_or_else(|| self.unknown(id))
    }

    fn unknown(&self, id: u64) -> Failure {
        let kind = self.kind;
        let known = match self.held.inherited() {
            false => format!("{id} is not a {kind}, or was closed"),
            true => format!(
                "{id} is not a {kind} of this process: handles are not valid in a child of fork"
            ),
        };
        Failure::new(SLABFS_EHANDLE, known)
    }
}

/// Sessions.
pub(crate) static SESSIONS: Table<Session> = Table::new("session");
/// Open objects.
pub(crate) static OBJECTS: Table<Object> = Table::new("object");
/// Transfers.
pub(crate) static TRANSFERS: Table<Pending> = Table::new("transfer");
/// Specs.
pub(crate) static SPECS: Table<Mutex<ObjectSpec>> = Table::new("spec");
/// Lists of tags: NUL-terminated keys, and values.
pub(crate) static TAGS: Table<Vec<(Vec<u8>, Tag)>> = Table::new("list of tags");
