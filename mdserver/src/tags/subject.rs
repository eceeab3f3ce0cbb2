//! A candidate of a search: its properties are read when the query needs them.
//!
//! If the caller may not read an object, it has no tags, for the query and for the hit alike: so neither conditions
//! nor their negations reveal anything about them.

use slabfs_model::Tag;
use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};

use super::paths::Paths;
use super::query::{Builtin, BuiltinValue, Subject, kind_name};
use super::rows::{self, Xattr, tag_name, xattr_name};
use crate::api::{ArrayInfo, Form, Ino, Kind, MdError, Time};
use crate::core::Core;
use crate::keys;
use crate::records::{Inode, InodeHead, Xattrs, decode, decode_head};

/// A path, and where the name begins in it.
pub(super) type Path = Option<(Vec<u8>, usize)>;

/// An inode that may be a hit.
pub(super) struct Candidate<'a, 'p> {
    core: &'a Core,
    paths: &'a RefCell<Paths<'p>>,
    pub(super) inode: InodeHead,
    /// How its attributes are stored, as far as it is known.
    xattrs: Cell<Xattrs>,
    bytes: Vec<u8>,
    body: OnceCell<Option<Inode>>,
    now: Time,
    /// The caller sees its tags.
    pub(super) readable: bool,
    tags: OnceCell<Vec<(String, Tag)>>,
    path: OnceCell<Path>,
    error: Cell<Option<MdError>>,
}

impl<'a, 'p> Candidate<'a, 'p> {
    /// The inode as it is in the store, and its row; `None` if it is gone.
    pub(super) fn read(core: &Core, ino: Ino) -> Result<Option<(InodeHead, Vec<u8>)>, MdError> {
        let key = keys::inode(ino);
        match core.kv.get(&key)? {
            Some(bytes) => Ok(Some((decode_head(&key, &bytes)?, bytes))),
            None => Ok(None),
        }
    }

    /// A candidate whose inode was read.
    pub(super) fn new(
        core: &'a Core,
        paths: &'a RefCell<Paths<'p>>,
        (inode, bytes): (InodeHead, Vec<u8>),
        now: Time,
    ) -> Self {
        let readable = paths.borrow().may_read(&inode.attr);
        Self {
            core,
            paths,
            xattrs: Cell::new(inode.xattrs),
            inode,
            bytes,
            body: OnceCell::new(),
            now,
            readable,
            tags: OnceCell::new(),
            path: OnceCell::new(),
            error: Cell::new(None),
        }
    }

    /// The error that a read returned, if any.
    pub(super) fn check(&self) -> Result<(), MdError> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Its path, if the caller could list it.
    pub(super) fn path(&self) -> &Path {
        self.path.get_or_init(|| {
            let found = self.paths.borrow_mut().of(&self.inode);
            self.noted(found).flatten()
        })
    }

    /// Returns the path of a hit.
    pub(super) fn into_path(self) -> Vec<u8> {
        self.path
            .into_inner()
            .flatten()
            .map_or_else(Vec::new, |(path, _)| path)
    }

    /// All tags that the caller sees, by name.
    pub(super) fn tags(&self) -> &[(String, Tag)] {
        if !self.readable {
            return &[];
        }
        self.tags.get_or_init(|| {
            let mut tags = Vec::with_capacity(self.inode.xattrs.count as usize);
            let read = self.each(|xattr| {
                if let Some(name) = tag_name(xattr.name) {
                    tags.push((name.to_owned(), xattr.tag()));
                }
                true
            });
            self.noted(read);
            tags
        })
    }

    /// Its owner, and for an object dtype and dims.
    pub(super) fn form(&self) -> Form {
        let info = self.info();
        Form {
            uid: self.inode.attr.uid,
            array: info.map(|info| (info.dtype, info.dims.clone())),
        }
    }

    fn info(&self) -> Option<&ArrayInfo> {
        let inode = self.body.get_or_init(|| {
            let key = keys::inode(self.inode.attr.ino);
            self.noted(decode(&key, &self.bytes))
        });
        inode.as_ref()?.object().ok().map(|object| &*object.info)
    }

