//! Writes the model and the data of its variables as a NetCDF-4 file.
//!
//! The file is written in a hidden directory next to its place, synced, and renamed when it is complete: a failure leaves
//! the old file, or none.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fs::File;
use std::path::{Path, PathBuf};

use netcdf_sys as nc;
use slabfs_model::{DType, DTypeKind};
use tempfile::TempDir;

use super::raw::{GLOBAL, Open, Type};
use crate::boxes::Block;
use crate::sink::Sink;
use crate::tree::{Attribute, Group, Value, Variable};
use crate::{FormatError, Result};

/// The attribute that is a variable's fill value.
const FILL: &str = "_FillValue";

/// A NetCDF-4 file that is being written.
#[derive(Debug)]
pub struct Writer {
    root: Option<Open>,
    /// The name under which it is written, and the one it gets.
    places: (PathBuf, PathBuf),
    /// The group and the number of each variable, by its path.
    variables: HashMap<String, (Open, c_int)>,
    /// Where it is written; removed with everything in it.
    _dir: TempDir,
}

impl Writer {
    /// Creates a file with everything but the data.
    ///
    /// # Errors
    /// The directory cannot be written; NetCDF cannot have what the tree has.
    pub fn create(path: &Path, tree: &Group) -> Result<Writer> {
        // A directory of its own, which only its owner can enter: no other user can put a link where the file is written.
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let failed = |error: std::io::Error| FormatError::Library {
            path: path.to_owned(),
            what: "creating it".to_owned(),
            why: error.to_string(),
        };
        let dir = tempfile::Builder::new()
            .prefix(".slabfs-export-")
            .tempdir_in(parent)
            .map_err(failed)?;
        let unfinished = dir.path().join("unfinished.nc");
        let mut writer = Writer {
            root: Some(Open::create(&unfinished, path)?),
            places: (unfinished, path.to_owned()),
            variables: HashMap::new(),
            _dir: dir,
        };
        let root = writer.root.as_ref().map(Open::same);
        if let Some(root) = root {
            writer.define(&root, tree, String::new(), &mut Vec::new())?;
        }
        Ok(writer)
    }

    /// Defines a group; `scopes` are the dimensions of the groups above, the outermost first.
    fn define(
        &mut self,
        open: &Open,
        group: &Group,
        path: String,
        scopes: &mut Vec<HashMap<String, c_int>>,
    ) -> Result<()> {
        let mut own = HashMap::new();
        for dim in &group.dims {
            let len = (!dim.unlimited).then_some(dim.len);
            own.insert(dim.name.clone(), open.add_dim(&dim.name, len)?);
        }
        scopes.push(own);
        for variable in &group.variables {
            let id = define_variable(open, variable, scopes)?;
            let path = format!("{path}/{}", variable.name);
            self.variables.insert(path, (open.same(), id));
        }
        put_attributes(open, GLOBAL, &group.attributes)?;
        for below in &group.groups {
            let made = open.add_group(&below.name)?;
            self.define(&made, below, format!("{path}/{}", below.name), scopes)?;
        }
        scopes.pop();
        Ok(())
    }
}

