//! How a dataset is stored: its layout, chunks, filters and fill value.

use std::path::Path;
use std::sync::Arc;

use hdf5_metno_sys::h5d::{
    self, H5D_alloc_time_t, H5D_fill_time_t, H5D_fill_value_t, H5D_layout_t,
};
use hdf5_metno_sys::{h5p, h5z};

use super::datatype::Datatype;
use super::handle::{Handle, checked, with_lock};
use crate::Result;

/// The most filters of a dataset.
const MOST_FILTERS: i32 = 32;
/// The most parameters of a filter for which the library can be asked.
const MOST_VALUES: usize = 256;

/// How a dataset is stored, or is to be stored.
#[derive(Debug)]
pub struct Creation {
    handle: Handle,
}

/// Where the elements are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// With the description of the dataset.
    Compact,
    /// In one piece.
    Contiguous,
    /// In chunks of one shape.
    Chunked,
    /// In other datasets.
    Virtual,
}

/// When something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// When the dataset is created.
    Early,
    /// When elements are written for the first time.
    Late,
    /// When elements of a chunk are written for the first time.
    Incremental,
    /// As the library chooses.
    Default,
    /// Not at all.
    Never,
}

/// A filter that the bytes of a chunk go through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Its registered number; 1 is deflate, 2 shuffle, 3 fletcher32.
    pub id: u32,
    /// 1 if a chunk that it fails on is stored without it.
    pub flags: u32,
    /// Its parameters.
    pub values: Vec<u32>,
}

/// `H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS`.
const DONT_FILTER_PARTIAL_CHUNKS: u32 = 2;

impl Filter {
    /// The number of deflate.
    pub const DEFLATE: u32 = 1;
    /// The number of shuffle.
    pub const SHUFFLE: u32 = 2;
    /// The number of the checksum fletcher32.
    pub const FLETCHER32: u32 = 3;

    /// Whether the library has it, or finds a plug-in for it.
    pub fn is_available(&self) -> bool {
        super::file::has_filter(self.id)
    }

    /// Lets datasets with this filter be created although there is no plug-in for it: their chunks can be written as they
    /// are stored, and cannot be encoded or decoded.
    ///
    /// # Errors
    /// Of the library.
    pub fn stand_in(&self, file: &Path) -> Result<()> {
        let class = h5z::H5Z_class2_t {
            version: 1,
            id: self.id as i32,
            encoder_present: 1,
            decoder_present: 1,
            name: c"a filter without a plug-in".as_ptr(),
            can_apply: None,
            set_local: None,
            filter: Some(no_filter),
        };
        checked(file, format_args!("filter {}", self.id), || {
            // SAFETY: the library copies the class; its name and function are static.
            unsafe { h5z::H5Zregister((&raw const class).cast()) }
        })?;
        Ok(())
    }
}

/// Fails: what it would do is not known.
unsafe extern "C" fn no_filter(
    _: u32,
    _: usize,
    _: *const u32,
    _: usize,
    _: *mut usize,
    _: *mut *mut std::ffi::c_void,
) -> usize {
    0
}

