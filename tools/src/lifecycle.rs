//! The lifecycle of a service process: start, report ready, wait, stop.
//!
//! SIGINT, SIGTERM and SIGHUP are caught from the first moment. A signal during the start takes effect when the
//! start is complete (or after a few seconds, if the start still waits for a server). The first signal stops
//! the service cleanly: unmount, flush, sync, servers, sockets. A second one cuts off what has not stopped
//! within a few seconds. tokio only selects among these events; the work runs on blocking threads.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinHandle, JoinSet};

use crate::args::ServiceArgs;
use crate::created::Created;
use crate::daemon::{self, Side};
use crate::logging::{self, Level};
use crate::pidfile::{self, PidFile};

/// How long a start may continue after a stop was requested.
const START_GRACE: Duration = Duration::from_secs(3);
/// How long a stop may continue after a second signal.
const HURRY_GRACE: Duration = Duration::from_secs(3);
/// The error of a start that a signal ended.
const STOPPED_EARLY: &str = "stopped while starting up";

/// Blocks until the service has to end by itself, as a mount does when it is unmounted, and returns why. An error is
/// that of the process.
pub(crate) type OwnEnd = Box<dyn FnOnce() -> anyhow::Result<&'static str> + Send>;

/// A service that was started and runs until it is stopped.
pub(crate) trait Live: Send {
    /// The text after `ready: `: what can be used now.
    fn ready_line(&self) -> String;
    /// What ends the service without a signal.
    fn own_ends(&self) -> Vec<OwnEnd> {
        Vec::new()
    }
    /// Stops everything cleanly; nothing is lost.
    fn stop(self: Box<Self>) -> anyhow::Result<()>;
}

/// The stop request, and what to remove if the process is cut off.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    asked: AtomicBool,
    covered: Mutex<Covered>,
}

#[derive(Debug, Default)]
struct Covered {
    mounts: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl Shutdown {
    /// Fails if a stop was requested; a start calls it between its steps.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.asked.load(Ordering::SeqCst), STOPPED_EARLY);
        Ok(())
    }

    /// Registers a mount point to detach if the process is cut off.
    pub(crate) fn covers_mount(&self, path: PathBuf) {
        self.covered().mounts.push(path);
    }

    /// Registers a socket or pid file to remove if the process is cut off.
    pub(crate) fn covers_file(&self, path: PathBuf) {
        self.covered().files.push(path);
    }

    fn covered(&self) -> MutexGuard<'_, Covered> {
        self.covered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Detaches and removes everything registered.
    fn clear_away(&self) {
        let Covered { mounts, files } = std::mem::take(&mut *self.covered());
        for path in mounts {
            if let Err(error) = crate::mountpoint::detach(&path) {
                tracing::debug!("{} is not mounted any more: {error:#}", path.display());
            }
        }
        for path in files {
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::debug!("{}: {error}", path.display());
            }
        }
    }
}

/// Where a service puts its log and pid file.
#[derive(Debug)]
pub(crate) struct Place {
    /// The log of a background process that was started without `--log-file`.
    pub(crate) log: PathBuf,
    /// The directory that this process owns while it runs, and in which it writes its pid file.
    pub(crate) data: Option<PathBuf>,
}

impl Place {
    /// For a mount at `dir`: the log is next to it.
    pub(crate) fn of_mount(dir: &Path) -> Place {
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let mut log = dir.into_os_string();
        log.push(".log");
        Place {
            log: PathBuf::from(log),
            data: None,
        }
    }

    /// The same for a service that owns `dir`.
    pub(crate) fn of_data(dir: &Path) -> Place {
        Place {
            data: Some(dir.to_owned()),
            ..Place::of_mount(dir)
        }
    }
}

/// Runs a service from its flags to its end; in the background if requested.
pub(crate) fn run<S>(args: &ServiceArgs, level: Level, place: Place, start: S) -> anyhow::Result<()>
where
    S: FnOnce(&Shutdown) -> anyhow::Result<Box<dyn Live>> + Send + 'static,
{
    if let Side::Done = daemon::enter(args, &place.log)? {
        return Ok(());
    }
    let log = daemon::log_file(args);
    // The log of a background process belongs to its parent, which removes it after a refusal.
    let created = match &log {
        Some(log) if !daemon::is_child() => Created::default().file(&log.path),
        _ => Created::default(),
    };
    logging::start(level, log.as_ref())?;
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the signal loop")?;
    let outcome = runtime.block_on(supervise(place.data, created, start));
    // A blocking thread may still wait for the mount's end.
    runtime.shutdown_background();
    outcome
}

/// With fewer files a data server can have only few chunks open and few connections.
const ENOUGH_FILES: u64 = 4096;

/// Raises the limit of open files to the hard limit: a data server has many chunks open.
fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        tracing::debug!("the limit of open files stays as it is: {error}");
    }
    if let Ok((files, _)) = getrlimit(Resource::RLIMIT_NOFILE)
        && files < ENOUGH_FILES
    {
        tracing::warn!(
            "this process may open {files} files only, and so serves few connections and chunks at a time; \
             raise the hard limit (`ulimit -Hn 65536`, systemd: LimitNOFILE=65536)"
        );
    }
}

