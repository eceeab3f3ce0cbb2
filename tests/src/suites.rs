//! Test suites of others for filesystems: running them, and reading what they said.
//!
//! | suite | what it does |
//! |---|---|
//! | [`pjdfstest`] | one system call at a time: results, errors, attributes, times |
//! | [`stress`] | `stress-ng`: many system calls at once, each stressor another kind |
//! | [`fio`] | writes patterns in the ways of one I/O engine and reads them again |
//! | [`dbench`] | what a file server does for its clients, recorded |
//!
//! What a suite calls success is not taken for it: each must have said that it did something.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::{Area, Outcome, inputs, tool};

/// What a suite said of its tests, by their names.
#[derive(Debug, Default, Clone)]
pub struct Verdicts {
    /// These passed.
    pub passed: BTreeSet<String>,
    /// These were not run, for this reason.
    pub skipped: BTreeMap<String, String>,
    /// These failed, with this message.
    pub failed: BTreeMap<String, String>,
}

impl Verdicts {
    /// How many tests there were.
    pub fn count(&self) -> usize {
        self.passed.len() + self.skipped.len() + self.failed.len()
    }

    /// In one line.
    pub fn summary(&self) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed.len(),
            self.failed.len(),
            self.skipped.len()
        )
    }

    /// Takes in those of another run, whose word counts where both have one.
    fn merge(&mut self, other: Verdicts) {
        let names = other.passed.iter();
        let names = names.chain(other.skipped.keys()).chain(other.failed.keys());
        for name in names {
            self.passed.remove(name);
            self.skipped.remove(name);
            self.failed.remove(name);
        }
        self.passed.extend(other.passed);
        self.skipped.extend(other.skipped);
        self.failed.extend(other.failed);
    }
}

/// Runs all of `pjdfstest` on the filesystem mounted at `mnt`, with two users of every Debian. The tests of
/// a read-only filesystem mount it anew, which what is still open elsewhere forbids: they have a run of
/// their own.
///
/// # Panics
/// When it does not run, or says something else than it says of tests.
#[track_caller]
pub fn pjdfstest(area: &Area, mnt: &Path) -> Verdicts {
    let mut all = pjdfstest_run(area, mnt, false);
    all.merge(pjdfstest_run(area, mnt, true));
    all
}

#[track_caller]
fn pjdfstest_run(area: &Area, mnt: &Path, read_only: bool) -> Verdicts {
    let config = format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
         [settings]\nnaptime = 0.02\nallow_remount = {read_only}\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n"
    );
    let config = area.write("pjdfstest.toml", config);
    let dir = mnt.join(dir_name(mnt));
    std::fs::create_dir_all(&dir).expect("a directory");
    let mut command = Command::new(inputs::pjdfstest());
    command.arg("-c").arg(config).arg("-p").arg(&dir);
    // For what cannot be done from one filesystem to another.
    command.arg("-s").arg(area.mkdir("other"));
    if read_only {
        command.arg("erofs").env("PATH", path_with_mount(area));
    }
    command.env("RUST_BACKTRACE", "0");
    let said = tool::run(&mut command);
    let verdicts = read_pjdfstest(said.text());
    assert!(
        said.text().contains(&format!("{} total", verdicts.count())),
        "it counts otherwise: {}",
        said.report()
    );
    assert!(
        (said.status == 0) == verdicts.failed.is_empty(),
        "{}",
        said.report()
    );
    verdicts
}

/// A name for the directory the suite works in. Of paths of some lengths the suite cannot make the longest
/// path there may be: it fills them up with names of 126 bytes, and fails when nothing is left over.
fn dir_name(mnt: &Path) -> String {
    let temporary = "/.tmpXXXXXX".len() * 2;
    let left = |name: usize| 4095 - (mnt.as_os_str().len() + 1 + name + temporary);
    let len = (1..).find(|&name| left(name) % 127 > 1);
    "s".repeat(len.unwrap_or(1))
}

/// A `mount` before the system's: one that asks no helper of the type's name, which for `fuse.slabfs` would
/// look for a program that mounts by that name.
fn path_with_mount(area: &Area) -> String {
    let script = "#!/bin/sh\nexec /usr/bin/mount --internal-only \"$@\"\n";
    let dir = area.mkdir("bin");
    let path = area.write("bin/mount", script);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("chmod");
    let path = std::env::var("PATH").expect("a path");
    format!("{}:{path}", dir.display())
}

/// A test is a line of its name and its verdict; what follows, indented, is why.
fn read_pjdfstest(said: &str) -> Verdicts {
    let mut verdicts = Verdicts::default();
    let mut lines = said.lines().peekable();
    while let Some(line) = lines.next() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(verdict), None) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if !name.contains("::") || line.starts_with(char::is_whitespace) {
            continue;
        }
        let mut why = || {
            let why = lines.next_if(|line| line.starts_with(char::is_whitespace));
            why.unwrap_or_default().trim().to_owned()
        };
        match verdict {
            "ok" => drop(verdicts.passed.insert(name.to_owned())),
            "skipped" => drop(verdicts.skipped.insert(name.to_owned(), why())),
            "FAILED" => drop(verdicts.failed.insert(name.to_owned(), why())),
            _ => {}
        }
    }
    verdicts
}

