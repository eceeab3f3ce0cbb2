//! Cursors: the position of a search as given to a caller, sealed.
//!
//! A position contains keys and values of tags, including ones that the caller may not read, and a forged position
//! would be used like a real one. So it is encrypted and signed with a random key that never leaves this process; after
//! a restart of the mount a search has to restart.
//!
//! ```text
//! nonce 16 | the bytes, with a key stream over them | HMAC-SHA256 of both 32
//! ```
//!
//! Block n of the key stream is the HMAC-SHA256 of nonce and n: a keyed pseudorandom function in counter
//! mode. The two uses of the key differ in the label that comes first.

use std::sync::OnceLock;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::CallError;

const NONCE: usize = 16;
const SIGNATURE: usize = 32;

/// Key of this process.
fn key() -> Result<&'static [u8; 32], CallError> {
    static KEY: OnceLock<[u8; 32]> = OnceLock::new();
    if let Some(key) = KEY.get() {
        return Ok(key);
    }
    let mut fresh = [0; 32];
    fill(&mut fresh)?;
    Ok(KEY.get_or_init(|| fresh))
}

fn fill(bytes: &mut [u8]) -> Result<(), CallError> {
    getrandom::fill(bytes)
        .map_err(|error| CallError::Invalid(format!("no random numbers can be drawn: {error}")))
}

fn mac(key: &[u8; 32], label: &[u8], nonce: &[u8]) -> Result<Hmac<Sha256>, CallError> {
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(key)
        .map_err(|error| CallError::Invalid(format!("the key of searches: {error}")))?;
    mac.update(label);
    mac.update(nonce);
    Ok(mac)
}

/// Encrypts or decrypts bytes with the key stream.
fn stream(key: &[u8; 32], nonce: &[u8], bytes: &mut [u8]) -> Result<(), CallError> {
    let from_nonce = mac(key, b"stream", nonce)?;
    for (number, block) in bytes.chunks_mut(SIGNATURE).enumerate() {
        let mut of_block = from_nonce.clone();
        of_block.update(&(number as u64).to_le_bytes());
        let over = of_block.finalize().into_bytes();
        for (byte, over) in block.iter_mut().zip(over) {
            *byte ^= over;
        }
    }
    Ok(())
}

/// Seals a position.
pub(super) fn seal(place: &[u8]) -> Result<Vec<u8>, CallError> {
    let key = key()?;
    let mut sealed = vec![0; NONCE];
    fill(&mut sealed)?;
    sealed.extend_from_slice(place);
    let (nonce, bytes) = sealed.split_at_mut(NONCE);
    stream(key, nonce, bytes)?;
    let mut signed = mac(key, b"sign", nonce)?;
    signed.update(bytes);
    sealed.extend_from_slice(&signed.finalize().into_bytes());
    Ok(sealed)
}

/// Opens a sealed position.
pub(super) fn open(sealed: &[u8]) -> Result<Vec<u8>, CallError> {
    let key = key()?;
    let wrong = || {
        CallError::Invalid(
            "\"after\" is the \"next\" of the page before, while the mount runs; start the search again"
                .to_owned(),
        )
    };
    let length = sealed.len().checked_sub(NONCE + SIGNATURE);
    let length = length.ok_or_else(wrong)?;
    let (nonce, rest) = sealed.split_at(NONCE);
    let (bytes, signature) = rest.split_at(length);
    let mut signed = mac(key, b"sign", nonce)?;
    signed.update(bytes);
    signed.verify_slice(signature).map_err(|_| wrong())?;
    let mut place = bytes.to_vec();
    stream(key, nonce, &mut place)?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_position_opens_and_reveals_nothing() {
        for len in [0, 1, 31, 32, 33, 1000] {
            let place = vec![b'k'; len];
            let sealed = seal(&place).unwrap();
            assert_eq!(open(&sealed).unwrap(), place);
            assert!(!sealed.windows(4).any(|part| part == b"kkkk"), "{len}");
            assert_ne!(seal(&place).unwrap(), sealed);
        }
    }

    #[test]
    fn a_changed_position_does_not_open() {
        let sealed = seal(b"a place").unwrap();
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open(&changed).is_err(), "{at}");
            assert!(open(&sealed[..at]).is_err(), "{at}");
        }
        assert!(open(b"").is_err());
    }
}
