//! The trailer of a reply whose payload is produced while it is sent: it reports an error met meanwhile.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | length of the error; 0: success |
//! | 2 | 1022 | the error, then zeros |

use crate::error::StoreError;

/// Bytes of a trailer.
pub(crate) const TRAILER: usize = 1024;

/// A trailer that reports success or this error.
pub(crate) fn trailer(failed: Option<&StoreError>) -> [u8; TRAILER] {
    let mut trailer = [0; TRAILER];
    let Some(error) = failed else { return trailer };
    let room = TRAILER - 2;
    let put = |error: &StoreError, trailer: &mut [u8; TRAILER]| {
        let bytes = postcard::to_allocvec(error).ok()?;
        let into = trailer[2..].get_mut(..bytes.len())?;
        into.copy_from_slice(&bytes);
        trailer[..2].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
        Some(())
    };
    if put(error, &mut trailer).is_none() {
        let mut detail = error.to_string();
        detail.truncate(detail.floor_char_boundary(room - 64));
        let short = StoreError::Io {
            what: "read what was asked for".into(),
            detail,
            errno: None,
        };
        // It fits: the text is cut to less than the room.
        put(&short, &mut trailer);
    }
    trailer
}

/// The outcome that a trailer reports; `None` if it cannot be decoded.
pub(crate) fn read(trailer: &[u8; TRAILER]) -> Option<Option<StoreError>> {
    let len = usize::from(u16::from_le_bytes([trailer[0], trailer[1]]));
    if len == 0 {
        return Some(None);
    }
    let bytes = trailer[2..].get(..len)?;
    postcard::from_bytes(bytes).ok().map(Some)
}

#[cfg(test)]
mod tests {
    use slabfs_model::ChunkId;

    use super::*;
    use crate::name::ChunkName;

    #[test]
    fn a_trailer_reports_the_error() {
        assert_eq!(read(&trailer(None)), Some(None));
        let damaged = |detail: String| StoreError::Damaged {
            name: ChunkName::Free(ChunkId(9)),
            detail,
        };
        let short = damaged("block 3".into());
        assert_eq!(read(&trailer(Some(&short))), Some(Some(short)));
        let long = damaged("é".repeat(2000));
        let Some(Some(StoreError::Io { detail, .. })) = read(&trailer(Some(&long))) else {
            panic!("a long text was lost");
        };
        assert!(detail.contains("éé"), "{detail}");
        let mut broken = [0xff; TRAILER];
        assert_eq!(read(&broken), None);
        broken[..2].copy_from_slice(&[1, 0]);
        assert_eq!(read(&broken), None);
    }
}
