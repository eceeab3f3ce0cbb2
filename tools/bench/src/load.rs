//! The load: threads with plain system calls, as with fio's psync engine, so that only the filesystem is
//! measured. Every request of a write contains its offset, and reads check it.

use std::fs::{File, OpenOptions};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

/// Runs `job` on as many threads as there are items, each with a buffer of its own, all starting at the same
/// moment; the time is from the start of the first to the end of the last.
pub(crate) fn together<T: Sync, R: Send>(
    items: &[T],
    buffer_bytes: usize,
    job: impl Fn(&T, &mut [u8]) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<(Duration, Vec<R>)> {
    let barrier = Barrier::new(items.len());
    let outcomes = std::thread::scope(|scope| {
        let threads: Vec<_> = items
            .iter()
            .map(|item| {
                let (barrier, job) = (&barrier, &job);
                scope.spawn(move || {
                    let mut memory = buffer(buffer_bytes);
                    barrier.wait();
                    let started = Instant::now();
                    let result = job(item, &mut memory);
                    (started, Instant::now(), result)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join())
            .collect::<Vec<_>>()
    });
    let mut results = Vec::new();
    let mut times = Vec::new();
    for outcome in outcomes {
        let (started, ended, result) = outcome.map_err(|_| anyhow::anyhow!("a job panicked"))?;
        results.push(result?);
        times.push((started, ended));
    }
    let first = times.iter().map(|&(started, _)| started).min();
    let last = times.iter().map(|&(_, ended)| ended).max();
    let time = first
        .zip(last)
        .map_or(Duration::ZERO, |(first, last)| last - first);
    Ok((time, results))
}

/// The end of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The file is closed.
    Close,
    /// The file is synced, then closed.
    Sync,
}

/// A request buffer whose pages are allocated, and which has no zeros.
pub(crate) fn buffer(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251 + 1) as u8).collect()
}

/// Writes a file from the start to `bytes` in requests of the size of `buffer`.
pub(crate) fn write(path: &Path, bytes: u64, buffer: &mut [u8], end: End) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).open(path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    let mut at = 0;
    while at < bytes {
        buffer[..8].copy_from_slice(&stamp(at));
        file.write_all_at(buffer, at)
            .with_context(|| format!("writing {}", path.display()))?;
        at += buffer.len() as u64;
    }
    if end == End::Sync {
        file.sync_all()
            .with_context(|| format!("syncing {}", path.display()))?;
    }
    close(file, path)
}

/// Reads a file from the start to `bytes` in requests of the size of `buffer`.
pub(crate) fn read(path: &Path, bytes: u64, buffer: &mut [u8], check: bool) -> anyhow::Result<()> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut at = 0;
    while at < bytes {
        file.read_exact_at(buffer, at)
            .with_context(|| format!("reading {}", path.display()))?;
        ensure!(
            !check || buffer[..8] == stamp(at),
            "{} reads back wrong at {at}",
            path.display()
        );
        at += buffer.len() as u64;
    }
    Ok(())
}

/// Requests of `buffer` at random offsets of a file, for `time`; returns their number.
pub(crate) fn random(
    path: &Path,
    bytes: u64,
    buffer: &mut [u8],
    time: Duration,
    writes: bool,
    seed: u64,
) -> anyhow::Result<u64> {
    let file = OpenOptions::new().read(true).write(writes).open(path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    let places = bytes / buffer.len() as u64;
    let mut random = Random::new(seed);
    let started = Instant::now();
    let mut count = 0_u64;
    loop {
        // The clock is read only now and then: it should not be measured.
        for _ in 0..64 {
            let at = random.next() % places * buffer.len() as u64;
            let done = if writes {
                file.write_all_at(buffer, at)
            } else {
                file.read_exact_at(buffer, at)
            };
            done.with_context(|| format!("at {at} of {}", path.display()))?;
        }
        count += 64;
        if started.elapsed() >= time {
            return Ok(count);
        }
    }
}

/// Closes a file and returns the result of `close`.
pub(crate) fn close(file: File, path: &Path) -> anyhow::Result<()> {
    nix::unistd::close(file.into_raw_fd()).with_context(|| format!("closing {}", path.display()))
}

/// Removes files.
pub(crate) fn remove(paths: &[PathBuf]) -> anyhow::Result<()> {
    paths.iter().try_for_each(|path| {
        std::fs::remove_file(path).with_context(|| format!("removing {}", path.display()))
    })
}

/// The first bytes of a request at `at`; never zeros.
fn stamp(at: u64) -> [u8; 8] {
    (at ^ 0x5aab_f5be_2c1d_9e37).to_le_bytes()
}

/// Random numbers (xorshift64*), the same for the same seed.
pub(crate) struct Random(u64);

impl Random {
    /// A different sequence for every seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_data_is_read_back() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("file");
        File::create(&path).expect("file");
        let mut memory = buffer(4096);
        write(&path, 65536, &mut memory, End::Sync).expect("written");
        read(&path, 65536, &mut memory, true).expect("read");
        assert!(
            random(
                &path,
                65536,
                &mut memory,
                Duration::from_millis(1),
                false,
                1
            )
            .expect("read")
                >= 64
        );
        std::fs::write(&path, vec![0; 65536]).expect("file");
        assert!(read(&path, 65536, &mut memory, true).is_err());
        assert!(read(&path, 65536, &mut memory, false).is_ok());
    }

    #[test]
    fn all_jobs_run() {
        let (_, results) = together(&[1, 2, 3], 1, |item, _| Ok(item * 2)).expect("run");
        assert_eq!(results, [2, 4, 6]);
        assert!(
            together(&[1], 0, |_, _| -> anyhow::Result<()> {
                anyhow::bail!("no")
            })
            .is_err()
        );
    }
}
