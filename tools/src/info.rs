//! `slabfs info`: shows the properties of a file.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use slabfs_model::Tag;

use crate::args::show_size;
use crate::create::DIM_NAMES;
use crate::tags::{self, one_line};
use crate::{import, onmount, output, programs, table};

/// Show the dims, type, layout and chunks of a file.
///
/// For a directory its tags, its defaults for new objects, and the number of its entries.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs info mnt/temp
  slabfs info 'mnt/temp@[0:10,:]'       # shape and bytes of a selection
  slabfs info mnt/temp --json | jq .dims
  slabfs info --cdl mnt/run1            # as `ncdump -h` shows a NetCDF file
  slabfs info --open mnt/run1           # how to open it in Python, ncdump, C

Next: `slabfs layout mnt/temp` draws how it is stored, `slabfs set` changes it.")]
pub(crate) struct Args {
    /// A file on a slabfs mount, a selection of one, or a directory
    path: PathBuf,
    /// As JSON, for programs
    #[arg(long)]
    json: bool,
    /// Dimensions, variables and attributes as CDL, the text form of NetCDF
    #[arg(long, conflicts_with = "json")]
    cdl: bool,
    /// What to type to open it in Python, in programs for NetCDF and HDF5, and in C
    #[arg(long, conflicts_with_all = ["json", "cdl"])]
    open: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.cdl {
        return import::exec([OsStr::new("cdl"), OsStr::new("--"), args.path.as_os_str()]);
    }
    if args.open {
        return output::print(&programs::lines(&args.path)?);
    }
    if args.path.is_dir() {
        return container(args);
    }
    let mut info = onmount::info(&args.path)?;
    if info.get("kind").and_then(Value::as_str) == Some("array")
        && let Some(names) = dim_names(&args.path)?
    {
        info[DIM_NAMES] = names;
    }
    if args.json {
        return output::json(&info);
    }
    let advice = advice(&args.path, &info).unwrap_or_default();
    output::print(&(table::lines(&readable(info)) + &advice))
}

/// The names of an array's dimensions, if it has the tag.
fn dim_names(path: &Path) -> anyhow::Result<Option<Value>> {
    let tags = tags::of(path, &[DIM_NAMES])?;
    let tag = tags.get(DIM_NAMES).map(Tag::from_json).transpose()?;
    Ok(tag.and_then(|tag| serde_json::from_slice(&tag.bytes).ok()))
}

/// Chunks from which on an array is said to have many.
const MANY: u64 = 1000;
/// Bytes of a chunk that is advised, as those of byte objects.
const CHUNK: u64 = 8 << 20;

/// A line for an array that was written in many small pieces: each of its chunks has a record in the metadata, and a
/// large read collects them all.
fn advice(path: &Path, info: &Value) -> Option<String> {
    let number = |key: &str| info.get(key).and_then(Value::as_u64);
    let text = |key: &str| info.get(key).and_then(Value::as_str);
    let (chunks, stored) = (number("chunks")?, number("stored")?);
    if text("layout") != Some("aligned") || chunks < MANY {
        return None;
    }
    let dims = info.get("dims")?.as_array()?.iter();
    let dims: Vec<u64> = dims.map(Value::as_u64).collect::<Option<_>>()?;
    let shape = chunk_shape(&dims, number("element_bytes")?);
    let cut = dims.iter().zip(&shape);
    let fewer: u64 = cut.map(|(dim, chunk)| dim.div_ceil(*chunk)).product();
    // Chunks that are about as many are about as large.
    if fewer > chunks / 4 {
        return None;
    }
    let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let codec = match text("codec") {
        Some("none") => "",
        _ => " --codec none",
    };
    Some(format!(
        "advice: it has {chunks} chunks of {} on average; `slabfs set {} --layout grid:{}{codec}` rewrites it as {fewer}\n",
        show_size(stored / chunks),
        path.display(),
        shape.join(","),
    ))
}

/// The shape of a chunk of at most [`CHUNK`] bytes, of entire rows if they fit.
fn chunk_shape(dims: &[u64], element: u64) -> Vec<u64> {
    let mut shape: Vec<u64> = dims.iter().map(|&dim| dim.max(1)).collect();
    let bytes = |shape: &[u64]| {
        let sizes = shape.iter().map(|&len| u128::from(len));
        sizes.product::<u128>() * u128::from(element)
    };
    while bytes(&shape) > u128::from(CHUNK)
        && let Some(length) = shape.iter_mut().find(|len| **len > 1)
    {
        *length = length.div_ceil(2);
    }
    shape
}

