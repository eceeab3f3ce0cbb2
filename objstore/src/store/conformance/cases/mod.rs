//! The guarantees of a chunk store, one function each.

mod both;
mod free;
mod grid;

use crate::store::ChunkStore;

/// A case: its title and its function.
pub type Case = (&'static str, fn(&dyn ChunkStore));

/// The cases of a store of complete immutable chunks.
pub const IMMUTABLE: &[Case] = &[
    ("put and read", free::put_and_read),
    ("strided reads", free::strided_reads),
    ("resends", free::resends),
];

/// All cases.
pub const ALL: &[Case] = &[
    ("put and read", free::put_and_read),
    ("files to be filled", free::files_to_be_filled),
    ("codecs", free::codecs),
    ("strided reads", free::strided_reads),
    ("streams", free::streams),
    ("sealing cuts and packs", free::sealing_cuts_and_packs),
    ("resends", free::resends),
    ("encoded chunks", free::encoded_chunks),
    ("grid chunks are written in place", grid::grid_in_place),
    ("small grid chunks grow large", grid::grid_grows),
    ("grid chunks are patched", grid::grid_patched),
    ("a first axis without bound", grid::unbounded),
    ("fill", grid::fill),
    ("clip", grid::clip),
    ("punch", grid::punch),
    ("delete", both::delete),
    ("lists are in order", both::lists),
    ("wrong requests are refused", both::wrong_requests),
    ("many threads", both::many_threads),
];
