//! The samples of a run, their medians, and the table with ratios and targets.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::targets::{self, Target};

/// What follows a number in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brackets {
    /// Nothing.
    Empty,
    /// How many times as good it is as the number of this column.
    Column(&'static str),
    /// How many times the first number with the same first label it is.
    FirstRow,
}

/// The JSON of a row's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Samples and medians of every system.
    Systems,
    /// Samples of every column.
    Samples,
    /// One number for every column.
    Medians,
}

/// All samples of a run.
#[derive(Debug)]
pub(crate) struct Table {
    /// The name of the list in the JSON; no name, no object around the list.
    pub(crate) name: &'static str,
    /// What the labels of a row are called.
    pub(crate) labels: &'static [&'static str],
    /// The numbers of a row.
    pub(crate) columns: Vec<String>,
    /// What is said with a number.
    pub(crate) brackets: Brackets,
    /// The numbers in the JSON.
    pub(crate) format: Format,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    labels: Vec<Value>,
    unit: &'static str,
    samples: BTreeMap<String, Vec<f64>>,
    note: Option<String>,
}

impl Row {
    fn median(&self, column: &str) -> Option<f64> {
        median(self.samples.get(column)?)
    }

    /// How many times as good one number is as another.
    fn ratio(&self, value: f64, reference: f64) -> f64 {
        match self.unit {
            "s" | "MiB" => reference / value,
            _ => value / reference,
        }
    }

    fn labels(&self) -> Vec<String> {
        self.labels.iter().map(plain).collect()
    }
}

impl Table {
    /// Without samples.
    pub(crate) fn new(
        name: &'static str,
        labels: &'static [&'static str],
        columns: impl IntoIterator<Item = impl Into<String>>,
        brackets: Brackets,
        format: Format,
    ) -> Table {
        Table {
            name,
            labels,
            columns: columns.into_iter().map(Into::into).collect(),
            brackets,
            format,
            rows: Vec::new(),
        }
    }

    fn row(&mut self, labels: &[Value], unit: &'static str) -> &mut Row {
        let found = self.rows.iter().position(|row| row.labels == labels);
        let at = found.unwrap_or(self.rows.len());
        if found.is_none() {
            self.rows.push(Row {
                labels: labels.to_vec(),
                unit,
                samples: BTreeMap::new(),
                note: None,
            });
        }
        &mut self.rows[at]
    }

    /// Records a sample, and prints it.
    pub(crate) fn add(&mut self, labels: &[Value], unit: &'static str, column: &str, value: f64) {
        let row = self.row(labels, unit);
        row.samples
            .entry(column.to_owned())
            .or_default()
            .push(value);
        eprintln!("  {} {column}: {value:.1} {unit}", row.labels().join(" "));
    }

    /// Adds a note to the numbers of a row.
    pub(crate) fn note(&mut self, labels: &[Value], text: String) {
        self.row(labels, "").note = Some(text);
    }

    /// As text: medians with ratios in brackets, and the results of the targets.
    pub(crate) fn text(&self) -> String {
        let mut heading: Vec<String> = self.labels.iter().map(|&label| label.to_owned()).collect();
        heading.push("unit".to_owned());
        heading.extend(self.columns.iter().cloned());
        heading.push("targets".to_owned());
        let mut lines = vec![heading];
        for row in &self.rows {
            let mut line = row.labels();
            line.push(row.unit.to_owned());
            line.extend(self.columns.iter().map(|column| self.number(row, column)));
            line.push(self.verdicts(row));
            lines.push(line);
        }
        let mut text = aligned(&lines) + "\nNumbers are medians of the rounds";
        text += &match self.brackets {
            Brackets::Empty => ".\n".to_owned(),
            Brackets::Column(other) => {
                format!("; in brackets how many times as good as {other}.\n")
            }
            Brackets::FirstRow => "; in brackets times the first row of its kind. The aim is at \
                                   most 1.5, cold and warm.\n"
                .to_owned(),
        };
        for row in &self.rows {
            if let Some(note) = &row.note {
                text += &format!("{}: {note}.\n", row.labels().join(" "));
            }
        }
        text
    }

    fn number(&self, row: &Row, column: &str) -> String {
        let Some(value) = row.median(column) else {
            return "-".to_owned();
        };
        let ratio = match self.brackets {
            Brackets::Column(other) if other != column => row
                .median(other)
                .map(|reference| row.ratio(value, reference)),
            Brackets::FirstRow => self
                .rows
                .iter()
                .find(|first| first.labels[0] == row.labels[0])
                .and_then(|first| Some(value / first.median(column)?)),
            _ => None,
        };
        show(value) + &ratio.map_or_else(String::new, |ratio| format!(" ({ratio:.2})"))
    }

    /// As JSON.
    pub(crate) fn json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(|row| self.json_of(row)).collect();
        match self.name {
            "" => json!(rows),
            name => json!({ name: rows }),
        }
    }

    fn json_of(&self, row: &Row) -> Value {
        let mut out = json!({"unit": row.unit});
        for (label, value) in self.labels.iter().zip(&row.labels) {
            out[label] = value.clone();
        }
        let targets = self.verdicts(row);
        match self.format {
            Format::Systems => {
                out["systems"] = json!({});
                for (system, samples) in &row.samples {
                    out["systems"][system] = json!({"samples": samples, "median": median(samples)});
                }
                out["targets"] = json!(targets);
            }
            Format::Samples => {
                out["samples"] = json!(row.samples);
                out["note"] = json!(row.note);
                out["targets"] = json!(targets);
            }
            Format::Medians => {
                for column in &self.columns {
                    out[column] = json!(row.median(column));
                }
                out["target"] = json!(targets);
            }
        }
        out
    }

    /// The results of a row's targets: `up 0.71 of null (>= 0.65 ok)`.
    fn verdicts(&self, row: &Row) -> String {
        let labels = row.labels();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let verdicts = targets::of(self.name, &labels);
        let verdicts = verdicts
            .iter()
            .filter_map(|target| verdict(row, target))
            .collect::<Vec<_>>();
        verdicts.join(", ")
    }
}

