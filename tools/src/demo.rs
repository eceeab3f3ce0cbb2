//! `slabfs demo table`: the table of the HDF5 note on variable-size chunks, from real counters.
//!
//! Four writer processes write misaligned selections of a 16 × 16 array of 4-byte elements: in one run each
//! writes its rows with `pwrite`, in another each copies its block to a selection path; on chunks that follow
//! the writers (`aligned`) and on fixed chunks of 8 × 8 (`grid:8,8`). The writers run one after the other, so
//! that the difference of the mount's counters belongs to one of them. Parts: `own` starts a mount when none is
//! given, `writer` is one writer process.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::Value;
use slabfs_mdserver::api::SpecChange;
use slabfs_model::Coords;

use crate::onmount::{self, Mount};
use crate::stats::percent;
use crate::{output, table};

mod own;
mod writer;

use writer::{SELECTIONS, Way};
pub(crate) use writer::{WRITER_COMMAND, WriterArgs, write};

/// Run a demonstration.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs demo table")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Table(TableArgs),
}

/// Four writers with misaligned selections: the savings of chunks that have the writers' shapes.
///
/// Runs on a mount given with --mount, or on one that it starts in a temporary directory and removes
/// afterwards. `moved` are the bytes sent to servers; `touched` is the total size of the chunks that contain
/// them, which a program moves that always reads and writes entire chunks.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs demo table
  slabfs demo table --mount mnt")]
struct TableArgs {
    /// A directory on a running mount (default: a temporary mount)
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// As JSON, for programs
    #[arg(long)]
    json: bool,
}

/// The mount's counters for one writer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Row {
    /// Which of the four.
    writer: usize,
    /// The written selection, in elements.
    selection: String,
    /// Operations on servers.
    operations: u64,
    /// Bytes it wrote.
    bytes_selected: u64,
    /// Bytes sent to servers.
    bytes_moved: u64,
    /// Sizes of the chunks that contain them.
    bytes_touched: u64,
}

/// The four writers on one layout, in one way.
#[derive(Debug, Serialize)]
struct Run {
    /// `aligned` or `grid:8,8`.
    layout: &'static str,
    /// How the writers wrote.
    way: Way,
    /// One a writer.
    rows: Vec<Row>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let What::Table(args) = args.what;
    match &args.mount {
        Some(dir) => table(dir, args.json),
        None => {
            let own = own::OwnMount::start()?;
            let result = table(own.mountpoint(), args.json);
            // Return the first error.
            let stopped = own.stop();
            result.and(stopped)
        }
    }
}

fn table(parent: &Path, json: bool) -> anyhow::Result<()> {
    let mount = Mount::of(parent)?;
    let dir = parent.join(format!("slabfs-demo-{}", std::process::id()));
    std::fs::create_dir(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let runs = all_runs(&mount, &dir);
    let removed =
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()));
    let runs = runs?;
    removed?;
    if json {
        output::json(&runs)
    } else {
        let mut text: String = runs.iter().map(|run| run.show() + "\n").collect();
        text.push_str("Every byte was read back, in full and by selections, and compared.\n");
        output::print(&text)
    }
}

fn all_runs(mount: &Mount, dir: &Path) -> anyhow::Result<Vec<Run>> {
    let mut runs = Vec::new();
    for layout in ["aligned", "grid:8,8"] {
        for way in [Way::Rows, Way::Copy] {
            let object = dir.join(format!(
                "{}-{}",
                layout.replace([':', ','], "-"),
                way.name()
            ));
            create(&object, layout)?;
            let rows = (0..SELECTIONS.len())
                .map(|writer| one_writer(mount, &object, writer, way))
                .collect::<anyhow::Result<Vec<Row>>>()?;
            writer::verify(&object)?;
            runs.push(Run { layout, way, rows });
        }
    }
    Ok(runs)
}

fn create(object: &Path, layout: &str) -> anyhow::Result<()> {
    std::fs::File::create_new(object)
        .with_context(|| format!("cannot create {}", object.display()))?;
    let spec = SpecChange {
        dims: Some(Coords::from_slice(&[16, 16])),
        dtype: Some("u4".parse()?),
        layout: Some(layout.parse()?),
        ..SpecChange::default()
    };
    onmount::declare(object, &spec)
}

