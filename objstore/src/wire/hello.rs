//! The opening of a connection: versions first, then authentication.
//!
//! ```text
//! client                                  server
//! HELLO    versions, nonce          →
//!                                   ←     CHALLENGE  version, proof wanted?, nonce
//! PROOF    (TCP) HMAC, label client →
//!                                   ←     WELCOME    (TCP) HMAC, label server
//! ```
//!
//! The client proves first, so that a stranger receives nothing made with the key. On a unix socket both sides check
//! the peer's user instead, and CHALLENGE is followed by WELCOME at once. These frames have fixed layouts
//! (`docs/formats/wire.md`), readable by every version.

use std::time::{Duration, Instant};

use super::{
    Buffers, Connection, Frame, Key, WireError, WireResult,
    frame::{VERSIONS, kind},
    key::PROOF,
};

const NONCE: usize = 32;
const CLIENT: &str = "slabfs wire 1 client";
const SERVER: &str = "slabfs wire 1 server";
/// CHALLENGE flag: the client has to prove that it has the key.
const WANT_PROOF: u16 = 1;

/// Why a server refuses; the first field of REFUSE.
mod code {
    pub(super) const OTHER: u16 = 0;
    pub(super) const BUSY: u16 = 1;
}

/// Opens a fresh connection from the calling side.
pub(super) fn as_client(c: &mut Connection, key: Option<&Key>, until: Instant) -> WireResult<()> {
    let unix = check_user(c)?;
    let hello = hello_bytes(c)?;
    let mut buffers = Buffers::default();
    c.send(kind::HELLO, 0, &hello, &[], until)?;
    let challenge = expect(c, &mut buffers, kind::CHALLENGE, 4 + NONCE, until)?;
    let (version, flags) = (u16_at(&challenge, 0), u16_at(&challenge, 2));
    if version < VERSIONS.0 || version > VERSIONS.1 {
        return Err(c.protocol(format!("chose version {version}, which was not offered")));
    }
    let wanted = flags & WANT_PROOF != 0;
    let key = match key {
        _ if unix && !wanted => {
            expect(c, &mut buffers, kind::WELCOME, 0, until)?;
            c.opened(version);
            return Ok(());
        }
        Some(key) if wanted => key,
        Some(_) => {
            return Err(refused(
                c,
                "it does not ask for the shared key, so it is not to be trusted",
            ));
        }
        None => return Err(refused(c, "it asks for the shared key (--key-file)")),
    };
    c.send(
        kind::PROOF,
        0,
        &key.prove(CLIENT, &hello, &challenge)?,
        &[],
        until,
    )?;
    let proof = expect(c, &mut buffers, kind::WELCOME, PROOF, until)?;
    if !key.verify(SERVER, &hello, &challenge, &proof)? {
        return Err(refused(c, "it does not have the same shared key"));
    }
    c.opened(version);
    Ok(())
}

/// Opens a fresh connection from the serving side. A mismatch is reported to the peer in a REFUSE frame, except to a
/// peer that does not speak the protocol at all.
pub(super) fn as_server(c: &mut Connection, key: Option<&Key>, until: Instant) -> WireResult<()> {
    let result = serve(c, key, until);
    if let Err(WireError::Refused { reason, .. }) = &result {
        refuse(c, code::OTHER, reason, until);
    }
    result
}

/// Reports to a fresh connection that there is no room for it.
pub(super) fn refuse_busy(c: &mut Connection, until: Instant) {
    refuse(c, code::BUSY, "too many connections", until);
}

