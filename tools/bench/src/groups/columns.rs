//! A large 2-D array written as misaligned blocks and read by columns: the pattern for which slabfs exists. On
//! slabfs through selection paths; elsewhere by rows of a flat file, with the same bytes.

use std::fs::File;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::{GroupArgs, remove};
use crate::args;
use crate::memory::buffer;
use crate::search::mix;
use crate::systems::{Kind, System};
use crate::table::Table;

/// Bytes of an element.
const ELEM: u64 = 4;
/// Columns that are read at once.
const COLUMNS: u64 = 64;

/// A box of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    row: u64,
    column: u64,
    rows: u64,
    columns: u64,
}

/// One round of the group.
pub(super) fn run(args: &GroupArgs, systems: &[&System], table: &mut Table) -> anyhow::Result<()> {
    // The same number of elements per block in both.
    let (side, cuts) = if args.quick { (4096, 8) } else { (16_384, 32) };
    let blocks = tiling(side, cuts);
    // A null filesystem has no data to check, and memory and disk show nothing that bindfs does not.
    let measured = |system: &&&System| system.kind == Kind::Bindfs || system.kind.is_slabfs();
    for system in systems.iter().filter(measured) {
        let path = system.dirs[0].join("columns");
        let access = Access {
            path: &path,
            side,
            selections: system.kind.is_slabfs(),
        };
        if access.selections {
            system.declare(&path, &format!("{side},{side}"), "aligned")?;
        } else {
            let file = File::create_new(&path).context("creating the flat file")?;
            file.set_len(side * side * ELEM)
                .context("sizing the flat file")?;
        }
        let written = access.write_all(&blocks)?;
        let read = access.read_all()?;
        for (what, time) in [("write", written), ("read", read), ("both", written + read)] {
            let labels = ["columns".into(), "".into(), 0.into(), 1.into(), what.into()];
            table.add(&labels, "s", &args::name(system.kind), time.as_secs_f64());
        }
        remove(&[path])?;
    }
    Ok(())
}

/// Cuts a square into `cuts` × `cuts` blocks of uneven sizes whose edges are not aligned: the bands of rows are
/// uneven, and every band has its own cuts of the columns.
fn tiling(side: u64, cuts: u64) -> Vec<Block> {
    let rows = edges(side, cuts, 1);
    let mut blocks = Vec::new();
    for (band, row) in rows.windows(2).enumerate() {
        for column in edges(side, cuts, band as u64 + 2).windows(2) {
            blocks.push(Block {
                row: row[0],
                column: column[0],
                rows: row[1] - row[0],
                columns: column[1] - column[0],
            });
        }
    }
    blocks
}

fn edges(side: u64, cuts: u64, seed: u64) -> Vec<u64> {
    let width = side / cuts;
    let moved = |cut| cut * width + mix(seed * cuts + cut) % (width / 2);
    let mut edges = vec![0];
    edges.extend((1..cuts).map(moved));
    edges.push(side);
    edges
}

/// One kind of access to the same array.
struct Access<'a> {
    path: &'a Path,
    side: u64,
    selections: bool,
}

/// The requests for a block: the file, the offset of the first, their distance, and the bytes of each.
struct Requests {
    path: PathBuf,
    first: u64,
    every: u64,
    bytes: usize,
}

impl Access<'_> {
    /// One request for a selection path, or one for each row of a flat file.
    fn requests(&self, block: Block) -> Requests {
        let (row, width) = (self.side * ELEM, block.columns * ELEM);
        if !self.selections {
            return Requests {
                path: self.path.to_owned(),
                first: block.row * row + block.column * ELEM,
                every: row,
                bytes: width as usize,
            };
        }
        let (rows, columns) = (block.row + block.rows, block.column + block.columns);
        let selected = format!("@[{}:{rows},{}:{columns}]", block.row, block.column);
        let mut path = self.path.as_os_str().to_owned();
        path.push(selected);
        Requests {
            path: path.into(),
            first: 0,
            every: 0,
            bytes: (block.rows * width) as usize,
        }
    }

    /// Writes all blocks; returns the time of the system calls only, from open to close.
    fn write_all(&self, blocks: &[Block]) -> anyhow::Result<Duration> {
        let mut time = Duration::ZERO;
        for &block in blocks {
            let (bytes, requests) = (block.bytes(self.side), self.requests(block));
            let what = || format!("writing {}", requests.path.display());
            let started = Instant::now();
            let file = File::options().write(true).open(&requests.path);
            let file = file.with_context(what)?;
            for (number, part) in (0..).zip(bytes.chunks_exact(requests.bytes)) {
                let at = requests.first + number * requests.every;
                file.write_all_at(part, at).with_context(what)?;
            }
            nix::unistd::close(file.into_raw_fd()).with_context(what)?;
            time += started.elapsed();
        }
        Ok(time)
    }

    /// Reads all columns, 64 at a time; returns the time of the system calls only. Every byte is checked.
    fn read_all(&self) -> anyhow::Result<Duration> {
        let mut time = Duration::ZERO;
        let mut bytes = buffer((self.side * COLUMNS * ELEM) as usize);
        for column in (0..self.side).step_by(COLUMNS as usize) {
            let block = Block {
                row: 0,
                column,
                rows: self.side,
                columns: COLUMNS,
            };
            let requests = self.requests(block);
            let what = || format!("reading {}", requests.path.display());
            let started = Instant::now();
            let file = File::open(&requests.path).with_context(what)?;
            for (number, part) in (0..).zip(bytes.chunks_exact_mut(requests.bytes)) {
                let at = requests.first + number * requests.every;
                file.read_exact_at(part, at).with_context(what)?;
            }
            drop(file);
            time += started.elapsed();
            ensure!(
                bytes == block.bytes(self.side),
                "columns {column}.. read back wrong"
            );
        }
        Ok(time)
    }
}

impl Block {
    /// The block's bytes: every element encodes its position.
    fn bytes(self, side: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity((self.rows * self.columns * ELEM) as usize);
        for row in self.row..self.row + self.rows {
            let first = row * side + self.column;
            // Never zero, and below 2^32 for the sizes used here.
            let values = first..first + self.columns;
            bytes.extend(values.flat_map(|value| (value as u32 | 1 << 31).to_le_bytes()));
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_the_square_once() {
        let blocks = tiling(512, 8);
        assert_eq!(blocks.len(), 64);
        assert_eq!(
            blocks.iter().map(|b| b.rows * b.columns).sum::<u64>(),
            512 * 512
        );
        assert!(blocks.iter().all(|b| b.rows > 0 && b.columns > 0));
        assert!(blocks.iter().any(|b| b.column % 64 != 0));
    }

    #[test]
    fn a_flat_file_contains_the_written_data() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("flat");
        File::create(&path)
            .expect("file")
            .set_len(256 * 256 * ELEM)
            .expect("size");
        let access = Access {
            path: &path,
            side: 256,
            selections: false,
        };
        access.write_all(&tiling(256, 4)).expect("written");
        access.read_all().expect("read back");
    }
}
