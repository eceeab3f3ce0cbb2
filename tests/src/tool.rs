//! Runs commands to their end, and checks their output.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::starter::Process;

/// A command that runs longer than this hangs; in a soak it may run for longer.
const LIMIT: Duration = Duration::from_secs(150);
/// How long a command may take to end after a signal.
const GRACE: Duration = Duration::from_secs(20);

/// The result of a command.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The command line, for messages.
    pub line: String,
    /// The exit status; 128 and the signal's number if a signal ended it.
    pub status: i32,
    /// Its stdout.
    pub stdout: Vec<u8>,
    /// Its stderr, as text.
    pub stderr: String,
}

impl Outcome {
    /// Returns itself if the command succeeded.
    ///
    /// # Panics If it did not.
    #[track_caller]
    pub fn ok(self) -> Outcome {
        assert!(self.status == 0, "{}", self.report());
        self
    }

    /// Returns itself if the command failed with this status and each of `words` is on stderr.
    ///
    /// # Panics If not.
    #[track_caller]
    pub fn fails(self, status: i32, words: &[&str]) -> Outcome {
        assert!(
            self.status == status,
            "expected status {status}: {}",
            self.report()
        );
        for word in words {
            assert!(
                self.stderr.contains(word),
                "{word:?} is missing: {}",
                self.report()
            );
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.report());
        self
    }

    /// Stdout as text.
    ///
    /// # Panics If it is not text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text on stdout")
    }

    /// Stdout as JSON.
    ///
    /// # Panics If it is not JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.report()))
    }

    /// All of the result.
    pub fn report(&self) -> String {
        format!(
            "`{}` ended with {}\nstdout: {}\nstderr: {}",
            self.line,
            self.status,
            String::from_utf8_lossy(&self.stdout),
            self.stderr
        )
    }
}

/// Runs a prepared command with nothing on stdin to its end.
///
/// # Panics If it cannot be started, or does not end.
#[track_caller]
pub fn run(command: &mut Command) -> Outcome {
    let limit = LIMIT + crate::soak::time().unwrap_or_default();
    run_within(command, limit).unwrap_or_else(|| panic!("`{command:?}` does not end"))
}

/// The same for a command that may run for longer, or that may hang: `None` if it was ended at the limit.
///
/// # Panics If it cannot be started.
#[track_caller]
pub fn run_within(command: &mut Command, limit: Duration) -> Option<Outcome> {
    let line = format!("{command:?}");
    let output = || tempfile::NamedTempFile::new().expect("a temporary file");
    let (stdout, stderr) = (output(), output());
    let process = Process::start(command, stdout.path(), stderr.path());
    let Some(status) = process.wait(limit) else {
        // It may end its own child processes on this signal.
        process.signal(nix::sys::signal::Signal::SIGTERM);
        if process.wait(GRACE).is_none() {
            process.signal(nix::sys::signal::Signal::SIGKILL);
        }
        return None;
    };
    let said = |file: tempfile::NamedTempFile| std::fs::read(file.path()).expect("what it said");
    Some(Outcome {
        line,
        status,
        stdout: said(stdout),
        stderr: String::from_utf8_lossy(&said(stderr)).into_owned(),
    })
}

/// Runs a program with arguments.
#[track_caller]
pub fn program<S: AsRef<OsStr>>(name: &str, args: impl IntoIterator<Item = S>) -> Outcome {
    run(Command::new(name).args(args))
}

/// Runs a shell command line in a directory; it fails if any part of it fails.
#[track_caller]
pub fn shell(dir: &Path, line: &str) -> Outcome {
    run(Command::new("sh").args(["-e", "-c", line]).current_dir(dir))
}

/// Runs a command of `slabfs`.
#[track_caller]
pub fn slabfs<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Outcome {
    run(Command::new(crate::binary::path())
        .args(args)
        .env_remove("RUST_LOG"))
}

/// Creates an array: `create(path, "16,16", "f4", &["--layout", "canonical"])`.
#[track_caller]
pub fn create(path: &Path, dims: &str, dtype: &str, more: &[&str]) {
    let mut args: Vec<&OsStr> = vec!["create".as_ref(), path.as_os_str()];
    args.extend(
        ["--dims", dims, "--dtype", dtype]
            .into_iter()
            .map(AsRef::<OsStr>::as_ref),
    );
    args.extend(more.iter().map(AsRef::<OsStr>::as_ref));
    slabfs(args).ok();
}

/// `slabfs info --json`.
#[track_caller]
pub fn info(path: &Path) -> serde_json::Value {
    slabfs([OsStr::new("info"), OsStr::new("--json"), path.as_os_str()])
        .ok()
        .json()
}

/// `slabfs layout --json`.
#[track_caller]
pub fn layout(path: &Path) -> serde_json::Value {
    slabfs([OsStr::new("layout"), OsStr::new("--json"), path.as_os_str()])
        .ok()
        .json()
}

/// `slabfs stats --json`.
#[track_caller]
pub fn stats(mount: &Path) -> serde_json::Value {
    slabfs([OsStr::new("stats"), OsStr::new("--json"), mount.as_os_str()])
        .ok()
        .json()
}

/// `slabfs servers --json`.
#[track_caller]
pub fn servers(mount: &Path) -> Vec<serde_json::Value> {
    let said = slabfs([
        OsStr::new("servers"),
        OsStr::new("--json"),
        mount.as_os_str(),
    ]);
    said.ok().json().as_array().expect("servers").clone()
}

/// Sends a request to a mount through its `.slabfs/call`.
///
/// # Errors The mount's error, or that it does not answer.
pub fn call(mount: &Path, request: &serde_json::Value) -> std::io::Result<serde_json::Value> {
    use std::os::unix::fs::FileExt;
    let mut options = std::fs::OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .open(mount.join(".slabfs/call"))?;
    file.write_all_at(request.to_string().as_bytes(), 0)?;
    let mut reply = vec![0; 8 << 20];
    let len = file.read_at(&mut reply, 0)?;
    let reply: serde_json::Value = serde_json::from_slice(&reply[..len])?;
    match (reply.get("ok"), reply["errno"].as_i64()) {
        (Some(value), _) => Ok(value.clone()),
        (None, Some(errno)) => {
            println!("{request} is answered with {reply}");
            Err(std::io::Error::from_raw_os_error(errno as i32))
        }
        (None, None) => Err(std::io::Error::other(reply.to_string())),
    }
}
