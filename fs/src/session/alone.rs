//! A filesystem used only by this process: metadata service and one data server in a directory, by direct calls.
//!
//! It has the format of `slabfs up --data DIR`, so that either can open the other's directory; one at a time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use slabfs_mdserver::client::LocalMd;
use slabfs_mdserver::service::{Service, ServiceOptions};
use slabfs_objstore::ChunkStore;
use slabfs_objstore::client::{Options, Servers};
use slabfs_objstore::server::{Fence, Heart, HeartOptions};
use slabfs_objstore::store::{LocalOptions, LocalStore};

use super::error::{Error, ErrorKind};
use crate::client::{Client, ClientOptions};
use crate::clients::Clients;

/// Timeout for the registration of the data server at the metadata service.
const REGISTERED: Duration = Duration::from_secs(30);

/// The services behind the session of such a filesystem.
pub(super) struct Alone {
    service: Arc<Service>,
    heart: Heart,
    store: Arc<dyn ChunkStore>,
}

impl Alone {
    /// Opens the directory, creating it if it is missing, and attaches.
    pub(super) fn open(dir: &Path) -> Result<(Alone, Arc<Clients>), Error> {
        if dir.join("os2").exists() {
            return Err(Error::new(
                ErrorKind::NotSupported,
                format!(
                    "{} holds several data servers; serve it with `slabfs up --data {0} --listen unix:PATH` and connect there",
                    dir.display()
                ),
            ));
        }
        let failed = |error: &dyn std::fmt::Display| {
            Error::new(
                ErrorKind::Io,
                format!("cannot use {}: {error}", dir.display()),
            )
        };
        let (md, os) = (dir.join("md"), dir.join("os1"));
        for one in [dir, &md, &os] {
            make_private(one).map_err(|error| failed(&error))?;
        }
        let (service, _) =
            Service::open(&md, ServiceOptions::default()).map_err(|error| failed(&error))?;
        let service = Arc::new(service);
        let opened = Alone::start(service.clone(), &os, &failed);
        if opened.is_err()
            && let Err(error) = service.close()
        {
            tracing::warn!(%error, "the metadata service did not close well");
        }
        opened
    }

    fn start(
        service: Arc<Service>,
        os: &Path,
        failed: &dyn Fn(&dyn std::fmt::Display) -> Error,
    ) -> Result<(Alone, Arc<Clients>), Error> {
        let store =
            LocalStore::open(os, LocalOptions::default()).map_err(|error| failed(&error))?;
        let uuid = store.id();
        let fence = Arc::new(Fence::open(store.path()));
        let store: Arc<dyn ChunkStore> = Arc::new(store);
        let heart = Heart::start(
            store.clone(),
            service.clone(),
            fence,
            HeartOptions::new(uuid, None),
        )
        .map_err(|error| failed(&error))?;
        let alone = Alone {
            service,
            heart,
            store,
        };
        let id = match alone.heart.registered(REGISTERED) {
            Ok(id) => id,
            Err(error) => {
                alone.heart.stop();
                return Err(failed(&error));
            }
        };
        let servers = Servers::new(Options::default());
        servers.add_local(id, alone.store.clone());
        let metadata = Arc::new(LocalMd(alone.service.clone()));
        match Client::start(metadata, Arc::new(servers), ClientOptions::default()) {
            Ok(client) => Ok((alone, Arc::new(client.into()))),
            Err(error) => {
                alone.heart.stop();
                Err(error.into())
            }
        }
    }

    /// Closes the services with everything on disk; the session has ended before.
    pub(super) fn close(self) -> Result<(), Error> {
        self.heart.stop();
        let stored = self.store.sync(&[]);
        let closed = self.service.close();
        stored.map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?;
        closed.map_err(|error| {
            Error::new(
                ErrorKind::Io,
                format!("the metadata service did not close well: {error}"),
            )
        })
    }
}

/// Creates a directory that only its owner may enter: access to the files in it bypasses all permissions.
fn make_private(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;

    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
}
