//! Placements: the choice of the data server for a chunk.
//!
//! This module has the text form, and the placements that are arithmetic: `object` hashes the object over the servers
//! ([`object_server`]), `region` cuts the array evenly into blocks ([`Blocks`]). Both are pure functions of the
//! object and a list of servers, so every process computes the same result.
//!
//! Invariants: a block is a box; the blocks are disjoint and cover the array; along an axis their lengths differ by
//! one element at most; no element is cut.
//!
//! Deliberately elsewhere: how full the servers are and which are on the same host (`slabfs-mdserver`'s `placement`),
//! and a client's choice among them (`fs/src/client/placement/place.rs`).

use crate::{Coords, ObjectId, Region, ServerId};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

/// The data server for a chunk of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Placement {
    /// All of the object on one server, by hash of the object.
    Object,
    /// The array cut evenly into blocks over all servers.
    Region,
    /// The server with the fewest bytes.
    #[default]
    Dynamic,
    /// The server on the writer's host, else the nearest.
    Local,
    /// The server with this number.
    Server(ServerId),
}

/// A text that is not a placement.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "\"{text}\" is not a placement; write object, region, dynamic, local or server:N with a number that `slabfs servers` shows"
)]
pub struct PlacementError {
    /// The text as it was written.
    pub text: String,
}

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Placement, PlacementError> {
        match text.trim() {
            "object" => Ok(Placement::Object),
            "region" => Ok(Placement::Region),
            "dynamic" => Ok(Placement::Dynamic),
            "local" => Ok(Placement::Local),
            other => other
                .strip_prefix("server:")
                .filter(|id| id.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|id| id.parse().ok())
                .map(|id| Placement::Server(ServerId(id)))
                .ok_or_else(|| PlacementError {
                    text: text.to_owned(),
                }),
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Object => f.write_str("object"),
            Placement::Region => f.write_str("region"),
            Placement::Dynamic => f.write_str("dynamic"),
            Placement::Local => f.write_str("local"),
            Placement::Server(id) => write!(f, "server:{id}"),
        }
    }
}

/// The server of an object by its hash: the one with the greatest weight for this object (rendezvous hashing, Thaler
/// and Ravishankar 1998), so that adding or removing a server moves few objects. `None` for an empty list; the order
/// of the list does not matter.
#[must_use]
pub fn object_server(object: ObjectId, servers: &[ServerId]) -> Option<ServerId> {
    let weight = |server: &ServerId| {
        let mut key = [0; 12];
        key[..8].copy_from_slice(&object.0.to_le_bytes());
        key[8..].copy_from_slice(&server.0.to_le_bytes());
        (xxh3_64(&key), *server)
    };
    servers.iter().copied().max_by_key(weight)
}

/// The server for a host that has none: the same for everything the host writes, and different from host to host.
#[must_use]
pub fn server_on_host(host: &str, servers: &[ServerId]) -> Option<ServerId> {
    object_server(ObjectId(xxh3_64(host.as_bytes())), servers)
}

/// An array cut evenly into as many blocks as there are servers, as far as it has enough elements.
///
/// The cut begins with the slowest axis, so that a block is a run of complete rows where that is possible; only an
/// axis too short for all of it leaves the rest to the next one. Blocks are numbered in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocks {
    /// Blocks along each axis of the cells.
    parts: Coords,
    /// Elements along each axis; 0 where the axis is not cut.
    extents: Coords,
    /// Bytes of an element: cells per element of the last axis.
    elem: u64,
}

impl Blocks {
    /// Cuts an array of `extents` elements of `elem` bytes for `servers` servers. An axis of extent 0 has no known
    /// length and is not cut. A scalar is one block.
    #[must_use]
    pub fn new(extents: &[u64], elem: u64, servers: usize) -> Blocks {
        let mut left = (servers as u64).max(1);
        let mut parts: Coords = extents
            .iter()
            .map(|&extent| {
                let part = greatest_divisor(left, extent);
                left /= part;
                part
            })
            .collect();
        // No axis takes the rest evenly: use one block an element, along the longest axis.
        let longest = (0..extents.len()).max_by_key(|&axis| (extents[axis] / parts[axis], !axis));
        if let Some(axis) = longest.filter(|_| left > 1) {
            parts[axis] = (parts[axis] * left).min(extents[axis]).max(1);
        }
        let mut extents = Coords::from_slice(extents);
        if extents.is_empty() {
            extents.push(0);
            parts.push(1);
        }
        Blocks {
            parts,
            extents,
            elem: elem.max(1),
        }
    }