/// The names of the stressors of a class of `stress-ng`.
///
/// # Panics
/// When it does not say.
#[track_caller]
pub fn stressors(class: &str) -> Vec<String> {
    let said = tool::program("stress-ng", ["--class", &format!("{class}?")]);
    let all = format!("{}{}", String::from_utf8_lossy(&said.stdout), said.stderr);
    let names = all.split("stressors:").nth(1);
    let names: Vec<String> = names
        .unwrap_or_else(|| panic!("no stressors of class {class}: {}", said.report()))
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    assert!(!names.is_empty(), "{}", said.report());
    names
}

/// Lets two workers of one stressor work in `dir` for some seconds.
///
/// # Errors
/// What it said, when it failed or could not begin.
#[track_caller]
pub fn stress(dir: &Path, stressor: &str, seconds: u64) -> Result<(), String> {
    let own = dir.join(stressor);
    std::fs::create_dir(&own).expect("a directory");
    let mut command = Command::new("stress-ng");
    command.args([&format!("--{stressor}"), "2", "--verify", "--timeout"]);
    command
        .arg(seconds.to_string())
        .arg("--temp-path")
        .arg(&own);
    let said = tool::run(&mut command);
    // Some leave what they were doing.
    std::fs::remove_dir_all(&own).map_err(|error| format!("{stressor}: cleaning up: {error}"))?;
    match said.status {
        0 => Ok(()),
        _ => Err(said.report()),
    }
}

/// Writes pseudo-random blocks with checksums into two files of `dir`, by an engine of `fio`, and reads them
/// back; with `again`, only reads what such a run has left.
#[track_caller]
pub fn fio(dir: &Path, job: &Job, again: bool) -> Outcome {
    let mut command = Command::new("fio");
    command.args(["--name=fio", "--numjobs=2", "--verify=crc32c"]);
    command.args(["--verify_fatal=1", "--bsrange=4k-64k", "--iodepth=8"]);
    // Else it leaves a file where it was started.
    command.arg("--verify_state_save=0");
    command.arg(format!("--directory={}", dir.display()));
    command.arg(format!("--ioengine={}", job.engine));
    command.arg(format!("--direct={}", u8::from(job.direct)));
    command.arg(format!("--rw={}", job.pattern));
    command.arg(format!("--size={}M", job.megabytes));
    if again {
        command.arg("--verify_only");
    } else {
        command.arg("--end_fsync=1");
    }
    tool::run(&mut command)
}

/// What `fio` is to do.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// By which calls.
    pub engine: &'static str,
    /// With `O_DIRECT`.
    pub direct: bool,
    /// `write` or `randwrite`.
    pub pattern: &'static str,
    /// Size of each file.
    pub megabytes: u64,
}

/// Plays the load of two clients of a file server for some seconds; answers what it said.
///
/// # Panics
/// When anything it did failed.
#[track_caller]
pub fn dbench(dir: &Path, seconds: u64) -> Outcome {
    // It takes the semaphore of number 0 for none, so another one has to be there before; of both nothing
    // is left when the namespace ends.
    let line = "ipcmk --semaphore 1 >/dev/null; exec dbench \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--ipc", "sh", "-e", "-c", line, "dbench", "-D"]);
    command.arg(dir).args(["-t", &seconds.to_string(), "2"]);
    let said = tool::run(&mut command).ok();
    // It ends with 0 whatever happens.
    let complaints = ["fail", "error", "expected", "ERROR"];
    let complains = complaints.iter().any(|word| said.text().contains(word));
    let works = said.text().lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("Throughput")
            && words
                .next()
                .and_then(|number| number.parse::<f64>().ok())
                .is_some_and(|number| number > 0.0)
    });
    assert!(works && !complains, "{}", said.report());
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pjdfstest_says_is_read() {
        let said = "unlink::remove_type::fifo                      ok\n\
                    rename::erofs_named                            skipped\n\
                    \tRemounts (allow_remount) are not allowed\n\
                    open::enametoolong_path                        FAILED\n\
                    \tcapacity overflow\n\
                    \n\
                    Summary: 1 failed, 1 skipped, 1 passed, 0 expected failures, 3 total\n";
        let verdicts = read_pjdfstest(said);
        assert_eq!(verdicts.summary(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(
            verdicts.failed["open::enametoolong_path"],
            "capacity overflow"
        );
        assert!(verdicts.skipped["rename::erofs_named"].starts_with("Remounts"));
        let mut all = verdicts.clone();
        all.merge(read_pjdfstest("rename::erofs_named   ok\n"));
        assert_eq!((all.count(), all.passed.len()), (3, 2));
    }
}
