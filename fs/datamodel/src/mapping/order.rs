//! The order of attributes, and of what a group has: the tag `_slabfs_order`, where it is not that of the names.
//!
//! It is JSON: `{"attributes": ["units", "axis"], "entries": ["TEMP", "SALT"]}`. What it does not name follows by name.

use std::collections::HashMap;

use crate::tree::Attribute;
use serde_json::{Map, Value as Json, json};
use slabfs_model::Tag;

/// The tag with the order.
const ORDER: &str = "_slabfs_order";
/// Most bytes of it; a longer one is left out, since nothing else depends on it.
const MOST: usize = 200 << 10;

/// Adds the tag, if attributes or entries are not sorted by name.
pub(super) fn add<'a>(
    tags: &mut Map<String, Json>,
    attributes: &'a [Attribute],
    entries: impl Iterator<Item = &'a str>,
) {
    let attributes: Vec<&str> = attributes.iter().map(|one| one.name.as_str()).collect();
    let lists = [("attributes", attributes), ("entries", entries.collect())];
    let lists = lists.into_iter().filter(|(_, names)| !names.is_sorted());
    let lists: Map<String, Json> = lists
        .map(|(what, names)| (what.to_owned(), json!(names)))
        .collect();
    let text = Json::Object(lists).to_string();
    if text.len() > "{}".len() && text.len() <= MOST {
        tags.insert(ORDER.to_owned(), json!(text));
    }
}

/// Positions by name.
#[derive(Debug, Default)]
pub struct Order {
    positions: HashMap<String, usize>,
}

impl Order {
    /// The order of the attributes of an object or container with these tags.
    pub(super) fn of_attributes(tags: &Map<String, Json>) -> Order {
        Order::of(tags, "attributes")
    }

    /// The order of what a container with these tags has.
    pub fn of_entries(tags: &Map<String, Json>) -> Order {
        Order::of(tags, "entries")
    }

    /// A tag that users have spoiled is no order.
    fn of(tags: &Map<String, Json>, what: &str) -> Order {
        let tag = tags.get(ORDER).and_then(|json| Tag::from_json(json).ok());
        let json = tag.and_then(|tag| serde_json::from_slice::<Json>(&tag.bytes).ok());
        let names = json.and_then(|mut json| match json.get_mut(what).map(Json::take) {
            Some(Json::Array(names)) => Some(names),
            _ => None,
        });
        let names = names.unwrap_or_default().into_iter().enumerate();
        let positions = names.filter_map(|(at, name)| Some((name.as_str()?.to_owned(), at)));
        Order {
            positions: positions.collect(),
        }
    }

    /// What a name is sorted by.
    pub fn key(&self, name: &str) -> (usize, String) {
        let position = self.positions.get(name).copied();
        (position.unwrap_or(usize::MAX), name.to_owned())
    }
}
