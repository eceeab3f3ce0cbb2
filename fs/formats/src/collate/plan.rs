//! From descriptions of tiles to what the joined file has: pure, without files.
//!
//! Tiles are put into the order of their positions; the first is the model for everything else. What does not fit is refused
//! here, with the names of the file and the variable, before anything is written.

use std::collections::BTreeMap;
use std::path::Path;

use super::agree::{different_files, same_dims, same_variables};
use super::gaps::gaps;
use super::grid;
use super::inspect::refused;
use super::region::Region;
use super::tile::{DECOMPOSITION, Element, Format, Storage, Tile, TileVariable, shown};
use crate::hdf5::Filter;
use crate::{FormatError, Result};

/// How much larger than what is in files an array can be, because of compression and of parts that were never written. More
/// is damage, which would take forever to write.
const EMPTY: u128 = 1 << 20;
/// The most bytes of a variable.
const MOST_BYTES: u128 = 1 << 56;

/// What is wanted of the joined file.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// The shape of chunks.
    pub chunks: Chunks,
    /// The level of deflate, 0 for none; `None` for that of the tiles.
    pub deflate: Option<u32>,
    /// Whether bytes are shuffled before they are compressed; `None` for as in the tiles.
    pub shuffle: Option<bool>,
}

/// The wanted shape of chunks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Chunks {
    /// That of the tiles.
    #[default]
    Tiles,
    /// These lengths, for variables of as many axes.
    Axes(Vec<u64>),
    /// These lengths along dimensions with these names.
    Named(Vec<(String, u64)>),
}

/// What the joined file has.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The tiles in the order of their positions.
    pub tiles: Vec<Tile>,
    /// The decomposed dimensions, the slowest first.
    pub dims: Vec<JoinedDim>,
    /// All variables, in the order of the first tile.
    pub variables: Vec<Joined>,
    /// A line about parts that are in no tile.
    pub missing: Option<String>,
}

/// A decomposed dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedDim {
    /// Its path.
    pub path: String,
    /// The number of its first index in `domain_decomposition`.
    pub first: i64,
    /// Its length.
    pub len: u64,
}

/// A variable of the joined file.
#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    /// Its path.
    pub path: String,
    /// One of its dimensions is decomposed; otherwise it is that of the first tile.
    pub decomposed: bool,
    /// It is a dimension of NetCDF-4 that has no variable.
    pub bare_dim: bool,
    /// The type of its elements, with the byte order of the output.
    pub element: Element,
    /// The paths of its dimensions.
    pub dims: Vec<String>,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Whether each axis can grow.
    pub growing: Vec<bool>,
    /// The shape of its chunks; `None` if it is stored in one piece.
    pub chunk: Option<Vec<u64>>,
    /// The filters of its chunks.
    pub filters: Vec<Filter>,
    /// What elements are that are in no tile, as it is stored.
    pub fill: Vec<u8>,
    /// Some elements may be in no tile.
    pub holes: bool,
    /// Where the tiles are in it.
    pub pieces: Vec<Piece>,
}

/// The part of a variable that is in a tile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The number of the tile.
    pub tile: usize,
    /// Where it is.
    pub region: Region,
}

/// Joins tiles.
///
/// # Errors
/// They do not fit together.
pub fn plan(mut tiles: Vec<Tile>, wish: &Wish) -> Result<Plan> {
    let Some(first) = tiles.first() else {
        let why = "has no tiles: give the files to join";
        return Err(refused(Path::new("collate"), "the list of files", why));
    };
    different_files(&tiles)?;
    if first.dims.values().all(|dim| dim.decomposition.is_none()) {
        let why = format!("no variable has an attribute {DECOMPOSITION}: it is no tile");
        return Err(refused(&first.path, "", why));
    }
    for tile in &tiles {
        same_dims(&tiles[0], tile)?;
    }
    let dims = joined_dims(&tiles[0]);
    let start =
        |tile: &Tile, dim: &JoinedDim| tile.dims[&dim.path].decomposition.map(|place| place[2]);
    tiles.sort_by_cached_key(|tile| {
        let place: Vec<Option<i64>> = dims.iter().map(|dim| start(tile, dim)).collect();
        (place, tile.path.clone())
    });
    for tile in &tiles[1..] {
        same_variables(&tiles[0], tile)?;
    }
    let mut missing = Missing::default();
    let variables = (0..tiles[0].variables.len())
        .map(|at| joined(&tiles, at, &dims, wish, &mut missing))
        .collect::<Result<Vec<Joined>>>()?;
    Ok(Plan {
        tiles,
        dims,
        variables,
        missing: missing.line,
    })
}

