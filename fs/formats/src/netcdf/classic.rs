//! How long a classic NetCDF file must be, by its header.
//!
//! The library reads what is missing at the end of a file as zeros, so a truncated file has to be noticed here. The
//! format is that of "NetCDF Classic Format Specification" with its 64-bit offset and 64-bit data variants.

use std::fs::File;
use std::io::{self, BufReader, Read};

/// More members than this in a list are not believed.
const MOST: u64 = 1 << 24;
const DIMENSION: u64 = 10;
const VARIABLE: u64 = 11;
const ATTRIBUTE: u64 = 12;

/// The bytes that the file has at least if all its data is there; more than any file has if its header is not complete.
/// `None` if it is no classic file.
///
/// # Errors
/// Its header is wrong; the library would take as much memory as that says.
pub(super) fn needed(file: &File) -> io::Result<Option<u64>> {
    let mut head = Header {
        from: BufReader::new(file),
        is_classic: false,
        wide_counts: false,
        wide_offsets: false,
    };
    match head.needed() {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(match head.is_classic {
            true => Some(u64::MAX),
            false => None,
        }),
        needed => needed,
    }
}

struct Header<'a> {
    from: BufReader<&'a File>,
    is_classic: bool,
    /// Counts have 8 bytes (CDF-5).
    wide_counts: bool,
    /// Positions have 8 bytes (CDF-2 and CDF-5).
    wide_offsets: bool,
}

impl Header<'_> {
    fn needed(&mut self) -> io::Result<Option<u64>> {
        let mut magic = [0; 4];
        self.from.read_exact(&mut magic)?;
        match &magic {
            b"CDF\x01" => {}
            b"CDF\x02" => self.wide_offsets = true,
            b"CDF\x05" => (self.wide_offsets, self.wide_counts) = (true, true),
            _ => return Ok(None),
        }
        self.is_classic = true;
        let records = self.count()?;
        let streaming = match self.wide_counts {
            true => records == u64::MAX,
            false => records == u64::from(u32::MAX),
        };
        let records = if streaming { 0 } else { records };
        let mut dims = Vec::new();
        for _ in 0..self.list(DIMENSION)? {
            self.name()?;
            dims.push(self.count()?);
        }
        self.attributes()?;
        let mut variables = Vec::new();
        for _ in 0..self.list(VARIABLE)? {
            variables.push(self.variable(&dims)?);
        }
        Ok(Some(end(&variables, records)))
    }

    fn number(&mut self, wide: bool) -> io::Result<u64> {
        let mut bytes = [0; 8];
        let from = if wide { 0 } else { 4 };
        self.from.read_exact(&mut bytes[from..])?;
        Ok(u64::from_be_bytes(bytes))
    }

    fn count(&mut self) -> io::Result<u64> {
        self.number(self.wide_counts)
    }

    /// The length of a list with this tag.
    fn list(&mut self, tag: u64) -> io::Result<u64> {
        let (found, len) = (self.number(false)?, self.count()?);
        let right = found == tag || (found == 0 && len == 0);
        match right && len <= MOST {
            true => Ok(len),
            false => Err(io::Error::other("a list that is none")),
        }
    }

    /// Skips bytes with their padding.
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let padded = bytes.checked_next_multiple_of(4);
        let padded = padded.ok_or_else(|| io::Error::other("an impossible length"))?;
        let skipped = io::copy(&mut self.from.by_ref().take(padded), &mut io::sink())?;
        match skipped == padded {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn name(&mut self) -> io::Result<()> {
        let len = self.count()?;
        self.skip(len)
    }

    fn attributes(&mut self) -> io::Result<()> {
        for _ in 0..self.list(ATTRIBUTE)? {
            self.name()?;
            let size = size_of(self.number(false)?)?;
            let len = self.count()?;
            self.skip(len.saturating_mul(size))?;
        }
        Ok(())
    }

    fn variable(&mut self, dims: &[u64]) -> io::Result<Variable> {
        self.name()?;
        let rank = self.count()?;
        if rank > 1024 {
            return Err(io::Error::other("too many dimensions"));
        }
        let mut lengths = Vec::new();
        for _ in 0..rank {
            let dim = usize::try_from(self.count()?).ok();
            let len = dim.and_then(|dim| dims.get(dim));
            lengths.push(*len.ok_or_else(|| io::Error::other("no such dimension"))?);
        }
        self.attributes()?;
        let size = size_of(self.number(false)?)?;
        self.count()?;
        let begin = self.number(self.wide_offsets)?;
        // A record dimension has the length 0 here.
        let record = lengths.first() == Some(&0);
        let lengths = &lengths[usize::from(record)..];
        let bytes = lengths
            .iter()
            .fold(size, |all, &len| all.saturating_mul(len));
        Ok(Variable {
            begin,
            bytes,
            record,
        })
    }
}

struct Variable {
    begin: u64,
    /// Of all of it, or of one record, without padding.
    bytes: u64,
    record: bool,
}

/// The end of the data of the last variable.
fn end(variables: &[Variable], records: u64) -> u64 {
    let recorded = variables.iter().filter(|variable| variable.record);
    let padded = |bytes: u64| bytes.checked_next_multiple_of(4).unwrap_or(bytes);
    let stride = match recorded.clone().count() {
        // One record variable has no padding between its records.
        1 => recorded.map(|variable| variable.bytes).sum(),
        _ => recorded
            .map(|variable| padded(variable.bytes))
            .fold(0, u64::saturating_add),
    };
    let ends = variables.iter().map(|variable| {
        let before = match (variable.record, records) {
            (true, 0) => return 0,
            (true, records) => stride.saturating_mul(records - 1),
            (false, _) => 0,
        };
        variable
            .begin
            .saturating_add(before)
            .saturating_add(variable.bytes)
    });
    ends.max().unwrap_or(0)
}

fn size_of(typ: u64) -> io::Result<u64> {
    Ok(match typ {
        1 | 2 | 7 => 1,
        3 | 8 => 2,
        4 | 5 | 9 => 4,
        6 | 10 | 11 => 8,
        _ => return Err(io::Error::other("no such type")),
    })
}
