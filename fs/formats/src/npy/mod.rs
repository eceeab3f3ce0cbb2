//! NumPy's `.npy` files: one array each.
//!
//! `slabfs-datamodel` reads and writes the header, `elements` has the data that follows it, also for
//! [`crate::npz`]. All versions of the header are read, in C and Fortran order; C order is written. Big-endian elements
//! stay as they are. Structured types and others that slabfs has not become `V` (dates `i8`) with their type
//! ([`crate::tree::Exact::Numpy`]); pickled objects are refused.

pub(crate) mod elements;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::boxes::{Block, Boxes};
use crate::output::Output;
use crate::sink::Sink;
use crate::source::Source;
use crate::tree::{Group, Variable};
use crate::{FormatError, Result};

use elements::Elements;
use slabfs_datamodel::npy::header::{self, Header};

/// An open `.npy` file.
#[derive(Debug)]
pub struct Reader {
    file: File,
    path: PathBuf,
    /// Where the data begins.
    begin: u64,
    elements: Elements,
    tree: Group,
}

impl Reader {
    /// Opens a file.
    ///
    /// # Errors
    /// It is no such file, is truncated, or has pickled objects.
    pub fn open(path: &Path) -> Result<Reader> {
        let failed = |error: std::io::Error| FormatError::file(path, "reading it", &error);
        let mut file = File::open(path).map_err(failed)?;
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let header = Header::read(&mut file)
            .map_err(|why| FormatError::unsupported(path, "its header", why))?;
        let begin = header.len;
        let (variable, elements) = (header.variable(&name), Elements::of(&header));
        let needed = elements.bytes().and_then(|bytes| bytes.checked_add(begin));
        let has = file.metadata().map_err(failed)?.len();
        if needed.is_none_or(|needed| has < needed) {
            return Err(FormatError::unsupported(
                path,
                "its data",
                format!("is incomplete: the file has {has} bytes; it is truncated"),
            ));
        }
        let tree = Group {
            variables: vec![variable],
            ..Group::default()
        };
        Ok(Reader {
            file,
            path: path.to_owned(),
            begin,
            elements,
            tree,
        })
    }
}

impl Source for Reader {
    fn tree(&self) -> &Group {
        &self.tree
    }

    fn boxes(&self, _group: &str, _variable: &Variable, part: u64) -> Result<Boxes> {
        Ok(self.elements.boxes(part))
    }

    fn read(
        &self,
        _group: &str,
        _variable: &Variable,
        block: &Block,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.elements.read(block, out, |offset, bytes| {
            self.file
                .read_exact_at(bytes, self.begin + offset)
                .map_err(|error| FormatError::file(&self.path, "reading it", &error))
        })
    }

    fn in_order(&self) -> bool {
        false
    }

    fn is_array(&self) -> bool {
        true
    }
}

/// A `.npy` file that is being written.
#[derive(Debug)]
pub struct Writer {
    file: File,
    output: Output,
    begin: u64,
}

impl Writer {
    /// Creates the file for the only variable of `tree`.
    ///
    /// # Errors
    /// The directory cannot be written, or NumPy has no such type.
    pub fn create(path: &Path, tree: &Group) -> Result<Writer> {
        let variable = tree
            .variables
            .first()
            .ok_or_else(|| FormatError::unsupported(path, "the source", "has no array"))?;
        let header = header::write(variable)
            .map_err(|why| FormatError::unsupported(path, &variable.name, why))?;
        let output = Output::at(path)?;
        let failed = |error: std::io::Error| FormatError::file(path, "creating it", &error);
        let file = File::create_new(output.unfinished()).map_err(failed)?;
        file.write_all_at(&header, 0).map_err(failed)?;
        Ok(Writer {
            file,
            output,
            begin: header.len() as u64,
        })
    }
}

impl Sink for Writer {
    fn write(
        &mut self,
        _group: &str,
        variable: &Variable,
        block: &Block,
        data: &[u8],
    ) -> Result<()> {
        let offset = elements::offset(variable, block)
            .ok_or_else(|| elements::no_row(self.output.path(), variable))?;
        self.file
            .write_all_at(data, self.begin + offset)
            .map_err(|error| FormatError::file(self.output.path(), "writing it", &error))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        drop(self.file);
        self.output.finish()
    }
}
