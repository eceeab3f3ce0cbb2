//! [`Shards`]: the sessions of one mount with all shards of a filesystem, and operations that need more than one of them.
//!
//! Names are in the first shard, each object is in the shard that its number says (docs/decisions/33-shards.md). An operation on a name
//! of an object in another shard changes the name first; that decides it. The object's shard is informed, and some time later the shard of
//! names that this is done. If a step fails, the operation has happened all the same, and the rest is done later, by this mount or
//! another one ([`Shards::finish`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use slabfs_model::ShardId;

use super::Md;
use crate::api::{
    Birth, Create, Created, DirEntry, Entry, Ino, Links, MAX_CREATE, MAX_PATHS, MAX_UNFINISHED,
    MdError, NewObject, TagChange, Unlinked, op,
};

/// How often a create is tried while others create and remove the same name.
const TRIES: usize = 16;

/// The sessions of a mount; of a filesystem that is not divided, the only one.
#[derive(Debug, Clone)]
pub struct Shards {
    all: Vec<Md>,
    /// Changes of links that the objects' shards have, and the shard of names does not know to be done.
    done: Arc<Mutex<Vec<Links>>>,
}

impl Shards {
    /// Of sessions in the order of their shards.
    #[must_use]
    pub fn new(all: Vec<Md>) -> Self {
        Self {
            all,
            done: Arc::default(),
        }
    }

    /// Whether objects are in other shards than names.
    #[must_use]
    pub fn divided(&self) -> bool {
        self.all.len() > 1
    }

    /// The session with the shard of names.
    ///
    /// # Panics
    /// If there are no sessions.
    #[must_use]
    pub fn names(&self) -> &Md {
        &self.all[0]
    }

    /// All sessions.
    #[must_use]
    pub fn all(&self) -> &[Md] {
        &self.all
    }

    /// The session with the shard that has an inode.
    ///
    /// # Errors
    /// [`MdError::NotFound`] for a number of no shard.
    pub fn of(&self, ino: Ino) -> Result<&Md, MdError> {
        self.all
            .get(usize::from(ino.shard().0))
            .ok_or(MdError::NotFound)
    }

    /// Whether an inode is in another shard than its names.
    #[must_use]
    pub fn is_remote(&self, ino: Ino) -> bool {
        self.divided() && ino.shard() != ShardId::NAMES
    }

    /// Creates an inode with a name. If it is an object of another shard, `adopt` has it created there (see [`op::Adopt`]), or opens it
    /// if the name exists and its shard has it; it returns `None` if the object was removed meanwhile.
    ///
    /// # Errors
    /// Those of the services. The name may exist then.
    pub fn create<T, E: From<MdError>>(
        &self,
        create: &Create,
        mut adopt: impl FnMut(&Created) -> Result<Option<(Entry, T)>, E>,
    ) -> Result<(Created, Option<T>), E> {
        for _ in 0..TRIES {
            let mut made = self.names().call(create.clone())?;
            if !self.is_remote(made.entry.attr.ino) {
                return Ok((made, None));
            }
            match adopt(&made)? {
                Some((entry, opened)) => {
                    self.born(made.birth.as_deref());
                    made.entry = entry;
                    return Ok((made, Some(opened)));
                }
                None if made.created => {
                    // Another client has removed it already.
                    return Err(MdError::NotFound.into());
                }
                None => {}
            }
        }
        Err(MdError::Busy.into())
    }

    /// Creates objects, all of them or none, and returns their numbers in order.
    ///
    /// # Errors
    /// As [`op::CreateMany`].
    pub fn create_many(&self, objects: Vec<NewObject>) -> Result<Vec<Ino>, MdError> {
        let inos = self.names().call(op::CreateMany { objects })?;
        if self.divided() {
            self.adopt(&inos)?;
        }
        Ok(inos)
    }

