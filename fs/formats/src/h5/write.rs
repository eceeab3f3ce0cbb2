//! Writes the model and the data of its variables as an HDF5 or NetCDF-4 file.

use std::collections::HashMap;
use std::path::Path;

use slabfs_model::{ByteOrder, DTypeKind};

use super::put::Putter;
use super::scales::{Role, Scales, role, stored_name};
use super::{Dialect, FILL, NAME, PROPERTIES, bad, joined};
use crate::boxes::{Block, Boxes, chunk_shape};
use crate::hdf5::{Create, Creation, Dataset, Datatype, File, Filter, Group, Space, Time};
use crate::output::Output;
use crate::sink::Sink;
use crate::tree::{self, Attribute, Exact, Value, Variable};
use crate::types::{Hdf5Type, Pad};
use crate::{FormatError, Result};

/// Bytes of a chunk, where the variable has no chunk shape of its own.
const CHUNK: u64 = 1 << 20;

/// A file that is being written.
#[derive(Debug)]
pub struct Writer {
    /// Before `file`: the library closes a file with everything in it.
    sets: HashMap<String, Stored>,
    root: Option<Group>,
    file: Option<File>,
    output: Output,
    dialect: Dialect,
    /// The elements are elsewhere.
    view: bool,
    scales: Scales,
}

/// A dataset that is being written.
#[derive(Debug)]
struct Stored {
    dataset: Dataset,
    datatype: Datatype,
    chunk: Option<Vec<u64>>,
}

impl Writer {
    /// Creates a file with everything but the data.
    ///
    /// # Errors
    /// The directory cannot be written; the dialect cannot have what the tree has.
    pub fn create(path: &Path, dialect: Dialect, tree: &tree::Group) -> Result<Writer> {
        Writer::with(Output::at(path)?, dialect, false, tree)
    }

    /// Creates a file; that of a view has its elements elsewhere, and what it cannot have is left out.
    pub(super) fn with(
        output: Output,
        dialect: Dialect,
        view: bool,
        tree: &tree::Group,
    ) -> Result<Writer> {
        let create = Create {
            replace: view,
            ..Create::default()
        };
        let file = File::create(output.unfinished(), output.path(), create)?;
        let root = file.root()?;
        let mut writer = Writer {
            sets: HashMap::new(),
            root: None,
            file: Some(file),
            output,
            dialect,
            view,
            scales: Scales::of(tree),
        };
        if dialect == Dialect::NetCdf {
            let text = format!("version=2,slabfs={}", env!("CARGO_PKG_VERSION"));
            let value = Value::Chars(text.into_bytes());
            let name = PROPERTIES.to_owned();
            writer
                .putter(&[])
                .one(&root, "", &Attribute { name, value })?;
        }
        let mut named = Vec::new();
        writer.group(&root, tree, &mut Vec::new(), "", &mut named)?;
        drop(named);
        writer.scales.finish()?;
        writer.root = Some(root);
        Ok(writer)
    }

    /// Where the elements of datasets begin, by their paths.
    pub(super) fn places(&self) -> Vec<(String, u64)> {
        let places = self.sets.iter();
        let places = places.filter_map(|(path, stored)| {
            let offset = stored.dataset.offset()?;
            Some((path.clone(), offset))
        });
        places.collect()
    }

    /// Writes what the library still has.
    pub(super) fn close(mut self: Box<Self>) -> Result<()> {
        self.sets.clear();
        self.root = None;
        match self.file.take() {
            Some(file) => file.close(),
            None => Err(FormatError::unsupported(
                self.path(),
                "it",
                "is closed already",
            )),
        }
    }

    fn path(&self) -> &Path {
        self.output.path()
    }

    fn putter<'a>(&'a self, named: &'a [(Hdf5Type, Datatype)]) -> Putter<'a> {
        Putter {
            file: self.output.path(),
            dialect: self.dialect,
            lenient: self.view,
            named,
        }
    }

