//! The content of a file without its data: groups, dimensions, variables, attributes.
//!
//! | here | NetCDF | HDF5 | Zarr | slabfs |
//! |---|---|---|---|---|
//! | [`Group`] | group | group | group | container |
//! | [`Variable`] | variable | dataset | array | object |
//! | [`Dim`] | dimension | dimension scale | entry of `dimension_names` | entry of `dim_names` |
//! | [`Attribute`] | attribute | attribute | attribute | tag |

use slabfs_model::DType;

use crate::types::Hdf5Type;

/// A group, with everything below it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Group {
    /// Its name; empty for the root.
    pub name: String,
    /// The dimensions that it defines, also those that no variable has.
    pub dims: Vec<Dim>,
    /// Its attributes, in the file's order.
    pub attributes: Vec<Attribute>,
    /// Its variables, in the file's order.
    pub variables: Vec<Variable>,
    /// The groups in it.
    pub groups: Vec<Group>,
    /// Its symbolic links.
    pub links: Vec<Link>,
    /// The types that it defines.
    pub types: Vec<NamedType>,
}

/// A symbolic link in a group; in HDF5 a soft link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// The path that it stands for, relative to the group or from the root.
    pub target: String,
}

/// A type that a file defines under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedType {
    /// Its name.
    pub name: String,
    /// The type.
    pub typ: Hdf5Type,
}

/// A dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dim {
    /// Its name.
    pub name: String,
    /// Its length now.
    pub len: u64,
    /// It can grow.
    pub unlimited: bool,
}

/// A variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// The type of its elements; characters of NetCDF are `S1`.
    pub dtype: DType,
    /// Its dimensions, slowest first, as the group that defines each of them has it.
    pub dims: Vec<DimRef>,
    /// The longest length of each axis, `None` for unlimited; empty if no axis can grow.
    pub max: Vec<Option<u64>>,
    /// What the dtype does not say about its elements.
    pub exact: Option<Exact>,
    /// The element that was never written, if the file says so.
    pub fill: Option<Vec<u8>>,
    /// The shape of its chunks; `None` if it is stored in one piece.
    pub chunk: Option<Vec<u64>>,
    /// How its chunks are compressed.
    pub deflate: Option<Deflate>,
    /// Its attributes, in the file's order.
    pub attributes: Vec<Attribute>,
}

/// The exact type of a variable's elements, where its dtype is not all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exact {
    /// A type of HDF5; the elements are as in the file, or those of the enumeration's base type.
    Hdf5(Hdf5Type),
    /// Strings of variable length; the elements are padded with zeros.
    Strings {
        /// They are UTF-8, not ASCII.
        utf8: bool,
    },
    /// A structured type of NumPy, as its literal in Python.
    Numpy(String),
    /// No elements and no axes: a null dataspace of HDF5, of this type if the dtype is not all. The dims are 0.
    Null(Option<Hdf5Type>),
}

/// A dimension of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DimRef {
    /// The dimension. An axis of HDF5 or Zarr without a name has an empty one.
    pub dim: Dim,
    /// The group that defines it: how many levels above the variable's own.
    pub up: usize,
}

/// The filters of a compressed variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deflate {
    /// 0 to 9.
    pub level: u32,
    /// The bytes of the elements are transposed first.
    pub shuffle: bool,
}

/// An attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Value,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Numbers, little-endian; NetCDF does not tell one number from a list of one.
    Numbers {
        /// Their type.
        dtype: DType,
        /// Their bytes.
        bytes: Vec<u8>,
    },
    /// Characters, of any character set.
    Chars(Vec<u8>),
    /// Strings of NetCDF-4.
    Strings(Vec<String>),
    /// One text.
    Text(String),
    /// What no other value represents, of Zarr.
    Json(serde_json::Value),
    /// What no other value represents, of HDF5.
    Hdf5(Box<Hdf5Value>),
}

/// The value of an attribute of HDF5, with its type and dataspace.
#[derive(Debug, Clone, PartialEq)]
pub struct Hdf5Value {
    /// Its type.
    pub typ: Hdf5Type,
    /// Its dataspace.
    pub space: Space,
    /// Its elements: numbers and enumerations as numbers, strings of variable length as strings, all others as the bytes
    /// of all elements.
    pub elements: Value,
}

/// A dataspace of HDF5.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Space {
    /// No elements.
    Null,
    /// One element.
    Scalar,
    /// Axes of these lengths.
    Simple(Vec<u64>),
}

impl Variable {
    /// A variable without data on any axis, for readers to complete.
    pub fn new(name: impl Into<String>, dtype: DType) -> Variable {
        Variable {
            name: name.into(),
            dtype,
            dims: Vec::new(),
            max: Vec::new(),
            exact: None,
            fill: None,
            chunk: None,
            deflate: None,
            attributes: Vec::new(),
        }
    }

    /// The longest length of each axis; `None` for unlimited.
    pub fn max_shape(&self) -> Vec<Option<u64>> {
        if self.max.len() == self.dims.len() {
            return self.max.clone();
        }
        let dims = self.dims.iter().map(|dim| &dim.dim);
        dims.map(|dim| (!dim.unlimited).then_some(dim.len))
            .collect()
    }

    /// Gives it axes of these lengths, which have no names.
    pub fn with_axes(mut self, shape: &[u64]) -> Variable {
        let axis = |&len: &u64| DimRef {
            dim: Dim {
                name: String::new(),
                len,
                unlimited: false,
            },
            up: 0,
        };
        self.dims = shape.iter().map(axis).collect();
        self
    }

    /// The length of each axis.
    pub fn shape(&self) -> Vec<u64> {
        self.dims.iter().map(|dim| dim.dim.len).collect()
    }
}

impl Group {
    /// Calls `f` with each group and its path, parents first; the path of the root is empty.
    pub fn each<'a>(&'a self, f: &mut dyn FnMut(&str, &'a Group)) {
        self.each_below(String::new(), f);
    }

    fn each_below<'a>(&'a self, path: String, f: &mut dyn FnMut(&str, &'a Group)) {
        f(&path, self);
        for group in &self.groups {
            let path = match path.is_empty() {
                true => group.name.clone(),
                false => format!("{path}/{}", group.name),
            };
            group.each_below(path, f);
        }
    }
}
