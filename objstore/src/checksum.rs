//! CRC-32C, and its arithmetic.
//!
//! The checksum of a block that changes in place is updated without reading the block: a CRC is linear, so the sum of
//! the block changes by the sum of the change, shifted to its place ([`replaced`]). This never hides damage: a block
//! that did not match before does not match afterwards. (Polynomial 0x1EDC6F41, RFC 3720; the arithmetic is that of
//! zlib's `crc32_combine`.)

use std::io::IoSlice;

use crc_fast::{CrcAlgorithm, Digest, checksum};

/// The polynomial, reflected.
const POLY: u32 = 0x82F6_3B78;

/// The CRC-32C of `data`.
#[must_use]
pub fn crc32c(data: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, data) as u32
}

/// The CRC-32C of the concatenation of several pieces.
#[must_use]
pub fn crc32c_of(pieces: &[IoSlice<'_>]) -> u32 {
    if let [piece] = pieces {
        return crc32c(piece);
    }
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for piece in pieces {
        digest.update(piece);
    }
    digest.finalize() as u32
}

/// The CRC-32C of each block of `block` bytes of the concatenation of several pieces. The last block is summed as if
/// padded with zeros.
#[must_use]
pub fn sums_of_blocks(pieces: &[IoSlice<'_>], block: u64) -> Vec<u32> {
    let total: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut sums = Vec::with_capacity(total.div_ceil(block as usize));
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let mut room = block;
    for piece in pieces {
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(room as usize));
            digest.update(now);
            (rest, room) = (later, room - now.len() as u64);
            if room == 0 {
                sums.push(digest.finalize() as u32);
                digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
                room = block;
            }
        }
    }
    if room < block {
        sums.push(padded(digest.finalize() as u32, room));
    }
    sums
}

/// The CRC-32C of `a` followed by `b`, from the CRCs of both and the length of `b`.
#[must_use]
pub fn combined(a: u32, b: u32, b_len: u64) -> u32 {
    shifted(a, b_len) ^ b
}

/// The CRC-32C of some data followed by `zeros` zero bytes, from that of the data.
#[must_use]
pub fn padded(crc: u32, zeros: u64) -> u32 {
    if zeros == 0 {
        crc
    } else {
        !shifted(!crc, zeros)
    }
}

/// The CRC-32C of a block in which some bytes were replaced, from that of the old block, those of the old and the new
/// bytes (equally many), and how many bytes of the block follow them.
#[must_use]
pub fn replaced(block: u32, old: u32, new: u32, behind: u64) -> u32 {
    block ^ shifted(old ^ new, behind)
}

/// Multiplies by x^(8·bytes): what `bytes` zero bytes do to a CRC register.
fn shifted(crc: u32, mut bytes: u64) -> u32 {
    let mut crc = crc;
    let mut power = 0;
    while bytes != 0 && crc != 0 {
        if bytes & 1 == 1 {
            crc = multiplied(POWERS[power], crc);
        }
        bytes >>= 1;
        power += 1;
    }
    crc
}

/// x^(8·2^k) modulo the polynomial, for each bit k of a length.
const POWERS: [u32; 64] = {
    let mut powers = [0; 64];
    let mut power = 0x0080_0000; // x^8; bit 31 is x^0
    let mut k = 0;
    while k < 64 {
        powers[k] = power;
        power = multiplied(power, power);
        k += 1;
    }
    powers
};

/// The product of two polynomials modulo `POLY`, all reflected.
const fn multiplied(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 1 << 31;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = if b & 1 == 1 { b >> 1 ^ POLY } else { b >> 1 };
        bit >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn check_value_of_the_catalogue() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn long_padding() {
        let data = vec![7u8; 1000];
        let mut long = data.clone();
        long.resize(1 << 20, 0);
        assert_eq!(padded(crc32c(&data), (1 << 20) - 1000), crc32c(&long));
    }

    proptest! {
        #[test]
        fn arithmetic_agrees_with_summing_again(
            a in proptest::collection::vec(any::<u8>(), 0..300),
            b in proptest::collection::vec(any::<u8>(), 0..300),
            c in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let all = [&a[..], &b, &c].concat();
            let pieces = [IoSlice::new(&a), IoSlice::new(&b), IoSlice::new(&c)];
            prop_assert_eq!(crc32c_of(&pieces), crc32c(&all));
            prop_assert_eq!(combined(crc32c(&a), crc32c(&[&b[..], &c].concat()), (b.len() + c.len()) as u64), crc32c(&all));
            let zeros = vec![0; c.len()];
            prop_assert_eq!(padded(crc32c(&a), c.len() as u64), crc32c(&[&a[..], &zeros].concat()));
            let blocks: Vec<u32> = [&a[..], &b, &c]
                .concat()
                .chunks(64)
                .map(|block| padded(crc32c(block), 64 - block.len() as u64))
                .collect();
            prop_assert_eq!(sums_of_blocks(&pieces, 64), blocks);
            let changed: Vec<u8> = b.iter().map(|x| x ^ 0x5A).collect();
            let after = [&a[..], &changed, &c].concat();
            prop_assert_eq!(replaced(crc32c(&all), crc32c(&b), crc32c(&changed), c.len() as u64), crc32c(&after));
        }
    }
}
