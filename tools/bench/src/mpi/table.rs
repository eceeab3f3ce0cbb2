//! The measurements, and the results of their targets.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Pattern;
use super::systems::Kind;
use crate::results::{aligned, median, show};
use crate::targets;

type Case = (Pattern, &'static str);

/// All samples of a run, in MiB a second.
#[derive(Debug, Default)]
pub(super) struct Table {
    samples: BTreeMap<Case, BTreeMap<Kind, Vec<f64>>>,
}

impl Table {
    /// Records a sample, and prints it.
    pub(super) fn add(&mut self, pattern: Pattern, what: &'static str, kind: Kind, value: f64) {
        eprintln!(
            "  {} {what} {}: {value:.1} MiB/s",
            pattern.name(),
            kind.name()
        );
        let case = self.samples.entry((pattern, what)).or_default();
        case.entry(kind).or_default().push(value);
    }

    /// The table as text.
    pub(super) fn text(&self, systems: &[Kind]) -> String {
        let mut heading = vec!["pattern".to_owned(), "unit".to_owned()];
        heading.extend(systems.iter().map(|system| system.name().to_owned()));
        heading.push("targets".to_owned());
        let mut lines = vec![heading];
        for &(pattern, what) in self.samples.keys() {
            let mut line = vec![format!("{} {what}", pattern.name()), "MiB/s".to_owned()];
            line.extend(systems.iter().map(|&system| {
                self.median((pattern, what), system)
                    .map_or("-".to_owned(), show)
            }));
            line.push(self.verdicts((pattern, what)));
            lines.push(line);
        }
        aligned(&lines) + "\nNumbers are medians of the rounds.\n"
    }

    /// The same as JSON, with all samples.
    pub(super) fn json(&self) -> Value {
        let cases = self.samples.iter().map(|(&(pattern, what), systems)| {
            let systems: serde_json::Map<String, Value> = systems
                .iter()
                .map(|(system, samples)| {
                    let value = json!({"samples": samples, "median": median(samples)});
                    (system.name().to_owned(), value)
                })
                .collect();
            json!({"pattern": pattern.name(), "what": what, "unit": "MiB/s",
                   "systems": systems, "targets": self.verdicts((pattern, what))})
        });
        json!({"mpi": cases.collect::<Vec<_>>()})
    }

    fn median(&self, case: Case, system: Kind) -> Option<f64> {
        median(self.samples.get(&case)?.get(&system)?)
    }

    /// The results of a case's targets, for the systems that were measured.
    fn verdicts(&self, case: Case) -> String {
        let slabfs = self.median(case, Kind::Slabfs);
        let on_a_node = self.median(case, Kind::SlabfsUnix);
        let target = targets::of_mpi(case.0);
        let faster = [Kind::Gluster, Kind::Moose]
            .into_iter()
            .filter_map(|system| Some((system, self.median(case, system)?)))
            .max_by(|one, other| one.1.total_cmp(&other.1));
        let bindfs = self
            .median(case, Kind::Bindfs)
            .map(|value| (Kind::Bindfs, value));
        let mut verdicts = Vec::new();
        for (own, reference, bound) in [
            (slabfs, faster, Some(target.distributed)),
            (on_a_node, bindfs, target.bindfs),
        ] {
            if let (Some(own), Some((system, value)), Some(bound)) = (own, reference, bound) {
                let ratio = own / value;
                let said = if ratio >= bound { "ok" } else { "MISSED" };
                verdicts.push(format!(
                    "{ratio:.2} of {} (>= {bound} {said})",
                    system.name()
                ));
            }
        }
        verdicts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_of_the_others_counts() {
        let mut table = Table::default();
        for (kind, value) in [
            (Kind::Gluster, 100.0),
            (Kind::Moose, 150.0),
            (Kind::Bindfs, 400.0),
            (Kind::Slabfs, 330.0),
            (Kind::SlabfsUnix, 360.0),
        ] {
            table.add(Pattern::Box, "write", kind, value);
            table.add(Pattern::Own, "read", kind, value / 2.0);
        }
        let text = table.text(&[Kind::Moose, Kind::Slabfs]);
        let wanted = "2.20 of moosefs (>= 2 ok), 0.90 of bindfs (>= 1 MISSED)";
        assert!(text.contains(wanted), "{text}");
        assert!(text.contains("2.20 of moosefs (>= 1.2 ok)\n"), "{text}");
    }
}
