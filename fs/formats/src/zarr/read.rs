//! Reads a Zarr directory into the model, and the data of its arrays.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value as Json, json};
use slabfs_datamodel::zarr::types::{self, Element};
use slabfs_datamodel::zarr::words::plain_words;
use slabfs_datamodel::zarr::{FILL, attributes};
use zarrs::array::{Array, ArrayBytes, ArrayMetadata, ArraySubset};

use super::metadata::Node;
use super::store::Store;
use crate::boxes::{Block, Boxes};
use crate::source::Source;
use crate::tree::{Deflate, Exact, Group, Value, Variable};
use crate::{FormatError, Result};

/// Groups nested deeper than this are refused.
const MAX_DEPTH: usize = 64;
/// Larger chunks are refused: they are decoded in memory.
const LARGEST_CHUNK: u64 = 2 << 30;
/// Longest string of an array.
const LONGEST_STRING: usize = 1 << 16;
/// How much of an array of strings is read at a time, in elements.
const STRINGS: u64 = 1 << 16;

/// An open Zarr directory.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    store: Arc<Store>,
    tree: Group,
    /// The arrays by path.
    arrays: HashMap<String, Open>,
    /// The directory is an array, not a group.
    alone: bool,
}

#[derive(Debug)]
struct Open {
    array: Array<Store>,
    chunk: Vec<u64>,
}

impl Reader {
    /// Opens a directory and reads the metadata of everything in it.
    ///
    /// # Errors
    /// It is no Zarr directory, or an array has a type or codec that is not supported.
    pub fn open(path: &Path) -> Result<Reader> {
        let store =
            Store::open(path).map_err(|error| FormatError::file(path, "opening it", &error))?;
        let mut reader = Reader {
            path: path.to_owned(),
            store: Arc::new(store),
            tree: Group::default(),
            arrays: HashMap::new(),
            alone: false,
        };
        let node = reader.node("")?;
        let Some(node) = node else {
            return Err(FormatError::unsupported(
                path,
                "the directory",
                "has no zarr.json, .zgroup or .zarray: it is no Zarr directory",
            ));
        };
        reader.alone = node.array.is_some();
        reader.tree = match reader.alone {
            true => {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                let variable = reader.array("", &name, node)?;
                Group {
                    variables: vec![variable],
                    ..Group::default()
                }
            }
            false => reader.group("", "", node, 0)?,
        };
        Ok(reader)
    }

    fn bad(&self, what: &str, why: impl Into<String>) -> FormatError {
        FormatError::unsupported(&self.path, format!("/{what}"), why)
    }

    fn node(&self, path: &str) -> Result<Option<Node>> {
        let prefix = match path.is_empty() {
            true => String::new(),
            false => format!("{path}/"),
        };
        Node::read(&self.store, &prefix).map_err(|why| self.bad(path, format!(": {why}")))
    }

    fn group(&mut self, path: &str, name: &str, node: Node, depth: usize) -> Result<Group> {
        if depth > MAX_DEPTH {
            return Err(self.bad(path, "is nested too deep"));
        }
        let mut group = Group {
            name: name.to_owned(),
            attributes: attributes::read(&node.attributes),
            ..Group::default()
        };
        for (name, place) in self.below(path)? {
            let Some(node) = self.node(&place)? else {
                continue;
            };
            match node.array.is_some() {
                true => group.variables.push(self.array(&place, &name, node)?),
                false => group
                    .groups
                    .push(self.group(&place, &name, node, depth + 1)?),
            }
        }
        Ok(group)
    }

    /// The directories in a group, sorted by name: names, and paths below the root.
    fn below(&self, path: &str) -> Result<Vec<(String, String)>> {
        let failed = |error: std::io::Error| {
            FormatError::file(&self.path, format!("reading /{path}"), &error)
        };
        let mut below = Vec::new();
        for entry in std::fs::read_dir(self.path.join(path)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let kind = entry.file_type().map_err(failed)?;
            // A link is followed only for what it has in the directory: `Store` opens nothing else.
            if !kind.is_dir() && !kind.is_symlink() {
                continue;
            }
            let Some(name) = name.to_str() else {
                return Err(self.bad(&name.to_string_lossy(), "has a name that is not UTF-8"));
            };
            let place = match path.is_empty() {
                true => name.to_owned(),
                false => format!("{path}/{name}"),
            };
            below.push((name.to_owned(), place));
        }
        below.sort();
        Ok(below)
    }

