//! One process that keeps running: a server, a mount, or everything at once.
//!
//! Its stdout and stderr go to files, which are shown when the test fails. It is told to stop by the
//! kernel when the tests' own process dies, so that an interrupted run leaves no mounts. (The kernel
//! watches the *thread* that started it, so all are started from one thread that lives as long as the
//! process.)

use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::poll;

/// A process that lives longer than this belongs to a test that hangs, and is killed.
const LIMIT: Duration = Duration::from_secs(180);

/// A process this test started; it ends with its owner.
#[derive(Debug)]
pub struct Service {
    name: String,
    child: Arc<Mutex<Child>>,
    status: Option<ExitStatus>,
    stdout: PathBuf,
    stderr: PathBuf,
    /// Ends the watchdog when dropped.
    _watched: Sender<()>,
}

impl Service {
    /// Starts `slabfs ARGS` in `dir`; its output is appended to `NAME.out` and `NAME.err` there.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(dir: &Path, name: &str, args: &[String]) -> Service {
        let mut command = Command::new(crate::binary::path());
        command.args(args).env_remove("RUST_LOG");
        Service::start_command(dir, name, command)
    }

    /// Starts any command in the same way.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_command(dir: &Path, name: &str, mut command: Command) -> Service {
        let (stdout, stderr) = (
            dir.join(format!("{name}.out")),
            dir.join(format!("{name}.err")),
        );
        // What an earlier process of this name said must not be taken for this one's.
        File::create(&stdout).expect("a file for stdout");
        let log = |path: &Path| {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .expect("a log file")
        };
        command
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(log(&stdout))
            .stderr(log(&stderr));
        let child = Arc::new(Mutex::new(spawn(command)));
        let (watched, end) = channel();
        watch(name.to_owned(), Arc::clone(&child), end);
        Service {
            name: name.to_owned(),
            child,
            status: None,
            stdout,
            stderr,
            _watched: watched,
        }
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// Waits until it says that it is ready.
    ///
    /// # Panics
    /// When it ends before that.
    #[track_caller]
    pub fn ready(&mut self) {
        if let Err(error) = self.try_ready() {
            panic!("{error}");
        }
    }

    /// Waits until it says that it is ready; the error is what it said when it ended instead.
    ///
    /// # Errors
    /// Its status and log.
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

    /// Its exit status, when it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            let status = self.child().try_wait().expect("its status");
            self.status = status;
        }
        self.status
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end.
    pub fn wait(&mut self) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        poll::until(&what, || self.ended())
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it has ended.
    pub fn signal(&mut self, signal: Signal) {
        assert!(
            self.ended().is_none(),
            "{} has ended already:\n{}",
            self.name,
            self.log()
        );
        kill(Pid::from_raw(self.pid() as i32), signal).expect("a signal");
    }

    /// Stops it in order.
    ///
    /// # Panics
    /// When it does not end with status 0.
    pub fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        assert!(
            status.success(),
            "{} ended with {status}:\n{}",
            self.name,
            self.log()
        );
    }

    /// Ends it in the middle of whatever it does.
    pub fn kill9(&mut self) {
        self.signal(Signal::SIGKILL);
        self.wait();
    }

    /// What it wrote to stdout.
    pub fn out(&self) -> String {
        read(&self.stdout)
    }

    /// What it, and those of its name before it, wrote to stderr.
    pub fn log(&self) -> String {
        read(&self.stderr)
    }

    /// Memory it has resident now, and had at most, in bytes.
    ///
    /// # Panics
    /// When it has ended.
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
            let pid = Pid::from_raw(self.pid() as i32);
            let _ = kill(pid, first);
            let start = std::time::Instant::now();
            while self.ended().is_none() {
                if start.elapsed() > Duration::from_secs(20) {
                    eprintln!("{} does not end; killing it", self.name);
                    let _ = kill(pid, Signal::SIGKILL);
                }
                std::thread::sleep(Duration::from_millis(2));
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

/// Starts a command from the thread that never ends, with the request to be stopped with it.
fn spawn(mut command: Command) -> Child {
    type Job = (Command, Sender<std::io::Result<Child>>);
    static STARTER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (jobs, queue) = channel::<Job>();
        std::thread::Builder::new()
            .name("starter".to_owned())
            .spawn(move || {
                for (mut command, reply) in queue {
                    // The asker is a test that may have been ended; then the child ends with its handle.
                    let _ = reply.send(command.spawn());
                }
            })
            .expect("a thread");
        Mutex::new(jobs)
    });
    // SAFETY: between fork and exec this makes one system call, prctl, and touches no memory of ours.
    unsafe {
        command.pre_exec(|| {
            nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
            Ok(())
        });
    }
    let line = format!("{command:?}");
    let (reply, answer) = channel();
    starter
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send((command, reply))
        .expect("the starter");
    answer
        .recv()
        .expect("the starter")
        .unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn watch(name: String, child: Arc<Mutex<Child>>, end: Receiver<()>) {
    std::thread::spawn(move || {
        if end.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
            if matches!(child.try_wait(), Ok(None)) {
                eprintln!("{name}: its test hangs; killing it");
                let _ = child.kill();
            }
        }
    });
}