    /// Has objects created in their shards where that is left to do. Returns those that were.
    ///
    /// # Errors
    /// Those of the services.
    pub fn adopt(&self, inos: &[Ino]) -> Result<Vec<Entry>, MdError> {
        let mut adopted = Vec::new();
        for some in inos.chunks(MAX_CREATE) {
            let inos = some.to_vec();
            let births = self.names().call(op::Births { inos })?;
            for (shard, births) in self.by_shard(births, |birth| birth.entry.attr.ino) {
                let adopt = op::Adopt {
                    births: births.clone(),
                    open: false,
                };
                adopted.extend(shard.call(adopt)?);
                births.iter().for_each(|birth| self.born(Some(birth)));
            }
        }
        Ok(adopted)
    }

    /// An entry of an object of another shard, which its names led to: `ask` asks that shard. `None` if the object is gone.
    ///
    /// # Errors
    /// Those of the services.
    pub fn entry<E: From<MdError>>(
        &self,
        ino: Ino,
        is_missing: impl Fn(&E) -> bool,
        ask: impl Fn() -> Result<Entry, E>,
    ) -> Result<Option<Entry>, E> {
        match ask() {
            Ok(entry) => return Ok(Some(entry)),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error),
        }
        // It is gone; or who created its name has not come to the object yet.
        if self.adopt(&[ino])?.is_empty() {
            return Ok(None);
        }
        match ask() {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the entries of objects of other shards in a page of a directory by those that their shards have; objects that are gone
    /// are left out.
    ///
    /// # Errors
    /// Those of the services.
    pub fn complete(&self, page: &mut Vec<DirEntry>) -> Result<(), MdError> {
        let remote: Vec<Ino> = page
            .iter()
            .map(|entry| entry.entry.attr.ino)
            .filter(|ino| self.is_remote(*ino))
            .collect();
        if remote.is_empty() {
            return Ok(());
        }
        let mut known: HashMap<Ino, Entry> = HashMap::with_capacity(remote.len());
        for some in remote.chunks(MAX_PATHS) {
            for (shard, inos) in self.by_shard(some.to_vec(), |ino| *ino) {
                let found = shard.call(op::GetAttrs { inos })?;
                known.extend(found.into_iter().map(|entry| (entry.attr.ino, entry)));
            }
        }
        let absent = remote.iter().copied();
        let absent: Vec<Ino> = absent.filter(|ino| !known.contains_key(ino)).collect();
        if !absent.is_empty() {
            let adopted = self.adopt(&absent)?;
            known.extend(adopted.into_iter().map(|entry| (entry.attr.ino, entry)));
        }
        page.retain_mut(|entry| {
            let ino = entry.entry.attr.ino;
            match (self.is_remote(ino), known.get(&ino)) {
                (false, _) => true,
                (true, Some(found)) => {
                    entry.entry = found.clone();
                    true
                }
                (true, None) => false,
            }
        });
        Ok(())
    }

    /// Sets and removes tags, in one step in each shard. An error names the position of the change that failed.
    ///
    /// # Errors
    /// As [`op::Tag`].
    pub fn tag(&self, changes: Vec<TagChange>) -> Result<(), MdError> {
        let numbered: Vec<(usize, TagChange)> = changes.into_iter().enumerate().collect();
        for (shard, changes) in self.by_shard(numbered, |(_, change)| change.ino) {
            let (numbers, changes): (Vec<usize>, Vec<TagChange>) = changes.into_iter().unzip();
            shard
                .call(op::Tag { changes })
                .map_err(|error| match error {
                    MdError::At { index, error } => MdError::At {
                        index: numbers
                            .get(index as usize)
                            .map_or(index, |number| *number as u32),
                        error,
                    },
                    other => other,
                })?;
        }
        Ok(())
    }

    /// Gives an inode one more name, as [`op::Link`].
    ///
    /// # Errors
    /// Those of the shard of names.
    pub fn link(&self, ino: Ino, parent: Ino, name: Vec<u8>) -> Result<Entry, MdError> {
        let entry = self.names().call(op::Link { ino, parent, name })?;
        if self.is_remote(ino) {
            self.inform(Some(Links {
                ino,
                count: entry.attr.nlink,
                change: entry.attr.change,
                unborn: entry.info.is_some(),
            }));
        }
        Ok(entry)
    }

    /// Removes a name, as [`op::Unlink`].
    ///
    /// # Errors
    /// Those of the shard of names.
    pub fn unlink(&self, parent: Ino, name: Vec<u8>) -> Result<(), MdError> {
        let Unlinked { links } = self.names().call(op::Unlink { parent, name })?;
        self.inform(links);
        Ok(())
    }

    /// Renames, as [`op::Rename`].
    ///
    /// # Errors
    /// Those of the shard of names.
    pub fn rename(&self, rename: op::Rename) -> Result<(), MdError> {
        let Unlinked { links } = self.names().call(rename)?;
        self.inform(links);
        Ok(())
    }

    /// Notes that the shard of an object has created it.
    fn born(&self, birth: Option<&Birth>) {
        if let Some(birth) = birth {
            let attr = &birth.entry.attr;
            self.done.lock().push(Links {
                ino: attr.ino,
                count: attr.nlink,
                change: attr.change,
                unborn: false,
            });
        }
    }

    /// Informs the shard of an object how many names it has.
    fn inform(&self, links: Option<Links>) {
        let Some(links) = links else { return };
        match self.set(links) {
            Ok(()) => self.done.lock().push(Links {
                unborn: false,
                ..links
            }),
            // The shard of names has it among what is left to do.
            Err(error) => tracing::warn!(
                inode = %links.ino, %error,
                "an object does not know how many names it has; it is informed later"
            ),
        }
    }

    fn set(&self, links: Links) -> Result<(), MdError> {
        if links.unborn && links.count > 0 {
            self.adopt(&[links.ino])?;
        }
        self.of(links.ino)?
            .call(op::SetLinks { links: vec![links] })
    }

    /// Reports to the shard of names what is done.
    ///
    /// # Errors
    /// Those of the service; what was not reported is reported the next time.
    pub fn report(&self) -> Result<(), MdError> {
        loop {
            let links: Vec<Links> = {
                let mut done = self.done.lock();
                let some = done.len().min(MAX_UNFINISHED);
                done.drain(..some).collect()
            };
            if links.is_empty() {
                return Ok(());
            }
            let finish = op::Finish {
                links: links.clone(),
            };
            if let Err(error) = self.names().call(finish) {
                self.done.lock().extend(links);
                return Err(error);
            }
        }
    }

    /// Does what other mounts have left undone for some time.
    ///
    /// # Errors
    /// Those of the services.
    pub fn finish(&self, older: Duration) -> Result<(), MdError> {
        if !self.divided() {
            return Ok(());
        }
        self.report()?;
        let older_ms = older.as_millis() as u64;
        let left = self.names().call(op::Unfinished { older_ms })?;
        if left.is_empty() {
            return Ok(());
        }
        let unborn: Vec<Ino> = left
            .iter()
            .filter(|links| links.unborn && links.count > 0)
            .map(|links| links.ino)
            .collect();
        self.adopt(&unborn)?;
        for (shard, links) in self.by_shard(left.clone(), |links| links.ino) {
            shard.call(op::SetLinks { links })?;
        }
        let born = left.into_iter().map(|links| Links {
            unborn: false,
            ..links
        });
        self.done.lock().extend(born);
        self.report()
    }

    /// Sorts by shards; what is of no shard is left out.
    fn by_shard<T>(&self, all: Vec<T>, ino: impl Fn(&T) -> Ino) -> Vec<(&Md, Vec<T>)> {
        let mut sorted: Vec<(&Md, Vec<T>)> = self.all.iter().map(|md| (md, Vec::new())).collect();
        for one in all {
            if let Some((_, those)) = sorted.get_mut(usize::from(ino(&one).shard().0)) {
                those.push(one);
            }
        }
        sorted.retain(|(_, those)| !those.is_empty());
        sorted
    }
}
