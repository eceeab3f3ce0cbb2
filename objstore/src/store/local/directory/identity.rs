//! The identity of a directory: the lock, and `FORMAT`, which is there twice.
//!
//! A copy that is damaged or missing is written again from the other one. A directory without either is a new store if
//! it is empty; otherwise it is a store that lost them, or is not one of slabfs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{entries, sync_dir};
use crate::checksum::crc32c;
use crate::error::{Result, StoreError};

const FORMAT: u32 = 1;
const FIRST_LINE: &str = "slabfs chunk store";
/// The file and its copy.
const FILES: [&str; 2] = ["FORMAT", "FORMAT.copy"];
/// The line after the text: the CRC-32C of the text before it. Stores of 2026-11 and earlier have none, and no copy.
const CHECK: &str = "check ";

/// The id of a store.
type Id = [u8; 16];

/// Part of the text about another format.
const NEWER: &str = "and this slabfs reads format";

/// What to do about damage of both.
const RESTORE: &str = "put one of them back from a backup: the chunks are not read without it";

/// What is in one of the two copies of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Copied<T> {
    /// There is no such file.
    Missing,
    /// It is damaged; the text says how.
    Damaged(String),
    /// Readable, without a checksum: an earlier version wrote it.
    Unchecked(T),
    /// Its checksum matches.
    Good(T),
}

impl<T> Copied<T> {
    /// Reads a file, whose bytes `decode` understands.
    pub(super) fn read(path: &Path, decode: impl Fn(&[u8]) -> Copied<T>) -> Result<Copied<T>> {
        match fs::read(path) {
            Ok(bytes) => Ok(decode(&bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Copied::Missing),
            Err(e) => Err(StoreError::from_io("read", path, &e)),
        }
    }

    /// Its value, unless it is damaged or missing.
    pub(super) fn value(&self) -> Option<&T> {
        match self {
            Copied::Unchecked(value) | Copied::Good(value) => Some(value),
            Copied::Missing | Copied::Damaged(_) => None,
        }
    }

    /// What is wrong with it, if anything.
    pub(super) fn fault(&self) -> Option<&str> {
        match self {
            Copied::Missing => Some("missing"),
            Copied::Damaged(why) => Some(why),
            Copied::Unchecked(_) | Copied::Good(_) => None,
        }
    }
}

/// The error for a file of which neither copy can be used.
pub(super) fn damaged(dir: &Path, name: &str, faults: [&str; 2], advice: &str) -> StoreError {
    StoreError::Invalid(format!(
        "{name} is damaged: {} ({}), and so is its copy {name}.copy ({}); {advice}",
        dir.join(name).display(),
        faults[0],
        faults[1]
    ))
}

/// The id of the store in a directory; `None` if the directory is empty or missing, so that a store may be created.
/// Changes nothing.
pub(super) fn find(dir: &Path) -> Result<Option<[u8; 16]>> {
    Ok(read(dir)?.map(|(id, _)| id))
}

/// The id, and what is in the two files.
fn read(dir: &Path) -> Result<Option<(Id, [Copied<Id>; 2])>> {
    let [main, copy] = FILES.map(|name| Copied::read(&dir.join(name), decode));
    let (main, copy) = (main?, copy?);
    // A newer program may have begun to convert the store: its file is not damage to be repaired.
    if let Some(why) = [&main, &copy]
        .iter()
        .filter_map(|file| file.fault())
        .find(|why| why.contains(NEWER))
    {
        let path = dir.join("FORMAT");
        return Err(StoreError::Invalid(format!("{}: {why}", path.display())));
    }
    if main == Copied::Missing && copy == Copied::Missing {
        return strangers(dir).map(|()| None);
    }
    let id = match (&main, &copy) {
        (Copied::Good(one), Copied::Good(other)) if one != other => {
            return Err(StoreError::Invalid(format!(
                "{} and its copy FORMAT.copy are of two different stores; remove the one that does not belong here",
                dir.join("FORMAT").display()
            )));
        }
        (Copied::Good(id), _) | (_, Copied::Good(id)) => *id,
        (Copied::Unchecked(id), _) | (_, Copied::Unchecked(id)) => *id,
        _ if !dir.join("segments").is_dir() => {
            return Err(StoreError::Invalid(format!(
                "{}: this is not the FORMAT file of a slabfs chunk store; choose another directory",
                dir.join("FORMAT").display()
            )));
        }
        (main, copy) => {
            let faults = [main.fault(), copy.fault()].map(Option::unwrap_or_default);
            return Err(damaged(dir, "FORMAT", faults, RESTORE));
        }
    };
    Ok(Some((id, [main, copy])))
}

/// The id of the store in a locked directory, which is created if the directory is empty. Files that are damaged or
/// missing are written again.
pub(super) fn establish(dir: &Path) -> Result<[u8; 16]> {
    let Some((id, files)) = read(dir)? else {
        let id = new_id()?;
        FILES.iter().try_for_each(|name| write(dir, name, id))?;
        return Ok(id);
    };
    // A store of an earlier version has one file, and nothing is wrong with it.
    let earlier = files == [Copied::Unchecked(id), Copied::Missing];
    for (name, file) in FILES.iter().zip(files) {
        if file == Copied::Good(id) {
            continue;
        }
        if !earlier {
            let why = file.fault().unwrap_or("not what its copy says");
            tracing::warn!(
                "{}: {why}; repaired from its copy",
                dir.join(name).display()
            );
        }
        // One is enough to read the store, for instance on a full disk.
        if let Err(error) = write(dir, name, id) {
            tracing::warn!("there is only one copy of FORMAT: {error}");
        }
    }
    Ok(id)
}

fn new_id() -> Result<[u8; 16]> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|e| StoreError::Io {
        what: "draw a store id".to_owned(),
        detail: e.to_string(),
        errno: None,
    })?;
    Ok(id)
}