/// A directory: its tags, its entries, and the defaults for objects created in it.
fn container(args: &Args) -> anyhow::Result<()> {
    onmount::Mount::of(&args.path)?;
    let defaults = onmount::defaults(&args.path)?;
    let listed = std::fs::read_dir(&args.path);
    let entries = listed.and_then(|entries| {
        entries
            .map(|entry| entry.map(|_| 1))
            .sum::<Result<u64, _>>()
    });
    let entries = entries.map_err(|error| onmount::explain(&args.path, error))?;
    let tags = tags::of(&args.path, &[] as &[&str])?;
    if args.json {
        return output::json(
            &json!({ "kind": "container", "entries": entries, "tags": tags, "defaults": defaults }),
        );
    }
    let mut lines = serde_json::Map::new();
    lines.insert("kind".to_owned(), json!("container"));
    lines.insert("entries".to_owned(), json!(entries));
    lines.extend(tags.iter().map(|(key, value)| shown_tag("tag", key, value)));
    for (key, value) in defaults.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("tags", Value::Object(tags)) => {
                lines.extend(
                    tags.iter()
                        .map(|(key, value)| shown_tag("default tag", key, value)),
                );
            }
            _ => {
                lines.insert(format!("default {key}"), value.clone());
            }
        }
    }
    output::print(&table::lines(&Value::Object(lines)))
}

/// A tag: its key, with the type where that is needed, and its value, both as `slabfs tag` takes them.
fn shown_tag(label: &str, key: &str, value: &Value) -> (String, Value) {
    let shown = Tag::from_json(value).map(|tag| tag.show_assignment("k"));
    let parts = shown.as_deref().ok().and_then(|shown| {
        let (kind, value) = shown.strip_prefix('k')?.split_once('=')?;
        Some((kind, json!(one_line(value))))
    });
    let (kind, value) = parts.unwrap_or(("", value.clone()));
    (format!("{label} {}{kind}", one_line(key)), value)
}

/// The same for users: dims as the flags take them, and without the fields that only `rules` needs.
fn readable(mut info: Value) -> Value {
    let Some(map) = info.as_object_mut() else {
        return info;
    };
    map.remove("given");
    map.remove("holds");
    for key in ["dims", "max_dims"] {
        let Some(axes) = map.get_mut(key) else {
            continue;
        };
        let text = match axes.as_array() {
            Some(axes) if axes.is_empty() => "scalar".to_owned(),
            Some(axes) => axes
                .iter()
                .map(|axis| match axis {
                    Value::Null => "unlimited".to_owned(),
                    axis => axis.to_string(),
                })
                .collect::<Vec<_>>()
                .join(","),
            None => continue,
        };
        *axes = json!(text);
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_read_as_slabfs_tag_takes_them() {
        for (value, key, shown) in [
            (json!([1, 2.5, "a"]), "default tag x", "[1,2.5,\"a\"]"),
            (json!(3), "default tag x", "3"),
            (json!("3"), "default tag x:text", "3"),
            (json!({"auto": "007"}), "default tag x", "007"),
            (json!({"bytes": "00ff"}), "default tag x:bytes", "00ff"),
        ] {
            let line = shown_tag("default tag", "x", &value);
            assert_eq!(line, (key.to_owned(), json!(shown)));
        }
    }

    #[test]
    fn many_small_chunks_get_advice() {
        let array = |chunks: u64, layout: &str, codec: &str| {
            let info = json!({
                "chunks": chunks, "stored": chunks * 8000, "layout": layout, "codec": codec,
                "dims": [20_000, 1000], "element_bytes": 8,
            });
            advice(Path::new("mnt/a"), &info)
        };
        let text = array(20_000, "aligned", "none").unwrap();
        assert!(
            text.contains("slabfs set mnt/a --layout grid:625,1000` rewrites it as 32"),
            "{text}"
        );
        assert!(text.contains("20000 chunks of 7.8 KiB"), "{text}");
        assert!(
            array(20_000, "aligned", "lz4")
                .unwrap()
                .contains("--codec none")
        );
        assert_eq!(array(999, "aligned", "none"), None);
        assert_eq!(array(20_000, "grid:1,1000", "none"), None);
        assert_eq!(chunk_shape(&[], 8), [0u64; 0]);
        assert_eq!(chunk_shape(&[0, 4], 1), [1, 4]);
        assert_eq!(chunk_shape(&[3, 1 << 24], 1), [1, 1 << 23]);
    }

    #[test]
    fn dims_read_as_the_flags_take_them() {
        let info = json!({"dims": [0, 4], "max_dims": [null, 4], "given": ["dims"], "holds": true});
        assert_eq!(
            readable(info),
            json!({"dims": "0,4", "max_dims": "unlimited,4"})
        );
        let scalar = json!({"dims": [], "max_dims": []});
        assert_eq!(
            readable(scalar),
            json!({"dims": "scalar", "max_dims": "scalar"})
        );
    }
}
