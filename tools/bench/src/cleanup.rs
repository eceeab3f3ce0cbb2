//! Cleans up when the benchmark ends, for whatever reason: processes by their id, mounts, directories.
//!
//! Everything that is started is recorded here first. The list is processed backwards at a normal end, after an
//! error, and by a thread that waits for SIGINT and SIGTERM.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;

/// An item to clean up.
enum Left {
    Process(Child, &'static str),
    /// A process of another project's program, whose exit status is ignored.
    Foreign(Child, &'static str),
    Mount(PathBuf),
    Directory(PathBuf),
}

static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());
/// Held during the cleanup: a second caller waits, and the process does not end before.
static AT_WORK: Mutex<()> = Mutex::new(());

/// Records a process to be terminated; returns its id.
pub(crate) fn process(child: Child, name: &'static str) -> u32 {
    let pid = child.id();
    LEFT.lock().push(Left::Process(child, name));
    pid
}

/// Records a process of another project's program; returns its id.
pub(crate) fn foreign(child: Child, name: &'static str) -> u32 {
    let pid = child.id();
    LEFT.lock().push(Left::Foreign(child, name));
    pid
}

/// Ends a recorded process by `signal` now, and waits for it; after SIGTERM its status must be 0.
pub(crate) fn end_now(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let found = {
        let mut left = LEFT.lock();
        let is_it = |left: &Left| match left {
            Left::Process(child, _) | Left::Foreign(child, _) => child.id() == pid,
            Left::Mount(_) | Left::Directory(_) => false,
        };
        let at = left.iter().position(is_it);
        at.map(|at| left.remove(at))
    };
    let (mut child, name, strict) = match found {
        Some(Left::Process(child, name)) => (child, name, true),
        Some(Left::Foreign(child, name)) => (child, name, false),
        _ => anyhow::bail!("process {pid} was not started by this program"),
    };
    let id = i32::try_from(pid).context("a process id")?;
    kill(Pid::from_raw(id), signal).context("ending a process")?;
    if signal == Signal::SIGKILL {
        child.wait().context("waiting for a process")?;
        return Ok(());
    }
    end(&mut child, name, strict)
}

/// Whether a recorded process has ended by itself.
pub(crate) fn has_ended(pid: u32) -> anyhow::Result<bool> {
    for left in LEFT.lock().iter_mut() {
        if let Left::Process(child, _) | Left::Foreign(child, _) = left
            && child.id() == pid
        {
            return Ok(child.try_wait().context("querying a process")?.is_some());
        }
    }
    Ok(true)
}

/// Records a mount to be unmounted if it still exists.
pub(crate) fn mount(path: PathBuf) {
    LEFT.lock().push(Left::Mount(path));
}

/// Records a directory to be removed.
pub(crate) fn directory(path: PathBuf) {
    LEFT.lock().push(Left::Directory(path));
}

/// Cleans everything up, the newest first.
pub(crate) fn run() -> anyhow::Result<()> {
    let _at_work = AT_WORK.lock();
    let mut first_error = None;
    loop {
        let Some(left) = LEFT.lock().pop() else { break };
        if let Err(error) = take_away(left) {
            first_error.get_or_insert(error);
        }
    }
    first_error.map_or(Ok(()), Err)
}

/// Cleans everything up on a signal. Must be called before any other thread starts.
pub(crate) fn on_signals() -> anyhow::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block().context("cannot block signals")?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if let Ok(signal) = signals.wait() {
                eprintln!("slabfs-bench: {signal}: cleaning up");
                if let Err(error) = run() {
                    eprintln!("slabfs-bench: {error:#}");
                }
                std::process::exit(130);
            }
        })
        .context("cannot start the signal thread")?;
    Ok(())
}

/// Unblocks signals in a child process, which this process blocks, and detaches it from Ctrl-C: it is
/// terminated from here, in the right order.
pub(crate) fn prepare(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
    // SAFETY: sigprocmask is async-signal-safe, and nothing else runs between fork and exec.
    unsafe {
        command.pre_exec(|| SigSet::all().thread_unblock().map_err(std::io::Error::from));
    }
}

fn take_away(left: Left) -> anyhow::Result<()> {
    match left {
        Left::Process(mut child, name) => {
            ask_to_end(&mut child)?;
            end(&mut child, name, true)
        }
        Left::Foreign(mut child, name) => {
            ask_to_end(&mut child)?;
            end(&mut child, name, false)
        }
        Left::Mount(path) => unmount(&path),
        Left::Directory(path) => {
            std::fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))
        }
    }
}

fn ask_to_end(child: &mut Child) -> anyhow::Result<()> {
    if child.try_wait().context("querying a process")?.is_none() {
        let pid = i32::try_from(child.id()).context("a process id")?;
        kill(Pid::from_raw(pid), Signal::SIGTERM).context("ending a process")?;
    }
    Ok(())
}

/// Waits for the end of a process, whose status must be 0 if `strict`; kills it after a minute.
fn end(child: &mut Child, name: &str, strict: bool) -> anyhow::Result<()> {
    let started = std::time::Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("waiting for a process")? {
            anyhow::ensure!(status.success() || !strict, "{name} ended with {status}");
            return Ok(());
        }
        if started.elapsed() > Duration::from_secs(60) {
            child.kill().context("killing a process")?;
            child.wait().context("waiting for a process")?;
            anyhow::bail!("{name} did not end within a minute and was killed");
        }
        // There is no event to wait for with a timeout.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Unmounts `path`, if something is mounted there.
pub(crate) fn unmount(path: &std::path::Path) -> anyhow::Result<()> {
    if !is_mounted(path)? {
        return Ok(());
    }
    let attempts: [&[&str]; 2] = [&["umount"], &["fusermount3", "-u"]];
    for attempt in attempts {
        let status = Command::new(attempt[0])
            .args(&attempt[1..])
            .arg(path)
            .stderr(Stdio::null())
            .status();
        if status.is_ok_and(|status| status.success()) {
            return Ok(());
        }
    }
    let status = Command::new("umount")
        .arg("-l")
        .arg(path)
        .status()
        .context("umount")?;
    anyhow::ensure!(status.success(), "cannot unmount {}", path.display());
    Ok(())
}

/// Whether something is mounted exactly at this path.
pub(crate) fn is_mounted(path: &std::path::Path) -> anyhow::Result<bool> {
    let mounts =
        std::fs::read_to_string("/proc/self/mounts").context("reading the list of mounts")?;
    Ok(mounts.lines().any(|line| {
        line.split(' ')
            .nth(1)
            .is_some_and(|at| std::path::Path::new(at) == path)
    }))
}
