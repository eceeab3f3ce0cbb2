//! Other processes: waiting for the end of a process that is not a child, and finding the users of a directory.
//!
//! The only `unsafe` is `pidfd_open`, and `poll` and `pidfd_send_signal` on its descriptor.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A process that existed when this was created. Unlike its number it cannot be confused with a later process.
#[derive(Debug)]
pub(crate) struct Watched(OwnedFd);

impl Watched {
    /// Watches process `pid`; `None` if there is no such process.
    pub(crate) fn open(pid: u32) -> std::io::Result<Option<Watched>> {
        let pid = libc::pid_t::try_from(pid).map_err(std::io::Error::other)?;
        // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::ESRCH) {
                Ok(None)
            } else {
                Err(error)
            };
        }
        let fd = i32::try_from(fd).map_err(std::io::Error::other)?;
        // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
        Ok(Some(Watched(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Sends SIGTERM to the process.
    pub(crate) fn terminate(&self) -> std::io::Result<()> {
        let (fd, no_info) = (self.0.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
        // SAFETY: `fd` is a process descriptor that outlives the call; without siginfo the kernel fills it in
        // as for kill(2).
        let result =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGTERM, no_info, 0) };
        if result == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    }

    /// Waits until the process has ended; false if `limit` elapsed first.
    pub(crate) fn wait(&self, limit: Duration) -> std::io::Result<bool> {
        let timeout = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
        loop {
            let mut fd = libc::pollfd {
                fd: self.0.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: `fd` is one valid pollfd that outlives the call.
            match unsafe { libc::poll(&mut fd, 1, timeout) } {
                ready if ready >= 0 => return Ok(ready > 0),
                _ => {
                    let error = std::io::Error::last_os_error();
                    if error.kind() != std::io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }
}

/// Whether a process has ended, apart from threads that the kernel has not released yet, or its parent's
/// `wait`.
pub(crate) fn has_ended(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| matches!(state(&stat), Some('Z' | 'X')))
}

/// The state in a line of `/proc/PID/stat` (proc(5)). It follows the name in parentheses, which may contain
/// parentheses itself.
fn state(stat: &str) -> Option<char> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.trim_start().chars().next()
}

/// Processes that have their working directory or an open file under `mount`, as `name (pid)`, except those
/// whose arguments begin with `but`.
///
/// Best effort: processes of other users are not visible, and a process may end meanwhile.
pub(crate) fn users_of(mount: &Path, but: &[&str]) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = std::process::id().to_string();
    let mut users = Vec::new();
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(pid) = name
            .to_str()
            .filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
        else {
            continue;
        };
        if pid == own {
            continue;
        }
        let dir = process.path();
        let links = [dir.join("cwd"), dir.join("exe"), dir.join("root")];
        let open = std::fs::read_dir(dir.join("fd"));
        let open = open.into_iter().flatten().flatten().map(|fd| fd.path());
        let uses = |link: PathBuf| std::fs::read_link(link).is_ok_and(|to| to.starts_with(mount));
        if links.into_iter().chain(open).any(uses) && !is_run_with(&dir, but) {
            let name = std::fs::read_to_string(dir.join("comm")).unwrap_or_default();
            users.push(format!("{} ({pid})", name.trim_end()));
        }
    }
    users
}

/// Whether the arguments of the process at `dir` begin with `arguments`.
fn is_run_with(dir: &Path, arguments: &[&str]) -> bool {
    let line = std::fs::read_to_string(dir.join("cmdline")).unwrap_or_default();
    let mut given = line.split('\0').skip(1);
    arguments.iter().all(|&one| given.next() == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_a_process_end() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("cat");
        let watched = Watched::open(child.id()).expect("pidfd").expect("it runs");
        assert!(!watched.wait(Duration::from_millis(1)).expect("poll"));
        drop(child.stdin.take());
        assert!(watched.wait(Duration::from_secs(30)).expect("poll"));
        child.wait().expect("reaped");
        assert!(Watched::open(child.id()).expect("pidfd").is_none());
    }

    #[test]
    fn detects_that_a_process_has_ended() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("cat");
        assert!(!has_ended(child.id()));
        let watched = Watched::open(child.id()).expect("pidfd").expect("it runs");
        child.kill().expect("killed");
        assert!(watched.wait(Duration::from_secs(30)).expect("poll"));
        // The process is not reaped yet.
        assert!(has_ended(child.id()));
        child.wait().expect("reaped");
        assert!(!has_ended(child.id()), "there is none");
        assert_eq!(state("12 (a) Z (b) S 1 12"), Some('S'));
    }

    #[test]
    fn sends_sigterm_to_a_process() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("cat");
        let watched = Watched::open(child.id()).expect("pidfd").expect("it runs");
        watched.terminate().expect("sent");
        assert!(watched.wait(Duration::from_secs(30)).expect("poll"));
        assert!(!child.wait().expect("reaped").success());
    }

    #[test]
    fn finds_a_process_with_its_working_directory_below() {
        let dir = tempfile::tempdir().expect("dir");
        let dir_path = dir.path().canonicalize().expect("path");
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .current_dir(&dir_path)
            .spawn()
            .expect("cat");
        let users = users_of(&dir_path, &["nothing"]);
        drop(child.stdin.take());
        child.wait().expect("reaped");
        assert!(
            users
                .iter()
                .any(|user| user.contains(&child.id().to_string())),
            "{users:?}"
        );
    }
}
