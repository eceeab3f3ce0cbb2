//! The defaults of a container as JSON and as attributes.
//!
//! | name on a directory | read | set | remove | listed |
//! |---|---|---|---|---|
//! | `user.slabfs.defaults` | all of them as JSON | replaces all of them | clears all | if there are any |
//! | `user.slabfs.default.KEY` | text | sets one | clears one | no |
//!
//! `KEY` is `dtype`, `fill`, `layout`, `codec`, `placement` or `couple`. The JSON has the same keys with the same texts, and
//! `tags`, an object of tags; tags without a type are `{"auto": TEXT}`. Only one attribute is listed, so that a copy
//! of the directory gets all of them in one step.

use serde_json::{Map, Value, json};
use slabfs_mdserver::api::{DefaultKey, Defaults, DefaultsChange};
use slabfs_model::Tag;

use super::attributes::{AttributeError, json_of_spec, spec_of_json};

/// The attribute that holds all of them.
pub const ALL: &str = "user.slabfs.defaults";
/// The prefix of the attributes that hold one.
const ONE: &[u8] = b"user.slabfs.default.";

/// An attribute of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefaultAttribute {
    /// All defaults.
    All,
    /// One of them.
    One(&'static str),
}

/// Keys of single defaults.
const KEYS: [&str; 6] = ["dtype", "fill", "layout", "codec", "placement", "couple"];

/// The defaults that an attribute's name denotes, if any.
pub fn attribute(name: &[u8]) -> Option<DefaultAttribute> {
    if name == ALL.as_bytes() {
        return Some(DefaultAttribute::All);
    }
    let key = name.strip_prefix(ONE)?;
    let known = KEYS.iter().find(|known| known.as_bytes() == key)?;
    Some(DefaultAttribute::One(known))
}

/// Parses the key of a default: a key of the attributes, `tags`, `tag:NAME` or `all`.
pub fn key(text: &str) -> Result<DefaultKey, String> {
    Ok(match text {
        "all" => DefaultKey::All,
        "dtype" => DefaultKey::Dtype,
        "fill" => DefaultKey::Fill,
        "layout" => DefaultKey::Layout,
        "codec" => DefaultKey::Codec,
        "placement" => DefaultKey::Placement,
        "couple" => DefaultKey::Couple,
        "tags" => DefaultKey::Tags,
        _ => match text.strip_prefix("tag:") {
            Some(name) => DefaultKey::Tag(name.to_owned()),
            None => {
                return Err(format!(
                    "there is no default \"{text}\"; there are {}, tags, tag:NAME and all",
                    KEYS.join(", ")
                ));
            }
        },
    })
}

/// Defaults as JSON, without those that are not set.
pub fn to_json(defaults: &Defaults) -> Value {
    let mut map = json_of_spec(&defaults.spec);
    if !defaults.tags.is_empty() {
        let tags: Map<String, Value> = defaults
            .tags
            .iter()
            .map(|(key, tag)| (key.clone(), tag.to_typed_json()))
            .collect();
        map.insert("tags".to_owned(), Value::Object(tags));
    }
    Value::Object(map)
}

/// Parses defaults from such JSON.
///
/// # Errors
/// As text: the invalid default.
pub fn from_json(mut map: Map<String, Value>) -> Result<Defaults, String> {
    let tags = match map.remove("tags") {
        None | Some(Value::Null) => Vec::new(),
        Some(tags) => tags_of_json(&tags)?,
    };
    let spec = spec_of_json(&map)?;
    Ok(Defaults { spec, tags })
}

/// Tags from a JSON object, `{"project": "climate", "step": 3}`.
///
/// # Errors
/// As text: which tag is wrong, and how.
pub fn tags_of_json(tags: &Value) -> Result<Vec<(String, Tag)>, String> {
    let Value::Object(map) = tags else {
        return Err("tags are an object, as {\"project\": \"climate\", \"step\": 3}".to_owned());
    };
    map.iter()
        .map(|(key, value)| match Tag::from_json(value) {
            Ok(tag) => Ok((key.clone(), tag)),
            Err(error) => Err(format!("tag {key}: {error}")),
        })
        .collect()
}

impl DefaultAttribute {
    /// Its value; `None` where there is no such default.
    pub fn read(&self, defaults: &Defaults) -> Option<Vec<u8>> {
        match self {
            Self::All if defaults.is_empty() => None,
            Self::All => Some(to_json(defaults).to_string().into_bytes()),
            Self::One(key) => match json_of_spec(&defaults.spec).remove(*key)? {
                Value::String(text) => Some(text.into_bytes()),
                _ => None,
            },
        }
    }

    /// The change that setting it to `value` requests.
    ///
    /// # Errors
    /// The value is malformed.
    pub fn set(&self, value: &[u8]) -> Result<DefaultsChange, AttributeError> {
        let (name, clear) = match self {
            Self::All => ("defaults", vec![DefaultKey::All]),
            Self::One(key) => (*key, Vec::new()),
        };
        let malformed = |reason: String| AttributeError::Malformed { name, reason };
        let text = std::str::from_utf8(value)
            .map_err(|_| malformed("the value must be text".to_owned()))?
            .trim_end_matches(['\0', '\n']);
        let map = match self {
            Self::All => serde_json::from_str(text).map_err(|error| {
                malformed(format!("a JSON object, e.g. {{\"dtype\":\"f4\"}}: {error}"))
            })?,
            Self::One(key) => Map::from_iter([((*key).to_owned(), json!(text))]),
        };
        let set = from_json(map).map_err(malformed)?;
        Ok(DefaultsChange { clear, set })
    }

    /// The change that removing it requests.
    pub fn remove(&self) -> DefaultsChange {
        let key = match self {
            Self::All => Ok(DefaultKey::All),
            Self::One(one) => key(one),
        };
        DefaultsChange {
            // Every attribute has a key.
            clear: key.into_iter().collect(),
            set: Defaults::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_round_trips() {
        let text = r#"{"dtype":"f4","fill":"nan","layout":"aligned","codec":"lz4","placement":"local","tags":{"a":"x","id":{"auto":"007"},"n":3,"w":[1,2.5]}}"#;
        let change = DefaultAttribute::All.set(text.as_bytes()).unwrap();
        assert_eq!(change.clear, [DefaultKey::All]);
        assert_eq!(to_json(&change.set).to_string(), text);
        let read = DefaultAttribute::All.read(&change.set).unwrap();
        assert_eq!(read, text.as_bytes());
        let one = attribute(b"user.slabfs.default.dtype").unwrap();
        assert_eq!(one.read(&change.set).unwrap(), b"f4");
        assert_eq!(one.read(&Defaults::default()), None);
        assert_eq!(one.remove().clear, [DefaultKey::Dtype]);
    }

    #[test]
    fn invalid_defaults_are_refused() {
        assert_eq!(attribute(b"user.slabfs.default.dims"), None);
        assert_eq!(attribute(b"user.slabfs.dtype"), None);
        for wrong in [
            "[]",
            "{\"x\":1}",
            "{\"dtype\":\"q9\"}",
            "{\"tags\":3}",
            "{\"tags\":{\"a\":null}}",
        ] {
            assert!(
                DefaultAttribute::All.set(wrong.as_bytes()).is_err(),
                "{wrong}"
            );
        }
        assert!(key("tag:x").is_ok() && key("dims").is_err());
    }
}
