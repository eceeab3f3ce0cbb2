//! The store's write verifier ([`ChunkStore::verifier`](crate::ChunkStore::verifier)): a new number when the machine has
//! restarted and the store was not closed cleanly before. A killed process loses nothing: the kernel has what it wrote.
//!
//! The file `verifier` has it, with the boot id of the machine on which the store was open last.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::{Result, StoreError};

/// Where the kernel shows the number of this boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The verifier for this opening of the store in `dir`.
pub(super) fn establish(dir: &Path, is_clean: bool) -> Result<u64> {
    // Without it each opening counts as one after a restart.
    let boot = fs::read_to_string(BOOT_ID).unwrap_or_default();
    let boot = boot.trim();
    let path = dir.join("verifier");
    let known = match fs::read_to_string(&path) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(StoreError::from_io("read", &path, &error)),
    };
    let (verifier, same_boot) = match known {
        Some((verifier, of)) => (Some(verifier), !boot.is_empty() && of == boot),
        None => (None, false),
    };
    let number = match verifier.filter(|_| is_clean || same_boot) {
        Some(number) if same_boot => return Ok(number),
        Some(number) => number,
        None => random()?,
    };
    // If it is lost, the next one is new, which is on the safe side.
    let unfinished = dir.join("verifier.new");
    fs::write(&unfinished, format!("{number:016x} {boot}\n"))
        .and_then(|()| fs::rename(&unfinished, &path))
        .map_err(|error| StoreError::from_io("write", &path, &error))?;
    Ok(number)
}

fn parse(text: &str) -> Option<(u64, String)> {
    let (number, boot) = text.trim_end().split_once(' ')?;
    Some((u64::from_str_radix(number, 16).ok()?, boot.to_owned()))
}

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|e| StoreError::Io {
        what: "draw a verifier".to_owned(),
        detail: e.to_string(),
        errno: None,
    })?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_boot_has_another_verifier_unless_it_was_closed() {
        let dir = tempfile::tempdir().unwrap();
        let first = establish(dir.path(), false).unwrap();
        assert_eq!(establish(dir.path(), false).unwrap(), first);
        let other_boot = || {
            let text = format!("{first:016x} 00000000-0000-0000-0000-000000000000\n");
            fs::write(dir.path().join("verifier"), text).unwrap();
        };
        other_boot();
        assert_eq!(establish(dir.path(), true).unwrap(), first);
        assert_eq!(establish(dir.path(), false).unwrap(), first);
        other_boot();
        assert_ne!(establish(dir.path(), false).unwrap(), first);
        fs::write(dir.path().join("verifier"), "damaged").unwrap();
        assert_ne!(establish(dir.path(), true).unwrap(), first);
    }
}
