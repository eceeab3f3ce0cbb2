//! Starts processes for the tests; `slabfs_tests::starter` is the other side and explains why.
//!
//! One request per line: `{number, program, args, env, dir, stdout, stderr}` starts a process; the replies are
//! `{number, pid}` or `{number, error}`, and `{number, status}` at its end. `{number, signal}` sends it a
//! signal. The helper ends with its stdin; the processes it started then get a signal to stop.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Processes that have not been reaped, by the number of their request: their ids cannot be reused.
type Running = Arc<Mutex<HashMap<u64, Pid>>>;

fn main() {
    let running = Running::default();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let request: Value = serde_json::from_str(&line).expect("a request");
        let number = request["number"].as_u64().expect("a number");
        if let Some(signal) = request["signal"].as_i64() {
            let running = running.lock().unwrap_or_else(PoisonError::into_inner);
            if let (Some(pid), Ok(signal)) = (running.get(&number), Signal::try_from(signal as i32))
            {
                // It may have ended without being reaped; then the signal has no effect.
                let _ = kill(*pid, signal);
            }
        } else if let Err(error) = start(number, &request, &running) {
            say(&json!({ "number": number, "error": error.to_string() }));
        }
    }
}

fn say(answer: &Value) {
    let mut stdout = std::io::stdout().lock();
    // If the reader is gone, stdin ends soon.
    let _ = writeln!(stdout, "{answer}").and_then(|()| stdout.flush());
}

fn start(number: u64, request: &Value, running: &Running) -> std::io::Result<()> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let log = |name: &str| -> std::io::Result<File> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(request[name].as_str().unwrap_or_default())
    };
    let mut command = Command::new(request["program"].as_str().unwrap_or_default());
    command.args(
        request["args"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(text),
    );
    for (name, value) in request["env"].as_object().into_iter().flatten() {
        match value.as_str() {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(dir) = request["dir"].as_str() {
        command.current_dir(dir);
    }
    command
        .stdin(Stdio::null())
        .stdout(log("stdout")?)
        .stderr(log("stderr")?);
    // SAFETY: between fork and exec this makes one system call, prctl, and does not access memory.
    unsafe {
        command.pre_exec(|| {
            nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
            Ok(())
        });
    }
    let mut child = command.spawn()?;
    let pid = Pid::from_raw(child.id() as i32);
    running
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(number, pid);
    say(&json!({ "number": number, "pid": child.id() }));
    let running = Arc::clone(running);
    std::thread::spawn(move || {
        // Waits without reaping, so that no signal can reach another process with the same id.
        let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        let status = {
            let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
            running.remove(&number);
            child.wait()
        };
        let status = status.map_or(-1, |status| {
            status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
        });
        say(&json!({ "number": number, "status": status }));
    });
    Ok(())
}
