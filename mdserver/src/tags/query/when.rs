//! Parses points in time: `2026-11`, `2026-11-22`, `2026-11-22T10:30:05.25+01:00`, `-2d`.
//!
//! An incomplete time is a span: `2026-11-22` is that entire day. Times without a zone are UTC. The days of a date
//! are computed as in H. Hinnant, `days_from_civil` (<https://howardhinnant.github.io/date_algorithms.html>).

use std::cmp::Ordering;

use crate::api::Time;

const SECOND: i128 = 1_000_000_000;

/// A span of time, or a duration before now. Two are equal if they are written equally.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct When {
    pub(super) text: String,
    at: At,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum At {
    /// From the first to the last nanosecond since 1970.
    Span(i128, i128),
    /// This many nanoseconds before the search.
    Ago(i128),
}

const WRONG: &str = "a time is written 2026-11-22, 2026-11-22T10:30, 2026-11-22T10:30:00+01:00 (else UTC), or -2d for two days ago (w, d, h, m, s)";

impl When {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let at = match text.strip_prefix('-') {
            Some(ago) => read_ago(ago).map(At::Ago),
            None => read_span(text).map(|(first, last)| At::Span(first, last)),
        };
        let text = text.to_owned();
        let at = at.ok_or_else(|| WRONG.to_owned())?;
        Ok(Self { text, at })
    }

    pub(super) fn is_relative(&self) -> bool {
        matches!(self.at, At::Ago(_))
    }

    /// How a time compares: it is less if before the entire span, greater if after it.
    pub(super) fn order_of(&self, time: Time, now: Time) -> Ordering {
        let time = nanoseconds(time);
        let (first, last) = match self.at {
            At::Span(first, last) => (first, last),
            At::Ago(ago) => (nanoseconds(now) - ago, nanoseconds(now) - ago),
        };
        if time < first {
            Ordering::Less
        } else if time > last {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    }
}

fn nanoseconds(time: Time) -> i128 {
    i128::from(time.sec) * SECOND + i128::from(time.nsec)
}

fn read_ago(text: &str) -> Option<i128> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return None,
    };
    let digits = &text[..text.len() - 1];
    let number = number(digits, 1, 9)?;
    Some(i128::from(number) * seconds * SECOND)
}

/// Exactly this many digits.
fn number(digits: &str, least: usize, most: usize) -> Option<i64> {
    let length = (least..=most).contains(&digits.len());
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    (length && plain).then(|| digits.parse().ok())?
}

fn bounded(digits: &str, low: i64, high: i64) -> Option<i64> {
    number(digits, 2, 2).filter(|number| (low..=high).contains(number))
}

fn read_span(text: &str) -> Option<(i128, i128)> {
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let year = number(parts.next()?, 4, 4)?;
    let month = bounded(parts.next()?, 1, 12)?;
    let day = parts.next();
    if parts.next().is_some() {
        return None;
    }
    let start = |day: i64| i128::from(days(year, month, day)) * 86_400 * SECOND;
    let length = month_length(year, month);
    let Some(day) = day else {
        let span = start(1)..start(length + 1);
        return time.is_none().then_some((span.start, span.end - 1));
    };
    let day = bounded(day, 1, length)?;
    let Some(time) = time else {
        return Some((start(day), start(day + 1) - 1));
    };
    let (time, zone) = read_zone(time)?;
    let (from, length) = read_time(time)?;
    let from = start(day) + from - zone;
    Some((from, from + length - 1))
}

/// The time without its zone, and the offset of the zone.
fn read_zone(time: &str) -> Option<(&str, i128)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let Some(at) = time.rfind(['+', '-']) else {
        return Some((time, 0));
    };
    let (time, zone) = time.split_at(at);
    let (hours, minutes) = match (zone.get(1..3)?, zone.get(3..)?) {
        (hours, "") => (hours, "00"),
        (hours, minutes) => (hours, minutes.strip_prefix(':').unwrap_or(minutes)),
    };
    let ahead = bounded(hours, 0, 23)? * 3600 + bounded(minutes, 0, 59)? * 60;
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    Some((time, i128::from(sign * ahead) * SECOND))
}

