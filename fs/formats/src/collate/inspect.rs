//! Reads a tile: everything in the file but the data.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use super::classic;
use super::tile::{
    DECOMPOSITION, Description, Element, Format, Identity, PACKING, Storage, Tile, TileDim,
    TileVariable, shown,
};
use crate::hdf5::{
    self, Attribute, Attributed, Class, Creation, Dataset, Datatype, Group, Layout, Space, Target,
};
use crate::{FormatError, Result};

/// Groups nested deeper than this are refused.
const MAX_DEPTH: usize = 64;
/// The most bytes of an attribute that is looked into.
const LONGEST: u64 = 1 << 16;

/// How the name of a dimension without a variable begins.
pub(super) const BARE_DIM: &[u8] = b"This is a netCDF dimension but not a netCDF variable.";

/// Reads the description of a file.
///
/// # Errors
/// It is neither HDF5 nor NetCDF, is damaged, or has what cannot be joined.
pub fn inspect(path: &Path) -> Result<Tile> {
    let failed = |error: std::io::Error| failed(path, "opening it", &error);
    let file = File::open(path).map_err(failed)?;
    let identity = identity(&file).map_err(failed)?;
    let mut start = [0; 4];
    if file.read_exact_at(&mut start, 0).is_ok() && classic::is_classic(&start) {
        return classic::read(path, &file, identity);
    }
    let file = hdf5::File::open(path)?;
    let base = file.base()?;
    let mut walk = Walk {
        path,
        seen: HashSet::new(),
        found: Vec::new(),
    };
    walk.group(&file.root()?, "", 0)?;
    walk.tile(identity, base)
}

/// An error of a system call on a file.
pub(super) fn failed(path: &Path, what: &str, error: &std::io::Error) -> FormatError {
    FormatError::Library {
        path: path.to_owned(),
        what: what.to_owned(),
        why: match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "the file is cut off".to_owned(),
            _ => error.to_string(),
        },
    }
}

/// An error about something in a file.
pub(super) fn refused(path: &Path, what: &str, why: impl Into<String>) -> FormatError {
    FormatError::Unsupported {
        path: path.to_owned(),
        what: shown(what).to_owned(),
        why: why.into(),
    }
}

/// By what an open file is known.
pub(super) fn identity(file: &File) -> std::io::Result<Identity> {
    let meta = file.metadata()?;
    Ok(Identity {
        inode: (meta.dev(), meta.ino()),
        len: meta.len(),
        changed: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
    })
}

struct Walk<'a> {
    path: &'a Path,
    /// The addresses of all objects, so that one that is reached twice is found.
    seen: HashSet<u64>,
    found: Vec<Found>,
}

/// A dataset, before the names of its dimensions are known.
struct Found {
    address: u64,
    variable: TileVariable,
    /// It is a dimension scale.
    scale: bool,
    /// The addresses of the scales of its axes.
    scales: Option<Vec<Vec<u64>>>,
    /// The numbers of NetCDF-4: its own as a dimension, and those of its axes.
    own_number: Option<i64>,
    numbers: Vec<i64>,
}

