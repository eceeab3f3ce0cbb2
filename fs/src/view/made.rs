//! Files of other formats that a mount makes of objects: `.npy` files and Zarr directories.
//!
//! A file is made when it is looked up: its header or text, its size, and the form that the object has then. It is
//! identified by these, so when the object changes its form, the next lookup finds another file, and a program that has
//! the older one open goes on reading the older form, or gets an error if the object has become smaller. Elements are not
//! made: they are read from the object.
//!
//! Zarr arrays are divided into chunks here, whatever the object's own chunks are ([`chunk_shape`]); an object
//! that grows does not change the shape of a chunk.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};
use slabfs_datamodel::mapping::{attributes_of, variable_of};
use slabfs_datamodel::npy::header;
use slabfs_datamodel::tree::{Exact, Group, Variable};
use slabfs_datamodel::zarr::nodes;
use slabfs_mdserver::api::{ArrayInfo, Attr, Ino};
use slabfs_model::{DTypeKind, MaxDim, Tag};

use super::describe;

/// Bytes of a chunk of a Zarr array, at most, if one row of elements has not more.
const CHUNK: u64 = 4 << 20;
/// Bytes of a chunk of an array that grows: a reader of the last rows reads no more than that for nothing.
const GROWING_CHUNK: u64 = 64 << 10;

/// A file of a view.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Made {
    /// The object or container that it is made of.
    pub of: Ino,
    /// What it has.
    pub content: Content,
}

/// What a file of a view has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Content {
    /// These bytes.
    Text(Vec<u8>),
    /// A header, and all elements of the object.
    Elements(Vec<u8>, Form),
    /// The elements of a chunk; those beyond the object are its fill value.
    Chunk(Chunk),
    /// A file of HDF5.
    Hdf5(Arc<Hdf5File>),
}

/// A file of HDF5, which is laid out when it is opened. Each is another one.
#[derive(Debug)]
pub struct Hdf5File {
    /// The container or object.
    pub of: Ino,
    /// What it has, once it was opened.
    pub layout: OnceLock<Arc<Layout>>,
}

impl PartialEq for Hdf5File {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Hdf5File {}

impl Hash for Hdf5File {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self).hash(state);
    }
}

/// What a file has, and where.
#[derive(Debug)]
pub struct Layout {
    /// Identifies what it was made of.
    pub key: [u8; 32],
    /// Bytes of the file.
    pub size: u64,
    /// What it has besides elements, by offset; all other bytes are zero.
    pub parts: Vec<(u64, Arc<Vec<u8>>)>,
    /// Where the elements of objects begin, in this order, and the forms of the objects.
    pub elements: Vec<(u64, Ino, Form)>,
}

/// The form of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Form {
    /// Elements per axis.
    pub dims: Vec<u64>,
    /// Bytes of an element.
    pub elem: u64,
}

/// A chunk of a Zarr array.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// The form of the object.
    pub form: Form,
    /// The first element.
    pub start: Vec<u64>,
    /// The shape of the chunk.
    pub shape: Vec<u64>,
    /// The element that was never written; empty for zero.
    pub fill: Vec<u8>,
}

/// A directory of chunks, whose names are indices along the next axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChunkDirectory {
    /// The object.
    pub of: Ino,
    /// Indices along the axes before.
    pub index: Vec<u64>,
}

/// Why there is no such file; the text is for the log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoView(pub String);

impl Form {
    /// The form of an object.
    pub fn of(info: &ArrayInfo) -> Form {
        Form {
            dims: info.dims.to_vec(),
            elem: info.dtype.size(),
        }
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> u64 {
        self.dims
            .iter()
            .fold(self.elem, |all, &len| all.saturating_mul(len))
    }

    /// The box from `start` to `end` as a selection.
    pub fn selection(start: &[u64], end: &[u64]) -> String {
        let axes = start.iter().zip(end);
        let axes: Vec<String> = axes.map(|(start, end)| format!("{start}:{end}")).collect();
        format!("[{}]", axes.join(","))
    }
}

impl Content {
    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        match self {
            Content::Text(text) => text.len() as u64,
            Content::Elements(header, form) => form.bytes().saturating_add(header.len() as u64),
            Content::Chunk(chunk) => chunk.bytes(),
            Content::Hdf5(file) => file.layout.get().map_or(0, |layout| layout.size),
        }
    }
}

