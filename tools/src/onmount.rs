//! Access to paths on a mount through the mount alone: extended attributes, the files of `.slabfs`, and calls.
//! No server address is needed.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use serde_json::{Map, Value, json};
use slabfs_fs::mount::Mounted;
use slabfs_fs::view::attributes::{json_of_spec, spec_of_json};
use slabfs_fs::view::name::{Name, Selected};
use slabfs_fs::view::nodes::FIRST_VIRTUAL;
use slabfs_mdserver::api::SpecChange;
use slabfs_model::{Coupling, Placement, ServerId, format_dims};

use crate::mountpoint::{mounts, process_of};
use crate::rules;

mod call;
mod ioctl;
mod xattr;

pub(crate) use call::Refused;

/// Attribute with all properties of an object.
const INFO: &str = "user.slabfs.info";
/// Attributes that a selection has as well.
const DTYPE: &str = "user.slabfs.dtype";
const DIMS: &str = "user.slabfs.dims";
/// Attributes of a directory.
const DEFAULTS: &str = "user.slabfs.defaults";
const DEFAULT_DTYPE: &str = "user.slabfs.default.dtype";
/// Attributes of the coupling of an object, and of a directory.
const COUPLE: &str = "user.slabfs.couple";
const DEFAULT_COUPLE: &str = "user.slabfs.default.couple";
/// Attribute that sets several properties at once.
const SPEC: &str = "user.slabfs.spec";
/// Attribute that sets new dims of an object with data.
const RESIZE: &str = "user.slabfs.resize";

/// A slabfs mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    root: PathBuf,
}

impl Mount {
    /// The mount that contains `path`.
    pub(crate) fn of(path: &Path) -> anyhow::Result<Mount> {
        let meta = std::fs::metadata(path)
            .map_err(|error| unanswered(path, &error).unwrap_or_else(|| explain(path, error)))?;
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

    /// Where it is mounted.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The JSON of `.slabfs/NAME`.
    pub(crate) fn report(&self, name: &Path) -> anyhow::Result<Value> {
        let path = self.root.join(".slabfs").join(name);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let away = unanswered(&path, &error);
            away.unwrap_or_else(|| {
                anyhow::Error::new(error).context(format!("cannot read {}", path.display()))
            })
        })?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} does not hold what this slabfs expects; is the mount's process of another version?", path.display()))
    }

    /// The JSON of `.slabfs/layout/…` for an object on this mount.
    pub(crate) fn layout_of(&self, object: &Path) -> anyhow::Result<Value> {
        let full = object
            .canonicalize()
            .map_err(|error| explain(object, error))?;
        if full.is_dir() {
            return Err(only_files(object));
        }
        if let Some((array, _)) = selected(object).filter(|_| selection(object).is_some()) {
            bail!(
                "{} is a selection; `slabfs layout {}` shows how the array is stored",
                object.display(),
                array.display()
            );
        }
        let inside = full
            .strip_prefix(&self.root)
            .map_err(|_| anyhow!("{} is not below {}", full.display(), self.root.display()))?;
        let report = self.root.join(".slabfs/layout").join(inside);
        if let Err(error) = std::fs::File::open(report)
            && error.raw_os_error() == Some(libc::EACCES)
        {
            return Err(explain(object, error));
        }
        self.report(&Path::new("layout").join(inside))
    }
}

/// Of the mounts of one device, the newest that shows the complete tree.
fn choose(mounts: &[Mounted], device: u64) -> Option<&Mounted> {
    let device = format!("{}:{}", libc::major(device), libc::minor(device));
    mounts
        .iter()
        .rfind(|m| m.device == device && m.root == Path::new("/"))
}

/// All properties of an object; for a selection its shape and bytes.
pub(crate) fn info(path: &Path) -> anyhow::Result<Value> {
    Mount::of(path)?;
    if path.is_dir() {
        return Err(only_files(path));
    }
    match xattr::get(path, INFO) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| {
            format!(
                "{}: the attribute {INFO} is not JSON; is the mount's process of another version?",
                path.display()
            )
        }),
        Err(error) => match selection(path) {
            Some(info) => Ok(info),
            None => Err(explain(path, error)),
        },
    }
}

/// The properties of `path` if it is a selection `obj@[…]`: its own shape, and the other properties of its
/// array.
fn selection(path: &Path) -> Option<Value> {
    let (array, _) = selected(path)?;
    if xattr::get(path, INFO).is_ok() {
        return None;
    }
    let text = |name| String::from_utf8(xattr::get(path, name).ok()?).ok();
    let (dtype, dims) = (text(DTYPE)?, text(DIMS)?);
    let dims = slabfs_model::parse_dims(&dims).ok()?;
    Some(json!({
        "kind": "selection",
        "array": array.to_string_lossy(),
        "dtype": dtype,
        "dims": dims.as_slice(),
        "size": std::fs::metadata(path).ok()?.len(),
    }))
}

