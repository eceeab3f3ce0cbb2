//! `slabfs tags`: shows the tags of an object or directory, in the notation of `slabfs tag`.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde_json::{Map, Value, json};
use slabfs_model::{Tag, bare_key};

use crate::onmount::{Mount, explain};
use crate::output;

/// Show the tags of a file or directory.
///
/// Each is a line in the notation of `slabfs tag`. The output, given to `slabfs tag`, sets the same tags again, types
/// included: `id:auto=7` has no type. A tag with a newline or another control character is
/// shown in the quotes of a shell, $'note=two\nlines'; programs use -0 or --json.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs tags mnt/run1/temp
  slabfs tags mnt/run1/temp step         # only this one; status 1 without it
  slabfs tags mnt/run1/temp --json | jq .step
  slabfs tags -0 mnt/run1/temp | xargs -0 slabfs tag mnt/run1/wind
      copies the tags of a file to another")]
pub(crate) struct Args {
    /// A file or directory on a slabfs mount
    path: PathBuf,
    /// Show only these
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    /// As JSON, for programs
    #[arg(long)]
    json: bool,
    /// With --json: tags without a type as {"auto": TEXT}, to distinguish them from text
    #[arg(long, requires = "json")]
    typed: bool,
    /// End each tag with a zero byte instead of a newline, and do not quote it, for xargs -0
    #[arg(short = '0', long, conflicts_with = "json")]
    null: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let keys: Vec<&str> = args.keys.iter().map(|key| bare_key(key)).collect();
    let tags = read(&args.path, &keys, !args.json || args.typed)?;
    if args.json {
        output::json(&tags)?;
    } else {
        let mut text = String::new();
        for (key, value) in &tags {
            let tag = Tag::from_json(value).context("the mount sent an invalid tag")?;
            let shown = tag.show_assignment(key);
            match args.null {
                true => text.extend([&shown[..], "\0"]),
                false => text.extend([&one_line(&shown)[..], "\n"]),
            }
        }
        output::print(&text)?;
    }
    match keys.iter().find(|key| !tags.contains_key(**key)) {
        Some(key) => Err(anyhow!("{} has no tag {key}", args.path.display())),
        None => Ok(()),
    }
}

/// The tags of a file or directory with these keys, or all, as JSON with types.
pub(crate) fn of<S: AsRef<str>>(path: &Path, keys: &[S]) -> anyhow::Result<Map<String, Value>> {
    let keys: Vec<&str> = keys.iter().map(S::as_ref).collect();
    read(path, &keys, true)
}

fn read(path: &Path, keys: &[&str], typed: bool) -> anyhow::Result<Map<String, Value>> {
    std::fs::symlink_metadata(path).map_err(|error| explain(path, error))?;
    let mount = Mount::of(path)?;
    let mut request =
        json!({ "op": "tags", "path": mount.inside(path)?, "typed": typed, "after": "" });
    if !keys.is_empty() {
        request["keys"] = json!(keys);
    }
    let mut all = Map::new();
    loop {
        let mut page = mount.call(&request)?;
        if let Some(Value::Object(tags)) = page.get_mut("tags").map(Value::take) {
            all.extend(tags);
        }
        match page.get_mut("next").map(Value::take) {
            Some(Value::String(next)) => request["after"] = Value::String(next),
            _ => return Ok(all),
        }
    }
}

/// The text on one line: quoted as `$'…'` of a shell if it contains control characters, or begins like such a
/// quote.
pub(crate) fn one_line(text: &str) -> String {
    if !text.contains(char::is_control) && !text.starts_with("$'") {
        return text.to_owned();
    }
    let mut shown = String::from("$'");
    for char in text.chars() {
        match char {
            '\\' | '\'' => shown.extend(['\\', char]),
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            char if char.is_ascii_control() => {
                shown.push_str(&format!("\\{:03o}", u32::from(char)))
            }
            char if char.is_control() => shown.push_str(&format!("\\u{:04x}", u32::from(char))),
            char => shown.push(char),
        }
    }
    shown.push('\'');
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_shown_on_one_line() {
        for (text, shown) in [
            ("k=it's", "k=it's"),
            ("k=a\nb", r"$'k=a\nb'"),
            ("k=it's\t\\", r"$'k=it\'s\t\\'"),
            ("k=\u{1b}[2J", r"$'k=\033[2J'"),
            ("k=\u{85}", r"$'k=\u0085'"),
            ("$'k=1", r"$'$\'k=1'"),
        ] {
            assert_eq!(one_line(text), shown);
        }
    }
}
