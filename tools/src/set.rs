//! `slabfs set`: change an array.

use std::path::PathBuf;

use crate::create::{Fields, MoreFields};
use crate::failure::usage;
use crate::onmount;

/// Change an array: make it longer or shorter, or declare what it is.
///
/// Dims of an array with data: every axis may grow up to its max dim, or shrink; what lies outside
/// is gone. The other fields can be set while the array is empty, or when the bytes it has fit the
/// dims exactly (so that a program may write first and declare afterwards).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs set mnt/temp --dims 32,16        grow the first axis to 32 (within its max dims)
  slabfs set mnt/raw --dims 100,80 --dtype f4
                                          declare 32000 bytes that were written as a plain file
  slabfs set mnt/empty --codec lz4        choose a codec before anything is written")]
pub(crate) struct Args {
    /// The file, on a slabfs mount
    path: PathBuf,
    /// Length of every axis, slowest first: 16,16
    #[arg(long, value_name = "N,N,…")]
    dims: Option<String>,
    /// Element type, in NumPy's letters: i1 i2 i4 i8 u1 … f2 f4 f8 c8 c16 b1 S8 U8 V12
    #[arg(long, value_name = "TYPE")]
    dtype: Option<String>,
    #[command(flatten)]
    more: MoreFields,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let fields = Fields {
        dims: args.dims.as_deref(),
        dtype: args.dtype.as_deref(),
        more: Some(&args.more),
    };
    let mut spec = fields.spec()?;
    if spec.is_empty() {
        return Err(usage(
            "nothing to set: give --dims, --dtype, --max-dims, --fill, --layout or --codec",
        ));
    }
    let info = onmount::info(&args.path)?;
    let declared = info.get("kind").and_then(serde_json::Value::as_str) == Some("array");
    // Dims of an array are a change of size and go through another door than its declaration.
    let dims = if declared && !spec.contains_key("dtype") {
        spec.remove("dims")
    } else {
        None
    };
    if !spec.is_empty() {
        onmount::declare(&args.path, &spec)?;
    }
    match dims.as_ref().and_then(serde_json::Value::as_str) {
        Some(dims) => onmount::resize(&args.path, dims),
        None => Ok(()),
    }
}
