//! The table of mounts, `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// An entry of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// `major:minor` of its device.
    pub device: String,
    /// The directory of the filesystem that is mounted; `/` except for a bind mount of a subtree.
    pub root: PathBuf,
    /// Where it is mounted.
    pub at: PathBuf,
    /// Type of the filesystem, `fuse.slabfs` or `ext4`.
    pub kind: String,
    /// The source, as the filesystem reports it.
    pub source: String,
}

/// All mounts that this process sees, oldest first.
///
/// # Errors
/// If the table cannot be read.
pub fn mounts() -> io::Result<Vec<Mounted>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(parse(&table))
}

/// A mount in the mount namespace of another process.
#[derive(Debug)]
pub struct Copy {
    /// A process of that namespace.
    pub process: u32,
    /// Where it is mounted, as a path for this process.
    pub at: PathBuf,
}

/// A mount of the filesystem on `device` (`MAJOR:MINOR`) in the namespace of any process that this one may look at.
#[must_use]
pub fn copy_elsewhere(device: &str) -> Option<Copy> {
    let processes = std::fs::read_dir("/proc").ok()?;
    processes.filter_map(Result::ok).find_map(|entry| {
        let process = entry.file_name().to_str()?.parse().ok()?;
        let table = std::fs::read(entry.path().join("mountinfo")).ok()?;
        let mounted = parse(&table).into_iter().find(|at| at.device == device)?;
        let place = mounted.at.strip_prefix("/").ok()?;
        let at = entry.path().join("root").join(place);
        Some(Copy { process, at })
    })
}

fn parse(table: &[u8]) -> Vec<Mounted> {
    let lines = table.split(|&byte| byte == b'\n');
    lines.filter_map(parse_line).collect()
}

/// Reads `36 35 98:0 /root /mount/point rw,noatime shared:1 - ext3 /dev/root rw` (proc(5)).
fn parse_line(line: &[u8]) -> Option<Mounted> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let text = |at: usize| Some(String::from_utf8_lossy(fields.get(at)?).into_owned());
    let path = |at: usize| Some(PathBuf::from(OsString::from_vec(unescape(fields.get(at)?))));
    Some(Mounted {
        device: text(2)?,
        root: path(3)?,
        at: path(4)?,
        kind: text(dash + 1)?,
        source: text(dash + 2)?,
    })
}

/// Decodes `\040` and the like, which stand for space, tab, newline and backslash in the table.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let code = (byte == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(code);
                rest = &tail[3..];
            }
            None => {
                plain.push(byte);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const TABLE: &[u8] = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        30 22 0:25 / /mnt/my\\040data rw - tmpfs tmpfs rw\n\
        nonsense\n\
        31 30 0:26 /run1 /mnt/my\\040data rw,nosuid shared:7 master:2 - fuse.slabfs slabfs:1234 rw,user_id=0\n";

    #[test]
    fn the_table_is_read() {
        let mounts = parse(TABLE);
        assert_eq!(mounts.len(), 3);
        let last = &mounts[2];
        assert_eq!(last.device, "0:26");
        assert_eq!(last.root, Path::new("/run1"));
        assert_eq!(last.at, Path::new("/mnt/my data"));
        assert_eq!(
            (&last.kind[..], &last.source[..]),
            ("fuse.slabfs", "slabfs:1234")
        );
        assert_eq!(
            (&mounts[0].at, &mounts[0].kind[..]),
            (&PathBuf::from("/"), "ext4")
        );
    }
}
