//! The measurements, with their targets.

use serde_json::{Value, json};

use crate::targets;

/// One number.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// Objects in the data set.
    pub(crate) objects: u64,
    /// The operation.
    pub(crate) what: String,
    /// The unit.
    pub(crate) unit: &'static str,
    /// The value of slabfs.
    pub(crate) slabfs: f64,
    /// The value of SQLite in the same run, if it has a counterpart.
    pub(crate) sqlite: Option<f64>,
}

/// All numbers of a run.
#[derive(Debug, Default)]
pub(crate) struct Table {
    lines: Vec<Line>,
}

impl Table {
    /// Records a number, and prints it.
    pub(crate) fn add(&mut self, line: Line) {
        eprintln!(
            "  {} {}: {}",
            line.objects,
            line.what,
            numbers(&line).join(" | ")
        );
        self.lines.push(line);
    }

    /// The table as text.
    pub(crate) fn text(&self) -> String {
        let heading = ["objects", "what", "unit", "slabfs", "SQLite", "target"].map(str::to_owned);
        let mut rows = vec![heading.to_vec()];
        for line in &self.lines {
            let mut row = vec![
                line.objects.to_string(),
                line.what.clone(),
                line.unit.to_owned(),
            ];
            row.extend(numbers(line));
            rows.push(row);
        }
        crate::results::aligned(&rows)
    }

    /// The same as JSON.
    pub(crate) fn json(&self) -> Value {
        let lines = self.lines.iter().map(|line| {
            json!({"objects": line.objects, "what": line.what, "unit": line.unit,
                   "slabfs": line.slabfs, "sqlite": line.sqlite, "target": verdict(line)})
        });
        json!({"search": lines.collect::<Vec<_>>()})
    }
}

fn numbers(line: &Line) -> Vec<String> {
    let sqlite = line.sqlite.map_or("-".to_owned(), crate::results::show);
    vec![crate::results::show(line.slabfs), sqlite, verdict(line)]
}

fn verdict(line: &Line) -> String {
    let Some(target) = targets::of_search(&line.what) else {
        return String::new();
    };
    let (reached, sign) = match target {
        targets::Bound::AtLeast(bound) => (line.slabfs >= bound, format!(">= {bound}")),
        targets::Bound::AtMost(bound) => (line.slabfs <= bound, format!("<= {bound}")),
    };
    format!("{sign} {}", if reached { "ok" } else { "MISSED" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_reported() {
        let mut table = Table::default();
        let line = |what: &str, slabfs, sqlite| Line {
            objects: 1000,
            what: what.to_owned(),
            unit: "/s",
            slabfs,
            sqlite,
        };
        table.add(line("exact", 30_000.0, Some(1000.0)));
        table.add(line("start after kill -9", 7.0, None));
        let text = table.text();
        assert!(text.contains(">= 20000 ok"), "{text}");
        assert!(text.contains("<= 5 MISSED"), "{text}");
    }
}
