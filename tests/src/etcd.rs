//! Members of etcd on the loopback, each a process of its own.

use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::network::{self, Network};
use crate::{Area, Service, poll};

/// Ports below those that the kernel gives to connections.
const PORTS: std::ops::Range<u16> = 10_000..30_000;

/// An etcd of one member or several.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    /// A process in whose network namespace etcdctl runs.
    inside: Option<u32>,
}

#[derive(Debug)]
struct Member {
    /// A process in whose network namespace it runs.
    inside: Option<u32>,
    service: Option<Service>,
    dir: std::path::PathBuf,
    name: String,
    args: Vec<String>,
    client: String,
}

impl Member {
    fn launch(&mut self) {
        let mut command = program("etcd", self.inside);
        command.args(&self.args);
        self.service = Some(Service::start_command(&self.dir, &self.name, command));
    }
}

impl Etcd {
    /// Starts this many members on the loopback, and waits until they answer.
    ///
    /// # Panics If they do not start.
    #[track_caller]
    pub fn start(area: &Area, members: usize, flags: &[&str]) -> Etcd {
        let places = (0..members).map(|_| (None, [port(), port()])).collect();
        Etcd::start_at(area, places, flags, None)
    }

    /// The same with each member on a machine of a [`network`].
    ///
    /// # Panics If they do not start.
    #[track_caller]
    pub fn start_on(area: &Area, machines: std::ops::Range<usize>, network: &Network) -> Etcd {
        let place = |i| {
            let at = |port| format!("{}:{port}", network::address(i));
            (Some(network.machine(i)), [at(2379), at(2380)])
        };
        let places = machines.map(place).collect();
        Etcd::start_at(area, places, &[], Some(network.hub()))
    }

    #[track_caller]
    fn start_at(
        area: &Area,
        places: Vec<(Option<u32>, [String; 2])>,
        flags: &[&str],
        inside: Option<u32>,
    ) -> Etcd {
        let peers: Vec<String> = places
            .iter()
            .enumerate()
            .map(|(i, (_, [_, peer]))| format!("etcd{i}=http://{peer}"))
            .collect();
        let members = places
            .iter()
            .enumerate()
            .map(|(i, (inside, [client, peer]))| {
                let name = format!("etcd{i}");
                let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
                let words = [
                    ["--name", &name],
                    ["--data-dir", &area.at(&name).display().to_string()],
                    ["--listen-client-urls", &client],
                    ["--advertise-client-urls", &client],
                    ["--listen-peer-urls", &peer],
                    ["--initial-advertise-peer-urls", &peer],
                    ["--initial-cluster", &peers.join(",")],
                    ["--log-level", "error"],
                ];
                let args = words.concat().into_iter().chain(flags.iter().copied());
                Member {
                    inside: *inside,
                    service: None,
                    dir: area.path().to_owned(),
                    args: args.map(str::to_owned).collect(),
                    name,
                    client,
                }
            });
        let mut etcd = Etcd {
            members: members.collect(),
            inside,
        };
        let members = etcd.members.iter_mut();
        members.for_each(Member::launch);
        poll::until_true("etcd answers", || etcd.ctl(&["endpoint", "health"]).0);
        etcd
    }

    /// How many members it has.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// Its address for `--meta`, with a prefix.
    pub fn url(&self, prefix: &str) -> String {
        let hosts = self
            .members
            .iter()
            .map(|one| &one.client["http://".len()..]);
        format!("etcd://{}/{prefix}", hosts.collect::<Vec<_>>().join(","))
    }

    /// Runs etcdctl on all members that run. Returns whether it succeeded, and what it printed.
    ///
    /// # Panics If it cannot be started.
    pub fn ctl(&self, args: &[&str]) -> (bool, String) {
        let running = self.members.iter().filter(|one| one.service.is_some());
        let endpoints: Vec<&str> = running.map(|one| &*one.client).collect();
        let output = program("etcdctl", self.inside)
            .env("ETCDCTL_API", "3")
            .arg("--endpoints")
            .arg(endpoints.join(","))
            .args(args)
            .output()
            .expect("etcdctl");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), text)
    }

    /// The value of a key below a prefix; empty if there is none.
    pub fn get(&self, prefix: &str, key: &str) -> String {
        let key = format!("/{prefix}/{key}");
        self.ctl(&["get", "--print-value-only", &key]).1
    }

    /// How many keys begin with this.
    pub fn count(&self, prefix: &str) -> usize {
        let (_, keys) = self.ctl(&["get", "--prefix", "--keys-only", prefix]);
        keys.lines().filter(|line| !line.is_empty()).count()
    }

    /// The member that is the leader of etcd.
    ///
    /// # Panics If there is none within the time of polls.
    pub fn leader(&self) -> usize {
        poll::until("a leader of etcd", || {
            let (_, text) = self.ctl(&["endpoint", "status", "--write-out", "json"]);
            let all: serde_json::Value = serde_json::from_str(&text).ok()?;
            let leads = |one: &serde_json::Value| {
                let status = &one["Status"];
                let leader = &status["leader"];
                (leader.is_u64() && *leader == status["header"]["member_id"])
                    .then(|| one["Endpoint"].as_str().map(str::to_owned))
                    .flatten()
            };
            let endpoint = all.as_array()?.iter().find_map(leads)?;
            self.members.iter().position(|one| one.client == endpoint)
        })
    }

    /// Ends a member with SIGKILL.
    ///
    /// # Panics If it does not run.
    pub fn kill(&mut self, i: usize) {
        self.members[i].service.take().expect("it runs").kill9();
    }

    /// Stops a member in order.
    ///
    /// # Panics If it does not run.
    pub fn stop(&mut self, i: usize) {
        let service = self.members[i].service.take().expect("it runs");
        service.signal(nix::sys::signal::Signal::SIGTERM);
        service.wait();
    }

    /// Starts a member again.
    pub fn restart(&mut self, i: usize) {
        self.members[i].launch();
    }

    /// The process of a member.
    ///
    /// # Panics If it does not run.
    pub fn member(&self, i: usize) -> &Service {
        self.members[i].service.as_ref().expect("it runs")
    }
}

fn program(name: &str, inside: Option<u32>) -> Command {
    match inside {
        None => Command::new(name),
        Some(pid) => network::inside(pid, name),
    }
}

/// A free port of the loopback that is used once in this process.
pub(crate) fn port() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let many = PORTS.end - PORTS.start;
    let base = (std::process::id() % u32::from(many)) as u16;
    let free = (0..many).find_map(|_| {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + (base as u32 + u32::from(next)) as u16 % many;
        let place = format!("127.0.0.1:{port}");
        TcpListener::bind(&place).is_ok().then_some(place)
    });
    free.expect("a free port")
}
