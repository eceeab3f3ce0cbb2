//! Requests to a mount: its root, and its `.slabfs/call`.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use serde_json::{Map, Value, json};

/// The most bytes of a reply.
const REPLY: usize = 8 << 20;

/// A slabfs mount.
#[derive(Debug)]
pub(crate) struct Mount {
    root: PathBuf,
}

impl Mount {
    /// The mount that contains `path`, which exists.
    pub(crate) fn of(path: &Path) -> anyhow::Result<Mount> {
        let real = path
            .canonicalize()
            .with_context(|| format!("cannot use {}", path.display()))?;
        let device = real.metadata()?.dev();
        let mut root = real.as_path();
        while let Some(above) = root.parent() {
            if above.metadata()?.dev() != device {
                break;
            }
            root = above;
        }
        if !root.join(".slabfs/status").exists() {
            bail!(
                "{} is not on a slabfs mount; start one with `slabfs up MOUNTPOINT` and give a path below it",
                path.display()
            );
        }
        Ok(Mount {
            root: root.to_owned(),
        })
    }

    /// A path on the mount as requests have it: from its root.
    pub(crate) fn inside(&self, path: &Path) -> anyhow::Result<String> {
        let real = path
            .canonicalize()
            .with_context(|| format!("cannot use {}", path.display()))?;
        let inside = real.strip_prefix(&self.root)?;
        let text = inside.to_str();
        let text = text.with_context(|| format!("{} is not UTF-8", path.display()))?;
        Ok(text.to_owned())
    }

    /// The content of a hidden file, by its path in `.slabfs`.
    pub(crate) fn hidden(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let path = self.root.join(".slabfs").join(path);
        std::fs::read(&path).with_context(|| format!("reading {}", path.display()))
    }

    /// The tags of a path on the mount, with their types.
    pub(crate) fn tags(&self, inside: &str) -> anyhow::Result<Map<String, Value>> {
        let mut request = json!({ "op": "tags", "path": inside, "typed": true, "after": "" });
        let mut all = Map::new();
        loop {
            let mut page = self.call(&request)?;
            if let Some(Value::Object(tags)) = page.get_mut("tags").map(Value::take) {
                all.extend(tags);
            }
            match page.get_mut("next").map(Value::take) {
                Some(Value::String(next)) => request["after"] = Value::String(next),
                _ => return Ok(all),
            }
        }
    }

    /// Sends a request, and returns the value of `ok` in the reply.
    pub(crate) fn call(&self, request: &Value) -> anyhow::Result<Value> {
        let path = self.root.join(".slabfs/call");
        let with = || format!("asking the mount through {}", path.display());
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.with_context(with)?;
        file.write_all_at(request.to_string().as_bytes(), 0)
            .with_context(with)?;
        let mut reply = vec![0; REPLY];
        let mut len = 0;
        loop {
            match file
                .read_at(&mut reply[len..], len as u64)
                .with_context(with)?
            {
                0 => break,
                read => len += read,
            }
        }
        let mut reply: Value = serde_json::from_slice(&reply[..len]).with_context(with)?;
        if let Some(text) = reply.get("error").and_then(Value::as_str) {
            return Err(anyhow!("{text}"));
        }
        reply
            .get_mut("ok")
            .map(Value::take)
            .with_context(|| format!("{} gave no answer", path.display()))
    }
}

/// A text attribute of slabfs itself, such as `user.slabfs.info`.
pub(crate) fn attribute(path: &Path, name: &str) -> anyhow::Result<String> {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    let with = || format!("reading the attribute {name} of {}", path.display());
    let (place, key) = (
        CString::new(path.as_os_str().as_bytes()).with_context(with)?,
        CString::new(name).with_context(with)?,
    );
    let mut bytes = vec![0_u8; 64 << 10];
    // SAFETY: two C strings, and a buffer of that many bytes.
    let len = unsafe {
        libc::getxattr(
            place.as_ptr(),
            key.as_ptr(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
        )
    };
    match usize::try_from(len) {
        Ok(len) => String::from_utf8(bytes[..len].to_vec()).with_context(with),
        Err(_) => Err(std::io::Error::last_os_error()).with_context(with),
    }
}
