//! The caller of a request, and its permissions.

/// A user as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Caller {
    /// The user `uid` with the group `gid`, as the process `pid`, whose supplementary groups are looked up.
    ///
    /// A FUSE request carries one group only. If the process cannot be examined, or no longer belongs to that user, the
    /// caller has just that group.
    pub fn of_process(uid: u32, gid: u32, pid: u32) -> Caller {
        let groups = std::fs::read_to_string(format!("/proc/{pid}/status"))
            .ok()
            .filter(|status| fields(status, "Uid:").any(|id| id == uid))
            .map(|status| fields(&status, "Groups:").collect())
            .unwrap_or_default();
        Caller { uid, gid, groups }
    }

    /// The effective user of this process.
    pub fn of_this_process() -> Caller {
        Caller {
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            groups: nix::unistd::getgroups()
                .unwrap_or_default()
                .into_iter()
                .map(nix::unistd::Gid::as_raw)
                .collect(),
        }
    }

    /// Whether this is the superuser.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether this is the superuser or the user who mounted.
    pub(super) fn administers(&self) -> bool {
        self.is_root() || self.uid == nix::unistd::geteuid().as_raw()
    }

    /// Whether the user is in a group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// The umask of this process, read without setting it: another thread may be creating a file.
pub fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    u32::from_str_radix(line(&status, "Umask:"), 8).unwrap_or(0o022)
}

/// The numbers of a line of `/proc/PID/status`.
fn fields<'a>(status: &'a str, name: &str) -> impl Iterator<Item = u32> + use<'a> {
    line(status, name)
        .split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
}

/// A line of `/proc/PID/status` without its name; empty if there is no such line.
pub(crate) fn line<'a>(status: &'a str, name: &str) -> &'a str {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_default()
        .trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_status() {
        let status = "Name:\tsh\nUid:\t5\t6\t7\t8\nGroups:\t10 20 \n";
        assert_eq!(fields(status, "Uid:").collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert_eq!(fields(status, "Groups:").collect::<Vec<_>>(), [10, 20]);
        assert_eq!(fields(status, "None:").count(), 0);
    }

    #[test]
    fn groups_of_another_user_are_not_adopted() {
        let me = Caller::of_process(u32::MAX, 7, std::process::id());
        assert_eq!(me.groups, [] as [u32; 0]);
        assert!(me.in_group(7) && !me.in_group(8) && !me.is_root());
    }
}
