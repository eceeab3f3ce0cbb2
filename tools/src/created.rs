//! What a start creates before it can be refused: a log file, and directories. A refused start removes them again.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A file and directories that are removed when this is dropped without [`Created::keep`]. A directory that is not empty
/// stays, and so does everything that existed before.
#[derive(Debug, Default)]
pub(crate) struct Created {
    file: Option<PathBuf>,
    /// Parents before their subdirectories.
    dirs: Vec<PathBuf>,
}

impl Created {
    /// Creates a directory with its missing parents, of this mode.
    pub(crate) fn directory(path: &Path, mode: u32) -> io::Result<Created> {
        let path = std::path::absolute(path)?;
        let missing: Vec<&Path> = path.ancestors().take_while(|dir| !dir.exists()).collect();
        let mut created = Created::default();
        for dir in missing.into_iter().rev() {
            match fs::DirBuilder::new().mode(mode).create(dir) {
                Ok(()) => created.dirs.push(dir.to_owned()),
                // By another process, meanwhile.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(created)
    }

    /// Notes a file that is about to be created; nothing if it exists.
    pub(crate) fn file(mut self, path: &Path) -> Created {
        let is_new = fs::symlink_metadata(path).is_err();
        self.file = is_new.then(|| path.to_owned());
        self
    }

    /// Leaves everything where it is.
    pub(crate) fn keep(mut self) {
        self.file = None;
        self.dirs.clear();
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        if let Some(file) = &self.file
            && let Err(error) = fs::remove_file(file)
        {
            tracing::debug!("{} stays: {error}", file.display());
        }
        for dir in self.dirs.iter().rev() {
            if let Err(error) = fs::remove_dir(dir) {
                tracing::debug!("{} stays: {error}", dir.display());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_created_is_removed() {
        let tmp = tempfile::tempdir().expect("dir");
        let (log, old) = (tmp.path().join("a/b/log"), tmp.path().join("old"));
        fs::write(&old, "text").expect("file");
        drop(Created::default().file(&old));
        assert!(old.exists());
        let create = || {
            let created = Created::directory(&tmp.path().join("a/b"), 0o755).expect("created");
            let created = created.file(&log);
            fs::write(&log, "text").expect("file");
            created
        };
        drop(create());
        assert!(!tmp.path().join("a").exists());
        let created = create();
        fs::write(tmp.path().join("a/other"), "").expect("file");
        drop(created);
        assert!(tmp.path().join("a/other").exists() && !tmp.path().join("a/b").exists());
        create().keep();
        assert!(log.exists());
    }
}
