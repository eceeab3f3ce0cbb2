//! Metadata server, data servers and mounts, each a process of its own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::network::{self, Network};
use crate::{Area, Service, mounts, poll};

/// A metadata server, data servers and mounts over unix sockets, or over TCP with a key.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: mounts flush to servers, so the servers are dropped later, and the network after
    // them.
    mounts: Vec<Node>,
    servers: Vec<Node>,
    md: Node,
    flags: Vec<String>,
    key: Option<PathBuf>,
    network: Option<Network>,
    area: Area,
}

/// How the processes of a cluster reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Unix,
    /// TCP on the loopback.
    Tcp,
    /// TCP between network namespaces.
    Network,
}

/// One process of a cluster, or the place for it.
#[derive(Debug)]
struct Node {
    service: Option<Service>,
    name: String,
    args: Vec<String>,
    /// For a mount: its mount point.
    mnt: Option<PathBuf>,
    /// A process in whose network namespace it starts.
    inside: Option<u32>,
    /// Its limit of open files, if set.
    files: Option<u64>,
}

impl Node {
    fn launch(&mut self, area: &Area, flags: &[&str]) {
        assert!(self.service.is_none(), "{} runs", self.name);
        let mut args = self.args.clone();
        args.extend(flags.iter().map(|&flag| flag.to_owned()));
        self.service = Some(match (self.inside, self.files) {
            (None, None) => Service::start(area.path(), &self.name, &args),
            (None, Some(files)) => {
                let mut command = Command::new("prlimit");
                command
                    .arg(format!("--nofile={files}:{files}"))
                    .arg(crate::binary::path())
                    .args(&args)
                    .env_remove("RUST_LOG");
                Service::start_command(area.path(), &self.name, command)
            }
            (Some(pid), _) => {
                let mut command = network::inside(pid, crate::binary::path());
                command.args(&args).env_remove("RUST_LOG");
                Service::start_command(area.path(), &self.name, command)
            }
        });
    }

    #[track_caller]
    fn run(&self) -> &Service {
        self.service
            .as_ref()
            .unwrap_or_else(|| panic!("{} does not run", self.name))
    }

    fn take(&mut self) -> Service {
        self.service
            .take()
            .unwrap_or_else(|| panic!("{} does not run", self.name))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.service = None;
        if let Some(mnt) = &self.mnt {
            mounts::detach(mnt);
        }
    }
}

impl Cluster {
    /// Over unix sockets, all started and ready.
    ///
    /// # Panics If something does not start.
    #[track_caller]
    pub fn start(servers: usize, mounts: usize) -> Cluster {
        Cluster::with(servers, mounts, &[])
    }

    /// The same, with further flags for the mounts.
    ///
    /// # Panics If something does not start.
    #[track_caller]
    pub fn with(servers: usize, mounts: usize, mount_flags: &[&str]) -> Cluster {
        let mut cluster = Cluster::new(servers, mount_flags, false);
        cluster.start_all(mounts);
        cluster
    }

    /// Over TCP on the loopback, with a shared key.
    ///
    /// # Panics If something does not start.
    #[track_caller]
    pub fn tcp(servers: usize, mounts: usize) -> Cluster {
        let mut cluster = Cluster::new(servers, &[], true);
        cluster.start_all(mounts);
        cluster
    }

    /// Over TCP with a shared key, the servers and each mount in a network namespace of its own: the links of
    /// mounts can be cut. Nothing is started yet. Needs the superuser.
    ///
    /// # Panics If a namespace cannot be created.
    #[track_caller]
    pub fn networked(servers: usize, mount_flags: &[&str]) -> Cluster {
        Cluster::over(Over::Network, servers, mount_flags)
    }

    /// A cluster without running processes.
    pub fn new(servers: usize, mount_flags: &[&str], tcp: bool) -> Cluster {
        let over = if tcp { Over::Tcp } else { Over::Unix };
        Cluster::over(over, servers, mount_flags)
    }

    #[track_caller]
    fn over(over: Over, servers: usize, mount_flags: &[&str]) -> Cluster {
        let area = Area::new();
        let network = (over == Over::Network).then(|| Network::new(area.path()));
        let inside = network.as_ref().map(Network::among_servers);
        let secret = b"0123456789abcdef0123456789abcdef";
        let key = (over != Over::Unix).then(|| write_key(&area, "key", secret));
        let mut ports = 7070..;
        let mut addr = |name: &str| match over {
            Over::Unix => format!("unix:{}", area.at(name).display()),
            Over::Tcp => format!("tcp:{}", free_port()),
            Over::Network => {
                let port = ports.next().unwrap_or_default();
                format!("tcp:{}:{port}", network::SERVERS)
            }
        };
        let md_addr = addr("md.s");
        let args = |words: &[&str]| {
            let mut args: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            if let Some(key) = &key {
                args.extend(["--key-file".to_owned(), key.display().to_string()]);
            }
            args
        };
        let node = |name: String, args| Node {
            service: None,
            name,
            args,
            mnt: None,
            inside,
            files: None,
        };
        let md_data = area.at("md").display().to_string();
        let md = node(
            "md".to_owned(),
            args(&["mdserver", "--listen", &md_addr, "--data", &md_data]),
        );
        let servers = (0..servers)
            .map(|i| {
                let data = area.at(format!("os{i}")).display().to_string();
                let listen = addr(&format!("o{i}.s"));
                let words = [
                    "objserver",
                    "--listen",
                    &listen,
                    "--md",
                    &md_addr,
                    "--data",
                    &data,
                ];
                node(format!("os{i}"), args(&words))
            })
            .collect();
        let mut flags = args(&["mount", "--md", &md_addr]);
        flags.extend(mount_flags.iter().map(|&flag| flag.to_owned()));
        Cluster {
            mounts: Vec::new(),
            servers,
            md,
            flags,
            key,
            network,
            area,
        }
    }

