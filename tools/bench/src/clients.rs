//! Several concurrent clients, for a time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;

/// Lets every client do `step` repeatedly for `time`, all starting at the same moment; returns the number of
/// operations per second by all of them. A step gets its client, the client's number, and its own number, and
/// returns how many operations it did; `None` if there is nothing left to do for this client.
pub(crate) fn rate<C: Send>(
    clients: &mut [C],
    time: Duration,
    step: impl Fn(&mut C, u64, u64) -> anyhow::Result<Option<usize>> + Sync,
) -> anyhow::Result<f64> {
    let barrier = Barrier::new(clients.len());
    let over = AtomicBool::new(false);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(clients.iter_mut())
            .map(|(number, client)| {
                let (barrier, over, step) = (&barrier, &over, &step);
                scope.spawn(move || -> anyhow::Result<(usize, Instant, Instant)> {
                    barrier.wait();
                    let started = Instant::now();
                    let mut done = 0;
                    let mut at = 0;
                    while !over.load(Ordering::Relaxed) && started.elapsed() < time {
                        match step(client, number, at) {
                            Ok(Some(count)) => done += count,
                            Ok(None) => break,
                            Err(error) => {
                                over.store(true, Ordering::Relaxed);
                                return Err(error);
                            }
                        }
                        at += 1;
                    }
                    Ok((done, started, Instant::now()))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut all = Vec::new();
    for outcome in outcomes {
        all.push(outcome.map_err(|_| anyhow!("a client panicked"))??);
    }
    let done: usize = all.iter().map(|one| one.0).sum();
    let first = all.iter().map(|one| one.1).min();
    let last = all.iter().map(|one| one.2).max();
    let took = first
        .zip(last)
        .map_or(Duration::ZERO, |(first, last)| last - first);
    Ok(done as f64 / took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_work_until_they_have_no_more() {
        let mut clients = vec![0; 3];
        let rate = rate(
            &mut clients,
            Duration::from_secs(60),
            |client, number, at| {
                *client += 1;
                Ok((at < 10 * number).then_some(2))
            },
        );
        assert!(rate.expect("a rate") > 0.0);
        assert_eq!(clients, [1, 11, 21]);
        let failed = super::rate(&mut clients, Duration::from_secs(60), |_, _, _| {
            anyhow::bail!("no")
        });
        assert!(failed.is_err());
    }
}
