//! What a file's groups, variables and attributes are on a mount, and back.
//!
//! | in a file | on the mount |
//! |---|---|
//! | group | directory |
//! | variable | array of the same dtype, dims and fill value; an unlimited dimension is an unlimited axis |
//! | dimensions that a group defines | the tag `_slabfs_dims` of its directory: `["time=unlimited", "lat=180"]` |
//! | dimensions of a variable | its tag `dim_names`: `["time", "lat"]` |
//! | a type that a dtype does not say | the tag `_slabfs_type` |
//! | types that a group defines | the tag `_slabfs_types` of its directory |
//! | attribute | tag of the same name, of the exact type; what that does not say is in `_slabfs_attributes` |
//! | order of attributes and variables | the tag `_slabfs_order` |
//! | soft link | symbolic link |
//! | deflate, shuffle | codec `deflate:N`, `shuffle+deflate:N` |
//!
//! `plan` has what an import creates, `objects` arrays, `attributes` tags, `exact` types, `dims` dimensions, `order`
//! the order of names.

mod attributes;
mod dims;
mod exact;
mod objects;
mod order;
mod plan;
#[cfg(test)]
mod tests;

use crate::error::invalid;

pub use attributes::attributes_of;
pub use dims::{define_dims, name_axes};
pub use exact::types_of;
pub use objects::variable_of;
pub use order::Order;
pub use plan::{Plan, Planned, plan};

/// The tag with the names of an array's dimensions.
pub const DIM_NAMES: &str = "dim_names";
/// The tag with the dimensions that a container defines.
pub const DIMS: &str = "_slabfs_dims";
/// How names of tags begin that slabfs uses itself.
const RESERVED: &str = "_slabfs_";
/// Most axes of an array.
const MAX_RANK: usize = 32;
/// Longest name of a file.
const MAX_NAME: usize = 255;

/// How names of files begin that imports and joins make for a time.
pub const HIDDEN: &str = ".slabfs-";

/// Whether a tag is one that slabfs uses itself.
fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED)
}

/// A path below another one.
pub fn joined(path: &str, name: &str) -> String {
    match path.is_empty() {
        true => name.to_owned(),
        false => format!("{path}/{name}"),
    }
}

fn check_name(name: &str) -> crate::Result<()> {
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        return Err(invalid(format!(
            "the name {name:?} cannot be that of a file"
        )));
    }
    if name.starts_with(HIDDEN) {
        return Err(invalid(format!(
            "the name {name:?} is one that slabfs uses itself; rename it with `ncrename`"
        )));
    }
    if name.len() > MAX_NAME {
        return Err(invalid(format!(
            "the name has {} bytes; a file's has at most {MAX_NAME}",
            name.len()
        )));
    }
    if name.contains("@[") {
        return Err(invalid(format!(
            "the name {name:?} would be a selection on the mount; rename it with `ncrename`"
        )));
    }
    Ok(())
}
