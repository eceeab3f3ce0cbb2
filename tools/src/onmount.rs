//! What a command knows of a path on a mount, through the mount alone: extended attributes and the
//! files of `.slabfs`. No server's address is needed.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use serde_json::Value;

use crate::mountpoint::{Mounted, mounts};

mod xattr;

/// Attribute that reads as everything known of an object.
const INFO: &str = "user.slabfs.info";
/// Attribute that takes several settings at once.
const SPEC: &str = "user.slabfs.spec";
/// Attribute that takes new dims of an object that has data.
const RESIZE: &str = "user.slabfs.resize";

/// A slabfs mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    root: PathBuf,
}

impl Mount {
    /// The mount that `path` lies on.
    pub(crate) fn of(path: &Path) -> anyhow::Result<Mount> {
        let meta = std::fs::metadata(path).map_err(|error| explain(path, error))?;
        let found = mounts()?;
        let found = choose(&found, meta.dev())
            .filter(|mounted| mounted.kind.starts_with("fuse"))
            .filter(|mounted| mounted.at.join(".slabfs/status").exists());
        match found {
            Some(mounted) => Ok(Mount {
                root: mounted.at.clone(),
            }),
            None => bail!(
                "{} is not on a slabfs mount; start one with `slabfs up MOUNTPOINT` and give a path below it",
                path.display()
            ),
        }
    }

    /// The JSON of `.slabfs/NAME`.
    pub(crate) fn report(&self, name: &Path) -> anyhow::Result<Value> {
        let path = self.root.join(".slabfs").join(name);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} does not hold what this slabfs expects; is the mount's process of another version?", path.display()))
    }

    /// The JSON of `.slabfs/layout/…` for an object on this mount.
    pub(crate) fn layout_of(&self, object: &Path) -> anyhow::Result<Value> {
        let full = object
            .canonicalize()
            .map_err(|error| explain(object, error))?;
        let inside = full
            .strip_prefix(&self.root)
            .map_err(|_| anyhow!("{} is not below {}", full.display(), self.root.display()))?;
        self.report(&Path::new("layout").join(inside))
    }
}

/// Of the mounts of one device, the one that shows its whole tree; the newest of those.
fn choose(mounts: &[Mounted], device: u64) -> Option<&Mounted> {
    mounts
        .iter()
        .rfind(|m| m.device == device && m.root == Path::new("/"))
}

/// Everything known of an object or directory.
pub(crate) fn info(path: &Path) -> anyhow::Result<Value> {
    Mount::of(path)?;
    let text = xattr::get(path, INFO)
        .map_err(|error| explain(path, error))
        .with_context(|| format!("cannot read what is known of {}", path.display()))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{}: the attribute {INFO} is not JSON", path.display()))
}

/// Declares several fields of an object at once.
pub(crate) fn declare(path: &Path, spec: &serde_json::Map<String, Value>) -> anyhow::Result<()> {
    let text = serde_json::to_string(spec).context("writing the settings as JSON")?;
    xattr::set(path, SPEC, text.as_bytes()).map_err(|error| refused(path, error))
}

/// Gives an object with data new dims.
pub(crate) fn resize(path: &Path, dims: &str) -> anyhow::Result<()> {
    xattr::set(path, RESIZE, dims.as_bytes()).map_err(|error| refused(path, error))
}

/// What a failed look at `path` means.
pub(crate) fn explain(path: &Path, error: std::io::Error) -> anyhow::Error {
    let path = path.display();
    match error.raw_os_error() {
        Some(libc::ENOTCONN) => anyhow!(
            "the mount that {path} is on has lost its process; take it away with `slabfs umount` and start it again"
        ),
        Some(libc::EINVAL) => anyhow!(
            "{path} was refused as malformed or outside the array's dims; the log of the mount says why, `slabfs info` shows the dims"
        ),
        Some(libc::ENODATA | libc::EOPNOTSUPP) => {
            anyhow!("{path} is not an object of slabfs")
        }
        _ if error.kind() == ErrorKind::NotFound => anyhow!("{path} does not exist"),
        _ => anyhow::Error::new(error).context(format!("cannot use {path}")),
    }
}

/// What a refused setting of `path` means; the rules themselves are the metadata service's.
fn refused(path: &Path, error: std::io::Error) -> anyhow::Error {
    let advice = match error.raw_os_error() {
        Some(libc::EINVAL) => {
            "this change is not allowed: dtype, fill and codec can be set while the object is empty or its bytes fit the dims exactly, and an axis grows up to its max dim; the log of the mount says which rule it was, `slabfs info` shows the object"
        }
        Some(libc::EFBIG) => "the array would be larger than a file can be (2^63 bytes)",
        Some(libc::EROFS) => "the mount is read-only",
        Some(libc::EACCES | libc::EPERM) => "you may not write to it",
        _ => return explain(path, error),
    };
    anyhow!("{}: {advice}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted(device: u64, root: &str, at: &str) -> Mounted {
        Mounted {
            device,
            root: root.into(),
            at: at.into(),
            kind: "fuse.slabfs".into(),
            source: "slabfs:1".into(),
        }
    }

    #[test]
    fn the_whole_tree_wins_over_bind_mounts() {
        let mounts = [
            mounted(1, "/", "/a"),
            mounted(2, "/", "/b"),
            mounted(2, "/run1", "/c"),
            mounted(3, "/", "/d"),
        ];
        assert_eq!(
            choose(&mounts, 2).map(|m| m.at.as_path()),
            Some(Path::new("/b"))
        );
        assert_eq!(choose(&mounts, 9), None);
    }

    #[test]
    fn a_path_elsewhere_is_told_so() {
        let dir = tempfile::tempdir().expect("dir");
        let error = Mount::of(dir.path()).expect_err("elsewhere").to_string();
        assert!(error.contains("not on a slabfs mount"), "{error}");
        let error = Mount::of(&dir.path().join("gone"))
            .expect_err("missing")
            .to_string();
        assert!(error.contains("does not exist"), "{error}");
    }
}