/// Runs one writer process and takes the difference of the mount's counters.
fn one_writer(mount: &Mount, object: &Path, writer: usize, way: Way) -> anyhow::Result<Row> {
    let before = Counts::read(mount)?;
    let program = std::env::current_exe().context("cannot find the slabfs binary itself")?;
    let status = Command::new(program)
        .arg(WRITER_COMMAND)
        .args([
            "--writer",
            &writer.to_string(),
            "--way",
            way.name(),
            "--object",
        ])
        .arg(object)
        .status()
        .context("cannot start a writer process")?;
    ensure!(status.success(), "writer {writer} failed ({status})");
    let after = Counts::read(mount)?;
    Ok(Row {
        writer,
        selection: SELECTIONS[writer].text(),
        operations: after.operations - before.operations,
        bytes_selected: after.selected - before.selected,
        bytes_moved: after.sent - before.sent,
        bytes_touched: after.touched - before.touched,
    })
}

/// A mount's counters of writes.
struct Counts {
    operations: u64,
    selected: u64,
    sent: u64,
    touched: u64,
}

impl Counts {
    fn read(mount: &Mount) -> anyhow::Result<Counts> {
        let stats = mount.report("stats".as_ref())?;
        let writes = stats
            .pointer("/counters/write")
            .context("the mount counts no writes")?;
        let count = |key: &str| {
            writes
                .get(key)
                .and_then(Value::as_u64)
                .with_context(|| format!("the mount's counters have no counters.write.{key}"))
        };
        Ok(Counts {
            operations: count("server_ops")?,
            selected: count("bytes_selected")?,
            sent: count("bytes_sent")?,
            touched: count("bytes_touched")?,
        })
    }
}

impl Run {
    /// The divisor of the document's efficiency: full chunks where they are fixed, else the moved bytes.
    fn moved_in_document(&self, row: &Row) -> u64 {
        if self.layout == "aligned" {
            row.bytes_moved
        } else {
            row.bytes_touched
        }
    }

    fn show(&self) -> String {
        let line = |name: String, selection: String, row: &Row| {
            vec![
                name,
                selection,
                row.operations.to_string(),
                row.bytes_selected.to_string(),
                row.bytes_moved.to_string(),
                row.bytes_touched.to_string(),
                percent(row.bytes_selected, self.moved_in_document(row)),
            ]
        };
        let mut lines: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| line(row.writer.to_string(), row.selection.clone(), row))
            .collect();
        let sum = |of: fn(&Row) -> u64| self.rows.iter().map(of).sum();
        let total = Row {
            writer: 0,
            selection: String::new(),
            operations: sum(|row| row.operations),
            bytes_selected: sum(|row| row.bytes_selected),
            bytes_moved: sum(|row| row.bytes_moved),
            bytes_touched: sum(|row| row.bytes_touched),
        };
        lines.push(line("all".to_owned(), String::new(), &total));
        let divisor = if self.layout == "aligned" {
            "moved"
        } else {
            "touched"
        };
        format!(
            "{} layout, {}; efficiency is selected / {divisor}\n{}",
            self.layout,
            self.way.explained(),
            table::rows(
                &[
                    "writer",
                    "selection",
                    "operations",
                    "selected",
                    "moved",
                    "touched",
                    "efficiency",
                ],
                &lines,
            )
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_shown_as_in_the_document() {
        let row = |writer, operations, selected, touched| Row {
            writer,
            selection: SELECTIONS[writer].text(),
            operations,
            bytes_selected: selected,
            bytes_moved: selected,
            bytes_touched: touched,
        };
        let run = Run {
            layout: "grid:8,8",
            way: Way::Rows,
            rows: vec![
                row(0, 4, 360, 1024),
                row(1, 1, 196, 256),
                row(2, 2, 216, 512),
                row(3, 2, 252, 512),
            ],
        };
        let text = run.show();
        for part in [
            "35.16 %",
            "76.56 %",
            "42.19 %",
            "49.22 %",
            "[0:10,0:9]",
            "2304",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
