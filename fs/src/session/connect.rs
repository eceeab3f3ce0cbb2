//! Finds a filesystem and attaches a session to it, as a mount does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use slabfs_mdserver::api::MdError;
use slabfs_mdserver::client::RemoteMd;
use slabfs_objstore::addr::AddrError;
use slabfs_objstore::client::{Options, Servers};
use slabfs_objstore::wire::{Key, WireError};
use slabfs_objstore::{Addr, Addrs};

use super::error::{Error, ErrorKind};
use crate::client::{ClientOptions, Consistency, FsError, MemoryOptions};
use crate::clients::{Clients, ShardAt};

/// Maximum size of `.slabfs/status` in bytes; a larger file is something else.
const STATUS_LIMIT: u64 = 16 << 20;

/// Timeout for asking a service why it refused a session.
const LOOK: Duration = Duration::from_secs(2);

/// The longest I/O timeout: deadlines are computed from it.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// How to attach to a running filesystem.
///
/// ```
/// use slabfs_fs::session::ConnectOptions;
/// use std::time::Duration;
///
/// let options = ConnectOptions::to("tcp:node7:7070")
///     .key_file("key")
///     .io_timeout(Duration::from_secs(5));
/// ```
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    place: PathBuf,
    key_file: Option<PathBuf>,
    client: ClientOptions,
    steady: bool,
}

impl ConnectOptions {
    /// The filesystem whose metadata service listens at `unix:PATH` or `tcp:HOST:PORT`, as in `slabfs mount --md`; of one in
    /// several shards, the addresses of all in order, separated by semicolons; or
    /// the one that is mounted at the given path or above it. A mount by `slabfs up` serves other processes only with
    /// `--listen`.
    pub fn to(place: impl AsRef<Path>) -> ConnectOptions {
        ConnectOptions {
            place: place.as_ref().to_owned(),
            key_file: None,
            client: ClientOptions::default(),
            steady: true,
        }
    }

    /// Whether buffers being written stay unchanged until the call, or the transfer, is over. True by default; memory
    /// owned by other languages may change. Then checksums are made of the received data and not of the sent data.
    #[must_use]
    pub fn steady_memory(mut self, steady: bool) -> ConnectOptions {
        self.steady = steady;
        self
    }

    /// The file with the key that all processes of the filesystem share; `tcp:` needs one.
    #[must_use]
    pub fn key_file(mut self, file: impl AsRef<Path>) -> ConnectOptions {
        self.key_file = Some(file.as_ref().to_owned());
        self
    }

    /// How long a call waits for a server that is away, 100 ms at least; 30 s by default.
    #[must_use]
    pub fn io_timeout(mut self, time: Duration) -> ConnectOptions {
        self.client.io_timeout = time;
        self
    }

    /// The coherence between this session and others; strict by default.
    #[must_use]
    pub fn consistency(mut self, consistency: Consistency) -> ConnectOptions {
        self.client.consistency = consistency;
        self
    }

