//! Containers and their entries: create, open, list, remove, rename and tag by name.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use slabfs_mdserver::api::{
    Attr, Create, DirEntry, Entry, Ino, Kind, MdError, ROOT, RenameFlags, TagChange, op,
};
use slabfs_model::Tag;

use super::Session;
use super::error::{Error, ErrorKind};
use super::object::{Access, Object};
use super::spec::ObjectSpec;
use super::stat::Stat;
use crate::call::access::Want;
use crate::call::create::{Within, make};
use crate::call::path::{PathText, Walk};
use crate::call::tags::tagged;
use crate::call::{Context, Described, umask};
use crate::client::FsError;
use crate::view::name::HIDDEN;

/// Entries a `readdir` request asks for.
const PAGE: u32 = 1024;

/// The sticky bit: only the owner of an entry, or of the container, removes the entry.
const STICKY: u32 = 0o1000;

/// A container, identified by its inode: it stays the same one when it is renamed. All paths given to it are relative
/// to it, with or without a leading slash; `..` and symbolic links are not followed.
#[derive(Debug, Clone)]
pub struct Container {
    session: Session,
    ino: Ino,
    path: PathText,
}

/// An entry of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name, usable in `open`.
    pub name: OsString,
    /// Its kind.
    pub kind: Kind,
}

/// Changes to the tags of one object or container. Removals come first; removing a tag that is absent is not an error.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TagEdit {
    /// The object or container.
    pub path: PathBuf,
    /// Tags to set.
    pub set: Vec<(String, Tag)>,
    /// Keys of tags to remove.
    pub remove: Vec<String>,
}

/// A path as given by the caller, and as error messages show it.
struct Given<'a> {
    context: Context,
    from: Ino,
    relative: &'a [u8],
    full: PathText,
}

impl Given<'_> {
    fn walk(&self) -> Walk<'_> {
        Walk {
            context: &self.context,
            path: &self.full,
            from: self.from,
            relative: self.relative,
        }
    }

    /// The parent container of a name to create or remove, and the name as it is stored.
    fn place(&self) -> Result<(Entry, Vec<u8>), Error> {
        let (parent, name) = self.walk().find_parent()?;
        if parent.attr.ino == ROOT && name == HIDDEN {
            return Err(Error::new(
                ErrorKind::Denied,
                ".slabfs in the root belongs to mounts; choose another name",
            ));
        }
        self.walk().check(&parent, Want::Make)?;
        Ok((parent, name))
    }

    /// Refuses to remove an entry of another owner from a sticky container.
    fn may_go(&self, parent: &Entry, attr: &Attr) -> Result<(), Error> {
        let caller = &self.context.caller;
        let free = parent.attr.mode & STICKY == 0
            || caller.is_root()
            || [parent.attr.uid, attr.uid].contains(&caller.uid);
        match free {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Denied,
                format!(
                    "{}: its container is sticky: only the owner of either takes it away",
                    self.full
                ),
            )),
        }
    }

    fn about(&self, error: impl Into<Error>) -> Error {
        error.into().about(&self.full)
    }
}

impl Container {
    pub(super) fn new(session: Session, ino: Ino, path: PathText) -> Container {
        Container { session, ino, path }
    }

