//! Starts all processes of the tests through one small helper process, `starter`.
//!
//! A process that forks while another of its threads has a file of a mount open closes a duplicate of that file
//! in the child, before `exec`: the kernel sends the mount a flush, and the child waits for its reply. Between
//! concurrent tests that would flush data whose messages a test counts, and a server could not be started while
//! a mount waits for it. The helper has no file of any mount open.
//!
//! Requests and replies are lines of JSON on the helper's stdin and stdout; `src/bin/starter.rs` is the other
//! side. When the tests' process ends, for whatever reason, the helper's stdin ends, and then the helper; the
//! kernel then sends a signal to every process that it started.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A process that was started.
#[derive(Debug)]
pub struct Process {
    number: u64,
    pid: u32,
}

struct Starter {
    stdin: Mutex<ChildStdin>,
    replies: Mutex<Replies>,
    changed: Condvar,
}

/// The helper's replies about each process, by the number of its request.
#[derive(Default)]
struct Replies {
    next: u64,
    started: HashMap<u64, Result<u32, String>>,
    ended: HashMap<u64, i32>,
}

fn starter() -> &'static Starter {
    static STARTER: OnceLock<Starter> = OnceLock::new();
    STARTER.get_or_init(|| {
        let program = crate::binary::profile_dir().join("starter");
        let mut helper = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let answers = BufReader::new(helper.stdout.take().expect("its stdout"));
        let stdin = Mutex::new(helper.stdin.take().expect("its stdin"));
        std::thread::spawn(move || {
            for line in answers.lines().map_while(Result::ok) {
                note(&line);
            }
            // Its stdin ends only with this process, so this wait does not return before.
            let _ = helper.wait();
        });
        Starter {
            stdin,
            replies: Mutex::default(),
            changed: Condvar::new(),
        }
    })
}

fn note(line: &str) {
    let answer: Value = serde_json::from_str(line).expect("a line of the starter");
    let number = answer["number"].as_u64().expect("a number");
    let starter = starter();
    let mut replies = lock(&starter.replies);
    if let Some(status) = answer["status"].as_i64() {
        replies.ended.insert(number, status as i32);
    } else if let Some(pid) = answer["pid"].as_u64() {
        replies.started.insert(number, Ok(pid as u32));
    } else {
        replies.started.insert(
            number,
            Err(answer["error"].as_str().unwrap_or_default().to_owned()),
        );
    }
    starter.changed.notify_all();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ask(request: &Value) {
    writeln!(lock(&starter().stdin), "{request}").expect("the starter runs");
}

impl Process {
    /// Starts `command` (its program, arguments, directory and environment), with nothing on stdin and both
    /// outputs appended to files.
    ///
    /// # Panics If it cannot be started.
    #[track_caller]
    pub fn start(command: &Command, stdout: &Path, stderr: &Path) -> Process {
        let starter = starter();
        let number = {
            let mut replies = lock(&starter.replies);
            replies.next += 1;
            replies.next
        };
        let text = |value: &std::ffi::OsStr| value.to_str().expect("text").to_owned();
        let args: Vec<String> = command.get_args().map(text).collect();
        let env: HashMap<String, Option<String>> = command
            .get_envs()
            .map(|(name, value)| (text(name), value.map(text)))
            .collect();
        ask(&json!({
            "number": number,
            "program": text(command.get_program()),
            "args": args,
            "env": env,
            "dir": command.get_current_dir(),
            "stdout": stdout,
            "stderr": stderr,
        }));
        let mut replies = lock(&starter.replies);
        loop {
            match replies.started.remove(&number) {
                Some(Ok(pid)) => return Process { number, pid },
                Some(Err(error)) => panic!("{command:?}: {error}"),
                None => {
                    replies = starter
                        .changed
                        .wait(replies)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its exit status if it has ended; 128 and the signal's number if a signal ended it.
    pub fn ended(&self) -> Option<i32> {
        lock(&starter().replies).ended.get(&self.number).copied()
    }

    /// Waits for its end; `None` if `limit` elapsed first.
    pub fn wait(&self, limit: Duration) -> Option<i32> {
        let starter = starter();
        let until = Instant::now() + limit;
        let mut replies = lock(&starter.replies);
        loop {
            if let Some(status) = replies.ended.get(&self.number) {
                return Some(*status);
            }
            let left = until.checked_duration_since(Instant::now())?;
            let waited = starter.changed.wait_timeout(replies, left);
            replies = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sends it a signal, unless it has ended: the helper has not reaped it, so its id is not reused.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        ask(&json!({ "number": self.number, "signal": signal as i32 }));
    }
}