impl Creation {
    pub(super) fn of(handle: Handle) -> Creation {
        Creation { handle }
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The library's defaults, with attributes in the order of their creation; errors name `file`.
    ///
    /// # Errors
    /// Of the library.
    pub fn new(file: &Path) -> Result<Creation> {
        let file: Arc<Path> = Arc::from(file);
        let handle = Handle::new(&file, "how a dataset is stored", || {
            // SAFETY: a class of the library.
            unsafe { h5p::H5Pcreate(*h5p::H5P_CLS_DATASET_CREATE) }
        })?;
        let creation = Creation { handle };
        creation.order_attributes()?;
        Ok(creation)
    }

    /// Lets attributes have the order of their creation.
    ///
    /// # Errors
    /// Of the library.
    pub fn order_attributes(&self) -> Result<()> {
        let order = h5p::H5P_CRT_ORDER_TRACKED | h5p::H5P_CRT_ORDER_INDEXED;
        self.checked("the order of attributes", |id| {
            // SAFETY: the list is open.
            unsafe { h5p::H5Pset_attr_creation_order(id, order) }
        })?;
        Ok(())
    }

    fn checked(&self, what: &str, call: impl FnOnce(i64) -> i32) -> Result<i32> {
        checked(&self.handle.file, what, || call(self.handle.id))
    }

    /// Where the elements are.
    ///
    /// # Errors
    /// Of the library.
    pub fn layout(&self) -> Result<Layout> {
        // SAFETY: the list is open.
        let layout = with_lock(|| unsafe { h5p::H5Pget_layout(self.handle.id) });
        Ok(match layout {
            H5D_layout_t::H5D_COMPACT => Layout::Compact,
            H5D_layout_t::H5D_CONTIGUOUS => Layout::Contiguous,
            H5D_layout_t::H5D_CHUNKED => Layout::Chunked,
            _ => Layout::Virtual,
        })
    }

    /// Stores the elements in one piece; filters must have been removed.
    ///
    /// # Errors
    /// Of the library.
    pub fn set_contiguous(&self) -> Result<()> {
        self.checked("a layout", |id| {
            // SAFETY: the list is open.
            unsafe { h5p::H5Pset_layout(id, H5D_layout_t::H5D_CONTIGUOUS) }
        })?;
        Ok(())
    }

    /// How many other files have a part of the elements.
    ///
    /// # Errors
    /// Of the library.
    pub fn external_files(&self) -> Result<u32> {
        let count = self.checked("external files", |id| {
            // SAFETY: the list is open.
            unsafe { h5p::H5Pget_external_count(id) }
        })?;
        Ok(count as u32)
    }

    /// The shape of the chunks of a chunked dataset.
    ///
    /// # Errors
    /// It is not chunked.
    pub fn chunk(&self) -> Result<Vec<u64>> {
        let mut shape = vec![0; 32];
        let rank = self.checked("the shape of chunks", |id| {
            // SAFETY: the list is open, and `shape` has 32 members.
            unsafe { h5p::H5Pget_chunk(id, 32, shape.as_mut_ptr()) }
        })?;
        shape.truncate(rank as usize);
        Ok(shape)
    }

    /// Stores the elements in chunks of this shape.
    ///
    /// # Errors
    /// A length is zero, or a chunk has 4 GiB or more.
    pub fn set_chunk(&self, shape: &[u64]) -> Result<()> {
        self.checked("the shape of chunks", |id| {
            // SAFETY: the list is open, and `shape` has that many members.
            unsafe { h5p::H5Pset_chunk(id, shape.len() as i32, shape.as_ptr()) }
        })?;
        Ok(())
    }

    /// Whether chunks that reach beyond the dataset do not go through the filters, whatever their masks say.
    ///
    /// # Errors
    /// Of the library.
    pub fn skips_partial_chunks(&self) -> Result<bool> {
        let mut options = 0;
        self.checked("the options of chunks", |id| {
            // SAFETY: the list is open, and the number outlives the call.
            unsafe { h5p::H5Pget_chunk_opts(id, &mut options) }
        })?;
        Ok(options & DONT_FILTER_PARTIAL_CHUNKS != 0)
    }

    /// Lets all chunks go through the filters that their masks say.
    ///
    /// # Errors
    /// Of the library.
    pub fn filter_partial_chunks(&self) -> Result<()> {
        self.checked("the options of chunks", |id| {
            // SAFETY: the list is open.
            unsafe { h5p::H5Pset_chunk_opts(id, 0) }
        })?;
        Ok(())
    }

    /// The filters, in the order in which a chunk that is written goes through them.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn filters(&self) -> Result<Vec<Filter>> {
        let count = self.checked("filters", |id| {
            // SAFETY: the list is open.
            unsafe { h5p::H5Pget_nfilters(id) }
        })?;
        if count > MOST_FILTERS {
            return Err(self
                .handle
                .unsupported("a dataset", format!("has {count} filters")));
        }
        (0..count as u32).map(|at| self.filter(at)).collect()
    }

    fn filter(&self, at: u32) -> Result<Filter> {
        let (mut flags, mut config) = (0, 0);
        let mut len = MOST_VALUES;
        let mut values = vec![0; MOST_VALUES];
        let id = self.checked("filters", |id| {
            // SAFETY: the list is open and has more filters; `values` has `len` members; no room for a name is given.
            unsafe {
                h5p::H5Pget_filter2(
                    id,
                    at,
                    &mut flags,
                    &mut len,
                    values.as_mut_ptr(),
                    0,
                    std::ptr::null_mut(),
                    &mut config,
                )
            }
        })?;
        if len > MOST_VALUES {
            let why = format!("has {len} parameters");
            return Err(self.handle.unsupported(format!("filter {id}"), why));
        }
        values.truncate(len);
        values.shrink_to_fit();
        let id = id as u32;
        Ok(Filter { id, flags, values })
    }