    fn given<'a>(&self, path: &'a Path) -> Result<Given<'a>, Error> {
        let relative = path.as_os_str().as_bytes();
        let mut rest = relative;
        while let Some(shorter) = rest.strip_prefix(b"/") {
            rest = shorter;
        }
        Ok(Given {
            context: self.session.context()?,
            from: self.ino,
            relative,
            full: match rest {
                b"" => self.path.clone(),
                rest => PathText::of_bytes(rest).within(&self.path),
            },
        })
    }

    /// The session the container belongs to.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Its path from the root at the time it was looked up.
    pub fn path(&self) -> &Path {
        self.path.as_path()
    }

    /// The container at `path` below this one; with an empty path, this one.
    ///
    /// # Errors
    /// `NotFound`, `NotContainer`, `Denied`.
    pub fn container(&self, path: impl AsRef<Path>) -> Result<Container, Error> {
        let given = self.given(path.as_ref())?;
        let entry = given.walk().find()?;
        if entry.attr.kind != Kind::Directory {
            return Err(Error::new(
                ErrorKind::NotContainer,
                format!(
                    "{} is not a container; objects are opened with open",
                    given.full
                ),
            ));
        }
        Ok(Container::new(
            self.session.clone(),
            entry.attr.ino,
            given.full,
        ))
    }

    /// Creates a container; its parent must exist.
    ///
    /// # Errors
    /// `Exists`, `NotFound`, `Denied`, `ReadOnly`.
    pub fn create_container(&self, path: impl AsRef<Path>) -> Result<Container, Error> {
        self.session.changes()?;
        let given = self.given(path.as_ref())?;
        let (parent, name) = given.place()?;
        let made = given.context.client.make(Create {
            parent: parent.attr.ino,
            name,
            kind: Kind::Directory,
            mode: 0o777 & !umask(),
            uid: given.context.caller.uid,
            gid: given.context.caller.gid,
            rdev: 0,
            target: None,
            exclusive: true,
            open: false,
        });
        let made = made.map_err(|error| given.about(error))?;
        Ok(Container::new(
            self.session.clone(),
            made.entry.attr.ino,
            given.full,
        ))
    }

    /// Creates an object and opens it for reading and writing. An existing name is refused.
    ///
    /// # Errors
    /// `Exists`; `Invalid`, naming the bad part of the spec; `NotFound` and `Denied` for the containers above it;
    /// `ReadOnly`.
    pub fn create(&self, path: impl AsRef<Path>, spec: &ObjectSpec) -> Result<Object, Error> {
        let path = path.as_ref();
        let made = self.make([(path, spec)].into_iter());
        let made = made.map_err(|error| error.alone())?;
        let given = self.given(path)?;
        let Some(&ino) = made.first() else {
            return Err(Error::new(ErrorKind::Io, "nothing was made"));
        };
        Object::open(&self.session, ino, given.full, Access::ReadWrite)
    }

    /// Creates many objects and returns their number. Each batch of 1024 is created completely or not at all. All
    /// specs are checked before the first batch; [`Error::index`] is the position of the object that failed.
    ///
    /// # Errors
    /// As [`Container::create`].
    pub fn create_many<P: AsRef<Path>>(
        &self,
        objects: impl IntoIterator<Item = (P, ObjectSpec)>,
    ) -> Result<usize, Error> {
        let objects: Vec<(P, ObjectSpec)> = objects.into_iter().collect();
        let described = objects.iter().map(|(path, spec)| (path.as_ref(), spec));
        Ok(self.make(described)?.len())
    }

    fn make<'a>(
        &self,
        objects: impl Iterator<Item = (&'a Path, &'a ObjectSpec)>,
    ) -> Result<Vec<Ino>, Error> {
        self.session.changes()?;
        let context = self.session.context()?;
        let within = Within::Container(self.ino, self.path.clone());
        let usual = 0o666 & !umask();
        let described = objects.map(|(path, spec)| {
            let described = Described {
                path: PathText::of_path(path),
                spec: spec.change.clone(),
                tags: spec.tags.clone(),
            };
            Ok((described, spec.mode.unwrap_or(usual)))
        });
        Ok(make(&context, within, described)?)
    }

    /// Opens an object.
    ///
    /// # Errors
    /// `NotFound`, `IsContainer`, `Denied`; `ReadOnly` for writing in a read-only session.
    pub fn open(&self, path: impl AsRef<Path>, access: Access) -> Result<Object, Error> {
        let given = self.given(path.as_ref())?;
        let entry = given.walk().find()?;
        match entry.attr.kind {
            Kind::Object => {}
            Kind::Directory => {
                return Err(Error::new(
                    ErrorKind::IsContainer,
                    format!("{} is a container; give the path of an object", given.full),
                ));
            }
            _ => {
                return Err(Error::invalid(format!(
                    "{} is neither an object nor a container; give the path of an object",
                    given.full
                )));
            }
        }
        if access.reads() {
            given.walk().check(&entry, Want::Read)?;
        }
        if access.writes() {
            self.session.changes()?;
            given.walk().check(&entry, Want::Write)?;
        }
        Object::open(&self.session, entry.attr.ino, given.full, access)
    }

    /// The entries of this container, unordered, fetched a page at a time; the container may change meanwhile.
    ///
    /// # Errors
    /// `Denied`.
    pub fn list(&self) -> Result<impl Iterator<Item = Result<Listed, Error>> + use<>, Error> {
        let given = self.given(Path::new(""))?;
        given.walk().find_for(Want::Read)?;
        let (session, ino) = (self.session.clone(), self.ino);
        let mut cookie = Some(0);
        let pages = std::iter::from_fn(move || {
            let after = cookie?;
            let page = session
                .client()
                .and_then(|client| Ok(client.read_dir(ino, after, PAGE)?));
            cookie = match &page {
                Ok(page) => page.last().map(|last| last.cookie),
                Err(_) => None,
            };
            match page {
                Ok(page) if page.is_empty() => None,
                Ok(page) => Some(page.into_iter().map(Ok).collect::<Vec<_>>()),
                Err(error) => Some(vec![Err(error)]),
            }
        });
        let shown = move |entry: &DirEntry| ino != ROOT || entry.name != HIDDEN;
        Ok(pages
            .flatten()
            .filter(move |entry| entry.as_ref().map_or(true, &shown))
            .map(|entry: Result<DirEntry, Error>| {
                entry.map(|entry| Listed {
                    name: OsString::from_vec(entry.name),
                    kind: entry.entry.attr.kind,
                })
            }))
    }

    /// The attributes of the entry at `path`; with an empty path, of this container.
    ///
    /// # Errors
    /// `NotFound`; `Denied` for the containers above it.
    pub fn stat(&self, path: impl AsRef<Path>) -> Result<Stat, Error> {
        Ok(Stat::of(&self.given(path.as_ref())?.walk().find()?))
    }

    /// Removes an object's name, or an empty container. An object that is open remains until its last close.
    ///
    /// # Errors
    /// `NotFound`, `NotEmpty`, `Denied`, `ReadOnly`.
    pub fn remove(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.session.changes()?;
        let given = self.given(path.as_ref())?;
        let (container, name) = given.place()?;
        let client = &given.context.client;
        let parent = container.attr.ino;
        let found = client
            .lookup(parent, &name)
            .map_err(|error| given.about(error))?;
        given.may_go(&container, &found.attr)?;
        let removed = match found.attr.kind {
            Kind::Directory => client
                .names()
                .md()
                .call(op::Rmdir { parent, name })
                .map_err(FsError::from),
            _ => client.unlink(parent, name),
        };
        removed.map_err(|error| given.about(error))
    }

    /// Renames, as `rename(2)`: an existing entry at the new name is replaced, unless the flags say otherwise.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NotEmpty`, `Denied`, `ReadOnly`; `Invalid` for moving a container below itself.
    pub fn rename(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<(), Error> {
        self.session.changes()?;
        let (from, to) = (self.given(from.as_ref())?, self.given(to.as_ref())?);
        let ((old, name), (new, new_name)) = (from.place()?, to.place()?);
        let client = &from.context.client;
        let moved = client
            .lookup(old.attr.ino, &name)
            .map_err(|error| from.about(error))?;
        from.may_go(&old, &moved.attr)?;
        let elsewhere = old.attr.ino != new.attr.ino;
        // The container's `..` entry changes.
        let moves = |given: &Given<'_>, entry: &Entry| match entry.attr.kind {
            Kind::Directory if elsewhere => given.walk().check(entry, Want::Write),
            _ => Ok(()),
        };
        moves(&from, &moved)?;
        match client.lookup(new.attr.ino, &new_name) {
            Ok(there) => {
                to.may_go(&new, &there.attr)?;
                if flags == RenameFlags::Exchange {
                    moves(&to, &there)?;
                }
            }
            Err(FsError::Md(MdError::NotFound)) => {}
            Err(error) => return Err(to.about(error)),
        }
        let rename = op::Rename {
            parent: old.attr.ino,
            name,
            new_parent: new.attr.ino,
            new_name,
            flags,
        };
        client
            .rename(rename)
            .map_err(|error| Error::from(error).about(format!("{} to {}", from.full, to.full)))
    }

    /// The tags of the entry at `path`, by key; with an empty path, of this container.
    ///
    /// # Errors
    /// `NotFound`, `Denied`.
    pub fn tags(&self, path: impl AsRef<Path>) -> Result<Vec<(String, Tag)>, Error> {
        let given = self.given(path.as_ref())?;
        let entry = given.walk().find_for(Want::Read)?;
        let tags = given.context.client.md(entry.attr.ino).tags(entry.attr.ino);
        tags.map_err(|error| given.about(error))
    }

    /// Sets and removes tags of many objects and containers in one atomic request.
    ///
    /// # Errors
    /// `NotFound`, `Denied`, `ReadOnly`, `Invalid`, `NoSpace` for too many tags; [`Error::index`] is the position of
    /// the edit that failed.
    pub fn tag(&self, edits: impl IntoIterator<Item = TagEdit>) -> Result<(), Error> {
        self.session.changes()?;
        let changes: Result<Vec<TagChange>, Error> = edits
            .into_iter()
            .enumerate()
            .map(|(index, edit)| self.change(edit).map_err(|error| error.at(index)))
            .collect();
        let changes = changes?;
        Ok(self.session.client()?.tag(changes)?)
    }

    fn change(&self, edit: TagEdit) -> Result<TagChange, Error> {
        let given = self.given(&edit.path)?;
        let entry = given.walk().find_for(Want::Write)?;
        tagged(&given.full, &entry)?;
        Ok(TagChange {
            ino: entry.attr.ino,
            set: edit.set,
            remove: edit.remove,
        })
    }
}
