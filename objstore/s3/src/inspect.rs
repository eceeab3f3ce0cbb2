//! Checking the bucket: descriptions of chunks, objects that are missing, and objects that nothing refers to.

use std::collections::BTreeSet;

use slabfs_objstore::store::{Held, Inspect};
use slabfs_objstore::{ChunkName, StoreError};

use crate::index::{Object, Stored};
use crate::store::{Result, S3Store};

/// The objects of an identity, compared with its index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Objects {
    /// Chunks with an object that has to exist and does not.
    pub missing: Vec<(ChunkName, String)>,
    /// Objects of chunks that nothing refers to, as uploads that were broken off leave them.
    pub unreferenced: Vec<String>,
}

impl Inspect for S3Store {
    fn describe(&self, name: &ChunkName) -> Result<Held> {
        let state = self.state.lock();
        match state.index.chunks.get(name) {
            Some(Stored::Chunk {
                form,
                encoded,
                span,
            }) => Ok(Held {
                form: form.clone(),
                sealed: true,
                raw: (!encoded).then_some(span.len),
            }),
            Some(Stored::Grid { form, .. }) => Ok(Held {
                form: form.clone(),
                sealed: false,
                raw: None,
            }),
            // In the cache alone.
            None => {
                drop(state);
                self.local.describe(name)
            }
        }
    }
}

impl S3Store {
    /// Compares the index with the objects in the bucket. Nothing may be stored meanwhile.
    ///
    /// # Errors
    /// Those of the bucket.
    pub fn compare(&self) -> Result<Objects> {
        let _uploading = self.uploading.lock();
        let listed = |folder: &str| -> Result<BTreeSet<String>> {
            let names = self.bucket.list(&format!("{}/{folder}", self.id))?;
            let key = |name: String| format!("{}/{folder}/{name}", self.id);
            Ok(names.into_iter().map(key).collect())
        };
        let (segments, own) = (listed("segments")?, listed("chunks")?);
        let mut objects = Objects::default();
        let mut referenced: BTreeSet<String> = BTreeSet::new();
        let state = self.state.lock();
        for (name, stored) in &state.index.chunks {
            for span in stored.spans() {
                let (key, there) = match &span.object {
                    Object::Segment(number) => (self.segment_key(*number), &segments),
                    Object::Own(key) => (key.clone(), &own),
                };
                if span.len > 0 && !there.contains(&key) {
                    objects.missing.push((name.clone(), key.clone()));
                }
                referenced.insert(key);
            }
        }
        // Those are deleted with the next index.
        referenced.extend(self.garbage.lock().iter().cloned());
        referenced.extend(self.tried.lock().iter().cloned());
        referenced.extend(self.ahead.lock().values().map(|ahead| ahead.key.clone()));
        referenced.extend(state.deleted.values().flatten().cloned());
        objects.unreferenced = own.difference(&referenced).cloned().collect();
        Ok(objects)
    }

    /// Deletes objects that nothing refers to.
    ///
    /// # Errors
    /// Those of the bucket; `Invalid` for one that is referred to by now.
    pub fn delete_unreferenced(&self, keys: &[String]) -> Result<()> {
        let now: BTreeSet<String> = self.compare()?.unreferenced.into_iter().collect();
        if let Some(key) = keys.iter().find(|key| !now.contains(*key)) {
            return Err(StoreError::Invalid(format!("{key} is in use")));
        }
        self.bucket.delete_all(keys)
    }
}