impl Chunk {
    /// Bytes of all its elements.
    pub fn bytes(&self) -> u64 {
        self.shape
            .iter()
            .fold(self.form.elem, |all, &len| all.saturating_mul(len))
    }

    /// The first element after it that the object has, on each axis.
    pub fn end(&self) -> Vec<u64> {
        let axes = self.start.iter().zip(&self.shape).zip(&self.form.dims);
        axes.map(|((start, len), dim)| (start + len).min(*dim))
            .collect()
    }

    /// All of it is in the object.
    pub fn is_complete(&self) -> bool {
        let axes = self.start.iter().zip(&self.shape).zip(&self.form.dims);
        axes.into_iter()
            .all(|((start, len), dim)| start + len <= *dim)
    }
}

/// The tags of an object as JSON, which says their types.
pub fn tags(tags: Vec<(String, Tag)>) -> Map<String, Value> {
    let tags = tags
        .into_iter()
        .map(|(key, tag)| (key, tag.to_typed_json()));
    tags.collect()
}

/// Whether the type of an object's elements may be said by a tag.
pub fn needs_tags(info: &ArrayInfo) -> bool {
    match info.dtype.kind() {
        DTypeKind::Void => true,
        DTypeKind::Int => info.dtype.size() == 8,
        _ => false,
    }
}

fn variable(
    name: &str,
    attr: &Attr,
    info: &ArrayInfo,
    tags: &Map<String, Value>,
) -> Result<Variable, NoView> {
    let json = describe::object(attr, info, 0);
    variable_of(name, &json, tags).map_err(|error| NoView(error.to_string()))
}

/// The `.npy` file of an object.
///
/// # Errors
/// NumPy has no such type.
pub fn npy(attr: &Attr, info: &ArrayInfo, tags: &Map<String, Value>) -> Result<Content, NoView> {
    let mut variable = variable("array", attr, info, tags)?;
    if !matches!(variable.exact, Some(Exact::Numpy(_))) {
        // The elements are as the dtype says.
        variable.exact = None;
    }
    let header = header::write(&variable).map_err(|why| NoView(format!("it {why}")))?;
    Ok(Content::Elements(header, Form::of(info)))
}

/// `zarr.json` of a container.
///
/// # Errors
/// Zarr cannot have its attributes.
pub fn zarr_group(tags: &Map<String, Value>) -> Result<Content, NoView> {
    let group = Group {
        attributes: attributes_of(tags).map_err(|error| NoView(error.to_string()))?,
        ..Group::default()
    };
    let json = nodes::group(&group);
    let json = json.map_err(|error| NoView(format!("{} {}", error.of, error.why)))?;
    Ok(Content::Text(format!("{json:#}\n").into_bytes()))
}

/// `zarr.json` of an object.
///
/// # Errors
/// Zarr cannot have its type or attributes.
pub fn zarr_array(
    attr: &Attr,
    info: &ArrayInfo,
    tags: &Map<String, Value>,
) -> Result<Content, NoView> {
    let mut variable = variable("array", attr, info, tags)?;
    if matches!(variable.exact, Some(Exact::Strings { .. })) {
        // Their bytes are those of padded texts.
        variable.exact = None;
    }
    let codecs = Value::from(vec![nodes::bytes_codec(&variable)]);
    let json = nodes::array(&variable, &chunk_shape(info), codecs);
    let json = json.map_err(|error| NoView(format!("it{} {}", error.of, error.why)))?;
    Ok(Content::Text(format!("{json:#}\n").into_bytes()))
}

