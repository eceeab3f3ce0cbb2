//! `opened`: how often the store was opened, and whether it was closed cleanly. It is there twice, each copy with a
//! checksum, and both are overwritten in place, one after the other: this must work on a full disk too.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use super::identity::{Copied, damaged};
use super::{Directory, entries, sync_dir};
use crate::checksum::crc32c;
use crate::error::{Result, StoreError};

const FILES: [&str; 2] = ["opened", "opened.copy"];
/// The state after a close with everything on disk.
const CLEAN: &str = "clean";
/// The state while the store is open.
const RUNNING: &str = "running";

/// A number of openings, and the state.
type Opened = (u64, String);

impl Directory {
    /// Increments the count of openings on disk; returns it, and whether the store was closed cleanly before. If it was
    /// not, syncs everything in the directory, so that the data found is durable.
    pub(in crate::store::local) fn note_opening(&self, durable: bool) -> Result<(u64, bool)> {
        let (last, end) = self.last_opening()?;
        // "unsynced" means closed cleanly, but perhaps not on disk.
        if end != CLEAN {
            if end != "unsynced" {
                tracing::warn!("{}: the store was not closed in order", self.path.display());
            }
            if durable {
                let synced = File::open(&self.path)
                    .and_then(|dir| nix::unistd::syncfs(&dir).map_err(io::Error::from));
                synced.map_err(|e| StoreError::from_io("sync", &self.path, &e))?;
            }
        }
        // Otherwise a crash could leave changes that a trusted catalogue does not list.
        let must_last = durable || end == CLEAN;
        let next = last.checked_add(1).ok_or_else(|| {
            let path = self.path.join(FILES[0]);
            StoreError::Invalid(format!(
                "{}: no number follows {last}; write a smaller one",
                path.display()
            ))
        })?;
        self.write_opened(next, RUNNING, must_last)?;
        Ok((next, end == CLEAN))
    }

    /// Marks the store as closed cleanly; everything is on disk.
    pub(in crate::store::local) fn note_clean(&self, durable: bool) -> Result<()> {
        let (count, _) = self.last_opening()?;
        let state = if durable { CLEAN } else { "unsynced" };
        self.write_opened(count, state, durable)
    }

    /// The last opening, by both copies.
    fn last_opening(&self) -> Result<Opened> {
        let [main, copy] = FILES.map(|name| Copied::read(&self.path.join(name), decode));
        let (main, copy) = (main?, copy?);
        let found = match (main.value(), copy.value()) {
            // A crash between two writes leaves them different.
            (Some(one), Some(other)) => match one.0.cmp(&other.0) {
                std::cmp::Ordering::Greater => one.clone(),
                std::cmp::Ordering::Less => other.clone(),
                std::cmp::Ordering::Equal if one.1 == other.1 => one.clone(),
                std::cmp::Ordering::Equal => (one.0, RUNNING.to_owned()),
            },
            // A store of an earlier version has no copy.
            (Some(one), None) => one.clone(),
            // The first copy is written first, so it may have been one opening ahead.
            (None, Some(other)) => (other.0.saturating_add(1), RUNNING.to_owned()),
            (None, None) if main == Copied::Missing && copy == Copied::Missing => {
                // A new store; or one that lost these files, which is then treated as not cleanly closed.
                let is_new = entries(&self.segments())?.is_empty();
                return Ok((0, if is_new { CLEAN } else { RUNNING }.to_owned()));
            }
            (None, None) => {
                let faults = [main.fault(), copy.fault()].map(Option::unwrap_or_default);
                let advice = "write into `opened` the number of times the store was opened, or one that is surely larger";
                return Err(damaged(&self.path, FILES[0], faults, advice));
            }
        };
        let earlier = copy == Copied::Missing;
        for (name, file) in FILES.iter().zip([&main, &copy]) {
            if let Some(why) = file.fault()
                && !(earlier && *file == Copied::Missing && main.value().is_some())
            {
                let path = self.path.join(name);
                tracing::warn!("{}: {why}; repaired from its copy", path.display());
            }
        }
        Ok(found)
    }

