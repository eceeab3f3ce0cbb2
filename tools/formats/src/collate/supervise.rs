//! Starts a worker and waits for it.
//!
//! A worker that crashes or hangs while it describes a file is reported with the name of the file. SIGINT, SIGTERM and SIGHUP end
//! the worker; the status is then 128 and the number of the signal, as from a shell.

use std::io::{BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use nix::sys::signal::{SigSet, Signal};

use super::message::Message;
use crate::args::Collate;
use crate::plain;

/// How long the description of one file may take.
const PATIENCE: Duration = Duration::from_secs(120);

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
    let mut reading: Option<PathBuf> = None;
    let mut result: Option<anyhow::Result<()>> = None;
    loop {
        let event = match reading {
            Some(_) => happens.recv_timeout(PATIENCE),
            None => happens.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match event {
            Ok(Event::Message(Message::Reading(path))) => reading = Some(path),
            Ok(Event::Message(Message::Comparing | Message::Writing)) => reading = None,
            Ok(Event::Message(Message::Note(text))) if !quiet => {
                eprintln!("slabfs: {}", plain(&text))
            }
            Ok(Event::Message(Message::Said(text))) => println!("{}", plain(&text)),
            Ok(Event::Message(Message::Failed(text))) => result = Some(Err(anyhow!(text))),
            Ok(Event::Message(Message::Complete)) => result = Some(Ok(())),
            Ok(Event::Message(Message::Note(_))) => {}
            Ok(Event::Signal(signal)) => {
                end(&mut child)?;
                eprintln!("slabfs: stopped by {signal}; no output was written");
                return Ok(ExitCode::from(128 + signal as u8));
            }
            Err(RecvTimeoutError::Timeout) => {
                end(&mut child)?;
                let path = reading.unwrap_or_default();
                bail!(
                    "{}: reading its description took more than {} s; it is damaged, or its filesystem does not answer",
                    path.display(),
                    PATIENCE.as_secs()
                );
            }
            Ok(Event::End) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait().context("waiting for the worker")?;
    match result {
        Some(result) => result.map(|()| ExitCode::SUCCESS),
        None => Err(died(status, reading)),
    }
}

/// Makes events of the signals that end a command.
fn watch_signals(events: Sender<Event>) -> anyhow::Result<()> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
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
            "{}: the process that read its description {how}; the file is damaged in a way that the HDF5 library does not survive",
            path.display()
        ),
        None => anyhow!(
            "the process that joins the files {how}; one of them is damaged, or memory is short"
        ),
    }
}