/// The decomposed dimensions, in the order in which the variable with most of them has them.
fn joined_dims(first: &Tile) -> Vec<JoinedDim> {
    let decomposed = |path: &&String| first.dims.get(*path).and_then(|dim| dim.decomposition);
    let mut variables: Vec<&TileVariable> = first.variables.iter().collect();
    variables.sort_by_key(|one| {
        std::cmp::Reverse(
            one.dims
                .iter()
                .filter(|dim| decomposed(dim).is_some())
                .count(),
        )
    });
    let mut dims: Vec<JoinedDim> = Vec::new();
    for path in variables.iter().flat_map(|one| &one.dims) {
        if let Some([from, to, ..]) = decomposed(&path)
            && !dims.iter().any(|dim| dim.path == *path)
        {
            let len = u64::try_from(i128::from(to) - i128::from(from) + 1).unwrap_or(0);
            dims.push(JoinedDim {
                path: path.clone(),
                first: from,
                len,
            });
        }
    }
    dims
}

/// Which parts of which dimensions are in no tile; found once for each set of dimensions.
#[derive(Default)]
struct Missing {
    sets: BTreeMap<Vec<usize>, bool>,
    line: Option<String>,
}

/// A variable of the joined file; `at` is its number in the first tile.
fn joined(
    tiles: &[Tile],
    at: usize,
    dims: &[JoinedDim],
    wish: &Wish,
    missing: &mut Missing,
) -> Result<Joined> {
    let model = &tiles[0].variables[at];
    let axes: Vec<Option<usize>> = model
        .dims
        .iter()
        .map(|path| dims.iter().position(|dim| dim.path == *path))
        .collect();
    let decomposed = axes.iter().any(Option::is_some);
    let placed = placed(tiles, at, dims, &axes)?;
    let covered = !decomposed || is_covered(tiles, dims, &axes, missing);
    let mut element = model.element.clone();
    let classic = tiles[0].format == Format::Classic;
    // A file without `_FillValue` has the library's own fill value, which tools do not mask if there is a `missing_value`.
    let mut fill = model
        .missing
        .clone()
        .or_else(|| model.fill.clone())
        .unwrap_or_else(|| vec![0; element.size]);
    if classic && element.number {
        element.big_endian = false;
        super::codec::swap(&mut fill, element.size);
    }
    let mut variable = Joined {
        path: model.path.clone(),
        decomposed,
        bare_dim: model.bare_dim,
        element,
        dims: model.dims.clone(),
        shape: placed.shape,
        growing: model.growing.clone(),
        chunk: None,
        filters: Vec::new(),
        fill,
        holes: placed.short || !covered,
        pieces: placed.pieces,
    };
    if decomposed || classic || !variable.element.flat {
        let own: Vec<&TileVariable> = variable
            .pieces
            .iter()
            .filter_map(|piece| same_place(&tiles[piece.tile], at, &model.path))
            .collect();
        variable.filters = filters(model, &variable, wish);
        variable.chunk = grid::chunk(model, &own, &variable, wish);
        if variable.chunk.is_none() {
            variable.filters.clear();
        }
        unencodable(tiles, &variable, &own)?;
    }
    Ok(variable)
}

/// Where the parts of a variable are.
struct Placed {
    /// The shape of all of it.
    shape: Vec<u64>,
    /// A tile has less of it than its dimensions are long.
    short: bool,
    pieces: Vec<Piece>,
}

