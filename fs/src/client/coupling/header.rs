//! Headers of coupled files in the classic formats of NetCDF.
//!
//! A program that opens such a file reads its header, and knows from it where the data is. PnetCDF reads the header in
//! pieces of 256 KiB, and so asks for data that the file may not have yet, and does not use it. With the setting
//! `header=early` a read of at most that length that begins in front of the data is answered as soon as the header is
//! there; what is not written is zero in it, also beyond the present end of the file. A program that copies the file in
//! such pieces would copy zeros: so this is a setting, for files that only PnetCDF reads. (The C library of NetCDF reads
//! more at a time, by `st_blksize`, and uses all of it: its reads wait for all their bytes.)
//!
//! The grammar is that of the classic file format, versions 1, 2 and 5: "NetCDF Classic Format Specification" and "CDF-5
//! format", unidata.ucar.edu. Pure but for the reading of the header.

use slabfs_mdserver::api::Outcome;
use slabfs_model::Region;

use crate::client::coupling::Awaited;
use crate::client::error::FsError;
use crate::client::handle::{Handle, ReadSink};

/// The longest read that is answered early: `NC_DEFAULT_CHUNKSIZE` of PnetCDF.
const LONGEST: usize = 256 << 10;
/// Headers are looked for in so many bytes.
const MOST: u64 = 16 << 20;

/// What has become of a read that may be one of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Early {
    /// It is answered.
    Answered,
    /// It is not answered, and has waited for its bytes.
    Matched(Awaited),
    /// Its bytes have to be waited for.
    Other,
}

/// What the beginning of a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beginning {
    /// It is no file of these formats.
    Other,
    /// The header has more bytes than these.
    Incomplete,
    /// The header is complete: where it ends, and where the data begins.
    Header { end: u64, data: u64 },
}

impl Handle {
    /// Answers a read of a header early, if it is one.
    ///
    /// # Errors
    /// As of a read.
    pub(in crate::client) fn read_header(
        &self,
        offset: u64,
        len: usize,
        sink: &mut dyn ReadSink,
    ) -> Result<Early, FsError> {
        let (is_bytes, generation) = {
            let geometry = self.object.geometry.read();
            let couple = geometry.info.couple.on();
            let is_early = couple.is_some_and(|couple| couple.early_header);
            let is_bytes = !geometry.info.declared && self.selected.is_none();
            (is_early && is_bytes, geometry.info.generation)
        };
        let end = offset.saturating_add(len as u64);
        if !is_bytes || self.writable || len > LONGEST || end > MOST {
            return Ok(Early::Other);
        }
        let known = *self.object.data_from.lock();
        if known.is_some_and(|(of, data)| of == generation && offset >= data) {
            return Ok(Early::Other);
        }
        let own = |_: &_| vec![Region::new(&[offset], &[end - offset])];
        if self.client.knows_cells(&self.object, &own)? {
            return Ok(Early::Matched(Awaited::Cells));
        }
        self.client.count_match();
        let (found, awaited) = self
            .client
            .match_cells(&self.object, &own, false, &|| true)?;
        if matches!(found, Outcome::Covered | Outcome::Ended) {
            return Ok(Early::Matched(awaited));
        }
        let note = |data| *self.object.data_from.lock() = Some((generation, data));
        let mut need = end;
        loop {
            let from_start = |upto: u64| vec![Region::new(&[0], &[upto])];
            let cells = |_: &_| from_start(need);
            // The first time it only looks; then it waits for the next bytes of the header.
            let waits = need != end;
            self.client.count_match();
            let (outcome, awaited) =
                self.client
                    .match_cells(&self.object, &cells, waits, &|| sink.is_wanted())?;
            let outcome = match (outcome, waits) {
                (Outcome::Covered, true) => {
                    need = end;
                    continue;
                }
                (outcome, _) => outcome,
            };
            let missing = match outcome {
                Outcome::Waits(missing) => missing,
                Outcome::Covered | Outcome::Ended => {
                    self.client.watch(&self.object);
                    return Ok(Early::Matched(awaited));
                }
                _ => return Ok(Early::Other),
            };
            let there = missing.iter().map(|region| region.offset[0]).min();
            let there = there.unwrap_or(0);
            let bytes = self.bytes(0, there as usize)?;
            match beginning(&bytes) {
                Beginning::Other => {
                    note(0);
                    return Ok(Early::Other);
                }
                Beginning::Incomplete => need = there + 1,
                Beginning::Header { end, data } => {
                    note(data);
                    if end > there || offset >= data {
                        return Ok(Early::Other);
                    }
                    let mut reply = self.bytes(offset, len)?;
                    reply.resize(len, 0);
                    sink.give(&reply);
                    return Ok(Early::Answered);
                }
            }
        }
    }

