//! NumPy's `.npz` files: zip archives of `.npy` files, one a variable.
//!
//! Members are read as a stream, so that compressed ones need no memory; their checksums are compared at the end. A `/` in
//! a name makes groups. `write` is the writer.

mod write;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use flate2::Crc;
use flate2::read::DeflateDecoder;
use slabfs_datamodel::npy::header::Header;
use zip::{CompressionMethod, ZipArchive};

use crate::boxes::{Block, Boxes};
use crate::npy::elements::Elements;
use crate::source::Source;
use crate::tree::{Deflate, Group, Variable};
use crate::{FormatError, Result};

pub use write::Writer;

/// How data of compressed members is stored.
const COMPRESSED: Deflate = Deflate {
    level: 1,
    shuffle: true,
};
/// More members than this are refused.
const MOST: usize = 1 << 20;

/// An open `.npz` file.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    tree: Group,
    members: Vec<Member>,
    /// The stream of the member that was read last.
    open: Mutex<Option<(usize, Stream)>>,
}

/// A member of the archive.
#[derive(Debug)]
struct Member {
    /// The path of the variable.
    name: String,
    place: Place,
    /// The bytes of its header.
    begin: u64,
    elements: Elements,
}

/// Where the bytes of a member are.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: u64,
    stored: u64,
    size: u64,
    deflated: bool,
    crc: u32,
}

/// The uncompressed bytes of a member.
struct Stream {
    from: Box<dyn Read + Send>,
    position: u64,
    sum: Crc,
    place: Place,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl Stream {
    fn open(path: &Path, place: Place) -> io::Result<Stream> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(place.start))?;
        let stored = io::BufReader::with_capacity(1 << 18, file.take(place.stored));
        let from: Box<dyn Read + Send> = match place.deflated {
            true => Box::new(DeflateDecoder::new(stored)),
            false => Box::new(stored),
        };
        Ok(Stream {
            from,
            position: 0,
            sum: Crc::new(),
            place,
        })
    }

    /// Fills `out` from this position, which is not before what was read last.
    fn read_at(&mut self, position: u64, out: &mut [u8]) -> io::Result<()> {
        let mut skipped = vec![0; (position - self.position).min(1 << 16) as usize];
        while self.position < position {
            let some = (position - self.position).min(skipped.len() as u64) as usize;
            self.take(&mut skipped[..some])?;
        }
        self.take(out)?;
        if self.position == self.place.size && self.sum.sum() != self.place.crc {
            return Err(io::Error::other("its checksum is wrong; it is damaged"));
        }
        Ok(())
    }

    fn take(&mut self, out: &mut [u8]) -> io::Result<()> {
        self.from.read_exact(out)?;
        self.sum.update(out);
        self.position += out.len() as u64;
        Ok(())
    }
}

impl Reader {
    /// Opens a file.
    ///
    /// # Errors
    /// It is no zip archive, is damaged, or has members that are no `.npy` files or that are encrypted.
    pub fn open(path: &Path) -> Result<Reader> {
        let failed = |why: &dyn std::fmt::Display| FormatError::file(path, "reading it", why);
        let file = File::open(path).map_err(|error| failed(&error))?;
        let mut archive =
            ZipArchive::new(io::BufReader::new(file)).map_err(|error| failed(&error))?;
        if archive.len() > MOST {
            return Err(failed(&"it has too many members"));
        }
        let mut reader = Reader {
            path: path.to_owned(),
            tree: Group::default(),
            members: Vec::new(),
            open: Mutex::new(None),
        };
        for index in 0..archive.len() {
            let entry = archive
                .by_index_raw(index)
                .map_err(|error| failed(&error))?;
            let name = entry.name().map_err(|error| failed(&error))?.into_owned();
            let bad = |why: &str| FormatError::unsupported(path, format!("member {name:?}"), why);
            let deflated = match entry.compression() {
                CompressionMethod::Stored => false,
                CompressionMethod::Deflated => true,
                _ => return Err(bad("has a compression that NumPy does not use")),
            };
            if entry.encrypted() {
                return Err(bad("is encrypted"));
            }
            let place = Place {
                start: entry
                    .data_start()
                    .ok_or_else(|| bad("has no place in the file"))?,
                stored: entry.compressed_size(),
                size: entry.size(),
                deflated,
                crc: entry.crc32(),
            };
            reader.add(&name, place)?;
        }
        Ok(reader)
    }

    fn add(&mut self, name: &str, place: Place) -> Result<()> {
        let bad =
            |why: String| FormatError::unsupported(&self.path, format!("member {name:?}"), why);
        let Some(path) = name.strip_suffix(".npy") else {
            return Err(bad("is no .npy file".to_owned()));
        };
        let mut stream = Stream::open(&self.path, place).map_err(|error| bad(error.to_string()))?;
        let header = Header::read(&mut stream.from).map_err(&bad)?;
        let begin = header.len;
        let (groups, last) = path.rsplit_once('/').unwrap_or(("", path));
        let (mut variable, elements) = (header.variable(last), Elements::of(&header));
        variable.deflate = place.deflated.then_some(COMPRESSED);
        let needed = elements.bytes().and_then(|bytes| bytes.checked_add(begin));
        if needed.is_none_or(|needed| place.size < needed) {
            return Err(bad("is truncated".to_owned()));
        }
        if self.members.iter().any(|member| member.name == path) {
            return Err(bad("is there twice".to_owned()));
        }
        let mut group = &mut self.tree;
        for part in groups.split('/').filter(|part| !part.is_empty()) {
            let at = group.groups.iter().position(|known| known.name == part);
            let at = at.unwrap_or_else(|| {
                group.groups.push(Group {
                    name: part.to_owned(),
                    ..Group::default()
                });
                group.groups.len() - 1
            });
            group = &mut group.groups[at];
        }
        group.variables.push(variable);
        self.members.push(Member {
            name: path.to_owned(),
            place,
            begin,
            elements,
        });
        Ok(())
    }

    fn member(&self, group: &str, variable: &Variable) -> Result<usize> {
        let wanted = path_of(group, variable);
        let found = self
            .members
            .iter()
            .position(|member| member.name.trim_start_matches('/') == wanted);
        found.ok_or_else(|| FormatError::unsupported(&self.path, wanted, "is no member"))
    }
}

fn path_of(group: &str, variable: &Variable) -> String {
    match group.is_empty() {
        true => variable.name.clone(),
        false => format!("{group}/{}", variable.name),
    }
}

impl Source for Reader {
    fn tree(&self) -> &Group {
        &self.tree
    }

    fn boxes(&self, group: &str, variable: &Variable, part: u64) -> Result<Boxes> {
        let member = &self.members[self.member(group, variable)?];
        Ok(member.elements.boxes(part))
    }

    fn read(
        &self,
        group: &str,
        variable: &Variable,
        block: &Block,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let index = self.member(group, variable)?;
        let member = &self.members[index];
        let mut open = self
            .open
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        member.elements.read(block, out, |offset, bytes| {
            let position = member.begin + offset;
            let failed = |error: io::Error| {
                FormatError::file(&self.path, format!("reading {}", member.name), &error)
            };
            let stream = match open.take() {
                Some((known, stream)) if known == index && stream.position <= position => stream,
                _ => Stream::open(&self.path, member.place).map_err(failed)?,
            };
            let (_, stream) = open.insert((index, stream));
            stream.read_at(position, bytes).map_err(failed)
        })
    }
}
