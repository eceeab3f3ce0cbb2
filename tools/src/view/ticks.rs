//! Marks of an axis at round values.

/// A mark: where it is, in samples from the start of the axis, and its text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) text: String,
}

/// At most about `count` round values from `low` to `high`, 1, 2 or 5 times a power of ten apart.
pub(super) fn round_values(low: f64, high: f64, count: usize) -> Vec<f64> {
    if !(low.is_finite() && high.is_finite()) {
        return Vec::new();
    }
    // Closer together they would have the same text.
    if (high - low).is_infinite() {
        return vec![low, 0.0, high];
    }
    let nearly_equal = (high - low).abs() <= low.abs().max(high.abs()) * 1e-12;
    if low >= high || nearly_equal {
        return vec![low];
    }
    let rough = (high - low) / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    if !power.is_normal() {
        return vec![low, high];
    }
    let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
    let step = step.into_iter().find(|step| *step >= rough * 0.999_999);
    let step = step.unwrap_or(power * 10.0);
    let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
    (0..=(last - first) as usize)
        .map(|i| (first + i as f64) * step)
        .collect()
}

/// A number in few characters, with as many digits as values `step` apart need.
pub(super) fn text(value: f64, step: f64) -> String {
    let largest = value.abs().max(step.abs());
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e7).contains(&largest) {
        let digits = (value.abs().log10().floor() - step.abs().log10().floor()).clamp(0.0, 12.0);
        return format!("{value:.*e}", digits as usize);
    }
    let digits = match step > 0.0 {
        true => (-step.log10() - 1e-9).ceil().clamp(0.0, 12.0) as usize,
        false => 6,
    };
    let text = format!("{value:.digits$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.chars().all(|one| matches!(one, '0' | '.')) => "0".to_owned(),
        _ => text,
    }
}

/// A number by itself, in seven digits at most, as many as elements of four bytes have.
pub(super) fn short(value: f64) -> String {
    let rounded = format!("{value:.6e}").parse().unwrap_or(value);
    match value == 0.0 || (1e-4..1e15).contains(&value.abs()) {
        true => format!("{rounded}"),
        false => format!("{rounded:e}"),
    }
}

/// The texts of values that belong together.
pub(super) fn texts(values: &[f64]) -> Vec<String> {
    let step = match values {
        [first, second, ..] => second - first,
        _ => 0.0,
    };
    values.iter().map(|value| text(*value, step)).collect()
}

/// Marks of an axis whose samples have these values, which go only up or only down; of indexes never between two.
pub(super) fn ticks(values: &[f64], count: usize, indexes: bool) -> Vec<Tick> {
    let (Some(&first), Some(&last)) = (values.first(), values.last()) else {
        return Vec::new();
    };
    let count = match indexes {
        true => count.min((last - first).abs() as usize),
        false => count,
    };
    let round = round_values(first.min(last), first.max(last), count);
    let texts = texts(&round);
    let place = |value: f64| {
        let rising = last >= first;
        let behind = values.partition_point(|one| if rising { *one < value } else { *one > value });
        let after = behind.min(values.len() - 1);
        let before = after.saturating_sub(1);
        let part = match values[after] == values[before] {
            true => 0.0,
            false => (value - values[before]) / (values[after] - values[before]),
        };
        before as f64 + part + 0.5
    };
    round
        .iter()
        .zip(texts)
        .map(|(value, text)| Tick {
            at: place(*value),
            text,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_round() {
        assert_eq!(round_values(-90.0, 90.0, 5), [-50.0, 0.0, 50.0]);
        assert_eq!(
            round_values(0.0, 1.0, 5),
            [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
        );
        assert_eq!(round_values(3.0, 3.0, 5), [3.0]);
        assert_eq!(round_values(f64::NAN, 3.0, 5), [] as [f64; 0]);
        assert_eq!(round_values(-5e-324, 5e-324, 5), [-5e-324, 5e-324]);
        for (low, high) in [(1e-30, 3e-30), (-7.3e12, 9.9e12), (271.3, 271.9)] {
            let values = round_values(low, high, 6);
            assert!((2..=12).contains(&values.len()), "{values:?}");
            assert!(
                values[0] >= low - 1e-9 * high.abs()
                    && values[values.len() - 1] <= high * (1.0 + 1e-9)
            );
        }
    }

    #[test]
    fn texts_have_the_digits_that_differ() {
        assert_eq!(texts(&[0.0, 0.2, 0.4]), ["0", "0.2", "0.4"]);
        assert_eq!(texts(&[-50.0, 0.0, 50.0]), ["-50", "0", "50"]);
        assert_eq!(texts(&[270.05, 270.1]), ["270.05", "270.10"]);
        assert_eq!(texts(&[1e9, 2e9]), ["1e9", "2e9"]);
        assert_eq!(text(1.5e-7, 1e-8), "1.5e-7");
        assert_eq!(
            [short(12.0), short(f64::from(0.1f32)), short(-2.5e-20)],
            ["12", "0.1", "-2.5e-20"]
        );
    }

    #[test]
    fn marks_lie_between_samples() {
        let marks = ticks(&[0.0, 10.0, 20.0, 30.0], 3, false);
        assert_eq!(
            marks.iter().map(|tick| tick.at).collect::<Vec<_>>(),
            [0.5, 1.5, 2.5, 3.5]
        );
        // Downwards, and not evenly spaced.
        let marks = ticks(&[100.0, 50.0, 40.0, 0.0], 2, false);
        let found: Vec<(f64, &str)> = marks.iter().map(|tick| (tick.at, &tick.text[..])).collect();
        assert_eq!(found, [(3.5, "0"), (1.5, "50"), (0.5, "100")]);
        assert_eq!(ticks(&[], 3, false), []);
        assert_eq!(ticks(&[4.0], 3, true).len(), 1);
        let marks = ticks(&[0.0, 1.0, 2.0], 10, true);
        let texts: Vec<&str> = marks.iter().map(|tick| &tick.text[..]).collect();
        assert_eq!(texts, ["0", "1", "2"]);
    }
}
