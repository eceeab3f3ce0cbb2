//! The content of a file without its data: groups, dimensions, variables, attributes.
//!
//! | here | NetCDF | HDF5 | Zarr | slabfs |
//! |---|---|---|---|---|
//! | [`Group`] | group | group | group | container |
//! | [`Variable`] | variable | dataset | array | object |
//! | [`Dim`] | dimension | dimension scale | entry of `dimension_names` | entry of `dim_names` |
//! | [`Attribute`] | attribute | attribute | attribute | tag |

use slabfs_model::DType;

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
    /// The element that was never written, if the file says so.
    pub fill: Option<Vec<u8>>,
    /// The shape of its chunks; `None` if it is stored in one piece.
    pub chunk: Option<Vec<u64>>,
    /// How its chunks are compressed.
    pub deflate: Option<Deflate>,
    /// Its attributes, in the file's order.
    pub attributes: Vec<Attribute>,
}

/// A dimension of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DimRef {
    /// The dimension.
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
}

impl Variable {
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
