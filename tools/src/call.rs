//! `slabfs call`: sends a raw request to a mount, for programs and for inspecting what the commands do.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::Value;

use crate::failure::{self, usage};
use crate::onmount::Mount;
use crate::output;

/// Send a mount a request in JSON, and print the reply.
///
/// The other commands consist of these requests; docs/formats/call.md lists them. A program can do the same
/// without this command: it opens .slabfs/call in the root of the mount for reading and writing, writes the
/// request and reads the reply, both at offset 0.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs call mnt '{\"op\": \"servers\"}'
  echo '{\"op\": \"servers\"}' | slabfs call mnt -    # the request from stdin")]
pub(crate) struct Args {
    /// The mount point, or any path below it
    mountpoint: PathBuf,
    /// The request, an object with the key "op"; - reads it from stdin
    request: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mount = Mount::of(&args.mountpoint)?;
    let request = match args.request.as_str() {
        "-" => std::io::read_to_string(std::io::stdin()).context("cannot read stdin")?,
        text => text.to_owned(),
    };
    let request: Value = serde_json::from_str(&request)
        .map_err(|error| usage(format!("the request is no JSON: {error}")))?;
    output::json(&mount.call(&request).map_err(failure::of_text)?)
}
