//! A working directory as a user has it: `slabfs` is in the path, as in an installation of one user, and
//! commands may start daemons and mounts there.
//!
//! What is left when the directory is dropped, daemons and mounts, is ended with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::inputs::PYTHON;
use crate::{Area, binary, mounts};

/// The directories in it on which a test may mount.
const MOUNTS: [&str; 3] = ["mnt", "mnt2", "mnt3"];

/// A user with `~/.local/bin/slabfs`, and a working directory.
#[derive(Debug)]
pub struct Workdir {
    area: Area,
    ports: [u16; 2],
}

impl Workdir {
    /// A new one, and two free ports.
    ///
    /// # Panics If it cannot be made.
    pub fn new() -> Workdir {
        let area = Area::new();
        let bin = area.mkdir("user/.local/bin");
        std::os::unix::fs::symlink(binary::path(), bin.join("slabfs")).expect("a link");
        std::os::unix::fs::symlink(PYTHON, bin.join("python3")).expect("a link");
        area.mkdir("try");
        // Both sockets are held until both ports are known, so that they differ.
        let free = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
        let ports = free.map(|free| free.local_addr().expect("its address").port());
        Workdir { area, ports }
    }

    /// The working directory.
    pub fn path(&self) -> PathBuf {
        self.area.at("try")
    }

    /// A file that is outside of the working directory.
    ///
    /// # Panics If it cannot be written.
    pub fn write_outside(&self, name: &str, text: String) -> PathBuf {
        self.area.write(name, text)
    }

    /// Two ports that were free.
    pub fn ports(&self) -> [u16; 2] {
        self.ports
    }

    /// A shell of the user, to which arguments are added.
    pub fn bash(&self) -> Command {
        let user = self.area.at("user");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut bash = Command::new("bash");
        bash.env("PATH", format!("{}/.local/bin:{path}", user.display()))
            .env("HOME", user)
            .env("LC_ALL", "C")
            .env_remove("RUST_LOG")
            .env_remove("XDG_DATA_HOME")
            .current_dir(self.path());
        bash
    }
}

impl Default for Workdir {
    fn default() -> Workdir {
        Workdir::new()
    }
}

impl Drop for Workdir {
    fn drop(&mut self) {
        let dir = self.path();
        for process in processes_in(&dir) {
            if let Err(error) = kill(process, Signal::SIGKILL) {
                eprintln!("process {process} stays: {error}");
            }
        }
        for name in MOUNTS {
            mounts::detach(&dir.join(name));
        }
    }
}

/// Processes of slabfs that were started in `dir`.
fn processes_in(dir: &Path) -> Vec<Pid> {
    let binary = binary::path().canonicalize().expect("the binary");
    let entries = std::fs::read_dir("/proc").expect("/proc");
    let numbers = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let link = |number: i32, name: &str| std::fs::read_link(format!("/proc/{number}/{name}")).ok();
    numbers
        .filter(|&number| {
            link(number, "cwd").as_deref() == Some(dir)
                && link(number, "exe").as_deref() == Some(&binary)
        })
        .map(Pid::from_raw)
        .collect()
}
