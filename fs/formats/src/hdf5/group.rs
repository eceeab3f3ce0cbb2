//! Groups, and the links in them.

use std::ffi::{CStr, c_char, c_void};

use hdf5_metno_sys::h5::{H5_index_t, H5_iter_order_t};
use hdf5_metno_sys::h5i::hid_t;
use hdf5_metno_sys::{h5d, h5g, h5l, h5o, h5p, h5t};

use super::attribute::Attributed;
use super::creation::Creation;
use super::dataset::Dataset;
use super::datatype::Datatype;
use super::handle::{Handle, checked};
use super::space::Space;
use crate::Result;

/// Groups with more members than this are refused.
const MOST_LINKS: u64 = 1 << 20;

/// A group of an open file.
#[derive(Debug)]
pub struct Group {
    handle: Handle,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// What it is.
    pub target: Target,
}

/// What a member of a group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A group in the file, with the address of its header.
    Group(u64),
    /// A dataset in the file, with the address of its header.
    Dataset(u64),
    /// A named datatype, with the address of its header.
    Datatype(u64),
    /// The path of another object of the file.
    Soft,
    /// An object of another file, or a link of a kind that a program defines.
    External,
}

impl Attributed for Group {
    fn id(&self) -> (i64, &std::sync::Arc<std::path::Path>) {
        (self.handle.id, &self.handle.file)
    }
}

impl Group {
    /// Opens a group by its path from `parent`.
    pub(super) fn open(parent: &Handle, name: &str) -> Result<Group> {
        let text = parent.c_name(name)?;
        let handle = Handle::new(&parent.file, format_args!("opening group {name}"), || {
            // SAFETY: the parent is open, and the name is a C string.
            unsafe { h5g::H5Gopen2(parent.id, text.as_ptr(), h5p::H5P_DEFAULT) }
        })?;
        Ok(Group { handle })
    }

    /// Opens a group in it; `name` may be a path.
    ///
    /// # Errors
    /// There is none; the file is damaged.
    pub fn group(&self, name: &str) -> Result<Group> {
        Group::open(&self.handle, name)
    }

    /// Creates a group in it, which has the order of its members and attributes, and no times.
    ///
    /// # Errors
    /// Of the library.
    pub fn create_group(&self, name: &str) -> Result<Group> {
        let what = format!("creating group {name}");
        let (text, file) = (self.handle.c_name(name)?, &self.handle.file);
        let list = Handle::new(file, &what, || {
            // SAFETY: a class of the library.
            unsafe { h5p::H5Pcreate(*h5p::H5P_CLS_GROUP_CREATE) }
        })?;
        let order = h5p::H5P_CRT_ORDER_TRACKED | h5p::H5P_CRT_ORDER_INDEXED;
        checked(file, &what, || {
            // SAFETY: the list is open.
            unsafe {
                h5p::H5Pset_link_creation_order(list.id, order)
                    .min(h5p::H5Pset_attr_creation_order(list.id, order))
                    .min(h5p::H5Pset_obj_track_times(list.id, 0))
            }
        })?;
        let links = self.utf8_names()?;
        let handle = Handle::new(file, &what, || {
            // SAFETY: the group and the lists are open, and the name is a C string.
            unsafe {
                h5g::H5Gcreate2(
                    self.handle.id,
                    text.as_ptr(),
                    links.id,
                    list.id,
                    h5p::H5P_DEFAULT,
                )
            }
        })?;
        Ok(Group { handle })
    }

    /// Opens a dataset in it; `name` may be a path.
    ///
    /// # Errors
    /// There is none; the file is damaged.
    pub fn dataset(&self, name: &str) -> Result<Dataset> {
        let text = self.handle.c_name(name)?;
        let handle = Handle::new(&self.handle.file, format_args!("opening {name}"), || {
            // SAFETY: the group is open, and the name is a C string.
            unsafe { h5d::H5Dopen2(self.handle.id, text.as_ptr(), h5p::H5P_DEFAULT) }
        })?;
        Ok(Dataset::new(handle, name))
    }

    /// Creates a dataset in it.
    ///
    /// # Errors
    /// The library cannot store it this way.
    pub fn create_dataset(
        &self,
        name: &str,
        datatype: &Datatype,
        space: &Space,
        creation: &Creation,
    ) -> Result<Dataset> {
        let text = self.handle.c_name(name)?;
        let space = space.make(&self.handle)?;
        let links = self.utf8_names()?;
        let handle = Handle::new(&self.handle.file, format_args!("creating {name}"), || {
            // SAFETY: all identifiers are open, and the name is a C string.
            unsafe {
                h5d::H5Dcreate2(
                    self.handle.id,
                    text.as_ptr(),
                    datatype.handle().id,
                    space.id,
                    links.id,
                    creation.handle().id,
                    h5p::H5P_DEFAULT,
                )
            }
        })?;
        Ok(Dataset::new(handle, name))
    }

