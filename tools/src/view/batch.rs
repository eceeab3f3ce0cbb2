//! Parses a batch from JSON.

use std::path::Path;

use anyhow::anyhow;
use serde::Deserialize;
use slabfs_fs::view::pattern::{Pattern, Unit};
use slabfs_model::batch::{self, Batch, MAX_DEPTH, Place};

use crate::failure::usage;

/// One element of a batch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Element {
    #[serde(default)]
    offset: i64,
    #[serde(default)]
    absolute: bool,
    #[serde(default)]
    stride: i64,
    #[serde(default = "once")]
    count: u64,
    size: Option<u64>,
    of: Option<Vec<Element>>,
}

fn once() -> u64 {
    1
}

/// Reads a file that holds a batch, in bytes.
pub(super) fn read(file: &Path) -> anyhow::Result<Pattern> {
    let shown = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| usage(format!("cannot read the batch {shown}: {error}")))?;
    parse(&text).map_err(|error| usage(format!("{shown} is no batch: {error:#}")))
}

fn parse(text: &str) -> anyhow::Result<Pattern> {
    let elements: Vec<Element> = serde_json::from_str(text)?;
    let mut number = 0;
    let batches = vector(elements, 1, &mut number)?;
    Ok(Pattern::new(&batches, Unit::Bytes))
}

fn vector(elements: Vec<Element>, depth: usize, number: &mut u64) -> anyhow::Result<Vec<Batch>> {
    if depth > MAX_DEPTH {
        return Err(batch::BatchError::TooDeep.into());
    }
    let mut batches = Vec::with_capacity(elements.len());
    for element in elements {
        let own = *number;
        *number += 1;
        let pattern = match (element.size, element.of) {
            (Some(size), None) => batch::Pattern::Data(size),
            (None, Some(below)) => batch::Pattern::Vector(vector(below, depth + 1, number)?),
            _ => {
                return Err(anyhow!(
                    "element {own} needs either \"size\", its bytes, or \"of\", what it repeats"
                ));
            }
        };
        let file = Place {
            offset: element.offset,
            absolute: element.absolute,
            stride: element.stride,
        };
        batches.push(Batch::repeated(
            file,
            Place::after(0),
            element.count,
            pattern,
        ));
    }
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_keys_have_defaults() {
        let pattern = parse(
            r#"[{"size": 4}, {"offset": -8, "absolute": true, "stride": 3, "count": 2, "of": [{"size": 1}]}]"#,
        )
        .unwrap();
        let batches = pattern.batches().unwrap();
        assert_eq!(batches[0], Batch::data(Place::after(0), Place::after(0), 4));
        let one = vec![Batch::data(Place::after(0), Place::after(0), 1)];
        assert_eq!(
            batches[1],
            Batch::repeated(
                Place::at(-8).every(3),
                Place::after(0),
                2,
                batch::Pattern::Vector(one)
            )
        );
    }

    #[test]
    fn an_invalid_batch_is_reported() {
        for (text, part) in [
            ("{}", "expected a sequence"),
            (r#"[{"size": 1, "of": []}]"#, "element 0 needs either"),
            (r#"[{"size": 1}, {"of": [{}]}]"#, "element 2 needs either"),
            (r#"[{"size": -1}]"#, "invalid value"),
            (r#"[{"sise": 1}]"#, "unknown field"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
