//! `slabfs find`: search by tags and properties.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::Deserialize;
use serde_json::{Value, json};
use slabfs_fs::call::PathText;
use slabfs_fs::client::Sort;
use slabfs_mdserver::api::{Form, Hit, Kind, Time};
use slabfs_mdserver::tags::query::{Query, kind_name};
use slabfs_model::{ObjectId, Tag};

use crate::failure;
use crate::onmount::Mount;
use crate::output;

/// Hits in a page.
const PAGE: u64 = 1024;

/// Find objects by tags, names and properties.
///
/// It prints one path per line.
///
/// The search covers the current directory, or that of --in, and everything below it; it finds only what you
/// could list. Paths are printed relative to where you are. Comparisons: = != < <= > >=, `in 3..9`, `in (a,
/// b)`, text with * in front, behind or around, `has KEY`; joined with and, or, not and parentheses. Built-in
/// keys: name path dtype rank `dims[0]` size mtime owner kind (`kind = dir` finds directories, which are not
/// found otherwise). See docs/search.md.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs find 'project = climate and step >= 3' --in mnt
  slabfs find 'name = temp* and dims[0] > 10' --in mnt/run1
  slabfs find 'has checked' --in mnt --sort -mtime --limit 10
      the ten that changed last
  slabfs find 'dtype = f4' --in mnt --paths0 | xargs -0 ls -l
  slabfs find 'step in 3..9' --in mnt --json | jq .tags.step
  RANK=0 SIZE=4
  slabfs find 'step in 3..9' --in mnt --part $RANK/$SIZE
      one of four shares, which are disjoint and complete together
  ls 'mnt/.slabfs/find/project = climate/'
      the same as a folder of links, for programs")]
pub(crate) struct Args {
    /// The query, in quotes
    query: String,
    /// More words, as of a query without quotes
    #[arg(hide = true)]
    rest: Vec<String>,
    /// Search below this directory of a slabfs mount [default: the current one]
    #[arg(long = "in", value_name = "CONTAINER")]
    within: Option<PathBuf>,
    /// Print one JSON object per line, with size, mtime, kind, owner's uid, dtype, dims and tags
    #[arg(long, conflicts_with_all = ["count", "paths0"])]
    json: bool,
    /// Print only the number of hits
    #[arg(long, conflicts_with = "paths0")]
    count: bool,
    /// End paths with a zero byte instead of a newline, for xargs -0
    #[arg(long)]
    paths0: bool,
    /// Print at most N hits
    #[arg(long, value_name = "N", value_parser = parse_count)]
    limit: Option<u64>,
    /// Sort by a tag, or by name, path, kind, dtype, rank, `dims[0]`, size, mtime or owner; -KEY for descending
    /// order. Objects without the key come last. Default: unordered. Quote a tag that is called like a built-in
    /// key: '"name"'
    #[arg(long, value_name = "KEY", allow_hyphen_values = true, value_parser = parse_order)]
    sort: Option<Order>,
    /// With --sort: descending order
    #[arg(short, long, requires = "sort")]
    reverse: bool,
    /// Print only share I of N, 0/N to N-1/N
    #[arg(long, value_name = "I/N", allow_hyphen_values = true, value_parser = parse_part)]
    part: Option<(u32, u32)>,
}

/// A key to sort by.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Order {
    sort: Sort,
    descending: bool,
}

impl Order {
    fn compare(&self, a: &Hit, b: &Hit) -> Ordering {
        match self.descending {
            true => self.sort.compare_descending(a, b),
            false => self.sort.compare(a, b),
        }
    }
}

/// `KEY` or `-KEY`.
fn parse_order(text: &str) -> Result<Order, String> {
    let (key, descending) = match text.strip_prefix('-') {
        Some(key) => (key, true),
        None => (text, false),
    };
    let sort = Sort::named(key)?;
    Ok(Order { sort, descending })
}

/// A number of hits.
fn parse_count(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is no number of hits; write 0 or more, in digits"))
}

