//! Imports in a process of its own: libraries can crash on files that were damaged on purpose.
//!
//! The process that reads says on a pipe, which is its standard input, which file it is at. If it crashes, this one names
//! that file and removes what is incomplete.

use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM, SIGXCPU};
use signal_hook::iterator::Signals;

use super::{append, jobs, place};
use crate::args::Import;

/// The pipe to the process that watches, if there is one.
static WATCHER: Mutex<Option<std::fs::File>> = Mutex::new(None);

/// Ends this process with the one that watches.
pub(super) fn follow() -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))
        .context("cannot follow the process that watches")
}

/// Says which file is read from now on.
pub(super) fn say(file: &Path) {
    let Ok(mut watcher) = WATCHER.lock() else {
        return;
    };
    if watcher.is_none() {
        use std::os::fd::AsFd;
        let input = std::io::stdin();
        let pipe = input.as_fd().try_clone_to_owned();
        *watcher = pipe.ok().map(std::fs::File::from);
    }
    if let Some(pipe) = watcher.as_mut() {
        let mut line = file.as_os_str().as_bytes().to_vec();
        line.push(0);
        // There may be no reader: the message of a crash then has no name.
        let _ = pipe.write_all(&line);
    }
}

/// Starts the process that imports, and waits for its end.
pub(super) fn run(args: &Import) -> anyhow::Result<()> {
    // Before the process is started: none of its signals is missed.
    let mut signals = Signals::new([SIGCHLD, SIGINT, SIGTERM]).context("cannot take signals")?;
    let (mut from, to) = std::io::pipe().context("cannot make a pipe")?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut child = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .arg("--in-process")
        .stdin(Stdio::from(to))
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // The end of the process closes the pipe.
    let said = std::thread::spawn(move || {
        let mut said = Vec::new();
        let done = from.read_to_end(&mut said);
        done.map(|_| said)
    });
    let mut status = None;
    for signal in signals.forever() {
        // A terminal sends its signals to both; others send theirs to this one.
        if signal != SIGCHLD
            && let Some(id) = id
        {
            // It may have ended just now.
            let signal = if signal == SIGINT {
                Signal::INT
            } else {
                Signal::TERM
            };
            let _ = kill_process(id, signal);
        }
        status = child.try_wait()?;
        if status.is_some() {
            break;
        }
    }
    let status = match status {
        Some(status) => status,
        None => child.wait()?,
    };
    let said = said.join().ok().and_then(Result::ok).unwrap_or_default();
    let last = said.split(|&byte| byte == 0).rfind(|name| !name.is_empty());
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        // It has said why.
        (Some(code), _) => std::process::exit(code),
        (None, signal) => {
            clean(args);
            let file = last.map_or_else(String::new, |name| {
                PathBuf::from(std::ffi::OsStr::from_bytes(name))
                    .display()
                    .to_string()
            });
            let signal = signal.unwrap_or(0);
            if signal == SIGXCPU {
                bail!(
                    "{file}: the library that reads it does not come to an end: the file is damaged; nothing incomplete is left"
                );
            }
            match Signal::from_named_raw(signal) {
                Some(Signal::KILL) => bail!(
                    "{file}: importing it was killed, by a signal or because there was no memory; nothing incomplete is left"
                ),
                _ => bail!(
                    "{file}: reading it ended by signal {signal}: the file is damaged; nothing incomplete is left"
                ),
            }
        }
    }
}

/// Removes the directories of an import that crashed.
fn clean(args: &Import) {
    let dest_is_made = args.append && args.dest.symlink_metadata().is_err();
    if args.append && !dest_is_made {
        if let Err(error) = append::recover(&args.dest) {
            eprintln!(
                "slabfs: {} may have incomplete records: {error:#}",
                args.dest.display()
            );
        }
        return;
    }
    let jobs = jobs::of(args).unwrap_or_default().into_iter();
    let mut dests: Vec<PathBuf> = jobs.map(|job| job.dest).collect();
    if dest_is_made {
        dests.push(args.dest.clone());
    }
    for dest in dests {
        let hidden = place::hidden(&dest);
        if hidden.symlink_metadata().is_ok()
            && let Err(error) = std::fs::remove_dir_all(&hidden)
        {
            eprintln!("slabfs: cannot remove {}: {error}", hidden.display());
        }
    }
}
