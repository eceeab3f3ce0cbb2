//! Searches data directories by content: the tests know formats, not paths.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// All regular files below a directory.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => dirs.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// Every occurrence of `bytes` in files below a directory.
pub fn find(dir: &Path, bytes: &[u8]) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for path in files(dir) {
        let content = std::fs::read(&path).unwrap_or_default();
        let mut from = 0;
        while let Some(at) = position(&content[from..], bytes) {
            found.push((path.clone(), (from + at) as u64));
            from += at + 1;
        }
    }
    found
}

fn position(content: &[u8], bytes: &[u8]) -> Option<usize> {
    let (&first, rest) = bytes.split_first()?;
    let mut from = 0;
    while let Some(at) = content[from..].iter().position(|&byte| byte == first) {
        if content[from + at + 1..].starts_with(rest) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

/// Inverts all bits of one byte of a file.
///
/// # Panics If the file has no such byte.
pub fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("the file to damage");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)
        .expect("the byte to damage");
    file.write_all_at(&[!byte[0]], at).expect("damaging");
}

/// The files of the metadata journal below a directory, in the order of their numbers.
///
/// # Panics If there are none.
pub fn journals(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<(u64, PathBuf)> = files(dir)
        .into_iter()
        .filter_map(|path| {
            let head = std::fs::read(&path).ok()?;
            // docs/formats/journal.md: magic at 0, the file's number at 48.
            head.starts_with(b"SLABJRNL").then(|| {
                let number = head
                    .get(48..56)
                    .and_then(|bytes| bytes.try_into().ok())
                    .map_or(0, u64::from_le_bytes);
                (number, path)
            })
        })
        .collect();
    assert!(!found.is_empty(), "no journal below {}", dir.display());
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// The directory of sled, which has a file `conf` and a file `db`.
///
/// # Panics If there is none.
pub fn sled(dir: &Path) -> PathBuf {
    files(dir)
        .into_iter()
        .filter(|path| path.ends_with("db"))
        .filter_map(|path| path.parent().map(Path::to_owned))
        .find(|parent| parent.join("conf").exists())
        .unwrap_or_else(|| panic!("no sled below {}", dir.display()))
}

/// Bytes that files below a directory take on the disk.
pub fn used(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    files(dir)
        .iter()
        .filter_map(|path| path.metadata().ok())
        .map(|meta| meta.blocks() * 512)
        .sum()
}
