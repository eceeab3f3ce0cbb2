//! 64 regions of 4 MiB, each in a buffer of its own, written and read by `start_all` and `wait_all`.

use std::time::{Duration, Instant};

use slabfs_fs::session::{Object, start_all};

use super::{Case, REPEATS, Setup, labels, rate, rows, through};
use crate::memory;
use crate::table::Table;

const COUNT: u64 = 64;
const BYTES: u64 = 4 << 20;
/// Free memory that a write needs: the replaced chunks are deleted after the commit.
const FRESH: u64 = 2 * COUNT * BYTES;

/// The cases and their state.
pub(super) struct Regions<'a> {
    setup: &'a Setup,
    object: Object,
    buffers: Vec<Vec<u8>>,
}

impl<'a> Regions<'a> {
    pub(super) fn new(setup: &'a Setup) -> anyhow::Result<Regions<'a>> {
        Ok(Regions {
            setup,
            object: setup.create("regions", &[COUNT, BYTES])?,
            buffers: vec![memory::buffer(BYTES as usize); COUNT as usize],
        })
    }

    /// The time of a write; after a sleep, if there is one, the remaining time to wait.
    fn write(&mut self, sleep: Option<Duration>) -> anyhow::Result<Duration> {
        memory::touch(FRESH)?;
        let mut begun = Instant::now();
        let buffers = std::mem::take(&mut self.buffers);
        let mut all = rows(&self.object, 0, buffers, true)?;
        start_all(&mut all)?;
        if let Some(sleep) = sleep {
            std::thread::sleep(sleep);
            begun = Instant::now();
        }
        self.buffers = through(all)?;
        let time = begun.elapsed();
        // Delete the replaced chunks before the next measurement.
        self.object.sync()?;
        Ok(time)
    }

    fn read(&mut self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let buffers = std::mem::take(&mut self.buffers);
        self.buffers = through(rows(&self.object, 0, buffers, false)?)?;
        Ok(begun.elapsed())
    }
}

impl Case for Regions<'_> {
    fn round(&mut self, round: u32, table: &mut Table) -> anyhow::Result<()> {
        if round == 0 {
            // The object's first chunks, and every buffer's pages.
            self.write(None)?;
            self.read()?;
        }
        for repeat in 0..2 * REPEATS {
            let mut note = |what: &str, column, time| {
                let speed = rate(COUNT * BYTES, time);
                table.add(&labels(what, BYTES), "MiB/s", column, speed);
            };
            if !(repeat + round).is_multiple_of(2) {
                let mut raw = self.setup.raw.borrow_mut();
                note("regions written", "raw", raw.write(&mut self.buffers)?);
                note("regions read", "raw", raw.read(&mut self.buffers)?);
                continue;
            }
            let written = self.write(None)?;
            note("regions written", "slabfs", written);
            note("regions read", "slabfs", self.read()?);
            let left = self.write(Some(written))?;
            let share = 1.0 - left.as_secs_f64() / written.as_secs_f64();
            let hidden = labels("hidden by a sleep", BYTES);
            table.add(&hidden, "%", "slabfs", 100.0 * share);
        }
        Ok(())
    }
}