fn serve(c: &mut Connection, key: Option<&Key>, until: Instant) -> WireResult<()> {
    let mut buffers = Buffers::default();
    let hello = expect(c, &mut buffers, kind::HELLO, 4 + NONCE, until)?;
    // Only after HELLO, so that the peer is reading when the refusal is sent.
    let unix = check_user(c)?;
    let (low, high) = (u16_at(&hello, 0), u16_at(&hello, 2));
    let version = high.min(VERSIONS.1);
    if version < low.max(VERSIONS.0) {
        return Err(refused(
            c,
            &format!(
                "no common protocol version: the client speaks {low} to {high}, the server {} to {}; use one version of slabfs for both",
                VERSIONS.0, VERSIONS.1
            ),
        ));
    }
    // On a unix socket the user is proof enough.
    let key = if unix {
        None
    } else {
        Some(key.ok_or_else(|| refused(c, "TCP needs the shared key"))?)
    };
    let mut challenge = hello_bytes(c)?;
    challenge[..2].copy_from_slice(&version.to_le_bytes());
    challenge[2..4].copy_from_slice(&if key.is_some() { WANT_PROOF } else { 0 }.to_le_bytes());
    c.send(kind::CHALLENGE, 0, &challenge, &[], until)?;
    let Some(key) = key else {
        c.send(kind::WELCOME, 0, &[], &[], until)?;
        c.opened(version);
        return Ok(());
    };
    let proof = expect(c, &mut buffers, kind::PROOF, PROOF, until)?;
    if !key.verify(CLIENT, &hello, &challenge, &proof)? {
        return Err(refused(c, "the client does not have the same shared key"));
    }
    c.send(
        kind::WELCOME,
        0,
        &key.prove(SERVER, &hello, &challenge)?,
        &[],
        until,
    )?;
    c.opened(version);
    Ok(())
}

/// A fresh HELLO: versions spoken here and random bytes.
fn hello_bytes(c: &Connection) -> WireResult<[u8; 4 + NONCE]> {
    let mut out = [0; 4 + NONCE];
    getrandom::fill(&mut out[4..]).map_err(|e| WireError::Io {
        addr: c.peer().into(),
        doing: "getting random bytes",
        source: std::io::Error::other(e.to_string()),
    })?;
    out[..2].copy_from_slice(&VERSIONS.0.to_le_bytes());
    out[2..4].copy_from_slice(&VERSIONS.1.to_le_bytes());
    Ok(out)
}

/// True for a unix socket whose peer is this user or root; false for TCP.
fn check_user(c: &Connection) -> WireResult<bool> {
    let peer = c.stream().peer_uid().map_err(|source| WireError::Io {
        addr: c.peer().into(),
        doing: "asking for the peer's user",
        source,
    })?;
    let own = nix::unistd::geteuid().as_raw();
    match peer {
        None => Ok(false),
        Some(uid) if user_fits(uid, own) => Ok(true),
        Some(uid) => Err(refused(
            c,
            &format!("unix sockets are for their owner: user {uid} is not user {own}"),
        )),
    }
}

fn user_fits(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

/// The next frame's control part, which must be of this kind and have exactly this length.
fn expect(
    c: &mut Connection,
    buffers: &mut Buffers,
    kind: u16,
    len: usize,
    until: Instant,
) -> WireResult<Vec<u8>> {
    let rest = until
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1));
    let frame = c.recv(buffers, until, rest)?;
    let (got, control) = (frame.kind, frame.control.to_vec());
    if got == self::kind::REFUSE {
        return Err(match frame {
            Frame {
                control: [a, b, ..],
                ..
            } if u16::from_le_bytes([*a, *b]) == code::BUSY => WireError::Busy {
                addr: c.peer().into(),
            },
            _ => refused(
                c,
                &format!("refused: {}", text(control.get(2..).unwrap_or_default())),
            ),
        });
    }
    if got != kind || control.len() != len || !frame.payload.is_empty() {
        return Err(c.broken(format!(
            "opening frame of kind {got} with {} bytes where kind {kind} with {len} has to come",
            control.len()
        )));
    }
    Ok(control)
}

fn refuse(c: &mut Connection, code: u16, reason: &str, until: Instant) {
    let mut control = code.to_le_bytes().to_vec();
    control.extend_from_slice(reason.as_bytes());
    control.truncate(512);
    // Best effort: the connection ends whether or not the peer receives the reason.
    let _ = c.send(kind::REFUSE, 0, &control, &[], until);
}

fn refused(c: &Connection, reason: &str) -> WireError {
    WireError::Refused {
        addr: c.peer().into(),
        reason: reason.into(),
    }
}

/// A peer's text, made printable for a log.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .take(2000)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users() {
        assert!(user_fits(1000, 1000));
        assert!(user_fits(0, 1000));
        assert!(!user_fits(1001, 1000));
        assert!(!user_fits(1000, 0));
    }
}
