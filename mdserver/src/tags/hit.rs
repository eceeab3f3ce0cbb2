//! Matching of hits on the client's side, where no service knows all that a query asks for: of an object in another shard than its
//! names, one has the name and the other one the rest.

use std::borrow::Cow;

use slabfs_model::Tag;

use super::query::{Builtin, BuiltinValue, Query, Subject, kind_name};
use super::subject::user_name;
use crate::api::{Hit, Time};

/// Whether a hit with all its tags, its form and its path fits a query at the time `now`.
#[must_use]
pub fn fits(query: &Query, hit: &Hit, now: Time) -> bool {
    query.matches(&OfHit { hit, now })
}

struct OfHit<'a> {
    hit: &'a Hit,
    now: Time,
}

impl Subject for OfHit<'_> {
    fn tag(&self, key: &str) -> Option<Cow<'_, Tag>> {
        let found = self.hit.tags.iter().find(|(known, _)| known == key);
        found.map(|(_, tag)| Cow::Borrowed(tag))
    }

    fn each_key(&self, f: &mut dyn FnMut(&str) -> bool) -> bool {
        self.hit.tags.iter().any(|(key, _)| f(key))
    }

    fn builtin(&self, builtin: Builtin) -> Option<BuiltinValue<'_>> {
        let form = self.hit.form.as_ref();
        let array = || form.and_then(|form| form.array.as_ref());
        Some(match builtin {
            Builtin::Name => {
                let mut parts = self.hit.path.rsplit(|&byte| byte == b'/');
                BuiltinValue::Text(String::from_utf8_lossy(parts.next().unwrap_or_default()))
            }
            Builtin::Path => BuiltinValue::Text(String::from_utf8_lossy(&self.hit.path)),
            Builtin::DType => BuiltinValue::Text(Cow::Owned(array()?.0.to_string())),
            Builtin::Rank => BuiltinValue::Number(array()?.1.len() as u64),
            Builtin::Dim(axis) => BuiltinValue::Number(*array()?.1.get(axis)?),
            Builtin::Size => BuiltinValue::Number(self.hit.size),
            Builtin::Mtime => BuiltinValue::Time(self.hit.mtime),
            Builtin::Owner => {
                let uid = form?.uid;
                BuiltinValue::Owner {
                    uid,
                    name: user_name(uid).map(Cow::Owned),
                }
            }
            Builtin::Kind => BuiltinValue::Text(Cow::Borrowed(kind_name(self.hit.kind))),
        })
    }

    fn now(&self) -> Time {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Form, Kind};
    use slabfs_model::{Coords, ObjectId};

    #[test]
    fn hits_are_matched_and_found_without_their_names() {
        let hit = Hit {
            ino: ObjectId(7),
            kind: Kind::Object,
            path: b"/run1/temp.nc".to_vec(),
            size: 64,
            mtime: Time { sec: 100, nsec: 0 },
            tags: vec![("step".to_owned(), Tag::int(3))],
            tags_cut: false,
            tag: None,
            form: Some(Form {
                uid: 4242,
                array: Some(("f4".parse().unwrap(), Coords::from_slice(&[4, 4]))),
            }),
        };
        let now = Time { sec: 200, nsec: 0 };
        for (text, is_hit) in [
            ("name = *.nc", true),
            ("name = temp.nc and step = 3", true),
            ("name = other and step = 3", false),
            ("not name = *.nc", false),
            ("path = /run1/* and rank = 2 and dims[1] = 4", true),
            ("not (path = /run2/* or step = 4)", true),
            ("name != temp.nc", false),
            ("name = x or has step", true),
            (
                "owner = 4242 and dtype = f* and size < 100 and kind = object",
                true,
            ),
            ("mtime < 1980-01-01 and not has other and *ep in 1..3", true),
            ("name in (a, temp.nc)", true),
        ] {
            let query = Query::parse(text).unwrap();
            assert_eq!(fits(&query, &hit, now), is_hit, "{text}");
            // Without names it finds at least as much, with any name.
            let without = query.without_names();
            assert!(!without.names(Builtin::Name) && !without.names(Builtin::Path));
            let again = Query::parse(&without.to_string()).unwrap();
            assert_eq!(again, without, "{text}");
            assert!(fits(&without, &hit, now) || !is_hit, "{text}: {without}");
        }
        let shown = |text: &str| Query::parse(text).unwrap().without_names().to_string();
        assert_eq!(shown("name = a and step = 3"), "has size and step = 3");
        assert_eq!(shown("not name = a"), "not not has size");
    }
}
