//! `slabfs set`: change an array, or what a directory gives to new ones.

use std::path::PathBuf;

use anyhow::anyhow;
use serde_json::{Map, Value};

use crate::args::dims_of;
use crate::create::{Fields, MoreFields};
use crate::failure::usage;
use crate::onmount;
use crate::rules::{self, Order};

mod defaults;

/// Change an array: make it longer or shorter, or declare what it is; or change a directory's defaults.
///
/// Which changes are allowed depends on whether the file has data, see below. What is refused changes
/// nothing.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "While it is empty: everything, each field alone or several together.

Once it has data:
  --dims      of an array: every axis grows up to its max dim or shrinks, what lies outside is gone
              (layout canonical: the slowest axis only);
              of plain bytes: when dims x element size are exactly the bytes it has
  --dtype     to one of the same size; of plain bytes to any that divides them
  --max-dims  to anything not below its dims
  --fill      always; no element changes, those that come later (it grows) read as the new value
  --layout    always; the data is stored anew, which takes as long as copying it
  --codec     with layout aligned; chunks written from then on have it
A file that was emptied (`: > FILE`) is empty again; an unlimited first axis then has length 0.

Examples:
  slabfs set mnt/temp --dims 32,16        grow the first axis to 32 (within its max dims)
  slabfs set mnt/temp --dims 64,16 --max-dims unlimited,16
                                          let the first axis grow without limit, and grow it
  slabfs set mnt/raw --dims 100,80 --dtype f4
                                          declare 32000 bytes that were written as a plain file
  slabfs set mnt/empty --codec lz4        choose a codec before anything is written
  slabfs set mnt/run1 --default-dtype f4 --default-codec lz4 --default-tag project=climate
                                          what arrays made in mnt/run1 are if nobody says otherwise
  slabfs set mnt/run1 --clear-default codec --clear-default tag:project
                                          take some back (`all`: all of them)

Defaults are of directories. Directories made inside inherit them; objects that are there stay as they
are. Ordinary files take layout, codec, placement and tags; dtype and fill wait until the file is made an array. A
default that does not go with what is given, e.g. a codec with --layout grid:8,8, is left out."
)]
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
    #[command(flatten)]
    defaults: defaults::DefaultArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let fields = Fields {
        dims: args.dims.as_deref(),
        dtype: args.dtype.as_deref(),
        more: Some(&args.more),
    };
    let mut spec = fields.spec()?;
    if !args.defaults.is_empty() {
        if !spec.is_empty() {
            return Err(usage(
                "defaults are of directories, the other flags of files: give one kind at a time",
            ));
        }
        return defaults::run(&args.path, &args.defaults);
    }
    if args.path.is_dir() {
        return Err(anyhow!(
            "{} is a directory: give --default-dtype, --default-fill, --default-layout, --default-codec, \
             --default-placement, --default-tag or --clear-default",
            args.path.display()
        ));
    }
    if spec.is_empty() {
        return Err(usage(
            "nothing to set: give --dims, --dtype, --max-dims, --fill, --layout, --codec or --placement",
        ));
    }
    let info = onmount::info(&args.path)?;
    let declared = info.get("kind").and_then(Value::as_str) == Some("array");
    // The dtype it has already asks for nothing.
    if declared && spec.get("dtype") == info.get("dtype") {
        spec.remove("dtype");
    }
    // Dims of an array are a change of size and go through another door than its declaration.
    let dims = if declared && !spec.contains_key("dtype") {
        spec.remove("dims")
    } else {
        None
    };
    let Some(dims) = dims.as_ref().and_then(Value::as_str) else {
        return if spec.is_empty() {
            Ok(())
        } else {
            onmount::declare(&args.path, &spec)
        };
    };
    match order(&info, &spec, dims)? {
        _ if spec.is_empty() => onmount::resize(&args.path, dims),
        Order::DeclareFirst => {
            onmount::declare(&args.path, &spec)?;
            onmount::resize(&args.path, dims)
        }
        Order::ResizeFirst => {
            onmount::resize(&args.path, dims)?;
            onmount::declare(&args.path, &spec)
        }
    }
}

/// The order in which the two steps are allowed; an error before either was done where none is.
fn order(info: &Value, spec: &Map<String, Value>, dims: &str) -> anyhow::Result<Order> {
    let dims = dims_of(dims)?;
    match (rules::present(info), rules::change(spec)) {
        (Some(now), Some(change)) => {
            rules::order(&now, &change, &dims).map_err(|why| anyhow!("--dims: {why}"))
        }
        _ => Ok(Order::DeclareFirst),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn growth_beyond_a_limit_is_named() {
        let info = json!({
            "kind": "array", "dtype": "f4", "dims": [8, 16], "max_dims": [null, 16], "fill": "0",
            "layout": "aligned", "codec": "none", "given": ["dims"], "holds": true,
        });
        let none = Map::new();
        assert!(order(&info, &none, "1000,16").is_ok());
        let error = order(&info, &none, "1000,17").expect_err("too long");
        let text = error.to_string();
        assert!(text.contains("axis 1") && text.contains("16"), "{text}");
        assert_ne!(crate::failure::status(&error), crate::failure::USAGE);
        assert!(order(&info, &none, "1000").is_err());
        // A mount of another version tells less; then it is asked.
        assert!(order(&json!({}), &none, "1000").is_ok());
    }
}