    /// Refuses all changes.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> ConnectOptions {
        self.client.read_only = read_only;
        self
    }

    /// Maximum amount of dirty data in bytes, beyond which writers block; 1 MiB at least, 256 MiB by default.
    /// Write-back begins at half of it.
    #[must_use]
    pub fn dirty_limit(mut self, bytes: u64) -> ConnectOptions {
        self.client.dirty_limit = bytes;
        self
    }

    /// Size of the read cache in bytes; 64 MiB by default.
    #[must_use]
    pub fn cache(mut self, bytes: u64) -> ConnectOptions {
        self.client.cache_bytes = bytes;
        self
    }

    /// The name of this machine, by which placement `local` finds its servers; the host name by default.
    #[must_use]
    pub fn host(mut self, name: impl Into<String>) -> ConnectOptions {
        self.client.host = Some(name.into());
        self
    }

    /// Attaches.
    pub(super) fn attach(&self) -> Result<Arc<Clients>, Error> {
        if self.client.dirty_limit < ClientOptions::LEAST_DIRTY {
            return Err(Error::invalid(format!(
                "a dirty limit of {} bytes: give 1 MiB (1048576) or more",
                self.client.dirty_limit
            )));
        }
        if self.client.io_timeout > LONGEST {
            return Err(Error::invalid(format!(
                "an I/O timeout of {:?}: give less than a year",
                self.client.io_timeout
            )));
        }
        if self.client.io_timeout < ClientOptions::LEAST_TIMEOUT {
            return Err(Error::invalid(format!(
                "an I/O timeout of {:?}: servers that are well may take longer to answer; give 100 ms or more",
                self.client.io_timeout
            )));
        }
        let addrs = self.addrs()?;
        let mut all = addrs.iter().flat_map(Addrs::all);
        let tcp = all.find(|addr| matches!(addr, Addr::Tcp(_)));
        let key = match (&self.key_file, tcp) {
            (Some(file), _) => {
                Some(Key::load(file).map_err(|error| Error::invalid(error.to_string()))?)
            }
            (None, Some(tcp)) => {
                return Err(Error::invalid(format!(
                    "{tcp} needs the shared key of its filesystem: give the key file"
                )));
            }
            (None, None) => None,
        };
        let deadline = self.client.io_timeout;
        let options = ClientOptions {
            metadata_addr: Some(shards_text(&addrs)),
            ..self.client.clone()
        };
        let remote: Vec<Arc<RemoteMd>> = addrs
            .iter()
            .map(|addr| Arc::new(RemoteMd::connect(addr.clone(), key.clone(), deadline)))
            .collect();
        let shards = addrs.iter().zip(&remote).map(|(addr, metadata)| ShardAt {
            metadata: metadata.clone(),
            servers: Arc::new(Servers::new(Options {
                deadline,
                key: key.clone(),
                steady: self.steady,
                ..Options::default()
            })),
            memory: Some(MemoryOptions {
                registrar: metadata.clone(),
                metadata: Some(addr.clone()),
                key: key.clone(),
                size: MemoryOptions::half() / addrs.len().max(1) as u64,
            }),
        });
        Clients::start(shards.collect(), &options).map_err(|error| {
            let away = matches!(&error, FsError::Md(MdError::Unavailable { .. }));
            let error = match away.then(|| remote.iter().find_map(|one| refused(one))).flatten() {
                Some(why) => Error::new(ErrorKind::Denied, why.to_string()),
                None if away => Error::new(
                    ErrorKind::Unavailable,
                    format!(
                        "{error}; is the filesystem running there, with the same key file? A longer I/O timeout waits longer"
                    ),
                ),
                None => Error::from(error),
            };
            error.about("cannot attach to the metadata service")
        })
    }

    /// The addresses of each shard's metadata service.
    fn addrs(&self) -> Result<Vec<Addrs>, Error> {
        let text = self.place.to_str().unwrap_or_default();
        if text.starts_with("unix:") || text.starts_with("tcp:") {
            return shards_of(text).map_err(|error| Error::invalid(error.to_string()));
        }
        of_mount(&self.place)
    }
}

/// Parses the addresses of a filesystem's metadata services: those of each shard, separated by semicolons.
///
/// # Errors
/// Says which of them is no address.
pub fn shards_of(text: &str) -> Result<Vec<Addrs>, AddrError> {
    text.split(';').map(str::parse).collect()
}

/// The text that [`shards_of`] parses.
#[must_use]
pub fn shards_text(shards: &[Addrs]) -> String {
    let all: Vec<String> = shards.iter().map(ToString::to_string).collect();
    all.join(";")
}

/// Whether a service is reachable but refuses this process: another key, another user.
fn refused(metadata: &RemoteMd) -> Option<WireError> {
    metadata.greet(LOOK).err().filter(|error| match error {
        WireError::Refused { .. } => true,
        WireError::Io { source, .. } => source.kind() == std::io::ErrorKind::PermissionDenied,
        _ => false,
    })
}

