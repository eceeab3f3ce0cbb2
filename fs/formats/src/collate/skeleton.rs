//! Creates the joined file with everything but the joined data.
//!
//! Of HDF5 tiles, everything is copied from the first: groups, types, attributes and variables that are not decomposed, by the
//! HDF5 library. Decomposed variables are created with their new shapes. References between variables and dimensions hold in
//! one file only, and are made again. Of NetCDF-3 tiles, the NetCDF library makes a NetCDF-4 file.

use std::collections::HashMap;
use std::path::Path;

use super::codec::is_native;
use super::inspect::{BARE_DIM, refused};
use super::plan::{Joined, Plan};
use super::tile::{DECOMPOSITION, Format};
use crate::h5::{Dialect, Writer};
use crate::hdf5::{
    Attribute, Attributed, Class, Create, Creation, DIMENSION_LIST, Dataset, Datatype, File,
    Filter, Group, REFERENCE_LIST, Space, Target, Time,
};
use crate::netcdf::Reader;
use crate::sink::Sink as _;
use crate::source::Source as _;
use crate::tree;
use crate::{FormatError, Result};

/// Bytes that are allocated at once for descriptions.
const META_BLOCK: u64 = 1 << 20;
/// Attributes that tell of a set of tiles.
const OF_TILES: &str = "NumFilesInSet";
/// The attribute that some models fill with the name of the file.
const FILE_NAME: &str = "filename";

/// Creates the file at `place`; it gets the name `named`, which errors name too.
///
/// # Errors
/// The first tile is damaged, or has what cannot be copied; the file cannot be written.
pub(super) fn create(plan: &Plan, place: &Path, named: &Path) -> Result<File> {
    if plan.tiles[0].format == Format::Classic {
        return of_classic(plan, place, named);
    }
    let create = Create {
        meta_block: META_BLOCK,
        ..Create::default()
    };
    let out = File::create(place, named, create)?;
    let from = File::open(&plan.tiles[0].path)?;
    let mut copy = Copy {
        plan,
        named,
        variables: plan
            .variables
            .iter()
            .map(|one| (one.path.as_str(), one))
            .collect(),
        root: out.root()?,
        types: HashMap::new(),
        addresses: HashMap::new(),
        listed: Vec::new(),
    };
    let (from, to) = (from.root()?, out.root()?);
    copy.types(&from, &to, "")?;
    copy.group(&from, &to, "")?;
    copy.dimensions()?;
    Ok(out)
}

struct Copy<'a> {
    plan: &'a Plan,
    named: &'a Path,
    variables: HashMap<&'a str, &'a Joined>,
    root: Group,
    /// The paths of named types by their addresses in the first tile.
    types: HashMap<u64, String>,
    /// The addresses of datasets in the output by their paths.
    addresses: HashMap<String, u64>,
    /// The paths of datasets that have a list of dimensions.
    listed: Vec<String>,
}

