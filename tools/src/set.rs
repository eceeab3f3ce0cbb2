//! `slabfs set`: changes an array, or the defaults of a directory.

use std::path::PathBuf;

use anyhow::anyhow;
use serde_json::Value;
use slabfs_mdserver::api::SpecChange;
use slabfs_model::Coords;

use crate::create::{Fields, MoreFields};
use crate::failure::usage;
use crate::onmount;
use crate::rules::{self, Order};

mod defaults;

/// Resize an array, or change properties or a directory's defaults.
///
/// The allowed changes depend on whether the file has data, see below. A refused change has no effect.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs set mnt/temp --dims 32,16
      grow the first axis to 32 (within its max dims)
  slabfs set mnt/temp --dims 64,16 --max-dims unlimited,16
      let the first axis grow without limit, and grow it
  slabfs set mnt/raw --dims 100,80 --dtype f4
      declare 32000 bytes that were written as a plain file
  slabfs set mnt/empty --codec lz4
      choose a codec before anything is written
  slabfs set mnt/run1 --default-dtype f4 --default-tag project=climate
      defaults for arrays created in mnt/run1
  slabfs set mnt/run1 --clear-default dtype --clear-default tag:project
      remove some defaults (`all`: all of them)

While it is empty: everything, each property alone or several together.

Once it has data:
  --dims      of an array: every axis grows up to its max dim or shrinks; data outside is deleted
              (layout canonical: the slowest axis only);
              of plain bytes: if dims x element size is exactly its length
  --dtype     to one of the same size; of plain bytes to any whose size divides its length
  --max-dims  to anything not below its dims
  --fill      always; no existing element changes, new elements (when it grows) read as the new value
  --layout    always; the data is rewritten, which takes as long as copying it
  --codec     with layout aligned; applies to chunks written from then on
A file that was emptied (`: > FILE`) is empty again; an unlimited first axis then has length 0.

Defaults belong to directories. Directories created inside inherit them; existing objects do not change. \
Ordinary files take layout, codec, placement and tags; dtype and fill apply when the file becomes an array. A \
default that conflicts with a given property, e.g. a codec with --layout grid:8,8, is left out.")]
pub(crate) struct Args {
    /// The file, on a slabfs mount
    path: PathBuf,
    /// Length of every axis, slowest first: 16,16
    #[arg(long, value_name = "N,N,…")]
    dims: Option<String>,
    /// Element type, in NumPy's notation: i1 i2 i4 i8 u1 … f2 f4 f8 c8 c16 b1 S8 U8 V12
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
                "defaults belong to directories, the other flags to files: give one kind at a time",
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
    let text = |key: &str| info.get(key).and_then(Value::as_str);
    let declared = text("kind") == Some("array");
    // The current dtype is no change.
    spec.dtype
        .take_if(|dtype| declared && text("dtype") == Some(&dtype.to_string()));
    // New dims of an array are a resize, not a part of its declaration.
    let resized = declared && spec.dtype.is_none();
    let Some(dims) = spec.dims.take_if(|_| resized) else {
        return if spec.is_empty() {
            Ok(())
        } else {
            onmount::declare(&args.path, &spec)
        };
    };
    match order(&info, &spec, &dims)? {
        _ if spec.is_empty() => onmount::resize(&args.path, &dims),
        Order::DeclareFirst => {
            onmount::declare(&args.path, &spec)?;
            onmount::resize(&args.path, &dims)
        }
        Order::ResizeFirst => {
            onmount::resize(&args.path, &dims)?;
            onmount::declare(&args.path, &spec)
        }
    }
}

/// The order in which the two steps are allowed; fails before either step if none is.
fn order(info: &Value, spec: &SpecChange, dims: &Coords) -> anyhow::Result<Order> {
    match rules::present(info) {
        Some(now) => rules::order(&now, spec, dims).map_err(|why| anyhow!("--dims: {why}")),
        None => Ok(Order::DeclareFirst),
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
        let order = |info: &Value, dims: &[u64]| {
            order(info, &SpecChange::default(), &Coords::from_slice(dims))
        };
        assert!(order(&info, &[1000, 16]).is_ok());
        let error = order(&info, &[1000, 17]).expect_err("too long");
        let text = error.to_string();
        assert!(text.contains("axis 1") && text.contains("16"), "{text}");
        assert_ne!(crate::failure::status(&error), crate::failure::USAGE);
        assert!(order(&info, &[1000]).is_err());
        // A mount of another version omits some properties; then the mount alone decides.
        assert!(order(&json!({}), &[1000]).is_ok());
    }
}
