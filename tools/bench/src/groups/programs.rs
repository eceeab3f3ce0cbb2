//! Programs: `tar` unpacks an archive of small files, and SQLite commits transactions of one row.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use rusqlite::Connection;

use super::GroupArgs;
use crate::clients::rate;
use crate::systems::System;
use crate::table::Table;
use crate::{args, cleanup, memory};

/// Files of a directory of the archive, and bytes of a file.
const IN_DIRECTORY: usize = 100;
const FILE: usize = 4000;

/// One round of the group.
pub(super) fn run(
    args: &GroupArgs,
    systems: &[&System],
    round: u32,
    table: &mut Table,
) -> anyhow::Result<()> {
    let files = if args.quick { 500 } else { 3000 };
    let time = Duration::from_millis(if args.quick { 300 } else { 2000 });
    let archive = archive(args, files, round)?;
    for &system in systems {
        memory::touch((files * 4 * FILE) as u64)?;
        let mut note = |what: &str, rate: f64| {
            let labels = [
                "programs".into(),
                "".into(),
                0.into(),
                1.into(),
                what.into(),
            ];
            table.add(&labels, "op/s", &args::name(system.kind), rate);
        };
        let dir = system.dirs[0].join("untar");
        std::fs::create_dir(&dir).with_context(|| format!("creating {}", dir.display()))?;
        let started = std::time::Instant::now();
        let mut tar = cleanup::command("tar", &[&"-xf", &archive, &"-C", &dir]);
        cleanup::output(tar.args(["--no-same-owner"]))?;
        note("untar", files as f64 / started.elapsed().as_secs_f64());
        std::fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
        note(
            "sqlite",
            transactions(&system.dirs[0].join("sqlite"), time)?,
        );
    }
    Ok(())
}

/// An archive with that many files, which is removed at the end.
fn archive(args: &GroupArgs, files: usize, round: u32) -> anyhow::Result<PathBuf> {
    let dir = cleanup::new_directory(args.common.work.as_deref(), &format!("-archive-{round}"))?;
    let tree = dir.join("tree");
    for file in 0..files {
        let parent = tree.join(format!("dir-{}", file / IN_DIRECTORY));
        std::fs::create_dir_all(&parent).context("making a directory")?;
        let text = format!("{file:08} ").repeat(FILE / 9 + 1);
        std::fs::write(parent.join(format!("file-{file}")), &text[..FILE])
            .context("writing a file")?;
    }
    let archive = dir.join("archive.tar");
    cleanup::output(&mut cleanup::command(
        "tar",
        &[&"-cf", &archive, &"-C", &tree, &"."],
    ))?;
    std::fs::remove_dir_all(&tree).context("removing the tree")?;
    Ok(archive)
}

/// Transactions per second, with SQLite's defaults: a journal file, and a sync at each step.
fn transactions(path: &Path, time: Duration) -> anyhow::Result<f64> {
    let connection = Connection::open(path).context("opening a database")?;
    connection
        .execute("create table rows (number integer primary key, text)", ())
        .context("making a table")?;
    let insert = |connection: &mut Connection, _: u64, at: u64| {
        let done = connection.execute(
            "insert into rows values (?1, ?2)",
            (at as i64, "some text of a row"),
        );
        ensure!(done.context("inserting")? == 1, "a row is missing");
        Ok(Some(1))
    };
    let mut connections = [connection];
    let rate = rate(&mut connections, time, insert)?;
    drop(connections);
    super::remove(&[path.to_owned()])?;
    Ok(rate)
}
