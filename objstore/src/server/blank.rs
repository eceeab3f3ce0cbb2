//! Hands out file descriptors for large new chunks to clients on the same host, which write them directly, so that the
//! bytes are copied once instead of three times.
//!
//! The files belong to one connection. Its next request (FILLED) returns them; otherwise they are deleted: the server
//! does not wait for a client that sends another request, or nothing within the time limit of a frame. Anything that
//! such a client still writes goes to a file without a name.

use std::fs::File;
use std::os::fd::AsFd;

use super::check;
use super::handler::{decode, encode, outcome};
use crate::error::{Result, StoreError};
use crate::store::{Blank, ChunkStore};
use crate::wire::messages::{Answer, BlankItem, Blanks, FilledItem};
use crate::wire::{Call, MAX_DATA, MAX_FILES, WireResult};

/// Hands out files for all requested chunks, or for none.
pub(super) fn answer(store: &dyn ChunkStore, call: Call<'_>) -> WireResult<()> {
    let made = match call.reply.hands_files() {
        true => decode::<Vec<BlankItem>>(call.control).and_then(|items| make(store, &items)),
        false => Ok(Vec::new()),
    };
    let answer: Answer<Blanks> = match &made {
        Ok(made) => Ok(made
            .iter()
            .map(|(blank, _)| blank.places().to_vec())
            .collect()),
        Err(e) => Err(e.clone()),
    };
    let control = encode(&answer)?;
    let (blanks, files): (Vec<Blank>, Vec<File>) = made.unwrap_or_default().into_iter().unzip();
    if blanks.is_empty() {
        return call.reply.send(&control, &[]);
    }
    *call.keep = Some(Box::new(blanks));
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    call.reply.send_files(&control, &files)
}

fn make(store: &dyn ChunkStore, items: &[BlankItem]) -> Result<Vec<(Blank, File)>> {
    let mut total = 0u64;
    for item in items {
        check::form(&item.name, &item.form)?;
        check::kind_of(&item.name, false, "put")?;
        total = total.saturating_add(item.form.volume().unwrap_or(u64::MAX));
    }
    if items.len() > MAX_FILES || total > MAX_DATA as u64 {
        return Err(StoreError::Invalid(format!(
            "files for {} chunks of {total} bytes were asked for, {MAX_FILES} of {MAX_DATA} are possible",
            items.len()
        )));
    }
    let mut made = Vec::with_capacity(items.len());
    for item in items {
        let Some(blank) = store.blank(&item.name, &item.form)? else {
            return Ok(Vec::new());
        };
        let file = blank.for_writing()?;
        made.push((blank, file));
    }
    Ok(made)
}

/// Converts filled files to chunks.
pub(super) fn adopt(store: &dyn ChunkStore, mut call: Call<'_>) -> WireResult<()> {
    let until_next = call.until_next.take();
    outcome(store, call, |control, _| {
        let filled = decode::<Vec<FilledItem>>(control).map_err(|e| (0, e))?;
        let blanks = until_next.and_then(|until_next| until_next.downcast::<Vec<Blank>>().ok());
        let blanks = blanks.map_or_else(Vec::new, |blanks| *blanks);
        if filled.is_empty() {
            // The files are dropped, and so deleted.
            return Ok(0);
        }
        let names = filled.iter().map(|item| &item.name);
        if !names.eq(blanks.iter().map(Blank::name)) {
            let text = "no files are handed out for these chunks, or not any more".to_owned();
            return Err((0, StoreError::Invalid(text)));
        }
        for (i, (blank, item)) in blanks.into_iter().zip(&filled).enumerate() {
            store.adopt(blank, &item.sums).map_err(|e| (i as u64, e))?;
        }
        Ok(filled.len() as u64)
    })
}
