//! Starts a worker and waits for it.
//!
//! A worker that crashes, loops or hangs while the HDF5 library reads a file is reported with the name of the file. SIGINT, SIGTERM and SIGHUP end
//! the worker; the status is then 128 and the number of the signal, as from a shell.

use std::io::{BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use nix::sys::signal::{SigSet, Signal};

use super::message::Message;
use super::{SKELETON, UNFINISHED};
use crate::args::Collate;
use crate::plain;

/// How long the description of one file may take: a filesystem that does not answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// How much processor time the library may use for a file without a message or a byte of output: a loop.
const LOOP: Duration = Duration::from_secs(15);
/// How often that is looked at.
const TICK: Duration = Duration::from_secs(1);

/// Signals that stop the command.
const STOP: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// What happens while a worker works.
enum Event {
    Message(Message),
    /// There are no more messages.
    End,
    Signal(Signal),
}

/// What a worker is to do.
pub(super) struct Worker<'a> {
    /// The command line.
    pub(super) args: &'a Collate,
    /// The directory for the output.
    pub(super) dir: &'a Path,
    /// The output is a container.
    pub(super) container: bool,
    /// It says what it does.
    pub(super) verbose: bool,
}

/// Joins `inputs`.
pub(super) fn run(
    worker: &Worker<'_>,
    inputs: &[PathBuf],
    quiet: bool,
) -> anyhow::Result<ExitCode> {
    if let Some(text) = &worker.args.chunks {
        super::worker::chunks(text)?;
    }
    let (events, happens) = channel();
    // Before there is another thread, so that all have it.
    watch_signals(events.clone())?;
    let mut child = worker.start()?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        bail!("the worker has no pipes");
    };
    hand_over(stdin, inputs);
    read(stdout, events);
    let mut work = Work::new(child.id(), worker.written());
    let mut result: Option<anyhow::Result<()>> = None;
    loop {
        match happens.recv_timeout(TICK) {
            Ok(Event::Message(message)) => match message {
                Message::Reading(path) => work.step(Some(path), true),
                Message::Copying(path) => work.step(Some(path), false),
                Message::Comparing | Message::Writing => work.step(None, false),
                Message::Note(text) if !quiet => eprintln!("slabfs: {}", plain(&text)),
                Message::Note(_) => {}
                Message::Said(text) => {
                    if let Err(error) = writeln!(std::io::stdout(), "{}", plain(&text)) {
                        end(&mut child)?;
                        return Err(error).context("writing to standard output");
                    }
                }
                Message::Failed(text) => result = Some(Err(anyhow!(text))),
                Message::Complete => result = Some(Ok(())),
            },
            Ok(Event::Signal(signal)) => {
                end(&mut child)?;
                return Ok(stopped(signal));
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = work.check() {
                    end(&mut child)?;
                    return Err(error);
                }
            }
            Ok(Event::End) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait().context("waiting for the worker")?;
    let signal = status
        .signal()
        .and_then(|signal| Signal::try_from(signal).ok());
    match result {
        Some(result) => result.map(|()| ExitCode::SUCCESS),
        // A terminal sends it to both processes, and the worker can be first.
        None if signal.is_some_and(|signal| STOP.contains(&signal)) => {
            Ok(stopped(signal.unwrap_or(Signal::SIGINT)))
        }
        None => Err(died(status, work.file)),
    }
}

/// What the worker does, to find out whether it goes on.
struct Work {
    pid: u32,
    output: PathBuf,
    /// The file that the library reads.
    file: Option<PathBuf>,
    /// It is only described.
    describing: bool,
    since: Instant,
    /// Processor time, and bytes of output, when there was progress last.
    last: (Duration, u64),
}

impl Work {
    fn new(pid: u32, output: PathBuf) -> Work {
        Work {
            pid,
            output,
            file: None,
            describing: false,
            since: Instant::now(),
            last: (Duration::ZERO, 0),
        }
    }

    fn step(&mut self, file: Option<PathBuf>, describing: bool) {
        (self.file, self.describing, self.since) = (file, describing, Instant::now());
        self.last = (self.used(), self.written());
    }

    /// Fails if the library does not come to an end with a file.
    fn check(&mut self) -> anyhow::Result<()> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        if self.describing && self.since.elapsed() > PATIENCE {
            let seconds = PATIENCE.as_secs();
            bail!(
                "{}: it cannot be described in {seconds} s; its filesystem does not answer",
                path.display()
            );
        }
        let (used, written) = (self.used(), self.written());
        if written != self.last.1 {
            self.last = (used, written);
        }
        if used.saturating_sub(self.last.0) > LOOP {
            bail!(
                "{}: the HDF5 library does not come to an end with it; the file is damaged",
                path.display()
            );
        }
        Ok(())
    }

    /// Processor time of the thread that calls the library; zero if the system does not say.
    fn used(&self) -> Duration {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.pid));
        let first = text
            .ok()
            .and_then(|text| text.split(' ').next()?.parse().ok());
        Duration::from_nanos(first.unwrap_or(0))
    }

    fn written(&self) -> u64 {
        self.output.metadata().map_or(0, |meta| meta.len())
    }
}

