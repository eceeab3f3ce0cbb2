//! Time by which leases end, for those who have to stop when one does.
//!
//! It goes on while the machine sleeps, which an [`Instant`] does not: the metadata service may be on
//! another machine, and gives away meanwhile what was leased here. Nobody can set it.

use std::{
    ops::Add,
    sync::LazyLock,
    time::{Duration, Instant},
};

use nix::time::{ClockId, clock_gettime};

/// A moment since the machine was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

/// For a kernel that has no such clock.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Moment {
    /// This one.
    pub fn now() -> Moment {
        match clock_gettime(ClockId::CLOCK_BOOTTIME) {
            Ok(time) => Moment(time.into()),
            Err(_) => Moment(BEGUN.elapsed()),
        }
    }

    /// The time since this moment; zero when it is still to come.
    pub fn elapsed(self) -> Duration {
        Moment::now().since(self)
    }

    /// The time from `earlier` to this moment; zero when that is later.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// So long before; nothing before the machine was started.
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
    fn it_never_goes_back_and_is_not_behind_the_clock_that_stands_still() {
        let (moment, instant) = (Moment::now(), Instant::now());
        let later = moment + Duration::from_nanos(5);
        assert_eq!(later.since(moment), Duration::from_nanos(5));
        assert_eq!(moment.since(later), Duration::ZERO);
        assert_eq!(later.checked_sub(Duration::from_nanos(5)), Some(moment));
        let behind = instant.elapsed();
        assert!(moment.elapsed() >= behind && Moment::now() >= moment);
        // Nothing comes after the end of time.
        assert_eq!((moment + Duration::MAX).elapsed(), Duration::ZERO);
    }
}
