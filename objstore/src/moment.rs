//! Time for leases, for parts that must stop when a lease ends.
//!
//! It advances while the machine is suspended, which an [`Instant`] does not: the metadata service may be on another
//! machine, which meanwhile grants to others what was leased here. It cannot be set.

use std::{
    ops::Add,
    sync::LazyLock,
    time::{Duration, Instant},
};

use nix::time::{ClockId, clock_gettime};

/// A point in time, counted from the boot of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

/// The reference for a kernel without that clock.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Moment {
    /// The current time.
    pub fn now() -> Moment {
        match clock_gettime(ClockId::CLOCK_BOOTTIME) {
            Ok(time) => Moment(time.into()),
            Err(_) => Moment(BEGUN.elapsed()),
        }
    }

    /// The time since this moment; zero if it is in the future.
    pub fn elapsed(self) -> Duration {
        Moment::now().since(self)
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This moment minus `time`; `None` before the boot.
    pub fn checked_sub(self, time: Duration) -> Option<Moment> {
        self.0.checked_sub(time).map(Moment)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_monotonic_and_not_behind_instant() {
        let (moment, instant) = (Moment::now(), Instant::now());
        let later = moment + Duration::from_nanos(5);
        assert_eq!(later.since(moment), Duration::from_nanos(5));
        assert_eq!(moment.since(later), Duration::ZERO);
        assert_eq!(later.checked_sub(Duration::from_nanos(5)), Some(moment));
        let behind = instant.elapsed();
        assert!(moment.elapsed() >= behind && Moment::now() >= moment);
        // Addition saturates.
        assert_eq!((moment + Duration::MAX).elapsed(), Duration::ZERO);
    }
}
