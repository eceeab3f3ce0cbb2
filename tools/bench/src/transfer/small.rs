//! Regions of 3 KiB, 64 per start: rows of an array, cyclically.

use std::sync::Arc;
use std::time::{Duration, Instant};

use slabfs_fs::client::Handle;

use super::house::Cluster;
use super::regions::{reads, through, writes};
use super::table::Table;
use super::{Case, TransferArgs};

const BYTES: usize = 3 << 10;
const TOGETHER: u64 = 64;
/// Rows of the array: 48 MiB.
const ROWS: u64 = 256 * TOGETHER;

/// The case and its state.
pub(super) struct Small {
    handle: Arc<Handle>,
    time: Duration,
    buffers: Vec<Vec<u8>>,
    next: u64,
}

impl Small {
    pub(super) fn new(args: &TransferArgs, cluster: &Cluster) -> anyhow::Result<Small> {
        let mut small = Small {
            handle: cluster.create("small", &[ROWS, BYTES as u64])?,
            time: Duration::from_secs(args.seconds),
            buffers: vec![crate::load::buffer(BYTES); TOGETHER as usize],
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
        let all = match is_write {
            true => writes(&self.handle, self.next, buffers)?,
            false => reads(&self.handle, self.next, buffers)?,
        };
        self.buffers = through(all)?;
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
            let case = (what, BYTES as u64);
            table.add(case, "region/s", "slabfs", rate);
            table.add(case, "region/s", "p50 ms", millis(50));
            table.add(case, "region/s", "p99 ms", millis(99));
        }
        Ok(())
    }
}
