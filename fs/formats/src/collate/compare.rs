//! Compares what several tiles have of the same elements, before anything is written.
//!
//! Tiles overlap where models write halos or the edges of staggered grids twice, and all tiles of a row have the same
//! coordinates. What is there twice has to be equal byte for byte.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::codec::Codec;
use super::inspect::refused;
use super::plan::{Joined, Piece, Plan, same_place};
use super::region::Region;
use super::source::Source;
use super::tile::shown;
use crate::{FormatError, Result};

/// Variables that are not decomposed are compared if they have at most this many bytes.
const SMALL: u64 = 1 << 20;
/// Elements that are compared at a time.
const PART: u64 = 1 << 18;

/// Two pieces of a variable that share a box.
struct Pair<'a> {
    variable: usize,
    one: &'a Piece,
    other: Piece,
    shared: Region,
}

/// Compares, with `jobs` threads. Returns lines about variables that are not decomposed and differ.
///
/// # Errors
/// Tiles have different data for the same elements; a file cannot be read.
pub(super) fn compare(plan: &Plan, source: &Source<'_>, jobs: usize) -> Result<Vec<String>> {
    let mut pairs = Vec::new();
    for (at, variable) in plan.variables.iter().enumerate() {
        if variable.bare_dim {
            continue;
        }
        match variable.decomposed {
            true => overlaps(plan, at, variable, &mut pairs)?,
            false => copies(plan, at, variable, &mut pairs),
        }
    }
    let next = AtomicUsize::new(0);
    let found: Mutex<(Vec<String>, Option<FormatError>)> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(pairs.len()) {
            scope.spawn(|| {
                let mut codec = Codec::default();
                while let Some(pair) = pairs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let done = differs(plan, source, pair, &mut codec);
                    let mut found = found
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    match done {
                        Ok(None) => {}
                        Ok(Some(line)) => found.0.push(line),
                        Err(error) => {
                            found.1.get_or_insert(error);
                            next.store(pairs.len(), Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let (mut lines, error) = found
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    lines.sort();
    lines.dedup_by(|one, other| one.split(' ').next() == other.split(' ').next());
    match error {
        Some(error) => Err(error),
        None => Ok(lines),
    }
}

/// The pairs of pieces of a variable that share elements: each with the first of the same box, and boxes with each other.
fn overlaps<'a>(
    plan: &Plan,
    at: usize,
    variable: &'a Joined,
    pairs: &mut Vec<Pair<'a>>,
) -> Result<()> {
    let before = pairs.len();
    let mut boxes: HashMap<&Region, &'a Piece> = HashMap::new();
    let mut distinct: Vec<&'a Piece> = Vec::new();
    let mut add = |one: &'a Piece, other: &'a Piece, shared: Region| {
        pairs.push(Pair {
            variable: at,
            one,
            other: other.clone(),
            shared,
        });
    };
    for piece in &variable.pieces {
        match boxes.get(&piece.region) {
            Some(first) => add(first, piece, piece.region.clone()),
            None => {
                boxes.insert(&piece.region, piece);
                distinct.push(piece);
            }
        }
    }
    // Along the axis on which the boxes begin at most places, a box is compared with those that begin before it ends.
    let starts = |axis: &usize| {
        let mut starts: Vec<u64> = distinct
            .iter()
            .map(|piece| piece.region.start[*axis])
            .collect();
        starts.sort_unstable();
        starts.dedup();
        starts.len()
    };
    let axis = (0..variable.shape.len()).max_by_key(starts).unwrap_or(0);
    distinct.sort_by_key(|piece| piece.region.start[axis]);
    for (number, one) in distinct.iter().enumerate() {
        let end = one.region.end(axis);
        for other in distinct[number + 1..]
            .iter()
            .take_while(|other| other.region.start[axis] < end)
        {
            if let Some(shared) = one.region.intersection(&other.region) {
                add(one, other, shared);
            }
        }
    }
    match pairs.get(before) {
        Some(pair) if !variable.element.flat => {
            let why = format!(
                "has elements of any length that are also in {}, which is not supported",
                plan.tiles[pair.one.tile].path.display()
            );
            Err(refused(
                &plan.tiles[pair.other.tile].path,
                &variable.path,
                why,
            ))
        }
        _ => Ok(()),
    }
}

/// All other tiles' values of a small variable that is not decomposed.
fn copies<'a>(plan: &Plan, at: usize, variable: &'a Joined, pairs: &mut Vec<Pair<'a>>) {
    let bytes = variable
        .shape
        .iter()
        .try_fold(variable.element.size as u64, |all, &len| {
            all.checked_mul(len)
        });
    let small = bytes.is_some_and(|bytes| bytes <= SMALL) && variable.element.flat;
    let Some(one) = variable.pieces.first().filter(|_| small) else {
        return;
    };
    for (number, tile) in plan.tiles.iter().enumerate().skip(1) {
        let Some(own) = same_place(tile, at, &variable.path) else {
            continue;
        };
        let region = Region::new(vec![0; own.shape.len()], own.shape.clone());
        if let Some(shared) = one.region.intersection(&region) {
            pairs.push(Pair {
                variable: at,
                one,
                other: Piece {
                    tile: number,
                    region,
                },
                shared,
            });
        }
    }
}

/// Compares a pair. A variable that is not decomposed may differ if it is no coordinate; the result is then a line about it.
fn differs(
    plan: &Plan,
    source: &Source<'_>,
    pair: &Pair<'_>,
    codec: &mut Codec,
) -> Result<Option<String>> {
    let variable = &plan.variables[pair.variable];
    let one = source.part(variable, pair.variable, pair.one)?;
    let other = source.part(variable, pair.variable, &pair.other)?;
    let elem = variable.element.size;
    for part in pair.shared.parts(PART) {
        let mut two = [
            vec![0; part.elements() as usize * elem],
            vec![0; part.elements() as usize * elem],
        ];
        source.read(&one, (&mut two[0], &part), codec)?;
        source.read(&other, (&mut two[1], &part), codec)?;
        if two[0] == two[1] {
            continue;
        }
        let (first, path) = (
            &plan.tiles[pair.one.tile].path,
            &plan.tiles[pair.other.tile].path,
        );
        if !variable.decomposed && variable.dims.first() != Some(&variable.path) {
            return Ok(Some(format!(
                "{} differs between tiles, among them {}; that of {} is taken",
                shown(&variable.path),
                path.display(),
                first.display()
            )));
        }
        let at = (0..part.elements() as usize)
            .find(|at| two[0][at * elem..(at + 1) * elem] != two[1][at * elem..(at + 1) * elem]);
        let mut rest = at.unwrap_or(0) as u64;
        let mut index = vec![0; part.count.len()];
        for axis in (0..index.len()).rev() {
            index[axis] = part.start[axis] + rest % part.count[axis];
            rest /= part.count[axis];
        }
        let why = format!(
            "has another value at index {index:?} of the joined variable than {}, which has the same element",
            first.display()
        );
        return Err(refused(path, &variable.path, why));
    }
    Ok(None)
}
