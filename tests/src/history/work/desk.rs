//! The state of a worker: its task, log, random numbers and peers.

use std::io::{Error, Result};

use nix::errno::Errno;

use super::Task;
use super::peers::Peers;
use crate::Random;
use crate::history::log::Log;
use crate::history::{Answer, Call, Promise};

/// A worker's state.
#[derive(Debug)]
pub struct Desk {
    /// Its task.
    pub task: Task,
    /// The other workers.
    pub(super) peers: Peers,
    /// Random numbers of its own, from the run's seed.
    pub(super) random: Random,
    /// Random numbers that are the same in all workers, if each draws them at the same steps.
    pub(super) common: Random,
    log: Log,
    written: u64,
}

impl Desk {
    /// The worker of a task.
    ///
    /// # Panics If its log or pipes do not exist.
    pub fn new(task: Task) -> Desk {
        let log = task.dir.join(format!("log{}", task.process));
        // `SLABFS_TEST_SEED` has been applied to the run's seed; applied here it would make all workers equal.
        let seeded = |more: u64| Random::exactly(task.seed.wrapping_mul(1000).wrapping_add(more));
        Desk {
            peers: Peers::new(&task.dir, task.process, task.processes),
            random: seeded(u64::from(task.process) + 1),
            common: seeded(0),
            log: Log::create(&log).expect("a log"),
            written: 0,
            task,
        }
    }

    /// The object's name, which identifies its history.
    pub fn name(&self) -> String {
        let name = self.task.object.file_name().expect("a name");
        name.to_string_lossy().into_owned()
    }

    /// Whether data has to be synced and opened again before others need to see it.
    pub fn commits(&self) -> bool {
        self.task.promise == Promise::Commit
    }

    /// A unique value, different from all of this worker and of others; never 0.
    pub fn fresh(&mut self) -> u64 {
        self.written += 1;
        // One step of the generator is a bijection: different seeds, different values.
        let seed = u64::from(self.task.process) << 40 | self.written;
        Random::exactly(seed).number().max(1)
    }

    /// Does one operation and logs it.
    pub fn note(
        &mut self,
        object: &str,
        call: Call,
        act: impl FnOnce() -> Result<Answer>,
    ) -> Answer {
        self.log.note(object, call, || match act() {
            Ok(answer) => answer,
            Err(error) => refusal(&error),
        })
    }
}

/// The answer for an error: refused because of the state, or unknown.
fn refusal(error: &Error) -> Answer {
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
    match errno {
        Errno::ENOENT | Errno::EEXIST | Errno::EAGAIN | Errno::EACCES => {
            Answer::Refused(errno.to_string())
        }
        _ => Answer::Unknown(error.to_string()),
    }
}
