//! The JSON of a node: a group or an array, of version 2 or 3.
//!
//! Python writes `NaN` and `Infinity` into JSON, which has no such words: they are read as texts with a zero character
//! before them, which no JSON file has otherwise.

use serde_json::{Map, Value as Json};

use super::ARRAY_DIMENSIONS;
use super::store::Store;

/// Longest metadata of a node.
const LONGEST: u64 = 64 << 20;

/// A group or an array.
#[derive(Debug)]
pub(super) struct Node {
    /// The metadata of an array; `None` for a group.
    pub(super) array: Option<Json>,
    pub(super) attributes: Map<String, Json>,
    /// The names of an array's dimensions, empty where there is none; `None` if it has no names.
    pub(super) dims: Option<Vec<String>>,
}

impl Node {
    /// Reads the node of a directory, if it is one; an error says what is wrong. `prefix` ends in `/` if it is not empty.
    pub(super) fn read(store: &Store, prefix: &str) -> Result<Option<Node>, String> {
        if let Some(json) = json(store, &format!("{prefix}zarr.json"))? {
            return Node::version3(json).map(Some);
        }
        let array = json(store, &format!("{prefix}.zarray"))?;
        if array.is_none() && json(store, &format!("{prefix}.zgroup"))?.is_none() {
            return Ok(None);
        }
        let mut attributes = json(store, &format!("{prefix}.zattrs"))?.unwrap_or_default();
        let dims = match array {
            Some(_) => attributes.remove(ARRAY_DIMENSIONS),
            None => None,
        };
        Ok(Some(Node {
            array: array.map(Json::Object),
            dims: names(dims.as_ref())?,
            attributes,
        }))
    }

    fn version3(mut json: Map<String, Json>) -> Result<Node, String> {
        let attributes = json.remove("attributes").unwrap_or_default();
        let attributes = match attributes {
            Json::Null => Map::new(),
            attributes => object_of(attributes, "attributes")?,
        };
        match json.get("node_type").and_then(Json::as_str) {
            Some("group") => Ok(Node {
                array: None,
                attributes,
                dims: None,
            }),
            Some("array") => Ok(Node {
                dims: names(json.get("dimension_names"))?,
                attributes,
                array: Some(Json::Object(json)),
            }),
            _ => Err("zarr.json has no node_type that is group or array".to_owned()),
        }
    }
}

fn names(dims: Option<&Json>) -> Result<Option<Vec<String>>, String> {
    let Some(dims) = dims.filter(|dims| !dims.is_null()) else {
        return Ok(None);
    };
    let wrong = || "names of dimensions are no list of texts".to_owned();
    let names = dims.as_array().ok_or_else(wrong)?.iter();
    let names = names.map(|name| match name {
        Json::Null => Ok(String::new()),
        Json::String(name) => Ok(name.clone()),
        _ => Err(wrong()),
    });
    names.collect::<Result<_, _>>().map(Some)
}

/// An object in a file, if there is one.
fn json(store: &Store, name: &str) -> Result<Option<Map<String, Json>>, String> {
    let bytes = store
        .text(name, LONGEST)
        .map_err(|error| error.to_string())?;
    let Some(bytes) = bytes else {
        return Ok(None);
    };
    let text = String::from_utf8(bytes).map_err(|_| format!("{name} is not UTF-8"))?;
    let json = serde_json::from_str(&text).or_else(|_| serde_json::from_str(&with_words(&text)));
    object_of(
        json.map_err(|error| format!("{name} is no JSON: {error}"))?,
        name,
    )
    .map(Some)
}

fn object_of(json: Json, name: &str) -> Result<Map<String, Json>, String> {
    match json {
        Json::Object(object) => Ok(object),
        _ => Err(format!("{name} is not an object of JSON")),
    }
}

/// The text with `NaN`, `Infinity` and `-Infinity` outside of strings as strings that [`word`] knows.
fn with_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut rest = text;
    let mut inside = false;
    while let Some(char) = rest.chars().next() {
        if !inside {
            let found = ["NaN", "Infinity", "-Infinity"]
                .into_iter()
                .find(|word| rest.starts_with(word));
            if let Some(word) = found {
                out.push_str("\"\\u0000");
                out.push_str(word);
                out.push('"');
                rest = &rest[word.len()..];
                continue;
            }
        }
        let mut len = char.len_utf8();
        match char {
            '"' => inside = !inside,
            '\\' if inside => len += rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => {}
        }
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out
}

/// The number that one of these words is.
pub(super) fn word(json: &Json) -> Option<f64> {
    match json.as_str()?.strip_prefix('\0')? {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// The same JSON with these words as plain texts, as Zarr has them in fill values.
pub(super) fn plain_words(json: &mut Json) {
    match json {
        Json::String(text) => {
            if let Some(plain) = text.strip_prefix('\0') {
                *text = plain.to_owned();
            }
        }
        Json::Array(members) => members.iter_mut().for_each(plain_words),
        Json::Object(entries) => entries.values_mut().for_each(plain_words),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_python_are_read() {
        let text = r#"{"a": NaN, "b": [1, -Infinity, "NaN\"NaN"], "NaN": Infinity}"#;
        let mut json: Json = serde_json::from_str(&with_words(text)).expect("JSON");
        assert!(word(&json["a"]).is_some_and(f64::is_nan));
        assert_eq!(word(&json["b"][1]), Some(f64::NEG_INFINITY));
        assert_eq!(json["b"][2], "NaN\"NaN");
        assert_eq!(word(&json["NaN"]), Some(f64::INFINITY));
        plain_words(&mut json);
        assert_eq!(json["a"], "NaN");
    }
}