/// The address of the metadata service as reported by a mount.
fn of_mount(path: &Path) -> Result<Vec<Addrs>, Error> {
    let shown = path.display();
    let full = path.canonicalize().map_err(|error| {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            _ => ErrorKind::Io,
        };
        Error::new(
            kind,
            format!("{shown}: {error}; give unix:PATH, tcp:HOST:PORT or a path on a slabfs mount"),
        )
    })?;
    let status = full
        .ancestors()
        .map(|above| above.join(".slabfs/status"))
        .find(|status| status.is_file());
    let Some(status) = status else {
        return Err(Error::invalid(format!(
            "{shown} is not on a slabfs mount; give unix:PATH or tcp:HOST:PORT of a metadata service, or a path on a mount"
        )));
    };
    let report = read(&status)
        .map_err(|error| Error::new(ErrorKind::Io, format!("{}: {error}", status.display())))?;
    match report.get("metadata").and_then(serde_json::Value::as_str) {
        Some(addr) => shards_of(addr)
            .map_err(|error| Error::new(ErrorKind::Io, format!("{}: {error}", status.display()))),
        None => Err(Error::new(
            ErrorKind::NotSupported,
            format!(
                "the slabfs mounted at {shown} serves no other process; start it with `slabfs up --listen unix:PATH`"
            ),
        )),
    }
}

fn read(status: &Path) -> std::io::Result<serde_json::Value> {
    use std::io::Read;

    let mut text = Vec::new();
    std::fs::File::open(status)?
        .take(STATUS_LIMIT)
        .read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(std::io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_invalid_places_name_valid_ones() {
        let dir = tempfile::tempdir().unwrap();
        let error = |place: &Path| ConnectOptions::to(place).addrs().unwrap_err();
        assert_eq!(error(&dir.path().join("none")).kind(), ErrorKind::NotFound);
        let plain = error(dir.path());
        assert_eq!(plain.kind(), ErrorKind::Invalid);
        assert!(plain.to_string().contains("tcp:HOST:PORT"), "{plain}");
        assert_eq!(error(Path::new("tcp:x")).kind(), ErrorKind::Invalid);
        let keyless = ConnectOptions::to("tcp:localhost:1").attach().unwrap_err();
        assert!(keyless.to_string().contains("key file"), "{keyless}");
    }

    #[test]
    fn a_wrong_key_is_denied() {
        use slabfs_mdserver::server::MdServer;
        use slabfs_mdserver::service::{Service, ServiceOptions};
        use slabfs_objstore::wire::Listener;

        let dir = tempfile::tempdir().unwrap();
        let (service, _) =
            Service::open(&dir.path().join("md"), ServiceOptions::default()).unwrap();
        let service = Arc::new(service);
        let key = Key::new(&[7; 32]).unwrap();
        let listener = Listener::bind(&"tcp:127.0.0.1:0".parse().unwrap(), Some(key)).unwrap();
        let place = listener.addr().to_string();
        let server = MdServer::start(service.clone(), listener).unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "another key of thirty-two bytes!").unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let wrong = ConnectOptions::to(&place).key_file(&file);
        let error = wrong
            .io_timeout(Duration::from_secs(30))
            .attach()
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        server.shutdown();
        service.close().unwrap();
    }

    #[test]
    fn a_mount_reports_the_address_of_its_service() {
        let dir = tempfile::tempdir().unwrap();
        let hidden = dir.path().join(".slabfs");
        std::fs::create_dir_all(&hidden).unwrap();
        std::fs::create_dir(dir.path().join("deep")).unwrap();
        let place = ConnectOptions::to(dir.path().join("deep"));
        std::fs::write(hidden.join("status"), "{\"metadata\": \"unix:/run/md.s\"}").unwrap();
        assert_eq!(shards_text(&place.addrs().unwrap()), "unix:/run/md.s");
        let two = "{\"metadata\": \"unix:/a,unix:/b;unix:/c\"}";
        std::fs::write(hidden.join("status"), two).unwrap();
        let addrs = place.addrs().unwrap();
        assert_eq!((addrs.len(), addrs[0].all().len()), (2, 2));
        assert_eq!(shards_text(&addrs), "unix:/a,unix:/b;unix:/c");
        std::fs::write(hidden.join("status"), "{\"metadata\": null}").unwrap();
        let error = place.addrs().unwrap_err();
        assert!(error.to_string().contains("--listen"), "{error}");
        std::fs::write(hidden.join("status"), "{").unwrap();
        assert_eq!(place.addrs().unwrap_err().kind(), ErrorKind::Io);
    }
}
