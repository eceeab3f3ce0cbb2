//! Commands that run and end, and what they said.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::starter::Process;

/// A command that runs longer than this hangs; in a soak it may go on for longer.
const LIMIT: Duration = Duration::from_secs(150);
/// What a command gets that was told to end.
const GRACE: Duration = Duration::from_secs(20);

/// How a command ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The command line, for messages.
    pub line: String,
    /// The exit status; 128 and the signal's number when one ended it.
    pub status: i32,
    /// What it wrote to stdout.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr, as text.
    pub stderr: String,
}

impl Outcome {
    /// Itself, when the command succeeded.
    ///
    /// # Panics
    /// When it did not.
    #[track_caller]
    pub fn ok(self) -> Outcome {
        assert!(self.status == 0, "{}", self.report());
        self
    }

    /// Itself, when the command failed with this status and said each of `words` on stderr.
    ///
    /// # Panics
    /// When it did not.
    #[track_caller]
    pub fn fails(self, status: i32, words: &[&str]) -> Outcome {
        assert!(
            self.status == status,
            "status {status} was to come: {}",
            self.report()
        );
        for word in words {
            assert!(
                self.stderr.contains(word),
                "{word:?} is not said: {}",
                self.report()
            );
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.report());
        self
    }

    /// Stdout as text.
    ///
    /// # Panics
    /// When it is none.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text on stdout")
    }

    /// Stdout as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.report()))
    }

    /// Everything about it.
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
/// # Panics
/// When it cannot be started, or does not end.
#[track_caller]
pub fn run(command: &mut Command) -> Outcome {
    let limit = LIMIT + crate::soak::time().unwrap_or_default();
    run_within(command, limit).unwrap_or_else(|| panic!("`{command:?}` does not end"))
}

/// The same for a command that may go on for longer, or that may hang: `None` when it was ended at the limit.
///
/// # Panics
/// When it cannot be started.
#[track_caller]
pub fn run_within(command: &mut Command, limit: Duration) -> Option<Outcome> {
    let line = format!("{command:?}");
    let output = || tempfile::NamedTempFile::new().expect("a temporary file");
    let (stdout, stderr) = (output(), output());
    let process = Process::start(command, stdout.path(), stderr.path());
    let Some(status) = process.wait(limit) else {
        // What it started it may end itself, when it is told to.
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

/// Runs a line of shell in a directory; every failing part of it fails it.
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

/// Asks a mount through its `.slabfs/call`.
///
/// # Errors
/// What the mount answered, or that it does not.
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
