//! The meaning of a name in a directory, which may be a selection: see [`crate::view::name`].

use std::borrow::Cow;

use slabfs_mdserver::api::{Entry, Ino, Kind, MdError};
use slabfs_model::Selection;

use super::CallError;
use crate::client::FsError;
use crate::clients::Clients;
use crate::view::name::{Name, Selected, has_mark};

/// The meaning of a name.
#[derive(Debug)]
pub(crate) enum Meaning<'a> {
    /// The entry with this stored name, looked up already if it is `Some`.
    Plain(Cow<'a, [u8]>, Option<Entry>),
    /// These elements of this file.
    Selected(Entry, Selection),
}

/// The meaning of the name `shown` in the directory `dir`. Only names with `@[` need a lookup.
pub(crate) fn meaning<'a>(
    client: &Clients,
    dir: Ino,
    shown: &'a [u8],
) -> Result<Meaning<'a>, CallError> {
    if !has_mark(shown) {
        return Ok(Meaning::Plain(Cow::Borrowed(shown), None));
    }
    if let Some(entry) = there(client, dir, shown)? {
        return Ok(Meaning::Plain(Cow::Borrowed(shown), Some(entry)));
    }
    match Name::parse(shown) {
        Name::Selected(selected) => {
            if let Some(entry) = file(client, dir, &selected)? {
                return Ok(Meaning::Selected(entry, selected.selection()?));
            }
        }
        // Escaped, so that it is not a selection.
        Name::Plain(stored) if *stored != *shown => {
            if let Some(entry) = there(client, dir, &stored)? {
                return Ok(Meaning::Plain(stored, Some(entry)));
            }
            if let Name::Selected(selected) = Name::parse(&stored)
                && file(client, dir, &selected)?.is_some()
            {
                return Ok(Meaning::Plain(Cow::Owned(stored.into_owned()), None));
            }
        }
        Name::Plain(_) => {}
    }
    Ok(Meaning::Plain(Cow::Borrowed(shown), None))
}

fn there(client: &Clients, dir: Ino, name: &[u8]) -> Result<Option<Entry>, CallError> {
    match client.lookup(dir, name) {
        Ok(entry) => Ok(Some(entry)),
        // A selection may be longer than a name.
        Err(FsError::Md(MdError::NotFound | MdError::NameTooLong)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The file of a selection.
fn file(client: &Clients, dir: Ino, selected: &Selected<'_>) -> Result<Option<Entry>, CallError> {
    let entry = match there(client, dir, selected.written)? {
        None if *selected.base != *selected.written => there(client, dir, &selected.base)?,
        entry => entry,
    };
    Ok(entry.filter(|entry| entry.attr.kind == Kind::Object))
}
