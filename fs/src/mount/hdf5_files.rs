//! `.slabfs/h5`: containers, and objects, as HDF5 files.
//!
//! What such a file has besides elements is laid out by the HDF5 library, in the program `slabfs-formats` next to this one: a
//! mount needs no libraries of formats, and does not end if one crashes. When a file is opened,
//!
//! 1. the container is walked, once: what the caller may read of it, with its tags, to a depth of [`DEPTH`];
//! 2. if the result is that of an earlier open, that one's file is used again; the newest few are remembered. An inode that
//!    was opened before with another result is stale, and the kernel looks the name up again;
//! 3. otherwise `slabfs-formats skeleton` lays it out, and says where the elements of each array begin;
//! 4. the open file is composed of these bytes and the objects (`composed.rs`).
//!
//! A lookup of the name gives an inode that was not opened yet, whose size is known once it was opened; so the size of a
//! file that is open never changes. Before, it is 0.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use fuser::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use slabfs_mdserver::api::{Ino, Kind, MdError};

use super::composed::Composed;
use super::errno::{Outcome, refused};
use super::ops::views::{is_own, object};
use super::shared::Shared;
use crate::call;
use crate::call::access::{Want, allows};
use crate::client::FsError;
use crate::view::describe;
use crate::view::made::{self, Form, Hdf5File, Layout};

/// Files that are remembered.
const REMEMBERED: usize = 4;
/// Most bytes of a file that is remembered, without elements.
const MOST_REMEMBERED: u64 = 32 << 20;
/// Containers nested deeper are not in a file.
const DEPTH: usize = 50;
/// Most bytes of the names and tags of a file.
const MOST_TEXT: usize = 64 << 20;
/// How long `slabfs-formats` may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Most objects and containers of a file.
const MOST: usize = 200_000;
/// Most bytes of what a file has besides elements.
const MOST_BYTES: u64 = 128 << 20;
/// Entries of a container that are asked for at a time.
const PAGE: u32 = 1024;

/// The files that were laid out last, by what they were made of.
#[derive(Debug, Default)]
pub(super) struct Hdf5Files {
    remembered: Mutex<Vec<Arc<Layout>>>,
    /// Held while a file is laid out: equal ones are laid out once, and one process runs at a time. It has the last file
    /// for which that failed, and when.
    laying: Mutex<Option<([u8; 32], Instant)>>,
    /// Inodes that were looked up and not opened.
    unopened: Mutex<HashMap<Ino, Weak<Hdf5File>>>,
}

impl Hdf5Files {
    /// A file that was not opened yet.
    pub(super) fn unopened(&self, of: Ino) -> Arc<Hdf5File> {
        let mut unopened = self.unopened.lock();
        unopened.retain(|_, file| file.strong_count() > 0);
        if let Some(file) = unopened.get(&of).and_then(Weak::upgrade)
            && file.layout.get().is_none()
        {
            return file;
        }
        let file = Arc::new(Hdf5File {
            of,
            layout: OnceLock::new(),
        });
        unopened.insert(of, Arc::downgrade(&file));
        file
    }

    fn find(&self, key: &[u8; 32]) -> Option<Arc<Layout>> {
        let remembered = self.remembered.lock();
        remembered.iter().find(|known| known.key == *key).cloned()
    }
}

/// What a walk has found.
#[derive(Default)]
struct Walked {
    /// The objects by their paths.
    objects: HashMap<String, (Ino, Form)>,
    entries: usize,
    /// Bytes of names and tags.
    text: usize,
}

/// What `slabfs-formats skeleton` says.
#[derive(Deserialize)]
struct Laid {
    size: u64,
    parts: Vec<(u64, u64)>,
    elements: HashMap<String, u64>,
}

/// Opens a file.
pub(super) fn open(
    shared: &Arc<Shared>,
    caller: &call::Caller,
    opener: (u64, u32),
    file: &Hdf5File,
) -> Outcome<Composed> {
    let layout = laid_out(shared, caller, file.of)?;
    let of_inode = file.layout.get_or_init(|| layout.clone());
    if of_inode.key != layout.key {
        return refused(
            Errno::ESTALE,
            "this inode is another file, of an earlier time or another user",
        );
    }
    Ok(composed(opener, &layout))
}

