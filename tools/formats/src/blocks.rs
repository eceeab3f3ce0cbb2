//! Boxes of arrays on a mount, read and written.
//!
//! A box whose elements follow each other is a part of the file. Any other is a file of its own, `temp@[0:10,3:5]`.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use slabfs_formats::boxes::Block;

/// An open array.
#[derive(Debug)]
pub(crate) struct Array {
    path: PathBuf,
    file: File,
    shape: Vec<u64>,
    elem: u64,
}

impl Array {
    pub(crate) fn open(
        path: &Path,
        writable: bool,
        shape: Vec<u64>,
        elem: u64,
    ) -> anyhow::Result<Array> {
        let file = OpenOptions::new().read(true).write(writable).open(path);
        let file = file.with_context(|| format!("opening {}", path.display()))?;
        Ok(Array {
            path: path.to_owned(),
            file,
            shape,
            elem,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file of a box that is not a part of the array's file.
    fn selection(&self, block: &Block) -> PathBuf {
        let axes = block.start.iter().zip(&block.count);
        let axes: Vec<String> = axes
            .map(|(start, count)| format!("{start}:{}", start + count))
            .collect();
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!("@[{}]", axes.join(",")));
        self.path.with_file_name(name)
    }

    /// Writes a box.
    pub(crate) fn write(&self, block: &Block, bytes: &[u8]) -> anyhow::Result<()> {
        let with = || format!("writing {}", self.path.display());
        match block.offset_in(&self.shape) {
            Some(index) => self.file.write_all_at(bytes, index * self.elem),
            None => OpenOptions::new()
                .write(true)
                .open(self.selection(block))
                .and_then(|file| {
                    file.write_all_at(bytes, 0)?;
                    // It is written back then; to drop it would lose an error.
                    Ok(nix::unistd::close(file)?)
                }),
        }
        .with_context(with)
    }

    /// Reads a box into `out`, which gets exactly its elements.
    pub(crate) fn read(&self, block: &Block, out: &mut Vec<u8>) -> anyhow::Result<()> {
        out.resize((block.elements() * self.elem) as usize, 0);
        let with = || format!("reading {}", self.path.display());
        match block.offset_in(&self.shape) {
            Some(index) => self.file.read_exact_at(out, index * self.elem),
            None => File::open(self.selection(block)).and_then(|file| file.read_exact_at(out, 0)),
        }
        .with_context(with)
    }

    /// Waits until everything that was written is stored.
    pub(crate) fn sync(&self) -> anyhow::Result<()> {
        let with = || format!("storing {}", self.path.display());
        self.file.sync_all().with_context(with)
    }
}