    fn array(&mut self, path: &str, name: &str, node: Node) -> Result<Variable> {
        let what = if path.is_empty() { name } else { path };
        let mut metadata = node.array.unwrap_or_default();
        plain_words(&mut metadata);
        let element = element(&metadata).map_err(|why| self.bad(what, why))?;
        let deflate = deflate(&metadata);
        let fill = prepare(&mut metadata, &element).map_err(|why| self.bad(what, why))?;
        let parsed: ArrayMetadata = serde_json::from_value(metadata)
            .map_err(|error| self.bad(what, format!("has metadata that is wrong: {error}")))?;
        let place = format!("/{path}");
        let array = Array::new_with_metadata(self.store.clone(), &place, parsed)
            .map_err(|error| self.bad(what, format!("cannot be read: {error}")))?;
        let shape = array.shape().to_vec();
        if shape.len() > 1024 {
            return Err(self.bad(what, "has too many axes"));
        }
        let chunk = array.chunk_shape(&vec![0; shape.len()]);
        let chunk = chunk.map_err(|error| self.bad(what, error.to_string()))?;
        let chunk: Vec<u64> = chunk.iter().map(|len| len.get()).collect();
        let mut open = Open { array, chunk };
        let dtype = match element.dtype {
            Some(dtype) => dtype,
            None => {
                let longest = self.longest(what, &mut open)?;
                format!("S{}", longest.max(1))
                    .parse()
                    .map_err(|error| self.bad(what, format!("{error}")))?
            }
        };
        let largest = open
            .chunk
            .iter()
            .fold(dtype.size(), |all, &len| all.saturating_mul(len));
        if largest > LARGEST_CHUNK {
            return Err(self.bad(
                what,
                format!("has chunks of {largest} bytes; at most 2 GiB are read"),
            ));
        }
        let fill = match (fill, element.dtype) {
            (Some(fill), _) => Some(fill),
            (None, Some(_)) => Some(open.array.fill_value().as_ne_bytes().to_vec()),
            (None, None) => {
                let mut fill = open.array.fill_value().as_ne_bytes().to_vec();
                fill.resize(dtype.size() as usize, 0);
                Some(fill)
            }
        };
        let mut variable = Variable::new(name, dtype).with_axes(&shape);
        if let Some(names) = node.dims {
            if names.len() != shape.len() {
                return Err(self.bad(what, "has another number of names than of axes"));
            }
            for (dim, name) in variable.dims.iter_mut().zip(names) {
                dim.dim.name = name;
            }
        }
        variable.exact = element.exact;
        variable.deflate = deflate;
        variable.fill = fill;
        variable.chunk = (!shape.is_empty()).then(|| open.chunk.clone());
        variable.attributes = attributes::read(&node.attributes);
        for attribute in &mut variable.attributes {
            if let Value::Text(text) = &attribute.value
                && attribute.name == FILL
                && let Some(value) = attributes::decoded_fill(&dtype, text)
            {
                attribute.value = value;
            }
        }
        self.arrays.insert(path.to_owned(), open);
        Ok(variable)
    }

    /// The bytes of the longest string of an array.
    fn longest(&self, what: &str, open: &mut Open) -> Result<usize> {
        let mut longest = open.array.fill_value().as_ne_bytes().len();
        let shape = open.array.shape().to_vec();
        for block in Boxes::chunks(&shape, &open.chunk, 1, STRINGS) {
            let (_, offsets) = self.strings(what, open, &block)?;
            let lengths = offsets.windows(2).map(|two| two[1] - two[0]);
            longest = lengths.fold(longest, usize::max);
        }
        match longest <= LONGEST_STRING {
            true => Ok(longest),
            false => Err(self.bad(
                what,
                format!("has a string of {longest} bytes; at most {LONGEST_STRING} are supported"),
            )),
        }
    }

    fn decoded(&self, what: &str, open: &Open, block: &Block) -> Result<ArrayBytes<'static>> {
        let subset = ArraySubset::new_with_start_shape(block.start.clone(), block.count.clone())
            .map_err(|error| self.bad(what, error.to_string()))?;
        open.array
            .retrieve_array_subset::<ArrayBytes<'static>>(&subset)
            .map_err(|error| FormatError::file(&self.path, format!("reading /{what}"), &error))
    }

    fn strings(&self, what: &str, open: &Open, block: &Block) -> Result<(Vec<u8>, Vec<usize>)> {
        let decoded = self.decoded(what, open, block)?.into_variable();
        let decoded = decoded.map_err(|error| self.bad(what, error.to_string()))?;
        let (bytes, offsets) = decoded.into_parts();
        Ok((bytes.into_owned(), offsets.to_vec()))
    }

    fn find(&self, group: &str, variable: &Variable) -> Result<(String, &Open)> {
        let path = match (self.alone, group.is_empty()) {
            (true, _) => String::new(),
            (false, true) => variable.name.clone(),
            (false, false) => format!("{group}/{}", variable.name),
        };
        match self.arrays.get(&path) {
            Some(open) => Ok((path, open)),
            None => Err(self.bad(&path, "is no array")),
        }
    }
}

/// The element of an array's metadata.
fn element(metadata: &Json) -> std::result::Result<Element, String> {
    match metadata["zarr_format"].as_u64() {
        Some(2) => types::version2(&metadata["dtype"], &metadata["filters"]),
        Some(3) => types::version3(&metadata["data_type"], is_big(&metadata["codecs"])),
        _ => Err("has a zarr_format that is not 2 or 3".to_owned()),
    }
}

