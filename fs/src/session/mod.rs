//! The library for programs: a filesystem's containers, objects, tags and searches, without a mount.
//!
//! A [`Session`] attaches to a running filesystem as a mount does. From it come [`Container`]s, which are
//! directories, and [`Object`]s, which are files: N-dimensional arrays, or plain bytes. A read or write names a
//! [`Select`]ion of an object and moves packed elements in row-major order.
//!
//! ```
//! use slabfs_fs::session::{Access, DType, ObjectSpec, Query, Session, Tag};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! // A filesystem of this process alone; `Session::connect` attaches to a running one.
//! let session = Session::alone(dir.path())?;
//!
//! let run = session.create_container("run1")?;
//! let spec = ObjectSpec::array([16, 16], "f4".parse::<DType>()?).tag("step", Tag::int(3));
//! let temp = run.create("temp", &spec)?;
//! temp.write("[0:2,0:3]", &[1; 2 * 3 * 4])?;
//! temp.close()?;
//!
//! let temp = session.open("run1/temp", Access::Read)?;
//! assert_eq!(temp.read("[1:3,0]")?, [1, 1, 1, 1, 0, 0, 0, 0]);
//! assert_eq!(session.count(&Query::new("step = 3"))?, 1);
//! temp.close()?;
//! session.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! By file: `connect` finds a filesystem, `alone` opens one of this process; `container` handles names, `object` open
//! objects, `spec` describes an object to create, `stat` an existing one, `select` the elements, `transfer`
//! asynchronous reads and writes and nested strided patterns; `find` searches.
//!
//! Invariants: a session may be used from any thread, and is one session of the filesystem, with its write-behind and
//! its rights; sessions and mounts are coherent with each other as mounts are. Permissions are checked here by the user
//! and groups of this process, as the kernel checks them on a mount; symbolic links are not followed. No error is
//! dropped silently: [`Session::close`] and [`Object::close`] return errors, dropping logs them.
//!
//! Deliberately elsewhere: the meaning of names and specs (`view`), the transport of data (`client`), the checks of a
//! path walk (`call`).

mod alone;
mod connect;
mod container;
mod error;
mod find;
mod object;
mod select;
mod spec;
mod stat;
mod transfer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use slabfs_mdserver::api::{Metadata, ROOT};
use slabfs_objstore::client::Servers;

pub use connect::{ConnectOptions, shards_of, shards_text};
pub use container::{Container, Listed, TagEdit};
pub use error::{Error, ErrorKind};
pub use find::{Found, Query};
pub use object::{Access, Object};
pub use select::Select;
pub use slabfs_mdserver::api::{Kind, RenameFlags, ServerInfo, Time};
pub use slabfs_model::{
    Axis, Codec, DType, Hyperslab, Layout, MaxDim, Placement, Region, Selection, Tag, TagKind,
};
pub use slabfs_objstore::interrupt::Interrupt;
pub use spec::ObjectSpec;
pub use stat::{Array, Stat};

pub use crate::client::transfer::{
    Control, Failed, Memory, Scope, StartAll, Startable, Transfer, scope, start_all,
    start_all_async, wait_all,
};
pub use crate::client::{ChunkView, ClientOptions, Consistency, FsError, LayoutView, Sort};
pub use crate::view::pattern::Unit;
pub use slabfs_model::batch::{Batch, Pattern, Place};

use crate::call::path::PathText;
use crate::call::{self, Caller};
use crate::client::Client;
use crate::clients::Clients;
use alone::Alone;

/// A connection to a filesystem. Clones are the same session, which ends when the last of them, and of the objects made
/// from them, is dropped. It belongs to the process that made it: a child of `fork` has none of its threads, must not
/// use or drop it, and has to connect again (the C library refuses it there).
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    client: Arc<Clients>,
    caller: Caller,
    closed: AtomicBool,
    /// The services, if they belong to this session.
    alone: Mutex<Option<Alone>>,
}

impl Session {
    /// Attaches to a running filesystem.
    ///
    /// # Errors
    /// `Unavailable` if no service replies there within the I/O timeout; `Invalid` or `NotSupported` if the place leads
    /// to no filesystem; the text describes valid places.
    pub fn connect(options: &ConnectOptions) -> Result<Session, Error> {
        Ok(Session::over(options.attach()?, None))
    }

