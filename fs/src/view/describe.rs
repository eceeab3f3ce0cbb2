//! Descriptions of an object: the texts of its attributes, and everything as JSON.
//!
//! The JSON is what `user.slabfs.info` holds and `slabfs info --json` prints:
//!
//! | key | value |
//! |---|---|
//! | `ino` | inode number |
//! | `kind` | `array` if it was given a dtype, dims or max dims, else `byte object` |
//! | `given` | which of `dtype`, `dims`, `max_dims`, `layout` were given; the others are defaults |
//! | `holds` | whether data was written since it was created or truncated |
//! | `dtype`, `element_bytes` | element type in NumPy's letters, its size |
//! | `dims` | elements per axis, slowest first |
//! | `max_dims` | the same, `null` for an unlimited axis |
//! | `fill`, `layout`, `codec`, `placement`, `couple` | as in the attributes |
//! | `size`, `stored` | bytes of the object, bytes known to be stored for it |
//! | `chunks` | chunks it is stored in |
//! | `generation` | counts how often it was truncated |
//! | `version` | grows with every change of data or metadata |

use serde_json::{Value, json};
use slabfs_mdserver::api::{ArrayInfo, Attr, SpecChange};
use slabfs_model::MaxDim;

/// The complete description of an object that is stored in `chunks` chunks.
pub fn object(attr: &Attr, info: &ArrayInfo, chunks: u64) -> Value {
    let max_dims: Vec<Option<u64>> = info
        .max_dims
        .iter()
        .map(|max| match max {
            MaxDim::Fixed(limit) => Some(*limit),
            MaxDim::Unlimited => None,
        })
        .collect();
    json!({
        "ino": attr.ino.0,
        "kind": if info.declared { "array" } else { "byte object" },
        "given": given(info),
        "holds": info.holds,
        "dtype": info.dtype.to_string(),
        "element_bytes": info.dtype.size(),
        "dims": info.dims.as_slice(),
        "max_dims": max_dims,
        "fill": fill(info),
        "layout": info.layout.to_string(),
        "codec": info.codec.to_string(),
        "placement": info.placement.to_string(),
        "couple": info.couple.to_string(),
        "size": attr.size,
        "stored": attr.stored,
        "chunks": chunks,
        "generation": info.generation,
        "version": attr.change,
    })
}

/// The given fields. With `holds` they decide which changes the rules allow, so a tool can report the rule that
/// refuses one.
fn given(info: &ArrayInfo) -> Vec<&'static str> {
    [
        ("dtype", info.given.dtype),
        ("dims", info.given.dims),
        ("max_dims", info.given.max_dims),
        ("layout", info.given.layout),
    ]
    .into_iter()
    .filter_map(|(name, given)| given.then_some(name))
    .collect()
}

/// The settable attributes of an object: setting them on another object makes that the same kind of array.
pub fn spec(info: &ArrayInfo) -> SpecChange {
    SpecChange {
        dtype: Some(info.dtype),
        dims: Some(info.dims.clone()),
        max_dims: Some(info.max_dims.clone()),
        fill: Some(fill(info)),
        layout: Some(info.layout.clone()),
        codec: Some(info.codec),
        placement: Some(info.placement),
        couple: None,
    }
}

/// The fill value as text.
pub fn fill(info: &ArrayInfo) -> String {
    info.fill.show(&info.dtype)
}
