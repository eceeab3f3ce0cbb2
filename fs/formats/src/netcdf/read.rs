//! Reads a NetCDF file into the model, and the data of its variables.

use std::ffi::c_int;
use std::fs::File;
use std::path::{Path, PathBuf};

use netcdf_sys as nc;
use slabfs_model::DType;

use super::classic;
use super::raw::{GLOBAL, Open, Type, Var};
use crate::boxes::{Block, Boxes};
use crate::source::Source;
use crate::tree::{Attribute, Deflate, Dim, DimRef, Group, Value, Variable};
use crate::{FormatError, Result};

/// Groups nested deeper than this are refused: a file cannot have them by accident.
const MAX_DEPTH: usize = 64;

/// An open NetCDF file.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    root: Open,
    tree: Group,
}

/// The dimensions that a group sees: its own, and those of the groups above.
struct Scope<'a> {
    dims: Vec<(c_int, Dim)>,
    above: Option<&'a Scope<'a>>,
}

impl Scope<'_> {
    /// A dimension by its number, and how many levels above the group it is defined.
    fn find(&self, id: c_int) -> Option<DimRef> {
        let mut scope = Some(self);
        let mut up = 0;
        while let Some(here) = scope {
            if let Some((_, dim)) = here.dims.iter().find(|(number, _)| *number == id) {
                return Some(DimRef {
                    dim: dim.clone(),
                    up,
                });
            }
            scope = here.above;
            up += 1;
        }
        None
    }
}

impl Reader {
    /// Opens a file and reads everything but the data.
    ///
    /// # Errors
    /// It is no NetCDF file, is damaged, or has what the model cannot keep: types that the file defines, variables of
    /// strings.
    pub fn open(path: &Path) -> Result<Reader> {
        // Before the library takes memory for what a damaged header says.
        complete(path)?;
        let root = Open::read(path)?;
        let tree = group(&root, "", None, 0)?;
        Ok(Reader {
            path: path.to_owned(),
            root,
            tree,
        })
    }

    fn find(&self, path: &str) -> Result<Open> {
        let mut at = self.root.same();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let groups = at.groups()?.into_iter();
            let found = groups.into_iter().find(|(known, _)| known == name);
            let Some((_, group)) = found else {
                return Err(at.unsupported(path, "is gone"));
            };
            at = group;
        }
        Ok(at)
    }
}

/// Fails if a classic file is shorter than its header says.
fn complete(path: &Path) -> Result<()> {
    let failed = |error: std::io::Error| FormatError::file(path, "opening it", &error);
    let file = File::open(path).map_err(failed)?;
    let has = file.metadata().map_err(failed)?.len();
    let needed = classic::needed(&file).map_err(|error| {
        let why = format!("is damaged: it has {error}");
        FormatError::unsupported(path, "its header", why)
    })?;
    match needed.filter(|needed| has < *needed) {
        Some(needed) => Err(FormatError::unsupported(
            path,
            "its data",
            match needed {
                u64::MAX => format!(
                    "is incomplete: its header does not end in {has} bytes; it is truncated"
                ),
                _ => {
                    format!("is incomplete: it has {has} bytes and needs {needed}; it is truncated")
                }
            },
        )),
        None => Ok(()),
    }
}

impl Source for Reader {
    fn tree(&self) -> &Group {
        &self.tree
    }

    fn boxes(&self, _group: &str, variable: &Variable, part: u64) -> Result<Boxes> {
        let (shape, elem) = (variable.shape(), variable.dtype.size());
        Ok(match &variable.chunk {
            Some(chunk) => Boxes::chunks(&shape, chunk, elem, part),
            None => Boxes::rows(&shape, elem, part),
        })
    }

    fn read(
        &self,
        group: &str,
        variable: &Variable,
        block: &Block,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let open = self.find(group)?;
        let var = open
            .vars()?
            .into_iter()
            .find(|var| var.name == variable.name);
        let Some(var) = var.filter(|var| var.dims.len() == block.start.len()) else {
            return Err(FormatError::unsupported(
                &self.path,
                &variable.name,
                "is gone",
            ));
        };
        out.resize((block.elements() * variable.dtype.size()) as usize, 0);
        open.read_box(&var, &block.start, &block.count, out)
    }
}