impl Walk<'_> {
    fn group(&mut self, group: &Group, path: &str, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(refused(self.path, path, "is nested too deep"));
        }
        let mut groups = Vec::new();
        for link in group.links()? {
            let below = format!("{path}/{}", link.name);
            let address = match link.target {
                Target::Group(address) | Target::Dataset(address) | Target::Datatype(address) => {
                    address
                }
                Target::Soft | Target::External => {
                    return Err(refused(
                        self.path,
                        &below,
                        "is a link to another object, which is not supported",
                    ));
                }
            };
            if !self.seen.insert(address) {
                return Err(refused(
                    self.path,
                    &below,
                    "is another name of an object, which is not supported",
                ));
            }
            match link.target {
                Target::Group(_) => groups.push((link.name, below)),
                Target::Dataset(_) => {
                    let dataset = group.dataset(&link.name)?;
                    let found = self.dataset(&dataset, below, address)?;
                    self.found.push(found);
                }
                _ => {}
            }
        }
        for (name, below) in groups {
            self.group(&group.group(&name)?, &below, depth + 1)?;
        }
        Ok(())
    }

    fn dataset(&self, dataset: &Dataset, path: String, address: u64) -> Result<Found> {
        let datatype = dataset.datatype()?;
        let element = element(&datatype)?;
        let (shape, growing) = match dataset.space()? {
            Space::Simple { dims, max_dims } => {
                (dims, max_dims.iter().map(Option::is_none).collect())
            }
            _ => (Vec::new(), Vec::new()),
        };
        let creation = dataset.creation()?;
        let storage = self.storage(dataset, &creation, &path, address)?;
        let class = text(dataset, "CLASS")?;
        let scale = class.as_deref() == Some(b"DIMENSION_SCALE");
        let bare_dim =
            scale && text(dataset, "NAME")?.is_some_and(|name| name.starts_with(BARE_DIM));
        let (packing, missing) = match bare_dim {
            true => Default::default(),
            false => packing(dataset, &datatype)?,
        };
        let fill = creation.fill(&datatype)?;
        let decomposition = match dataset.attribute(DECOMPOSITION)? {
            Some(attribute) => Some(self.decomposition(&attribute, &path)?),
            None => None,
        };
        let own_number = integers(dataset, "_Netcdf4Dimid")?.first().copied();
        Ok(Found {
            address,
            scale,
            scales: dataset.scales()?,
            own_number,
            numbers: integers(dataset, "_Netcdf4Coordinates")?,
            variable: TileVariable {
                description: Arc::new(Description {
                    path,
                    bare_dim,
                    element,
                    dims: Vec::new(),
                    growing,
                    filters: creation.filters()?,
                    fill,
                    packing,
                    missing,
                }),
                shape,
                storage,
                decomposition,
            },
        })
    }

    /// Where the elements are.
    fn storage(
        &self,
        dataset: &Dataset,
        creation: &Creation,
        path: &str,
        address: u64,
    ) -> Result<Storage> {
        if creation.external_files()? > 0 {
            return Err(refused(
                self.path,
                path,
                "has its data in another file, which is not supported",
            ));
        }
        Ok(match creation.layout()? {
            Layout::Chunked => Storage::Chunked {
                shape: creation.chunk()?,
                header: address,
            },
            Layout::Contiguous => Storage::Plain {
                offset: dataset.offset(),
                stride: None,
            },
            Layout::Compact => Storage::Library,
            Layout::Virtual => {
                return Err(refused(
                    self.path,
                    path,
                    "has its data in other datasets, which is not supported",
                ));
            }
        })
    }

    fn decomposition(&self, attribute: &Attribute, path: &str) -> Result<[i64; 4]> {
        let numbers = integers_of(attribute)?;
        <[i64; 4]>::try_from(numbers).map_err(|_| {
            let what = format!("{path}:{DECOMPOSITION}");
            refused(self.path, &what, "is not four integers")
        })
    }

    /// Finds the names of the dimensions, and makes the tile.
    fn tile(self, identity: Identity, base: Option<u64>) -> Result<Tile> {
        let scales: HashMap<u64, usize> = self
            .found
            .iter()
            .enumerate()
            .filter(|(_, one)| one.scale)
            .map(|(at, one)| (one.address, at))
            .collect();
        let numbers: HashMap<i64, usize> = self
            .found
            .iter()
            .enumerate()
            .filter_map(|(at, one)| Some((one.own_number?, at)))
            .collect();
        let names: Vec<Vec<String>> = self
            .found
            .iter()
            .map(|one| {
                let rank = one.variable.shape.len();
                let named = |at: Option<&usize>| {
                    at.map_or_else(String::new, |&at| self.found[at].variable.path.clone())
                };
                if one.scale && rank == 1 {
                    vec![one.variable.path.clone()]
                } else if let Some(lists) = one.scales.as_ref().filter(|lists| lists.len() == rank)
                {
                    lists
                        .iter()
                        .map(|list| named(list.first().and_then(|address| scales.get(address))))
                        .collect()
                } else if one.scale && one.numbers.len() == rank {
                    one.numbers
                        .iter()
                        .map(|number| named(numbers.get(number)))
                        .collect()
                } else {
                    vec![String::new(); rank]
                }
            })
            .collect();
        let mut variables = Vec::new();
        let mut dims: BTreeMap<String, TileDim> = BTreeMap::new();
        for (found, names) in self.found.into_iter().zip(names) {
            let mut variable = found.variable;
            Arc::make_mut(&mut variable.description).dims = names;
            for (axis, dim) in variable
                .dims
                .iter()
                .enumerate()
                .filter(|(_, dim)| !dim.is_empty())
            {
                let (len, grows) = (variable.shape[axis], variable.growing[axis]);
                let known = dims.entry(dim.clone()).or_insert(TileDim {
                    len,
                    unlimited: grows,
                    decomposition: None,
                });
                known.len = known.len.max(len);
                known.unlimited |= grows;
            }
            variables.push(variable);
        }
        place(&mut dims, &variables);
        Ok(Tile {
            path: self.path.to_owned(),
            identity,
            format: Format::Hdf5(base),
            dims,
            variables,
        })
    }
}

