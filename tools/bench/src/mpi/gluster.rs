//! GlusterFS: a distributed volume of two bricks, and two mounts.
//!
//! Bricks and mounts are started directly, by volume files that have what `gluster volume create` of version 10
//! writes into them for such a volume, with its defaults; translators without an effect by default (trash,
//! changelog, quota and the like) are omitted. So there is no glusterd, whose processes, ports and directories
//! would be outside this program's control.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::local::succeed;
use super::network::{ADDRESS, wait_for};
use super::systems::{Place, System, end_foreign_mount};

/// The port of the first brick; the second has the next.
const PORT: u16 = 49_152;
/// Any id will do.
const VOLUME_ID: &str = "0ed19670-ee20-47d4-945a-417a25c911be";

/// The volume with its mounts.
pub(super) struct Gluster<'a> {
    place: &'a Place,
    client: PathBuf,
    at: [PathBuf; 2],
    pids: [u32; 2],
}

impl<'a> Gluster<'a> {
    pub(super) fn start(place: &'a Place) -> anyhow::Result<Gluster<'a>> {
        for brick in 0..2 {
            start_brick(place, brick)?;
        }
        let mut gluster = Gluster {
            place,
            client: place.write("client.vol", &client())?,
            at: [place.mountpoint("mnt0")?, place.mountpoint("mnt1")?],
            pids: [0; 2],
        };
        gluster.mount()?;
        Ok(gluster)
    }

    fn mount(&mut self) -> anyhow::Result<()> {
        for (at, pid) in self.at.iter().zip(&mut self.pids) {
            let mut command = Command::new("glusterfs");
            command.args(["-N", "--process-name", "fuse", "-f"]);
            command.arg(&self.client).arg("-l");
            command.arg(self.place.dir.join("client.log")).arg(at);
            *pid = self
                .place
                .foreign_mount(&mut command, "a mount of GlusterFS", at)?;
        }
        Ok(())
    }
}

impl System for Gluster<'_> {
    fn dirs(&self) -> [&Path; 2] {
        [&self.at[0], &self.at[1]]
    }

    fn forget(&mut self) -> anyhow::Result<()> {
        for (at, pid) in self.at.iter().zip(self.pids) {
            end_foreign_mount(at, pid)?;
        }
        self.mount()
    }
}

fn start_brick(place: &Place, brick: u16) -> anyhow::Result<()> {
    let data = place.make(&format!("brick{brick}"))?;
    let id = format!("0x{}", VOLUME_ID.replace('-', ""));
    let mut mark = Command::new("setfattr");
    succeed(
        mark.args(["-n", "trusted.glusterfs.volume-id", "-v", &id])
            .arg(&data),
    )?;
    std::fs::create_dir_all(data.join(".glusterfs/indices"))?;
    let volume = place.write(&format!("brick{brick}.vol"), &server(&data, PORT + brick))?;
    let mut command = Command::new("glusterfsd");
    command.arg("-N").arg("-f").arg(volume);
    command
        .arg("-l")
        .arg(place.dir.join(format!("brick{brick}.log")));
    let pid = place.foreign(&mut command, "a brick of GlusterFS")?;
    wait_for(PORT + brick, pid, "a brick of GlusterFS")
}

/// Translators, each on the previous one by default.
struct Volume {
    text: String,
    below: Option<String>,
}

impl Volume {
    fn new() -> Volume {
        Volume {
            text: String::new(),
            below: None,
        }
    }

    fn add(&mut self, name: &str, kind: &str, options: &[(&str, &str)]) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "volume {name}\n    type {kind}");
        for (key, value) in options {
            let _ = writeln!(self.text, "    option {key} {value}");
        }
        if let Some(below) = self.below.replace(name.to_owned()) {
            let _ = writeln!(self.text, "    subvolumes {below}");
        }
        self.text.push_str("end-volume\n");
    }
}

fn server(data: &Path, port: u16) -> String {
    let data = data.display().to_string();
    let indices = format!("{data}/.glusterfs/indices");
    let port = port.to_string();
    let mut volume = Volume::new();
    let posix = [
        ("shared-brick-count", "2"),
        ("directory", &data),
        ("volume-id", VOLUME_ID),
    ];
    volume.add("posix", "storage/posix", &posix);
    volume.add("access-control", "features/access-control", &[]);
    volume.add("locks", "features/locks", &[]);
    volume.add("leases", "features/leases", &[]);
    volume.add(
        "upcall",
        "features/upcall",
        &[("cache-invalidation", "off")],
    );
    volume.add("io-threads", "performance/io-threads", &[]);
    let index = [
        ("xattrop-pending-watchlist", "trusted.afr.bench-"),
        ("xattrop-dirty-watchlist", "trusted.afr.dirty"),
        ("index-base", &indices),
    ];
    volume.add("index", "features/index", &index);
    volume.add("brick", "debug/io-stats", &[]);
    let server = [
        ("transport-type", "tcp"),
        ("transport.address-family", "inet"),
        ("transport.socket.bind-address", ADDRESS),
        ("transport.socket.listen-port", &port),
        ("transport.listen-backlog", "1024"),
        ("auth.addr.brick.allow", ADDRESS),
        ("auth-path", "brick"),
    ];
    volume.add("server", "protocol/server", &server);
    volume.text
}

fn client() -> String {
    let mut volume = Volume::new();
    for brick in 0..2 {
        let port = (PORT + brick).to_string();
        volume.below = None;
        let client = [
            ("transport-type", "tcp"),
            ("transport.address-family", "inet"),
            ("remote-host", ADDRESS),
            ("remote-port", &port),
            ("remote-subvolume", "brick"),
            ("send-gids", "true"),
        ];
        volume.add(&format!("client{brick}"), "protocol/client", &client);
    }
    volume.below = Some("client0 client1".to_owned());
    volume.add("dht", "cluster/distribute", &[]);
    volume.add("utime", "features/utime", &[("noatime", "on")]);
    volume.add("write-behind", "performance/write-behind", &[]);
    volume.add("open-behind", "performance/open-behind", &[]);
    volume.add("quick-read", "performance/quick-read", &[]);
    volume.add("md-cache", "performance/md-cache", &[]);
    volume.add("io-threads", "performance/io-threads", &[]);
    volume.add("bench", "debug/io-stats", &[("threads", "16")]);
    volume.text
}
