//! Headers of NetCDF-3 files: classic, 64-bit offset and CDF-5.
//!
//! The format is that of the "NetCDF Classic Format Specification". Only what collating needs is taken; sizes are checked
//! against the file before memory is allocated for them. Unlike the NetCDF library, which reads zeros, a file that is shorter
//! than its header says is refused.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use super::tile::{
    DECOMPOSITION, Description, Element, Format, Identity, PACKING, Storage, Tile, TileDim,
    TileVariable,
};
use crate::{FormatError, Result};

const DIMENSIONS: u32 = 0x0a;
const VARIABLES: u32 = 0x0b;
const ATTRIBUTES: u32 = 0x0c;
/// The most axes of a variable.
const MAX_RANK: u64 = 1024;
/// Bytes of the longest attribute that is looked into.
const LONGEST: u64 = 1 << 16;

/// Why a header cannot be read.
enum Damage {
    Io(std::io::Error),
    Invalid(String),
}

impl From<std::io::Error> for Damage {
    fn from(error: std::io::Error) -> Damage {
        Damage::Io(error)
    }
}

fn invalid<T>(what: impl Into<String>) -> std::result::Result<T, Damage> {
    Err(Damage::Invalid(what.into()))
}

type Parsed<T> = std::result::Result<T, Damage>;

/// Whether the first bytes of a file are those of NetCDF-3.
pub(super) fn is_classic(start: &[u8]) -> bool {
    start.starts_with(b"CDF\x01") || start.starts_with(b"CDF\x02") || start.starts_with(b"CDF\x05")
}

/// Reads what a file has.
pub(super) fn read(path: &Path, file: &File, identity: Identity) -> Result<Tile> {
    let mut header = Header {
        from: BufReader::new(file),
        len: identity.len,
        version: 0,
    };
    header.tile(path, identity).map_err(|damage| match damage {
        Damage::Io(error) => FormatError::Library {
            path: path.to_owned(),
            what: "reading its header".to_owned(),
            why: match error.kind() {
                std::io::ErrorKind::UnexpectedEof => "the file is cut off".to_owned(),
                _ => error.to_string(),
            },
        },
        Damage::Invalid(why) => FormatError::Unsupported {
            path: path.to_owned(),
            what: "its header".to_owned(),
            why,
        },
    })
}

struct Header<'a> {
    from: BufReader<&'a File>,
    len: u64,
    version: u8,
}

/// The attributes of a variable that matter.
#[derive(Default)]
struct Attributes {
    packing: BTreeMap<String, Vec<u8>>,
    values: BTreeMap<String, (u32, Vec<u8>)>,
}