/// `I/N`.
fn parse_part(text: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("{text:?} is no share; of four write 0/4, 1/4, 2/4 or 3/4");
    let (share, of) = text.split_once('/').ok_or_else(wrong)?;
    let (share, of) = (share.trim().parse(), of.trim().parse());
    match (share, of) {
        (Ok(share), Ok(of)) if share < of => Ok((share, of)),
        _ => Err(wrong()),
    }
}

pub(crate) fn run(args: &Args, quiet: bool) -> anyhow::Result<()> {
    if !args.rest.is_empty() {
        return Err(failure::usage(format!(
            "the query is one argument: put it in quotes, as slabfs find '{} {}'",
            args.query,
            args.rest.join(" ")
        )));
    }
    // Without doubled slashes and one at the end.
    let start: PathBuf = args
        .within
        .as_deref()
        .unwrap_or(Path::new("."))
        .components()
        .collect();
    let start = &start;
    let mount = Mount::of(start).map_err(|error| match args.within {
        Some(_) => error,
        None => error.context("find searches the current directory; name another with --in"),
    })?;
    if !start.is_dir() {
        return Err(anyhow!(
            "{} is not a directory; give the one to search in",
            start.display()
        ));
    }
    let within = mount.inside(start)?;
    let ask = |request: &Value| {
        mount.call(request).map_err(|error| {
            let error = failure::of_text(error);
            // A word may be what is left of a query whose > or < the shell took.
            let word = !args.query.contains(char::is_whitespace);
            match failure::status(&error) == failure::USAGE && word {
                true => failure::usage(format!(
                    "{error}\nput the query in quotes, as 'step > 3': without them the shell redirects at > and <"
                )),
                false => error,
            }
        })
    };
    let mut request = json!({"op": "find", "query": args.query, "in": within});
    if let Some((share, of)) = args.part {
        request["part"] = json!([share, of]);
    }
    if args.count {
        request["count"] = json!(true);
        let count = ask(&request)?;
        let count = count.get("count").and_then(Value::as_u64).unwrap_or(0);
        let shown = args.limit.map_or(count, |limit| limit.min(count));
        output::print(&format!("{shown}\n"))?;
        return match count == 0 && !quiet {
            true => note_unknown(args, &ask, &request),
            false => Ok(()),
        };
    }
    request["tags"] = json!(args.json);
    let mut order = args.sort.clone();
    if let Some(order) = &mut order {
        order.descending ^= args.reverse;
    }
    let by_form = order.as_ref().is_some_and(|order| order.sort.needs_form());
    request["form"] = json!(args.json || by_form);
    let place = Place {
        start,
        inside: within.bytes().to_vec(),
    };
    let found = match &order {
        Some(order) => sorted(args, &ask, request.clone(), &place, order, quiet)?,
        None => unsorted(args, &ask, request.clone(), &place)?,
    };
    match found || quiet || args.limit == Some(0) {
        true => Ok(()),
        false => note_unknown(args, &ask, &request),
    }
}

/// After a search that found nothing, names the tags of its query that nothing there has: most are misspelt.
fn note_unknown(args: &Args, ask: &Ask<'_>, searched: &Value) -> anyhow::Result<()> {
    // A mount of another version may know more of the language.
    let Ok(query) = args.query.parse::<Query>() else {
        return Ok(());
    };
    for key in query.tags() {
        let quoted = key.replace('\\', "\\\\").replace('"', "\\\"");
        // Without a comparison with kind only objects would be found; a socket has no tags.
        let mut request = json!({
            "op": "find",
            "in": searched["in"],
            "query": format!("has \"{quoted}\" and kind != socket"),
            "limit": 1,
        });
        let known = loop {
            match page(ask, &request)? {
                (hits, _) if !hits.is_empty() => break true,
                (_, Some(next)) => request["after"] = next,
                (_, None) => break false,
            }
        };
        if !known {
            output::error_line(&format!("slabfs: note: nothing there has a tag {key}"));
        }
    }
    Ok(())
}

