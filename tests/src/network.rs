//! Simulates machines of a network on this machine: network namespaces with links between them that can be cut.
//!
//! One namespace has the servers, each mount has one of its own; a pair of `veth` connects each mount with the
//! servers, as if each had a cable of its own. The servers have the same address on all of them.
//!
//! ```text
//!   mount 0  10.9.0.2 eth0 ---- m0 10.9.0.1
//!   mount 1  10.9.0.3 eth0 ---- m1 10.9.0.1   servers (and lo)
//! ```
//!
//! A namespace exists as long as a process in it, and these processes end with their owner, also with the
//! tests' process: namespaces have no names, so that nothing is left behind and no two tests conflict. Files
//! and mounts are shared: only the network is separate.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::{Service, poll, tool};

/// The servers' address, for all mounts.
pub const SERVERS: &str = "10.9.0.1";

/// The servers' namespace, and the mounts' namespaces.
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

/// The address of mount `i`, or of what else has a namespace of its own.
pub fn spoke(i: usize) -> String {
    format!("10.9.0.{}", i + 2)
}

impl Network {
    /// A network with only the servers' namespace.
    ///
    /// # Panics If it cannot be created, which needs the superuser and `ip`.
    #[track_caller]
    pub fn new(dir: &Path) -> Network {
        let servers = Space::new(dir, "servers-net");
        servers.ip("link set lo up");
        // The address is valid also while no mount has a link.
        servers.ip(&format!("addr add {SERVERS} dev lo"));
        Network {
            servers,
            mounts: Vec::new(),
        }
    }

    /// Adds the namespace of another mount, with a link to the servers.
    ///
    /// # Panics If it cannot be created.
    #[track_caller]
    pub fn add(&mut self, dir: &Path) {
        let i = self.mounts.len();
        let own = spoke(i);
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

    /// Cuts the link of mount `i`: packets are lost, and neither side is notified.
    ///
    /// # Panics If that fails.
    #[track_caller]
    pub fn cut(&self, i: usize) {
        self.servers.ip(&format!("link set m{i} down"));
    }

    /// Restores the link.
    ///
    /// # Panics If that fails.
    #[track_caller]
    pub fn heal(&self, i: usize) {
        self.servers.ip(&format!("link set m{i} up"));
    }

    /// A process in whose namespace servers start.
    pub fn among_servers(&self) -> u32 {
        self.servers.keeper.pid()
    }

    /// A process in whose namespace mount `i` starts.
    pub fn host_of_mount(&self, i: usize) -> u32 {
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

    /// Runs `ip` with these arguments in the namespace.
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
