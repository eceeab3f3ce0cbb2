//! The objects of a file, before their dimensions are known.

use std::collections::HashMap;
use std::path::Path;

use super::{CLASS, DIM_ID, NAME, NO_COORDINATE, NO_VARIABLE, SCALE, bad, joined};
use crate::Result;
use crate::hdf5::{Attributed, Class, Dataset, Datatype, Group, Space, Target};
use crate::tree::{Link, NamedType};
use crate::types::Hdf5Type;

/// Groups nested deeper than this are refused.
const MAX_DEPTH: usize = 64;

/// A group and everything in it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) group: Group,
    pub(super) sets: Vec<Set>,
    pub(super) groups: Vec<Found>,
    pub(super) links: Vec<Link>,
    pub(super) types: Vec<NamedType>,
}

/// A dataset.
#[derive(Debug)]
pub(super) struct Set {
    /// The name of the variable.
    pub(super) name: String,
    /// The path of the dataset.
    pub(super) path: String,
    pub(super) address: u64,
    pub(super) space: Space,
    pub(super) typ: Hdf5Type,
    /// It is a dimension scale.
    pub(super) scale: Option<Scale>,
    /// The addresses of the scales of each axis.
    pub(super) scales: Option<Vec<Vec<u64>>>,
}

/// What is known of a dimension scale.
#[derive(Debug)]
pub(super) struct Scale {
    /// It is no variable.
    pub(super) dim_only: bool,
    /// Its number among the dimensions.
    pub(super) id: Option<i64>,
}

/// Finds all objects of a file.
#[derive(Debug)]
pub(super) struct Scanner<'a> {
    pub(super) file: &'a Path,
    /// The path of each object by its address.
    seen: HashMap<u64, String>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(file: &'a Path) -> Scanner<'a> {
        Scanner {
            file,
            seen: HashMap::new(),
        }
    }

    /// An object has one name: a second one is refused, also that of a group that contains itself.
    fn first(&mut self, address: u64, path: &str) -> Result<()> {
        match self.seen.insert(address, path.to_owned()) {
            None => Ok(()),
            Some(other) => Err(bad(
                self.file,
                path,
                format!("is the same object as /{other}; hard links are not supported"),
            )),
        }
    }

    pub(super) fn group(
        &mut self,
        group: Group,
        name: &str,
        path: String,
        depth: usize,
    ) -> Result<Found> {
        if depth > MAX_DEPTH {
            return Err(bad(self.file, &path, "is nested too deep"));
        }
        let mut found = Found {
            name: name.to_owned(),
            sets: Vec::new(),
            groups: Vec::new(),
            links: Vec::new(),
            types: Vec::new(),
            path,
            group,
        };
        for link in found.group.links()? {
            let below = joined(&found.path, &link.name);
            match link.target {
                Target::Group(address) => {
                    self.first(address, &below)?;
                    let group = found.group.group(&link.name)?;
                    found
                        .groups
                        .push(self.group(group, &link.name, below, depth + 1)?);
                }
                Target::Dataset(address) => {
                    self.first(address, &below)?;
                    let dataset = found.group.dataset(&link.name)?;
                    found
                        .sets
                        .push(self.set(&dataset, &link.name, below, address)?);
                }
                Target::Datatype(_) => {
                    let datatype = found.group.datatype(&link.name)?;
                    let typ = self.described(&datatype, &below)?;
                    found.types.push(NamedType {
                        name: link.name,
                        typ,
                    });
                }
                Target::Soft => found.links.push(Link {
                    target: found.group.soft_path(&link.name)?,
                    name: link.name,
                }),
                Target::External => {
                    return Err(bad(
                        self.file,
                        &below,
                        "is a link to another file, which is not supported",
                    ));
                }
            }
        }
        Ok(found)
    }

    fn described(&self, datatype: &Datatype, path: &str) -> Result<Hdf5Type> {
        match datatype.describe()? {
            Some(typ) => Ok(typ),
            None => Err(bad(self.file, path, refused(datatype)?)),
        }
    }

    fn set(&self, dataset: &Dataset, link: &str, path: String, address: u64) -> Result<Set> {
        let (space, scales) = (dataset.space()?, dataset.scales()?);
        if scales
            .as_ref()
            .is_some_and(|lists| lists.len() != space.dims().len())
        {
            return Err(bad(
                self.file,
                &path,
                "has dimension scales for another number of axes",
            ));
        }
        Ok(Set {
            name: link.strip_prefix(NO_COORDINATE).unwrap_or(link).to_owned(),
            address,
            space,
            typ: self.described(&dataset.datatype()?, &path)?,
            scale: scale(dataset)?,
            scales,
            path,
        })
    }
}

/// Why a type cannot be represented.
pub(super) fn refused(datatype: &Datatype) -> Result<String> {
    let what = if datatype.has_references()? {
        "references to objects, which hold in their own file only"
    } else if datatype.has_sequences()? {
        "sequences of any length"
    } else {
        match datatype.class()? {
            Class::Compound | Class::Array if !datatype.is_flat()? => {
                "texts of any length in records or arrays"
            }
            Class::Integer { .. } | Class::Float | Class::Bitfield => {
                "numbers of an unusual size or form"
            }
            Class::Time => "times of an old kind",
            _ => "a type that is unknown here",
        }
    };
    Ok(format!("has {what}: this is not supported"))
}

/// The properties of a dimension scale, if the dataset is one.
fn scale(dataset: &Dataset) -> Result<Option<Scale>> {
    let text = |name: &str| -> Result<Option<Vec<u8>>> {
        let Some(attribute) = dataset.attribute(name)? else {
            return Ok(None);
        };
        match attribute.datatype()?.class()? {
            Class::FixedString | Class::VariableString => {
                Ok(attribute.read_texts()?.into_iter().next().flatten())
            }
            _ => Ok(None),
        }
    };
    if text(CLASS)?.as_deref() != Some(SCALE) {
        return Ok(None);
    }
    let name = text(NAME)?.unwrap_or_default();
    Ok(Some(Scale {
        dim_only: name.starts_with(NO_VARIABLE.as_bytes()),
        id: integers(dataset, DIM_ID)?.and_then(|ids| ids.first().copied()),
    }))
}

/// The integers of an attribute of four bytes each, if there is one.
pub(super) fn integers(dataset: &Dataset, name: &str) -> Result<Option<Vec<i64>>> {
    let Some(attribute) = dataset.attribute(name)? else {
        return Ok(None);
    };
    let datatype = attribute.datatype()?;
    if datatype.class()? != (Class::Integer { signed: true }) || datatype.size()? != 4 {
        return Ok(None);
    }
    let big = datatype.is_big_endian();
    let bytes = attribute.read()?;
    let numbers = bytes.chunks_exact(4).map(|four| {
        let mut four = [four[0], four[1], four[2], four[3]];
        if big {
            four.reverse();
        }
        i64::from(i32::from_le_bytes(four))
    });
    Ok(Some(numbers.collect()))
}
