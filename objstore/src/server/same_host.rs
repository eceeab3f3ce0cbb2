//! Hands out file descriptors of chunks to clients on the same host, which read them directly. One reply carries those
//! of all requested chunks that have a file. They are read-only; the client verifies the checksums.

use std::os::fd::AsFd;

use super::check;
use super::handler::{decode, encode};
use crate::error::{Result, StoreError};
use crate::name::ChunkName;
use crate::store::{ChunkStore, SameHostFile};
use crate::wire::messages::{Answer, SameHostFiles};
use crate::wire::{Call, MAX_FILES, WireResult};

/// Replies with a mark for each chunk whose descriptor accompanies the reply.
pub(super) fn answer(store: &dyn ChunkStore, call: Call<'_>) -> WireResult<()> {
    let hands = call.reply.hands_files();
    let found = decode::<Vec<ChunkName>>(call.control).and_then(|names| find(store, &names, hands));
    let answer: Answer<SameHostFiles> = match &found {
        Ok(found) => Ok(found
            .iter()
            .map(|file| file.as_ref().map(|l| l.mark))
            .collect()),
        Err(e) => Err(e.clone()),
    };
    let control = encode(&answer)?;
    let found = found.unwrap_or_default();
    let files: Vec<_> = found
        .iter()
        .flatten()
        .map(|file| file.file.as_fd())
        .collect();
    match files.is_empty() {
        true => call.reply.send(&control, &[]),
        false => call.reply.send_files(&control, &files),
    }
}

fn find(
    store: &dyn ChunkStore,
    names: &[ChunkName],
    hands: bool,
) -> Result<Vec<Option<SameHostFile>>> {
    if names.len() > MAX_FILES {
        return Err(StoreError::Invalid(format!(
            "files of {} chunks were asked for, {MAX_FILES} are possible",
            names.len()
        )));
    }
    names
        .iter()
        .map(|name| {
            check::name(name)?;
            match hands {
                true => store.same_host_file(name),
                false => Ok(None),
            }
        })
        .collect()
}