    /// Gives a datatype a name in it.
    ///
    /// # Errors
    /// Of the library.
    pub fn commit(&self, name: &str, datatype: &Datatype) -> Result<()> {
        let (text, links) = (self.handle.c_name(name)?, self.utf8_names()?);
        let what = format!("creating type {name}");
        checked(&self.handle.file, what, || {
            // SAFETY: all identifiers are open, and the name is a C string.
            unsafe {
                h5t::H5Tcommit2(
                    self.handle.id,
                    text.as_ptr(),
                    datatype.handle().id,
                    links.id,
                    h5p::H5P_DEFAULT,
                    h5p::H5P_DEFAULT,
                )
            }
        })?;
        Ok(())
    }

    /// The path that a soft link has.
    ///
    /// # Errors
    /// There is no such link; the path is longer than 4096 bytes or not UTF-8.
    pub fn soft_path(&self, name: &str) -> Result<String> {
        let text = self.handle.c_name(name)?;
        let mut path = vec![0_u8; 4097];
        checked(
            &self.handle.file,
            format_args!("reading link {name}"),
            || {
                // SAFETY: the group is open, the name is a C string, and `path` has the given length.
                unsafe {
                    h5l::H5Lget_val(
                        self.handle.id,
                        text.as_ptr(),
                        path.as_mut_ptr().cast(),
                        path.len(),
                        h5p::H5P_DEFAULT,
                    )
                }
            },
        )?;
        let end = path.iter().position(|&byte| byte == 0);
        let path = end.and_then(|end| std::str::from_utf8(&path[..end]).ok());
        path.map(str::to_owned).ok_or_else(|| {
            self.handle
                .unsupported(name, "is a link to a path that is too long or not UTF-8")
        })
    }

    /// Creates a soft link in it.
    ///
    /// # Errors
    /// Of the library.
    pub fn link_soft(&self, name: &str, path: &str) -> Result<()> {
        let (text, path) = (self.handle.c_name(name)?, self.handle.c_name(path)?);
        let links = self.utf8_names()?;
        checked(
            &self.handle.file,
            format_args!("creating link {name}"),
            || {
                // SAFETY: the group and the list are open, and both texts are C strings.
                unsafe {
                    h5l::H5Lcreate_soft(
                        path.as_ptr(),
                        self.handle.id,
                        text.as_ptr(),
                        links.id,
                        h5p::H5P_DEFAULT,
                    )
                }
            },
        )?;
        Ok(())
    }

    /// Opens a named datatype in it; `name` may be a path.
    ///
    /// # Errors
    /// There is none; the file is damaged.
    pub fn datatype(&self, name: &str) -> Result<Datatype> {
        let text = self.handle.c_name(name)?;
        let handle = Handle::new(
            &self.handle.file,
            format_args!("opening type {name}"),
            || {
                // SAFETY: the group is open, and the name is a C string.
                unsafe { h5t::H5Topen2(self.handle.id, text.as_ptr(), h5p::H5P_DEFAULT) }
            },
        )?;
        Ok(Datatype::new(handle))
    }

    /// Copies a dataset or a named datatype of another file into it, with its stored data as it is, and without attributes.
    /// Types that have names get those of equal types of this file.
    ///
    /// # Errors
    /// Of the library.
    pub fn copy_from(&self, from: &Group, name: &str) -> Result<()> {
        let what = format!("copying {name}");
        let (text, file) = (self.handle.c_name(name)?, &from.handle.file);
        let list = Handle::new(file, &what, || {
            // SAFETY: a class of the library.
            unsafe { h5p::H5Pcreate(*h5p::H5P_CLS_OBJECT_COPY) }
        })?;
        let links = self.utf8_names()?;
        let flags = h5o::H5O_COPY_WITHOUT_ATTR_FLAG | h5o::H5O_COPY_MERGE_COMMITTED_DTYPE_FLAG;
        checked(file, &what, || {
            // SAFETY: the groups and the lists are open, and the name is a C string.
            unsafe {
                match h5p::H5Pset_copy_object(list.id, flags) {
                    0.. => h5o::H5Ocopy(
                        from.handle.id,
                        text.as_ptr(),
                        self.handle.id,
                        text.as_ptr(),
                        list.id,
                        links.id,
                    ),
                    failed => failed,
                }
            }
        })?;
        Ok(())
    }

