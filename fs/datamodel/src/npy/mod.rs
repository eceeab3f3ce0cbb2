//! The header of `.npy` files, and the literals of Python in it.

pub mod header;
mod literal;

/// Whether elements of this dtype can have this type of NumPy, a literal of Python.
pub fn is_descr_of(descr: &str, dtype: &slabfs_model::DType) -> bool {
    let found = header::dtype_of_text(descr);
    matches!(found, Ok((found, Some(_))) if found == *dtype)
}