/// Sends a request to the mount.
type Ask<'a> = dyn Fn(&Value) -> anyhow::Result<Value> + 'a;

/// Prints hits page by page; returns whether there were any.
fn unsorted(
    args: &Args,
    ask: &Ask<'_>,
    mut request: Value,
    place: &Place<'_>,
) -> anyhow::Result<bool> {
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut found = false;
    while left > 0 {
        request["limit"] = json!(left.min(PAGE));
        let (hits, next) = page(ask, &request)?;
        found |= !hits.is_empty();
        left = left.saturating_sub(hits.len() as u64);
        let reads_on = print(args, place, hits)?;
        match next.filter(|_| reads_on) {
            Some(next) => request["after"] = next,
            None => break,
        }
    }
    Ok(found)
}

/// Collects all pages, or only the first `--limit` hits of them, and prints them in order; returns whether there were
/// any.
fn sorted(
    args: &Args,
    ask: &Ask<'_>,
    mut request: Value,
    place: &Place<'_>,
    by: &Order,
    quiet: bool,
) -> anyhow::Result<bool> {
    if let Sort::Tag(tag) = &by.sort {
        request["tag"] = json!(tag);
    }
    request["limit"] = json!(PAGE);
    let wanted = args.limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    let mut all: Vec<(Hit, Value)> = Vec::new();
    let mut tagged = false;
    loop {
        let (hits, next) = page(ask, &request)?;
        tagged |= hits.iter().any(|hit| hit.get("tag").is_some());
        all.extend(hits.into_iter().map(|hit| (parsed(&hit), hit)));
        if all.len() / 2 > wanted {
            order(&mut all, by, wanted);
        }
        match next {
            Some(next) => request["after"] = next,
            None => break,
        }
    }
    order(&mut all, by, wanted);
    let found = !all.is_empty();
    print(args, place, all.into_iter().map(|(_, hit)| hit).collect())?;
    if let Sort::Tag(key) = &by.sort
        && found
        && !tagged
        && !quiet
    {
        output::error_line(&format!(
            "slabfs: note: nothing that was found has the tag {key} of --sort"
        ));
    }
    Ok(found)
}

fn order(all: &mut Vec<(Hit, Value)>, by: &Order, wanted: usize) {
    all.sort_by(|(a, _), (b, _)| by.compare(a, b));
    all.truncate(wanted);
}

/// The fields of a hit that sorting needs.
fn parsed(hit: &Value) -> Hit {
    let number = |key: &str| hit.get(key).and_then(Value::as_i64).unwrap_or(0);
    let text = |key: &str| hit.get(key).and_then(Value::as_str);
    let dims = hit.get("dims").and_then(Value::as_array);
    let dims = dims.map(|dims| dims.iter().filter_map(Value::as_u64).collect());
    let dtype = text("dtype").and_then(|dtype| dtype.parse().ok());
    let uid = hit.get("uid").and_then(Value::as_u64);
    let uid = uid.and_then(|uid| u32::try_from(uid).ok());
    Hit {
        ino: ObjectId(0),
        kind: kind(text("kind").unwrap_or_default()),
        path: path_of(hit),
        size: hit.get("size").and_then(Value::as_u64).unwrap_or(0),
        mtime: Time {
            sec: number("mtime"),
            nsec: number("mtime_ns") as u32,
        },
        tags: Vec::new(),
        tags_cut: false,
        tag: hit.get("tag").and_then(|tag| Tag::from_json(tag).ok()),
        form: uid.map(|uid| Form {
            uid,
            array: dtype.zip(dims),
        }),
    }
}

/// The kind with this name; character devices stand for both kinds of devices.
fn kind(name: &str) -> Kind {
    use Kind::{BlockDevice, CharDevice, Directory, Fifo, Object, Socket, Symlink};
    let kinds = [
        CharDevice,
        BlockDevice,
        Directory,
        Fifo,
        Object,
        Socket,
        Symlink,
    ];
    let named = kinds.into_iter().find(|kind| kind_name(*kind) == name);
    named.unwrap_or(CharDevice)
}