/// The shape of the chunks of an object's view as a Zarr array. It depends on how far the axes may grow, and not on how long
/// they are: a reader has the shape of the time when it opened the array.
pub fn chunk_shape(info: &ArrayInfo) -> Vec<u64> {
    let elem = info.dtype.size().max(1);
    let mut shape = vec![1; info.dims.len()];
    let mut left = CHUNK / elem;
    let mut row = 1;
    for axis in (0..shape.len()).rev() {
        shape[axis] = match info.max_dims.get(axis) {
            Some(MaxDim::Fixed(most)) => left.clamp(1, (*most).max(1)),
            _ => left.min(GROWING_CHUNK / elem / row).max(1),
        };
        left /= shape[axis];
        row *= shape[axis];
    }
    shape
}

/// How many chunks there are along each axis.
pub fn chunk_counts(info: &ArrayInfo) -> Vec<u64> {
    let axes = info.dims.iter().zip(chunk_shape(info));
    axes.map(|(dim, len)| dim.div_ceil(len)).collect()
}

/// The chunk with this index; `None` if there is none.
pub fn chunk(info: &ArrayInfo, index: &[u64]) -> Option<Chunk> {
    let counts = chunk_counts(info);
    let is_there =
        index.len() == counts.len() && index.iter().zip(&counts).all(|(at, len)| at < len);
    is_there.then(|| {
        let shape = chunk_shape(info);
        Chunk {
            form: Form::of(info),
            start: index.iter().zip(&shape).map(|(at, len)| at * len).collect(),
            shape,
            fill: info.fill.bytes().to_vec(),
        }
    })
}