    /// Bytes that are there already, as far as the object reaches.
    fn bytes(&self, offset: u64, len: usize) -> Result<Vec<u8>, FsError> {
        let mut bytes = Vec::new();
        self.read_there(offset, len, &mut |part: &[u8]| {
            bytes.extend_from_slice(part)
        })?;
        Ok(bytes)
    }
}

/// Parses the beginning of a file.
fn beginning(bytes: &[u8]) -> Beginning {
    let magic = b"CDF";
    let known = bytes.len().min(3);
    if bytes[..known] != magic[..known] {
        return Beginning::Other;
    }
    let Some(&version) = bytes.get(3) else {
        return Beginning::Incomplete;
    };
    if !matches!(version, 1 | 2 | 5) {
        return Beginning::Other;
    }
    let mut parser = Parser {
        bytes,
        at: 4,
        version,
    };
    match parser.header() {
        Ok((end, data)) => Beginning::Header { end, data },
        Err(Stop::Short) => Beginning::Incomplete,
        Err(Stop::Wrong) => Beginning::Other,
    }
}

enum Stop {
    /// The bytes end within the header.
    Short,
    /// It is no header.
    Wrong,
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: u64,
    version: u8,
}

impl Parser<'_> {
    fn header(&mut self) -> Result<(u64, u64), Stop> {
        self.count()?;
        self.list(10, &mut |parser| {
            parser.name()?;
            parser.count().map(drop)
        })?;
        self.attributes()?;
        let mut data = None;
        self.list(11, &mut |parser| {
            parser.name()?;
            let rank = parser.count()?;
            let width = if parser.version == 5 { 8 } else { 4 };
            parser.skip(rank.checked_mul(width).ok_or(Stop::Wrong)?)?;
            parser.attributes()?;
            parser.u32()?;
            parser.count()?;
            let begin = match parser.version {
                1 => u64::from(parser.u32()?),
                _ => parser.u64()?,
            };
            data = Some(data.map_or(begin, |least: u64| least.min(begin)));
            Ok(())
        })?;
        Ok((self.at, data.unwrap_or(self.at)))
    }

    fn attributes(&mut self) -> Result<(), Stop> {
        self.list(12, &mut |parser| {
            parser.name()?;
            let size = match parser.u32()? {
                1 | 2 | 7 => 1,
                3 | 8 => 2,
                4 | 5 | 9 => 4,
                6 | 10 | 11 => 8,
                _ => return Err(Stop::Wrong),
            };
            let count = parser.count()?;
            parser.padded(count.checked_mul(size).ok_or(Stop::Wrong)?)
        })
    }

    /// A list: its tag and length, or two zeros.
    fn list(
        &mut self,
        tag: u32,
        each: &mut dyn FnMut(&mut Self) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let found = self.u32()?;
        let count = self.count()?;
        if found != tag && (found, count) != (0, 0) {
            return Err(Stop::Wrong);
        }
        for _ in 0..count {
            each(self)?;
        }
        Ok(())
    }

    fn name(&mut self) -> Result<(), Stop> {
        let len = self.count()?;
        self.padded(len)
    }

    fn padded(&mut self, len: u64) -> Result<(), Stop> {
        self.skip(len.checked_next_multiple_of(4).ok_or(Stop::Wrong)?)
    }

    fn skip(&mut self, len: u64) -> Result<(), Stop> {
        if len > MOST {
            return Err(Stop::Wrong);
        }
        self.at += len;
        match self.at <= self.bytes.len() as u64 {
            true => Ok(()),
            false => Err(Stop::Short),
        }
    }

    fn count(&mut self) -> Result<u64, Stop> {
        match self.version {
            5 => self.u64(),
            _ => Ok(u64::from(self.u32()?)),
        }
    }

    fn u32(&mut self) -> Result<u32, Stop> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, Stop> {
        Ok(u64::from_be_bytes(self.take()?))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let from = self.at as usize;
        let found = self
            .bytes
            .get(from..from + N)
            .and_then(|part| part.try_into().ok());
        self.at += N as u64;
        found.ok_or(Stop::Short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with one dim, one attribute of the file, and two variables.
    fn header(version: u8) -> Vec<u8> {
        let wide = version == 5;
        let mut bytes = vec![b'C', b'D', b'F', version];
        let count = |bytes: &mut Vec<u8>, n: u64| match wide {
            true => bytes.extend(n.to_be_bytes()),
            false => bytes.extend((n as u32).to_be_bytes()),
        };
        let number = |bytes: &mut Vec<u8>, n: u32| bytes.extend(n.to_be_bytes());
        let name = |bytes: &mut Vec<u8>, name: &str| {
            count(bytes, name.len() as u64);
            bytes.extend(name.bytes());
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        };
        count(&mut bytes, 3);
        number(&mut bytes, 10);
        count(&mut bytes, 1);
        name(&mut bytes, "x");
        count(&mut bytes, 7);
        number(&mut bytes, 12);
        count(&mut bytes, 1);
        name(&mut bytes, "title");
        number(&mut bytes, 2);
        name(&mut bytes, "a text");
        number(&mut bytes, 11);
        count(&mut bytes, 2);
        for (variable, begin) in [("height", 5000u64), ("v", 4096)] {
            name(&mut bytes, variable);
            count(&mut bytes, 1);
            count(&mut bytes, 0);
            number(&mut bytes, 0);
            count(&mut bytes, 0);
            number(&mut bytes, 5);
            count(&mut bytes, 28);
            match version {
                1 => number(&mut bytes, begin as u32),
                _ => bytes.extend(begin.to_be_bytes()),
            }
        }
        bytes
    }

    #[test]
    fn headers_of_all_versions_end_where_they_end() {
        for version in [1, 2, 5] {
            let bytes = header(version);
            let end = bytes.len() as u64;
            let found = Beginning::Header { end, data: 4096 };
            assert_eq!(beginning(&bytes), found);
            let mut more = bytes.clone();
            more.extend([0; 100]);
            assert_eq!(beginning(&more), found);
            for short in 0..bytes.len() {
                assert_eq!(
                    beginning(&bytes[..short]),
                    Beginning::Incomplete,
                    "{version} {short}"
                );
            }
        }
        let empty = b"CDF\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(beginning(empty), Beginning::Header { end: 32, data: 32 });
    }

    #[test]
    fn other_files_are_other_files() {
        for bytes in [
            &b"\x89HDF\r\n\x1a\n"[..],
            b"CDG",
            b"CDF\x03",
            b"C D",
            b"CDF\x01\0\0\0\0\0\0\0\x0b\0\0\0\x01",
            b"CDF\x05\0\0\0\0\0\0\0\0\0\0\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(beginning(bytes), Beginning::Other, "{}", bytes.escape_ascii());
        }
        let mut bytes = header(2);
        for at in 4..bytes.len() {
            let old = std::mem::replace(&mut bytes[at], 0xff);
            beginning(&bytes);
            bytes[at] = old;
        }
    }
}
