//! Data scattered over several pieces of memory, and writing it to a file.

use std::fs::File;
use std::io::{self, IoSlice};

use nix::sys::uio::pwritev;
use smallvec::SmallVec;

/// A few pieces of memory.
pub(super) type Pieces<'a> = SmallVec<[IoSlice<'a>; 6]>;

/// The maximum number of pieces in one system call.
const IOV_MAX: usize = 1024;

/// The total length of all pieces.
pub(super) fn len(pieces: &[IoSlice<'_>]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

/// The bytes `at..at + len` of the pieces, which hold that many.
pub(crate) fn part<'a>(pieces: &'a [IoSlice<'_>], at: u64, len: u64) -> Pieces<'a> {
    let mut out = Pieces::new();
    let (mut skip, mut left) = (at as usize, len as usize);
    for piece in pieces {
        if skip >= piece.len() {
            skip -= piece.len();
            continue;
        }
        let taken = &piece[skip..piece.len().min(skip + left)];
        skip = 0;
        left -= taken.len();
        if !taken.is_empty() {
            out.push(IoSlice::new(taken));
        }
        if left == 0 {
            break;
        }
    }
    out
}

/// Copies bytes from `at` on to fill `out`.
pub(super) fn copy(pieces: &[IoSlice<'_>], at: u64, out: &mut [u8]) {
    let mut done = 0;
    for piece in part(pieces, at, out.len() as u64) {
        out[done..done + piece.len()].copy_from_slice(&piece);
        done += piece.len();
    }
}

/// Writes the bytes `from..from + len` of the pieces to the file at `at`.
pub(crate) fn write_part(
    file: &File,
    at: u64,
    pieces: &[IoSlice<'_>],
    from: u64,
    len: u64,
) -> io::Result<()> {
    write_at(file, at, &part(pieces, from, len)).map_err(|(_, error)| error)
}

/// Writes all pieces to the file contiguously, in as few system calls as possible. An error carries the number of bytes
/// written before it.
pub(super) fn write_at(
    file: &File,
    at: u64,
    pieces: &[IoSlice<'_>],
) -> Result<(), (u64, io::Error)> {
    let total = len(pieces);
    let mut done = 0u64;
    let mut rest: Pieces<'_>;
    let mut pending = pieces;
    while done < total {
        let batch = &pending[..pending.len().min(IOV_MAX)];
        match pwritev(file, batch, (at + done) as i64) {
            Ok(0) => return Err((done, io::ErrorKind::WriteZero.into())),
            Ok(written) => done += written as u64,
            Err(nix::Error::EINTR) => {}
            Err(errno) => return Err((done, errno.into())),
        }
        if done < total {
            rest = part(pieces, done, total - done);
            pending = &rest;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn parts_are_what_a_concatenation_would_give() {
        let data: Vec<u8> = (0..100).collect();
        let cuts = [0usize, 1, 1, 30, 77, 100];
        let pieces: Vec<_> = cuts
            .windows(2)
            .map(|w| IoSlice::new(&data[w[0]..w[1]]))
            .collect();
        assert_eq!(len(&pieces), 100);
        for at in 0..100 {
            for n in [1, 2, 40, 100 - at] {
                let n = n.min(100 - at);
                let mut out = vec![0; n];
                copy(&pieces, at as u64, &mut out);
                assert_eq!(out, data[at..at + n]);
            }
        }
    }

    #[test]
    fn thousands_of_pieces_are_written() {
        let data: Vec<u8> = (0..5000u32).map(|x| x as u8).collect();
        let pieces: Vec<_> = data.chunks(1).map(IoSlice::new).collect();
        let mut file = tempfile::tempfile().unwrap();
        write_at(&file, 10, &pieces).unwrap();
        let mut back = Vec::new();
        file.read_to_end(&mut back).unwrap();
        assert_eq!(back[10..], data);
    }
}
