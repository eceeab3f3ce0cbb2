//! A large 2-D array written as misaligned blocks and read by columns: the pattern for which slabfs exists. On
//! slabfs through selection paths; elsewhere by rows of a flat file, with the same bytes.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::args::Args;
use crate::load;
use crate::results::{Case, Results, Unit};
use crate::systems::{Kind, System, Systems};

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
pub(crate) fn run(
    args: &Args,
    systems: &Systems,
    round: u32,
    results: &mut Results,
) -> anyhow::Result<()> {
    // The same number of elements per block in both.
    let (side, cuts) = if args.quick { (4096, 8) } else { (16_384, 32) };
    let blocks = tiling(side, cuts);
    // A null filesystem has no data to check, and memory and disk show nothing that bindfs does not.
    let measured = |system: &&System| matches!(system.kind, Kind::Bindfs | Kind::Up | Kind::Split);
    for system in systems.in_rotation(round).filter(measured) {
        let path = system.dir.join("columns");
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
            let case = Case {
                group: "columns",
                form: "",
                request: 0,
                jobs: 1,
                what,
                unit: Unit::Seconds,
            };
            results.add(case, system.kind, time.as_secs_f64());
        }
        load::remove(std::slice::from_ref(&path))?;
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
    let mut random = load::Random::new(seed);
    let mut edges: Vec<u64> = (0..cuts)
        .map(|cut| {
            cut * width
                + if cut == 0 {
                    0
                } else {
                    random.next() % (width / 2)
                }
        })
        .collect();
    edges.push(side);
    edges
}

/// One kind of access to the same array.
struct Access<'a> {
    path: &'a Path,
    side: u64,
    selections: bool,
}

impl Access<'_> {
    /// Writes all blocks; returns the time of the system calls only, from open to close.
    fn write_all(&self, blocks: &[Block]) -> anyhow::Result<Duration> {
        let mut time = Duration::ZERO;
        for block in blocks {
            let bytes = block.bytes(self.side);
            let started = Instant::now();
            if self.selections {
                let path = self.selection(*block);
                let file = OpenOptions::new().write(true).open(&path);
                let file = file.with_context(|| format!("opening {}", path.display()))?;
                file.write_all_at(&bytes, 0)
                    .with_context(|| format!("writing {}", path.display()))?;
                load::close(file, &path)?;
            } else {
                let file = OpenOptions::new()
                    .write(true)
                    .open(self.path)
                    .context("opening the file")?;
                let width = (block.columns * ELEM) as usize;
                for (row, part) in (block.row..).zip(bytes.chunks_exact(width)) {
                    let at = (row * self.side + block.column) * ELEM;
                    file.write_all_at(part, at).context("writing a row")?;
                }
                load::close(file, self.path)?;
            }
            time += started.elapsed();
        }
        Ok(time)
    }

    /// Reads all columns, 64 at a time; returns the time of the system calls only. Every byte is checked.
    fn read_all(&self) -> anyhow::Result<Duration> {
        let mut time = Duration::ZERO;
        let width = (COLUMNS * ELEM) as usize;
        let mut bytes = load::buffer(self.side as usize * width);
        for column in (0..self.side).step_by(COLUMNS as usize) {
            let block = Block {
                row: 0,
                column,
                rows: self.side,
                columns: COLUMNS,
            };
            let started = Instant::now();
            if self.selections {
                let path = self.selection(block);
                let file =
                    File::open(&path).with_context(|| format!("opening {}", path.display()))?;
                file.read_exact_at(&mut bytes, 0)
                    .with_context(|| format!("reading {}", path.display()))?;
            } else {
                let file = File::open(self.path).context("opening the file")?;
                for (row, part) in (0..).zip(bytes.chunks_exact_mut(width)) {
                    file.read_exact_at(part, (row * self.side + column) * ELEM)
                        .context("reading a part of a row")?;
                }
            }
            time += started.elapsed();
            ensure!(
                bytes == block.bytes(self.side),
                "columns {column}.. read back wrong"
            );
        }
        Ok(time)
    }

    fn selection(&self, block: Block) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push(format!(
            "@[{}:{},{}:{}]",
            block.row,
            block.row + block.rows,
            block.column,
            block.column + block.columns
        ));
        PathBuf::from(path)
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
