//! What a path and an attribute on the mount mean.
//!
//! - [`name`]: a path component: a plain name, a selection `obj@[...]`, or the escape `@@[`.
//! - [`nodes`]: inode numbers of what has no inode of its own, selections and hidden files.
//! - [`attributes`]: the `user.slabfs.*` extended attributes and what setting one asks for.
//! - [`defaults`]: what containers give, as JSON and as attributes.
//! - [`pattern`]: batches as they come through `ioctl`, for views on file handles.
//! - [`selection`]: the size and the attributes of a selection as a file.
//! - [`describe`]: an object as the JSON that `user.slabfs.info` and `slabfs info` show.
//! - [`like`]: what a new array takes from another one.
//! - [`search`]: the names in `.slabfs/find`.
//! - [`hidden`]: what lies under `.slabfs` in the root of a mount.
//!
//! Coordinates here are elements, as people write them; below, the client counts in cells. No FUSE types
//! and no I/O: these are plain functions on what the metadata service said.

pub mod attributes;
pub mod defaults;
pub mod describe;
pub mod hidden;
pub mod like;
pub mod name;
pub mod nodes;
pub mod pattern;
pub mod search;
pub mod selection;
