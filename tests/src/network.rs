//! Machines of a network, on this machine: network namespaces with links between them that can be cut.
//!
//! One namespace has the servers, each mount has one of its own; a pair of `veth` leads from each mount to the
//! servers, as if each had a cable of its own. The servers have the same address on all of them.
//!
//! ```text
//!   mount 0  10.9.0.2 eth0 ---- m0 10.9.0.1
//!   mount 1  10.9.0.3 eth0 ---- m1 10.9.0.1   servers (and lo)
//! ```
//!
//! A namespace lives as long as a process in it, and these end with their owner, with the tests' process too:
//! namespaces have no names, so that nothing is left behind and no two tests are in each other's way. Files and
//! mounts are those of everybody: only the network is apart.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::{Service, poll, tool};

/// Where servers are reached, from everywhere.
pub const SERVERS: &str = "10.9.0.1";

/// The servers' namespace, and the mounts'.
#[derive(Debug)]
pub struct Network {
    servers: Space,
    mounts: Vec<Space>,
}

/// A network namespace.
#[derive(Debug)]
struct Space {
    keeper: Service,
}

impl Network {
    /// One with the servers' place alone.
    ///
    /// # Panics
    /// When it cannot be made: that takes the superuser and `ip`.
    #[track_caller]
    pub fn new(dir: &Path) -> Network {
        let servers = Space::new(dir, "servers-net");
        servers.ip("link set lo up");
        // Theirs also while no mount has a link.
        servers.ip(&format!("addr add {SERVERS} dev lo"));
        Network {
            servers,
            mounts: Vec::new(),
        }
    }

    /// Adds the place of another mount, with a link to the servers.
    ///
    /// # Panics
    /// When it cannot be made.
    #[track_caller]
    pub fn add(&mut self, dir: &Path) {
        let i = self.mounts.len();
        let own = format!("10.9.0.{}", i + 2);
        let mount = Space::new(dir, &format!("mount{i}-net"));
        let to = mount.keeper.pid();
        self.servers.ip(&format!(
            "link add m{i} type veth peer name eth0 netns {to}"
        ));
        let ends = [
            (&self.servers, format!("m{i}"), SERVERS, own.as_str()),
            (&mount, "eth0".to_owned(), own.as_str(), SERVERS),
        ];
        for (space, link, own, peer) in ends {
            space.ip(&format!("addr add {own} peer {peer} dev {link}"));
            space.ip(&format!("link set {link} up"));
        }
        self.mounts.push(mount);
    }

    /// Pulls the cable of mount `i`: nothing that is sent arrives, and nobody is told.
    ///
    /// # Panics
    /// When that fails.
    #[track_caller]
    pub fn cut(&self, i: usize) {
        self.servers.ip(&format!("link set m{i} down"));
    }

    /// Plugs it in again.
    ///
    /// # Panics
    /// When that fails.
    #[track_caller]
    pub fn heal(&self, i: usize) {
        self.servers.ip(&format!("link set m{i} up"));
    }

    /// A process in whose namespace servers start.
    pub fn among_servers(&self) -> u32 {
        self.servers.keeper.pid()
    }

    /// A process in whose namespace mount `i` starts.
    pub fn beside_mount(&self, i: usize) -> u32 {
        self.mounts[i].keeper.pid()
    }
}

impl Space {
    #[track_caller]
    fn new(dir: &Path, name: &str) -> Space {
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "infinity"]);
        let keeper = Service::start_command(dir, name, command);
        let net = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let (ours, pid) = (net("self"), keeper.pid().to_string());
        poll::until_true("a network namespace", || {
            assert!(
                keeper.ended().is_none(),
                "no network namespace: {}",
                keeper.log()
            );
            net(&pid).is_some_and(|net| Some(net) != ours)
        });
        Space { keeper }
    }

    /// Runs `ip` with these words there.
    #[track_caller]
    fn ip(&self, words: &str) {
        let mut command = inside(self.keeper.pid(), "ip");
        tool::run(command.args(words.split(' '))).ok();
    }
}

/// A command that runs in the network namespace of a process.
pub fn inside(pid: u32, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--target", &pid.to_string(), "--net"]);
    command.arg("--").arg(program);
    command
}
