//! Large new chunks, written to files of a data server on the same host.
//!
//! The server opens an empty file for each chunk and sends the descriptor over the socket. The client writes the
//! bytes there directly from the caller's memory, and the server makes chunks of the files. An error on this path
//! is not reported: the chunks are then sent like all others, and that request reports what is wrong.

use std::fs::File;
use std::io::{self, IoSlice};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use smallvec::SmallVec;

use super::fanout::{decode, encode};
use crate::checksum::sums_of_blocks;
use crate::name::{ChunkForm, ChunkName};
use crate::store::{Place, SUMMED, part, write_part};
use crate::wire::messages::{Answer, BlankItem, Blanks, FilledItem, Outcome, kind};
use crate::wire::{MAX_FILES, Pool, Until, WireResult};

/// Smaller chunks are sent: two requests instead of one cost more than the copies.
pub(super) const FROM: u64 = 1 << 20;

/// The bytes of a chunk are written up to each multiple of this in the file, and then summed: one call per huge page
/// of memory, and the bytes are still in the processor's cache for the sums. The write comes first, since reading the
/// source from memory costs nothing while the file's pages are written to memory.
const AT_ONCE: u64 = 2 << 20;

/// A complete chunk, and where its bytes are in memory.
pub(super) struct Filling<'a> {
    pub(super) name: &'a ChunkName,
    pub(super) form: &'a ChunkForm,
    pub(super) data: SmallVec<[IoSlice<'a>; 8]>,
}

/// Puts chunks through files; returns the server's verifier, or `None` if they have to be sent.
///
/// `steady`: the bytes do not change meanwhile, so they can be summed here. The sums then cover the entire path from
/// this memory to the reader's, and the server need not read the bytes. Otherwise a byte that changes between sum and
/// file would make the chunk appear damaged, so the server computes the sums from what it received.
pub(super) fn put(pool: &Pool, chunks: &[Filling<'_>], steady: bool, until: Until) -> Option<u64> {
    if chunks.is_empty() || chunks.len() > MAX_FILES || is_limited() {
        return None;
    }
    match exchange(pool, chunks, steady, until) {
        Ok(done) => done,
        Err(error) => {
            tracing::debug!(addr = %pool.addr(), "sending chunks instead of writing them to files: {error}");
            None
        }
    }
}

/// Whether this process has a file size limit. The limit does not bind the server, and SIGXFSZ would kill this
/// process.
fn is_limited() -> bool {
    !matches!(getrlimit(Resource::RLIMIT_FSIZE), Ok((RLIM_INFINITY, _)))
}

fn exchange(
    pool: &Pool,
    chunks: &[Filling<'_>],
    steady: bool,
    until: Until,
) -> WireResult<Option<u64>> {
    let items = chunks.iter().map(|chunk| BlankItem {
        name: chunk.name,
        form: chunk.form,
    });
    let asked = encode(&items.collect::<Vec<_>>())?;
    let mut done = None;
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
            // An empty list returns the files at once, since they occupy disk space.
            let filled: Vec<FilledItem<&ChunkName>> = filled.unwrap_or_default();
            Ok((kind::FILLED, encode(&filled)?))
        },
        &mut |control, incoming| {
            let outcome: Outcome = decode(control, incoming)?;
            let all = outcome.failed.is_none() && outcome.done == chunks.len() as u64;
            done = all.then_some(outcome.verifier);
            if let Some(error) = outcome.failed {
                tracing::debug!("the data server refused the files: {error}");
            }
            Ok(())
        },
    )?;
    Ok(done)
}

/// Writes all chunks to their files, and closes the files.
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
        let sums = write(chunk, places, &file, steady)?;
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

/// Writes a chunk to its file. Returns the sums of its blocks, or none if its bytes may change meanwhile.
fn write(chunk: &Filling<'_>, places: &[Place], file: &File, steady: bool) -> io::Result<Vec<u32>> {
    let total: u64 = chunk.data.iter().map(|slice| slice.len() as u64).sum();
    let room = places
        .iter()
        .try_fold(0u64, |sum, place| sum.checked_add(place.len));
    if room != Some(total) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut sums = Vec::new();
    if steady {
        sums.reserve_exact(total.div_ceil(SUMMED) as usize);
    }
    let (mut begin, mut done, mut summed) = (0, 0, 0);
    for place in places {
        let place_end = begin + place.len;
        while done < place_end {
            let at = place.at + (done - begin);
            let len = (place_end - done).min(AT_ONCE - at % AT_ONCE);
            write_part(file, at, &chunk.data, done, len)?;
            done += len;
            let end = if done == total {
                done
            } else {
                done / SUMMED * SUMMED
            };
            if steady && summed < end {
                let blocks = part(&chunk.data, summed, end - summed);
                sums.extend(sums_of_blocks(&blocks, SUMMED));
                summed = end;
            }
        }
        begin = place_end;
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use slabfs_model::Codec;

    use super::*;
    use crate::checksum::crc32c;
    use crate::store::conformance::{form, free};

    /// Places that end inside the blocks of one write, with gaps between them.
    #[test]
    fn bytes_go_to_their_places_with_the_sums_of_their_blocks() {
        let total = 2 * AT_ONCE + 12345;
        let data: Vec<u8> = (0..total).map(|i| ((i * i) >> 7) as u8).collect();
        let ends = [1, SUMMED + 7, AT_ONCE - 1, AT_ONCE + 1, total];
        let mut places = Vec::new();
        let mut from = 0;
        for (number, end) in ends.into_iter().enumerate() {
            places.push(Place {
                at: from + 100 * (number as u64 + 1),
                len: end - from,
            });
            from = end;
        }
        let (head, tail) = data.split_at(SUMMED as usize / 2 + 3);
        let chunk = Filling {
            name: &free(7),
            form: &form(&[total], 1, Codec::None, &[0]),
            data: [IoSlice::new(head), IoSlice::new(tail)]
                .into_iter()
                .collect(),
        };
        let file = tempfile::tempfile().unwrap();
        let sums = write(&chunk, &places, &file, true).unwrap();
        let mut from = 0;
        for place in &places {
            let mut there = vec![0; place.len as usize];
            file.read_exact_at(&mut there, place.at).unwrap();
            assert_eq!(there, data[from..from + there.len()]);
            from += there.len();
        }
        assert_eq!(sums, sums_of_blocks(&chunk.data, SUMMED));
        assert_eq!(sums[0], crc32c(&data[..SUMMED as usize]));
        assert_eq!(
            write(&chunk, &places, &file, false).unwrap(),
            [] as [u32; 0]
        );
        places.pop();
        write(&chunk, &places, &file, true).unwrap_err();
    }
}
