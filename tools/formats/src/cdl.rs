//! `slabfs-formats cdl`, which `slabfs info --cdl` runs: prints what `ncdump -h` would print of an export.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use slabfs_datamodel::cdl::show;
use slabfs_formats::sink::Format;

use crate::export::Origin;
use crate::mount::Mount;

/// Print what `ncdump -h` would
#[derive(Debug, clap::Args)]
pub(crate) struct Cdl {
    /// A directory or an array on a mount
    path: PathBuf,
}

pub(crate) fn run(args: &Cdl) -> anyhow::Result<()> {
    let mount = Mount::of(&args.path)?;
    let tree = Origin::new(&mount).tree(&args.path, Format::NetCdf)?;
    let real = args.path.canonicalize()?;
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    let text = show(&name, &tree);
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).context("printing")
}
