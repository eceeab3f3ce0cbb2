//! Mounting and unmounting of a client's objects.
//!
//! [`Mount::start`] mounts and starts the session; [`Running`] is the running mount. A session ends when the kernel
//! reports its end, after an unmount by any process. Then, on the session's own thread and before [`Running::wait`]
//! returns, the invalidation threads and the pools end, and handles that were never released are released, which
//! flushes them. Stopping the client afterwards is the owner's task.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::{Config, Session, SessionACL};
use parking_lot::{Condvar, Mutex};

use crate::client::Caches;
use crate::clients::Clients;

use super::connection::Connection;
use super::device::{self, How};
use super::error::MountError;
use super::filesystem::SlabFs;
use super::killed::Watch;
use super::mounts;
use super::options::MountOptions;
use super::page_writes::PageWrites;
use super::point;
use super::shared::Shared;

/// Read-ahead of mapped files: cold mappings read twice as fast as with the kernel's 128 KiB.
const READAHEAD_KIB: u32 = 4096;
/// More session threads than this only wake each other up.
const MOST_THREADS: usize = 16;

/// How long after an unmount the kernel takes to end the session, unless something else keeps the mount.
const SOON: Duration = Duration::from_millis(200);
/// How long after an unmount the kernel may take to end the session.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes mounts.
#[derive(Debug, Clone, Copy)]
pub struct Mount;

/// A mount that lasts until it is unmounted, by this process or another.
pub struct Running {
    point: PathBuf,
    device: Option<String>,
    page_writes: Arc<PageWrites>,
    progress: Arc<Progress>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The progress of a session.
#[derive(Debug, Clone)]
enum Stage {
    /// The kernel sends requests.
    Serving,
    /// The kernel sends no more requests; running ones are being finished.
    Ending,
    /// Everything has ended.
    Over(Result<(), Arc<io::Error>>),
}

struct Progress {
    stage: Mutex<Stage>,
    changed: Condvar,
}

impl Progress {
    fn reach(&self, stage: Stage) {
        *self.stage.lock() = stage;
        self.changed.notify_all();
    }
}

impl Mount {
    /// Mounts `client`'s objects at `point` and starts answering.
    ///
    /// # Errors
    /// Reports what is wrong with the mount point, the device or the permissions, and what to do about it.
    pub fn start(
        client: Arc<Clients>,
        point: &Path,
        options: &MountOptions,
    ) -> Result<Running, MountError> {
        let point = point::prepare(point)?;
        let shared = Arc::new_cyclic(|this| Shared {
            this: this.clone(),
            await_names: options.await_names,
            pages: options.pages,
            ..Shared::new(client, options.workers)
        });
        let device_fd = device::attach(&point, options)?;
        let session = Session::from_fd(
            SlabFs::new(shared.clone()),
            device_fd,
            acl(options),
            config(options),
        );
        let session = session.map_err(|error| undo(&point, error))?;
        shared.inval.connect(session.notifier());
        let watch = session
            .waiting()
            .map(|waiting| {
                let known = shared.unanswered.set(waiting.clone());
                debug_assert!(known.is_ok(), "a mount has one session");
                Watch::start(waiting, &shared)
            })
            .transpose()
            .map_err(|error| undo(&point, error))?;
        let caches: Arc<dyn Caches> = shared.clone();
        shared.client.set_caches(&Arc::downgrade(&caches));
        let device = point::mounted_at(&point).map(|mounted| mounted.device);
        if let Some(device) = &device {
            device::set_readahead(device, READAHEAD_KIB);
        }
        let progress = Arc::new(Progress {
            stage: Mutex::new(Stage::Serving),
            changed: Condvar::new(),
        });
        let (reporter, page_writes) = (progress.clone(), shared.page_writes.clone());
        let spawned = std::thread::Builder::new()
            .name("slabfs-session".to_string())
            .spawn(move || {
                let result = ended_in_order(session.run()).map_err(Arc::new);
                reporter.reach(Stage::Ending);
                drop(watch);
                end(&shared);
                reporter.reach(Stage::Over(result));
            });
        let thread = spawned.map_err(|error| undo(&point, error))?;
        tracing::info!(point = %point.display(), "mounted");
        Ok(Running {
            point,
            device,
            page_writes,
            progress,
            thread: Mutex::new(Some(thread)),
        })
    }
}

/// A forced unmount aborts the connection, and a thread that reads from it at that moment gets `ECONNABORTED` instead
/// of the error for an unmounted filesystem: that is a regular end too.
fn ended_in_order(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => {
            tracing::debug!("the kernel has aborted the connection");
            Ok(())
        }
        other => other,
    }
}