/// The result of a target, if everything that it needs was measured.
fn verdict(row: &Row, target: &Target) -> Option<String> {
    let own = row.median(target.column)?;
    let (value, what) = if target.of.is_empty() {
        (own, show(own))
    } else {
        // The best of the others counts.
        let others = target
            .of
            .iter()
            .filter_map(|&other| Some((other, row.ratio(own, row.median(other)?))));
        let (other, ratio) = others.min_by(|one, two| one.1.total_cmp(&two.1))?;
        (ratio, format!("{ratio:.2} of {other}"))
    };
    let (reached, sign) = match target.at_most {
        true => (value <= target.bound, "<="),
        false => (value >= target.bound, ">="),
    };
    let said = if reached { "ok" } else { "MISSED" };
    let (column, bound) = (target.column, target.bound);
    Some(format!("{column} {what} ({sign} {bound} {said})"))
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
fn show(value: f64) -> String {
    match value >= 100.0 {
        true => format!("{value:.0}"),
        false => format!("{value:.2}"),
    }
}

/// A label without quotes; nothing is a hyphen.
fn plain(label: &Value) -> String {
    match label {
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Columns as wide as needed; the last one is not padded.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max();
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
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

    static LABELS: [&str; 5] = ["one", "two", "three", "four", "five"];

    fn of(name: &'static str, brackets: Brackets, samples: &[(&[Value], &str, f64)]) -> String {
        let columns = samples.iter().map(|sample| sample.1);
        let labels = &LABELS[..samples[0].0.len()];
        let mut table = Table::new(name, labels, columns, brackets, Format::Systems);
        for (labels, column, value) in samples {
            table.add(labels, "MiB/s", column, *value);
        }
        table.text()
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn ratios_and_verdicts() {
        let read = ["seq", "bytes", "1024", "1", "read"].map(Value::from);
        let numbers = [("null", 6000.0), ("up", 4200.0), ("split", 1200.0)];
        let samples = numbers.map(|(system, value)| (&read[..], system, value));
        let text = of("cases", Brackets::Column("null"), &samples);
        assert!(text.contains("4200 (0.70)"), "{text}");
        assert!(text.contains("up 0.70 of null (>= 0.65 ok)"), "{text}");
        assert!(
            text.contains("split 0.20 of null (>= 0.35 MISSED)"),
            "{text}"
        );
    }

    #[test]
    fn the_faster_of_the_others_counts() {
        let row: &[Value] = &["box".into(), "write".into()];
        let numbers = [("glusterfs", 100.0), ("moosefs", 150.0), ("bindfs", 400.0)];
        let own = [("slabfs", 330.0), ("slabfs-unix", 360.0)];
        let samples: Vec<_> = numbers
            .iter()
            .chain(&own)
            .map(|n| (row, n.0, n.1))
            .collect();
        let text = of("mpi", Brackets::Empty, &samples);
        assert!(text.contains("slabfs 2.20 of moosefs (>= 2 ok)"), "{text}");
        assert!(
            text.contains("slabfs-unix 0.90 of bindfs (>= 1 MISSED)"),
            "{text}"
        );
    }

    #[test]
    fn less_is_better_for_seconds() {
        let labels = ["columns", "", "0", "1", "both"].map(Value::from);
        let mut table = Table::new("cases", &LABELS, [""; 0], Brackets::Empty, Format::Systems);
        table.add(&labels, "s", "up", 2.0);
        table.add(&labels, "s", "bindfs", 7.0);
        assert!(table.text().contains("up 3.50 of bindfs (>= 3 ok)"));
    }

    #[test]
    fn numbers_have_targets_too() {
        let row = |what: &str| [Value::from(1000), Value::from(what)];
        let (exact, start) = (row("exact"), row("start after kill -9"));
        let samples: [(&[Value], _, _); 2] = [(&exact, "slabfs", 3e4), (&start, "slabfs", 7.0)];
        let text = of("search", Brackets::Empty, &samples);
        assert!(text.contains("slabfs 30000 (>= 20000 ok)"), "{text}");
        assert!(text.contains("slabfs 7.00 (<= 5 MISSED)"), "{text}");
    }

    #[test]
    fn growth_is_compared_with_the_first_of_its_kind() {
        let rows = [["chunks", "10"], ["chunks", "20"], ["mounts", "1"]];
        let rows = rows.map(|row| row.map(Value::from));
        let samples: [(&[Value], _, _); 3] = [
            (&rows[0], "cold", 200.0),
            (&rows[1], "cold", 300.0),
            (&rows[2], "cold", 500.0),
        ];
        let text = of("", Brackets::FirstRow, &samples);
        assert!(text.contains("300 (1.50)"), "{text}");
        assert!(text.contains("500 (1.00)"), "{text}");
    }
}
