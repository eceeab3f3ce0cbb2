//! Joins the tiles that a parallel model writes, one file a process, to one file.
//!
//! | file | what |
//! |---|---|
//! | `tile`, `inspect`, `classic` | a tile without its data; reading it from HDF5 and NetCDF-3 |
//! | `plan`, `agree`, `gaps`, `grid` | pure: which tiles fit together, what the joined file has, the shape of its chunks |
//! | `source`, `cache`, `codec`, `noise`, `region` | reading stored chunks and boxes of elements, on many threads |
//! | `compare` | what is in several tiles has to be equal |
//! | `skeleton` | the joined file without the joined data |
//! | `jobs`, `write` | which chunks are copied and which are assembled; doing it |
//!
//! # Flow
//!
//! 1. Each tile is inspected ([`inspect()`]), and all of them are planned ([`plan()`]): nothing is written, and what does not fit
//!    is refused.
//! 2. [`check`] compares elements that are in several tiles. Nothing is written.
//! 3. [`write()`] creates the output at the given place and writes it. The caller gives it a temporary name, and renames it
//!    when it is complete.
//!
//! # What holds
//!
//! - A stored chunk of a tile that is a chunk of the output is copied as it is, with its filter mask, and is not decoded. Other
//!   chunks are assembled from the decoded chunks of tiles, and encoded on all processors.
//! - The order of the bytes of a number is that of the first tile; bytes are never converted, only reversed where another tile
//!   has the other order.
//! - Memory does not grow with the data: per chunk of the variable that is being written about 100 bytes, and in addition
//!   some buffers and at most 48 MiB of decoded chunks.
//! - Files are described by the HDF5 library, which can crash on damaged files; it is for the caller to do all of this in a
//!   process of its own. Data is read without it.

mod agree;
mod cache;
mod classic;
pub mod codec;
mod compare;
mod gaps;
mod grid;
mod inspect;
mod jobs;
mod noise;
mod plan;
mod region;
mod skeleton;
mod source;
mod tile;
mod write;

use std::path::Path;

pub use inspect::inspect;
pub use jobs::Job;
pub use plan::{Chunks, Joined, JoinedDim, Piece, Plan, Wish, plan};
pub use region::{Region, copy as copy_box};
pub use source::{Entry, Index, Part, Source};
pub use tile::{
    Description, Element, Format, Identity, Storage, Tile, TileDim, TileVariable, shown,
};
pub use write::{Done, Progress, Watch};

use crate::Result;

/// Compares what several tiles have of the same elements, with `threads` threads. Returns lines for the user about variables
/// that are not decomposed, and differ.
///
/// # Errors
/// Tiles have different values for the same elements; a file cannot be read.
pub fn check(plan: &Plan, threads: usize) -> Result<Vec<String>> {
    compare::compare(plan, &Source::new(&plan.tiles), threads)
}

/// How many chunks of each variable would be copied, and how many encoded.
///
/// # Errors
/// A file cannot be read.
pub fn count(plan: &Plan) -> Result<Vec<(&Joined, Done)>> {
    let source = Source::new(&plan.tiles);
    let classic = plan.tiles[0].format == Format::Classic;
    let written = plan
        .variables
        .iter()
        .enumerate()
        .filter(|(_, one)| one.is_written(classic));
    written
        .map(|(at, variable)| match variable.element.flat {
            true => Ok((variable, write::count(&source, at, variable)?)),
            false => Ok((variable, Done::default())),
        })
        .collect()
}

/// Whether a variable's elements are read from the tiles: it is not in [`skeleton`].
pub fn is_joined(plan: &Plan, variable: &Joined) -> bool {
    variable.element.flat && variable.is_written(plan.tiles[0].format == Format::Classic)
}

/// Writes the joined file without the data of joined variables ([`is_joined`]) to `place`, where there is none. It is to get
/// the name `named`, which errors name too.
///
/// # Errors
/// As those of [`write()`].
pub fn skeleton(
    plan: &Plan,
    (place, named): (&Path, &Path),
    progress: &mut Watch<'_>,
) -> Result<()> {
    progress(Progress::Reading(&plan.tiles[0].path))?;
    let out = skeleton::create(plan, place, named)?;
    write::others(plan, &out, progress)?;
    progress(Progress::Done(Done::default()))?;
    out.close()
}

/// Writes the joined file to `place`, where there is none, with `threads` threads that read and encode. It is to get the name
/// `named`, which errors name too. `progress` can stop it by an error.
///
/// # Errors
/// A tile is damaged, gone, or was changed; the output cannot be written. What was written is then to be removed.
pub fn write(
    plan: &Plan,
    (place, named): (&Path, &Path),
    threads: usize,
    progress: &mut Watch<'_>,
) -> Result<Done> {
    let source = Source::new(&plan.tiles);
    let classic = plan.tiles[0].format == Format::Classic;
    progress(Progress::Reading(&plan.tiles[0].path))?;
    let out = skeleton::create(plan, place, named)?;
    progress(Progress::Done(Done::default()))?;
    let done = write::write(plan, &source, &out, classic, threads, progress)?;
    out.close()?;
    Ok(done)
}