/// Replaces one of the files.
fn write(dir: &Path, name: &str, id: [u8; 16]) -> Result<()> {
    let (tmp, path) = (dir.join(format!("{name}.tmp")), dir.join(name));
    let write = || -> io::Result<()> {
        let mut file = File::create(&tmp)?;
        file.write_all(encode(id).as_bytes())?;
        file.sync_all()?;
        fs::rename(&tmp, &path)
    };
    write().map_err(|e| StoreError::from_io("create", &path, &e))?;
    sync_dir(dir)
}

/// Refuses a directory that is not a store and not empty.
fn strangers(dir: &Path) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    let strangers: Vec<PathBuf> = entries(dir)?
        .into_iter()
        .filter(|p| {
            !matches!(
                p.file_name().and_then(|n| n.to_str()),
                Some("lock" | "lost+found" | "FORMAT.tmp" | "FORMAT.copy.tmp")
            )
        })
        .collect();
    if strangers.iter().any(|path| path.ends_with("segments")) {
        return Err(damaged(dir, "FORMAT", ["missing"; 2], RESTORE));
    }
    if let Some(stranger) = strangers.first() {
        return Err(StoreError::Invalid(format!(
            "{} is not a chunk store and not empty (it has {}): choose an empty directory",
            dir.display(),
            stranger.display(),
        )));
    }
    Ok(())
}

fn encode(id: [u8; 16]) -> String {
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    let text = format!("{FIRST_LINE}\nformat {FORMAT}\nid {hex}\n");
    let sum = crc32c(text.as_bytes());
    format!("{text}{CHECK}{sum:08x}\n")
}

fn decode(bytes: &[u8]) -> Copied<[u8; 16]> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Copied::Damaged("it is not text".to_owned());
    };
    let Some((before, check)) = text.split_once(&format!("\n{CHECK}")) else {
        return parse(text).map_or_else(Copied::Damaged, Copied::Unchecked);
    };
    let before = format!("{before}\n");
    let sum = u32::from_str_radix(check.trim_end(), 16).ok();
    if sum != Some(crc32c(before.as_bytes())) {
        return Copied::Damaged("its checksum does not match".to_owned());
    }
    parse(&before).map_or_else(Copied::Damaged, Copied::Good)
}

fn parse(text: &str) -> std::result::Result<[u8; 16], String> {
    let mut lines = text.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err(format!("it does not begin with `{FIRST_LINE}`"));
    }
    let version = lines
        .next()
        .and_then(|l| l.strip_prefix("format "))
        .and_then(|v| v.trim().parse::<u32>().ok());
    match version {
        Some(FORMAT) => {}
        Some(other) => {
            return Err(format!(
                "the store has format {other} {NEWER} {FORMAT}: use the slabfs that wrote it, or choose another directory"
            ));
        }
        None => return Err("the line `format N` is missing".to_owned()),
    }
    let hex = lines
        .next()
        .and_then(|l| l.strip_prefix("id "))
        .map_or("", str::trim);
    let digits = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    let id = u128::from_str_radix(hex, 16).ok().filter(|_| digits);
    id.map(u128::to_be_bytes)
        .ok_or_else(|| "the line `id` is not 32 hex digits".to_owned())
}