/// The hits of a page, and where the next page begins.
fn page(ask: &Ask<'_>, request: &Value) -> anyhow::Result<(Vec<Value>, Option<Value>)> {
    let mut page = ask(request)?;
    let hits = match page.get_mut("hits").map(Value::take) {
        Some(Value::Array(hits)) => hits,
        _ => Vec::new(),
    };
    let next = page.get_mut("next").map(Value::take);
    Ok((hits, next.filter(|next| !next.is_null())))
}

/// The directory in which a search began.
struct Place<'a> {
    /// As the user typed it.
    start: &'a Path,
    /// From the root of the mount.
    inside: Vec<u8>,
}

impl Place<'_> {
    /// Converts a path from the root of the mount to one that is usable from the current directory.
    fn path(&self, from_root: &[u8]) -> PathBuf {
        let below = match from_root.strip_prefix(&self.inside[..]) {
            Some(below) => below.strip_prefix(b"/").unwrap_or(below),
            None => from_root,
        };
        let below = PathBuf::from(OsString::from_vec(below.to_vec()));
        if below.as_os_str().is_empty() {
            self.start.to_owned()
        } else if self.start == Path::new(".") {
            below
        } else {
            self.start.join(below)
        }
    }
}

/// Prints hits; returns whether the reader of stdout still reads.
fn print(args: &Args, place: &Place<'_>, hits: Vec<Value>) -> anyhow::Result<bool> {
    let mut text = Vec::new();
    for mut hit in hits {
        let path = place.path(&path_of(&hit));
        if args.json {
            if let Some(map) = hit.as_object_mut() {
                map.remove("tag");
                map.insert("path".to_owned(), json!(path.to_string_lossy()));
            }
            text.extend_from_slice(hit.to_string().as_bytes());
        } else {
            text.extend_from_slice(path.as_os_str().as_bytes());
        }
        text.push(if args.paths0 { 0 } else { b'\n' });
    }
    output::bytes(&text)
}

/// The path of a hit from the root of the mount.
fn path_of(hit: &Value) -> Vec<u8> {
    let path = hit.get("path").map(PathText::deserialize);
    path.and_then(Result::ok)
        .map_or_else(Vec::new, |path| path.bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        assert_eq!(parse_part("0/4"), Ok((0, 4)));
        for wrong in ["4/4", "1", "-1/4", "a/b", "0/0"] {
            assert!(parse_part(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn orders() {
        let by = |text: &str| parse_order(text).map(|order| (order.sort, order.descending));
        let tag = |key: &str| Sort::Tag(key.to_owned());
        assert_eq!(by("name"), Ok((Sort::Name, false)));
        assert_eq!(by("-dims[1]"), Ok((Sort::Dim(1), true)));
        assert_eq!(by("step"), Ok((tag("step"), false)));
        assert_eq!(by("-user.step"), Ok((tag("step"), true)));
        assert_eq!(by("\"name\""), Ok((tag("name"), false)));
        for wrong in ["", "-", "dims", "dims[x]", "dims[99]", "slabfs.x"] {
            assert!(by(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn paths_begin_as_the_user_typed_them() {
        let path = |start: &str, inside: &str| {
            let place = Place {
                start: Path::new(start),
                inside: inside.as_bytes().to_vec(),
            };
            place.path(b"run1/temp").display().to_string()
        };
        assert_eq!(path("mnt", ""), "mnt/run1/temp");
        assert_eq!(path("mnt/run1", "run1"), "mnt/run1/temp");
        assert_eq!(path(".", "run1"), "temp");
        // The start itself, if directories are searched for.
        assert_eq!(path(".", "run1/temp"), ".");
        assert_eq!(path("mnt/run1", "run1/temp"), "mnt/run1");
    }
}