    /// Overwrites both files, always with the same length.
    fn write_opened(&self, count: u64, state: &str, durable: bool) -> Result<()> {
        let text = encode(count, state);
        let mut is_new = false;
        for name in FILES {
            let path = self.path.join(name);
            let exists = path.exists();
            let write = || -> io::Result<()> {
                let file = OpenOptions::new()
                    .create(true)
                    .truncate(false)
                    .write(true)
                    .open(&path)?;
                file.write_all_at(text.as_bytes(), 0)?;
                // More may be there after damage.
                if file.metadata()?.len() > text.len() as u64 {
                    file.set_len(text.len() as u64)?;
                }
                if durable { file.sync_all() } else { Ok(()) }
            };
            match write().map_err(|e| StoreError::from_io("write", &path, &e)) {
                Ok(()) => is_new |= !exists,
                // On a full disk one that can be overwritten is enough.
                Err(error @ StoreError::NoSpace) if name == FILES[1] && !exists => {
                    tracing::warn!("there is only one copy of {}: {error}", FILES[0]);
                    std::fs::remove_file(&path).or_else(|e| match e.kind() {
                        io::ErrorKind::NotFound => Ok(()),
                        _ => Err(StoreError::from_io("remove", &path, &e)),
                    })?;
                }
                Err(error) => return Err(error),
            }
        }
        if durable && is_new {
            sync_dir(&self.path)
        } else {
            Ok(())
        }
    }
}

fn encode(count: u64, state: &str) -> String {
    let text = format!("{count:<20} {state:<8} ");
    format!("{text}{:08x}\n", crc32c(text.as_bytes()))
}

fn decode(bytes: &[u8]) -> Copied<Opened> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let value = words.first().and_then(|count| count.parse().ok());
    let value = value.map(|count| (count, words.get(1).unwrap_or(&RUNNING).to_string()));
    match (value, words.as_slice()) {
        (Some(value), [_] | [_, _]) => Copied::Unchecked(value),
        (Some(value), [count, state, _]) => {
            let good = count
                .parse()
                .is_ok_and(|count| encode(count, state).trim_end() == line);
            match good {
                true => Copied::Good(value),
                false => Copied::Damaged("its checksum does not match".to_owned()),
            }
        }
        _ => Copied::Damaged("it does not begin with a number of openings".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Opens a store that is closed cleanly afterwards; returns the number of this opening, and whether the last close
    /// was clean.
    fn open(dir: &Path) -> Result<(u64, bool)> {
        let dir = Directory::open(dir)?;
        let opening = dir.note_opening(true)?;
        dir.note_clean(true)?;
        Ok(opening)
    }

    fn both(dir: &Path) -> [Vec<u8>; 2] {
        FILES.map(|name| fs::read(dir.join(name)).unwrap())
    }

    #[test]
    fn the_example_of_the_page() {
        let page = include_str!("../../../../../docs/formats/chunks.md");
        assert!(page.contains(&encode(17, CLEAN)), "{}", encode(17, CLEAN));
    }

    #[test]
    fn one_copy_is_enough() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path();
        assert_eq!(open(dir).unwrap(), (1, true));
        assert_eq!(open(dir).unwrap(), (2, true));
        let mut last = 2;
        let good = both(dir)[0].clone();
        for (file, name) in FILES.iter().enumerate() {
            for at in 0..=good.len() {
                let mut bytes = both(dir)[0].clone();
                match at < bytes.len() {
                    true => bytes[at] ^= 8,
                    false => bytes.clear(),
                }
                fs::write(dir.join(name), bytes).unwrap();
                let (opening, clean) = open(dir).unwrap();
                assert!(opening > last, "{name}, byte {at}");
                // Of a damaged first file it is not known how the store was closed.
                assert_eq!(clean, file == 1, "{name}, byte {at}");
                last = opening;
                let [one, other] = both(dir);
                assert_eq!((one.len(), &one), (good.len(), &other));
                assert_eq!(open(dir).unwrap(), (last + 1, true));
                last += 1;
            }
        }
        for name in FILES {
            fs::write(dir.join(name), "often").unwrap();
        }
        let error = open(dir).unwrap_err().to_string();
        assert!(
            error.contains("opened is damaged") && error.contains("surely larger"),
            "{error}"
        );
        fs::write(dir.join(FILES[0]), "1000").unwrap();
        assert_eq!(open(dir).unwrap(), (1001, false));
    }

    /// An earlier version wrote one file without a checksum, also after a later version had used the directory.
    #[test]
    fn a_count_without_a_checksum_is_read() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path();
        open(dir).unwrap();
        let earlier = format!("{:<20} {:<8}\n", 7, CLEAN);
        fs::remove_file(dir.join(FILES[1])).unwrap();
        fs::write(dir.join(FILES[0]), &earlier).unwrap();
        assert_eq!(open(dir).unwrap(), (8, true));
        let mut over = both(dir)[0].clone();
        let later = format!("{:<20} {:<8}\n", 12, RUNNING);
        over[..later.len()].copy_from_slice(later.as_bytes());
        fs::write(dir.join(FILES[0]), over).unwrap();
        assert_eq!(open(dir).unwrap(), (13, false));
        assert_eq!(open(dir).unwrap(), (14, true));
    }
}