async fn supervise<S>(data: Option<PathBuf>, created: Created, start: S) -> anyhow::Result<()>
where
    S: FnOnce(&Shutdown) -> anyhow::Result<Box<dyn Live>> + Send + 'static,
{
    let mut signals = Signals::new()?;
    let shutdown = Arc::new(Shutdown::default());
    let starting = {
        let shutdown = Arc::clone(&shutdown);
        tokio::task::spawn_blocking(move || start(&shutdown))
    };
    let live = started(starting, &mut signals, &shutdown).await?;
    created.keep();
    let Some(live) = live else {
        return Ok(());
    };
    // The directory is certainly ours only now.
    let pid_file = data.and_then(|data| write_pid(&data, &shutdown));
    daemon::announce(&live.ready_line());
    let mut own_ends = JoinSet::new();
    for end in live.own_ends() {
        own_ends.spawn_blocking(end);
    }
    let why = tokio::select! {
        name = signals.next() => Ok(name),
        Some(end) = own_ends.join_next() => end.context("waiting for the end panicked").and_then(|end| end),
    };
    let shown = why.as_ref().map_or("it has failed", |why| *why);
    tracing::info!("{shown}: stopping");
    let outcome = stopped(live, &mut signals, &shutdown).await;
    drop(pid_file);
    match (why, outcome) {
        (Ok(_), outcome) => outcome,
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(other)) => {
            tracing::warn!("it did not stop well: {other:#}");
            Err(error)
        }
    }
}

/// Writes the pid file. A full disk is no reason not to serve, so an error is only logged.
fn write_pid(data: &Path, shutdown: &Shutdown) -> Option<PidFile> {
    match PidFile::write(data) {
        Ok(file) => {
            shutdown.covers_file(pidfile::path_in(data));
            Some(file)
        }
        Err(error) => {
            let path = pidfile::path_in(data);
            tracing::warn!(
                "cannot write {} ({error}): `slabfs stop` will not find this process, stop it with `kill {}`",
                path.display(),
                std::process::id()
            );
            None
        }
    }
}

/// Returns the started service; `None` if a signal came first and everything is stopped again.
async fn started(
    mut starting: JoinHandle<anyhow::Result<Box<dyn Live>>>,
    signals: &mut Signals,
    shutdown: &Shutdown,
) -> anyhow::Result<Option<Box<dyn Live>>> {
    let name = tokio::select! {
        result = &mut starting => return result.context("starting up panicked")?.map(Some),
        name = signals.next() => name,
    };
    tracing::info!("{name} while starting up: stopping");
    shutdown.asked.store(true, Ordering::SeqCst);
    tokio::select! {
        result = &mut starting => match result.context("starting up panicked")? {
            Ok(live) => stopped(live, signals, shutdown).await?,
            Err(error) => tracing::info!("{error:#}"),
        },
        _ = signals.next() => cut_off(shutdown, 0),
        () = tokio::time::sleep(START_GRACE) => cut_off(shutdown, 0),
    }
    daemon::notify_parent(&daemon::Outcome::Failed {
        status: 1,
        text: STOPPED_EARLY.to_owned(),
    });
    Ok(None)
}

async fn stopped(
    live: Box<dyn Live>,
    signals: &mut Signals,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let mut stopping = tokio::task::spawn_blocking(move || live.stop());
    tokio::select! {
        result = &mut stopping => return finished(result),
        name = signals.next() => tracing::warn!("{name} again: hurrying"),
    }
    tokio::select! {
        result = &mut stopping => finished(result),
        () = tokio::time::sleep(HURRY_GRACE) => {
            tracing::error!("cut off before everything was flushed; data not yet synced may be lost");
            cut_off(shutdown, 1)
        }
    }
}

fn finished(result: Result<anyhow::Result<()>, tokio::task::JoinError>) -> anyhow::Result<()> {
    result.context("stopping panicked")??;
    tracing::info!("stopped");
    Ok(())
}

/// Ends the process although a thread of it still waits for something.
fn cut_off(shutdown: &Shutdown, status: i32) -> ! {
    shutdown.clear_away();
    daemon::notify_parent(&daemon::Outcome::Failed {
        status: 1,
        text: STOPPED_EARLY.to_owned(),
    });
    std::process::exit(status)
}

/// The signals that request a stop.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal was closed; `None` under `nohup`.
    hangup: Option<Signal>,
}

impl Signals {
    fn new() -> anyhow::Result<Signals> {
        let hangup = if ignores_hangup() {
            None
        } else {
            Some(signal(SignalKind::hangup()).context("cannot catch SIGHUP")?)
        };
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt()).context("cannot catch SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("cannot catch SIGTERM")?,
            hangup,
        })
    }

    /// Waits for the next of these signals and returns its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = hung_up(self.hangup.as_mut()) => "SIGHUP",
        }
    }
}

async fn hung_up(signal: Option<&mut Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether the parent made this process ignore SIGHUP, as `nohup` does.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Bit 0 is signal 1, which is SIGHUP.
    mask.is_some_and(|mask| mask & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_next_to_the_directory() {
        let place = Place::of_data(Path::new("/srv/md"));
        assert_eq!(place.log, Path::new("/srv/md.log"));
        assert!(Place::of_mount(Path::new("md")).log.is_absolute());
    }
}