impl Header<'_> {
    fn tile(&mut self, path: &Path, identity: Identity) -> Parsed<Tile> {
        let mut magic = [0; 4];
        self.from.read_exact(&mut magic)?;
        self.version = magic[3];
        let records = self.number()?;
        let mut dims = Vec::new();
        for _ in 0..self.list(DIMENSIONS, 8)? {
            let name = self.name()?;
            dims.push((name, self.number()?));
        }
        self.attributes()?;
        let mut variables = Vec::new();
        for _ in 0..self.list(VARIABLES, 28)? {
            variables.push(self.variable(&dims)?);
        }
        let records = self.records(records, &variables)?;
        let record = record_size(&variables);
        let all = variables.iter();
        let variables = all
            .map(|one| self.placed(one, records, record))
            .collect::<Parsed<Vec<_>>>()?;
        let dims = dims.iter().map(|(name, len)| {
            let path = format!("/{name}");
            let own = variables
                .iter()
                .find(|one: &&TileVariable| one.path == path && one.dims.len() == 1);
            let dim = TileDim {
                len: if *len == 0 { records } else { *len },
                unlimited: *len == 0,
                decomposition: own.and_then(|own| own.decomposition),
            };
            (path, dim)
        });
        Ok(Tile {
            path: path.to_owned(),
            identity,
            format: Format::Classic,
            dims: dims.collect(),
            variables,
        })
    }

    /// The number of records; a file whose writer did not know it has as many as fit.
    fn records(&self, stored: u64, variables: &[Raw]) -> Parsed<u64> {
        let unknown = match self.version {
            5 => u64::MAX,
            _ => u64::from(u32::MAX),
        };
        if stored != unknown {
            return Ok(stored);
        }
        let first = variables
            .iter()
            .filter(|one| one.grows)
            .map(|one| one.begin)
            .min();
        let left = first.map_or(0, |first| self.len.saturating_sub(first));
        Ok(left.checked_div(record_size(variables)).unwrap_or(0))
    }

    fn variable(&mut self, dims: &[(String, u64)]) -> Parsed<Raw> {
        let name = self.name()?;
        let rank = self.number()?;
        if rank > MAX_RANK {
            return invalid(format!("has a variable {name} of {rank} axes"));
        }
        let mut axes = Vec::new();
        for _ in 0..rank {
            let at = self.number()? as usize;
            match dims.get(at) {
                Some(dim) => axes.push(dim.clone()),
                None => return invalid(format!("has a variable {name} with an unknown dimension")),
            }
        }
        let attributes = self.attributes()?;
        let typ = self.word()?;
        let Some(size) = size_of_type(typ) else {
            return invalid(format!("has a variable {name} of the unknown type {typ}"));
        };
        self.number()?;
        let begin = match self.version {
            1 => u64::from(self.word()?),
            _ => self.long()?,
        };
        let grows = axes.first().is_some_and(|(_, len)| *len == 0);
        let fixed = axes.iter().skip(usize::from(grows));
        let elements = fixed
            .clone()
            .try_fold(size, |all, (_, len)| all.checked_mul(*len));
        let bytes = elements.filter(|&bytes| bytes <= self.len);
        match bytes {
            Some(bytes) => Ok(Raw {
                name,
                axes,
                attributes,
                typ,
                size,
                begin,
                grows,
                bytes,
            }),
            None => invalid(format!(
                "has a variable {name} that is longer than the file; the file may be cut off"
            )),
        }
    }

    /// The variable, when the number of records is known.
    fn placed(&self, raw: &Raw, records: u64, record: u64) -> Parsed<TileVariable> {
        let shape: Vec<u64> = raw
            .axes
            .iter()
            .map(|(_, len)| if *len == 0 { records } else { *len })
            .collect();
        let last = match raw.grows {
            true => records
                .checked_sub(1)
                .and_then(|last| last.checked_mul(record)),
            false => Some(0),
        };
        let empty = raw.bytes == 0 || (raw.grows && records == 0);
        let end = last.and_then(|last| last.checked_add(raw.begin)?.checked_add(raw.bytes));
        if !empty && end.is_none_or(|end| end > self.len) {
            return invalid(format!(
                "says that variable {} ends after the file; the file is cut off",
                raw.name
            ));
        }
        let element = |name: &str| {
            let value = raw.attributes.values.get(name);
            value
                .filter(|(typ, bytes)| *typ == raw.typ && bytes.len() as u64 == raw.size)
                .map(|(_, bytes)| bytes.clone())
        };
        let fill = element("_FillValue").or_else(|| default_fill(raw.typ));
        let decomposition = match raw.attributes.values.get(DECOMPOSITION) {
            Some((4, bytes)) if bytes.len() == 16 => {
                let numbers = bytes.as_chunks::<4>().0;
                Some(std::array::from_fn(|at| {
                    i64::from(i32::from_be_bytes(numbers[at]))
                }))
            }
            Some(_) => {
                return invalid(format!(
                    "has an attribute {}:{DECOMPOSITION} that is not four integers",
                    raw.name
                ));
            }
            None => None,
        };
        let description = Description {
            path: format!("/{}", raw.name),
            bare_dim: false,
            element: Element {
                key: vec![raw.typ as u8],
                size: raw.size as usize,
                number: raw.typ != 2,
                big_endian: true,
                flat: true,
            },
            dims: raw
                .axes
                .iter()
                .map(|(name, _)| format!("/{name}"))
                .collect(),
            growing: raw.axes.iter().map(|(_, len)| *len == 0).collect(),
            filters: Vec::new(),
            fill,
            packing: raw.attributes.packing.clone(),
            missing: element("_FillValue").or_else(|| element("missing_value")),
        };
        Ok(TileVariable {
            description: Arc::new(description),
            shape,
            storage: Storage::Plain {
                offset: Some(raw.begin),
                stride: raw.grows.then_some(record),
            },
            decomposition,
        })
    }

    fn attributes(&mut self) -> Parsed<Attributes> {
        let mut all = Attributes::default();
        for _ in 0..self.list(ATTRIBUTES, 12)? {
            let name = self.name()?;
            let typ = self.word()?;
            let count = self.number()?;
            let bytes = size_of_type(typ).and_then(|size| size.checked_mul(count));
            let Some(bytes) = bytes.filter(|&bytes| bytes <= self.len) else {
                return invalid(format!(
                    "has an attribute {name} that is longer than the file"
                ));
            };
            let wanted = name == DECOMPOSITION || PACKING.contains(&name.as_str());
            if !wanted || bytes > LONGEST {
                self.skip(bytes.next_multiple_of(4))?;
                continue;
            }
            let mut value = vec![0; bytes.next_multiple_of(4) as usize];
            self.from.read_exact(&mut value)?;
            value.truncate(bytes as usize);
            if PACKING.contains(&name.as_str()) {
                let mut key = vec![typ as u8];
                key.extend(&value);
                all.packing.insert(name.clone(), key);
            }
            all.values.insert(name, (typ, value));
        }
        Ok(all)
    }

    /// The length of a list; `least` is how many bytes a member has at least.
    fn list(&mut self, tag: u32, least: u64) -> Parsed<u64> {
        let found = self.word()?;
        let count = self.number()?;
        match (found, count) {
            (0, 0) => Ok(0),
            (found, count) if found == tag && count <= self.len / least => Ok(count),
            _ => invalid("is damaged"),
        }
    }

    fn name(&mut self) -> Parsed<String> {
        let len = self.number()?;
        if len > LONGEST {
            return invalid("has a name of more than 64 KiB");
        }
        let mut bytes = vec![0; len.next_multiple_of(4) as usize];
        self.from.read_exact(&mut bytes)?;
        bytes.truncate(len as usize);
        String::from_utf8(bytes).or_else(|_| invalid("has a name that is not UTF-8"))
    }

    fn skip(&mut self, bytes: u64) -> Parsed<()> {
        self.from.seek_relative(bytes as i64)?;
        match self.from.stream_position()? <= self.len {
            true => Ok(()),
            false => invalid("ends after the file; the file is cut off"),
        }
    }

    fn word(&mut self) -> Parsed<u32> {
        let mut bytes = [0; 4];
        self.from.read_exact(&mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn long(&mut self) -> Parsed<u64> {
        let mut bytes = [0; 8];
        self.from.read_exact(&mut bytes)?;
        Ok(u64::from_be_bytes(bytes))
    }

    /// A count, which has 8 bytes in CDF-5.
    fn number(&mut self) -> Parsed<u64> {
        match self.version {
            5 => self.long(),
            _ => self.word().map(u64::from),
        }
    }
}

/// A variable as the header has it; `bytes` are those of one record if it grows, without padding.
struct Raw {
    name: String,
    axes: Vec<(String, u64)>,
    attributes: Attributes,
    typ: u32,
    size: u64,
    begin: u64,
    grows: bool,
    bytes: u64,
}

/// Bytes of a record of all variables; one alone is not padded.
fn record_size(variables: &[Raw]) -> u64 {
    let growing: Vec<u64> = variables
        .iter()
        .filter(|one| one.grows)
        .map(|one| one.bytes)
        .collect();
    match growing.as_slice() {
        [one] => *one,
        all => all
            .iter()
            .map(|bytes| bytes.next_multiple_of(4))
            .fold(0, u64::saturating_add),
    }
}

fn size_of_type(typ: u32) -> Option<u64> {
    match typ {
        1 | 2 | 7 => Some(1),
        3 | 8 => Some(2),
        4 | 5 | 9 => Some(4),
        6 | 10 | 11 => Some(8),
        _ => None,
    }
}

/// The fill values of the NetCDF library.
fn default_fill(typ: u32) -> Option<Vec<u8>> {
    Some(match typ {
        1 => vec![0x81],
        2 => vec![0],
        3 => (-32767_i16).to_be_bytes().to_vec(),
        4 => (-2147483647_i32).to_be_bytes().to_vec(),
        5 => 9.969_21e36_f32.to_be_bytes().to_vec(),
        6 => 9.969209968386869e36_f64.to_be_bytes().to_vec(),
        7 => vec![255],
        8 => 65535_u16.to_be_bytes().to_vec(),
        9 => 4294967295_u32.to_be_bytes().to_vec(),
        10 => (-9223372036854775806_i64).to_be_bytes().to_vec(),
        11 => 18446744073709551614_u64.to_be_bytes().to_vec(),
        _ => return None,
    })
}
