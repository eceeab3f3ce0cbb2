//! The header every frame begins with, and the limits it must keep.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `SLBW` |
//! | 4 | 2 | protocol version agreed on (0 in the frames that agree on it) |
//! | 6 | 2 | kind; the top bit marks a reply |
//! | 8 | 8 | request id, the reply repeats it |
//! | 16 | 4 | length of the control part |
//! | 20 | 4 | length of the payload |
//! | 24 | 4 | 0 |
//! | 28 | 4 | CRC-32C of bytes 0..28 and the control part |

/// Bytes of a header.
pub(super) const HEADER: usize = 32;
const MAGIC: [u8; 4] = *b"SLBW";

/// The protocol versions this program speaks, lowest and highest.
///
/// 1: the first one. 2: what changes grid chunks says for which session. 3: rights between mounts.
/// 4: several batches in a message, and files for new chunks. 5: files of chunks to be read, and sums with those that were
/// filled. 6: mounts whose life is over say what they keep. 7: replies to large reads that say behind the bytes what went
/// wrong. 8: mounts say which locks may be ending. 9: mounts keep names.
/// 10: what changes grid chunks says in which turn of its client.
pub const VERSIONS: (u16, u16) = (10, 10);

/// The most files beside one reply; the kernel takes 253.
pub const MAX_FILES: usize = 64;

/// The longest control part.
pub const MAX_CONTROL: usize = 16 << 20;
/// The most bytes of data in one message.
pub const MAX_DATA: usize = 64 << 20;
/// The longest payload: data, and what a reply says behind them.
pub const MAX_PAYLOAD: usize = MAX_DATA + (4 << 10);
/// The longest control part of a peer that has not proved who it is.
pub(super) const MAX_OPENING: usize = 1024;

/// Bit of a kind that marks a reply: a reply's kind is its request's kind with this bit.
pub const REPLY: u16 = 0x8000;
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
    /// Server: will not talk, and why. The connection ends.
    pub(in crate::wire) const REFUSE: u16 = 5;
    /// Server, instead of a reply: this request failed inside; text.
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
}

impl Header {
    /// Appends header and control part to `out`, with their CRC.
    pub(super) fn encode(
        version: u16,
        kind: u16,
        id: u64,
        control: &[u8],
        payload: u32,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&(control.len() as u32).to_le_bytes());
        out.extend_from_slice(&payload.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        let crc = crc(&out[start..start + 28], control);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(control);
    }

    /// Reads a header; the error says what is wrong with it. Lengths are held against the limits
    /// here, before anybody allocates by them.
    pub(super) fn decode(
        bytes: &[u8; HEADER],
        max_control: usize,
        max_payload: usize,
    ) -> Result<Header, String> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if bytes[..4] != MAGIC {
            return Err("this is not a slabfs frame (wrong magic)".into());
        }
        let header = Header {
            version: u16_at(4),
            kind: u16_at(6),
            id: u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32,
            control: u32_at(16),
            payload: u32_at(20),
            crc: u32_at(28),
        };
        if header.control as usize > max_control {
            return Err(format!(
                "control part of {} bytes, at most {max_control} are allowed",
                header.control
            ));
        }
        if header.payload as usize > max_payload {
            return Err(format!(
                "payload of {} bytes, at most {max_payload} are allowed",
                header.payload
            ));
        }
        if u32_at(24) != 0 {
            return Err("reserved field is not zero".into());
        }
        Ok(header)
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
        Header::encode(1, 0x8103, 0x0102_0304_0506_0708, b"abc", 99, &mut out);
        assert_eq!(out.len(), HEADER + 3);
        let head: [u8; HEADER] = out[..HEADER].try_into().unwrap();
        let h = Header::decode(&head, MAX_CONTROL, MAX_PAYLOAD).unwrap();
        assert_eq!(
            (h.version, h.kind, h.id, h.control, h.payload),
            (1, 0x8103, 0x0102_0304_0506_0708, 3, 99)
        );
        assert_eq!(h.crc, crc(&out[..28], b"abc"));
    }

    /// The bytes of the page `docs/formats/wire.md`.
    #[test]
    fn the_example_of_the_page() {
        let mut out = Vec::new();
        Header::encode(3, 0x0107, 5, &[1, 2, 3], 0, &mut out);
        let hex: String = out.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            &hex[..56],
            "534c4257030007010500000000000000030000000000000000000000"
        );
        assert_eq!(&hex[56..], "a449bd7b010203");
        assert_eq!(crc_fast::crc32_iscsi(b"123456789"), 0xe306_9283);
        assert_eq!(crc(b"1234", b"56789"), 0xe306_9283);
    }

    #[test]
    fn limits_and_garbage() {
        let mut out = Vec::new();
        Header::encode(1, 0x0100, 1, b"", 0, &mut out);
        let mut head: [u8; HEADER] = out[..HEADER].try_into().unwrap();
        head[16..20].copy_from_slice(&(MAX_CONTROL as u32 + 1).to_le_bytes());
        assert!(
            Header::decode(&head, MAX_CONTROL, MAX_PAYLOAD)
                .unwrap_err()
                .contains("control")
        );
        head[16..20].copy_from_slice(&[0; 4]);
        head[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(
            Header::decode(&head, MAX_CONTROL, MAX_PAYLOAD)
                .unwrap_err()
                .contains("payload")
        );
        head[20..24].copy_from_slice(&[0; 4]);
        head[24] = 1;
        assert!(
            Header::decode(&head, MAX_CONTROL, MAX_PAYLOAD)
                .unwrap_err()
                .contains("reserved")
        );
        head[0] = b'G';
        assert!(
            Header::decode(&head, MAX_CONTROL, MAX_PAYLOAD)
                .unwrap_err()
                .contains("magic")
        );
    }
}