/// Places the parts of a variable, whose number in the first tile is `at`, and whose axes have these decomposed dimensions.
fn placed(tiles: &[Tile], at: usize, dims: &[JoinedDim], axes: &[Option<usize>]) -> Result<Placed> {
    let model = &tiles[0].variables[at];
    let rank = model.shape.len();
    let decomposed = axes.iter().any(Option::is_some);
    let mut shape = model.shape.clone();
    let mut pieces = Vec::new();
    let mut short = false;
    let mut had = 0_u128;
    for (number, tile) in tiles.iter().enumerate() {
        let Some(own) = same_place(tile, at, &model.path) else {
            return Err(refused(&tile.path, &model.path, "is missing"));
        };
        if number > 0 && !decomposed {
            break;
        }
        let mut region = Region::new(vec![0; rank], own.shape.clone());
        for axis in 0..rank {
            match axes[axis] {
                Some(dim) => {
                    let place = tile.dims[&dims[dim].path].decomposition.unwrap_or_default();
                    region.start[axis] = place[2].abs_diff(place[0]);
                    shape[axis] = dims[dim].len;
                    short |= own.shape[axis] < tile.dims[&dims[dim].path].len;
                }
                None => {
                    short |= shape[axis] != own.shape[axis];
                    shape[axis] = shape[axis].max(own.shape[axis]);
                }
            }
        }
        let bytes = bytes(&region.count, model.element.size);
        let most = u128::from(tile.identity.len) * EMPTY;
        if bytes > most {
            let why = format!(
                "has {bytes} bytes, too many for a file of {}",
                tile.identity.len
            );
            return Err(refused(&tile.path, &model.path, why));
        }
        had += bytes;
        if !region.count.contains(&0) {
            pieces.push(Piece {
                tile: number,
                region,
            });
        }
    }
    let all = bytes(&shape, model.element.size);
    if all > had.max(1) * EMPTY || all > MOST_BYTES {
        let why = format!(
            "would have {all} bytes, and the tiles have {had} of them; a {DECOMPOSITION} is damaged"
        );
        return Err(refused(&tiles[0].path, &model.path, why));
    }
    Ok(Placed {
        shape,
        short,
        pieces,
    })
}

/// The variable of a tile by its path; in most files it has the same number as in the first.
pub(super) fn same_place<'a>(tile: &'a Tile, at: usize, path: &str) -> Option<&'a TileVariable> {
    tile.variables
        .get(at)
        .filter(|one| one.path == path)
        .or_else(|| tile.variable(path))
}

/// The filters of the joined variable.
fn filters(model: &TileVariable, variable: &Joined, wish: &Wish) -> Vec<Filter> {
    let has = |id: u32| model.filters.iter().find(|filter| filter.id == id);
    let deflates = has(Filter::DEFLATE).is_some();
    let shuffles = has(Filter::SHUFFLE).is_some();
    // A scalar has no chunks. Of the files that other filters wrote, only the level of deflate is asked for.
    let unchanged = wish.deflate.is_none()
        && (wish.shuffle.is_none() || wish.shuffle == Some(shuffles) || !deflates);
    let numbers = variable.element.flat && !variable.shape.is_empty();
    if unchanged || !numbers {
        return model.filters.clone();
    }
    let level = match (wish.deflate, has(Filter::DEFLATE)) {
        (Some(level), _) => level,
        (None, Some(filter)) => filter.values.first().copied().unwrap_or(6),
        (None, None) => 0,
    };
    let mut filters = Vec::new();
    let filter = |id: u32, values: Vec<u32>| Filter {
        id,
        flags: 1,
        values,
    };
    if level > 0 && wish.shuffle.unwrap_or(shuffles) {
        filters.push(filter(Filter::SHUFFLE, vec![variable.element.size as u32]));
    }
    if level > 0 {
        filters.push(filter(Filter::DEFLATE, vec![level]));
    }
    filters.extend(has(Filter::FLETCHER32).cloned());
    filters
}