    /// Puts these filters in the place of all others.
    ///
    /// # Errors
    /// Of the library.
    pub fn set_filters(&self, filters: &[Filter]) -> Result<()> {
        let count = self.checked("filters", |id| {
            // SAFETY: the list is open.
            unsafe { h5p::H5Pget_nfilters(id) }
        })?;
        if count > 0 {
            self.checked("filters", |id| {
                // SAFETY: the list is open.
                unsafe { h5p::H5Premove_filter(id, h5z::H5Z_FILTER_ALL) }
            })?;
        }
        for filter in filters {
            self.checked("filters", |id| {
                let (values, len) = (filter.values.as_ptr(), filter.values.len());
                // SAFETY: the list is open, and `values` has `len` members.
                unsafe { h5p::H5Pset_filter(id, filter.id as i32, filter.flags, len, values) }
            })?;
        }
        Ok(())
    }

    /// The fill value, one element of `datatype`, which is in one piece; `None` if none is defined or it is the library's
    /// default, zero.
    ///
    /// # Errors
    /// Of the library.
    pub fn fill(&self, datatype: &Datatype) -> Result<Option<Vec<u8>>> {
        let mut defined = H5D_fill_value_t::H5D_FILL_VALUE_UNDEFINED;
        self.checked("a fill value", |id| {
            // SAFETY: the list is open, and `defined` outlives the call.
            unsafe { h5p::H5Pfill_value_defined(id, &mut defined) }
        })?;
        if defined != H5D_fill_value_t::H5D_FILL_VALUE_USER_DEFINED || !datatype.is_flat()? {
            return Ok(None);
        }
        let mut fill = vec![0_u8; datatype.size()?];
        self.checked("a fill value", |id| {
            // SAFETY: `fill` has the size of an element of this type.
            unsafe { h5p::H5Pget_fill_value(id, datatype.handle().id, fill.as_mut_ptr().cast()) }
        })?;
        Ok(Some(fill))
    }

    /// Sets the fill value, one element of `datatype`.
    ///
    /// # Errors
    /// It has not the size of an element.
    pub fn set_fill(&self, datatype: &Datatype, fill: &[u8]) -> Result<()> {
        if fill.len() != datatype.size()? || !datatype.is_flat()? {
            return Err(self
                .handle
                .unsupported("a fill value", "has not the size of an element"));
        }
        self.checked("a fill value", |id| {
            // SAFETY: `fill` has the size of an element of this type.
            unsafe { h5p::H5Pset_fill_value(id, datatype.handle().id, fill.as_ptr().cast()) }
        })?;
        Ok(())
    }

    /// When the fill value is written: never, or ([`Time::Default`]) when space is allocated.
    ///
    /// # Errors
    /// Of the library.
    pub fn fill_time(&self) -> Result<Time> {
        let mut time = H5D_fill_time_t::H5D_FILL_TIME_IFSET;
        self.checked("a fill time", |id| {
            // SAFETY: the list is open, and `time` outlives the call.
            unsafe { h5p::H5Pget_fill_time(id, &mut time) }
        })?;
        Ok(match time {
            H5D_fill_time_t::H5D_FILL_TIME_NEVER => Time::Never,
            _ => Time::Default,
        })
    }

    /// Sets when the fill value is written.
    ///
    /// # Errors
    /// Of the library.
    pub fn set_fill_time(&self, time: Time) -> Result<()> {
        let time = match time {
            Time::Never => H5D_fill_time_t::H5D_FILL_TIME_NEVER,
            Time::Default => H5D_fill_time_t::H5D_FILL_TIME_IFSET,
            _ => H5D_fill_time_t::H5D_FILL_TIME_ALLOC,
        };
        self.checked("a fill time", |id| {
            // SAFETY: the list is open.
            unsafe { h5p::H5Pset_fill_time(id, time) }
        })?;
        Ok(())
    }

    /// Sets when space is allocated.
    ///
    /// # Errors
    /// Of the library.
    pub fn set_alloc_time(&self, time: Time) -> Result<()> {
        let time = match time {
            Time::Early => H5D_alloc_time_t::H5D_ALLOC_TIME_EARLY,
            Time::Late => H5D_alloc_time_t::H5D_ALLOC_TIME_LATE,
            Time::Incremental => H5D_alloc_time_t::H5D_ALLOC_TIME_INCR,
            Time::Default | Time::Never => h5d::H5D_alloc_time_t::H5D_ALLOC_TIME_DEFAULT,
        };
        self.checked("the time of allocation", |id| {
            // SAFETY: the list is open.
            unsafe { h5p::H5Pset_alloc_time(id, time) }
        })?;
        Ok(())
    }
}
