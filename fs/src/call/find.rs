//! `find`: searches, a page at a time.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use slabfs_mdserver::api::{Caller, Hit, Ino, Kind, MAX_HITS};
use slabfs_mdserver::tags::query::kind_name;
use slabfs_model::{hex, unhex};

use super::access::Want;
use super::path::{PathText, Walk};
use super::{CallError, Context, cursor};
use crate::client::{Search, Sort};

/// Hits per page by default.
const PAGE: u32 = 1024;

/// `{"op": "find", "query": "step > 3", …}` → `{"hits": [{"path": …, …}, …], "next": …}`, or with
/// `"count": true` `{"count": N}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    query: String,
    /// Only below this container.
    #[serde(default, rename = "in")]
    within: Option<PathText>,
    /// Only share `[0]` of `[1]`.
    #[serde(default)]
    part: Option<(u32, u32)>,
    /// The maximum number of hits in the page.
    #[serde(default)]
    limit: Option<u32>,
    /// Return only the number of hits.
    #[serde(default)]
    count: bool,
    /// Return all tags of the hits.
    #[serde(default)]
    tags: bool,
    /// Return this tag of the hits, for sorting by the caller.
    #[serde(default)]
    tag: Option<String>,
    /// Return dtype, dims and owner.
    #[serde(default)]
    form: bool,
    /// The `next` of the previous page.
    #[serde(default)]
    after: Option<String>,
}

pub(super) fn run(context: &Context, request: Request) -> Result<Value, CallError> {
    let within = request.within.as_ref();
    let under = within
        .map(|path| under(&Walk::new(context, path)))
        .transpose()?;
    let search = Search {
        query: request.query,
        under,
        who: Some(who(&context.caller)),
        part: request.part,
        with_tags: request.tags,
        with_form: request.form,
        limit: None,
        sort: request.tag.map(Sort::Tag),
    };
    if request.count {
        return Ok(json!({ "count": context.client.count(&search)? }));
    }
    let after = request.after.as_deref().map(opened).transpose()?;
    let limit = request.limit.unwrap_or(PAGE).clamp(1, MAX_HITS);
    let (hits, next) = context.client.search_page(&search, limit, after)?;
    let hits: Vec<Value> = hits.iter().map(|hit| shown(hit, request.tags)).collect();
    let next = next.as_deref().map(cursor::seal).transpose()?;
    Ok(json!({ "hits": hits, "next": next.map(|next| hex(&next)) }))
}

/// The container of a search.
pub(crate) fn under(walk: &Walk<'_>) -> Result<Ino, CallError> {
    let entry = walk.find()?;
    if entry.attr.kind != Kind::Directory {
        return Err(CallError::NotDirectory(walk.path.to_string()));
    }
    // Without search permission nothing below it can be reached; deeper entries are found only if they can be listed.
    walk.check(&entry, Want::Search)?;
    Ok(entry.attr.ino)
}

/// The caller of a search.
pub(crate) fn who(caller: &super::Caller) -> Caller {
    let mut gids = caller.groups.clone();
    gids.push(caller.gid);
    Caller {
        uid: caller.uid,
        gids,
    }
}

fn shown(hit: &Hit, tags: bool) -> Value {
    let mut value = json!({
        "path": PathText::of_bytes(path_of_hit(&hit.path)),
        "ino": hit.ino.0,
        "kind": kind(hit.kind),
        "size": hit.size,
        "mtime": hit.mtime.sec,
        "mtime_ns": hit.mtime.nsec,
    });
    if tags {
        let all: Map<String, Value> = hit
            .tags
            .iter()
            .map(|(key, tag)| (key.clone(), tag.to_json()))
            .collect();
        value["tags"] = Value::Object(all);
        if hit.tags_cut {
            value["tags_cut"] = true.into();
        }
    }
    if let Some(form) = &hit.form {
        value["uid"] = json!(form.uid);
        if let Some((dtype, dims)) = &form.array {
            value["dtype"] = json!(dtype.to_string());
            value["dims"] = json!(dims.as_slice());
        }
    }
    if let Some(tag) = &hit.tag {
        value["tag"] = tag.to_typed_json();
    }
    value
}

/// The path of a hit from the root, as the mount shows it.
pub(crate) fn path_of_hit(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/").unwrap_or(path)
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::CharDevice | Kind::BlockDevice => "device",
        other => kind_name(other),
    }
}

/// The position that a cursor holds.
fn opened(after: &str) -> Result<Vec<u8>, CallError> {
    let sealed = unhex(after).ok_or_else(|| {
        CallError::Invalid("\"after\" is the \"next\" of the page before".to_owned())
    })?;
    cursor::open(&sealed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_hexadecimal() {
        let sealed = cursor::seal(&[0, 7, 255]).unwrap();
        assert_eq!(opened(&hex(&sealed)).unwrap(), [0, 7, 255]);
        for wrong in ["0", "0g", "é"] {
            assert!(opened(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn paths_open_again() {
        let shown = |path| json!(PathText::of_bytes(path_of_hit(path)));
        assert_eq!(shown(b"/a/b@[x"), json!("a/b@[x"));
        assert_eq!(shown(b"/\xff"), json!([255]));
    }
}
