//! The meaning of paths and attributes on the mount.
//!
//! - [`name`]: a path component: a plain name, a selection `obj@[...]`, or the escape `@@[`.
//! - [`nodes`]: inode numbers of selections and hidden files, which are no inodes of the metadata service.
//! - [`attributes`]: the `user.slabfs.*` extended attributes and the changes that setting one requests.
//! - [`defaults`]: the defaults of containers, as JSON and as attributes.
//! - [`pattern`]: the `ioctl` format of batches, for views on file handles.
//! - [`selection`]: the size and the attributes of a selection as a file.
//! - [`describe`]: an object as the JSON that `user.slabfs.info` and `slabfs info` show.
//! - [`like`]: what a new array takes from another one.
//! - [`search`]: the names in `.slabfs/find`.
//! - [`made`]: files of other formats that are made of objects.
//! - [`hidden`]: the files under `.slabfs` in the root of a mount.
//!
//! Coordinates here are elements, as users write them; below, the client counts in cells. No FUSE types and no I/O:
//! these are pure functions on replies of the metadata service.

pub mod attributes;
pub mod defaults;
pub mod describe;
pub mod hidden;
pub mod like;
pub mod made;
pub mod name;
pub mod nodes;
pub mod pattern;
pub mod search;
pub mod selection;