pub(super) fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("lock");
    let fail = |e: io::Error| StoreError::from_io("lock", &path, &e);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(fail)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut text = String::new();
            // The pid only improves the message.
            let holder = file
                .read_to_string(&mut text)
                .ok()
                .and_then(|_| text.trim().parse().ok());
            return Err(StoreError::Locked {
                dir: dir.to_owned(),
                holder,
            });
        }
        Err(fs::TryLockError::Error(e)) => return Err(fail(e)),
    }
    // Overwritten in place, so that it works on a full disk; if it fails, the lock is still held.
    let pid = format!("{:<10}\n", std::process::id());
    if let Err(error) = file.write_all_at(pid.as_bytes(), 0) {
        tracing::debug!("{}: the pid cannot be written: {error}", path.display());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::Directory;
    use super::*;

    /// The bytes of both files.
    fn both(dir: &Path) -> [Vec<u8>; 2] {
        FILES.map(|name| fs::read(dir.join(name)).unwrap())
    }

    fn write_both(dir: &Path, text: &str) {
        for name in FILES {
            fs::write(dir.join(name), text).unwrap();
        }
    }

    fn refused(dir: &Path) -> String {
        Directory::open(dir).unwrap_err().to_string()
    }

    #[test]
    fn the_example_of_the_page() {
        let text = encode(std::array::from_fn(|at| at as u8));
        let page = include_str!("../../../../../docs/formats/chunks.md");
        assert!(page.contains(&text), "{text}");
    }

    #[test]
    fn one_copy_is_enough() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path();
        let id = Directory::open(dir).unwrap().id();
        let good = both(dir);
        for name in FILES {
            let path = dir.join(name);
            fs::remove_file(&path).unwrap();
            assert_eq!(Directory::open(dir).unwrap().id(), id);
            assert_eq!(both(dir), good, "{name} is there again");
            for at in 0..good[0].len() {
                let mut bytes = good[0].clone();
                bytes[at] ^= 4;
                fs::write(&path, bytes).unwrap();
                assert_eq!(Directory::open(dir).unwrap().id(), id, "{name}, byte {at}");
                assert_eq!(both(dir), good, "{name}, byte {at}");
            }
            for text in [&b""[..], b"\0\0\0\0", &good[0][..40]] {
                fs::write(&path, text).unwrap();
                assert_eq!(Directory::open(dir).unwrap().id(), id);
                assert_eq!(both(dir), good);
            }
        }
    }

    #[test]
    fn damage_of_both_is_reported_as_damage() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path();
        drop(Directory::open(dir).unwrap());
        let text = String::from_utf8(both(dir)[0].clone()).unwrap();
        for (text, why) in [
            (text.replace("id ", "id x"), "checksum does not match"),
            (text.replace("slabfs", "sIabfs"), "checksum does not match"),
            (String::new(), "does not begin with"),
        ] {
            write_both(dir, &text);
            let error = refused(dir);
            assert!(
                error.contains("FORMAT is damaged") && error.contains(why),
                "{error}"
            );
        }
        for name in FILES {
            fs::remove_file(dir.join(name)).unwrap();
        }
        assert!(refused(dir).contains("FORMAT is damaged"));
        // A later version writes its checksum as well.
        let later = text[..text.find(CHECK).unwrap()].replace("format 1", "format 9");
        let later = format!("{later}{CHECK}{:08x}\n", crc32c(later.as_bytes()));
        write_both(dir, &later);
        assert!(refused(dir).contains("use the slabfs that wrote it"));
        // Two stores mixed up.
        fs::write(dir.join(FILES[0]), encode([1; 16])).unwrap();
        fs::write(dir.join(FILES[1]), encode([2; 16])).unwrap();
        assert!(refused(dir).contains("two different stores"));
    }

    /// A store of an earlier version has one file of three lines.
    #[test]
    fn stores_without_checksums_open() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path();
        let id = Directory::open(dir).unwrap().id();
        let good = both(dir);
        let text = String::from_utf8(good[0].clone()).unwrap();
        let earlier = &text[..text.find(CHECK).unwrap()];
        fs::remove_file(dir.join(FILES[1])).unwrap();
        fs::write(dir.join(FILES[0]), earlier).unwrap();
        assert_eq!(Directory::open(dir).unwrap().id(), id);
        assert_eq!(both(dir), good, "with checksums now");
        // What has no checksum is not believed against a copy that has one.
        let other = encode([7; 16]);
        fs::write(dir.join(FILES[0]), &other[..other.find(CHECK).unwrap()]).unwrap();
        assert_eq!(Directory::open(dir).unwrap().id(), id);
    }

    #[test]
    fn a_foreign_directory_stays_as_it_is() {
        let tmp = tempfile::tempdir().unwrap();
        let names = || {
            let mut names = entries(tmp.path()).unwrap();
            names.sort();
            names
        };
        fs::write(tmp.path().join("thesis.tex"), "x").unwrap();
        assert!(refused(tmp.path()).contains("thesis.tex"));
        assert_eq!(names().len(), 1);
        fs::write(tmp.path().join("FORMAT"), "A4\n").unwrap();
        let error = refused(tmp.path());
        assert!(error.contains("choose another directory"), "{error}");
        assert_eq!(names().len(), 2);
    }
}