    /// Starts everything, and adds `mounts` mounts.
    ///
    /// # Panics If something does not start.
    #[track_caller]
    pub fn start_all(&mut self, mounts: usize) {
        self.start_md();
        (0..self.servers.len()).for_each(|server| self.start_server(server));
        (0..mounts).for_each(|_| self.add_mount());
    }

    /// Starts the metadata server and waits for it.
    ///
    /// # Panics If it does not start.
    #[track_caller]
    pub fn start_md(&mut self) {
        self.md.launch(&self.area, &[]);
        self.md.service.as_mut().expect("launched").ready();
    }

    /// Starts the metadata server with flags for this start.
    ///
    /// # Errors Its output if it does not start.
    pub fn try_start_md(&mut self, flags: &[&str]) -> Result<(), String> {
        self.md.launch(&self.area, flags);
        let result = self.md.service.as_mut().expect("launched").try_ready();
        if result.is_err() {
            self.md.service = None;
        }
        result
    }

    /// Starts data server `i` and waits for it.
    ///
    /// # Panics If it does not start.
    #[track_caller]
    pub fn start_server(&mut self, i: usize) {
        self.launch_server(i);
        self.await_server(i);
    }

    /// Adds flags to data server `i`, for its next start.
    pub fn server_flags(&mut self, i: usize, flags: &[&str]) {
        let flags = flags.iter().map(|&flag| flag.to_owned());
        self.servers[i].args.extend(flags);
    }

    /// Limits the open files of data server `i`, from its next start on.
    pub fn server_files(&mut self, i: usize, files: u64) {
        self.servers[i].files = Some(files);
    }

    /// Starts data server `i` and does not wait.
    pub fn launch_server(&mut self, i: usize) {
        self.servers[i].launch(&self.area, &[]);
    }

    /// Waits for data server `i`.
    ///
    /// # Panics If it ends instead.
    #[track_caller]
    pub fn await_server(&mut self, i: usize) {
        self.servers[i].service.as_mut().expect("launched").ready();
    }

    /// Adds a mount and waits for it.
    ///
    /// # Panics If it does not start.
    #[track_caller]
    pub fn add_mount(&mut self) {
        self.add_mount_with(&[]);
    }

    /// The same with more flags.
    ///
    /// # Panics If it does not start.
    #[track_caller]
    pub fn add_mount_with(&mut self, flags: &[&str]) {
        let mnt = self.area.mkdir(&format!("m{}", self.mounts.len()));
        let mut args = self.flags.clone();
        args.extend(flags.iter().map(|&flag| flag.to_owned()));
        args.push(mnt.display().to_string());
        let i = self.mounts.len();
        let name = format!("mount{i}");
        let inside = self.network.as_mut().map(|network| {
            network.add(self.area.path());
            network.host_of_mount(i)
        });
        self.mounts.push(Node {
            service: None,
            name,
            args,
            mnt: Some(mnt),
            inside,
            files: None,
        });
        self.start_mount(i);
    }

