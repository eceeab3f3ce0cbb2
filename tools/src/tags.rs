//! `slabfs tags`: what is said about an object or directory.

use std::path::PathBuf;

use anyhow::anyhow;
use serde_json::{Map, Value, json};
use slabfs_model::{Tag, TagKind};

use crate::onmount::{Mount, explain};
use crate::output;

/// Show the tags of a file or directory, one a line as `slabfs tag` takes them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs tags mnt/run1/temp
  slabfs tags mnt/run1/temp step          only this one; status 1 if it is not there
  slabfs tags mnt/run1/temp --json | jq .step")]
pub(crate) struct Args {
    /// A file or directory on a slabfs mount
    path: PathBuf,
    /// Only these
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    /// As JSON, for programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    std::fs::symlink_metadata(&args.path).map_err(|error| explain(&args.path, error))?;
    let mount = Mount::of(&args.path)?;
    let path = mount.inside(&args.path)?;
    let mut request = json!({ "op": "tags", "path": path, "typed": !args.json, "after": "" });
    if !args.keys.is_empty() {
        request["keys"] = json!(args.keys);
    }
    let tags = all(&mount, request)?;
    if args.json {
        output::json(&tags)?;
    } else {
        let lines = tags.as_object().into_iter().flatten();
        let text: String = lines.map(|(key, value)| line(key, value)).collect();
        output::print(&text)?;
    }
    match args
        .keys
        .iter()
        .find(|key| tags.get(key.as_str()).is_none())
    {
        Some(key) => Err(anyhow!("{} has no tag {key}", args.path.display())),
        None => Ok(()),
    }
}

/// All pages put together.
fn all(mount: &Mount, mut request: Value) -> anyhow::Result<Value> {
    let mut all = Map::new();
    loop {
        let mut page = mount.call(&request)?;
        if let Some(Value::Object(tags)) = page.get_mut("tags").map(Value::take) {
            all.extend(tags);
        }
        match page.get_mut("next").map(Value::take) {
            Some(Value::String(next)) => request["after"] = Value::String(next),
            _ => return Ok(Value::Object(all)),
        }
    }
}

/// A tag as `slabfs tag` takes it.
fn line(key: &str, value: &Value) -> String {
    let Ok(tag) = Tag::from_json(value) else {
        return format!("{key}={value}\n");
    };
    let text = String::from_utf8_lossy(&tag.bytes);
    let plain = format!("{key}={text}");
    let same = Tag::parse_assignment(&plain).is_ok_and(|(name, read)| name == key && read == tag);
    match tag.kind {
        // What `setfattr` set is shown as it was set there.
        TagKind::Auto => format!("{plain}\n"),
        _ if same => format!("{plain}\n"),
        // In hexadecimal, as its JSON has it.
        TagKind::Bytes => {
            let hex = value.get("bytes").and_then(Value::as_str);
            format!("{key}:bytes={}\n", hex.unwrap_or_default())
        }
        kind => format!("{key}:{}={text}\n", kind.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_as_the_tags_they_show() {
        for (value, shown) in [
            (json!(3), "k=3"),
            (json!(2.5), "k=2.5"),
            (json!("climate"), "k=climate"),
            (json!("3"), "k:text=3"),
            (json!({"bytes": "00ff"}), "k:bytes=00ff"),
            (json!([1, "a"]), "k=[1,\"a\"]"),
        ] {
            let line = line("k", &value);
            assert_eq!(line, format!("{shown}\n"));
            let (_, tag) = Tag::parse_assignment(line.trim_end()).expect("a tag");
            assert_eq!(tag.to_json(), value);
        }
        assert_eq!(line("k", &json!({"auto": "9"})), "k=9\n");
    }
}