impl Copy<'_> {
    /// Creates groups, and copies the types that have names: everything else can use them.
    fn types(&mut self, from: &Group, to: &Group, path: &str) -> Result<()> {
        for link in from.links()? {
            let below = format!("{path}/{}", link.name);
            match link.target {
                Target::Group(_) => {
                    let made = to.create_group(&link.name)?;
                    self.types(&from.group(&link.name)?, &made, &below)?;
                }
                Target::Datatype(address) => {
                    to.copy_from(from, &link.name)?;
                    self.types.insert(address, below);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn group(&mut self, from: &Group, to: &Group, path: &str) -> Result<()> {
        self.attributes(from, to, path)?;
        for link in from.links()? {
            let below = format!("{path}/{}", link.name);
            match link.target {
                Target::Group(_) => {
                    self.group(&from.group(&link.name)?, &to.group(&link.name)?, &below)?
                }
                Target::Dataset(_) => self.dataset(from, to, &link.name, below)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn dataset(&mut self, from: &Group, to: &Group, name: &str, path: String) -> Result<()> {
        let Some(variable) = self.variables.get(path.as_str()).copied() else {
            return Err(refused(
                &self.plan.tiles[0].path,
                &path,
                "is not in the plan",
            ));
        };
        let source = from.dataset(name)?;
        let made = match variable.decomposed || !variable.element.flat {
            true => {
                let datatype = self.datatype(source.datatype()?)?;
                if datatype.has_references()? {
                    return Err(self.references(&path));
                }
                let max_dims = variable.shape.iter().zip(&variable.growing);
                let space = match variable.shape.is_empty() {
                    true => source.space()?,
                    false => Space::Simple {
                        dims: variable.shape.clone(),
                        max_dims: max_dims
                            .map(|(&len, &grows)| (!grows).then_some(len))
                            .collect(),
                    },
                };
                let creation = self.creation(variable, &source, &datatype)?;
                to.create_dataset(name, &datatype, &space, &creation)?
            }
            false => {
                to.copy_from(from, name)?;
                to.dataset(name)?
            }
        };
        self.attributes(&source, &made, &path)?;
        if variable.bare_dim && variable.decomposed {
            let prefix = String::from_utf8_lossy(BARE_DIM);
            let text = format!(
                "{prefix}{:10}\0",
                variable.shape.first().copied().unwrap_or(0)
            );
            let datatype = Datatype::text(self.named, Some(text.len()), false)?;
            made.put_attribute("NAME", &datatype, &Space::Scalar, text.as_bytes())?;
        }
        if source.scales()?.is_some() {
            self.listed.push(path.clone());
        }
        self.addresses.insert(path, made.address()?);
        Ok(())
    }

    fn references(&self, path: &str) -> FormatError {
        let why = "has references to objects, which do not hold in another file";
        refused(&self.plan.tiles[0].path, path, why)
    }

    /// How a decomposed variable is stored: as in the first tile, but for what the plan says.
    fn creation(
        &self,
        variable: &Joined,
        source: &Dataset,
        datatype: &Datatype,
    ) -> Result<Creation> {
        let creation = source.creation()?;
        for filter in variable
            .filters
            .iter()
            .filter(|filter| !filter.is_available())
        {
            filter.stand_in(self.named)?;
        }
        if creation.filters()? != variable.filters {
            creation.set_filters(&variable.filters)?;
        }
        match &variable.chunk {
            Some(chunk) => {
                creation.set_chunk(chunk)?;
                // Chunks at the edge of a tile are not at that of the file.
                creation.filter_partial_chunks()?;
                creation.set_alloc_time(Time::Incremental)?;
            }
            None if variable.bare_dim => {}
            None => {
                creation.set_contiguous()?;
                creation.set_alloc_time(Time::Late)?;
            }
        }
        if variable.holes && variable.element.flat && !variable.bare_dim {
            if creation.fill(datatype)?.as_ref() != Some(&variable.fill) {
                creation.set_fill(datatype, &variable.fill)?;
            }
            creation.set_fill_time(Time::Default)?;
        }
        Ok(creation)
    }

    /// The same type in the output.
    fn datatype(&self, datatype: Datatype) -> Result<Datatype> {
        if !datatype.is_named()? {
            return datatype.copy();
        }
        match self.types.get(&datatype.address()?) {
            Some(path) => self.root.datatype(path),
            None => datatype.copy(),
        }
    }

    /// Copies attributes, but for those that hold for a tile only.
    fn attributes(&self, from: &impl Attributed, to: &impl Attributed, path: &str) -> Result<()> {
        let joined = self
            .variables
            .get(path)
            .is_some_and(|one| one.bare_dim && one.decomposed);
        for name in from.attribute_names()? {
            let of_tile = match name.as_str() {
                DIMENSION_LIST | REFERENCE_LIST => true,
                DECOMPOSITION => !path.is_empty(),
                OF_TILES => path.is_empty(),
                "NAME" => joined,
                _ => false,
            };
            let attribute = match of_tile {
                true => None,
                false => from.attribute(&name)?,
            };
            let Some(attribute) = attribute else { continue };
            if path.is_empty() && name == FILE_NAME && self.file_name(&attribute, to)? {
                continue;
            }
            attribute.copy_to(to, &self.datatype(attribute.datatype()?)?)?;
        }
        Ok(())
    }

    /// Writes the name of the output in the place of the tile's. False if it is no text.
    fn file_name(&self, attribute: &Attribute, to: &impl Attributed) -> Result<bool> {
        let name = self
            .named
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if attribute.space()?.elements() != Some(1) {
            return Ok(false);
        }
        match attribute.datatype()?.class()? {
            Class::FixedString => {
                let datatype = Datatype::text(self.named, Some(name.len().max(1)), true)?;
                to.put_attribute(FILE_NAME, &datatype, &Space::Scalar, name.as_bytes())?;
            }
            Class::VariableString => {
                to.put_texts(FILE_NAME, &attribute.space()?, &[name.into_bytes()])?
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Makes the references between variables and their dimensions.
    fn dimensions(&self) -> Result<()> {
        let mut users: HashMap<&str, Vec<(u64, u32)>> = HashMap::new();
        for path in &self.listed {
            let (Some(variable), Some(&address)) =
                (self.variables.get(path.as_str()), self.addresses.get(path))
            else {
                continue;
            };
            let scales: Vec<Vec<u64>> = variable
                .dims
                .iter()
                .map(|dim| self.addresses.get(dim).copied().into_iter().collect())
                .collect();
            self.root.dataset(path)?.set_scales(&scales)?;
            for (axis, dim) in variable
                .dims
                .iter()
                .enumerate()
                .filter(|(_, dim)| self.addresses.contains_key(*dim))
            {
                users.entry(dim).or_default().push((address, axis as u32));
            }
        }
        for (path, users) in users {
            self.root.dataset(path)?.set_users(&users)?;
        }
        Ok(())
    }
}

/// Makes a NetCDF-4 file from the header of a NetCDF-3 file.
fn of_classic(plan: &Plan, place: &Path, named: &Path) -> Result<File> {
    let mut tree = Reader::open(&plan.tiles[0].path)?.tree().clone();
    let len = |name: &str, len: u64| {
        let joined = plan
            .dims
            .iter()
            .find(|dim| dim.path.strip_prefix('/') == Some(name));
        joined.map_or(len, |joined| joined.len)
    };
    for dim in &mut tree.dims {
        dim.len = len(&dim.name, dim.len);
    }
    tree.attributes.retain(|one| one.name != OF_TILES);
    for attribute in tree
        .attributes
        .iter_mut()
        .filter(|one| one.name == FILE_NAME)
    {
        if let tree::Value::Chars(text) = &mut attribute.value {
            *text = named
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
                .into_bytes();
        }
    }
    for variable in &mut tree.variables {
        for dim in &mut variable.dims {
            dim.dim.len = len(&dim.dim.name, dim.dim.len);
        }
        variable.attributes.retain(|one| one.name != DECOMPOSITION);
        let path = format!("/{}", variable.name);
        if let Some(joined) = plan.variables.iter().find(|one| one.path == path) {
            variable.chunk.clone_from(&joined.chunk);
            variable.deflate = deflate(&joined.filters);
        }
    }
    Box::new(Writer::create(place, Dialect::NetCdf, &tree)?).finish()?;
    let out = File::open_writable(place)?;
    let root = out.root()?;
    // Along unlimited dimensions there is nothing yet.
    for (path, dim) in &plan.tiles[0].dims {
        if dim.unlimited && !plan.variables.iter().any(|one| one.path == *path) {
            root.dataset(path)?
                .set_dims(&[len(path.trim_start_matches('/'), dim.len)])?;
        }
    }
    for variable in plan
        .variables
        .iter()
        .filter(|one| one.growing.contains(&true))
    {
        root.dataset(&variable.path)?.set_dims(&variable.shape)?;
    }
    Ok(out)
}

fn deflate(filters: &[Filter]) -> Option<tree::Deflate> {
    let found = filters
        .iter()
        .find(|filter| filter.id == Filter::DEFLATE)
        .filter(|_| is_native(filters));
    found.map(|filter| tree::Deflate {
        level: filter.values.first().copied().unwrap_or(6),
        shuffle: filters.iter().any(|filter| filter.id == Filter::SHUFFLE),
    })
}
