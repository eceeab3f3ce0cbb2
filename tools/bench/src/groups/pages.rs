//! Reads of 4 KiB, where the kernel's page cache matters.
//!
//! `again` opens a file, reads it from its start to its end and closes it, again and again: all but the first time its
//! bytes may be in the kernel. `random` reads each piece of a file once, in random order, after the kernel has dropped the
//! file's pages; `strided` reads every n-th piece, n the number of jobs, of one file. Each job is a thread with an open
//! file of its own.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::GroupArgs;
use crate::clients::rate;
use crate::systems::System;
use crate::table::Table;
use crate::{args, memory};

const PIECE: u64 = 4096;
/// Bytes of the file that is read again and again.
const SMALL: u64 = 4 << 20;

/// One round of the group.
pub(super) fn run(args: &GroupArgs, systems: &[&System], table: &mut Table) -> anyhow::Result<()> {
    let time = Duration::from_millis(if args.quick { 300 } else { 1000 });
    let large: u64 = if args.quick { 32 << 20 } else { 128 << 20 };
    for &jobs in &args.jobs {
        for &system in systems {
            let mut note = |what: &str, rate: f64| {
                let labels = [
                    "pages".into(),
                    "bytes".into(),
                    4.into(),
                    jobs.into(),
                    what.into(),
                ];
                table.add(&labels, "op/s", &args::name(system.kind), rate);
            };
            let path = |name: &str| system.dirs[0].join(format!("pages-{name}"));
            let small: Vec<PathBuf> = (0..jobs).map(|job| path(&format!("small-{job}"))).collect();
            let large_path = path("large");
            memory::touch(2 * (SMALL * jobs as u64 + large))?;
            small.iter().try_for_each(|path| fill(path, SMALL))?;
            fill(&large_path, large)?;
            note("again", again(&mut small.clone(), time)?);
            note("random", cold(&large_path, pieces(large, jobs, true))?);
            note("strided", cold(&large_path, pieces(large, jobs, false))?);
            super::remove(&small)?;
            super::remove(&[large_path])?;
        }
    }
    Ok(())
}

/// Writes a file and closes it.
fn fill(path: &Path, bytes: u64) -> anyhow::Result<()> {
    let file = File::create_new(path).with_context(|| format!("creating {}", path.display()))?;
    let block = memory::buffer(1 << 20);
    for at in (0..bytes).step_by(block.len()) {
        file.write_all_at(&block, at).context("writing")?;
    }
    Ok(())
}

/// Reads per second of files that are opened again and again.
fn again(paths: &mut [PathBuf], time: Duration) -> anyhow::Result<f64> {
    let read = |path: &mut PathBuf| -> anyhow::Result<usize> {
        let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        let mut piece = [0; PIECE as usize];
        let mut done = 0;
        while file.read_at(&mut piece, done * PIECE).context("reading")? > 0 {
            done += 1;
        }
        ensure!(done == SMALL / PIECE, "a file is shorter than written");
        Ok(done as usize)
    };
    paths.iter_mut().try_for_each(|path| read(path).map(drop))?;
    rate(paths, time, |path, _, _| read(path).map(Some))
}

/// The pieces that each job reads, in this order.
fn pieces(bytes: u64, jobs: usize, random: bool) -> Vec<Vec<u64>> {
    let all = bytes / PIECE;
    let jobs = jobs as u64;
    // A permutation: the factor is odd, and the number of pieces a power of two.
    let place = |at: u64| if random { at * 0x9e37_79b1 % all } else { at };
    let of_job = |job| (0..all / jobs).map(|at| place(at * jobs + job)).collect();
    (0..jobs).map(of_job).collect()
}

/// Reads per second of a file of which the kernel has no pages.
fn cold(path: &Path, pieces: Vec<Vec<u64>>) -> anyhow::Result<f64> {
    let open = || File::open(path).with_context(|| format!("opening {}", path.display()));
    let dropped = open()?;
    posix_fadvise(&dropped, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
        .with_context(|| format!("dropping the pages of file {}", dropped.as_raw_fd()))?;
    let mut jobs = Vec::new();
    for pieces in pieces {
        jobs.push((open()?, pieces));
    }
    rate(&mut jobs, Duration::MAX, |(file, pieces), _, at| {
        let Some(&piece) = pieces.get(at as usize) else {
            return Ok(None);
        };
        let mut bytes = [0; PIECE as usize];
        file.read_exact_at(&mut bytes, piece * PIECE)
            .context("reading")?;
        Ok(Some(1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_read_each_piece_once() {
        for random in [true, false] {
            let jobs = pieces(1 << 20, 4, random);
            let mut all: Vec<u64> = jobs.iter().flatten().copied().collect();
            all.sort_unstable();
            assert_eq!(all, (0..256).collect::<Vec<u64>>());
            assert_eq!(jobs[1][..2] == [1, 5], !random);
        }
    }
}
