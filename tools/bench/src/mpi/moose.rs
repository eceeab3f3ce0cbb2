//! MooseFS: a master, two chunkservers, and two mounts; one copy of everything, as in the other systems.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::local::succeed;
use super::network::{ADDRESS, wait_for, wait_until};
use super::systems::{Place, System, end_foreign_mount};

/// The master's port for clients.
const CLIENTS: u16 = 9421;
/// The first chunkserver's port; the second has the next.
const CHUNKS: u16 = 9422;
/// The initial metadata of a master that has never run.
const EMPTY: &str = "MFSM NEW";

/// The processes run as in an installation, except that they do not change the machine's settings.
const MODEST: &str =
    "WORKING_USER = root\nWORKING_GROUP = root\nNICE_LEVEL = 0\nDISABLE_OOM_KILLER = 0\n";

/// The filesystem with its mounts.
pub(super) struct Moose<'a> {
    place: &'a Place,
    at: [PathBuf; 2],
    pids: [u32; 2],
}

impl<'a> Moose<'a> {
    pub(super) fn start(place: &'a Place) -> anyhow::Result<Moose<'a>> {
        start_master(place)?;
        for server in 0..2 {
            start_chunkserver(place, server)?;
        }
        let mut moose = Moose {
            place,
            at: [place.mountpoint("mnt0")?, place.mountpoint("mnt1")?],
            pids: [0; 2],
        };
        moose.mount()?;
        // Chunkservers register with the master at some time; each reports the size of the entire tmpfs.
        let room = |path: &Path| -> anyhow::Result<u64> {
            let stat = nix::sys::statvfs::statvfs(path).context("asking for room")?;
            Ok(stat.blocks() * stat.fragment_size())
        };
        let one = room(&place.dir)?;
        wait_until(moose.pids[0], "a chunkserver of MooseFS", || {
            Ok(room(&moose.at[0])? > one * 3 / 2)
        })?;
        succeed(Command::new("mfssetgoal").arg("1").arg(&moose.at[0]))?;
        succeed(Command::new("mfssettrashtime").arg("0").arg(&moose.at[0]))?;
        Ok(moose)
    }

    fn mount(&mut self) -> anyhow::Result<()> {
        for (at, pid) in self.at.iter().zip(&mut self.pids) {
            let mut command = Command::new("mfsmount");
            command.args(["-f", "-H", ADDRESS, "-P", &CLIENTS.to_string()]);
            command.args(["-o", "mfsnice=0,mfsallowoomkiller"]).arg(at);
            *pid = self
                .place
                .foreign_mount(&mut command, "a mount of MooseFS", at)?;
        }
        Ok(())
    }
}

impl System for Moose<'_> {
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
    let config = place.write("master.cfg", &config)?;
    let mut command = Command::new("mfsmaster");
    command.args(["-f", "-c"]).arg(config).arg("start");
    let pid = place.foreign(&mut command, "the master of MooseFS")?;
    wait_for(CLIENTS, pid, "the master of MooseFS")
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
    let config = place.write(&format!("chunkserver{server}.cfg"), &config)?;
    let mut command = Command::new("mfschunkserver");
    command.args(["-f", "-c"]).arg(config).arg("start");
    let pid = place.foreign(&mut command, "a chunkserver of MooseFS")?;
    wait_for(port, pid, "a chunkserver of MooseFS")
}
