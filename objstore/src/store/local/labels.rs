//! Encodes a chunk's name and form for the heads of files and records.
//!
//! All integers are little-endian. The name: a kind (u8: 0 free, 1 grid); free: id u64; grid: object u64, generation
//! u32, rank u8, one u64 per axis. The form: rank u8, shape (u64 per axis), element size u32, codec u8 and level i32,
//! fill length u32 and the fill's bytes.

use slabfs_model::{ChunkId, Codec, Coords, Fill, MAX_RANK, ObjectId};

use crate::name::{ChunkForm, ChunkName};

/// The number at `at` of bytes that reach that far.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut out = [0; 4];
    out.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(out)
}

/// The number at `at` of bytes that reach that far.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Appends a name and a form.
pub(super) fn write(name: &ChunkName, form: &ChunkForm, out: &mut Vec<u8>) {
    write_name(name, out);
    write_form(form, out);
}

/// Appends a name.
pub(super) fn write_name(name: &ChunkName, out: &mut Vec<u8>) {
    match name {
        ChunkName::Free(id) => {
            out.push(0);
            out.extend_from_slice(&id.0.to_le_bytes());
        }
        ChunkName::Grid {
            object,
            generation,
            at,
        } => {
            out.push(1);
            out.extend_from_slice(&object.0.to_le_bytes());
            out.extend_from_slice(&generation.to_le_bytes());
            write_coords(at, out);
        }
    }
}

fn write_form(form: &ChunkForm, out: &mut Vec<u8>) {
    write_coords(&form.shape, out);
    out.extend_from_slice(&form.elem.to_le_bytes());
    let (codec, level) = form.codec.number();
    out.push(codec);
    out.extend_from_slice(&level.to_le_bytes());
    let fill = form.fill.bytes();
    out.extend_from_slice(&(fill.len() as u32).to_le_bytes());
    out.extend_from_slice(fill);
}

/// Reads a name and a form; also returns their encoded length. `None` if the bytes are invalid.
pub(super) fn read(bytes: &[u8]) -> Option<(ChunkName, ChunkForm, usize)> {
    let mut from = Reader { bytes, at: 0 };
    let name = from.name()?;
    let shape = from.coords()?;
    let elem = from.u32()?;
    let (codec, level) = (from.u8()?, from.u32()? as i32);
    let codec = Codec::of_number(codec, level)?;
    let fill = from.u32()? as usize;
    let fill = Fill::from_bytes(from.take(fill)?);
    let form = ChunkForm {
        shape,
        elem,
        codec,
        fill,
    };
    Some((name, form, from.at))
}

/// Reads a name without a form.
pub(super) fn read_name(bytes: &[u8]) -> Option<ChunkName> {
    let mut from = Reader { bytes, at: 0 };
    from.name().filter(|_| from.at == bytes.len())
}

fn write_coords(coords: &Coords, out: &mut Vec<u8>) {
    out.push(coords.len() as u8);
    for x in coords {
        out.extend_from_slice(&x.to_le_bytes());
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|b| u32::from_le_bytes(*b))
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.first_chunk().map(|b| u64::from_le_bytes(*b))
    }

    fn name(&mut self) -> Option<ChunkName> {
        match self.u8()? {
            0 => Some(ChunkName::Free(ChunkId(self.u64()?))),
            1 => Some(ChunkName::Grid {
                object: ObjectId(self.u64()?),
                generation: self.u32()?,
                at: self.coords()?,
            }),
            _ => None,
        }
    }

    fn coords(&mut self) -> Option<Coords> {
        let rank = usize::from(self.u8()?);
        if rank > MAX_RANK {
            return None;
        }
        (0..rank).map(|_| self.u64()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_forms_round_trip() {
        let free = ChunkName::Free(ChunkId(u64::MAX));
        let at: Coords = (0..32).collect();
        let grid = ChunkName::Grid {
            object: ObjectId(7),
            generation: 3,
            at,
        };
        for (name, codec, fill) in [
            (free, Codec::ShuffleZstd(-5), Fill::zero()),
            (grid, Codec::Deflate(9), Fill::from_bytes(&[1, 2, 3, 4])),
        ] {
            let form = ChunkForm {
                shape: [u64::MAX, 12].into_iter().collect(),
                elem: 4,
                codec,
                fill,
            };
            let mut bytes = Vec::new();
            write(&name, &form, &mut bytes);
            let len = bytes.len();
            bytes.extend_from_slice(b"more");
            assert_eq!(read(&bytes), Some((name, form, len)));
            for cut in 0..len {
                assert_eq!(read(&bytes[..cut]), None);
            }
        }
    }
}