/// The start within the day, and the length of the span.
fn read_time(time: &str) -> Option<(i128, i128)> {
    let mut parts = time.split(':');
    let hour = bounded(parts.next()?, 0, 23)?;
    let minute = bounded(parts.next()?, 0, 59)?;
    let minutes = i128::from(hour * 60 + minute);
    let seconds = parts.next();
    if parts.next().is_some() {
        return None;
    }
    let Some(seconds) = seconds else {
        return Some((minutes * 60 * SECOND, 60 * SECOND));
    };
    let (full, part) = match seconds.split_once('.') {
        Some((full, part)) => (full, Some(part)),
        None => (seconds, None),
    };
    let full = i128::from(bounded(full, 0, 59)?);
    let from = (minutes * 60 + full) * SECOND;
    let Some(part) = part else {
        return Some((from, SECOND));
    };
    let unit = 10i128.pow(9u32.checked_sub(u32::try_from(part.len()).ok()?)?);
    let part = i128::from(number(part, 1, 9)?);
    Some((from + part * unit, unit))
}

fn month_length(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date; the day may be one beyond the month.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sec: i64, nsec: u32) -> Time {
        Time { sec, nsec }
    }

    /// First and last second as printed by `date -u -d … +%s`.
    #[test]
    fn dates() {
        for (text, first, last) in [
            ("1970-01-01", 0, 86_399),
            ("2000-02-29", 951_782_400, 951_868_799),
            ("2026-11-22", 1_795_305_600, 1_795_391_999),
            ("2026-11", 1_793_491_200, 1_796_083_199),
            ("2026-12", 1_796_083_200, 1_798_761_599),
            ("1969-12-31", -86_400, -1),
            ("0001-01-01", -62_135_596_800, -62_135_510_401),
            ("2026-11-22T10:30", 1_795_343_400, 1_795_343_459),
            ("2026-11-22 10:30:05Z", 1_795_343_405, 1_795_343_405),
            ("2026-11-22T10:30:05+01:00", 1_795_339_805, 1_795_339_805),
            ("2026-11-22T10:30:05-0130", 1_795_348_805, 1_795_348_805),
        ] {
            let when = When::parse(text).unwrap();
            let order = |sec, nsec| when.order_of(at(sec, nsec), at(0, 0));
            assert_eq!(order(first - 1, 999_999_999), Ordering::Less, "{text}");
            assert_eq!(order(first, 0), Ordering::Equal, "{text}");
            assert_eq!(order(last, 999_999_999), Ordering::Equal, "{text}");
            assert_eq!(order(last + 1, 0), Ordering::Greater, "{text}");
        }
        let when = When::parse("1970-01-01T00:00:00.25").unwrap();
        assert_eq!(when.order_of(at(0, 249_999_999), at(0, 0)), Ordering::Less);
        assert_eq!(when.order_of(at(0, 259_999_999), at(0, 0)), Ordering::Equal);
        assert_eq!(
            when.order_of(at(0, 260_000_000), at(0, 0)),
            Ordering::Greater
        );
    }

    #[test]
    fn a_while_ago() {
        let when = When::parse("-2d").unwrap();
        let now = at(1_000_000, 5);
        assert_eq!(when.order_of(at(827_200, 4), now), Ordering::Less);
        assert_eq!(when.order_of(at(827_200, 5), now), Ordering::Equal);
        assert_eq!(when.order_of(at(827_200, 6), now), Ordering::Greater);
        // A clock that was set back.
        assert_eq!(when.order_of(at(0, 0), at(i64::MIN, 0)), Ordering::Greater);
    }

    #[test]
    fn invalid_times_are_refused() {
        for text in [
            "",
            "-",
            "-d",
            "-2",
            "-2x",
            "-2.5d",
            "-1234567890d",
            "2026",
            "2026-1-1",
            "2026-13-01",
            "2026-02-29",
            "2026-11-31",
            "2026-11-22T",
            "2026-11-22T24:00",
            "2026-11-22T10",
            "2026-11-22T10:60",
            "2026-11-22T10:00:60",
            "2026-11-22T10:00:00.",
            "2026-11T10:00",
            "2026-11-22T10:00+25:00",
            "2026-11-22T10:00+1",
            "2026-11-22-01",
            "2026-11-22T10:00:00.1234567890",
            "-2ä",
            "2026-11-2ä",
            "yesterday",
            "2026-11-22T10:00+ä:00",
        ] {
            assert!(When::parse(text).is_err(), "{text}");
        }
    }
}
