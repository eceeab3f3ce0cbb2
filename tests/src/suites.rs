//! Runs test suites of other projects for filesystems, and reads their output.
//!
//! | suite | contents |
//! |---|---|
//! | [`pjdfstest`] | one system call at a time: results, errors, attributes, times |
//! | [`stress`] | `stress-ng`: many system calls at once, a different kind per stressor |
//! | [`fio`] | writes patterns with one I/O engine and reads them again |
//! | [`dbench`] | the recorded load of a file server's clients |
//!
//! A suite's exit status is not enough: each must have reported that it did something.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::{Area, Outcome, inputs, tool};

/// A suite's results, by the names of its tests.
#[derive(Debug, Default, Clone)]
pub struct Verdicts {
    /// Tests that succeeded.
    pub passed: BTreeSet<String>,
    /// Tests that were not run, and the reason.
    pub skipped: BTreeMap<String, String>,
    /// Tests that failed, and the message.
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

    /// Adds the results of another run, which override those of this one.
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

/// Runs all of `pjdfstest` on the filesystem mounted at `mnt`, with two users that every Debian has. The tests
/// of a read-only filesystem remount it, which fails while files are open: they have a run of their own.
///
/// # Panics If it does not run, or its output is not understood.
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
    // For operations that are impossible between filesystems.
    command.arg("-s").arg(area.mkdir("other"));
    if read_only {
        command.arg("erofs").env("PATH", path_with_mount(area));
    }
    command.env("RUST_BACKTRACE", "0");
    let said = tool::run(&mut command);
    let verdicts = read_pjdfstest(said.text());
    assert!(
        said.text().contains(&format!("{} total", verdicts.count())),
        "the totals differ: {}",
        said.report()
    );
    assert!(
        (said.status == 0) == verdicts.failed.is_empty(),
        "{}",
        said.report()
    );
    verdicts
}

/// A name for the directory in which the suite works. For some path lengths the suite cannot create the longest
/// possible path: it fills up with names of 126 bytes, and fails if nothing remains.
fn dir_name(mnt: &Path) -> String {
    let temporary = "/.tmpXXXXXX".len() * 2;
    let left = |name: usize| 4095 - (mnt.as_os_str().len() + 1 + name + temporary);
    let len = (1..).find(|&name| left(name) % 127 > 1);
    "s".repeat(len.unwrap_or(1))
}

/// A `mount` that precedes the system's: it calls no helper of the type's name, which for `fuse.slabfs` would
/// be a program that mounts by that name.
///
/// On FUSE it waits first until the kernel has an answer to every request. The kernel sends RELEASE after `close` has
/// returned, and has the inode of a removed file until it is answered; so long it refuses to make the filesystem read-only.
fn path_with_mount(area: &Area) -> String {
    let script = r#"#!/bin/sh
for mnt; do :; done
device=$(findmnt --noheadings --raw --types fuse.slabfs --output MAJ:MIN --mountpoint "$mnt") &&
    unshare --mount sh -c '
        mount -t fusectl none /sys/fs/fuse/connections || exit
        waiting=/sys/fs/fuse/connections/$1/waiting
        for _ in $(seq 1000); do
            count=$(cat "$waiting") || exit
            [ "$count" = 0 ] && exit
            sleep 0.01
        done
        echo "requests to $2 are not answered: $count" >&2
    ' sh "${device#*:}" "$mnt"
exec /usr/bin/mount --internal-only "$@"
"#;
    let dir = area.mkdir("bin");
    let path = area.write("bin/mount", script);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("chmod");
    let path = std::env::var("PATH").expect("a path");
    format!("{}:{path}", dir.display())
}

/// A test is a line with its name and its result; indented lines after it are the reason.
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
/// # Panics If it does not list them.
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

/// Runs two workers of one stressor in `dir` for some seconds.
///
/// # Errors Its output, if it failed or could not begin.
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
    // Some leave files.
    std::fs::remove_dir_all(&own).map_err(|error| format!("{stressor}: cleaning up: {error}"))?;
    match said.status {
        0 => Ok(()),
        _ => Err(said.report()),
    }
}

/// Writes pseudo-random blocks with checksums into two files of `dir`, by an engine of `fio`, and reads them
/// back; with `again`, only reads the files of such a run.
#[track_caller]
pub fn fio(dir: &Path, job: &Job, again: bool) -> Outcome {
    let mut command = Command::new("fio");
    command.args(["--name=fio", "--numjobs=2", "--verify=crc32c"]);
    command.args(["--verify_fatal=1", "--bsrange=4k-64k", "--iodepth=8"]);
    // Otherwise it leaves a file in the current directory.
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

/// The parameters of `fio`.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// The I/O engine.
    pub engine: &'static str,
    /// With `O_DIRECT`.
    pub direct: bool,
    /// `write` or `randwrite`.
    pub pattern: &'static str,
    /// Size of each file.
    pub megabytes: u64,
}

/// Plays the load of two clients of a file server for some seconds; returns the output.
///
/// # Panics If any operation failed.
#[track_caller]
pub fn dbench(dir: &Path, seconds: u64) -> Outcome {
    // It takes the id 0 of a semaphore for an error, so another semaphore has to exist before; both are removed
    // when the namespace ends.
    let line = "ipcmk --semaphore 1 >/dev/null; exec dbench \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--ipc", "sh", "-e", "-c", line, "dbench", "-D"]);
    command.arg(dir).args(["-t", &seconds.to_string(), "2"]);
    let said = tool::run(&mut command).ok();
    // It exits with 0 in any case.
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
    fn the_output_of_pjdfstest_is_parsed() {
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
