//! Hands out chunks to clients on the same host, which read them directly: file descriptors of chunks that have files, all
//! in one reply, or the descriptors of the store's memory, once for each client, and the places of chunks in it. The
//! descriptors are read-only but for the client's pins; the client verifies the checksums of files.

use std::fs::File;
use std::os::fd::AsFd;

use super::check;
use super::handler::{decode, encode};
use crate::error::{Result, StoreError};
use crate::store::{ChunkStore, SameHostFile};
use crate::wire::messages::{Answer, Handed, SameHostAsk, SameHostFiles};
use crate::wire::{Call, MAX_FILES, WireResult};

/// Answers with the chunks that the client can read itself.
pub(super) fn answer(store: &dyn ChunkStore, call: Call<'_>) -> WireResult<()> {
    let hands = call.reply.hands_files();
    let found = decode::<SameHostAsk>(call.control).and_then(|asked| find(store, &asked, hands));
    let mut files = Vec::new();
    let answer: Answer<SameHostFiles> = found.map(|(answer, found)| {
        files = found;
        answer
    });
    let control = encode(&answer)?;
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    match files.is_empty() {
        true => call.reply.send(&control, &[]),
        false => call.reply.send_files(&control, &files),
    }
}

fn find(
    store: &dyn ChunkStore,
    asked: &SameHostAsk,
    hands: bool,
) -> Result<(SameHostFiles, Vec<File>)> {
    let names = &asked.names;
    if names.len() > MAX_FILES {
        return Err(StoreError::Invalid(format!(
            "files of {} chunks were asked for, {MAX_FILES} are possible",
            names.len()
        )));
    }
    names.iter().try_for_each(check::name)?;
    let none = SameHostFiles {
        memory: false,
        chunks: vec![Handed::No; names.len()],
    };
    if !hands {
        return Ok((none, Vec::new()));
    }
    let places: Vec<Handed> = names
        .iter()
        .map(|name| {
            store
                .same_host_memory(name)
                .map_or(Handed::No, Handed::Memory)
        })
        .collect();
    if places.iter().any(|place| *place != Handed::No) {
        let memory = match asked.mapped {
            true => None,
            false => store.memory_files()?,
        };
        let answer = SameHostFiles {
            memory: memory.is_some(),
            chunks: places,
        };
        let files = memory.map(|memory| vec![memory.arena, memory.labels, memory.pins]);
        return Ok((answer, files.unwrap_or_default()));
    }
    let mut answer = none;
    let mut files = Vec::new();
    for (name, handed) in names.iter().zip(&mut answer.chunks) {
        if let Some(SameHostFile { file, mark }) = store.same_host_file(name)? {
            *handed = Handed::File(mark);
            files.push(file);
        }
    }
    Ok((answer, files))
}
