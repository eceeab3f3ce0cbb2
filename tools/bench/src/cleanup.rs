//! Starts processes, and cleans up when the benchmark ends, for whatever reason: processes by their id, mounts,
//! directories.
//!
//! Everything that is started is recorded here first. The list is processed backwards at a normal end, after an
//! error, and by a thread that waits for SIGINT and SIGTERM.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;

/// An item to clean up.
enum Left {
    /// A process with its name. The exit status of the project's own programs must be 0.
    Process(Child, String, bool),
    Mount(PathBuf),
    Directory(PathBuf),
}

static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());
/// Held during the cleanup: a second caller waits, and the process does not end before.
static AT_WORK: Mutex<()> = Mutex::new(());

/// A command with its arguments.
pub(crate) fn command(program: impl AsRef<OsStr>, args: &[&dyn AsRef<OsStr>]) -> Command {
    let mut command = Command::new(program);
    command.args(args.iter().map(|arg| arg.as_ref()));
    command
}

/// Runs a command that must succeed; returns what it prints.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    prepare(command.stdin(Stdio::null()));
    let out = command
        .output()
        .with_context(|| format!("running {name}; tools/setup --bench installs it"))?;
    let (said, errors) = (out.stdout, String::from_utf8_lossy(&out.stderr));
    ensure!(
        out.status.success(),
        "{name} failed ({}): {}",
        out.status,
        last_lines(&errors)
    );
    String::from_utf8(said).with_context(|| format!("{name} prints no text"))
}

/// The last lines of what a program says: enough to see what is wrong.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

/// Starts one of the project's programs and waits until it prints `ready:`; returns its id.
pub(crate) fn spawn(mut command: Command, name: &str) -> anyhow::Result<u32> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    prepare(&mut command);
    let mut child = command
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    let stdout = child.stdout.take().context("a process without stdout")?;
    let pid = record(child, name, true);
    let mut line = String::new();
    BufReader::new(stdout)
        .read_line(&mut line)
        .with_context(|| format!("waiting for {name}"))?;
    ensure!(
        line.starts_with("ready:"),
        "{name} did not start; its message is above"
    );
    Ok(pid)
}

/// Starts a program of another project; returns its id.
pub(crate) fn foreign(command: &mut Command, name: &str) -> anyhow::Result<u32> {
    prepare(command.stdin(Stdio::null()));
    let child = command.spawn().with_context(|| {
        format!("starting {name}; install it (tools/setup --bench) or omit it with --systems")
    })?;
    Ok(record(child, name, false))
}

fn record(child: Child, name: &str, strict: bool) -> u32 {
    let pid = child.id();
    LEFT.lock()
        .push(Left::Process(child, name.to_owned(), strict));
    pid
}

/// Ends a recorded process by `signal` now, and waits for it.
pub(crate) fn end_now(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let found = {
        let mut left = LEFT.lock();
        let at = left
            .iter()
            .position(|left| matches!(left, Left::Process(child, _, _) if child.id() == pid));
        at.map(|at| left.remove(at))
    };
    let Some(Left::Process(child, name, strict)) = found else {
        anyhow::bail!("process {pid} was not started by this program");
    };
    end(child, &name, strict && signal != Signal::SIGKILL, signal)
}

/// Whether a recorded process has ended by itself.
pub(crate) fn has_ended(pid: u32) -> anyhow::Result<bool> {
    for left in LEFT.lock().iter_mut() {
        if let Left::Process(child, _, _) = left
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

/// A new directory of this process in `parent`, by default in memory, which is removed at the end.
pub(crate) fn new_directory(parent: Option<&Path>, suffix: &str) -> anyhow::Result<PathBuf> {
    let parent = parent.unwrap_or(Path::new("/dev/shm"));
    let dir = parent.join(format!("slabfs-bench-{}{suffix}", std::process::id()));
    std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    LEFT.lock().push(Left::Directory(dir.clone()));
    dir.canonicalize()
        .with_context(|| format!("finding {}", dir.display()))
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
fn prepare(command: &mut Command) {
    command.process_group(0);
    // SAFETY: sigprocmask is async-signal-safe, and nothing else runs between fork and exec.
    unsafe {
        command.pre_exec(|| SigSet::all().thread_unblock().map_err(std::io::Error::from));
    }
}

fn take_away(left: Left) -> anyhow::Result<()> {
    match left {
        Left::Process(child, name, strict) => end(child, &name, strict, Signal::SIGTERM),
        Left::Mount(path) => unmount(&path),
        Left::Directory(path) => {
            std::fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))
        }
    }
}

/// Ends a process by `signal`, and waits for it; its status must be 0 if `strict`. Kills it after a minute.
fn end(mut child: Child, name: &str, strict: bool, signal: Signal) -> anyhow::Result<()> {
    if child.try_wait().context("querying a process")?.is_none() {
        let pid = i32::try_from(child.id()).context("a process id")?;
        kill(Pid::from_raw(pid), signal).context("ending a process")?;
    }
    let started = std::time::Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("waiting for a process")? {
            ensure!(status.success() || !strict, "{name} ended with {status}");
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
pub(crate) fn unmount(path: &Path) -> anyhow::Result<()> {
    for attempt in [["umount", "--"], ["fusermount3", "-u"], ["umount", "-l"]] {
        if !is_mounted(path)? {
            return Ok(());
        }
        // If it fails, the next attempt may succeed.
        drop(output(&mut command(attempt[0], &[&attempt[1], &path])));
    }
    ensure!(!is_mounted(path)?, "cannot unmount {}", path.display());
    Ok(())
}

/// Whether something is mounted exactly at this path.
pub(crate) fn is_mounted(path: &Path) -> anyhow::Result<bool> {
    let mounts =
        std::fs::read_to_string("/proc/self/mounts").context("reading the list of mounts")?;
    Ok(mounts.lines().any(|line| {
        line.split(' ')
            .nth(1)
            .is_some_and(|at| Path::new(at) == path)
    }))
}