    /// The number of blocks; at most the number of servers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.parts.iter().product::<u64>() as usize
    }

    /// Cells per element along an axis.
    fn unit(&self, axis: usize) -> u64 {
        if axis + 1 == self.parts.len() {
            self.elem
        } else {
            1
        }
    }

    /// The block along an axis that holds a cell; the last one also holds cells beyond the extent.
    fn wanted(&self, axis: usize, cell: u64) -> u64 {
        let (parts, extent) = (self.parts[axis], self.extents[axis]);
        if parts <= 1 {
            return 0;
        }
        let element = u128::from(cell / self.unit(axis));
        let part = ((element + 1) * u128::from(parts) - 1) / u128::from(extent);
        part.min(u128::from(parts - 1)) as u64
    }

    /// The first cell after a block along an axis; the last block is unlimited.
    fn end_of(&self, axis: usize, part: u64) -> u64 {
        let (parts, extent) = (self.parts[axis], self.extents[axis]);
        if part + 1 >= parts {
            return u64::MAX;
        }
        let element = u128::from(part + 1) * u128::from(extent) / u128::from(parts);
        (element as u64).saturating_mul(self.unit(axis))
    }

    /// The number of the block that holds a cell.
    #[must_use]
    pub fn of_cell(&self, cell: &[u64]) -> usize {
        let along = cell.iter().take(self.parts.len()).enumerate();
        along.fold(0, |block, (axis, &cell)| {
            block * self.parts[axis] + self.wanted(axis, cell)
        }) as usize
    }

    /// The block that contains a box of cells; `None` if it spans several.
    #[must_use]
    pub fn of_region(&self, region: &Region) -> Option<usize> {
        let full = (0..region.rank().min(self.parts.len())).all(|axis| {
            let part = self.wanted(axis, region.offset[axis]);
            region.end(axis) <= self.end_of(axis, part)
        });
        full.then(|| self.of_cell(&region.offset))
    }

    /// The first row (cell of the slowest axis) after the block of `row`, if no other axis is cut: the limit for a
    /// chunk of complete rows.
    #[must_use]
    pub fn rows_end(&self, row: u64) -> Option<u64> {
        let cut_elsewhere = self.parts.iter().skip(1).any(|&parts| parts > 1);
        (!cut_elsewhere).then(|| self.end_of(0, self.wanted(0, row)))
    }

    /// Splits a box of cells at the cuts: returns the parts, each with the number of its block, in row-major order.
    /// Empty for an empty box.
    #[must_use]
    pub fn split(&self, region: &Region) -> Vec<(usize, Region)> {
        let mut done: Vec<Region> = vec![region.clone()];
        if region.is_empty() {
            done.clear();
        }
        for axis in 0..region.rank().min(self.parts.len()) {
            done = done
                .iter()
                .flat_map(|region| self.split_axis(region, axis))
                .collect();
        }
        let numbered = done
            .into_iter()
            .map(|part| (self.of_cell(&part.offset), part));
        numbered.collect()
    }

    fn split_axis(&self, region: &Region, axis: usize) -> SmallVec<[Region; 2]> {
        let mut out = SmallVec::new();
        let (mut at, end) = (region.offset[axis], region.end(axis));
        while at < end {
            let next = self.end_of(axis, self.wanted(axis, at)).min(end);
            let mut part = region.clone();
            part.offset[axis] = at;
            part.shape[axis] = next - at;
            out.push(part);
            at = next;
        }
        out
    }
}

/// The greatest divisor of `number` that is not above `limit`; 1 for a limit of 0.
fn greatest_divisor(number: u64, limit: u64) -> u64 {
    if number <= limit {
        return number;
    }
    (1..=limit)
        .rev()
        .find(|divisor| number.is_multiple_of(*divisor))
        .unwrap_or(1)
}

#[cfg(test)]
mod tests;
