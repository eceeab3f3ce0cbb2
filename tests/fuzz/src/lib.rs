//! The fuzz targets, without the fuzzer: `tools/fuzz` runs them with libFuzzer, and the test `seeds` of the workspace with
//! the seeds in `corpus` and random changes of them.

pub mod targets;

use std::borrow::Cow;
use std::collections::BTreeMap;

use slabfs_mdserver::api::Time;
use slabfs_mdserver::tags::query::{Builtin, BuiltinValue, Subject};
use slabfs_model::Tag;
use tempfile::TempDir;

/// A temporary directory, in memory where there is such a filesystem.
pub fn scratch() -> TempDir {
    let shm = std::path::Path::new("/dev/shm");
    let dir = match shm.is_dir() {
        true => TempDir::new_in(shm),
        false => TempDir::new(),
    };
    dir.expect("a directory")
}

/// An object for queries.
#[derive(Debug, Default)]
pub struct Thing {
    /// Its tags.
    pub tags: BTreeMap<String, Tag>,
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
            Builtin::Name => text("temp"),
            Builtin::Path => text("/run1/temp"),
            Builtin::DType => text("f4"),
            Builtin::Kind => text("object"),
            Builtin::Rank => Some(BuiltinValue::Number(2)),
            Builtin::Dim(axis) => (axis < 2).then_some(BuiltinValue::Number(u64::MAX)),
            Builtin::Size => Some(BuiltinValue::Number(1 << 40)),
            Builtin::Mtime => Some(BuiltinValue::Time(Time { sec: 0, nsec: 1 })),
            Builtin::Owner => Some(BuiltinValue::Owner { uid: 7, name: None }),
        }
    }

    fn now(&self) -> Time {
        Time { sec: 1, nsec: 0 }
    }
}
