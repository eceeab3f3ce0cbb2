//! Reads a file into the model, and the data of its datasets.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::dims::Dims;
use super::scan::{Found, Scanner, Set, integers};
use super::{COORDINATES, Dialect, PROPERTIES, attributes, bad, joined};
use crate::boxes::{Block, Boxes};
use crate::collate::codec::is_native;
use crate::hdf5::{self, Attributed, Dataset, File, Filter, Layout, Space};
use crate::source::{Source, Stored};
use crate::tree::{Deflate, Exact, Group, Variable};
use crate::types::Hdf5Type;
use crate::{FormatError, Result};

/// Longest text of a dataset of texts of any length.
const LONGEST_TEXT: usize = 1 << 16;
/// How many of these are read at a time.
const TEXTS: u64 = 1 << 16;

/// An open HDF5 or NetCDF-4 file.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    dialect: Dialect,
    tree: Group,
    /// The paths of the datasets in the file, by those of the variables.
    places: HashMap<String, String>,
    root: hdf5::Group,
    file: File,
    /// How many variables have a filter that the model has not.
    others: BTreeMap<u32, usize>,
}

impl Reader {
    /// Opens a file and reads everything but the data.
    ///
    /// # Errors
    /// It is no HDF5 file, is damaged, or has what the model cannot represent.
    pub fn open(path: &Path) -> Result<Reader> {
        let file = File::open(path)?;
        let found = Scanner::new(path).group(file.root()?, "", String::new(), 0)?;
        let netcdf = found.group.attribute(PROPERTIES)?.is_some() || has_scales(&found);
        let dialect = match netcdf {
            true => Dialect::NetCdf,
            false => Dialect::Plain,
        };
        let mut reader = Reader {
            path: path.to_owned(),
            dialect,
            tree: Group::default(),
            places: HashMap::new(),
            root: file.root()?,
            file,
            others: BTreeMap::new(),
        };
        let dims = Dims::of(&found, dialect);
        reader.tree = reader.group(found, &dims)?;
        Ok(reader)
    }

    /// Whether it is read as NetCDF-4.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    fn group(&mut self, found: Found, dims: &Dims) -> Result<Group> {
        let attributes =
            attributes::read(&self.path, &found.group, &found.path, None, self.dialect)?;
        let mut group = Group {
            name: found.name,
            dims: dims.in_group(&found.path),
            attributes,
            links: found.links,
            types: found.types,
            ..Group::default()
        };
        for set in &found.sets {
            if self.dialect == Dialect::NetCdf
                && set.scale.as_ref().is_some_and(|scale| scale.dim_only)
            {
                continue;
            }
            let dataset = self.root.dataset(&set.path)?;
            let variable = self.variable(&found.path, set, &dataset, dims)?;
            if variable.chunk.is_some() {
                for filter in dataset.creation()?.filters()? {
                    if ![Filter::DEFLATE, Filter::SHUFFLE].contains(&filter.id) {
                        *self.others.entry(filter.id).or_default() += 1;
                    }
                }
            }
            group.variables.push(variable);
            let variable = joined(&found.path, &set.name);
            self.places.insert(variable, set.path.clone());
        }
        for below in found.groups {
            group.groups.push(self.group(below, dims)?);
        }
        Ok(group)
    }

    fn variable(&self, group: &str, set: &Set, dataset: &Dataset, dims: &Dims) -> Result<Variable> {
        let creation = dataset.creation()?;
        if creation.layout()? == Layout::Virtual || creation.external_files()? > 0 {
            let why = "has its data in other files or datasets, which is not supported";
            return Err(bad(&self.path, &set.path, why));
        }
        let chunked = creation.layout()? == Layout::Chunked;
        let filters = if chunked {
            creation.filters()?
        } else {
            Vec::new()
        };
        if let Some(filter) = filters.iter().find(|filter| !filter.is_available()) {
            return Err(bad(
                &self.path,
                &set.path,
                format!(
                    "is stored with the filter {}, for which the HDF5 library has no plug-in; set HDF5_PLUGIN_PATH",
                    filter.id
                ),
            ));
        }
        let texts = matches!(set.typ, Hdf5Type::String { len: None, .. });
        let dtype = match texts {
            true => {
                let longest = self.longest(set, dataset, chunked)?;
                format!("S{}", longest.max(1)).parse().ok()
            }
            false => set.typ.dtype(),
        };
        let Some(dtype) = dtype else {
            let why = format!("has elements that are too large: {}", set.typ);
            return Err(bad(&self.path, &set.path, why));
        };
        let coordinates = match &set.scale {
            Some(_) => integers(dataset, COORDINATES)?,
            None => None,
        };
        let mut variable = Variable::new(&set.name, dtype);
        match set.space {
            Space::Null => variable = variable.with_axes(&[0]),
            _ => variable.dims = dims.of_set(&self.path, group, set, coordinates.as_deref())?,
        }
        variable.exact = exact(&set.typ, &set.space);
        if let Space::Simple { dims, max_dims } = &set.space
            && dims
                .iter()
                .zip(max_dims)
                .any(|(len, max)| Some(*len) != *max)
        {
            variable.max.clone_from(max_dims);
        }
        variable.fill = match texts {
            true => None,
            false => creation.fill(&dataset.datatype()?)?,
        };
        variable.chunk = chunked.then(|| creation.chunk()).transpose()?;
        variable.deflate = deflate(&filters);
        let scale = set.scale.as_ref().map(|_| set.name.as_str());
        let scale = scale.filter(|_| self.dialect == Dialect::NetCdf);
        variable.attributes =
            attributes::read(&self.path, dataset, &set.path, scale, self.dialect)?;
        Ok(variable)
    }

    /// The bytes of the longest text.
    fn longest(&self, set: &Set, dataset: &Dataset, chunked: bool) -> Result<usize> {
        if set.space == Space::Null || dataset.stored() == 0 {
            return Ok(0);
        }
        let shape = set.space.dims();
        let blocks = match chunked {
            true => Boxes::chunks(shape, &dataset.creation()?.chunk()?, 1, TEXTS),
            false => Boxes::rows(shape, 1, TEXTS),
        };
        let mut longest = 0;
        for block in blocks {
            let texts = dataset.read_texts(&block.start, &block.count)?;
            longest = texts.iter().map(Vec::len).fold(longest, usize::max);
        }
        match longest <= LONGEST_TEXT {
            true => Ok(longest),
            false => Err(bad(
                &self.path,
                &set.path,
                format!("has a text of {longest} bytes; at most {LONGEST_TEXT} are supported"),
            )),
        }
    }

    fn dataset(&self, group: &str, variable: &Variable) -> Result<Dataset> {
        let path = joined(group, &variable.name);
        match self.places.get(&path) {
            Some(place) => self.root.dataset(place),
            None => Err(bad(&self.path, &path, "is no dataset")),
        }
    }
}