/// Gives dimensions their decomposition: that of the variable with their name, or, if there is none, of one with one axis.
fn place(dims: &mut BTreeMap<String, TileDim>, variables: &[TileVariable]) {
    let decomposed = || {
        variables
            .iter()
            .filter(|one| one.decomposition.is_some() && one.dims.len() == 1)
    };
    for own in [true, false] {
        for variable in decomposed().filter(|one| (one.path == one.dims[0]) == own) {
            let has_own = variables
                .iter()
                .any(|one| one.path == variable.dims[0] && !one.bare_dim);
            let dim = dims.get_mut(&variable.dims[0]);
            if let Some(dim) = dim.filter(|dim| dim.decomposition.is_none() && (own || !has_own)) {
                dim.decomposition = variable.decomposition;
            }
        }
    }
}

/// The attributes of [`PACKING`], and the element that stands for a missing value.
#[expect(clippy::type_complexity)]
fn packing(
    dataset: &Dataset,
    datatype: &Datatype,
) -> Result<(BTreeMap<String, Vec<u8>>, Option<Vec<u8>>)> {
    let mut all = BTreeMap::new();
    let mut missing = None;
    for name in PACKING {
        let Some(attribute) = dataset.attribute(name)? else {
            continue;
        };
        let (own, value) = (attribute.datatype()?, value(&attribute)?);
        let stands = ["_FillValue", "missing_value"].contains(&name) && missing.is_none();
        if stands && own.equals(datatype)? && attribute.space()?.elements() == Some(1) {
            missing = value.clone();
        }
        let mut key = element(&own)?.key;
        key.extend(value.unwrap_or_default());
        all.insert(name.to_owned(), key);
    }
    Ok((all, missing))
}

fn element(datatype: &Datatype) -> Result<Element> {
    let number = matches!(datatype.class()?, Class::Integer { .. } | Class::Float);
    let plain = match number {
        true => datatype.with_order(false)?,
        false => datatype.copy()?,
    };
    Ok(Element {
        key: plain.encode()?,
        size: datatype.size()?,
        number,
        big_endian: number && datatype.is_big_endian(),
        flat: datatype.is_flat()?,
    })
}

/// The value of a short attribute; `None` if it is long, or not a number or a text.
fn value(attribute: &Attribute) -> Result<Option<Vec<u8>>> {
    let datatype = attribute.datatype()?;
    let elements = attribute.space()?.elements();
    if elements.is_none_or(|all| all > LONGEST) {
        return Ok(None);
    }
    match datatype.class()? {
        Class::VariableString => {
            let texts = attribute.read_texts()?.into_iter();
            Ok(Some(
                texts
                    .flat_map(|text| {
                        text.map_or(vec![0, 1], |mut text| {
                            text.push(0);
                            text
                        })
                    })
                    .collect(),
            ))
        }
        _ if datatype.is_flat()? => attribute.read().map(Some),
        _ => Ok(None),
    }
}

/// The first text of an attribute.
fn text(dataset: &Dataset, name: &str) -> Result<Option<Vec<u8>>> {
    let Some(attribute) = dataset.attribute(name)? else {
        return Ok(None);
    };
    match attribute.datatype()?.class()? {
        Class::FixedString | Class::VariableString if attribute.space()?.elements() == Some(1) => {
            Ok(attribute.read_texts()?.into_iter().next().flatten())
        }
        _ => Ok(None),
    }
}

fn integers(dataset: &Dataset, name: &str) -> Result<Vec<i64>> {
    match dataset.attribute(name)? {
        Some(attribute) => integers_of(&attribute),
        None => Ok(Vec::new()),
    }
}

/// The integers of an attribute; none if it has other things.
fn integers_of(attribute: &Attribute) -> Result<Vec<i64>> {
    let datatype = attribute.datatype()?;
    let Class::Integer { signed } = datatype.class()? else {
        return Ok(Vec::new());
    };
    if attribute.space()?.elements().is_none_or(|all| all > 64) {
        return Ok(Vec::new());
    }
    let (size, mut bytes) = (datatype.size()?, attribute.read()?);
    if size > 8 {
        return Ok(Vec::new());
    }
    if datatype.is_big_endian() {
        super::codec::swap(&mut bytes, size);
    }
    let numbers = bytes.chunks_exact(size).map(|bytes| {
        let negative = signed && bytes[size - 1] & 0x80 != 0;
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        wide[..size].copy_from_slice(bytes);
        i64::from_le_bytes(wide)
    });
    Ok(numbers.collect())
}
