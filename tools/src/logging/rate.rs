//! A limit on the lines that one log statement writes, so that an error in a loop does not fill a disk.
//!
//! Each log statement may write [`BURST`] lines at once and [`EACH_SECOND`] per second from then on. The number
//! of omitted lines is logged every [`REPORT`]. Lines below `INFO` are written only when requested, and have no
//! limit.

use std::collections::HashMap;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Lines that one statement may write at once.
const BURST: f64 = 50.0;
/// Lines per second that one statement may write in the long run.
const EACH_SECOND: f64 = 1.0;
/// Interval at which the number of omitted lines is logged.
const REPORT: Duration = Duration::from_secs(10);
/// The target of these reports, which have no limit themselves.
const TARGET: &str = "slabfs::log";

/// The limit, as a layer of a subscriber.
pub(super) struct Rate {
    statements: Arc<Mutex<HashMap<Identifier, Statement>>>,
    /// Wakes the reporting thread, which ends when this is dropped.
    wake: SyncSender<()>,
}

/// The token bucket of one statement.
struct Statement {
    metadata: &'static Metadata<'static>,
    lines: f64,
    since: Instant,
    left_out: u64,
}

impl Rate {
    /// Starts the reporting thread.
    pub(super) fn start() -> std::io::Result<Rate> {
        let statements = Arc::<Mutex<HashMap<_, _>>>::default();
        let (wake, woken) = sync_channel(1);
        let counted = statements.clone();
        std::thread::Builder::new()
            .name("slabfs-log".into())
            .spawn(move || {
                while woken.recv().is_ok() {
                    std::thread::sleep(REPORT);
                    report(&counted);
                }
            })?;
        Ok(Rate { statements, wake })
    }

    /// Whether a statement may write a line now.
    fn allows(&self, metadata: &'static Metadata<'static>, now: Instant) -> bool {
        if *metadata.level() > Level::INFO || metadata.target() == TARGET {
            return true;
        }
        let mut statements = locked(&self.statements);
        let statement = statements
            .entry(metadata.callsite())
            .or_insert_with(|| Statement {
                metadata,
                lines: BURST,
                since: now,
                left_out: 0,
            });
        let passed = now.saturating_duration_since(statement.since).as_secs_f64();
        statement.since = now;
        statement.lines = (statement.lines + passed * EACH_SECOND).min(BURST);
        if statement.lines >= 1.0 {
            statement.lines -= 1.0;
            return true;
        }
        statement.left_out += 1;
        if statement.left_out == 1 {
            // An error means that the thread is awake already.
            let _ = self.wake.try_send(());
        }
        false
    }
}

impl<S: Subscriber> Layer<S> for Rate {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.allows(event.metadata(), Instant::now())
    }
}

/// Logs how many lines were omitted since the last call.
fn report(statements: &Mutex<HashMap<Identifier, Statement>>) {
    let left_out: Vec<_> = locked(statements)
        .values_mut()
        .filter(|statement| statement.left_out > 0)
        .map(|statement| (statement.metadata, std::mem::take(&mut statement.left_out)))
        .collect();
    for (metadata, lines) in left_out {
        let (target, line) = (metadata.target(), metadata.line().unwrap_or(0));
        tracing::warn!(target: TARGET, "{lines} more lines of {target} (source line {line}) were left out");
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Counts the lines that are not filtered out.
    #[derive(Clone, Default)]
    struct Count(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Count {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_statement_writes_a_limited_number_of_lines_and_reports_the_rest() {
        let rate = Rate::start().expect("a thread");
        let statements = rate.statements.clone();
        let count = Count::default();
        let written = || count.0.swap(0, Ordering::Relaxed);
        let subscriber = tracing_subscriber::registry()
            .with(count.clone())
            .with(rate);
        tracing::subscriber::with_default(subscriber, || {
            let flood = |lines: usize| (0..lines).for_each(|at| tracing::warn!(at, "a mistake"));
            flood(10_000);
            let first = written();
            assert!((50..60).contains(&first), "{first}");
            // Another statement has its own limit, and debug has none.
            tracing::info!("something else");
            (0..1000).for_each(|_| tracing::debug!("asked for"));
            assert_eq!(written(), 1001);
            report(&statements);
            assert_eq!(written(), 1, "one number for one statement");
            report(&statements);
            assert_eq!(written(), 0);
            // The allowance grows again with time.
            for statement in locked(&statements).values_mut() {
                statement.since -= Duration::from_secs(5);
            }
            flood(100);
            let more = written();
            assert!((5..7).contains(&more), "{more}");
        });
    }
}
