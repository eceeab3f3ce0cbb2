//! Regions of 3 KiB, 64 per start: rows of an array, cyclically.

use std::time::{Duration, Instant};

use slabfs_fs::session::Object;

use super::{Case, Setup, TransferArgs, labels, rows, through};
use crate::memory::buffer;
use crate::table::Table;

const BYTES: usize = 3 << 10;
const TOGETHER: u64 = 64;
/// Rows of the array: 48 MiB.
const ROWS: u64 = 256 * TOGETHER;

/// The case and its state.
pub(super) struct Small {
    object: Object,
    time: Duration,
    buffers: Vec<Vec<u8>>,
    next: u64,
}

impl Small {
    pub(super) fn new(args: &TransferArgs, setup: &Setup) -> anyhow::Result<Small> {
        let mut small = Small {
            object: setup.create("small", &[ROWS, BYTES as u64])?,
            time: Duration::from_secs(args.seconds),
            buffers: vec![buffer(BYTES); TOGETHER as usize],
            next: 0,
        };
        // All rows are written before any is read.
        for _ in 0..ROWS / TOGETHER {
            small.start(true)?;
        }
        Ok(small)
    }

    fn start(&mut self, is_write: bool) -> anyhow::Result<()> {
        let buffers = std::mem::take(&mut self.buffers);
        self.buffers = through(rows(&self.object, self.next, buffers, is_write)?)?;
        self.next = (self.next + TOGETHER) % ROWS;
        Ok(())
    }
}

impl Case for Small {
    fn round(&mut self, _round: u32, table: &mut Table) -> anyhow::Result<()> {
        for (what, is_write) in [("small written", true), ("small read", false)] {
            let (mut times, begun) = (Vec::new(), Instant::now());
            while begun.elapsed() < self.time {
                let one = Instant::now();
                self.start(is_write)?;
                times.push(one.elapsed());
            }
            let rate = (times.len() as u64 * TOGETHER) as f64 / begun.elapsed().as_secs_f64();
            times.sort();
            let millis = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1e3;
            let numbers = [
                ("slabfs", rate),
                ("p50 ms", millis(50)),
                ("p99 ms", millis(99)),
            ];
            for (column, number) in numbers {
                table.add(&labels(what, BYTES as u64), "region/s", column, number);
            }
        }
        Ok(())
    }
}
