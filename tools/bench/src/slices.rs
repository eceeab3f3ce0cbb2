//! Slices of an array by the client library, for `tools/bench/python`, which compares them with the same in Python.
//!
//! Lines of stdin are `read AXIS,… TIMES` or `write AXIS,… TIMES`, an axis as `START:STEP:COUNT`. The answer to each is a line of
//! as many times in nanoseconds. A slice moves between the servers and one buffer, and all slices of a line are the
//! same, but for the first index, which goes up by the count of the first axis.

use std::fmt::Write as _;
use std::io::{BufRead, Write};
use std::time::Instant;

use anyhow::{Context, bail};
use slabfs_fs::session::{Access, Axis, ConnectOptions, Hyperslab, Memory, Object, Session};

/// Slices of one array.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct SlicesArgs {
    /// Address of the metadata service
    md: String,
    /// Path of the array
    path: String,
}

pub(crate) fn run(args: &SlicesArgs) -> anyhow::Result<()> {
    let session = Session::connect(&ConnectOptions::to(&args.md))?;
    let object = session.open(&args.path, Access::ReadWrite)?;
    let elem = object.stat()?.array.map_or(1, |array| array.dtype.size());
    for line in std::io::stdin().lock().lines() {
        let times = answer(&object, elem, &line?)?;
        let mut out = String::new();
        for time in times {
            let _ = write!(out, "{time} ");
        }
        println!("{}", out.trim_end());
        std::io::stdout().flush()?;
    }
    object.close()?;
    session.close()?;
    Ok(())
}

fn answer(object: &Object, elem: u64, line: &str) -> anyhow::Result<Vec<u128>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [what, axes, times] = words[..] else {
        bail!("{line:?} is not `read AXES TIMES`");
    };
    let axes: anyhow::Result<Vec<(u64, u64, u64)>> = axes.split(',').map(axis).collect();
    let mut axes = axes?;
    let times: usize = times.parse().context("a number of times")?;
    let dims = object.dims()?;
    let bytes = axes.iter().map(|axis| axis.2).product::<u64>() * elem;
    let mut buffer = crate::memory::buffer(bytes as usize);
    let mut taken = Vec::with_capacity(times);
    for _ in 0..times {
        let begun = Instant::now();
        let slab = Hyperslab {
            axes: axes
                .iter()
                .map(|(start, step, count)| Axis::every(*start, *step, *count))
                .collect(),
        };
        match what {
            "read" => object.read_into(slab, &mut buffer, &Memory::packed())?,
            "write" => object.write_from(slab, &buffer, &Memory::packed())?,
            _ => bail!("{what:?} is neither read nor write"),
        }
        taken.push(begun.elapsed().as_nanos());
        let (start, _, count) = &mut axes[0];
        if *start + 2 * *count <= dims[0] {
            *start += *count;
        } else {
            *start = 0;
        }
    }
    Ok(taken)
}

fn axis(text: &str) -> anyhow::Result<(u64, u64, u64)> {
    let parts: Result<Vec<u64>, _> = text.split(':').map(str::parse).collect();
    match parts?[..] {
        [start, step, count] => Ok((start, step, count)),
        _ => bail!("{text:?} is not START:STEP:COUNT"),
    }
}
