//! GlusterFS: a distributed volume of two bricks, and two mounts.
//!
//! Bricks and mounts are started directly, by volume files that have what `gluster volume create` of version 10
//! writes into them for such a volume, with its defaults; translators without an effect by default (trash,
//! changelog, quota and the like) are omitted. So there is no glusterd, whose processes, ports and directories
//! would be outside this program's control.

use std::fmt::Write;

use super::network::{ADDRESS, wait_for};
use super::{Mount, Place};
use crate::cleanup::{command, output};

/// The port of the first brick; the second has the next.
const PORT: u16 = 49_152;
/// Any id will do.
const VOLUME_ID: &str = "0ed19670-ee20-47d4-945a-417a25c911be";

/// The translators of a brick: name, type and options of each, which is on the previous one.
const BRICK: &str = "
posix storage/posix shared-brick-count=2 directory=DATA volume-id=ID
access-control features/access-control
locks features/locks
leases features/leases
upcall features/upcall cache-invalidation=off
io-threads performance/io-threads
index features/index xattrop-pending-watchlist=trusted.afr.bench- \
    xattrop-dirty-watchlist=trusted.afr.dirty index-base=DATA/.glusterfs/indices
brick debug/io-stats
server protocol/server transport-type=tcp transport.address-family=inet \
    transport.socket.bind-address=ADDRESS transport.socket.listen-port=PORT \
    transport.listen-backlog=1024 auth.addr.brick.allow=ADDRESS auth-path=brick
";

/// A mount's translator for a brick.
const CLIENT: &str = "
clientBRICK protocol/client transport-type=tcp transport.address-family=inet \
    remote-host=ADDRESS remote-port=PORT remote-subvolume=brick send-gids=true
";

/// A mount's translators for all bricks.
const VOLUME: &str = "
dht cluster/distribute
utime features/utime noatime=on
write-behind performance/write-behind
open-behind performance/open-behind
quick-read performance/quick-read
md-cache performance/md-cache
io-threads performance/io-threads
bench debug/io-stats threads=16
";

/// Starts the bricks.
pub(super) fn start(place: &Place) -> anyhow::Result<Mount> {
    let mut client = String::new();
    for brick in 0..2 {
        let port = PORT + brick;
        start_brick(place, brick, port)?;
        let text = CLIENT
            .replace("BRICK", &brick.to_string())
            .replace("PORT", &port.to_string());
        client += &volume(&text, "");
    }
    client += &volume(VOLUME, "client0 client1");
    let client = place.write("client.vol", &client)?;
    let log = place.dir.join("client.log");
    Ok(Box::new(move |at| {
        let mut mount = command("glusterfs", &[&"-N", &"--process-name", &"fuse"]);
        mount.arg("-f").arg(&client).arg("-l").arg(&log).arg(at);
        mount
    }))
}

fn start_brick(place: &Place, brick: u16, port: u16) -> anyhow::Result<()> {
    let data = place.make(&format!("brick{brick}"))?;
    let id = format!("0x{}", VOLUME_ID.replace('-', ""));
    let mark = "trusted.glusterfs.volume-id";
    output(command("setfattr", &[&"-n", &mark, &"-v", &id]).arg(&data))?;
    std::fs::create_dir_all(data.join(".glusterfs/indices"))?;
    let text = BRICK
        .replace("PORT", &port.to_string())
        .replace("ID", VOLUME_ID)
        .replace("DATA", &data.display().to_string());
    let file = place.write(&format!("brick{brick}.vol"), &volume(&text, ""))?;
    let log = place.dir.join(format!("brick{brick}.log"));
    let name = "a brick of GlusterFS";
    let mut server = command("glusterfsd", &[&"-N", &"-f", &file, &"-l", &log]);
    wait_for(port, place.foreign(&mut server, name)?, name)
}

/// The text of a volume file: the first of the translators is on `below`, if that is named.
fn volume(translators: &str, below: &str) -> String {
    let (mut text, mut below) = (String::new(), below.to_owned());
    for line in translators.replace("ADDRESS", ADDRESS).trim().lines() {
        let mut words = line.split(' ');
        let (name, kind) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        // Writing to a String cannot fail.
        let _ = writeln!(text, "volume {name}\n    type {kind}");
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let _ = writeln!(text, "    option {key} {value}");
        }
        if !below.is_empty() {
            let _ = writeln!(text, "    subvolumes {below}");
        }
        text.push_str("end-volume\n");
        name.clone_into(&mut below);
    }
    text
}
