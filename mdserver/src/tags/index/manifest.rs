//! The manifest: names the runs of the index, and the commit up to which it is complete.
//!
//! It is replaced completely, by a rename, when the runs and their names are durable: a crash leaves the state before
//! or the state after. Runs that it does not name are leftovers.

use super::IndexError;
use super::bytes::{le32, le64, seal, unseal};
use crate::kv::Lsn;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

const MAGIC: &[u8; 8] = b"SLABTAGI";
const VERSION: u32 = 1;
const FIXED: usize = 48;
/// Longer than any manifest: runs are few.
const MAX_BYTES: u64 = 1 << 20;
const NAME: &str = "current";
const TEMP: &str = "current.tmp";

/// The content of the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manifest {
    /// What was indexed, and how its entries are made, as defined by the owner.
    pub(super) identity: [u8; 16],
    /// The last commit that the index contains.
    pub(super) lsn: Lsn,
    /// No run has this number or a greater one.
    pub(super) next: u64,
    /// Number and length in bytes of each run, newest first.
    pub(super) runs: Vec<(u64, u64)>,
}

impl Manifest {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(self.runs.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.identity);
        bytes.extend_from_slice(&self.lsn.0.to_le_bytes());
        bytes.extend_from_slice(&self.next.to_le_bytes());
        for (number, len) in &self.runs {
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(&len.to_le_bytes());
        }
        seal(&mut bytes);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = unseal(bytes)?;
        let count = le32(bytes, 12)? as usize;
        let listed = bytes.get(FIXED..)?;
        if listed.len() != count.checked_mul(16)? {
            return None;
        }
        let runs = listed.chunks_exact(16);
        let manifest = Self {
            identity: bytes.get(16..32)?.try_into().ok()?,
            lsn: Lsn(le64(bytes, 32)?),
            next: le64(bytes, 40)?,
            runs: runs
                .map(|run| Some((le64(run, 0)?, le64(run, 8)?)))
                .collect::<Option<_>>()?,
        };
        let known = manifest
            .runs
            .iter()
            .all(|&(number, _)| number < manifest.next);
        known.then_some(manifest)
    }

    /// Reads the manifest of `dir`; `None` if there is none.
    pub(super) fn read(dir: &Path, identity: [u8; 16]) -> Result<Option<Self>, IndexError> {
        let path = dir.join(NAME);
        let mut bytes = Vec::new();
        match File::open(&path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(IndexError::io("read", &path, &error)),
            Ok(_) => {}
        }
        let foreign = |detail: String| IndexError::Foreign {
            path: path.clone(),
            detail,
        };
        match (bytes.starts_with(MAGIC), le32(&bytes, 8)) {
            (true, Some(VERSION)) => {}
            (true, Some(version)) if unseal(&bytes).is_some() => {
                return Err(foreign(format!(
                    "format version {version}; this program reads {VERSION}"
                )));
            }
            _ => return Err(IndexError::damaged(&path, 0, "it is no manifest")),
        }
        let manifest = Self::decode(&bytes);
        let manifest = manifest.ok_or_else(|| {
            IndexError::damaged(&path, 0, "its checksum or its counts do not fit")
        })?;
        if manifest.identity != identity {
            return Err(foreign(
                "it was made for another store, or its entries were made in another way".to_owned(),
            ));
        }
        Ok(Some(manifest))
    }

    /// Makes this the manifest of `dir`, durably; all names in `dir` are durable then, too.
    pub(super) fn write(&self, dir: &Path) -> Result<(), IndexError> {
        let (temp, path) = (dir.join(TEMP), dir.join(NAME));
        let written = File::create(&temp).and_then(|mut file| {
            file.write_all(&self.encode())?;
            file.sync_all()
        });
        written.map_err(|error| IndexError::io("write", &temp, &error))?;
        // The names of the runs first: the new manifest must not become durable before them.
        sync_dir(dir)?;
        fs::rename(&temp, &path).map_err(|error| IndexError::io("name", &path, &error))?;
        sync_dir(dir)
    }
}

/// Makes the names in `dir` durable.
fn sync_dir(dir: &Path) -> Result<(), IndexError> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|error| IndexError::io("sync", dir, &error))
}

/// Removes files of an index in `dir`: all except the manifest and the runs it names, or all of them without a
/// manifest.
pub(super) fn clean(dir: &Path, manifest: Option<&Manifest>) -> Result<(), IndexError> {
    let failed = |error: io::Error| IndexError::io("list", dir, &error);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        let run = name
            .strip_prefix("run-")
            .and_then(|digits| digits.parse::<u64>().ok());
        let wanted = match (manifest, run) {
            (_, None) => name != TEMP && (manifest.is_some() || name != NAME),
            (None, Some(_)) => false,
            (Some(manifest), Some(number)) => manifest.runs.iter().any(|run| run.0 == number),
        };
        if !wanted {
            remove(&dir.join(&*name))?;
        }
    }
    Ok(())
}

/// Removes a file; a missing one is no error.
pub(super) fn remove(path: &Path) -> Result<(), IndexError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(IndexError::io("remove", path, &error))
        }
        _ => Ok(()),
    }
}
