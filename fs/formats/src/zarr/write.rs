//! Writes the model and the data of its variables as a Zarr version 3 directory.
//!
//! Deflate becomes gzip, and blosc with its shuffle where the bytes of elements are transposed. Chunks have about
//! [`CHUNK`] bytes; those that have nothing but the fill value are not stored. There is no consolidated metadata.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use slabfs_datamodel::zarr::nodes;
use zarrs::array::{Array, ArrayBytes, ArrayMetadata};

use super::store::NewStore;
use crate::boxes::{Block, Boxes, chunk_shape};
use crate::output::Output;
use crate::sink::Sink;
use crate::tree::{Exact, Group, Variable};
use crate::{FormatError, Result};

/// Bytes of a chunk.
const CHUNK: u64 = 4 << 20;

/// A Zarr directory that is being written.
#[derive(Debug)]
pub struct Writer {
    output: Output,
    store: Arc<NewStore>,
    /// The arrays by path.
    arrays: HashMap<String, New>,
}

#[derive(Debug)]
struct New {
    array: Array<NewStore>,
    chunk: Vec<u64>,
    fill: Vec<u8>,
}

impl Writer {
    /// Creates a directory with all metadata. A directory of that name is replaced only if it is a Zarr directory.
    ///
    /// # Errors
    /// It cannot be written; Zarr cannot have what the tree has.
    pub fn create(path: &Path, tree: &Group) -> Result<Writer> {
        let zarr = ["zarr.json", ".zgroup", ".zarray"];
        if path.exists() && !zarr.iter().any(|name| path.join(name).exists()) {
            return Err(FormatError::unsupported(
                path,
                "it",
                "exists and is no Zarr directory; remove it, or give another name",
            ));
        }
        let output = Output::at(path)?;
        let store = Arc::new(NewStore {
            path: output.unfinished().to_owned(),
        });
        let mut writer = Writer {
            output,
            store,
            arrays: HashMap::new(),
        };
        let mut failed = None;
        tree.each(&mut |path, group| {
            if failed.is_none() {
                failed = writer.group(path, group).err();
            }
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(writer),
        }
    }

    fn bad(&self, what: &str, why: impl Into<String>) -> FormatError {
        FormatError::unsupported(self.output.path(), what, why)
    }

    fn put(&self, path: &str, json: &Json) -> Result<()> {
        let name = joined(path, "zarr.json");
        let text = format!("{json:#}");
        self.store
            .put(&name, text.as_bytes())
            .map_err(|error| FormatError::file(self.output.path(), "writing it", &error))
    }

    fn group(&mut self, path: &str, group: &Group) -> Result<()> {
        let json =
            nodes::group(group).map_err(|error| self.bad(&joined(path, &error.of), error.why))?;
        self.put(path, &json)?;
        for variable in &group.variables {
            self.array(&joined(path, &variable.name), variable)?;
        }
        Ok(())
    }

    fn array(&mut self, path: &str, variable: &Variable) -> Result<()> {
        let shape = variable.shape();
        let elem = variable.dtype.size();
        let chunk = chunk_shape(&shape, elem, CHUNK);
        let strings = matches!(variable.exact, Some(Exact::Strings { .. }));
        let json = nodes::array(variable, &chunk, codecs(variable, strings));
        let mut json = json.map_err(|error| self.bad(&format!("{path}{}", error.of), error.why))?;
        self.put(path, &json)?;
        let zero = vec![0; elem as usize];
        let fill = variable
            .fill
            .clone()
            .filter(|fill| fill.len() == zero.len());
        let fill = fill.unwrap_or(zero);
        if !strings {
            // The bytes of elements are stored as they are.
            json["data_type"] = json!(format!("r{}", 8 * elem));
            json["fill_value"] = json!(fill);
        }
        json["attributes"] = json!({});
        let metadata: ArrayMetadata =
            serde_json::from_value(json).map_err(|error| self.bad(path, error.to_string()))?;
        let array = Array::new_with_metadata(self.store.clone(), &format!("/{path}"), metadata)
            .map_err(|error| self.bad(path, format!("cannot be written: {error}")))?;
        self.arrays
            .insert(path.to_owned(), New { array, chunk, fill });
        Ok(())
    }
}

fn joined(path: &str, name: &str) -> String {
    match path.is_empty() {
        true => name.to_owned(),
        false => format!("{path}/{name}"),
    }
}

fn codecs(variable: &Variable, strings: bool) -> Json {
    let elem = variable.dtype.size();
    let first = nodes::bytes_codec(variable);
    match variable.deflate.filter(|deflate| deflate.level > 0) {
        None => json!([first]),
        Some(deflate) if deflate.shuffle && elem <= 255 && !strings => json!([first, {
            "name": "blosc",
            "configuration": {
                "cname": "zlib", "clevel": deflate.level, "shuffle": "shuffle", "typesize": elem, "blocksize": 0,
            },
        }]),
        Some(deflate) => {
            json!([first, { "name": "gzip", "configuration": { "level": deflate.level } }])
        }
    }
}

impl Sink for Writer {
    fn boxes(&self, group: &str, variable: &Variable, _part: u64) -> Boxes {
        let shape = variable.shape();
        match self.arrays.get(&joined(group, &variable.name)) {
            // One chunk each.
            Some(new) => Boxes::chunks(&shape, &new.chunk, 1, 1),
            None => Boxes::none(),
        }
    }