fn group(open: &Open, name: &str, above: Option<&Scope<'_>>, depth: usize) -> Result<Group> {
    if depth > MAX_DEPTH {
        return Err(open.unsupported(format!("group {name}"), "is nested too deep"));
    }
    let dims: Vec<(c_int, Dim)> = open
        .dims()?
        .into_iter()
        .map(|(id, name, len, unlimited)| {
            let dim = Dim {
                name,
                len,
                unlimited,
            };
            (id, dim)
        })
        .collect();
    let scope = Scope { dims, above };
    let variables = open
        .vars()?
        .iter()
        .map(|var| variable(open, var, &scope))
        .collect::<Result<_>>()?;
    let groups = open
        .groups()?
        .iter()
        .map(|(name, below)| group(below, name, Some(&scope), depth + 1))
        .collect::<Result<_>>()?;
    let attributes = attributes(open, GLOBAL, open.attributes()?, "")?;
    Ok(Group {
        name: name.to_owned(),
        dims: scope.dims.into_iter().map(|(_, dim)| dim).collect(),
        attributes,
        variables,
        groups,
        ..Group::default()
    })
}

fn variable(open: &Open, var: &Var, scope: &Scope<'_>) -> Result<Variable> {
    let what = format!("variable {}", var.name);
    let dtype = dtype(open, var.typ, &what)?;
    let dims = var
        .dims
        .iter()
        .map(|&id| {
            let found = scope.find(id);
            found.ok_or_else(|| {
                open.unsupported(
                    &what,
                    "has a dimension of a group that is not above its own",
                )
            })
        })
        .collect::<Result<_>>()?;
    let attributes = attributes(open, var.id, var.attributes, &format!("{}:", var.name))?;
    let fill = open.fill(var.id, dtype.size() as usize)?;
    let deflate = open
        .deflate(var.id)
        .map(|(level, shuffle)| Deflate { level, shuffle });
    Ok(Variable {
        dims,
        fill,
        chunk: open.chunks(var.id, var.dims.len()),
        deflate,
        attributes,
        ..Variable::new(&var.name, dtype)
    })
}

fn attributes(open: &Open, var: c_int, count: usize, prefix: &str) -> Result<Vec<Attribute>> {
    (0..count)
        .map(|at| {
            let (name, typ, len) = open.attribute(var, at)?;
            let value = value(open, var, &name, typ, len, prefix)?;
            Ok(Attribute { name, value })
        })
        .collect()
}

fn value(
    open: &Open,
    var: c_int,
    name: &str,
    typ: Type,
    len: usize,
    prefix: &str,
) -> Result<Value> {
    let what = format!("attribute {prefix}{name}");
    match typ {
        nc::NC_CHAR => Ok(Value::Chars(open.attribute_bytes(var, name, 1, len)?)),
        nc::NC_STRING => {
            let strings = open.attribute_strings(var, name, len)?.into_iter();
            let strings = strings.map(|string| String::from_utf8(string.unwrap_or_default()));
            let strings = strings.collect::<std::result::Result<_, _>>();
            let strings = strings.map_err(|_| open.unsupported(&what, "is not UTF-8"))?;
            Ok(Value::Strings(strings))
        }
        _ => {
            let dtype = dtype(open, typ, &what)?;
            let bytes = open.attribute_bytes(var, name, dtype.size() as usize, len)?;
            Ok(Value::Numbers { dtype, bytes })
        }
    }
}

/// The type of elements in memory.
fn dtype(open: &Open, typ: Type, what: &str) -> Result<DType> {
    let text = match typ {
        nc::NC_BYTE => "i1",
        nc::NC_CHAR => "S1",
        nc::NC_SHORT => "i2",
        nc::NC_INT => "i4",
        nc::NC_FLOAT => "f4",
        nc::NC_DOUBLE => "f8",
        nc::NC_UBYTE => "u1",
        nc::NC_USHORT => "u2",
        nc::NC_UINT => "u4",
        nc::NC_INT64 => "i8",
        nc::NC_UINT64 => "u8",
        nc::NC_STRING => {
            return Err(
                open.unsupported(what, "has variable-length strings, which are not supported")
            );
        }
        _ => {
            let info = open.type_info(typ)?;
            let (name, class) = info.user.unwrap_or_default();
            let why = format!("has the type {name}, {class}, which is not supported");
            return Err(open.unsupported(what, why));
        }
    };
    text.parse().map_err(|error| {
        open.unsupported(what, format!("has a type that is unknown here: {error}"))
    })
}