/// The file of which `path` names a selection, and the parts of its last component; `None` for a path that
/// names an existing entry, or is not a selection. The mount decides alike: an existing entry of that name has
/// priority, and the selected array has to be a file.
pub(crate) fn selected(path: &Path) -> Option<(PathBuf, Selected<'_>)> {
    let Name::Selected(selected) = Name::parse(path.file_name()?.as_bytes()) else {
        return None;
    };
    let there = path.symlink_metadata();
    if there.is_ok_and(|there| there.ino() < FIRST_VIRTUAL) {
        return None;
    }
    let written = path.with_file_name(OsStr::from_bytes(selected.written));
    let array = match written.symlink_metadata() {
        Ok(_) => written,
        Err(_) => path.with_file_name(OsStr::from_bytes(&selected.base)),
    };
    let is_file = array.metadata().is_ok_and(|array| array.is_file());
    is_file.then_some((array, selected))
}

/// Why the brackets of `path` are not a valid selection of its array.
fn refused_selection(path: &Path) -> Option<String> {
    let (array, selected) = selected(path)?;
    let text = xattr::get(&array, INFO).ok()?;
    let now = rules::present(&serde_json::from_slice(&text).ok()?)?;
    rules::refused_selection(&now, std::str::from_utf8(selected.text).ok()?)
}

/// The settable properties of an array or a selection.
pub(crate) fn spec(path: &Path) -> anyhow::Result<SpecChange> {
    if selection(path).is_none() {
        let info = info(path)?;
        if info.get("kind").and_then(Value::as_str) != Some("array") {
            bail!("{} is a byte object; give an array", path.display());
        }
    }
    let text = xattr::get(path, SPEC).map_err(|error| explain(path, error))?;
    let map: Map<String, Value> = serde_json::from_slice(&text)
        .with_context(|| format!("{}: the attribute {SPEC} is not JSON", path.display()))?;
    spec_of_json(&map).map_err(anyhow::Error::msg)
}

/// The dtype that a directory gives to new arrays.
pub(crate) fn default_dtype(directory: &Path) -> Option<String> {
    String::from_utf8(xattr::get(directory, DEFAULT_DTYPE).ok()?).ok()
}

/// The defaults that a directory on a mount gives to new objects in it.
pub(crate) fn defaults(directory: &Path) -> anyhow::Result<Value> {
    match xattr::get(directory, DEFAULTS) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| {
            format!(
                "{}: the attribute {DEFAULTS} is not JSON",
                directory.display()
            )
        }),
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(json!({})),
        Err(error) => Err(explain(directory, error)),
    }
}

/// Sets several properties of an object at once.
pub(crate) fn declare(path: &Path, spec: &SpecChange) -> anyhow::Result<()> {
    let text = Value::Object(json_of_spec(spec)).to_string();
    let why = || {
        let now = rules::present(&info(path).ok()?);
        let rule = now.and_then(|now| rules::refused_change(&now, spec));
        rule.or_else(|| unknown_server(path, spec))
    };
    xattr::set(path, SPEC, text.as_bytes()).map_err(|error| refused(path, error, why))
}

/// Couples an object, or the objects that are made in a directory from now on.
pub(crate) fn couple(path: &Path, coupling: &Coupling) -> anyhow::Result<()> {
    Mount::of(path)?;
    let name = match path.is_dir() {
        true => DEFAULT_COUPLE,
        false => COUPLE,
    };
    let spec = SpecChange {
        couple: Some(coupling.clone()),
        ..SpecChange::default()
    };
    let why = || rules::refused_change(&rules::present(&info(path).ok()?)?, &spec);
    xattr::set(path, name, coupling.to_string().as_bytes())
        .map_err(|error| refused(path, error, why))
}

/// The error text if a placement names a server that does not exist.
fn unknown_server(path: &Path, spec: &SpecChange) -> Option<String> {
    let Some(Placement::Server(ServerId(named))) = spec.placement else {
        return None;
    };
    let status = Mount::of(path).ok()?.report("status".as_ref()).ok()?;
    let known = status.get("servers")?.as_array()?.iter();
    let known: Vec<String> = known.map(|server| server["id"].to_string()).collect();
    if known.contains(&named.to_string()) {
        return None;
    }
    Some(format!(
        "--placement: there is no data server {named}; there are {}, see `slabfs servers`",
        known.join(", ")
    ))
}

/// Changes the dims of an object with data.
pub(crate) fn resize(path: &Path, dims: &[u64]) -> anyhow::Result<()> {
    let why = || rules::refused_dims(&rules::present(&info(path).ok()?)?, dims);
    let text = format_dims(dims);
    xattr::set(path, RESIZE, text.as_bytes()).map_err(|error| refused(path, error, why))
}

fn only_files(path: &Path) -> anyhow::Error {
    anyhow!("{} is a directory; give a file in it", path.display())
}