    /// The links between namespaces.
    ///
    /// # Panics If the cluster is not [`Cluster::networked`].
    #[track_caller]
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("a network")
    }

    /// Starts mount `i` again.
    ///
    /// # Panics If it does not start.
    #[track_caller]
    pub fn start_mount(&mut self, i: usize) {
        self.mounts[i].launch(&self.area, &[]);
        self.mounts[i].service.as_mut().expect("launched").ready();
    }

    /// Ends the metadata server with SIGKILL.
    pub fn kill_md(&mut self) {
        self.md.take().kill9();
    }

    /// Stops the metadata server cleanly.
    pub fn stop_md(&mut self) {
        self.md.take().stop();
    }

    /// Ends data server `i` with SIGKILL.
    pub fn kill_server(&mut self, i: usize) {
        self.servers[i].take().kill9();
    }

    /// Stops data server `i` cleanly.
    pub fn stop_server(&mut self, i: usize) {
        self.servers[i].take().stop();
    }

    /// Ends mount `i` with SIGKILL and removes its dead mount.
    pub fn kill_mount(&mut self, i: usize) {
        self.mounts[i].take().kill9();
        mounts::detach(&self.mnt(i));
    }

    /// Stops mount `i` cleanly.
    ///
    /// # Panics If it stays mounted.
    pub fn stop_mount(&mut self, i: usize) {
        self.mounts[i].take().stop();
        assert!(!mounts::is_mounted(&self.mnt(i)), "mount {i} stays");
    }

    /// Sends mount `i` a signal to stop; returns its exit status and its log.
    pub fn end_mount(&mut self, i: usize) -> (i32, String) {
        let service = self.mounts[i].take();
        service.signal(nix::sys::signal::Signal::SIGTERM);
        (service.wait(), service.log())
    }

    /// Sends mount `i` a signal to stop, and another one before it has; returns its exit status and its log.
    ///
    /// # Panics If it does not react, or does not end.
    pub fn cut_mount_off(&mut self, i: usize) -> (i32, String) {
        let service = self.mounts[i].take();
        for said in ["SIGTERM: stopping", "SIGTERM again: hurrying"] {
            service.signal(nix::sys::signal::Signal::SIGTERM);
            poll::until_true(said, || service.log().contains(said));
        }
        (service.wait(), service.log())
    }

    /// Stops all mounts, then all servers, and starts all again.
    ///
    /// # Panics If something fails.
    #[track_caller]
    pub fn restart(&mut self) {
        let mounts: Vec<usize> = (0..self.mounts.len())
            .filter(|&i| self.mounts[i].service.is_some())
            .collect();
        mounts.iter().for_each(|&i| self.stop_mount(i));
        (0..self.servers.len()).for_each(|i| self.stop_server(i));
        self.stop_md();
        self.start_md();
        (0..self.servers.len()).for_each(|i| self.start_server(i));
        mounts.iter().for_each(|&i| self.start_mount(i));
    }

    /// Stops all running processes, mounts first, and runs `slabfs fsck` on everything.
    ///
    /// # Panics If a process does not stop.
    pub fn stop_and_fsck(&mut self) -> crate::Outcome {
        for i in 0..self.mounts.len() {
            if self.mounts[i].service.is_some() {
                self.stop_mount(i);
            }
        }
        for server in &mut self.servers {
            if let Some(service) = server.service.take() {
                service.stop();
            }
        }
        if let Some(service) = self.md.service.take() {
            service.stop();
        }
        self.fsck()
    }

    /// `slabfs fsck --deep` of metadata and chunks; no process may run.
    pub fn fsck(&self) -> crate::Outcome {
        let mut args = vec!["fsck".to_owned(), "--deep".to_owned(), "--data".to_owned()];
        args.push(self.md_data().display().to_string());
        for i in 0..self.servers.len() {
            args.extend([
                "--chunks".to_owned(),
                self.server_data(i).display().to_string(),
            ]);
        }
        crate::slabfs(args)
    }

    /// Mount point `i`.
    pub fn mnt(&self, i: usize) -> PathBuf {
        self.mounts[i].mnt.clone().expect("a mount point")
    }

    /// A path on mount `i`.
    pub fn at(&self, i: usize, name: impl AsRef<Path>) -> PathBuf {
        self.mnt(i).join(name)
    }

    /// The process of mount `i`.
    #[track_caller]
    pub fn mount(&self, i: usize) -> &Service {
        self.mounts[i].run()
    }

    /// The process of data server `i`.
    #[track_caller]
    pub fn server(&self, i: usize) -> &Service {
        self.servers[i].run()
    }

    /// The metadata server's process.
    #[track_caller]
    pub fn md(&self) -> &Service {
        self.md.run()
    }

    /// The data directory of data server `i`.
    pub fn server_data(&self, i: usize) -> PathBuf {
        self.area.at(format!("os{i}"))
    }

    /// The data directory of the metadata server.
    pub fn md_data(&self) -> PathBuf {
        self.area.at("md")
    }

    /// The address the metadata server listens on.
    pub fn md_addr(&self) -> &str {
        flag(&self.md.args, "--listen")
    }

    /// The address data server `i` listens on.
    pub fn server_addr(&self, i: usize) -> &str {
        flag(&self.servers[i].args, "--listen")
    }

    /// The shared key's file, over TCP.
    pub fn key(&self) -> Option<&Path> {
        self.key.as_deref()
    }

    /// The test's directory around all of it.
    pub fn area(&self) -> &Area {
        &self.area
    }

    /// The log of mount `i`.
    pub fn mount_log(&self, i: usize) -> String {
        let path = self.area.at(format!("{}.err", self.mounts[i].name));
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
    }
}

fn flag<'a>(args: &'a [String], name: &str) -> &'a str {
    let at = args.iter().position(|arg| arg == name).expect("the flag");
    &args[at + 1]
}

/// Writes a file that only its owner may read.
///
/// # Panics If it cannot be written.
pub fn write_key(area: &Area, name: &str, key: &[u8]) -> PathBuf {
    let path = area.write(name, key);
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, private).expect("its mode");
    path
}

/// A currently unused port of the loopback.
///
/// # Panics If there is none.
pub fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port")
        .to_string()
}
