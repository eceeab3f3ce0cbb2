//! Simulates machines of a network on this machine: network namespaces with links between them that can be cut.
//!
//! One namespace is the hub, and each machine has one of its own; a pair of `veth` connects each machine with the
//! hub, as if each had a cable of its own. The hub has the same address on all of them, and forwards between them.
//! What is not to be cut off, such as the servers where mounts are, is in the hub.
//!
//! ```text
//!   machine 0  10.9.0.2 eth0 ---- m0 10.9.0.1
//!   machine 1  10.9.0.3 eth0 ---- m1 10.9.0.1   hub (and lo)
//! ```
//!
//! A namespace exists as long as a process in it, and these processes end with their owner, also with the
//! tests' process: namespaces have no names, so that nothing is left behind and no two tests conflict. Files
//! and mounts are shared: only the network is separate.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::{Service, poll, tool};

/// The hub's address, for all machines.
pub const HUB: &str = "10.9.0.1";

/// The hub's namespace, and those of machines.
#[derive(Debug)]
pub struct Network {
    hub: Space,
    machines: Vec<Space>,
}

/// A network namespace.
#[derive(Debug)]
struct Space {
    keeper: Service,
}

/// The address of machine `i`.
pub fn address(i: usize) -> String {
    format!("10.9.0.{}", i + 2)
}

impl Network {
    /// A network with only the hub.
    ///
    /// # Panics If it cannot be created, which needs the superuser and `ip`.
    #[track_caller]
    pub fn new(dir: &Path) -> Network {
        let hub = Space::new(dir, "hub-net");
        hub.ip("link set lo up");
        // The address is valid also while no machine has a link.
        hub.ip(&format!("addr add {HUB} dev lo"));
        let mut forward = inside(hub.keeper.pid(), "sh");
        forward.args(["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]);
        tool::run(&mut forward).ok();
        Network {
            hub,
            machines: Vec::new(),
        }
    }

    /// Adds the namespace of another machine, with a link to the hub; returns its number.
    ///
    /// # Panics If it cannot be created.
    #[track_caller]
    pub fn add(&mut self, dir: &Path) -> usize {
        let i = self.machines.len();
        let own = address(i);
        let machine = Space::new(dir, &format!("machine{i}-net"));
        let to = machine.keeper.pid();
        self.hub.ip(&format!(
            "link add m{i} type veth peer name eth0 netns {to}"
        ));
        let ends = [
            (&self.hub, format!("m{i}"), HUB, own.as_str()),
            (&machine, "eth0".to_owned(), own.as_str(), HUB),
        ];
        for (space, link, own, peer) in ends {
            space.ip(&format!("addr add {own} peer {peer} dev {link}"));
            space.ip(&format!("link set {link} up"));
        }
        machine.ip("link set lo up");
        machine.ip(&format!("route add default via {HUB}"));
        self.machines.push(machine);
        i
    }

    /// Cuts the link of machine `i`: packets are lost, and neither side is notified.
    ///
    /// # Panics If that fails.
    #[track_caller]
    pub fn cut(&self, i: usize) {
        self.hub.ip(&format!("link set m{i} down"));
    }

    /// Restores the link.
    ///
    /// # Panics If that fails.
    #[track_caller]
    pub fn heal(&self, i: usize) {
        self.hub.ip(&format!("link set m{i} up"));
    }

    /// A process in the hub's namespace.
    pub fn hub(&self) -> u32 {
        self.hub.keeper.pid()
    }

    /// A process in the namespace of machine `i`.
    pub fn machine(&self, i: usize) -> u32 {
        self.machines[i].keeper.pid()
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
