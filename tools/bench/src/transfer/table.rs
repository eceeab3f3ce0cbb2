//! The measurements, with their targets.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::results::{aligned, median, show};
use crate::targets;

/// The operation, and the bytes of a piece or a region.
pub(super) type Name = (&'static str, u64);

const COLUMNS: [&str; 6] = ["slabfs", "pread", "sieving", "raw", "p50 ms", "p99 ms"];

#[derive(Debug, Default)]
struct Row {
    unit: &'static str,
    samples: BTreeMap<&'static str, Vec<f64>>,
    note: Option<String>,
}

impl Row {
    fn median(&self, column: &str) -> Option<f64> {
        median(self.samples.get(column)?)
    }
}

/// All samples of a run.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: BTreeMap<Name, Row>,
}

impl Table {
    /// Records a sample, and prints it.
    pub(super) fn add(&mut self, name: Name, unit: &'static str, column: &'static str, value: f64) {
        eprintln!("  {} {} {column}: {value:.1} {unit}", name.0, name.1);
        let row = self.rows.entry(name).or_default();
        row.unit = unit;
        row.samples.entry(column).or_default().push(value);
    }

    /// Adds a note to the numbers of a row.
    pub(super) fn note(&mut self, name: Name, text: String) {
        self.rows.entry(name).or_default().note = Some(text);
    }

    /// The table as text.
    pub(super) fn text(&self) -> String {
        let mut heading = vec!["case".to_owned(), "bytes".to_owned(), "unit".to_owned()];
        heading.extend(COLUMNS.map(str::to_owned));
        heading.push("targets".to_owned());
        let mut lines = vec![heading];
        for (&name, row) in &self.rows {
            let mut line = vec![name.0.to_owned(), name.1.to_string(), row.unit.to_owned()];
            line.extend(COLUMNS.map(|column| row.median(column).map_or("-".to_owned(), show)));
            line.push(verdicts(name, row));
            lines.push(line);
        }
        let mut out = aligned(&lines) + "\nNumbers are medians of the rounds.\n";
        for (name, row) in &self.rows {
            if let Some(note) = &row.note {
                out += &format!("{} {}: {note}.\n", name.0, name.1);
            }
        }
        out
    }

    /// The same as JSON, with all samples.
    pub(super) fn json(&self) -> Value {
        let rows = self.rows.iter().map(|(&name, row)| {
            json!({"case": name.0, "bytes": name.1, "unit": row.unit, "samples": row.samples,
                   "note": row.note, "targets": verdicts(name, row)})
        });
        json!({"transfer": rows.collect::<Vec<_>>()})
    }
}

/// The results of a row's targets, if it was measured.
fn verdicts(name: Name, row: &Row) -> String {
    let Some(slabfs) = row.median("slabfs") else {
        return String::new();
    };
    let verdicts = targets::of_transfer(name.0, name.1)
        .into_iter()
        .filter_map(|target| {
            let (value, next_to) = match target.times {
                Some(other) => (slabfs / row.median(other)?, format!(" x {other}")),
                None => (slabfs, String::new()),
            };
            let reached = if value >= target.bound {
                "ok"
            } else {
                "MISSED"
            };
            let bound = target.bound;
            Some(format!("{}{next_to} (>= {bound} {reached})", show(value)))
        });
    verdicts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_reported() {
        let mut table = Table::default();
        let name = ("nested read", 64);
        for (column, value) in [("slabfs", 2000.0), ("raw", 5000.0), ("pread", 100.0)] {
            table.add(name, "MiB/s", column, value);
        }
        table.add(("small read", 3072), "region/s", "slabfs", 70_000.0);
        let text = table.text();
        assert!(text.contains("0.40 x raw (>= 0.5 MISSED)"), "{text}");
        assert!(text.contains("70000 (>= 60000 ok)"), "{text}");
        assert!(!text.contains("x sieving"), "{text}");
    }
}
