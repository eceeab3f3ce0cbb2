//! The header every frame begins with, and the limits it must keep.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `SLBW` |
//! | 4 | 2 | protocol version agreed on (0 in the frames that agree on it) |
//! | 6 | 2 | kind; the top bit marks a reply, the next one that a checksum follows the payload |
//! | 8 | 8 | request id, the reply repeats it |
//! | 16 | 4 | length of the control part |
//! | 20 | 4 | length of the payload |
//! | 24 | 4 | CRC-32C of bytes 0..24; 0 in the frames that agree on a version |
//! | 28 | 4 | CRC-32C of bytes 0..28 and the control part |
//!
//! The header has a checksum of its own, so that a damaged length is found before the receiver waits for that many
//! bytes. Where a checksum follows the payload, its four bytes are not part of the length.

/// Bytes of a header.
pub(super) const HEADER: usize = 32;
const MAGIC: [u8; 4] = *b"SLBW";

/// The protocol versions this program speaks, lowest and highest.
///
/// 1: the first one. 2: changes of grid chunks carry their session. 3: rights between mounts. 4: several batches in a
/// message, and files for new chunks. 5: file descriptors of chunks to read, and sums with files that were filled. 6:
/// mounts whose session is over report what they retain. 7: replies to large reads report errors after the bytes. 8:
/// mounts report locks that may be ending. 9: mounts cache names. 10: changes of grid chunks carry the connection
/// epoch of their client. 11: checksums of headers and, over TCP, of payloads; parts of large tilings. 12: lists of
/// locks, and paths of inodes. 13: encoded chunks, and records of which a part is shown.
/// 14 and 15: coupled objects. 16: write verifiers. 17: shards.
pub const VERSIONS: (u16, u16) = (17, 17);

/// The most file descriptors with one reply; the kernel allows 253.
pub const MAX_FILES: usize = 64;

/// The longest control part.
pub const MAX_CONTROL: usize = 16 << 20;
/// The most bytes of data in one message.
pub const MAX_DATA: usize = 64 << 20;
/// The longest payload: data, and the status that a reply has after it.
pub const MAX_PAYLOAD: usize = MAX_DATA + (4 << 10);
/// The longest control part of a peer that has not authenticated.
pub(super) const MAX_OPENING: usize = 1024;

/// Bit of a kind that marks a reply: a reply's kind is its request's kind with this bit.
pub const REPLY: u16 = 0x8000;
/// Bit of a kind on the wire: the CRC-32C of the payload follows it.
const SUMMED: u16 = 0x4000;
/// The bytes of that checksum.
pub(super) const SUM: usize = 4;
/// Kinds from here on belong to services; those below to the wire itself.
pub const FIRST_FREE_KIND: u16 = 0x0100;

/// Kinds of the wire itself.
pub(super) mod kind {
    /// Client: versions and a nonce.
    pub(in crate::wire) const HELLO: u16 = 1;
    /// Server: version chosen, nonce, whether a proof is wanted.
    pub(in crate::wire) const CHALLENGE: u16 = 2;
    /// Client: its proof.
    pub(in crate::wire) const PROOF: u16 = 3;
    /// Server: its proof, or nothing where none is wanted. Requests may follow.
    pub(in crate::wire) const WELCOME: u16 = 4;
    /// Server: refusal, with a reason. The connection ends.
    pub(in crate::wire) const REFUSE: u16 = 5;
    /// Server, instead of a reply: this request failed internally; text.
    pub(in crate::wire) const FAULT: u16 = 6;
}

/// A header, decoded and within the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u16,
    pub(super) kind: u16,
    pub(super) id: u64,
    pub(super) control: u32,
    pub(super) payload: u32,
    pub(super) crc: u32,
    /// A checksum follows the payload.
    pub(super) summed: bool,
}

/// The errors of a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// It was damaged on the way, or is not a header.
    Broken(String),
    /// It arrived undamaged and violates the protocol.
    Protocol(String),
}