    fn write(
        &mut self,
        group: &str,
        variable: &Variable,
        block: &Block,
        data: &[u8],
    ) -> Result<()> {
        let path = joined(group, &variable.name);
        let Some(new) = self.arrays.get(&path) else {
            return Err(self.bad(&path, "is no array"));
        };
        let elem = variable.dtype.size() as usize;
        let padded = pad(block, &new.chunk, &new.fill, data);
        let index = block.start.iter().zip(&new.chunk);
        let index: Vec<u64> = index.map(|(start, chunk)| start / chunk).collect();
        let bytes = match variable.exact {
            Some(Exact::Strings { .. }) => strings(&padded, elem),
            _ => Ok(ArrayBytes::new_flen(padded)),
        };
        let bytes = bytes.map_err(|why| self.bad(&path, why))?;
        let stored = new.array.store_chunk(&index, bytes);
        stored.map_err(|error| {
            FormatError::file(self.output.path(), format!("writing {path}"), &error)
        })
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.output.finish()
    }
}

/// The data of a chunk at the end of an axis, with fill values after it.
fn pad(block: &Block, chunk: &[u64], fill: &[u8], data: &[u8]) -> Vec<u8> {
    if block.count == chunk {
        return data.to_vec();
    }
    let elements = chunk.iter().product::<u64>() as usize;
    let mut padded = fill.repeat(elements);
    let row = block.count.last().copied().unwrap_or(1) as usize * fill.len();
    let rank = chunk.len();
    let mut at = vec![0_u64; rank];
    for bytes in data.chunks_exact(row.max(1)) {
        let index = at
            .iter()
            .zip(chunk)
            .fold(0, |all, (&at, &len)| all * len + at);
        let begin = index as usize * fill.len();
        padded[begin..begin + row].copy_from_slice(bytes);
        for axis in (0..rank.saturating_sub(1)).rev() {
            at[axis] += 1;
            if at[axis] < block.count[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
    padded
}

/// Padded strings as those of variable length.
fn strings(padded: &[u8], elem: usize) -> std::result::Result<ArrayBytes<'static>, String> {
    let mut bytes = Vec::new();
    let mut offsets = vec![0];
    for text in padded.chunks_exact(elem) {
        let len = text
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |at| at + 1);
        std::str::from_utf8(&text[..len]).map_err(|_| "has a string that is not UTF-8")?;
        bytes.extend(&text[..len]);
        offsets.push(bytes.len());
    }
    let offsets =
        zarrs::array::ArrayBytesOffsets::new(offsets).map_err(|error| error.to_string())?;
    ArrayBytes::new_vlen(bytes, offsets).map_err(|error| error.to_string())
}