fn laid_out(shared: &Arc<Shared>, caller: &call::Caller, of: Ino) -> Outcome<Arc<Layout>> {
    let mut walked = Walked::default();
    let entry = shared.client.getattr(of)?;
    let json = match entry.attr.kind {
        Kind::Directory
            if !allows(&entry.attr, caller, Want::Read)
                || !allows(&entry.attr, caller, Want::Search) =>
        {
            return refused(Errno::EACCES, "the container may not be read and searched");
        }
        Kind::Directory => container(shared, caller, (of, 0), "", &mut walked)?,
        _ => {
            let name = "data";
            let array = array(shared, of, name, name, &mut walked)?;
            json!({ "tags": {}, "arrays": [array], "containers": [] })
        }
    };
    let text = json.to_string();
    let key: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    if let Some(layout) = shared.hdf5.find(&key) {
        return Ok(layout);
    }
    let begun = Instant::now();
    let mut failed = shared.hdf5.laying.lock();
    if let Some(layout) = shared.hdf5.find(&key) {
        return Ok(layout);
    }
    if failed.is_some_and(|(known, at)| known == key && at > begun) {
        return refused(Errno::EIO, "the view cannot be made; the log says why");
    }
    let laid = run(text, key, walked.objects);
    *failed = laid.is_err().then(|| (key, Instant::now()));
    let layout = Arc::new(laid?);
    let parts = layout.parts.iter().map(|(_, part)| part.len() as u64);
    if parts.sum::<u64>() <= MOST_REMEMBERED {
        let mut remembered = shared.hdf5.remembered.lock();
        remembered.insert(0, layout.clone());
        remembered.truncate(REMEMBERED);
    }
    Ok(layout)
}

/// A container as `slabfs-formats` takes it.
fn container(
    shared: &Shared,
    caller: &call::Caller,
    (ino, depth): (Ino, usize),
    path: &str,
    walked: &mut Walked,
) -> Outcome<Value> {
    let (mut arrays, mut containers) = (Vec::new(), Vec::new());
    let mut cookie = 0;
    loop {
        let page = shared.client.read_dir(ino, cookie, PAGE)?;
        let Some(last) = page.last() else { break };
        cookie = last.cookie;
        for entry in &page {
            let attr = &entry.entry.attr;
            let Ok(name) = std::str::from_utf8(&entry.name) else {
                continue;
            };
            if is_own(&entry.name) {
                continue;
            }
            walked.entries += 1;
            if walked.entries > MOST {
                return refused(
                    Errno::EFBIG,
                    "the container has too many objects for a file",
                );
            }
            let below = match path.is_empty() {
                true => name.to_owned(),
                false => format!("{path}/{name}"),
            };
            match attr.kind {
                Kind::Directory
                    if depth < DEPTH
                        && allows(attr, caller, Want::Read)
                        && allows(attr, caller, Want::Search) =>
                {
                    let at = (attr.ino, depth + 1);
                    let mut inner = container(shared, caller, at, &below, walked)?;
                    inner["name"] = json!(name);
                    containers.push(inner);
                }
                Kind::Object if allows(attr, caller, Want::Read) => {
                    match array(shared, attr.ino, name, &below, walked) {
                        Ok(array) => arrays.push(array),
                        // Removed meanwhile.
                        Err(super::errno::Failure::Client(FsError::Md(MdError::NotFound))) => {}
                        Err(error) => return Err(error),
                    }
                }
                _ => {}
            }
        }
    }
    let tags = tags(shared, ino, walked)?;
    Ok(json!({ "tags": tags, "arrays": arrays, "containers": containers }))
}

/// The tags of an object or container.
fn tags(shared: &Shared, ino: Ino, walked: &mut Walked) -> Outcome<Map<String, Value>> {
    let tags = shared.client.md(ino).tags(ino)?;
    let bytes = tags
        .iter()
        .map(|(key, tag)| key.len() + tag.bytes.len() + 64);
    walked.text += bytes.sum::<usize>();
    if walked.text > MOST_TEXT {
        return refused(Errno::EFBIG, "the container has too many tags for a file");
    }
    Ok(made::tags(tags))
}

fn array(shared: &Shared, ino: Ino, name: &str, path: &str, walked: &mut Walked) -> Outcome<Value> {
    let (attr, info) = object(shared, ino)?;
    let tags = tags(shared, ino, walked)?;
    walked.text += path.len() + 256;
    walked
        .objects
        .insert(path.to_owned(), (ino, Form::of(&info)));
    // Without what changes with the data.
    let all = describe::object(&attr, &info, 0);
    let of = ["ino", "kind", "dtype", "dims", "max_dims", "fill"];
    let info: Map<String, Value> = of
        .into_iter()
        .map(|key| (key.to_owned(), all[key].clone()))
        .collect();
    Ok(json!({ "name": name, "info": info, "tags": tags }))
}