    /// Creates what a group has; `groups` are the paths of the groups above, `named` the types that they define.
    fn group(
        &mut self,
        to: &Group,
        group: &tree::Group,
        groups: &mut Vec<String>,
        path: &str,
        named: &mut Vec<(Hdf5Type, Datatype)>,
    ) -> Result<()> {
        groups.push(path.to_owned());
        let known = named.len();
        for typ in &group.types {
            let datatype = Datatype::build(self.path(), &typ.typ)?;
            to.commit(&typ.name, &datatype)?;
            named.push((typ.typ.clone(), to.datatype(&typ.name)?));
        }
        self.putter(named).all(to, path, &group.attributes)?;
        // In their order: the NetCDF library numbers variables so.
        let mut others = Vec::new();
        for variable in &group.variables {
            let role = role(group, variable);
            let name = stored_name(group, variable);
            let dataset = self.define(to, &name, path, variable, named)?;
            match role {
                Role::Coordinate => self.coordinate(dataset, path, variable, groups)?,
                Role::Other | Role::None => others.push((dataset, variable)),
            }
        }
        let coordinates = group
            .variables
            .iter()
            .filter(|one| role(group, one) == Role::Coordinate);
        let coordinates: Vec<&str> = coordinates.map(|one| one.name.as_str()).collect();
        for dim in &group.dims {
            if !coordinates.contains(&dim.name.as_str()) {
                self.scales.create(self.output.path(), to, path, dim)?;
            }
        }
        // All scales are there now, also those of the groups above.
        for (dataset, variable) in others {
            self.scales
                .connect(self.output.path(), &dataset, variable, groups)?;
        }
        for link in &group.links {
            match self.dialect {
                Dialect::Plain => to.link_soft(&link.name, &link.target)?,
                Dialect::NetCdf => {
                    let why = "is a symbolic link, which NetCDF has not";
                    return Err(bad(self.path(), &joined(path, &link.name), why));
                }
            }
        }
        for below in &group.groups {
            let made = to.create_group(&below.name)?;
            self.group(&made, below, groups, &joined(path, &below.name), named)?;
        }
        named.truncate(known);
        groups.pop();
        Ok(())
    }

    /// Makes the dataset of a coordinate variable the scale of its dimension.
    fn coordinate(
        &mut self,
        dataset: Dataset,
        path: &str,
        variable: &Variable,
        groups: &[String],
    ) -> Result<()> {
        let file = self.output.path();
        if variable.dims.len() > 1 {
            self.scales.coordinates(file, &dataset, variable, groups)?;
        }
        let own = variable.attributes.iter().any(|one| one.name == NAME);
        let name = (!own).then_some(variable.name.as_str());
        self.scales.made(file, path, &variable.name, dataset, name)
    }

    /// Creates the dataset of a variable, with its attributes.
    fn define(
        &mut self,
        to: &Group,
        name: &str,
        path: &str,
        variable: &Variable,
        named: &[(Hdf5Type, Datatype)],
    ) -> Result<Dataset> {
        let what = joined(path, &variable.name);
        let typ = self
            .typ(variable, named)
            .map_err(|why| bad(self.path(), &what, why))?;
        let putter = self.putter(named);
        let datatype = putter.datatype(&typ)?;
        let creation = Creation::new(self.path())?;
        let given = variable.attributes.iter().find(|one| one.name == FILL);
        let given = given.and_then(|one| bytes_of(&one.value));
        let elem = variable.dtype.size();
        let own = variable
            .fill
            .as_ref()
            .filter(|fill| fill.len() as u64 == elem);
        let fill = match self.dialect {
            Dialect::NetCdf => given.filter(|fill| fill.len() as u64 == elem).or(own),
            Dialect::Plain => own,
        };
        if typ.size().is_some() {
            let unsaid = match (self.dialect, &variable.fill) {
                (Dialect::NetCdf, None) => default_fill(variable),
                _ => vec![0; elem as usize],
            };
            creation.set_fill(&datatype, fill.unwrap_or(&unsaid))?;
        }
        let chunk = chunk_of(variable);
        if self.view {
            creation.set_alloc_time(Time::Early)?;
            creation.set_fill_time(Time::Never)?;
        }
        if let Some(chunk) = &chunk {
            creation.set_chunk(chunk)?;
            creation.set_filters(&filters(variable))?;
        }
        let dataset = to.create_dataset(name, &datatype, &space(variable), &creation)?;
        let putter = self.putter(named);
        putter.all(&dataset, &what, &variable.attributes)?;
        if self.dialect == Dialect::NetCdf
            && given.is_none()
            && let Some(fill) = own.filter(|fill| !is_usual_fill(variable, fill))
        {
            let value = Value::Hdf5(Box::new(tree::Hdf5Value {
                typ,
                space: tree::Space::Simple(vec![1]),
                elements: Value::Chars(fill.clone()),
            }));
            let name = FILL.to_owned();
            putter.all(&dataset, &what, &[Attribute { name, value }])?;
        }
        let stored = Stored {
            dataset: to.dataset(name)?,
            datatype,
            chunk,
        };
        self.sets.insert(what, stored);
        Ok(dataset)
    }

