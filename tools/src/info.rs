//! `slabfs info`: shows the properties of a file.

use std::path::PathBuf;

use serde_json::{Value, json};
use slabfs_model::Tag;

use crate::tags::one_line;
use crate::{onmount, output, table};

/// Show the dims, type, layout and chunks of a file.
///
/// For a directory its defaults.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs info mnt/temp
  slabfs info 'mnt/temp@[0:10,:]'       # shape and bytes of a selection
  slabfs info mnt/temp --json | jq .dims

Next: `slabfs layout mnt/temp` draws how it is stored, `slabfs set` changes it.")]
pub(crate) struct Args {
    /// A file on a slabfs mount, a selection of one, or a directory
    path: PathBuf,
    /// As JSON, for programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.path.is_dir() {
        return container(args);
    }
    let info = onmount::info(&args.path)?;
    if args.json {
        output::json(&info)
    } else {
        output::print(&table::lines(&readable(info)))
    }
}

/// A directory: the defaults for objects created in it.
fn container(args: &Args) -> anyhow::Result<()> {
    onmount::Mount::of(&args.path)?;
    let defaults = onmount::defaults(&args.path)?;
    if args.json {
        return output::json(&json!({ "kind": "container", "defaults": defaults }));
    }
    let mut lines = serde_json::Map::new();
    lines.insert("kind".to_owned(), json!("container"));
    for (key, value) in defaults.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("tags", Value::Object(tags)) => {
                lines.extend(tags.iter().map(|(key, value)| default_tag(key, value)));
            }
            _ => {
                lines.insert(format!("default {key}"), value.clone());
            }
        }
    }
    output::print(&table::lines(&Value::Object(lines)))
}

/// A default tag: its key, with the type where that is needed, and its value, both as `slabfs tag` takes them.
fn default_tag(key: &str, value: &Value) -> (String, Value) {
    let shown = Tag::from_json(value).map(|tag| tag.show_assignment("k"));
    let parts = shown.as_deref().ok().and_then(|shown| {
        let (kind, value) = shown.strip_prefix('k')?.split_once('=')?;
        Some((kind, json!(one_line(value))))
    });
    let (kind, value) = parts.unwrap_or(("", value.clone()));
    (format!("default tag {}{kind}", one_line(key)), value)
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
    fn default_tags_read_as_slabfs_tag_takes_them() {
        for (value, key, shown) in [
            (json!([1, 2.5, "a"]), "default tag x", "[1,2.5,\"a\"]"),
            (json!(3), "default tag x", "3"),
            (json!("3"), "default tag x:text", "3"),
            (json!({"auto": "007"}), "default tag x", "007"),
            (json!({"bytes": "00ff"}), "default tag x:bytes", "00ff"),
        ] {
            assert_eq!(default_tag("x", &value), (key.to_owned(), json!(shown)));
        }
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
