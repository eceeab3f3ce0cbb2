//! Samples, their medians, and the table with ratios and targets.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use crate::systems::Kind;
use crate::targets;

/// The unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unit {
    /// MiB per second; more is better.
    MibPerSecond,
    /// Operations per second; more is better.
    PerSecond,
    /// Seconds; less is better.
    Seconds,
    /// MiB; less is better.
    Mib,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::MibPerSecond => "MiB/s",
            Unit::PerSecond => "op/s",
            Unit::Seconds => "s",
            Unit::Mib => "MiB",
        }
    }

    /// How many times as good `value` is as `reference`.
    fn ratio(self, value: f64, reference: f64) -> f64 {
        match self {
            Unit::MibPerSecond | Unit::PerSecond => value / reference,
            Unit::Seconds | Unit::Mib => reference / value,
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    /// Group: `seq`, `iops`, …
    pub(crate) group: &'static str,
    /// Form of the object, or nothing.
    pub(crate) form: &'static str,
    /// KiB of a request, 0 where it has no meaning.
    pub(crate) request: u64,
    /// Concurrent jobs.
    pub(crate) jobs: usize,
    /// The operation: `read`, `write`, …
    pub(crate) what: &'static str,
    /// The unit.
    pub(crate) unit: Unit,
}

/// All samples of a run.
#[derive(Debug, Default)]
pub(crate) struct Results {
    samples: BTreeMap<Case, BTreeMap<Kind, Vec<f64>>>,
}

impl Results {
    /// Records one sample.
    pub(crate) fn add(&mut self, case: Case, system: Kind, value: f64) {
        eprintln!(
            "  {} {} {} {}x {} {}: {value:.1} {}",
            case.group,
            case.form,
            show_request(case.request),
            case.jobs,
            case.what,
            system.name(),
            case.unit.name()
        );
        self.samples
            .entry(case)
            .or_default()
            .entry(system)
            .or_default()
            .push(value);
    }

    /// The median of a case on a system.
    fn median(&self, case: &Case, system: Kind) -> Option<f64> {
        median(self.samples.get(case)?.get(&system)?)
    }

    /// Medians with ratios to `null` in brackets, and the results of the targets.
    pub(crate) fn table(&self, systems: &[Kind]) -> String {
        let mut lines: Vec<Vec<String>> = Vec::new();
        let mut heading: Vec<String> = ["case", "request", "jobs", "unit"]
            .map(str::to_owned)
            .to_vec();
        heading.extend(systems.iter().map(|system| system.name().to_owned()));
        heading.push("targets".to_owned());
        lines.push(heading);
        for case in self.samples.keys() {
            let mut line = vec![
                format!("{} {} {}", case.group, case.form, case.what).replace("  ", " "),
                show_request(case.request),
                case.jobs.to_string(),
                case.unit.name().to_owned(),
            ];
            let null = self.median(case, Kind::Null);
            line.extend(
                systems
                    .iter()
                    .map(|&system| match self.median(case, system) {
                        None => "-".to_owned(),
                        Some(value) => {
                            let ratio = null
                                .filter(|_| system != Kind::Null)
                                .map(|null| format!(" ({:.2})", case.unit.ratio(value, null)));
                            show(value) + &ratio.unwrap_or_default()
                        }
                    }),
            );
            line.push(self.verdicts(case));
            lines.push(line);
        }
        let mut out = aligned(&lines);
        out.push_str(
            "\nNumbers are medians of the rounds; in brackets how many times as good as null.\n",
        );
        out
    }

    /// The results of a case's targets: `up 0.71 of null (>= 0.65 ok)`.
    fn verdicts(&self, case: &Case) -> String {
        let mut out = String::new();
        for target in targets::of(case) {
            let Some(value) = self.median(case, target.system) else {
                continue;
            };
            let (reached, text) = match target.reference {
                targets::Reference::Ratio(to) => {
                    let Some(reference) = self.median(case, to) else {
                        continue;
                    };
                    let ratio = case.unit.ratio(value, reference);
                    let text = format!(
                        "{} {ratio:.2} of {} (>= {}",
                        target.system.name(),
                        to.name(),
                        target.bound
                    );
                    (ratio >= target.bound, text)
                }
                targets::Reference::AtMost => {
                    let text = format!(
                        "{} {} (<= {}",
                        target.system.name(),
                        show(value),
                        target.bound
                    );
                    (value <= target.bound, text)
                }
            };
            let separator = if out.is_empty() { "" } else { ", " };
            // Writing to a String cannot fail.
            let _ = write!(
                out,
                "{separator}{text} {})",
                if reached { "ok" } else { "MISSED" }
            );
        }
        out
    }

    /// All samples with their medians.
    pub(crate) fn json(&self) -> Value {
        let cases: Vec<Value> = self
            .samples
            .iter()
            .map(|(case, systems)| {
                let systems: serde_json::Map<String, Value> = systems
                    .iter()
                    .map(|(system, samples)| {
                        let value = json!({"samples": samples, "median": median(samples)});
                        (system.name().to_owned(), value)
                    })
                    .collect();
                json!({
                    "group": case.group, "form": case.form, "request_kib": case.request,
                    "jobs": case.jobs, "what": case.what, "unit": case.unit.name(),
                    "systems": systems, "targets": self.verdicts(case),
                })
            })
            .collect();
        json!({"cases": cases})
    }
}

/// The median of the samples, if there are any.
pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// A number with three significant digits.
pub(crate) fn show(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

fn show_request(kib: u64) -> String {
    match kib {
        0 => "-".to_owned(),
        kib if kib >= 1024 => format!("{}M", kib / 1024),
        kib => format!("{kib}K"),
    }
}

/// Columns as wide as needed; the last one is not padded.
pub(crate) fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].len())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for line in lines {
        let mut text = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            text.push_str(&format!("{cell:<width$}  "));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(what: &'static str, unit: Unit) -> Case {
        Case {
            group: "seq",
            form: "bytes",
            request: 1024,
            jobs: 1,
            what,
            unit,
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn ratios_and_verdicts() {
        let mut results = Results::default();
        let read = case("read", Unit::MibPerSecond);
        for (system, value) in [
            (Kind::Null, 6000.0),
            (Kind::Up, 4200.0),
            (Kind::Split, 1200.0),
        ] {
            results.add(read.clone(), system, value);
        }
        let table = results.table(&[Kind::Null, Kind::Up, Kind::Split]);
        assert!(table.contains("4200 (0.70)"), "{table}");
        assert!(table.contains("up 0.70 of null (>= 0.65 ok)"), "{table}");
        assert!(
            table.contains("split 0.20 of null (>= 0.35 MISSED)"),
            "{table}"
        );
        assert_eq!(Unit::Seconds.ratio(2.0, 6.0), 3.0);
    }
}
