//! The shared key of TCP connections, and the proofs made with it.
//!
//! A proof is HMAC-SHA256 over a label (the proving side) and both opening messages in full, so that it fits one
//! connection, one direction and one choice of versions. Proofs are compared in constant time.

use std::{
    fmt, fs,
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
};

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::{WireError, WireResult};

/// A key with fewer bytes is refused.
const MIN_KEY: usize = 16;
/// A larger file is not a key but given by mistake.
const MAX_KEY: usize = 4096;

/// Length of a proof.
pub(super) const PROOF: usize = 32;

/// A secret that all machines of one slabfs share. Never printed.
#[derive(Clone)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// Reads a key file: at least 16 bytes, readable only by its owner. White space at the end is ignored, so a key
    /// may be a line of text.
    pub fn load(path: &Path) -> WireResult<Key> {
        let fail = |text: String| WireError::Key(format!("key file {}: {text}", path.display()));
        let os = |e: io::Error| fail(e.to_string());
        // Without waiting for the writer of a pipe, which is refused.
        let mut options = fs::OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => fail(format!(
                "there is none; copy that of the other processes, or make the first: head -c 32 /dev/urandom | base64 > {0}; chmod 600 {0}",
                path.display()
            )),
            _ => os(e),
        })?;
        let meta = file.metadata().map_err(os)?;
        if !meta.is_file() {
            return Err(fail(
                "not a regular file; write the key to one, of mode 600 (a pipe such as <(...) can be read only once)".into(),
            ));
        }
        if meta.mode() & 0o077 != 0 {
            return Err(fail(format!(
                "others than its owner may use it (mode {:03o}); run chmod 600",
                meta.mode() & 0o777
            )));
        }
        if meta.len() > MAX_KEY as u64 {
            return Err(fail(format!(
                "{} bytes; a key has at most {MAX_KEY}",
                meta.len()
            )));
        }
        let mut bytes = Vec::new();
        file.take(MAX_KEY as u64)
            .read_to_end(&mut bytes)
            .map_err(os)?;
        Key::new(bytes.trim_ascii_end()).map_err(|e| match e {
            WireError::Key(text) => fail(text),
            other => other,
        })
    }

    /// A key of these bytes, at least 16 of them.
    pub fn new(bytes: &[u8]) -> WireResult<Key> {
        if bytes.len() < MIN_KEY {
            return Err(WireError::Key(format!(
                "a key needs at least {MIN_KEY} bytes, this has {}; try: head -c 32 /dev/urandom | base64",
                bytes.len()
            )));
        }
        Ok(Key(bytes.into()))
    }

    fn mac(&self, label: &str, hello: &[u8], challenge: &[u8]) -> WireResult<Hmac<Sha256>> {
        let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(&self.0)
            .map_err(|e| WireError::Key(e.to_string()))?;
        for part in [label.as_bytes(), hello, challenge] {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        Ok(mac)
    }

    /// The proof that `label`'s side holds this key, for the connection these two messages opened.
    pub(super) fn prove(
        &self,
        label: &str,
        hello: &[u8],
        challenge: &[u8],
    ) -> WireResult<[u8; PROOF]> {
        Ok(self
            .mac(label, hello, challenge)?
            .finalize()
            .into_bytes()
            .into())
    }

    /// Whether `proof` equals the result of [`Key::prove`]; constant time.
    pub(super) fn verify(
        &self,
        label: &str,
        hello: &[u8],
        challenge: &[u8],
        proof: &[u8],
    ) -> WireResult<bool> {
        Ok(self
            .mac(label, hello, challenge)?
            .verify_slice(proof)
            .is_ok())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let write = |bytes: &[u8], mode| {
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Key::load(&path).map_err(|e| e.to_string())
        };
        assert!(write(b"0123456789abcdef\n", 0o600).is_ok());
        assert!(
            write(b"0123456789abcde\n", 0o600)
                .unwrap_err()
                .contains("at least 16")
        );
        assert!(
            write(b"0123456789abcdef\n", 0o640)
                .unwrap_err()
                .contains("chmod 600")
        );
        assert!(
            write(b"0123456789abcdef\n", 0o604)
                .unwrap_err()
                .contains("chmod 600")
        );
        assert!(write(&[7; 5000], 0o600).unwrap_err().contains("at most"));
        assert!(
            Key::load(dir.path())
                .unwrap_err()
                .to_string()
                .contains("regular")
        );
        assert!(Key::load(&dir.path().join("none")).is_err());
    }

    #[test]
    fn proofs_fit_one_side_and_one_connection() {
        let key = Key::new(&[1; 32]).unwrap();
        let proof = key.prove("client", b"hello", b"challenge").unwrap();
        assert!(
            key.verify("client", b"hello", b"challenge", &proof)
                .unwrap()
        );
        assert!(
            !key.verify("server", b"hello", b"challenge", &proof)
                .unwrap()
        );
        assert!(
            !key.verify("client", b"hell", b"ochallenge", &proof)
                .unwrap()
        );
        assert!(
            !key.verify("client", b"hello", b"challenge", &proof[..31])
                .unwrap()
        );
        let other = Key::new(&[2; 32]).unwrap();
        assert!(
            !other
                .verify("client", b"hello", b"challenge", &proof)
                .unwrap()
        );
        assert_eq!(format!("{key:?}"), "Key(secret)");
    }
}