/// Detaches a mount whose start failed.
fn undo(point: &Path, error: io::Error) -> MountError {
    if let Err(error) = device::detach(point, How::Lazily) {
        tracing::warn!(%error, point = %point.display(), "a mount that failed is left behind");
    }
    MountError::Session {
        point: point.to_owned(),
        reason: Arc::new(error),
    }
}

fn acl(options: &MountOptions) -> SessionACL {
    if options.allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    }
}

fn config(options: &MountOptions) -> Config {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let mut config = Config::default();
    config.acl = acl(options);
    config.n_threads = Some(options.threads.unwrap_or(processors).clamp(2, MOST_THREADS));
    config.clone_fd = true;
    config.own_processors = true;
    config.track_requests = true;
    config
}

/// Finishes what the session has left. Continuations of invalidations go to the pool; jobs that the pool submits to
/// the invalidation threads after their end run on the pool's own thread.
fn end(shared: &Shared) {
    shared.inval.stop();
    shared.calls.stop();
    shared.openers.stop();
    shared.pool.stop();
    shared.waits.stop();
    shared.writebacks.stop();
    // Stopped pools run submitted jobs at once.
    drop(shared.handles.drain());
}

impl Running {
    /// The mount point.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Whether the session has ended.
    pub fn has_ended(&self) -> bool {
        matches!(*self.progress.stage.lock(), Stage::Over(_))
    }

