//! Metadata server, data servers and mounts, each a process of its own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::etcd::Etcd;
use crate::network::{self, Network};
use crate::{Area, Service, mounts, poll};

/// Metadata servers, data servers and mounts over unix sockets, or over TCP with a key.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: mounts flush to servers, so the servers are dropped later, and the network after
    // them.
    mounts: Vec<Node>,
    servers: Vec<Node>,
    /// One, or several over a journal in etcd, or one for each shard.
    mds: Vec<Node>,
    /// They are the shards of one filesystem.
    in_shards: bool,
    etcd: Option<Etcd>,
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
    /// TCP between machines of a network: the servers in its hub, each mount on a machine of its own.
    Network,
    /// TCP between machines of a network, each process on one of its own.
    Machines,
}

/// A process that has a machine of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// A member of etcd.
    Etcd(usize),
    /// A metadata server.
    Md(usize),
    /// A data server.
    Server(usize),
    /// A mount.
    Mount(usize),
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
    /// Variables of its environment.
    vars: Vec<(&'static str, &'static str)>,
}

impl Node {
    fn launch(&mut self, area: &Area, flags: &[&str]) {
        assert!(self.service.is_none(), "{} runs", self.name);
        let mut args = self.args.clone();
        args.extend(flags.iter().map(|&flag| flag.to_owned()));
        self.service = Some(match (self.inside, self.files) {
            (None, None) => {
                let mut command = Command::new(crate::binary::path());
                let vars = self.vars.iter().copied();
                command.args(&args).env_remove("RUST_LOG").envs(vars);
                Service::start_command(area.path(), &self.name, command)
            }
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
                let vars = self.vars.iter().copied();
                command.args(&args).env_remove("RUST_LOG").envs(vars);
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

    /// Over unix sockets, with the metadata in so many shards, all started and ready.
    ///
    /// # Panics If something does not start.
    #[track_caller]
    pub fn in_shards(shards: usize, servers: usize, mounts: usize) -> Cluster {
        let parts = (Area::new(), (shards, 1), None, None);
        let mut cluster = Cluster::build(Over::Unix, servers, &[], parts);
        cluster.start_all(mounts);
        cluster
    }

    /// Over unix sockets, with the metadata in so many shards, each with so many metadata servers over a journal in etcd. Those
    /// of the first shard are first. The etcd is started, and nothing else.
    ///
    /// # Panics If etcd does not start.
    #[track_caller]
    pub fn in_shards_over_etcd(shards: usize, each: usize, servers: usize) -> Cluster {
        let area = Area::new();
        let etcd = Etcd::start(&area, 1, &[]);
        let parts = (area, (shards, each), Some(etcd), None);
        Cluster::build(Over::Unix, servers, &[], parts)
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

    /// Over TCP with a shared key, each mount on a machine of its own, whose link can be cut. Nothing is started yet. Needs the superuser.
    ///
    /// # Panics If a namespace cannot be created.
    #[track_caller]
    pub fn networked(servers: usize, mount_flags: &[&str]) -> Cluster {
        Cluster::over(Over::Network, servers, mount_flags)
    }

    /// Over unix sockets, with several metadata servers over a journal in an etcd of so many members. The members of etcd
    /// are started, and nothing else.
    ///
    /// # Panics If etcd does not start.
    #[track_caller]
    pub fn over_etcd(mds: usize, members: usize, servers: usize, mount_flags: &[&str]) -> Cluster {
        let area = Area::new();
        let etcd = Etcd::start(&area, members, &[]);
        Cluster::build(
            Over::Unix,
            servers,
            mount_flags,
            (area, (1, mds), Some(etcd), None),
        )
    }

    /// The same over TCP, with each process on a machine of its own, whose link to everything else can be cut. Needs the
    /// superuser.
    ///
    /// # Panics If a namespace cannot be created, or etcd does not start.
    #[track_caller]
    pub fn over_etcd_networked(
        mds: usize,
        members: usize,
        servers: usize,
        mount_flags: &[&str],
    ) -> Cluster {
        let area = Area::new();
        let mut network = Network::new(area.path());
        for _ in 0..members + mds + servers {
            network.add(area.path());
        }
        let etcd = Etcd::start_on(&area, 0..members, &network);
        let parts = (area, (1, mds), Some(etcd), Some(network));
        Cluster::build(Over::Machines, servers, mount_flags, parts)
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
        Cluster::build(
            over,
            servers,
            mount_flags,
            (area, (shards(), 1), None, network),
        )
    }

    #[track_caller]
    fn build(
        over: Over,
        servers: usize,
        mount_flags: &[&str],
        (area, (shards, each), etcd, network): (
            Area,
            (usize, usize),
            Option<Etcd>,
            Option<Network>,
        ),
    ) -> Cluster {
        let inside = network.as_ref().map(Network::hub);
        // Behind the members of etcd.
        let first = etcd.as_ref().map_or(0, Etcd::members);
        let secret = b"0123456789abcdef0123456789abcdef";
        let key = (over != Over::Unix).then(|| write_key(&area, "key", secret));
        let (mut ports, mut machines) = (7070.., first..);
        let mut addr = |name: &str| match over {
            Over::Unix => format!("unix:{}", area.at(name).display()),
            Over::Tcp => format!("tcp:{}", free_port()),
            Over::Network => {
                let port = ports.next().unwrap_or_default();
                format!("tcp:{}:{port}", network::HUB)
            }
            Over::Machines => {
                let machine = machines.next().unwrap_or_default();
                format!("tcp:{}:7070", network::address(machine))
            }
        };
        let md_addrs: Vec<String> = match shards * each {
            1 => vec![addr("md.s")],
            mds => (0..mds).map(|i| addr(&format!("md{i}.s"))).collect(),
        };
        let of_shards: Vec<String> = md_addrs.chunks(each).map(|all| all.join(",")).collect();
        let of_mds: Vec<&str> = of_shards.iter().flat_map(|all| ["--md", all]).collect();
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
            vars: Vec::new(),
        };
        let on = |machine| match (over, &network) {
            (Over::Machines, Some(network)) => Some(network.machine(machine)),
            _ => inside,
        };
        let checkpoints = area.mkdir("checkpoints").display().to_string();
        let mds = md_addrs.iter().enumerate().map(|(i, listen)| {
            let name = match i {
                0 => "md".to_owned(),
                i => format!("md{i}"),
            };
            let data = area.at(&name).display().to_string();
            let mut words = args(&["mdserver", "--listen", listen, "--data", &data]);
            if let Some(etcd) = &etcd {
                let journal = ["--meta", &etcd.url("test"), "--checkpoints", &checkpoints];
                words.extend(journal.map(str::to_owned));
            }
            if shards > 1 {
                words.extend(["--shard".to_owned(), format!("{}/{shards}", i / each)]);
            }
            let mut md = node(name, words);
            md.inside = on(first + i);
            md
        });
        let mds: Vec<Node> = mds.collect();
        let servers = (0..servers)
            .map(|i| {
                let data = area.at(format!("os{i}")).display().to_string();
                let listen = addr(&format!("o{i}.s"));
                let words = ["objserver", "--listen", &listen, "--data", &data];
                let words = [&words[..], &of_mds].concat();
                let mut server = node(format!("os{i}"), args(&words));
                server.inside = on(first + mds.len() + i);
                server
            })
            .collect();
        let mut flags = args(&[&["mount"][..], &of_mds].concat());
        flags.extend(mount_flags.iter().map(|&flag| flag.to_owned()));
        Cluster {
            mounts: Vec::new(),
            servers,
            mds,
            in_shards: shards > 1,
            etcd,
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
        (0..self.mds.len()).for_each(|md| self.start_md_at(md));
        (0..self.servers.len()).for_each(|server| self.start_server(server));
        (0..mounts).for_each(|_| self.add_mount());
    }

    /// Starts the metadata server, or its shards, and waits for it.
    ///
    /// # Panics If it does not start.
    #[track_caller]
    pub fn start_md(&mut self) {
        self.parts().for_each(|md| self.start_md_at(md));
    }

    /// The numbers of those that are one metadata server together.
    fn parts(&self) -> std::ops::Range<usize> {
        match self.in_shards {
            true => 0..self.mds.len(),
            false => 0..1,
        }
    }

    /// Starts metadata server `i` and waits for it.
    ///
    /// # Panics If it does not start.
    #[track_caller]
    pub fn start_md_at(&mut self, i: usize) {
        self.mds[i].launch(&self.area, &[]);
        self.mds[i].service.as_mut().expect("launched").ready();
    }

    /// Adds flags to all metadata servers, for their next start.
    pub fn md_flags(&mut self, flags: &[&str]) {
        for md in &mut self.mds {
            md.args.extend(flags.iter().map(|&flag| flag.to_owned()));
        }
    }

    /// Sets a variable of metadata server `i`, for its next start.
    pub fn md_var(&mut self, i: usize, var: (&'static str, &'static str)) {
        self.mds[i].vars.push(var);
    }

    /// Removes that many of the flags that were added last.
    pub fn drop_md_flags(&mut self, many: usize) {
        for md in &mut self.mds {
            md.args.truncate(md.args.len() - many);
        }
    }

    /// The metadata server of those that run which answers, and whose number etcd has.
    ///
    /// # Panics If there is none within the time of polls.
    #[track_caller]
    pub fn leader(&self) -> usize {
        self.leader_below("test", 0..self.mds.len())
    }

    /// The leader of a shard of [`Cluster::in_shards_over_etcd`] with `each` metadata servers a shard.
    ///
    /// # Panics If there is none within the time of polls.
    #[track_caller]
    pub fn leader_of_shard(&self, shard: usize, each: usize) -> usize {
        let prefix = format!("test/shard-{shard}");
        self.leader_below(&prefix, shard * each..(shard + 1) * each)
    }

    #[track_caller]
    fn leader_below(&self, prefix: &str, mds: std::ops::Range<usize>) -> usize {
        let leading = |i: &usize| {
            let addr = flag(&self.mds[*i].args, "--listen");
            let runs = self.mds[*i].service.is_some();
            runs && self.etcd().get(prefix, "leader").contains(addr)
        };
        poll::until("a leader", || mds.clone().find(|i| leading(i)))
    }

    /// The etcd of [`Cluster::over_etcd`].
    ///
    /// # Panics If there is none.
    #[track_caller]
    pub fn etcd(&self) -> &Etcd {
        self.etcd.as_ref().expect("an etcd")
    }

    /// The same, to end and start its members.
    ///
    /// # Panics If there is none.
    #[track_caller]
    pub fn etcd_mut(&mut self) -> &mut Etcd {
        self.etcd.as_mut().expect("an etcd")
    }

    /// The process of metadata server `i`.
    #[track_caller]
    pub fn md_at(&self, i: usize) -> &Service {
        self.mds[i].run()
    }

    /// Ends metadata server `i` with SIGKILL.
    pub fn kill_md_at(&mut self, i: usize) {
        self.mds[i].take().kill9();
    }

    /// Stops metadata server `i` cleanly.
    pub fn stop_md_at(&mut self, i: usize) {
        self.mds[i].take().stop();
    }

    /// Starts the metadata server with flags for this start.
    ///
    /// # Errors Its output if it does not start.
    pub fn try_start_md(&mut self, flags: &[&str]) -> Result<(), String> {
        self.mds[0].launch(&self.area, flags);
        let result = self.mds[0].service.as_mut().expect("launched").try_ready();
        if result.is_err() {
            self.mds[0].service = None;
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

    /// Sets a variable of data server `i`, for its next start.
    pub fn server_var(&mut self, i: usize, var: (&'static str, &'static str)) {
        self.servers[i].vars.push(var);
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

    /// Waits until data server `i`, which was launched, has ended by itself; returns what it printed.
    ///
    /// # Panics If it starts.
    #[track_caller]
    pub fn server_refused(&mut self, i: usize) -> String {
        let mut service = self.servers[i].service.take().expect("launched");
        service.try_ready().expect_err("it is refused")
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
            let machine = network.add(self.area.path());
            network.machine(machine)
        });
        self.mounts.push(Node {
            service: None,
            name,
            args,
            mnt: Some(mnt),
            inside,
            files: None,
            vars: Vec::new(),
        });
        self.start_mount(i);
    }

    /// The machines, of [`Cluster::networked`] or [`Cluster::over_etcd_networked`].
    ///
    /// # Panics If there are none.
    #[track_caller]
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("a network")
    }

    /// Cuts the link of a machine: packets are lost, and neither side is notified.
    ///
    /// # Panics If it has none.
    #[track_caller]
    pub fn cut(&self, machine: Machine) {
        self.network().cut(self.number(machine));
    }

    /// Restores the link.
    ///
    /// # Panics If it has none.
    #[track_caller]
    pub fn heal(&self, machine: Machine) {
        self.network().heal(self.number(machine));
    }

    /// The number of a machine in the network.
    fn number(&self, machine: Machine) -> usize {
        let many = match &self.etcd {
            // Everything but the mounts is in the hub.
            None => [0; 3],
            Some(etcd) => [etcd.members(), self.mds.len(), self.servers.len()],
        };
        match machine {
            Machine::Etcd(i) => i,
            Machine::Md(i) => many[0] + i,
            Machine::Server(i) => many[0] + many[1] + i,
            Machine::Mount(i) => many.iter().sum::<usize>() + i,
        }
    }

    /// Starts mount `i` again.
    ///
    /// # Panics If it does not start.
    #[track_caller]
    pub fn start_mount(&mut self, i: usize) {
        self.mounts[i].launch(&self.area, &[]);
        self.mounts[i].service.as_mut().expect("launched").ready();
    }

    /// Ends the metadata server, or its shards, with SIGKILL.
    pub fn kill_md(&mut self) {
        self.parts().for_each(|md| self.kill_md_at(md));
    }

    /// Stops the metadata server, or its shards, cleanly.
    pub fn stop_md(&mut self) {
        self.parts().for_each(|md| self.stop_md_at(md));
    }

    /// Ends data server `i` with SIGKILL.
    pub fn kill_server(&mut self, i: usize) {
        self.servers[i].take().kill9();
    }

    /// Waits until data server `i` ends by itself; returns its exit status.
    pub fn await_server_end(&mut self, i: usize) -> i32 {
        self.servers[i].take().wait()
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
        for md in &mut self.mds {
            if let Some(service) = md.service.take() {
                service.stop();
            }
        }
        self.fsck()
    }

    /// `slabfs fsck --deep` of metadata and chunks; no process may run. Of shards the first that has findings.
    pub fn fsck(&self) -> crate::Outcome {
        let shards = if self.in_shards { self.mds.len() } else { 1 };
        let mut all = (0..shards).map(|i| self.fsck_at(i));
        let first = all.next().expect("a metadata server");
        all.fold(first, |first, next| match first.status {
            0 => next,
            _ => first,
        })
    }

    fn fsck_at(&self, i: usize) -> crate::Outcome {
        let mut args = vec!["fsck".to_owned(), "--deep".to_owned(), "--data".to_owned()];
        args.push(flag(&self.mds[i].args, "--data").to_owned());
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
        self.mds[0].run()
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
        flag(&self.mds[0].args, "--listen")
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

/// The number of shards of a cluster of which the test does not say it: 1, or that of the environment, to run all tests that way.
fn shards() -> usize {
    std::env::var("SLABFS_SHARDS").map_or(1, |text| text.parse().expect("a number of shards"))
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
