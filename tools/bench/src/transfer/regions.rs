//! 64 regions of 4 MiB, each in a buffer of its own, written and read by `start_all` and `wait_all`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use slabfs_fs::client::Handle;
use slabfs_fs::client::transfer::{Memory, Transfer, start_all, wait_all};
use slabfs_model::{Hyperslab, Region};

use super::house::Cluster;
use super::table::{Name, Table};
use super::{Case, REPEATS, rate};
use crate::backing;

const COUNT: u64 = 64;
const BYTES: usize = 4 << 20;
/// Free memory that a write needs: the replaced chunks are deleted after the commit.
const FRESH: u64 = 2 * COUNT * BYTES as u64;
const WRITTEN: Name = ("regions written", BYTES as u64);
const READ: Name = ("regions read", BYTES as u64);
const HIDDEN: Name = ("hidden by a sleep", BYTES as u64);

/// The cases and their state.
pub(super) struct Regions<'a> {
    cluster: &'a Cluster,
    handle: Arc<Handle>,
    buffers: Vec<Vec<u8>>,
}

/// A row of an array of rows.
pub(super) fn row(number: u64, len: usize) -> Hyperslab {
    Hyperslab::from_region(&Region::new(&[number, 0], &[1, len as u64]))
}

/// Transfers of complete rows from `first` on, not started.
pub(super) fn writes(
    handle: &Arc<Handle>,
    first: u64,
    buffers: Vec<Vec<u8>>,
) -> anyhow::Result<Vec<Transfer<Vec<u8>>>> {
    (first..)
        .zip(buffers)
        .map(|(number, buffer)| {
            let row = row(number, buffer.len());
            Ok(handle
                .write_transfer(&row, &Memory::packed(), buffer)
                .map_err(|failed| failed.error)?)
        })
        .collect()
}

/// The same for reading.
pub(super) fn reads(
    handle: &Arc<Handle>,
    first: u64,
    buffers: Vec<Vec<u8>>,
) -> anyhow::Result<Vec<Transfer<Vec<u8>>>> {
    (first..)
        .zip(buffers)
        .map(|(number, buffer)| {
            let row = row(number, buffer.len());
            Ok(handle
                .read_transfer(&row, &Memory::packed(), buffer)
                .map_err(|failed| failed.error)?)
        })
        .collect()
}

/// Starts all of them and waits; returns the buffers.
pub(super) fn through(mut all: Vec<Transfer<Vec<u8>>>) -> anyhow::Result<Vec<Vec<u8>>> {
    start_all(&mut all)?;
    ended(all)
}

fn ended(all: Vec<Transfer<Vec<u8>>>) -> anyhow::Result<Vec<Vec<u8>>> {
    let ends = wait_all(all)?;
    ends.into_iter()
        .map(|end| end.map_err(|failed| failed.error.into()))
        .collect()
}

impl<'a> Regions<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> anyhow::Result<Regions<'a>> {
        let buffers = vec![crate::load::buffer(BYTES); COUNT as usize];
        let handle = cluster.create("regions", &[COUNT, BYTES as u64])?;
        Ok(Regions {
            cluster,
            handle,
            buffers,
        })
    }

    fn write(&mut self) -> anyhow::Result<Duration> {
        backing::touch(FRESH)?;
        let begun = Instant::now();
        self.buffers = through(writes(&self.handle, 0, std::mem::take(&mut self.buffers))?)?;
        let time = begun.elapsed();
        // Delete the replaced chunks before the next measurement.
        self.handle.fsync()?;
        Ok(time)
    }

    fn read(&mut self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        self.buffers = through(reads(&self.handle, 0, std::mem::take(&mut self.buffers))?)?;
        Ok(begun.elapsed())
    }

    /// A write during a sleep: the remaining time to wait.
    fn hidden(&mut self, sleep: Duration) -> anyhow::Result<Duration> {
        backing::touch(FRESH)?;
        let mut all = writes(&self.handle, 0, std::mem::take(&mut self.buffers))?;
        start_all(&mut all)?;
        std::thread::sleep(sleep);
        let begun = Instant::now();
        self.buffers = ended(all)?;
        let left = begun.elapsed();
        self.handle.fsync()?;
        Ok(left)
    }
}

impl Case for Regions<'_> {
    fn round(&mut self, round: u32, table: &mut Table) -> anyhow::Result<()> {
        let bytes = COUNT * BYTES as u64;
        if round == 0 {
            // The object's first chunks, and every buffer's pages.
            self.write()?;
            self.read()?;
        }
        for repeat in 0..2 * REPEATS {
            if !(repeat + round).is_multiple_of(2) {
                let mut raw = self.cluster.raw.borrow_mut();
                let written = raw.write(&mut self.buffers)?;
                let read = raw.read(&mut self.buffers)?;
                table.add(WRITTEN, "MiB/s", "raw", rate(bytes, written));
                table.add(READ, "MiB/s", "raw", rate(bytes, read));
                continue;
            }
            let written = self.write()?;
            let read = self.read()?;
            table.add(WRITTEN, "MiB/s", "slabfs", rate(bytes, written));
            table.add(READ, "MiB/s", "slabfs", rate(bytes, read));
            let left = self.hidden(written)?;
            let share = 1.0 - left.as_secs_f64() / written.as_secs_f64();
            table.add(HIDDEN, "%", "slabfs", 100.0 * share);
        }
        Ok(())
    }
}