/// Fails if chunks have to be encoded or decoded by filters for which there is no plug-in.
fn unencodable(tiles: &[Tile], variable: &Joined, own: &[&TileVariable]) -> Result<()> {
    let lacking = |filters: &[Filter]| {
        let native = super::codec::is_native(filters);
        let lacking = filters
            .iter()
            .find(|filter| !native && !filter.is_available());
        lacking.map(|filter| filter.id)
    };
    let mut lack: Option<(usize, u32)> = None;
    for (piece, own) in variable.pieces.iter().zip(own) {
        let id = lacking(&own.filters).or_else(|| lacking(&variable.filters));
        if let Some(id) = id
            && !grid::is_copied(variable, piece, own)
        {
            lack = Some((piece.tile, id));
            break;
        }
    }
    match lack {
        Some((tile, id)) => {
            let why = format!(
                "has chunks that do not fit those of the output, and HDF5 has no plug-in for their filter {id}"
            );
            Err(refused(&tiles[tile].path, &variable.path, why))
        }
        None => Ok(()),
    }
}

/// Whether tiles are everywhere along these dimensions.
fn is_covered(
    tiles: &[Tile],
    dims: &[JoinedDim],
    axes: &[Option<usize>],
    missing: &mut Missing,
) -> bool {
    let set: Vec<usize> = axes.iter().flatten().copied().collect();
    if let Some(&covered) = missing.sets.get(&set) {
        return covered;
    }
    let boxes: Vec<Region> = tiles
        .iter()
        .map(|tile| {
            let places = set
                .iter()
                .map(|&dim| tile.dims[&dims[dim].path].decomposition.unwrap_or_default());
            let start = places
                .clone()
                .map(|place| place[2].abs_diff(place[0]))
                .collect();
            let count = places
                .map(|place| place[3].abs_diff(place[2]) + 1)
                .collect();
            Region::new(start, count)
        })
        .collect();
    let shape: Vec<u64> = set.iter().map(|&dim| dims[dim].len).collect();
    let found = gaps(&shape, &boxes);
    let covered = found.as_ref().is_some_and(Vec::is_empty);
    if let Some(gaps) = found.filter(|gaps| !gaps.is_empty())
        && missing.sets.keys().all(|other| other.len() <= set.len())
    {
        missing.line = Some(line(&gaps, &set, dims));
    }
    missing.sets.insert(set, covered);
    covered
}

fn line(gaps: &[Region], set: &[usize], dims: &[JoinedDim]) -> String {
    let one = |gap: &Region| {
        let parts = set.iter().enumerate().map(|(axis, &dim)| {
            let from = dims[dim].first + gap.start[axis] as i64;
            let to = from + gap.count[axis] as i64 - 1;
            format!("{} {from}-{to}", shown(&dims[dim].path))
        });
        parts.collect::<Vec<_>>().join(", ")
    };
    let shown: Vec<String> = gaps.iter().take(3).map(one).collect();
    let more = match gaps.len() {
        0..=3 => String::new(),
        all => format!("; and {} more", all - 3),
    };
    format!("in no tile, so filled: {}{more}", shown.join("; "))
}

impl FormatError {
    /// The file that it is about.
    pub fn path(&self) -> &Path {
        match self {
            FormatError::Library { path, .. } | FormatError::Unsupported { path, .. } => path,
        }
    }
}

/// The bytes of an array.
fn bytes(shape: &[u64], size: usize) -> u128 {
    let lens = shape.iter().map(|&len| u128::from(len));
    lens.fold(size as u128, u128::saturating_mul)
}

impl Joined {
    /// Whether its elements are read from the tiles, and not copied with everything else of the first. `H5Ocopy` spoils the
    /// fill values of texts, so elements with pointers are read.
    pub fn is_written(&self, classic: bool) -> bool {
        !self.bare_dim && (self.decomposed || classic || !self.element.flat)
    }
}

impl TileVariable {
    /// The shape of its chunks.
    pub fn chunk(&self) -> Option<&[u64]> {
        match &self.storage {
            Storage::Chunked { shape, .. } => Some(shape),
            _ => None,
        }
    }
}
