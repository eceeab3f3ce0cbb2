//! One writer process of the demonstration, and the check of the written data.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::Serialize;

/// Name of the hidden subcommand that runs one writer.
pub(crate) const WRITER_COMMAND: &str = "demo-writer";
/// Elements on each side of the array.
const SIDE: u64 = 16;
/// Bytes of an element.
const ELEM: u64 = 4;

/// A box of elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    row: u64,
    column: u64,
    rows: u64,
    columns: u64,
}

const fn block(row: u64, column: u64, rows: u64, columns: u64) -> Block {
    Block {
        row,
        column,
        rows,
        columns,
    }
}

/// The second set of selections of the document.
pub(super) const SELECTIONS: [Block; 4] = [
    block(0, 0, 10, 9),
    block(0, 9, 7, 7),
    block(10, 0, 6, 9),
    block(7, 9, 9, 7),
];

/// How a writer writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    /// Row by row with `pwrite` to the plain file.
    Rows,
    /// In one piece to a selection path.
    Copy,
}

impl Way {
    /// As on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Rows => "rows",
            Way::Copy => "copy",
        }
    }

    /// For people.
    pub(super) fn explained(self) -> &'static str {
        match self {
            Way::Rows => "each writer writes its rows with pwrite",
            Way::Copy => "each writer copies its block to a selection path",
        }
    }
}

/// One writer.
#[derive(Debug, clap::Args)]
pub(crate) struct WriterArgs {
    /// The array
    #[arg(long)]
    object: PathBuf,
    /// Which of the four
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..4))]
    writer: u8,
    /// How it writes
    #[arg(long)]
    way: Way,
}

impl Block {
    /// As a selection: `[0:10,0:9]`.
    pub(super) fn text(self) -> String {
        let (row_end, column_end) = (self.row + self.rows, self.column + self.columns);
        format!("[{}:{row_end},{}:{column_end}]", self.row, self.column)
    }

    fn row_bytes(self, row: u64) -> Vec<u8> {
        (self.column..self.column + self.columns)
            .flat_map(|column| element(row, column))
            .collect()
    }

    fn bytes(self) -> Vec<u8> {
        (self.row..self.row + self.rows)
            .flat_map(|row| self.row_bytes(row))
            .collect()
    }

    fn path(self, object: &Path) -> PathBuf {
        let mut name = object.as_os_str().to_owned();
        name.push("@");
        name.push(self.text());
        PathBuf::from(name)
    }
}

/// A value that encodes its position and contains no zero byte, as a hole would.
fn element(row: u64, column: u64) -> [u8; 4] {
    (0x0101_0101 + (row * SIDE + column) as u32).to_le_bytes()
}

/// Writes one selection and closes the file.
pub(crate) fn write(args: &WriterArgs) -> anyhow::Result<()> {
    let block = SELECTIONS[usize::from(args.writer)];
    match args.way {
        Way::Rows => {
            let file = open(&args.object)?;
            for row in block.row..block.row + block.rows {
                let offset = (row * SIDE + block.column) * ELEM;
                file.write_all_at(&block.row_bytes(row), offset)
                    .with_context(|| format!("writing {}", args.object.display()))?;
            }
            close(file, &args.object)
        }
        Way::Copy => {
            let path = block.path(&args.object);
            let mut file = open(&path)?;
            file.write_all(&block.bytes())
                .with_context(|| format!("writing {}", path.display()))?;
            close(file, &path)
        }
    }
}

fn open(path: &Path) -> anyhow::Result<File> {
    OpenOptions::new()
        .write(true)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}

/// Closes and checks the result, which dropping a file does not.
fn close(file: File, path: &Path) -> anyhow::Result<()> {
    use std::os::fd::IntoRawFd;
    nix::unistd::close(file.into_raw_fd()).with_context(|| format!("closing {}", path.display()))
}

/// Reads the entire array, and each of the writers' selections, and compares every byte.
pub(super) fn verify(object: &Path) -> anyhow::Result<()> {
    let all = block(0, 0, SIDE, SIDE).bytes();
    compare(object, &all)?;
    SELECTIONS
        .iter()
        .try_for_each(|block| compare(&block.path(object), &block.bytes()))
}

fn compare(path: &Path, wanted: &[u8]) -> anyhow::Result<()> {
    let read = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let differs = read.iter().zip(wanted).position(|(a, b)| a != b);
    ensure!(
        read.len() == wanted.len() && differs.is_none(),
        "{} reads back wrong: {} bytes for {}, first difference at {differs:?}",
        path.display(),
        read.len(),
        wanted.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selections_cover_the_array_once() {
        let mut seen = vec![0; (SIDE * SIDE) as usize];
        for block in SELECTIONS {
            for row in block.row..block.row + block.rows {
                for column in block.column..block.column + block.columns {
                    seen[(row * SIDE + column) as usize] += 1;
                }
            }
        }
        assert!(seen.iter().all(|&times| times == 1));
        let sizes: Vec<usize> = SELECTIONS.iter().map(|block| block.bytes().len()).collect();
        assert_eq!(sizes, [360, 196, 216, 252]);
    }

    #[test]
    fn writers_fill_a_plain_file() {
        let dir = tempfile::tempdir().expect("dir");
        let object = dir.path().join("object");
        File::create(&object).expect("file");
        for writer in 0..4 {
            write(&WriterArgs {
                object: object.clone(),
                writer,
                way: Way::Rows,
            })
            .expect("written");
        }
        compare(&object, &block(0, 0, SIDE, SIDE).bytes()).expect("the same bytes");
        std::fs::write(&object, b"short").expect("file");
        assert!(compare(&object, &block(0, 0, SIDE, SIDE).bytes()).is_err());
    }
}
