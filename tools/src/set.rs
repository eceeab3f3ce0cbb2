//! `slabfs set`: change an array.

use std::path::PathBuf;

use serde_json::Value;
use slabfs_model::parse_dims;

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
    let declared = info.get("kind").and_then(Value::as_str) == Some("array");
    // Dims of an array are a change of size and go through another door than its declaration.
    let dims = if declared && !spec.contains_key("dtype") {
        spec.remove("dims")
    } else {
        None
    };
    if !spec.is_empty() {
        onmount::declare(&args.path, &spec)?;
    }
    match dims.as_ref().and_then(Value::as_str) {
        Some(dims) => {
            check_growth(dims, &info)?;
            onmount::resize(&args.path, dims)
        }
        None => Ok(()),
    }
}

/// Says which axis may not become as long as asked; the service would only say that it is not allowed.
fn check_growth(dims: &str, info: &Value) -> anyhow::Result<()> {
    let dims = parse_dims(dims).map_err(|error| usage(format!("--dims: {error}")))?;
    let Some(limits) = info.get("max_dims").and_then(Value::as_array) else {
        return Ok(());
    };
    if limits.len() != dims.len() {
        return Err(usage(format!(
            "--dims: the array has {} axes and keeps them; give one length for each",
            limits.len()
        )));
    }
    let limits = limits.iter().map(Value::as_u64);
    match dims
        .iter()
        .zip(limits)
        .enumerate()
        .find(|(_, (dim, max))| max.is_some_and(|max| **dim > max))
    {
        Some((axis, (dim, max))) => Err(usage(format!(
            "--dims: axis {axis} cannot have {dim} elements, its max dim is {}; max dims can be set as long as the array is empty",
            max.unwrap_or(0)
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn growth_beyond_a_limit_is_named() {
        let info = json!({"max_dims": [null, 16]});
        assert!(check_growth("1000,16", &info).is_ok());
        let error = check_growth("1000,17", &info)
            .expect_err("too long")
            .to_string();
        assert!(error.contains("axis 1") && error.contains("16"), "{error}");
        assert!(check_growth("1000", &info).is_err());
    }
}
