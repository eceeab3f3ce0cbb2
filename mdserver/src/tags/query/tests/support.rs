//! An object with tags to ask queries about.

use slabfs_model::Tag;
use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::api::Time;
use crate::tags::query::{Builtin, BuiltinValue, Query, Subject};

#[derive(Debug, Clone, Default)]
pub(super) struct Thing {
    pub(super) tags: BTreeMap<String, Tag>,
}

impl Thing {
    pub(super) fn with(tags: &[&str]) -> Self {
        let tags = tags.iter().map(|tag| Tag::parse_assignment(tag).unwrap());
        Self {
            tags: tags.collect(),
        }
    }

    pub(super) fn entries(&self, ino: u64) -> Vec<Vec<u8>> {
        let tags: Vec<_> = self.tags.clone().into_iter().collect();
        crate::tags::entry::entries(slabfs_model::ObjectId(ino), &tags)
    }
}

impl Subject for Thing {
    fn tag(&self, key: &str) -> Option<Cow<'_, Tag>> {
        self.tags.get(key).map(Cow::Borrowed)
    }

    fn each_key(&self, f: &mut dyn FnMut(&str) -> bool) -> bool {
        self.tags.keys().any(|key| f(key))
    }

    fn builtin(&self, builtin: Builtin) -> Option<BuiltinValue<'_>> {
        let text = |text: &'static str| Some(BuiltinValue::Text(text.into()));
        match builtin {
            Builtin::Name => text("temp.dat"),
            Builtin::Path => text("/run1/temp.dat"),
            Builtin::DType => text("f4"),
            Builtin::Rank => Some(BuiltinValue::Number(2)),
            Builtin::Dim(axis) => [16, 9].get(axis).map(|&dim| BuiltinValue::Number(dim)),
            Builtin::Size => Some(BuiltinValue::Number(1536)),
            Builtin::Mtime => Some(BuiltinValue::Time(Time {
                sec: 1_795_343_405,
                nsec: 5,
            })),
            Builtin::Owner => Some(BuiltinValue::Owner {
                uid: 1000,
                name: Some("alice".into()),
            }),
            Builtin::Kind => text("object"),
        }
    }

    /// Ten hours after its mtime.
    fn now(&self) -> Time {
        Time {
            sec: 1_795_379_405,
            nsec: 5,
        }
    }
}

pub(super) fn matches(thing: &Thing, query: &str) -> bool {
    let parsed = Query::parse(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    let shown = parsed.to_string();
    let again = Query::parse(&shown).unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert_eq!(again, parsed, "{query} became {shown}");
    parsed.matches(thing)
}