    /// Waits until the mount is gone and its threads have ended.
    ///
    /// # Errors
    /// Where the session broke, as opposed to an unmount.
    pub fn wait(&self) -> Result<(), MountError> {
        let result = {
            let mut stage = self.progress.stage.lock();
            loop {
                if let Stage::Over(result) = &*stage {
                    break result.clone();
                }
                self.progress.changed.wait(&mut stage);
            }
        };
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the session's thread panicked");
        }
        result.map_err(|reason| MountError::Session {
            point: self.point.clone(),
            reason,
        })
    }

    /// Unmounts, and waits as [`Running::wait`] does. If programs still use the mount, their dirty mapped pages are
    /// written back as far as possible, and the mount is then detached by force: the programs get errors from then on.
    ///
    /// # Errors
    /// Where the system refuses, and those of [`Running::wait`].
    pub fn unmount(&self) -> Result<(), MountError> {
        let failed = |reason| MountError::Unmount {
            point: self.point.clone(),
            reason,
        };
        if self.serves() {
            self.detach().map_err(failed)?;
            self.wait_for_the_kernel().map_err(failed)?;
        }
        self.wait()
    }

    fn serves(&self) -> bool {
        matches!(*self.progress.stage.lock(), Stage::Serving)
    }

    fn wait_for_the_kernel(&self) -> io::Result<()> {
        if self.ends_within(SOON) {
            return Ok(());
        }
        self.end_elsewhere();
        if self.ends_within(PATIENCE) {
            return Ok(());
        }
        Err(io::Error::other(
            "the mount is still mounted elsewhere, or programs still use it",
        ))
    }

    fn ends_within(&self, limit: Duration) -> bool {
        let mut stage = self.progress.stage.lock();
        let serving = |stage: &mut Stage| matches!(stage, Stage::Serving);
        let waited = self
            .progress
            .changed
            .wait_while_for(&mut stage, serving, limit);
        !waited.timed_out()
    }

    /// Ends the mount where it is still mounted: a mount namespace, as a container has it, begins with copies of all
    /// mounts of that time, and an unmount leaves them in place. The kernel serves the filesystem until the last one is
    /// gone.
    fn end_elsewhere(&self) {
        let copy = self.device.as_deref().and_then(mounts::copy_elsewhere);
        let Some(copy) = copy else { return };
        tracing::warn!(process = copy.process, at = %copy.at.display(),
            "the mount is still mounted elsewhere; it is ended by force");
        self.write_back_or_warn(&copy.at, Some(PATIENCE));
        self.abort();
    }

    fn detach(&self) -> io::Result<()> {
        // Another process may have unmounted it, and mounted something else: only this mount is detached.
        let there = point::mounted_at(&self.point).map(|mounted| mounted.device);
        if there != self.device {
            self.end_elsewhere();
            self.abort();
            return Ok(());
        }
        match device::detach(&self.point, How::Unused) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
            other => return other,
        }
        tracing::warn!(point = %self.point.display(),
            "programs still use the mount; it is detached by force");
        self.write_back_or_warn(&self.point, None);
        device::detach(&self.point, How::Forced)?;
        self.abort();
        Ok(())
    }

    /// Aborts the connection if it has not ended yet; a forced unmount has done so where it was permitted.
    fn abort(&self) {
        if let Some(device) = &self.device
            && self.serves()
            && let Err(error) = Connection::of(device).and_then(|connection| connection.abort())
        {
            tracing::debug!(%error, device, "the connection cannot be aborted by this process");
        }
    }

    fn write_back_or_warn(&self, place: &Path, limit: Option<Duration>) {
        if let Err(error) = self.write_back(place, limit) {
            tracing::warn!(
                "data that programs changed through mappings and did not sync may be lost: {error}"
            );
        }
    }

    /// Makes the kernel write back dirty pages of mapped files, by a path of the mount. Since about Linux 6.16 `syncfs`
    /// only begins that on FUSE, so this waits for its end.
    ///
    /// A separate process calls `syncfs`. The kernel does not end a thread that waits for an answer of its own
    /// process's mount. A thread of this process would keep the device open when the process is killed or cut off, and
    /// everything that uses the mount would wait for ever.
    ///
    /// The path may lead to another filesystem in the mount namespace of another process, which may not answer: `limit` is
    /// the longest wait for it.
    fn write_back(&self, place: &Path, limit: Option<Duration>) -> io::Result<()> {
        let sync = Command::new("sync")
            .args(["-f", "--"])
            .arg(place)
            .stdin(Stdio::null())
            // Signals to the daemon's process group do not reach it.
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| io::Error::other(format!("cannot run sync: {error}")))?;
        let synced = match limit {
            None => sync.wait_with_output(),
            Some(limit) => output_within(sync, limit),
        }?;
        if !synced.status.success() {
            let message = String::from_utf8_lossy(&synced.stderr);
            return Err(io::Error::other(message.trim().to_owned()));
        }
        let Some(device) = &self.device else {
            return Err(io::Error::other("its device is not known"));
        };
        Connection::of(device)?.wait_for_pages(&self.page_writes)
    }
}

/// The output of a process, which is killed if it runs longer.
fn output_within(process: Child, limit: Duration) -> io::Result<Output> {
    let number = process.id();
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new()
        .name("slabfs-sync".to_string())
        .spawn(move || {
            // After the limit the receiver is gone.
            let _ = sender.send(process.wait_with_output());
        })?;
    receiver.recv_timeout(limit).unwrap_or_else(|_| {
        let process = nix::unistd::Pid::from_raw(number.cast_signed());
        nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL)?;
        Err(io::Error::other(format!(
            "sync did not end within {limit:?}"
        )))
    })
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("point", &self.point)
            .field("ended", &self.has_ended())
            .finish()
    }
}