/// The filters that come nearest to the codecs of an array; `None` if it is not compressed.
fn deflate(metadata: &Json) -> Option<Deflate> {
    let mut found = None;
    let mut shuffle = false;
    let mut left = vec![
        &metadata["codecs"],
        &metadata["compressor"],
        &metadata["filters"],
    ];
    while let Some(codec) = left.pop() {
        if let Json::Array(members) = codec {
            left.extend(members);
            continue;
        }
        let configuration = match codec["configuration"].is_object() {
            true => &codec["configuration"],
            false => codec,
        };
        left.extend(configuration.get("codecs"));
        let name = codec["name"].as_str().or_else(|| codec["id"].as_str());
        let name = name.unwrap_or_default();
        let level = match name.strip_prefix("numcodecs.").unwrap_or(name) {
            "gzip" | "zlib" => configuration["level"].as_u64().unwrap_or(1),
            "blosc" => {
                let mode = &configuration["shuffle"];
                shuffle |= *mode != "noshuffle" && *mode != 0;
                1
            }
            "zstd" | "lz4" | "lzma" | "bz2" => 1,
            "shuffle" => {
                shuffle = true;
                continue;
            }
            _ => continue,
        };
        found = Some(level.clamp(1, 9) as u32);
    }
    found.map(|level| Deflate { level, shuffle })
}

/// Whether the codec `bytes`, also one in shards, stores the most significant byte first.
fn is_big(codecs: &Json) -> bool {
    let codecs = codecs.as_array().map(Vec::as_slice).unwrap_or_default();
    codecs.iter().any(|codec| {
        let configuration = &codec["configuration"];
        let own = codec["name"] == "bytes" && configuration["endian"] == "big";
        own || is_big(&configuration["codecs"])
    })
}

/// Gives elements that are opaque to the decoder an opaque type; their fill value is returned.
fn prepare(metadata: &mut Json, element: &Element) -> std::result::Result<Option<Vec<u8>>, String> {
    let version2 = metadata["zarr_format"] == 2;
    if version2 && let Some(chunks) = metadata["chunks"].as_array_mut() {
        // Of an axis of no elements.
        chunks
            .iter_mut()
            .filter(|len| **len == 0)
            .for_each(|len| *len = json!(1));
    }
    let Some(dtype) = element.dtype.filter(|_| element.opaque) else {
        return Ok(None);
    };
    let fill = match (&element.exact, &metadata["fill_value"]) {
        // Not a date.
        (Some(Exact::Numpy(_)), Json::String(text)) if text == "NaT" => {
            let bits = i64::MIN.to_le_bytes();
            Some(bits.to_vec())
        }
        (_, json) => types::opaque_fill(&dtype, json),
    };
    let fill = fill.ok_or_else(|| {
        format!(
            "has the fill value {}, which is not of its type",
            metadata["fill_value"]
        )
    })?;
    let bytes = dtype.size();
    match version2 {
        true => metadata["dtype"] = json!(format!("|V{bytes}")),
        false => metadata["data_type"] = json!(format!("r{}", 8 * bytes)),
    }
    metadata["fill_value"] = json!(fill);
    Ok(Some(fill))
}

impl Source for Reader {
    fn tree(&self) -> &Group {
        &self.tree
    }

    fn boxes(&self, group: &str, variable: &Variable, part: u64) -> Result<Boxes> {
        let (_, open) = self.find(group, variable)?;
        let elem = variable.dtype.size();
        Ok(Boxes::chunks(&variable.shape(), &open.chunk, elem, part))
    }

    fn read(
        &self,
        group: &str,
        variable: &Variable,
        block: &Block,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let (path, open) = self.find(group, variable)?;
        let elem = variable.dtype.size() as usize;
        out.clear();
        if let Some(Exact::Strings { .. }) = variable.exact {
            let (bytes, offsets) = self.strings(&path, open, block)?;
            for two in offsets.windows(2) {
                let text = bytes.get(two[0]..two[1]).unwrap_or_default();
                if text.len() > elem {
                    return Err(self.bad(&path, "was changed while it was read"));
                }
                out.extend(text);
                out.resize(out.len() + elem - text.len(), 0);
            }
            return Ok(());
        }
        let decoded = self.decoded(&path, open, block)?.into_fixed();
        let decoded = decoded.map_err(|error| self.bad(&path, error.to_string()))?;
        out.extend(decoded.iter());
        match out.len() as u64 == block.elements() * variable.dtype.size() {
            true => Ok(()),
            false => Err(self.bad(&path, "has a chunk of another size")),
        }
    }

    fn in_order(&self) -> bool {
        false
    }

    fn is_array(&self) -> bool {
        self.alone
    }
}
