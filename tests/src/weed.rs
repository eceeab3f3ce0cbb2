//! SeaweedFS with its S3 interface on the loopback, a process of its own.

use std::ffi::OsStr;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::network::{self, Network};
use crate::{Area, Service, etcd::port, inputs, poll};

/// The bucket that it has.
pub const BUCKET: &str = "chunks";
/// The credentials that it takes, as variables.
pub const CREDENTIALS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "key"),
    ("AWS_SECRET_ACCESS_KEY", "secret"),
];

/// The server.
#[derive(Debug)]
pub struct Weed {
    // Dropped before its directory.
    service: Service,
    s3: String,
    _area: Area,
}

impl Weed {
    /// One for all tests of this process that run at the same time, each with a prefix of its own: it takes half a minute to
    /// start.
    ///
    /// # Panics If it does not start.
    #[track_caller]
    pub fn shared() -> Arc<Weed> {
        static SHARED: Mutex<Weak<Weed>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(weed) = shared.upgrade() {
            return weed;
        }
        let mut weed = Weed::start();
        // It serves one test after the other.
        weed.service.lift_limit();
        let weed = Arc::new(weed);
        *shared = Arc::downgrade(&weed);
        weed
    }

    /// Starts it on the loopback, with one bucket.
    ///
    /// # Panics If it does not start.
    #[track_caller]
    pub fn start() -> Weed {
        Weed::start_at("127.0.0.1", None)
    }

    /// The same in the hub of a network.
    ///
    /// # Panics If it does not start.
    #[track_caller]
    pub fn start_on(network: &Network) -> Weed {
        Weed::start_at(network::HUB, Some(network.hub()))
    }

    #[track_caller]
    fn start_at(host: &str, inside: Option<u32>) -> Weed {
        let program = |name: &OsStr| match inside {
            None => Command::new(name),
            Some(pid) => network::inside(pid, name),
        };
        let area = Area::new();
        let dir = area.mkdir("weed");
        let identity = r#"{"identities": [{"name": "a", "actions": ["Admin", "Read", "Write", "List"],
            "credentials": [{"accessKey": "key", "secretKey": "secret"}]}]}"#;
        let config = area.write("weed.json", identity);
        let port = || {
            let place = port();
            place.rsplit(':').next().unwrap_or_default().to_owned()
        };
        let (master, s3) = (port(), port());
        // Each of its servers has another port for its own protocol.
        let ports = [(); 6].map(|()| port());
        let mut command = program(inputs::weed().as_os_str());
        command
            .args([
                "server",
                &format!("-ip={host}"),
                &format!("-ip.bind={host}"),
                "-filer",
                "-s3",
            ])
            .arg(format!("-dir={}", dir.display()))
            .arg(format!("-master.port={master}"))
            .arg(format!("-master.port.grpc={}", ports[0]))
            .arg(format!("-volume.port={}", ports[1]))
            .arg(format!("-volume.port.grpc={}", ports[2]))
            .arg(format!("-filer.port={}", ports[3]))
            .arg(format!("-filer.port.grpc={}", ports[4]))
            .arg(format!("-s3.port={s3}"))
            .arg(format!("-s3.port.grpc={}", ports[5]))
            .arg(format!("-s3.config={}", config.display()))
            .args([
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                "-master.telemetry=false",
                "-volume.max=200",
                "-master.volumeSizeLimitMB=64",
            ]);
        let service = Service::start_command(area.path(), "weed", command);
        let weed = Weed {
            service,
            s3: format!("{host}:{s3}"),
            _area: area,
        };
        let created = || {
            let mut shell = program(OsStr::new("sh"));
            shell
                .arg("-c")
                .arg(format!(
                    "echo 's3.bucket.create -name {BUCKET}' | timeout 10 \"$1\" shell -master={host}:{master}.{} 2>&1",
                    ports[0]
                ))
                .arg("sh")
                .arg(inputs::weed());
            let output = shell.output().expect("a shell");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            // An earlier attempt may have been cut off after it had done it.
            said.contains("created bucket") || said.contains("already exists")
        };
        poll::until_true("a bucket", created);
        poll::until_true("its S3 interface", || {
            let mut connect = program(OsStr::new("bash"));
            let place = weed.s3.replace(':', "/");
            connect.args(["-c", &format!("exec 3<>/dev/tcp/{place}")]);
            connect.output().expect("bash").status.success()
        });
        weed
    }

    /// The address of a prefix in the bucket.
    pub fn url(&self, prefix: &str) -> String {
        self.url_by(&self.s3, prefix)
    }

    /// The same by way of a proxy at `HOST:PORT`.
    pub fn url_by(&self, proxy: &str, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}?endpoint=http://{proxy}&region=us-east-1")
    }

    /// `HOST:PORT` of its S3 interface.
    pub fn addr(&self) -> &str {
        &self.s3
    }

    /// Its process.
    pub fn service(&self) -> &Service {
        &self.service
    }
}
