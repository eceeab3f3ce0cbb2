//! Handles: numbers that stand for sessions, objects and lists, until they are given back.
//!
//! A number is never used again, and a number that is none finds nothing: a handle that was closed, was never set or
//! is of another kind is an error and not a crash. A call holds what its handle stands for, so that another thread
//! may close it meanwhile. A child of `fork` has none of its parent's: see `process`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use slabfs_fs::session::{Object, ObjectSpec, Session, Tag};

use crate::error::{Failure, SLABFS_EHANDLE};
use crate::names::Entry;
use crate::pending::Pending;
use crate::process::Own;

/// A session with a filesystem, from `slabfs_connect` to `slabfs_close`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabfs_session {
    /// Its number; 0 is never one.
    pub id: u64,
}

/// An open object, from `slabfs_open` or `slabfs_create` to `slabfs_object_close`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabfs_object {
    /// Its number; 0 is never one.
    pub id: u64,
}

/// What an object is to be, from `slabfs_spec_new` to `slabfs_spec_free`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabfs_spec {
    /// Its number; 0 is never one.
    pub id: u64,
}

/// A list of names, from `slabfs_list` or `slabfs_find` to `slabfs_entries_free`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabfs_entries {
    /// Its number; 0 is never one.
    pub id: u64,
}

/// A list of tags, from `slabfs_tags_of` to `slabfs_tags_free`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabfs_tags {
    /// Its number; 0 is never one.
    pub id: u64,
}

/// A transfer, from `slabfs_transfer_read` and its like to `slabfs_transfer_free`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct slabfs_transfer {
    /// Its number; 0 is never one.
    pub id: u64,
}

/// The handles of a kind. An ordered map has no memory while it is empty, and none that checkers of memory take for lost.
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

/// All kinds count together, so that a handle of one is none of another.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl<T: Send + Sync + 'static> Table<T> {
    const fn new(kind: &'static str) -> Table<T> {
        Table {
            kind,
            held: Own::new(),
        }
    }

    /// A number for this.
    pub(crate) fn put(&self, one: T) -> u64 {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        self.held.here().0.write().insert(id, Arc::new(one));
        id
    }

    /// Whether a process that this one comes from has had any.
    pub(crate) fn inherited(&self) -> bool {
        self.held.inherited()
    }

    /// What a number stands for.
    pub(crate) fn get(&self, id: u64) -> Result<Arc<T>, Failure> {
        let found = self.held.here().0.read().get(&id).cloned();
        found.ok_or_else(|| self.unknown(id))
    }

    /// The same, and the number stands for nothing from now on.
    pub(crate) fn take(&self, id: u64) -> Result<Arc<T>, Failure> {
        let found = self.held.here().0.write().remove(&id);
        found.ok_or_else(|| self.unknown(id))
    }

    fn unknown(&self, id: u64) -> Failure {
        let kind = self.kind;
        let known = match self.held.inherited() {
            false => format!("{id} is no {kind}, or not any more"),
            true => format!(
                "{id} is no {kind} of this process: a child of fork has none of its parent's"
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
/// Lists of names.
pub(crate) static ENTRIES: Table<Vec<Entry>> = Table::new("list of entries");
/// Lists of tags: keys, which end with a zero byte, and values.
pub(crate) static TAGS: Table<Vec<(Vec<u8>, Tag)>> = Table::new("list of tags");