    /// The type of a variable; an error says why it has none. NetCDF has types other than its own only by names.
    fn typ(
        &self,
        variable: &Variable,
        named: &[(Hdf5Type, Datatype)],
    ) -> std::result::Result<Hdf5Type, String> {
        let dtype = &variable.dtype;
        let typ = match &variable.exact {
            Some(Exact::Hdf5(typ) | Exact::Null(Some(typ))) => typ.clone(),
            Some(Exact::Strings { utf8 }) => Hdf5Type::String {
                len: None,
                pad: Pad::NullTerm,
                utf8: *utf8,
            },
            Some(Exact::Numpy(descr)) => {
                return Err(format!(
                    "has the type {descr} of NumPy; export it to .npy or .npz"
                ));
            }
            // Unicode of a fixed length is no type of HDF5; strings are.
            None if dtype.kind() == DTypeKind::Unicode => Hdf5Type::String {
                len: None,
                pad: Pad::NullTerm,
                utf8: true,
            },
            Some(Exact::Null(None)) | None => Hdf5Type::of(dtype)
                .ok_or_else(|| format!("has the type {dtype}, which HDF5 has not"))?,
        };
        if self.dialect == Dialect::Plain || (self.view && variable.exact.is_some()) {
            return Ok(typ);
        }
        // It has no truth values.
        if Some(&typ) == Hdf5Type::boolean().as_ref() && variable.exact.is_none() {
            let byte = "u1".parse().map_err(|_| "has no type".to_owned())?;
            return Ok(Hdf5Type::Number(byte));
        }
        match typ {
            Hdf5Type::String {
                len: None | Some(1),
                ..
            } => Ok(typ),
            typ if self.view || is_atomic(&typ) || named.iter().any(|(known, _)| *known == typ) => {
                Ok(typ)
            }
            typ => Err(format!(
                "has the type {typ}, which NetCDF has not; export it to .h5"
            )),
        }
    }
}

/// Whether it is a number that NetCDF has.
pub(super) fn is_atomic(typ: &Hdf5Type) -> bool {
    match typ {
        Hdf5Type::Number(dtype) => dtype.kind() != DTypeKind::Float || dtype.size() > 2,
        _ => false,
    }
}

/// The bytes of a fill value.
fn bytes_of(value: &Value) -> Option<&Vec<u8>> {
    match value {
        Value::Numbers { bytes, .. } | Value::Chars(bytes) => Some(bytes),
        Value::Hdf5(value) => bytes_of(&value.elements),
        _ => None,
    }
}

fn space(variable: &Variable) -> Space {
    if matches!(variable.exact, Some(Exact::Null(_))) {
        return Space::Null;
    }
    let dims: Vec<u64> = variable.shape();
    if dims.is_empty() {
        return Space::Scalar;
    }
    let max_dims = variable.max_shape();
    Space::Simple { dims, max_dims }
}

/// The shape of a variable's chunks; `None` if it is stored in one piece.
fn chunk_of(variable: &Variable) -> Option<Vec<u64>> {
    if matches!(variable.exact, Some(Exact::Null(_))) {
        return None;
    }
    let shape = variable.shape();
    let max = variable.max_shape();
    let grows = shape.iter().zip(&max).any(|(len, max)| Some(*len) != *max);
    let empty = shape.iter().zip(&max).any(|(_, max)| *max == Some(0));
    let asked = variable.deflate.is_some() || variable.chunk.is_some();
    if shape.is_empty() || empty || !(grows || asked) {
        return None;
    }
    let given = variable
        .chunk
        .as_ref()
        .filter(|chunk| chunk.len() == shape.len());
    let mut chunk = match given {
        Some(chunk) => chunk.clone(),
        None => chunk_shape(&shape, variable.dtype.size(), CHUNK),
    };
    for (len, max) in chunk.iter_mut().zip(&max) {
        *len = (*len).clamp(1, max.unwrap_or(u64::MAX));
    }
    Some(chunk)
}

fn filters(variable: &Variable) -> Vec<Filter> {
    let Some(deflate) = variable.deflate.filter(|deflate| deflate.level > 0) else {
        return Vec::new();
    };
    let shuffle = Filter {
        id: Filter::SHUFFLE,
        flags: 1,
        values: Vec::new(),
    };
    let compress = Filter {
        id: Filter::DEFLATE,
        flags: 1,
        values: vec![deflate.level],
    };
    match deflate.shuffle {
        true => vec![shuffle, compress],
        false => vec![compress],
    }
}

/// Whether a fill value is zero, or the default of NetCDF: neither needs an attribute. As `_FillValue`, zero would make
/// programs mask zeros.
fn is_usual_fill(variable: &Variable, fill: &[u8]) -> bool {
    fill.iter().all(|&byte| byte == 0) || fill == default_fill(variable)
}

