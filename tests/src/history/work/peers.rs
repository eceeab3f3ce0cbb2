//! Pipes between workers: messages from one to another, and barriers of all.
//!
//! Each worker has two named pipes: one for messages, the other for barriers. Both are open for reading and
//! writing in all workers, so that no open blocks and no reader gets an end of file.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

fn place(dir: &Path, kind: &str, process: u32) -> PathBuf {
    dir.join(format!("{kind}{process}"))
}

/// Creates the pipes of all.
pub(super) fn make(dir: &Path, processes: u32) {
    for process in 0..processes {
        for kind in ["message", "barrier"] {
            let mode = nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR;
            nix::unistd::mkfifo(&place(dir, kind, process), mode).expect("a pipe");
        }
    }
}

/// A worker's open pipes.
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

    /// Lets another worker continue.
    pub(super) fn notify(&self, to: u32) {
        (&self.messages[to as usize]).write_all(&[1]).expect("sent");
    }

    /// Waits for a message of another worker.
    pub(super) fn hear(&self) {
        (&self.messages[self.me])
            .read_exact(&mut [0])
            .expect("heard");
    }

    /// Waits until all workers have called it.
    pub(super) fn barrier(&self) {
        let mut own = &self.barriers[self.me];
        let others = self.barriers.len() - 1;
        // The first counts the others and lets them continue: none can overtake another.
        if self.me == 0 {
            own.read_exact(&mut vec![0; others]).expect("all came");
            for mut other in &self.barriers[1..] {
                other.write_all(&[1]).expect("sent");
            }
        } else {
            (&self.barriers[0]).write_all(&[1]).expect("sent");
            own.read_exact(&mut [0]).expect("all came");
        }
    }
}