    fn noted<T>(&self, result: Result<T, MdError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.error.set(Some(error));
                None
            }
        }
    }

    /// The first tags, by name, up to a total of `most` bytes, and whether there are more.
    pub(super) fn first_tags(&self, most: usize) -> (Vec<(String, Tag)>, bool) {
        if !self.readable {
            return (Vec::new(), false);
        }
        let (mut tags, mut bytes, mut more) = (Vec::new(), 0, false);
        let read = self.each(|xattr| {
            let Some(name) = tag_name(xattr.name) else {
                return true;
            };
            bytes += name.len() + xattr.bytes.len();
            more = bytes > most;
            if !more {
                tags.push((name.to_owned(), xattr.tag()));
            }
            !more
        });
        self.noted(read);
        (tags, more)
    }

    /// Calls `work` for the attributes, by name, until it says `false`.
    fn each(&self, mut work: impl FnMut(Xattr<'_>) -> bool) -> Result<(), MdError> {
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            let mut any = false;
            rows::each(&*self.core.kv, self.stored(), b"", |xattr| {
                any = true;
                work(xattr)
            })?;
            if any || self.xattrs.get().count == 0 {
                return Ok(());
            }
            // There are some, but none is where it should be: the form of storage has changed since.
            let now = Self::read(self.core, self.inode.attr.ino)?;
            let now = now.map(|(inode, _)| inode.xattrs);
            self.xattrs.set(now.unwrap_or_default());
        }
        Err(MdError::Busy)
    }

    fn stored(&self) -> (Ino, Xattrs) {
        (self.inode.attr.ino, self.xattrs.get())
    }

    fn text(bytes: &[u8]) -> BuiltinValue<'_> {
        BuiltinValue::Text(String::from_utf8_lossy(bytes))
    }
}

impl Subject for Candidate<'_, '_> {
    fn tag(&self, key: &str) -> Option<Cow<'_, Tag>> {
        // Spread tags may be long: one at a time.
        if self.readable && self.xattrs.get().spread && self.tags.get().is_none() {
            let name = xattr_name(key).ok()?;
            let tag = rows::get(&*self.core.kv, self.stored(), &name);
            return self.noted(tag).flatten().map(Cow::Owned);
        }
        let tags = self.tags();
        let at = tags.binary_search_by(|(name, _)| name.as_str().cmp(key));
        at.ok().map(|at| Cow::Borrowed(&tags[at].1))
    }

    fn each_key(&self, f: &mut dyn FnMut(&str) -> bool) -> bool {
        if !self.readable || !self.xattrs.get().spread {
            return self.tags().iter().any(|(name, _)| f(name));
        }
        let mut names = Vec::new();
        let read = rows::each(&*self.core.kv, self.stored(), b"", |xattr| {
            names.extend(tag_name(xattr.name).map(str::to_owned));
            true
        });
        self.noted(read);
        names.iter().any(|name| f(name))
    }

    fn builtin(&self, builtin: Builtin) -> Option<BuiltinValue<'_>> {
        let attr = &self.inode.attr;
        let info = || self.info();
        Some(match builtin {
            Builtin::Name => {
                let (path, at) = self.path().as_ref()?;
                Self::text(&path[*at..])
            }
            Builtin::Path => Self::text(&self.path().as_ref()?.0),
            Builtin::DType => BuiltinValue::Text(Cow::Owned(info()?.dtype.to_string())),
            Builtin::Rank => BuiltinValue::Number(info()?.dims.len() as u64),
            Builtin::Dim(axis) => BuiltinValue::Number(*info()?.dims.get(axis)?),
            Builtin::Size => BuiltinValue::Number(attr.size),
            Builtin::Mtime => BuiltinValue::Time(attr.mtime),
            Builtin::Owner => BuiltinValue::Owner {
                uid: attr.uid,
                name: user_name(attr.uid).map(Cow::Owned),
            },
            Builtin::Kind => BuiltinValue::Text(Cow::Borrowed(kind_name(attr.kind))),
        })
    }

    fn now(&self) -> Time {
        self.now
    }
}

/// The name of a user on the service's machine.
pub(super) fn user_name(uid: u32) -> Option<String> {
    thread_local! {
        static LAST: RefCell<Option<(u32, Option<String>)>> = const { RefCell::new(None) };
    }
    LAST.with_borrow_mut(|last| match last {
        Some((of, name)) if *of == uid => name.clone(),
        _ => {
            let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
            let name = user.map(|user| user.name);
            *last = Some((uid, name.clone()));
            name
        }
    })
}

/// Whether a search returns it if the query does not name kinds.
pub(super) fn is_object(inode: &InodeHead) -> bool {
    inode.attr.kind == Kind::Object
}