/// The end after a signal.
fn stopped(signal: Signal) -> ExitCode {
    eprintln!("slabfs: stopped by {signal}; no output was written");
    ExitCode::from(128 + signal as u8)
}

/// Makes events of the signals that end a command.
fn watch_signals(events: Sender<Event>) -> anyhow::Result<()> {
    let signals = SigSet::from_iter(STOP);
    signals.thread_block().context("blocking signals")?;
    std::thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

impl Worker<'_> {
    /// The file that the library writes.
    fn written(&self) -> PathBuf {
        let name = if self.container { SKELETON } else { UNFINISHED };
        self.dir.join(name)
    }

    fn start(&self) -> anyhow::Result<Child> {
        let args = self.args;
        let this = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(&this);
        command
            .args(["collate", "--worker"])
            .arg(self.dir)
            .arg("--output")
            .arg(&args.output);
        if let Some(level) = args.deflate {
            command.args(["--deflate", &level.to_string()]);
        }
        if let Some(shape) = &args.chunks {
            command.args(["--chunks", shape]);
        }
        if let Some(jobs) = args.jobs {
            command.args(["--jobs", &jobs.to_string()]);
        }
        let flags = [
            (args.shuffle, "--shuffle"),
            (args.no_shuffle, "--no-shuffle"),
            (args.dry_run, "--dry-run"),
            // The inputs are removed here; the worker refuses it where a tile is missing.
            (args.remove, "--remove"),
            (self.verbose, "--verbose"),
            (self.container, "--container"),
        ];
        command.args(
            flags
                .iter()
                .filter(|(given, _)| *given)
                .map(|(_, flag)| flag),
        );
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
            .spawn()
            .with_context(|| format!("cannot run {}", this.display()))
    }
}

/// Writes the names of the inputs. A worker that does not take them is dead, which is found otherwise.
fn hand_over(mut stdin: ChildStdin, inputs: &[PathBuf]) {
    let names: Vec<u8> = inputs
        .iter()
        .flat_map(|input| [input.as_os_str().as_bytes(), b"\0"])
        .flatten()
        .copied()
        .collect();
    std::thread::spawn(move || drop(stdin.write_all(&names)));
}

fn read(stdout: ChildStdout, events: Sender<Event>) {
    std::thread::spawn(move || {
        let mut from = BufReader::new(stdout);
        while let Some(message) = Message::receive(&mut from) {
            if events.send(Event::Message(message)).is_err() {
                return;
            }
        }
        // It fails if the other end has stopped already.
        let _ = events.send(Event::End);
    });
}

fn end(child: &mut Child) -> anyhow::Result<()> {
    child.kill().context("ending the worker")?;
    child.wait().context("waiting for the worker")?;
    Ok(())
}

/// The error of a worker that ended without a last message.
fn died(status: ExitStatus, reading: Option<PathBuf>) -> anyhow::Error {
    let how = match status.signal().map(Signal::try_from) {
        Some(Ok(signal)) => format!("was ended by {signal}"),
        _ => format!("ended with {status}"),
    };
    match reading {
        Some(path) => anyhow!(
            "{}: the process that read it {how}; the file is damaged in a way that the HDF5 library does not survive",
            path.display()
        ),
        None => anyhow!(
            "the process that joins the files {how}; one of them is damaged, or memory is short"
        ),
    }
}