impl Header {
    /// Appends header and control part to `out`, with their CRC. `payload`: its length, and whether a checksum
    /// follows it.
    pub(super) fn encode(
        version: u16,
        kind: u16,
        id: u64,
        control: &[u8],
        payload: (u32, bool),
        out: &mut Vec<u8>,
    ) {
        let (payload, summed) = payload;
        let kind = if summed { kind | SUMMED } else { kind };
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&(control.len() as u32).to_le_bytes());
        out.extend_from_slice(&payload.to_le_bytes());
        let head = head_sum(version, &out[start..start + 24]);
        out.extend_from_slice(&head.to_le_bytes());
        let crc = crc(&out[start..start + 28], control);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(control);
    }

    /// Decodes a header; the error describes what is wrong with it. Lengths are checked against the limits here,
    /// before anything is allocated by them.
    pub(super) fn decode(
        bytes: &[u8; HEADER],
        max_control: usize,
        max_payload: usize,
    ) -> Result<Header, Bad> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if bytes[..4] != MAGIC {
            let text = "this is not a slabfs frame (wrong magic)";
            return Err(Bad::Broken(text.into()));
        }
        let version = u16_at(4);
        if u32_at(24) != head_sum(version, &bytes[..24]) {
            let text = "the checksum of a header does not match";
            return Err(Bad::Broken(text.into()));
        }
        let header = Header {
            version,
            kind: u16_at(6) & !SUMMED,
            id: u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32,
            control: u32_at(16),
            payload: u32_at(20),
            crc: u32_at(28),
            summed: u16_at(6) & SUMMED != 0,
        };
        // Frames that agree on a version have no header checksum, so their lengths may be damaged.
        let bad = match version {
            0 => Bad::Broken,
            _ => Bad::Protocol,
        };
        if header.control as usize > max_control {
            return Err(bad(format!(
                "control part of {} bytes, at most {max_control} are allowed",
                header.control
            )));
        }
        if header.payload as usize > max_payload {
            return Err(bad(format!(
                "payload of {} bytes, at most {max_payload} are allowed",
                header.payload
            )));
        }
        Ok(header)
    }
}

/// The checksum of a header without its checksums. The opening frames have none: peers of other versions have to read
/// them as well.
fn head_sum(version: u16, head: &[u8]) -> u32 {
    match version {
        0 => 0,
        _ => crate::checksum::crc32c(head),
    }
}

/// CRC-32C (Castagnoli) of a header's first 28 bytes and the control part.
pub(super) fn crc(head: &[u8], control: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(head);
    digest.update(control);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_goes_round() {
        let mut out = Vec::new();
        Header::encode(
            1,
            0x8103,
            0x0102_0304_0506_0708,
            b"abc",
            (99, true),
            &mut out,
        );
        assert_eq!(out.len(), HEADER + 3);
        let head: [u8; HEADER] = out[..HEADER].try_into().unwrap();
        let h = Header::decode(&head, MAX_CONTROL, MAX_PAYLOAD).unwrap();
        assert_eq!(
            (h.version, h.kind, h.id, h.control, h.payload),
            (1, 0x8103, 0x0102_0304_0506_0708, 3, 99)
        );
        assert_eq!(h.crc, crc(&out[..28], b"abc"));
        assert!(h.summed);
        for bit in 0..24 * 8 {
            let mut flipped = head;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let bad = Header::decode(&flipped, MAX_CONTROL, MAX_PAYLOAD);
            // The version determines whether there is a checksum.
            assert!(matches!(bad, Err(Bad::Broken(_))), "bit {bit}: {bad:?}");
        }
    }

    /// The bytes of the page `docs/formats/wire.md`.
    #[test]
    fn the_example_of_the_page() {
        let mut out = Vec::new();
        Header::encode(11, 0x0107, 5, &[1, 2, 3], (0, false), &mut out);
        let hex: String = out.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            &hex[..56],
            "534c42570b0007010500000000000000030000000000000014c5bc8d"
        );
        assert_eq!(&hex[56..], "093b6a2a010203");
        assert_eq!(crc_fast::crc32_iscsi(b"123456789"), 0xe306_9283);
        assert_eq!(crc(b"1234", b"56789"), 0xe306_9283);
    }

    #[test]
    fn limits_and_garbage() {
        let decoded = |version: u16, at: usize, value: u32| {
            let mut out = Vec::new();
            Header::encode(version, 0x0100, 1, b"", (0, false), &mut out);
            let mut head: [u8; HEADER] = out[..HEADER].try_into().unwrap();
            head[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let sum = head_sum(version, &head[..24]);
            head[24..28].copy_from_slice(&sum.to_le_bytes());
            Header::decode(&head, MAX_CONTROL, MAX_PAYLOAD)
        };
        for (at, value, what) in [
            (16, MAX_CONTROL as u32 + 1, "control"),
            (20, u32::MAX, "payload"),
        ] {
            let Err(Bad::Protocol(text)) = decoded(11, at, value) else {
                panic!("{what}");
            };
            assert!(text.contains(what), "{text}");
            assert!(matches!(decoded(0, at, value), Err(Bad::Broken(_))));
        }
        assert!(matches!(decoded(11, 0, 7), Err(Bad::Broken(text)) if text.contains("magic")));
    }
}
