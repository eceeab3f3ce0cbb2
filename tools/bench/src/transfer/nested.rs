//! Nested-strided reads: every n-th piece of each row of a matrix, whose rows do not end with a stride, so that
//! the pattern is two loops and not one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use slabfs_fs::session::{Batch, Object, Pattern, Place, Unit};

use super::{Case, REPEATS, Setup, TransferArgs, labels, rate};
use crate::args::needed;
use crate::memory::buffer;
use crate::mpirun;
use crate::table::Table;

/// Pieces of a row.
const INNER: u64 = 1024;
const NAME: &str = "matrix";

/// The cases and their state.
pub(super) struct Nested<'a> {
    args: &'a TransferArgs,
    setup: &'a Setup,
    object: Object,
    path: PathBuf,
    sieve: PathBuf,
    out: Vec<u8>,
}

/// A pattern.
#[derive(Debug, Clone, Copy)]
struct Shape {
    piece: u64,
    stride: u64,
    row: u64,
    bytes: u64,
}

impl Shape {
    fn new(args: &TransferArgs, piece: u64) -> Shape {
        let stride = args.every * piece;
        Shape {
            piece,
            stride,
            row: (INNER + 1) * stride,
            bytes: args.size << 20,
        }
    }

    /// The offsets of the pieces in the object, in order.
    fn places(self) -> impl Iterator<Item = u64> {
        (0..self.rows())
            .flat_map(move |row| (0..INNER).map(move |n| row * self.row + n * self.stride))
    }

    fn rows(self) -> u64 {
        self.bytes / (INNER * self.piece)
    }

    fn batch(self) -> Batch {
        let row = Batch::repeated(
            Place::after(0).every(self.stride as i64),
            Place::after(0).every(self.piece as i64),
            INNER,
            Pattern::Data(self.piece),
        );
        Batch::repeated(
            Place::at(0).every(self.row as i64),
            Place::at(0).every((INNER * self.piece) as i64),
            self.rows(),
            Pattern::Vector(vec![row]),
        )
    }
}

impl<'a> Nested<'a> {
    pub(super) fn new(args: &'a TransferArgs, setup: &'a Setup) -> anyhow::Result<Nested<'a>> {
        ensure!(
            args.pieces
                .iter()
                .all(|piece| piece.is_power_of_two() && (8..=16384).contains(piece)),
            "--pieces are powers of two from 8 to 16384"
        );
        let shapes = args.pieces.iter().map(|&piece| Shape::new(args, piece));
        let ends = shapes.map(|shape| shape.rows() * shape.row);
        let end = ends.max().context("no --pieces")?;
        let object = setup.create(NAME, &[end])?;
        let path = setup.mountpoint.join(NAME);
        fill(&path, end)?;
        let (name, how) = mpirun::PROGRAM;
        Ok(Nested {
            args,
            setup,
            object,
            path,
            sieve: needed(args.sieve.as_ref(), name, how)?,
            out: buffer((args.size << 20) as usize),
        })
    }

    fn batch(&mut self, shape: Shape) -> anyhow::Result<f64> {
        let batch = [shape.batch()];
        self.out.fill(0);
        let begun = Instant::now();
        self.object.read_batch(&batch, Unit::Bytes, &mut self.out)?;
        let time = begun.elapsed();
        check(&self.out, shape)?;
        Ok(rate(shape.bytes, time))
    }

    /// One `pread` per piece. The mount bypasses the page cache: each is a separate request.
    fn preads(&mut self, shape: Shape) -> anyhow::Result<f64> {
        let bytes = shape.bytes.min(self.args.preads * shape.piece);
        let shape = Shape { bytes, ..shape };
        let file = File::open(&self.path).context("opening on the mount")?;
        let out = &mut self.out[..bytes as usize];
        out.fill(0);
        let begun = Instant::now();
        for (piece, at) in out
            .chunks_exact_mut(shape.piece as usize)
            .zip(shape.places())
        {
            file.read_exact_at(piece, at).context("reading a piece")?;
        }
        let time = begun.elapsed();
        check(out, shape)?;
        Ok(rate(bytes, time))
    }

    fn sieving(&self, shape: Shape) -> anyhow::Result<f64> {
        let numbers = [shape.rows(), INNER, shape.piece, shape.stride, shape.row];
        let [rows, inner, piece, stride, row] = numbers.map(|number| number.to_string());
        let nested = "nested".to_owned();
        let seconds = mpirun::seconds(
            &self.sieve,
            1,
            &[&nested, &rows, &inner, &piece, &stride, &row, &self.path],
        )?;
        Ok(rate(shape.bytes, Duration::from_secs_f64(seconds)))
    }

    fn raw(&mut self) -> anyhow::Result<f64> {
        let half = self.out.len() / 2;
        let bytes = self.out.len() as u64;
        let (one, other) = self.out.split_at_mut(half);
        let time = self.setup.raw.borrow_mut().read(&mut [one, other])?;
        Ok(rate(bytes, time))
    }
}

impl Case for Nested<'_> {
    fn round(&mut self, round: u32, table: &mut Table) -> anyhow::Result<()> {
        for &piece in &self.args.pieces {
            let shape = Shape::new(self.args, piece);
            let name = labels("nested read", piece);
            table.add(&name, "MiB/s", "pread", self.preads(shape)?);
            table.add(&name, "MiB/s", "sieving", self.sieving(shape)?);
            for repeat in 0..2 * REPEATS {
                match (repeat + round).is_multiple_of(2) {
                    true => table.add(&name, "MiB/s", "slabfs", self.batch(shape)?),
                    false => table.add(&name, "MiB/s", "raw", self.raw()?),
                }
            }
            let all = shape.bytes / piece;
            if all > self.args.preads {
                let text = format!("pread: the first {} of {all} pieces", self.args.preads);
                table.note(&name, text);
            }
        }
        Ok(())
    }
}

/// The object's value at an offset that is a multiple of 8.
fn word(at: u64) -> [u8; 8] {
    (at / 8)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .to_le_bytes()
}

/// Fills the object through the mount, as one stream: few large chunks.
fn fill(path: &Path, end: u64) -> anyhow::Result<()> {
    let file = File::options().write(true).open(path);
    let file = file.context("opening on the mount")?;
    let mut block = vec![0; 4 << 20];
    let mut at = 0;
    while at < end {
        let len = (end - at).min(block.len() as u64) as usize;
        for (number, into) in (0..).zip(block[..len].chunks_exact_mut(8)) {
            into.copy_from_slice(&word(at + 8 * number));
        }
        file.write_all_at(&block[..len], at).context("writing")?;
        at += len as u64;
    }
    file.sync_all().context("syncing")
}

/// Checks the first and the last word of each piece.
fn check(out: &[u8], shape: Shape) -> anyhow::Result<()> {
    let last = shape.piece - 8;
    for (piece, at) in out.chunks_exact(shape.piece as usize).zip(shape.places()) {
        ensure!(
            piece.starts_with(&word(at)) && piece.ends_with(&word(at + last)),
            "the piece at {at} reads wrong"
        );
    }
    Ok(())
}
