//! A long-running process: a server, a mount, or everything at once.
//!
//! Its stdout and stderr go to files, which are shown when the test fails. It gets a signal to stop when the
//! tests' process dies, so that an interrupted run leaves no mounts.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::poll;
use crate::starter::Process;

/// A process that runs longer than this belongs to a hanging test, and is killed.
const LIMIT: Duration = Duration::from_secs(400);

/// A process this test started; it ends with its owner.
#[derive(Debug)]
pub struct Service {
    name: String,
    process: Arc<Process>,
    stdout: PathBuf,
    stderr: PathBuf,
    /// Ends the watchdog when dropped.
    watched: Option<Sender<()>>,
}

impl Service {
    /// Starts `slabfs ARGS` in `dir`; its output is appended to `NAME.out` and `NAME.err` there.
    ///
    /// # Panics If it cannot be started.
    pub fn start(dir: &Path, name: &str, args: &[String]) -> Service {
        let mut command = Command::new(crate::binary::path());
        command.args(args).env_remove("RUST_LOG");
        Service::start_command(dir, name, command)
    }

    /// Starts any command in the same way.
    ///
    /// # Panics If it cannot be started.
    pub fn start_command(dir: &Path, name: &str, mut command: Command) -> Service {
        let (stdout, stderr) = (
            dir.join(format!("{name}.out")),
            dir.join(format!("{name}.err")),
        );
        // Output of an earlier process with this name must not be taken for this one's.
        File::create(&stdout).expect("a file for stdout");
        command.current_dir(dir);
        let process = Arc::new(Process::start(&command, &stdout, &stderr));
        let (watched, end) = channel();
        watch(name.to_owned(), Arc::clone(&process), end);
        Service {
            name: name.to_owned(),
            process,
            stdout,
            stderr,
            watched: Some(watched),
        }
    }

    /// Lets it run for longer than a test may.
    pub fn lift_limit(&mut self) {
        self.watched = None;
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Waits until it reports that it is ready.
    ///
    /// # Panics If it ends before that.
    #[track_caller]
    pub fn ready(&mut self) {
        if let Err(error) = self.try_ready() {
            panic!("{error}");
        }
    }

    /// Waits until it reports that it is ready; fails if it ends instead.
    ///
    /// # Errors Its status and log.
    pub fn try_ready(&mut self) -> Result<(), String> {
        let what = format!("{} to be ready", self.name);
        poll::until(&what, || {
            if self.out().lines().any(|line| line.starts_with("ready:")) {
                return Some(Ok(()));
            }
            let status = self.ended()?;
            Some(Err(format!(
                "{} ended with {status} before it was ready:\n{}",
                self.name,
                self.log()
            )))
        })
    }

    /// Its exit status, if it has ended; 128 and the signal's number if a signal ended it.
    pub fn ended(&self) -> Option<i32> {
        self.process.ended()
    }

    /// Waits for its end.
    ///
    /// # Panics If it does not end.
    pub fn wait(&self) -> i32 {
        let status = self.process.wait(poll::DEADLINE);
        status.unwrap_or_else(|| panic!("{} does not end:\n{}", self.name, self.log()))
    }

    /// Sends it a signal; after `SIGSTOP`, waits until all its threads have stopped.
    ///
    /// # Panics If it has ended.
    pub fn signal(&self, signal: Signal) {
        assert!(
            self.ended().is_none(),
            "{} has ended already:\n{}",
            self.name,
            self.log()
        );
        self.process.signal(signal);
        if signal == Signal::SIGSTOP {
            poll::until_true("all threads stopped", || self.has_stopped());
        }
    }

    /// Whether the kernel has stopped all its threads.
    fn has_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid()));
        let mut stats = tasks.expect("its threads").map(|task| {
            let path = task.expect("a thread").path().join("stat");
            // A thread that has just ended is listed no more the next time.
            std::fs::read_to_string(path).unwrap_or_default()
        });
        // The state follows the name, which is in parentheses.
        stats.all(|stat| {
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('T'))
        })
    }

    /// Stops it cleanly.
    ///
    /// # Panics If it does not end with status 0.
    pub fn stop(&self) {
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        assert!(
            status == 0,
            "{} ended with {status}:\n{}",
            self.name,
            self.log()
        );
    }

    /// Kills it at any point.
    pub fn kill9(&self) {
        self.signal(Signal::SIGKILL);
        self.wait();
    }

    /// Its stdout.
    pub fn out(&self) -> String {
        read(&self.stdout)
    }

    /// Its stderr, and that of earlier processes with its name.
    pub fn log(&self) -> String {
        read(&self.stderr)
    }

    /// Its current and maximal resident memory, in bytes.
    ///
    /// # Panics If it has ended.
    pub fn memory(&self) -> (u64, u64) {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("its status");
        let field = |name: &str| {
            let line = status
                .lines()
                .find(|line| line.starts_with(name))
                .expect(name);
            line.split_whitespace()
                .nth(1)
                .and_then(|kib| kib.parse::<u64>().ok())
                .expect("a number")
                * 1024
        };
        (field("VmRSS:"), field("VmHWM:"))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.ended().is_none() {
            // When a test failed nothing has to be stored, and a clean stop might hang.
            let first = if std::thread::panicking() {
                Signal::SIGKILL
            } else {
                Signal::SIGTERM
            };
            self.process.signal(first);
            if self.process.wait(Duration::from_secs(20)).is_none() {
                eprintln!("{} does not end; killing it", self.name);
                self.process.signal(Signal::SIGKILL);
                let _ = self.process.wait(poll::DEADLINE);
            }
        }
        if std::thread::panicking() {
            eprintln!(
                "--- {}: its log ---\n{}---",
                self.name,
                last_lines(&self.log(), 60)
            );
        }
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(count);
    lines[from..]
        .iter()
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Kills the process of a hanging test, so that its system calls fail and it ends.
fn watch(name: String, process: Arc<Process>, end: Receiver<()>) {
    std::thread::spawn(move || {
        // A soak lets tests run for longer.
        let limit = LIMIT + crate::soak::time().unwrap_or_default();
        if end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) && process.ended().is_none() {
            eprintln!("{name}: its test hangs; killing it");
            process.signal(Signal::SIGKILL);
        }
    });
}
