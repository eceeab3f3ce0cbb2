//! `--daemon`: runs the service in the background; the exit status of the parent reports whether it started.
//!
//! The parent starts the same command line again in a new session, with stderr on the log file and stdout on a
//! pipe. The child reports one `Outcome` as a JSON line on that pipe: when its mount or socket answers, or when
//! it failed. The parent prints it and exits accordingly. The child has no controlling terminal. (A plain
//! `fork` would have to precede every thread and could not report what failed.)

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::args::ServiceArgs;
use crate::created::Created;
use crate::logging::{self, LogFile};

/// Environment variable that is set in the child; its value is the log file.
const CHILD: &str = "SLABFS_DAEMON_LOG";

/// The message from the child to the waiting parent, sent once.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The service answers; the line to print.
    Ready(String),
    /// The child exits with this status and error.
    Failed {
        /// The exit status.
        status: u8,
        /// The error, as on stderr.
        text: String,
    },
}

/// Which of the two processes this is.
pub(crate) enum Side {
    /// The process that does the work, in the foreground or in the background.
    Worker,
    /// The parent, which has nothing left to do: the child has reported.
    Done,
}

/// Starts the background process if `args` ask for one, and waits until it reports.
///
/// `default_log` is the log file when no `--log-file` was given.
pub(crate) fn enter(args: &ServiceArgs, default_log: &Path) -> anyhow::Result<Side> {
    if is_child() {
        // Fails only for a process group leader, which a child just started is not.
        nix::unistd::setsid().context("cannot leave the terminal's session")?;
        return Ok(Side::Worker);
    }
    if !args.daemon {
        return Ok(Side::Worker);
    }
    let log = std::path::absolute(args.log_file.as_deref().unwrap_or(default_log))
        .context("cannot find the full path of the log file")?;
    start_child(&log)?;
    Ok(Side::Done)
}

/// The log file of this process, unless it logs to stderr only. The stderr of a child is its log file too.
pub(crate) fn log_file(args: &ServiceArgs) -> Option<LogFile> {
    let path = match std::env::var_os(CHILD) {
        Some(log) => Some(PathBuf::from(log)),
        None => args.log_file.clone(),
    };
    path.map(|path| LogFile {
        path,
        limit: args.log_size,
    })
}

/// Reports that the service is ready: to the parent, or on stdout.
pub(crate) fn announce(line: &str) {
    if is_child() {
        notify_parent(&Outcome::Ready(line.to_owned()));
    } else {
        // The reader of stdout may be gone; that is no reason to stop serving.
        let mut stdout = std::io::stdout();
        let _ = writeln!(stdout, "ready: {line}");
        let _ = stdout.flush();
    }
}

/// Reports `outcome` to the waiting parent, if there is one; only the first call has an effect.
pub(crate) fn notify_parent(outcome: &Outcome) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !is_child() || REPORTED.swap(true, Ordering::SeqCst) {
        return;
    }
    let mut stdout = std::io::stdout();
    let written = serde_json::to_string(outcome)
        .map_err(std::io::Error::other)
        .and_then(|line| writeln!(stdout, "{line}"))
        .and_then(|()| stdout.flush());
    if let Err(error) = written {
        tracing::warn!("the parent process is gone: {error}");
    }
    // The parent closes its end of the pipe now; later output must not fail with EPIPE.
    let silenced = OpenOptions::new()
        .write(true)
        .open("/dev/null")
        .and_then(|null| nix::unistd::dup2_stdout(&null).map_err(std::io::Error::from));
    if let Err(error) = silenced {
        tracing::warn!("stdout stays open: {error}");
    }
}

pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

fn start_child(log: &Path) -> anyhow::Result<()> {
    let parent = log.parent().unwrap_or(log);
    let created = Created::directory(parent, 0o777).with_context(|| {
        format!(
            "cannot create the log's directory {}; choose another log with --log-file",
            parent.display()
        )
    })?;
    let created = created.file(log);
    let stderr = logging::open(log)?;
    let program = std::env::current_exe().context("cannot find the slabfs binary itself")?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(CHILD, log)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .context("cannot start the background process")?;
    let stdout = child
        .stdout
        .take()
        .context("the background process has no pipe")?;
    let mut line = String::new();
    BufReader::new(stdout)
        .read_line(&mut line)
        .context("reading from the background process")?;
    match serde_json::from_str(&line) {
        Ok(Outcome::Ready(text)) => {
            created.keep();
            let (pid, log) = (child.id(), log.display());
            crate::output::print(&format!("ready: {text}\nprocess {pid}, log {log}\n"))
        }
        Ok(Outcome::Failed {
            status: crate::failure::USAGE,
            text,
        }) => Err(crate::failure::usage(text)),
        Ok(Outcome::Failed { text, .. }) => Err(anyhow::Error::msg(text)),
        Err(_) => {
            created.keep();
            let status = child.wait().context("waiting for the background process")?;
            Err(anyhow::anyhow!(
                "the background process ended before it was ready ({status}); its log is {}",
                log.display()
            ))
        }
    }
}
