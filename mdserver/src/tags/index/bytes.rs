//! Numbers and checksums in the index's files.

use crc_fast::crc32_iscsi as crc32c;

/// Appends a number as a varint: seven bits a byte, low ones first.
pub(super) fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Reads a varint of at most 32 bits at `at` and steps over it.
#[inline]
pub(super) fn take_varint(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let first = *bytes.get(*at)?;
    *at += 1;
    if first < 0x80 {
        return Some(usize::from(first));
    }
    let mut value = usize::from(first & 0x7f);
    for shift in [7, 14, 21, 28] {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value).filter(|&value| u32::try_from(value).is_ok());
        }
    }
    None
}

/// Reads a little-endian `u32`.
pub(super) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    let raw = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(raw.try_into().ok()?))
}

/// Reads a little-endian `u64`.
pub(super) fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    let raw = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(raw.try_into().ok()?))
}

/// Appends the checksum of all bytes so far.
pub(super) fn seal(bytes: &mut Vec<u8>) {
    let crc = crc32c(bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
}

/// The bytes before the checksum at the end, when it fits.
pub(super) fn unseal(bytes: &[u8]) -> Option<&[u8]> {
    let at = bytes.len().checked_sub(4)?;
    (le32(bytes, at)? == crc32c(&bytes[..at])).then(|| &bytes[..at])
}

/// How many bytes two strings begin with in common.
pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back() {
        for value in [0, 1, 127, 128, 300, 1 << 20, u64::from(u32::MAX)] {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, value);
            let mut at = 0;
            assert_eq!(take_varint(&bytes, &mut at), Some(value as usize));
            assert_eq!(at, bytes.len());
            let mut at = 0;
            assert_eq!(take_varint(&bytes[..bytes.len() - 1], &mut at), None);
        }
        let mut at = 0;
        assert_eq!(take_varint(&[0xff; 10], &mut at), None);
    }

    #[test]
    fn seals_hold() {
        let mut bytes = b"some bytes".to_vec();
        seal(&mut bytes);
        assert_eq!(unseal(&bytes), Some(&b"some bytes"[..]));
        bytes[3] ^= 1;
        assert_eq!(unseal(&bytes), None);
        assert_eq!(unseal(b"abc"), None);
    }
}
