//! The grid of chunks of a joined variable, and which chunks of tiles are chunks of it as they are.
//!
//! A chunk of a tile is copied undecoded if it has the shape of the output's chunks, begins where one of them begins, went
//! through the same filters, has the same byte order, and has all elements that the chunk of the output has. The last is not so
//! where a tile ends within a chunk and the output does not: then the rest of the chunk is in another tile, or in none.

use super::plan::{Chunks, Joined, Piece, Wish};
use super::region::Region;
use super::tile::{TileVariable, shown};
use crate::hdf5::Filter;

/// Bytes of chunks for data that was not in chunks.
const NEW_CHUNK: u64 = 4 << 20;
/// The most bytes of a chunk in HDF5.
const MOST_BYTES: u64 = u32::MAX as u64;

/// The shape of the chunks of a joined variable; `None` if it is stored in one piece.
pub(super) fn chunk(
    model: &TileVariable,
    own: &[&TileVariable],
    variable: &Joined,
    wish: &Wish,
) -> Option<Vec<u64>> {
    let rank = variable.shape.len();
    if rank == 0 {
        return None;
    }
    let best = best(own, variable).or_else(|| model.chunk().map(<[u64]>::to_vec));
    let wished = wished(variable, wish);
    let needs =
        !variable.filters.is_empty() || variable.growing.contains(&true) || wished.is_some();
    let mut shape = match best {
        Some(shape) => shape,
        None if needs => fresh(own, variable),
        None => return None,
    };
    for (len, wish) in shape.iter_mut().zip(wished.into_iter().flatten()) {
        *len = wish.unwrap_or(*len);
    }
    for (axis, len) in shape.iter_mut().enumerate() {
        // A chunk is not longer than an axis that cannot grow.
        let most = if variable.growing[axis] {
            u64::from(u32::MAX)
        } else {
            variable.shape[axis]
        };
        *len = (*len).clamp(1, most.max(1));
    }
    halve(&mut shape, variable.element.size as u64, MOST_BYTES);
    Some(shape)
}

/// The wanted length along each axis, if any is wanted.
fn wished(variable: &Joined, wish: &Wish) -> Option<Vec<Option<u64>>> {
    match &wish.chunks {
        Chunks::Tiles => None,
        Chunks::Axes(lens) if lens.len() == variable.shape.len() => {
            Some(lens.iter().map(|&len| Some(len)).collect())
        }
        Chunks::Axes(_) => None,
        Chunks::Named(named) => {
            let lens: Vec<Option<u64>> = variable
                .dims
                .iter()
                .map(|path| {
                    let base = path.rsplit('/').next().unwrap_or(path);
                    let found = named
                        .iter()
                        .find(|(name, _)| name == base || name == shown(path));
                    found.map(|(_, len)| *len)
                })
                .collect();
            lens.iter().any(Option::is_some).then_some(lens)
        }
    }
}

/// The shape of chunks of the tiles with which most elements are copied as they are, or that most elements have.
fn best(own: &[&TileVariable], variable: &Joined) -> Option<Vec<u64>> {
    let mut shapes: Vec<&[u64]> = own.iter().filter_map(|one| one.chunk()).collect();
    shapes.sort_unstable();
    shapes.dedup();
    let score = |shape: &[u64]| {
        let pieces = variable
            .pieces
            .iter()
            .zip(own)
            .filter(|(_, one)| one.chunk() == Some(shape));
        let (mut copied, mut all) = (0_u64, 0_u64);
        for (piece, _) in pieces {
            copied += copied_elements(&variable.shape, shape, &piece.region);
            all += piece.region.elements();
        }
        (copied, all, shape.iter().product::<u64>())
    };
    shapes
        .into_iter()
        .max_by_key(|shape| score(shape))
        .map(<[u64]>::to_vec)
}

/// Elements of a tile at `region` that are in chunks that are copied, where both have chunks of this shape.
fn copied_elements(all: &[u64], chunk: &[u64], region: &Region) -> u64 {
    (0..all.len())
        .map(|axis| {
            let (start, count, len) = (region.start[axis], region.count[axis], chunk[axis].max(1));
            match (start % len, region.end(axis) == all[axis]) {
                (0, true) => count,
                (0, false) => count - count % len,
                _ => 0,
            }
        })
        .product()
}

/// Whether all chunks of a tile are copied as they are.
pub(super) fn is_copied(variable: &Joined, piece: &Piece, own: &TileVariable) -> bool {
    let Some(shape) = fits(variable, own) else {
        return false;
    };
    is_exact_everywhere(variable, shape, &piece.region)
}

/// Whether all chunks of a tile at `region` are chunks of the output, if they have the same shape.
pub(super) fn is_exact_everywhere(variable: &Joined, shape: &[u64], region: &Region) -> bool {
    copied_elements(&variable.shape, shape, region) == region.elements()
}

/// The shape of the chunks, if those of this tile have the same shape, filters and byte order.
pub(super) fn fits<'a>(variable: &'a Joined, own: &TileVariable) -> Option<&'a [u64]> {
    let shape = variable.chunk.as_deref()?;
    let order = own.element.big_endian == variable.element.big_endian;
    let fits = own.chunk() == Some(shape) && order && same_filters(&variable.filters, &own.filters);
    fits.then_some(shape)
}

/// Whether chunks of the one are chunks of the other: the level of deflate does not matter to who reads them.
fn same_filters(one: &[Filter], other: &[Filter]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| {
            let levels = one.id == Filter::DEFLATE;
            one.id == other.id && (levels || one.values == other.values)
        })
}

/// Whether the chunk of a tile at `region` that begins at `start` (in the output) is a chunk of the output.
pub(super) fn is_exact(variable: &Joined, shape: &[u64], region: &Region, start: &[u64]) -> bool {
    (0..shape.len()).all(|axis| {
        let end = start[axis] + shape[axis];
        let has_all = region.end(axis).min(end) == variable.shape[axis].min(end);
        start[axis].is_multiple_of(shape[axis]) && has_all
    })
}

/// A shape for data that was not in chunks: that of a tile, not too large.
fn fresh(own: &[&TileVariable], variable: &Joined) -> Vec<u64> {
    let mut shape = own
        .first()
        .map_or_else(|| variable.shape.clone(), |one| one.shape.clone());
    for (axis, len) in shape.iter_mut().enumerate() {
        *len = if variable.growing[axis] && variable.shape.len() > 1 {
            1
        } else {
            (*len).max(1)
        };
    }
    halve(&mut shape, variable.element.size as u64, NEW_CHUNK);
    shape
}

/// Halves the longest axis until a chunk has at most `most` bytes.
fn halve(shape: &mut [u64], size: u64, most: u64) {
    let bytes = |shape: &[u64]| shape.iter().fold(size, |all, &len| all.saturating_mul(len));
    while bytes(shape) > most {
        match shape.iter_mut().max() {
            Some(longest) if *longest > 1 => *longest = longest.div_ceil(2),
            _ => return,
        }
    }
}