    /// Opens a filesystem of this process alone, in a directory that is created if it is missing. It has the format of
    /// `slabfs up --data DIR`, with one data server; other processes can use the directory after the session was closed
    /// and everything made from it dropped.
    ///
    /// # Errors
    /// `Io` if the directory cannot be used; another process may have it open.
    pub fn alone(dir: impl AsRef<Path>) -> Result<Session, Error> {
        let (alone, client) = Alone::open(dir.as_ref())?;
        Ok(Session::over(client, Some(alone)))
    }

    /// Attaches to services given by the caller: in this process, or over another transport.
    ///
    /// # Errors
    /// If the metadata service refuses or is away.
    pub fn start(
        metadata: Arc<dyn Metadata>,
        servers: Arc<Servers>,
        options: ClientOptions,
    ) -> Result<Session, Error> {
        let client = Client::start(metadata, servers, options)?;
        Ok(Session::over(Arc::new(client.into()), None))
    }

    fn over(client: Arc<Clients>, alone: Option<Alone>) -> Session {
        Session {
            inner: Arc::new(Inner {
                client,
                caller: Caller::of_this_process(),
                closed: AtomicBool::new(false),
                alone: Mutex::new(alone),
            }),
        }
    }

    /// The root container.
    pub fn root(&self) -> Container {
        Container::new(self.clone(), ROOT, PathText::Text(String::new()))
    }

    /// The container with this path.
    ///
    /// # Errors
    /// As [`Container::container`].
    pub fn container(&self, path: impl AsRef<Path>) -> Result<Container, Error> {
        self.root().container(path)
    }

    /// Creates a container.
    ///
    /// # Errors
    /// As [`Container::create_container`].
    pub fn create_container(&self, path: impl AsRef<Path>) -> Result<Container, Error> {
        self.root().create_container(path)
    }

    /// Creates an object and opens it for reading and writing.
    ///
    /// # Errors
    /// As [`Container::create`].
    pub fn create(&self, path: impl AsRef<Path>, spec: &ObjectSpec) -> Result<Object, Error> {
        self.root().create(path, spec)
    }

    /// Opens an object.
    ///
    /// # Errors
    /// As [`Container::open`].
    pub fn open(&self, path: impl AsRef<Path>, access: Access) -> Result<Object, Error> {
        self.root().open(path, access)
    }

    /// The data servers, as `slabfs servers` shows them.
    ///
    /// # Errors
    /// If the metadata service is away.
    pub fn servers(&self) -> Result<Vec<ServerInfo>, Error> {
        Ok(self.client()?.servers()?)
    }

    /// Syncs all data written by this session to the servers' disks.
    ///
    /// # Errors
    /// The first error; the other objects are written back all the same.
    pub fn sync(&self) -> Result<(), Error> {
        Ok(self.client()?.sync_all()?)
    }

    /// Statistics of this session: counters, as `.slabfs/stats` of a mount shows them.
    pub fn stats(&self) -> serde_json::Value {
        self.inner.client.stats()
    }

    /// Ends the session: written data is synced to the servers' disks, and all later calls of its containers and
    /// objects fail. A second close has no effect.
    ///
    /// # Errors
    /// If data could not be written back; it is lost then.
    pub fn close(&self) -> Result<(), Error> {
        self.inner.close()
    }

    pub(crate) fn client(&self) -> Result<&Arc<Clients>, Error> {
        match self.inner.closed.load(Ordering::Acquire) {
            false => Ok(&self.inner.client),
            true => Err(FsError::Closed.into()),
        }
    }

    /// Refuses changes in a read-only session.
    fn changes(&self) -> Result<(), Error> {
        match self.client()?.read_only() {
            false => Ok(()),
            true => Err(Error::new(
                ErrorKind::ReadOnly,
                "the session is read-only; connect without that to change anything",
            )),
        }
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.inner.closed.load(Ordering::Acquire)
    }

    /// The caller, for the checks of a path walk.
    fn context(&self) -> Result<call::Context, Error> {
        let client = self.client()?.clone();
        Ok(call::Context::new(client, self.inner.caller.clone()))
    }
}

impl Inner {
    fn close(&self) -> Result<(), Error> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let stopped = self.client.stop();
        let closed = match self.alone.lock().take() {
            Some(alone) => alone.close(),
            None => Ok(()),
        };
        stopped.map_err(|error| {
            Error::from(error).about("not everything that was written could be stored")
        })?;
        closed
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "a session did not end well");
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("client", &self.inner.client)
            .finish_non_exhaustive()
    }
}