/// Has the file laid out.
fn run(text: String, key: [u8; 32], objects: HashMap<String, (Ino, Form)>) -> Outcome<Layout> {
    let failed = |what: &'static str, error: &dyn std::fmt::Display| {
        tracing::warn!(%error, "a view as HDF5: {what}");
        super::errno::Failure::Refused {
            errno: Errno::EIO,
            why: "the view cannot be made; the log says why",
        }
    };
    let program = std::env::current_exe().map_err(|error| failed("this program", &error))?;
    let program = program.with_file_name("slabfs-formats");
    let mut child = Command::new(&program)
        .arg("skeleton")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            failed(
                "slabfs-formats, which belongs next to slabfs, cannot be run",
                &error,
            )
        })?;
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let writer =
        std::thread::spawn(move || input.map(|mut input| input.write_all(text.as_bytes())));
    let reader = std::thread::spawn(move || {
        let mut said = String::new();
        // What it said before an error of the pipe is still worth a line.
        let _ = errors.map(|errors| errors.take(1 << 16).read_to_string(&mut said));
        said
    });
    let id = child.id();
    let (ended, end) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        // The process is not waited for before this ends, so its number is not that of another one.
        if end.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout)
            && let Some(id) = i32::try_from(id).ok().map(Pid::from_raw)
        {
            let _ = kill(id, Signal::SIGKILL);
        }
    });
    let mut bytes = Vec::new();
    let read = output.map(|output| output.take(2 * MOST_BYTES).read_to_end(&mut bytes));
    drop(ended);
    let _ = watch.join();
    let status = child.wait();
    // A program that has failed has not read everything.
    let _ = writer.join();
    let said = reader.join().unwrap_or_default();
    match (read, status) {
        (Some(Ok(_)), Ok(status)) if status.success() => {}
        (_, status) => {
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            return Err(failed(
                "slabfs-formats failed",
                &format!("{status}: {said}"),
            ));
        }
    }
    layout(&bytes, key, objects).ok_or_else(|| failed("slabfs-formats", &"it gave no file"))
}

/// Reads what `slabfs-formats` gave.
fn layout(bytes: &[u8], key: [u8; 32], objects: HashMap<String, (Ino, Form)>) -> Option<Layout> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let laid: Laid = serde_json::from_slice(&bytes[..end]).ok()?;
    let mut rest = &bytes[end + 1..];
    let mut parts = Vec::with_capacity(laid.parts.len());
    for (at, len) in laid.parts {
        let (part, more) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        parts.push((at, Arc::new(part.to_vec())));
        rest = more;
    }
    let mut elements = Vec::with_capacity(laid.elements.len());
    for (path, at) in laid.elements {
        let (ino, form) = objects.get(&path)?;
        elements.push((at, *ino, form.clone()));
    }
    elements.sort_unstable_by_key(|(at, ..)| *at);
    let mut after = 0;
    for (at, _, form) in &elements {
        // Elements of two objects do not overlap.
        if *at < after {
            return None;
        }
        after = at.checked_add(form.bytes())?;
    }
    let size = laid.size.max(after);
    Some(Layout {
        key,
        size,
        parts,
        elements,
    })
}

fn composed(opener: (u64, u32), layout: &Layout) -> Composed {
    let mut file = Composed::new(opener.0, opener.1);
    for (at, ino, form) in &layout.elements {
        file = up_to(file, layout, *at).with_object(*ino, form.clone());
    }
    up_to(file, layout, layout.size)
}

/// Adds everything that is not elements up to an offset.
fn up_to(mut file: Composed, layout: &Layout, end: u64) -> Composed {
    while file.size() < end {
        let at = file.size();
        let after = layout.parts.partition_point(|(begin, _)| *begin <= at);
        let part = after.checked_sub(1).map(|before| &layout.parts[before]);
        let here = part.filter(|(begin, bytes)| at < begin + bytes.len() as u64);
        file = match here {
            Some((begin, bytes)) => {
                let from = (at - begin) as usize;
                let len = (bytes.len() - from).min((end - at) as usize);
                file.with_part(bytes, from, len)
            }
            None => {
                let next = layout.parts.get(after).map_or(end, |(begin, _)| *begin);
                file.with_zeros(next.min(end) - at)
            }
        };
    }
    file
}

#[cfg(test)]
mod tests {
    use slabfs_model::ObjectId;

    use super::*;

    const KEY: [u8; 32] = [0; 32];

    #[test]
    fn parts_and_elements_have_their_places() {
        let form = |len| Form {
            dims: vec![len],
            elem: 1,
        };
        let objects = [("a", 1, 5), ("b", 2, 3)]
            .map(|(path, ino, len)| (path.to_owned(), (ObjectId(ino), form(len))));
        let objects = HashMap::from(objects);
        let line = |elements: &str| {
            let head = r#"{"size": 40, "parts": [[0, 12], [30, 4]], "elements": "#;
            format!("{head}{elements}}}\nhead of filetail").into_bytes()
        };
        let found = layout(&line(r#"{"a": 10, "b": 20}"#), KEY, objects.clone()).expect("a layout");
        let file = composed((7, 1), &found);
        assert_eq!(file.size(), 40);
        assert!(
            layout(&line(r#"{"a": 10, "b": 12}"#), KEY, objects.clone()).is_none(),
            "overlap"
        );
        assert!(layout(&line(r#"{"c": 10}"#), KEY, objects.clone()).is_none());
        assert!(layout(b"{}", KEY, objects).is_none());
    }
}
