//! Pipes between workers: messages from one to another, and barriers of all.
//!
//! Each worker has two named pipes: one brings messages, the other is for barriers. Both are open for
//! reading and writing everywhere, so that nobody waits for an opening and nobody sees an end.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

fn place(dir: &Path, kind: &str, process: u32) -> PathBuf {
    dir.join(format!("{kind}{process}"))
}

/// Makes the pipes of all.
pub(super) fn make(dir: &Path, processes: u32) {
    for process in 0..processes {
        for kind in ["message", "barrier"] {
            let mode = nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR;
            nix::unistd::mkfifo(&place(dir, kind, process), mode).expect("a pipe");
        }
    }
}

/// The ends a worker has.
#[derive(Debug)]
pub(super) struct Peers {
    me: usize,
    messages: Vec<File>,
    barriers: Vec<File>,
}

impl Peers {
    pub(super) fn new(dir: &Path, me: u32, processes: u32) -> Peers {
        let open = |kind: &str| -> Vec<File> {
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            let opened = (0..processes).map(|i| options.open(place(dir, kind, i)));
            opened.map(|file| file.expect("a pipe")).collect()
        };
        Peers {
            me: me as usize,
            messages: open("message"),
            barriers: open("barrier"),
        }
    }

    /// Lets another worker go on.
    pub(super) fn tell(&self, to: u32) {
        (&self.messages[to as usize]).write_all(&[1]).expect("told");
    }

    /// Waits until one tells this one.
    pub(super) fn hear(&self) {
        (&self.messages[self.me])
            .read_exact(&mut [0])
            .expect("heard");
    }

    /// Waits until all are here.
    pub(super) fn barrier(&self) {
        let mut own = &self.barriers[self.me];
        let others = self.barriers.len() - 1;
        // The first counts those who come and lets them go on: nobody overtakes anybody.
        if self.me == 0 {
            own.read_exact(&mut vec![0; others]).expect("all came");
            for mut other in &self.barriers[1..] {
                other.write_all(&[1]).expect("told");
            }
        } else {
            (&self.barriers[0]).write_all(&[1]).expect("told");
            own.read_exact(&mut [0]).expect("all came");
        }
    }
}