/// The fill value that NetCDF has for a type, in the byte order of the variable.
fn default_fill(variable: &Variable) -> Vec<u8> {
    let mut fill = match (variable.dtype.kind(), variable.dtype.size()) {
        (DTypeKind::Int, 1) => (-127_i8).to_le_bytes().to_vec(),
        (DTypeKind::UInt, 1) => vec![255],
        (DTypeKind::Int, 2) => (-32767_i16).to_le_bytes().to_vec(),
        (DTypeKind::UInt, 2) => vec![255; 2],
        (DTypeKind::Int, 4) => (-2_147_483_647_i32).to_le_bytes().to_vec(),
        (DTypeKind::UInt, 4) => vec![255; 4],
        (DTypeKind::Int, 8) => (-9_223_372_036_854_775_806_i64).to_le_bytes().to_vec(),
        (DTypeKind::UInt, 8) => (u64::MAX - 1).to_le_bytes().to_vec(),
        // 15 × 2^119.
        (DTypeKind::Float, 4) => 0x7cf0_0000_u32.to_le_bytes().to_vec(),
        (DTypeKind::Float, 8) => 0x479e_0000_0000_0000_u64.to_le_bytes().to_vec(),
        (_, size) => vec![0; size as usize],
    };
    if variable.dtype.order() == ByteOrder::Big {
        fill.reverse();
    }
    fill
}

/// The texts of elements of four bytes a character.
fn texts_of(variable: &Variable, data: &[u8]) -> std::result::Result<Vec<String>, String> {
    let char = |four: &[u8; 4]| {
        let code = match variable.dtype.order() {
            ByteOrder::Little => u32::from_le_bytes(*four),
            ByteOrder::Big => u32::from_be_bytes(*four),
        };
        char::from_u32(code).ok_or_else(|| format!("has the character {code:#x}, which is none"))
    };
    let text = |element: &[u8]| {
        let all: std::result::Result<String, String> =
            element.as_chunks::<4>().0.iter().map(char).collect();
        all.map(|text| text.trim_end_matches('\0').to_owned())
    };
    let elements = data.chunks_exact(variable.dtype.size() as usize);
    elements.map(text).collect()
}

impl Sink for Writer {
    fn boxes(&self, group: &str, variable: &Variable, part: u64) -> Boxes {
        let shape = variable.shape();
        let elem = variable.dtype.size();
        let stored = self.sets.get(&joined(group, &variable.name));
        match stored.and_then(|stored| stored.chunk.as_ref()) {
            Some(chunk) => Boxes::chunks(&shape, chunk, elem, part),
            None => Boxes::rows(&shape, elem, part),
        }
    }

    fn write(
        &mut self,
        group: &str,
        variable: &Variable,
        block: &Block,
        data: &[u8],
    ) -> Result<()> {
        let path = joined(group, &variable.name);
        let Some(stored) = self.sets.get(&path) else {
            return Err(bad(self.path(), &path, "is no variable"));
        };
        if variable.dtype.kind() == DTypeKind::Unicode && variable.exact.is_none() {
            let texts = texts_of(variable, data).map_err(|why| bad(self.path(), &path, why))?;
            let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
            return stored
                .dataset
                .write_texts(&block.start, &block.count, &texts);
        }
        if let Some(Exact::Strings { .. }) = variable.exact {
            let texts: Vec<&[u8]> = data
                .chunks_exact(variable.dtype.size() as usize)
                .map(|text| {
                    let end = text.iter().rposition(|&byte| byte != 0);
                    &text[..end.map_or(0, |end| end + 1)]
                })
                .collect();
            return stored
                .dataset
                .write_texts(&block.start, &block.count, &texts);
        }
        stored
            .dataset
            .write(&stored.datatype, &block.start, &block.count, data)?;
        self.output.wrote(data.len());
        Ok(())
    }

    fn stored(&self, group: &str, variable: &Variable) -> Result<Option<(Vec<u64>, Vec<Filter>)>> {
        let Some(stored) = self.sets.get(&joined(group, &variable.name)) else {
            return Ok(None);
        };
        let texts = matches!(variable.exact, Some(Exact::Strings { .. }))
            || variable.dtype.kind() == DTypeKind::Unicode;
        let Some(chunk) = stored.chunk.clone().filter(|_| !texts) else {
            return Ok(None);
        };
        Ok(Some((chunk, stored.dataset.creation()?.filters()?)))
    }

    fn write_stored(
        &mut self,
        group: &str,
        variable: &Variable,
        offset: &[u64],
        (mask, bytes): (u32, &[u8]),
    ) -> Result<()> {
        let path = joined(group, &variable.name);
        match self.sets.get(&path) {
            Some(stored) => stored.dataset.write_chunk(offset, mask, bytes)?,
            None => return Err(bad(self.path(), &path, "is no variable")),
        }
        self.output.wrote(bytes.len());
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let output = std::mem::replace(&mut self.output, Output::in_place(Path::new("")));
        self.output = Output::in_place(output.path());
        self.close()?;
        output.finish()
    }
}
