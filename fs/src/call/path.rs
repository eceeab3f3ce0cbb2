//! Resolves the path of a request to an inode, with the checks that the kernel makes on a path walk.
//!
//! Paths are relative to the root of the mount, or to a container ([`Walk::from`]). They are texts, or lists of bytes if
//! a name is not UTF-8. Symbolic links are not followed: the command has resolved them, since they may lead off the
//! mount.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use slabfs_mdserver::api::{Entry, Ino, Kind, MdError, ROOT};

use super::access::{Want, allows};
use super::meaning::{Meaning, meaning};
use super::{CallError, Context};
use crate::client::FsError;

/// Maximum length of a path in bytes.
const PATH_LIMIT: usize = 4096;

/// A path of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PathText {
    /// As text.
    Text(String),
    /// As bytes.
    Bytes(Vec<u8>),
}

impl PathText {
    /// A path of these bytes.
    pub fn of_bytes(bytes: &[u8]) -> PathText {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Bytes(bytes.to_vec()),
        }
    }

    /// This path.
    pub fn of_path(path: &Path) -> PathText {
        PathText::of_bytes(path.as_os_str().as_bytes())
    }

    /// As the standard library's type.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.bytes()))
    }

    /// The path's bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// Checks that an entry below the start of this path can be created under it: it ends with a name, and has no `..`
    /// in it.
    ///
    /// # Errors
    /// A text that describes the error.
    pub fn check_new(&self) -> Result<(), String> {
        let bytes = self.bytes();
        let mut names = bytes.split(|&byte| byte == b'/');
        if names.clone().any(|name| name == b"..") {
            return Err(format!(
                "{self} has .. in it, and would leave the directory it counts from; give the path without it"
            ));
        }
        match names.next_back() {
            Some(b"" | b".") | None => Err(format!(
                "{self} does not end with the name of a file; objects are files, directories are made with `mkdir`"
            )),
            Some(_) => Ok(()),
        }
    }

    /// Prefixes a path that is relative to the container `from` with its path; an absolute path is returned unchanged.
    pub(crate) fn within(self, from: &PathText) -> PathText {
        if from.bytes().is_empty() || self.bytes().starts_with(b"/") {
            return self;
        }
        match (from, &self) {
            (Self::Text(from), Self::Text(path)) => Self::Text(format!("{from}/{path}")),
            _ => Self::Bytes([from.bytes(), b"/", self.bytes()].concat()),
        }
    }

    /// The container and the last name; both may be empty.
    pub(super) fn split(&self) -> (&[u8], &[u8]) {
        let bytes = self.bytes();
        match bytes.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (&bytes[..at], &bytes[at + 1..]),
            None => (b"", bytes),
        }
    }
}

impl fmt::Display for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() {
            b"" => f.write_str("the root of the mount"),
            bytes => f.write_str(&String::from_utf8_lossy(bytes)),
        }
    }
}

/// The way of a path to an inode.
pub(crate) struct Walk<'a> {
    pub(crate) context: &'a Context,
    /// The path, as error messages show it.
    pub(crate) path: &'a PathText,
    /// The container in which it begins.
    pub(crate) from: Ino,
    /// Its names below that.
    pub(crate) relative: &'a [u8],
}

impl<'a> Walk<'a> {
    /// Begins in the root of the mount.
    pub(crate) fn new(context: &'a Context, path: &'a PathText) -> Walk<'a> {
        Walk {
            context,
            path,
            from: ROOT,
            relative: path.bytes(),
        }
    }

    /// Finds the entry.
    pub(crate) fn find(&self) -> Result<Entry, CallError> {
        let mut entry = self.start()?;
        for name in components(self.relative) {
            entry = self.step(&entry, name)?;
        }
        Ok(entry)
    }

    /// Finds the entry, and checks the caller's permission.
    pub(crate) fn find_for(&self, want: Want) -> Result<Entry, CallError> {
        let entry = self.find()?;
        self.check(&entry, want)?;
        Ok(entry)
    }

    /// Finds the directory of the last name, and returns that name as it is stored.
    pub(crate) fn find_parent(&self) -> Result<(Entry, Vec<u8>), CallError> {
        let mut entry = self.start()?;
        let mut names = components(self.relative).peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                let name = self.stored(self.directory(&entry)?, name)?;
                return Ok((entry, name));
            }
            entry = self.step(&entry, name)?;
        }
        Err(CallError::Invalid(
            "a path with a name is needed".to_owned(),
        ))
    }

    /// Checks the caller's permission on an entry.
    pub(crate) fn check(&self, entry: &Entry, want: Want) -> Result<(), CallError> {
        if allows(&entry.attr, &self.context.caller, want) {
            return Ok(());
        }
        let path = self.path;
        let what = match want {
            Want::Read => "read",
            Want::Write => "write to",
            Want::Search => "look into",
            Want::Make => {
                let (parent, _) = path.split();
                return Err(CallError::Denied(format!(
                    "Permission denied: you may not make or remove {path}: not in {}; ask its owner, or see `ls -ld`",
                    PathText::of_bytes(parent)
                )));
            }
        };
        Err(CallError::Denied(format!(
            "Permission denied: you may not {what} {path}; ask its owner, or see `ls -ld`"
        )))
    }

    fn start(&self) -> Result<Entry, CallError> {
        if self.path.bytes().len() > PATH_LIMIT {
            return Err(MdError::NameTooLong.into());
        }
        Ok(self.context.client.getattr(self.from)?)
    }

    fn directory(&self, entry: &Entry) -> Result<Ino, CallError> {
        let path = self.path;
        match entry.attr.kind {
            Kind::Directory => Ok(entry.attr.ino),
            Kind::Symlink => Err(CallError::Invalid(format!(
                "{path} leads over a symbolic link; give the path it stands for"
            ))),
            _ => Err(CallError::NotDirectory(format!("a part of {path}"))),
        }
    }

    /// The stored form of a name in the directory `parent`.
    pub(super) fn stored(&self, parent: Ino, name: &[u8]) -> Result<Vec<u8>, CallError> {
        let path = self.path;
        if name == b".." {
            return Err(CallError::Invalid(format!(
                "{path} has .. in it, which is not followed; give the path without it"
            )));
        }
        match meaning(&self.context.client, parent, name)? {
            Meaning::Plain(stored, _) => Ok(stored.into_owned()),
            Meaning::Selected(..) => Err(CallError::Invalid(format!(
                "{path} is a selection, which has the tags and properties of its array: give the array's path; a name that really holds \"@[\" is written with \"@@[\""
            ))),
        }
    }

    fn step(&self, parent: &Entry, name: &[u8]) -> Result<Entry, CallError> {
        let ino = self.directory(parent)?;
        self.check(parent, Want::Search)?;
        let name = self.stored(ino, name)?;
        match self.context.client.lookup(ino, &name) {
            Err(FsError::Md(MdError::NotFound)) => Err(CallError::Missing(self.path.to_string())),
            other => Ok(other?),
        }
    }
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/')
        .filter(|name| !matches!(*name, b"" | b"."))
}