impl Sink for Writer {
    fn write(
        &mut self,
        group: &str,
        variable: &Variable,
        block: &Block,
        data: &[u8],
    ) -> Result<()> {
        let path = match group.is_empty() {
            true => format!("/{}", variable.name),
            false => format!("/{group}/{}", variable.name),
        };
        match self.variables.get(&path) {
            Some((open, id)) => {
                open.write_box((*id, &variable.name), &block.start, &block.count, data)
            }
            None => Err(FormatError::unsupported(
                &self.places.1,
                path,
                "is no variable",
            )),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        if let Some(root) = self.root.take() {
            root.close()?;
        }
        let (unfinished, path) = &self.places;
        let failed = |error: std::io::Error| FormatError::Library {
            path: path.clone(),
            what: "storing it".to_owned(),
            why: error.to_string(),
        };
        let file = File::open(unfinished).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        std::fs::rename(unfinished, path).map_err(failed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Before its directory is removed.
        drop(self.root.take());
    }
}

fn define_variable(
    open: &Open,
    variable: &Variable,
    scopes: &[HashMap<String, c_int>],
) -> Result<c_int> {
    let what = format!("variable {}", variable.name);
    let typ = nc_type(open, &variable.dtype, &what)?;
    let dims = variable
        .dims
        .iter()
        .map(|dim| {
            let scope = scopes.len().checked_sub(1 + dim.up).map(|at| &scopes[at]);
            let found = scope.and_then(|scope| scope.get(&dim.dim.name)).copied();
            found.ok_or_else(|| {
                open.unsupported(&what, format!("has no dimension {}", dim.dim.name))
            })
        })
        .collect::<Result<Vec<c_int>>>()?;
    let id = open.add_var(&variable.name, typ, &dims)?;
    if let Some(chunk) = variable
        .chunk
        .as_ref()
        .filter(|chunk| chunk.len() == dims.len())
    {
        open.set_chunks(id, chunk)?;
    }
    if let Some(deflate) = variable.deflate.filter(|_| !dims.is_empty()) {
        open.set_deflate(id, deflate.level, deflate.shuffle)?;
    }
    // The library sets this attribute itself, and has to know it before there is data.
    let given = variable.attributes.iter().find(|one| one.name == FILL);
    match given.map(|one| &one.value) {
        Some(Value::Numbers { bytes, .. } | Value::Chars(bytes))
            if bytes.len() as u64 == variable.dtype.size() =>
        {
            open.set_fill(id, bytes)?;
        }
        Some(_) => {
            return Err(open.unsupported(
                format!("attribute {}:{FILL}", variable.name),
                "is not one element of the variable's type",
            ));
        }
        None => {
            // The default of the type needs no attribute.
            let elem = variable.dtype.size() as usize;
            let given = variable.fill.as_ref().filter(|fill| fill.len() == elem);
            if let Some(fill) = given
                && open.fill(id, elem)?.as_ref() != Some(fill)
            {
                open.set_fill(id, fill)?;
            }
        }
    }
    put_attributes(open, id, &variable.attributes)?;
    Ok(id)
}

fn put_attributes(open: &Open, var: c_int, attributes: &[Attribute]) -> Result<()> {
    for Attribute { name, value } in attributes {
        if var != GLOBAL && name == FILL {
            continue;
        }
        match value {
            Value::Numbers { dtype, bytes } => {
                let typ = nc_type(open, dtype, &format!("attribute {name}"))?;
                open.put_attribute(var, name, (typ, dtype.size() as usize), bytes)?;
            }
            Value::Chars(bytes) => open.put_attribute(var, name, (nc::NC_CHAR, 1), bytes)?,
            Value::Strings(strings) => open.put_strings(var, name, strings)?,
            Value::Text(text) => {
                open.put_attribute(var, name, (nc::NC_CHAR, 1), text.as_bytes())?
            }
            Value::Json(_) | Value::Hdf5(_) => {
                return Err(open.unsupported(
                    format!("attribute {name}"),
                    "has a type that NetCDF has not",
                ));
            }
        }
    }
    Ok(())
}

fn nc_type(open: &Open, dtype: &DType, what: &str) -> Result<Type> {
    Ok(match (dtype.kind(), dtype.size()) {
        (DTypeKind::Int, 1) => nc::NC_BYTE,
        (DTypeKind::Int, 2) => nc::NC_SHORT,
        (DTypeKind::Int, 4) => nc::NC_INT,
        (DTypeKind::Int, 8) => nc::NC_INT64,
        (DTypeKind::UInt | DTypeKind::Bool, 1) => nc::NC_UBYTE,
        (DTypeKind::UInt, 2) => nc::NC_USHORT,
        (DTypeKind::UInt, 4) => nc::NC_UINT,
        (DTypeKind::UInt, 8) => nc::NC_UINT64,
        (DTypeKind::Float, 4) => nc::NC_FLOAT,
        (DTypeKind::Float, 8) => nc::NC_DOUBLE,
        (DTypeKind::Bytes, 1) => nc::NC_CHAR,
        _ => {
            let why = format!("has the type {dtype}, which NetCDF has not");
            return Err(open.unsupported(what, why));
        }
    })
}