/// Explains EIO to a command that reads no data itself: a service is unreachable. `None` if `path` is not on a
/// slabfs mount, or for other errors.
fn unanswered(path: &Path, error: &std::io::Error) -> Option<anyhow::Error> {
    if error.raw_os_error() != Some(libc::EIO) {
        return None;
    }
    // No request to the mount: each access to a path of it would wait for the service again.
    let full = std::path::absolute(path).ok()?;
    let all = mounts().ok()?;
    let (mounted, process) = all
        .iter()
        .filter(|mounted| full.starts_with(&mounted.at))
        .filter_map(|mounted| Some((mounted, process_of(mounted)?)))
        .max_by_key(|(mounted, _)| mounted.at.as_os_str().len())?;
    let place = metadata_of(process).map_or_else(String::new, |addr| format!(" at {addr}"));
    Some(anyhow!(
        "the metadata service{place} does not answer the mount at {}, or a data server that was to be asked; the mount's log says which. Start it, or repair the network: the mount continues by itself",
        mounted.at.display()
    ))
}

/// The `--md` of a mount's process, if its command line has it and is readable.
fn metadata_of(process: u32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let mut words = line.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    while let Some(word) = words.next() {
        if word == "--md" {
            return Some(words.next()?.into_owned());
        }
        if let Some(addr) = word.strip_prefix("--md=") {
            return Some(addr.to_owned());
        }
    }
    None
}

/// Explains a failed access to `path`.
pub(crate) fn explain(path: &Path, error: std::io::Error) -> anyhow::Error {
    if let Some(away) = unanswered(path, &error) {
        return away.context(format!("cannot use {}", path.display()));
    }
    let outside = refused_selection(path);
    let path = path.display();
    match error.raw_os_error() {
        Some(libc::ENOTCONN) => anyhow!(
            "the process of the mount that {path} is on has ended; remove the mount with `slabfs umount` and start it again"
        ),
        Some(libc::EINVAL) if outside.is_some() => {
            anyhow!("{path}: {}", outside.unwrap_or_default())
        }
        Some(libc::EINVAL) => anyhow!(
            "{path} was refused as malformed or outside the array's dims; the log of the mount says why, `slabfs info` shows the dims"
        ),
        Some(libc::ENODATA | libc::EOPNOTSUPP) => {
            anyhow!("{path} is not an array or file of slabfs; give one that is")
        }
        Some(libc::EACCES) => {
            anyhow!("Permission denied: you may not read {path}; ask its owner, or see `ls -ld`")
        }
        _ if error.kind() == ErrorKind::NotFound => anyhow!("{path} does not exist"),
        _ => anyhow::Error::new(error).context(format!("cannot use {path}")),
    }
}

/// Explains why a change of `path` was refused; `why` finds the violated rule from the object's properties.
fn refused(
    path: &Path,
    error: std::io::Error,
    why: impl FnOnce() -> Option<String>,
) -> anyhow::Error {
    let shown = path.display();
    let advice = match error.raw_os_error() {
        Some(libc::EINVAL) => match (selected(path).filter(|_| selection(path).is_some()), why()) {
            (Some((array, _)), _) => format!(
                "a selection has the properties of its array; change that: `slabfs set {} …`",
                array.display()
            ),
            (None, Some(rule)) => rule,
            (None, None) => {
                "the mount refused this change; its log says which rule was violated, `slabfs set --help` lists the rules"
                    .to_owned()
            }
        },
        Some(libc::EFBIG) => {
            "the array would be larger than a file can be (2^63 bytes); give smaller dims".to_owned()
        }
        Some(libc::EROFS) => {
            "the mount is read-only; use one that was started without --read-only".to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => {
            "you may not write to it; ask its owner, or see `ls -l`".to_owned()
        }
        _ => return explain(path, error),
    };
    anyhow!("{shown}: {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted(minor: u32, root: &str, at: &str) -> Mounted {
        Mounted {
            device: format!("0:{minor}"),
            root: root.into(),
            at: at.into(),
            kind: "fuse.slabfs".into(),
            source: "slabfs:1".into(),
        }
    }

    #[test]
    fn a_mount_of_the_complete_tree_wins_over_bind_mounts() {
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
    fn the_array_of_a_selection() {
        let dir = tempfile::tempdir().expect("dir");
        for name in ["temp", "a@[x]", "entry@[0]", "entry"] {
            std::fs::write(dir.path().join(name), "").expect("a file");
        }
        let array = |name: &str| {
            let path = dir.path().join(name);
            let (array, _) = selected(&path)?;
            Some(array.file_name()?.to_str()?.to_owned())
        };
        assert_eq!(array("temp@[0:10,3]"), Some("temp".into()));
        assert_eq!(array("a@@[x]@[0]"), Some("a@[x]".into()));
        // The array is before the first bracket.
        assert_eq!(array("temp@[0]@[1]"), Some("temp".into()));
        for none in [
            "temp",
            "entry@[0]",
            "none@[0]",
            "temp@[0].txt",
            "temp@[0]/x",
        ] {
            assert_eq!(array(none), None, "{none}");
        }
    }

    #[test]
    fn a_path_outside_a_mount_is_reported() {
        let dir = tempfile::tempdir().expect("dir");
        let error = Mount::of(dir.path()).expect_err("elsewhere").to_string();
        assert!(error.contains("not on a slabfs mount"), "{error}");
        let error = Mount::of(&dir.path().join("gone"))
            .expect_err("missing")
            .to_string();
        assert!(error.contains("does not exist"), "{error}");
    }
}