/// The elements of a chunk of which the object has a part, with fill values for the others.
pub fn padded(chunk: &Chunk, data: &[u8]) -> Vec<u8> {
    let elem = chunk.form.elem as usize;
    let elements = chunk.shape.iter().product::<u64>() as usize;
    let mut out = match chunk.fill.is_empty() {
        true => vec![0; elements * elem],
        false => chunk.fill.repeat(elements),
    };
    let end = chunk.end();
    let count: Vec<u64> = end
        .iter()
        .zip(&chunk.start)
        .map(|(end, start)| end - start)
        .collect();
    let Some((&last, outer)) = count.split_last() else {
        out.copy_from_slice(data);
        return out;
    };
    let row = last as usize * elem;
    let mut at = vec![0_u64; outer.len()];
    for bytes in data.chunks_exact(row.max(1)) {
        let index = at
            .iter()
            .zip(&chunk.shape)
            .fold(0, |all, (at, len)| all * len + at);
        let begin = (index * chunk.shape[outer.len()]) as usize * elem;
        out[begin..begin + row].copy_from_slice(bytes);
        for axis in (0..outer.len()).rev() {
            at[axis] += 1;
            if at[axis] < outer[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slabfs_mdserver::api::Given;
    use slabfs_model::{Codec, Coords, Fill, Layout, Version};

    use super::{ArrayInfo, Chunk, Form, MaxDim, chunk_shape, padded};

    fn info(dims: &[u64], dtype: &str, grows: bool) -> ArrayInfo {
        let mut max_dims: Vec<MaxDim> = dims.iter().map(|&dim| MaxDim::Fixed(dim)).collect();
        if let Some(first) = max_dims.first_mut().filter(|_| grows) {
            *first = MaxDim::Unlimited;
        }
        ArrayInfo {
            dtype: dtype.parse().expect("a dtype"),
            dims: Coords::from_slice(dims),
            max_dims,
            fill: Fill::from_bytes(&[]),
            layout: Layout::Aligned,
            codec: Codec::None,
            declared: true,
            given: Given::default(),
            holds: false,
            generation: 0,
            placement: "dynamic".parse().expect("a placement"),
            stripe: Vec::new(),
            blocks: None,
            tiling: Version(0),
            chunk_limit: 64 << 20,
            couple: slabfs_model::Coupling::Off,
        }
    }

    #[test]
    fn chunks_have_a_size_that_suits_readers() {
        for (dims, dtype, grows, expected) in [
            (&[][..], "f4", false, &[][..]),
            (&[10], "f8", false, &[10]),
            (&[1 << 30], "u1", false, &[4 << 20]),
            (&[100, 1000, 1000], "f4", false, &[1, 1000, 1000]),
            (&[100, 10, 10], "f4", false, &[100, 10, 10]),
            (&[3, 5000, 5000], "f8", false, &[1, 104, 5000]),
            (&[7, 1000, 1000], "f4", true, &[1, 1000, 1000]),
            (&[0, 100], "f4", true, &[163, 100]),
            (&[1 << 20], "f4", true, &[16384]),
            (&[5, 0], "i2", false, &[5, 1]),
        ] {
            let info = info(dims, dtype, grows);
            assert_eq!(chunk_shape(&info), expected, "{dims:?}");
        }
    }

    #[test]
    fn growth_does_not_change_chunks() {
        for rows in [0, 1, 1000, 1 << 40] {
            let mut info = info(&[rows, 33, 7], "f4", true);
            assert_eq!(chunk_shape(&info), [70, 33, 7]);
            info.dims[1] = 5;
            assert_eq!(chunk_shape(&info), [70, 33, 7], "it may grow to 33");
            info.max_dims[1] = MaxDim::Unlimited;
            assert_eq!(chunk_shape(&info), [1, 2340, 7]);
        }
    }

    proptest! {
        /// Chunks put together are the array, and the rest is the fill value.
        #[test]
        fn chunks_are_the_array(dims in proptest::collection::vec(1_u64..7, 0..4), cut in proptest::collection::vec(1_u64..5, 4)) {
            let count = dims.iter().product::<u64>();
            let form = Form { dims: dims.clone(), elem: 2 };
            let shape: Vec<u64> = cut.iter().take(dims.len()).copied().collect();
            let element = |index: &[u64]| {
                let at = index.iter().zip(&dims).fold(0, |all, (at, len)| all * len + at);
                (at as u16 + 1).to_le_bytes()
            };
            let mut seen = 0;
            let counts: Vec<u64> = dims.iter().zip(&shape).map(|(dim, len)| dim.div_ceil(*len)).collect();
            for number in 0..counts.iter().product::<u64>() {
                let (mut rest, mut start) = (number, vec![0; dims.len()]);
                for axis in (0..dims.len()).rev() {
                    start[axis] = rest % counts[axis] * shape[axis];
                    rest /= counts[axis];
                }
                let chunk = Chunk { form: form.clone(), start: start.clone(), shape: shape.clone(), fill: vec![9, 9] };
                let end = chunk.end();
                let cells = |start: &[u64], shape: &[u64]| -> Vec<Vec<u64>> {
                    let all = shape.iter().product::<u64>();
                    (0..all).map(|mut at| {
                        let mut index = start.to_vec();
                        for axis in (0..shape.len()).rev() {
                            index[axis] += at % shape[axis];
                            at /= shape[axis];
                        }
                        index
                    }).collect()
                };
                let part: Vec<u64> = end.iter().zip(&start).map(|(end, start)| end - start).collect();
                let data: Vec<u8> = cells(&start, &part).iter().flat_map(|index| element(index)).collect();
                let found = padded(&chunk, &data);
                prop_assert_eq!(found.len() as u64, chunk.bytes());
                for (index, two) in cells(&start, &shape).iter().zip(found.chunks(2)) {
                    let inside = index.iter().zip(&dims).all(|(at, dim)| at < dim);
                    let expected = if inside { element(index) } else { [9, 9] };
                    prop_assert_eq!(two, &expected[..]);
                    seen += u64::from(inside);
                }
            }
            prop_assert_eq!(seen, count);
        }
    }
}
