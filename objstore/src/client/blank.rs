//! Large new chunks that are written to files of a data server on the same machine.
//!
//! The server lends an empty file for each chunk and hands it over the socket; the bytes are written there from where they
//! lie, and the server makes chunks of the files. What goes wrong with that is nobody's error: the chunks are then sent
//! as all others are, which says what is wrong.

use std::fs::File;
use std::io::{self, IoSlice};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use smallvec::SmallVec;

use super::fanout::{decode, encode};
use crate::checksum::sums_of_blocks;
use crate::name::{ChunkForm, ChunkName};
use crate::store::{Place, SUMMED, write_part};
use crate::wire::messages::{Answer, BlankItem, Blanks, FilledItem, Outcome, kind};
use crate::wire::{MAX_FILES, Pool, Until, WireResult};

/// Smaller chunks are sent: two requests in place of one cost more than the copies.
pub(super) const FROM: u64 = 1 << 20;

/// A whole chunk, and where its bytes lie.
pub(super) struct Filling<'a> {
    pub(super) name: &'a ChunkName,
    pub(super) form: &'a ChunkForm,
    pub(super) data: SmallVec<[IoSlice<'a>; 8]>,
}

/// Puts chunks by files; `false` if they are to be sent.
///
/// `steady`: nobody changes the bytes meanwhile, so that they can be summed here: of what is read later everything between
/// this memory and that of the reader has been looked at, and the server looks at nothing now. Elsewhere a byte that changes
/// between sum and file would make the chunk damaged, so the server sums what has come.
pub(super) fn put(pool: &Pool, chunks: &[Filling<'_>], steady: bool, until: Until) -> bool {
    if chunks.is_empty() || chunks.len() > MAX_FILES || is_limited() {
        return false;
    }
    match exchange(pool, chunks, steady, until) {
        Ok(done) => done,
        Err(error) => {
            tracing::debug!(addr = %pool.addr(), "chunks are sent and not written to files: {error}");
            false
        }
    }
}

/// A limit of the size of files is this program's own: it says nothing of the server's, and ends the program.
fn is_limited() -> bool {
    !matches!(getrlimit(Resource::RLIMIT_FSIZE), Ok((RLIM_INFINITY, _)))
}

fn exchange(pool: &Pool, chunks: &[Filling<'_>], steady: bool, until: Until) -> WireResult<bool> {
    let items = chunks.iter().map(|chunk| BlankItem {
        name: chunk.name,
        form: chunk.form,
    });
    let asked = encode(&items.collect::<Vec<_>>())?;
    let mut done = false;
    pool.exchange(
        kind::BLANKS,
        &asked,
        until,
        &mut |control, files| {
            let filled = postcard::from_bytes::<Answer<Blanks>>(control)
                .ok()
                .and_then(Result::ok)
                .and_then(|places| {
                    let files = files.into_iter().map(File::from).collect();
                    fill(chunks, &places, files, steady)
                });
            // Without any the files are given back at once, since they take room.
            let filled: Vec<FilledItem<&ChunkName>> = filled.unwrap_or_default();
            Ok((kind::FILLED, encode(&filled)?))
        },
        &mut |control, incoming| {
            let outcome: Outcome = decode(control, incoming)?;
            done = outcome.failed.is_none() && outcome.done == chunks.len() as u64;
            if let Some(error) = outcome.failed {
                tracing::debug!("files were not taken: {error}");
            }
            Ok(())
        },
    )?;
    Ok(done)
}

/// Writes all chunks to their files, which are closed then.
fn fill<'a>(
    chunks: &[Filling<'a>],
    places: &[Vec<Place>],
    files: Vec<File>,
    steady: bool,
) -> Option<Vec<FilledItem<&'a ChunkName>>> {
    if places.len() != chunks.len() || files.len() != chunks.len() {
        return None;
    }
    let all = chunks.iter().zip(places).zip(files);
    let written = all.map(|((chunk, places), file)| {
        // While the bytes are in the processor's cache they are written, too.
        let sums = match steady {
            true => sums_of_blocks(&chunk.data, SUMMED),
            false => Vec::new(),
        };
        write(chunk, places, &file)?;
        Ok(FilledItem {
            name: chunk.name,
            sums,
        })
    });
    let written: io::Result<Vec<_>> = written.collect();
    if let Err(error) = &written {
        tracing::debug!("writing a file of a data server: {error}");
    }
    written.ok()
}

fn write(chunk: &Filling<'_>, places: &[Place], file: &File) -> io::Result<()> {
    let total: u64 = chunk.data.iter().map(|slice| slice.len() as u64).sum();
    let room = places
        .iter()
        .try_fold(0u64, |sum, place| sum.checked_add(place.len));
    if room != Some(total) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut done = 0;
    for place in places {
        write_part(file, place.at, &chunk.data, done, place.len)?;
        done += place.len;
    }
    Ok(())
}