fn has_scales(found: &Found) -> bool {
    found.sets.iter().any(|set| set.scale.is_some()) || found.groups.iter().any(has_scales)
}

/// What the dtype does not say.
fn exact(typ: &Hdf5Type, space: &Space) -> Option<Exact> {
    let own = typ.dtype().and_then(|dtype| Hdf5Type::of(&dtype));
    let typ = (own.as_ref() != Some(typ)).then(|| typ.clone());
    match (space, &typ) {
        (Space::Null, _) => Some(Exact::Null(typ)),
        (
            _,
            Some(Hdf5Type::String {
                len: None, utf8, ..
            }),
        ) => Some(Exact::Strings { utf8: *utf8 }),
        _ => typ.map(Exact::Hdf5),
    }
}

fn deflate(filters: &[Filter]) -> Option<Deflate> {
    let with = |id: u32| filters.iter().find(|filter| filter.id == id);
    let deflate = with(Filter::DEFLATE)?;
    Some(Deflate {
        level: deflate.values.first().copied().unwrap_or(6).min(9),
        shuffle: with(Filter::SHUFFLE).is_some(),
    })
}

impl Source for Reader {
    fn tree(&self) -> &Group {
        &self.tree
    }

    fn notes(&self) -> Vec<String> {
        let notes = self.others.iter().map(|(&id, count)| {
            let name = match id {
                Filter::FLETCHER32 => "fletcher32".to_owned(),
                4 => "szip".to_owned(),
                5 => "nbit".to_owned(),
                6 => "scaleoffset".to_owned(),
                id => format!("number {id}"),
            };
            format!("the filter {name} of {count} variables is dropped: their elements are stored without it")
        });
        notes.collect()
    }

    fn boxes(&self, group: &str, variable: &Variable, part: u64) -> Result<Boxes> {
        let dataset = self.dataset(group, variable)?;
        let space = dataset.space()?;
        if space == Space::Null || dataset.stored() == 0 {
            return Ok(Boxes::none());
        }
        let elem = variable.dtype.size();
        // Its own shape: along an unlimited dimension it may be shorter than that.
        Ok(match &variable.chunk {
            Some(chunk) => Boxes::chunks(space.dims(), chunk, elem, part),
            None => Boxes::rows(space.dims(), elem, part),
        })
    }

    fn stored(&self, group: &str, variable: &Variable) -> Result<Option<Stored>> {
        let texts = matches!(variable.exact, Some(Exact::Strings { .. }));
        let Some(shape) = variable.chunk.clone().filter(|_| !texts) else {
            return Ok(None);
        };
        let dataset = self.dataset(group, variable)?;
        let filters = dataset.creation()?.filters()?;
        if !is_native(&filters) {
            return Ok(None);
        }
        let failed = |error: std::io::Error| FormatError::file(&self.path, "opening it", &error);
        let chunks = dataset.chunks(self.file.base()?)?;
        let dims = dataset.space()?.dims().to_vec();
        // Those that were cut off by a smaller length may still be there.
        let inside = |chunk: &hdf5::Chunk| chunk.offset.iter().zip(&dims).all(|(at, len)| at < len);
        Ok(Some(Stored {
            file: std::fs::File::open(&self.path).map_err(failed)?,
            chunks: chunks.into_iter().filter(inside).collect(),
            dims,
            shape,
            filters,
        }))
    }

    fn read(
        &self,
        group: &str,
        variable: &Variable,
        block: &Block,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let dataset = self.dataset(group, variable)?;
        let elem = variable.dtype.size() as usize;
        if let Some(Exact::Strings { .. }) = variable.exact {
            out.clear();
            for text in dataset.read_texts(&block.start, &block.count)? {
                if text.len() > elem {
                    let path = joined(group, &variable.name);
                    return Err(bad(&self.path, &path, "was changed while it was read"));
                }
                out.extend(&text);
                out.resize(out.len() + elem - text.len(), 0);
            }
            return Ok(());
        }
        out.resize(block.elements() as usize * elem, 0);
        dataset.read(&dataset.datatype()?, &block.start, &block.count, out)
    }
}
