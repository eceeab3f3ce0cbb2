//! MooseFS: a master, two chunkservers, and two mounts; one copy of everything, as in the other systems.

use std::path::Path;

use anyhow::Context;

use super::network::{ADDRESS, wait_for, wait_until};
use super::{Mount, Place, System};
use crate::cleanup::{command, output};

/// The master's port for clients.
const CLIENTS: u16 = 9421;
/// The first chunkserver's port; the second has the next.
const CHUNKS: u16 = 9422;
/// The initial metadata of a master that has never run.
const EMPTY: &str = "MFSM NEW";

/// The processes run as in an installation, except that they do not change the machine's settings.
const MODEST: &str =
    "WORKING_USER = root\nWORKING_GROUP = root\nNICE_LEVEL = 0\nDISABLE_OOM_KILLER = 0\n";

/// Starts the master and the chunkservers.
pub(super) fn start(place: &Place) -> anyhow::Result<Mount> {
    start_master(place)?;
    for server in 0..2 {
        start_chunkserver(place, server)?;
    }
    Ok(Box::new(|at| {
        let mut mount = command("mfsmount", &[&"-f", &"-H", &ADDRESS]);
        mount.args(["-P", &CLIENTS.to_string()]);
        mount.args(["-o", "mfsnice=0,mfsallowoomkiller"]).arg(at);
        mount
    }))
}

/// Waits for the chunkservers, and sets what the files need.
pub(super) fn settle(system: &System) -> anyhow::Result<()> {
    // Chunkservers register with the master at some time; each reports the size of the entire tmpfs.
    let room = |path: &Path| -> anyhow::Result<u64> {
        let stat = nix::sys::statvfs::statvfs(path).context("asking for room")?;
        Ok(stat.blocks() * stat.fragment_size())
    };
    let (one, at) = (room(&system.place.dir)?, &system.dirs[0]);
    wait_until(system.pids[0], "a chunkserver of MooseFS", || {
        Ok(room(at)? > one * 3 / 2)
    })?;
    output(&mut command("mfssetgoal", &[&"1", at]))?;
    output(&mut command("mfssettrashtime", &[&"0", at])).map(drop)
}

fn start_master(place: &Place) -> anyhow::Result<()> {
    let data = place.make("master")?;
    place.write("master/metadata.mfs", EMPTY)?;
    let exports = place.write("exports.cfg", "* / rw,alldirs,admin,maproot=0\n")?;
    let topology = place.write("topology.cfg", "")?;
    let config = format!(
        "{MODEST}DATA_PATH = {}\nEXPORTS_FILENAME = {}\nTOPOLOGY_FILENAME = {}\n",
        data.display(),
        exports.display(),
        topology.display()
    );
    start_daemon(place, "mfsmaster", "master", &config, CLIENTS)
}

fn start_chunkserver(place: &Place, server: u16) -> anyhow::Result<()> {
    let state = place.make(&format!("chunkserver{server}"))?;
    let data = place.make(&format!("chunks{server}"))?;
    let disks = place.write(
        &format!("hdd{server}.cfg"),
        &format!("{}\n", data.display()),
    )?;
    let port = CHUNKS + server;
    let config = format!(
        "{MODEST}DATA_PATH = {}\nHDD_CONF_FILENAME = {}\nHDD_LEAVE_SPACE_DEFAULT = 0.0MiB\n\
         MASTER_HOST = {ADDRESS}\nCSSERV_LISTEN_PORT = {port}\n",
        state.display(),
        disks.display()
    );
    let name = format!("server{server}");
    start_daemon(place, "mfschunkserver", &name, &config, port)
}

fn start_daemon(
    place: &Place,
    program: &str,
    name: &str,
    config: &str,
    port: u16,
) -> anyhow::Result<()> {
    let config = place.write(&format!("{name}.cfg"), config)?;
    let mut daemon = command(program, &[&"-f", &"-c", &config, &"start"]);
    wait_for(port, place.foreign(&mut daemon, program)?, program)
}