    /// The members of it, in the order of their creation where the file has that, and otherwise by name.
    ///
    /// # Errors
    /// The file is damaged; there are more than 2^20; a name is not UTF-8.
    pub fn links(&self) -> Result<Vec<Link>> {
        let file = &self.handle.file;
        let mut info = h5g::H5G_info_t::default();
        checked(file, "the members of a group", || {
            // SAFETY: the group is open, and `info` outlives the call.
            unsafe { h5g::H5Gget_info(self.handle.id, &mut info) }
        })?;
        if info.nlinks > MOST_LINKS {
            let why = format!("has {} members, more than {MOST_LINKS}", info.nlinks);
            return Err(self.handle.unsupported("a group", why));
        }
        let mut found: Vec<(Vec<u8>, h5l::H5L_type_t)> = Vec::new();
        let index = match self.is_ordered()? {
            true => H5_index_t::H5_INDEX_CRT_ORDER,
            false => H5_index_t::H5_INDEX_NAME,
        };
        let order = H5_iter_order_t::H5_ITER_INC;
        checked(file, "the members of a group", || {
            let taken: *mut Vec<(Vec<u8>, h5l::H5L_type_t)> = &mut found;
            // SAFETY: the group is open; the callback gets a pointer to `found`, which outlives the call.
            unsafe {
                h5l::H5Literate(
                    self.handle.id,
                    index,
                    order,
                    std::ptr::null_mut(),
                    Some(take_link),
                    taken.cast::<c_void>(),
                )
            }
        })?;
        found
            .into_iter()
            .map(|(name, kind)| self.link(name, kind))
            .collect()
    }

    fn link(&self, name: Vec<u8>, kind: h5l::H5L_type_t) -> Result<Link> {
        let name = String::from_utf8(name).map_err(|error| {
            let name = error.as_bytes().escape_ascii().to_string();
            self.handle.unsupported(name, "is a name that is not UTF-8")
        })?;
        let target = match kind {
            h5l::H5L_type_t::H5L_TYPE_HARD => self.object(&name)?,
            h5l::H5L_type_t::H5L_TYPE_SOFT => Target::Soft,
            _ => Target::External,
        };
        Ok(Link { name, target })
    }

    fn object(&self, name: &str) -> Result<Target> {
        let text = self.handle.c_name(name)?;
        let mut info = h5o::H5O_info1_t::default();
        checked(&self.handle.file, format_args!("looking at {name}"), || {
            // SAFETY: the group is open, the name is a C string, and `info` outlives the call.
            unsafe {
                h5o::H5Oget_info_by_name2(
                    self.handle.id,
                    text.as_ptr(),
                    &mut info,
                    h5o::H5O_INFO_BASIC,
                    h5p::H5P_DEFAULT,
                )
            }
        })?;
        match info.type_ {
            h5o::H5O_type_t::H5O_TYPE_GROUP => Ok(Target::Group(info.addr)),
            h5o::H5O_type_t::H5O_TYPE_DATASET => Ok(Target::Dataset(info.addr)),
            h5o::H5O_type_t::H5O_TYPE_NAMED_DATATYPE => Ok(Target::Datatype(info.addr)),
            _ => Err(self
                .handle
                .unsupported(name, "is an object of an unknown kind")),
        }
    }

    /// Whether the file has the order in which members were created.
    fn is_ordered(&self) -> Result<bool> {
        let file = &self.handle.file;
        let list = Handle::new(file, "the properties of a group", || {
            // SAFETY: the group is open.
            unsafe { h5g::H5Gget_create_plist(self.handle.id) }
        })?;
        let mut flags = 0;
        checked(file, "the properties of a group", || {
            // SAFETY: the list is open, and `flags` outlives the call.
            unsafe { h5p::H5Pget_link_creation_order(list.id, &mut flags) }
        })?;
        Ok(flags & h5p::H5P_CRT_ORDER_TRACKED != 0)
    }

    /// Properties of new links: their names are UTF-8.
    fn utf8_names(&self) -> Result<Handle> {
        let file = &self.handle.file;
        let list = Handle::new(file, "the properties of a link", || {
            // SAFETY: a class of the library.
            unsafe { h5p::H5Pcreate(*h5p::H5P_CLS_LINK_CREATE) }
        })?;
        checked(file, "the properties of a link", || {
            // SAFETY: the list is open.
            unsafe { h5p::H5Pset_char_encoding(list.id, h5t::H5T_cset_t::H5T_CSET_UTF8) }
        })?;
        Ok(list)
    }
}

unsafe extern "C" fn take_link(
    _: hid_t,
    name: *const c_char,
    info: *const h5l::H5L_info1_t,
    found: *mut c_void,
) -> i32 {
    // SAFETY: the library gives a C string and the description of a link; `found` is the vector of `links`.
    unsafe {
        let name = CStr::from_ptr(name).to_bytes().to_vec();
        let found = found.cast::<Vec<(Vec<u8>, h5l::H5L_type_t)>>();
        (*found).push((name, (*info).type_));
    }
    0
}
