//! Sessions: connecting, syncing, closing.

use std::ffi::c_char;
use std::time::Duration;

use slabfs_fs::session::{ConnectOptions, Consistency, Session};

use crate::argument::{MAX_TEXT, Out, path_or_none, text, text_or_none, unused};
use crate::error::{Failure, SLABFS_ENOTSUPPORTED, call};
use crate::handles::{SESSIONS, slabfs_session};

/// Each read returns what the last write of anybody put there.
pub const SLABFS_STRICT: u32 = 0;
/// Others see what was written after a sync or a close, from their next opening on.
pub const SLABFS_COMMIT: u32 = 1;

/// How to connect; all zero is what is usual.
#[repr(C)]
#[derive(Debug)]
pub struct slabfs_options {
    /// The file with the key that all processes of the filesystem share; tcp: needs one. NULL: none.
    pub key_file: *const c_char,
    /// The name of this machine, by which placement `local` finds its data servers. NULL: the host's.
    pub host: *const c_char,
    /// How long a call waits for a server that is away, in milliseconds, 100 at least. 0: 30 seconds.
    pub io_timeout_ms: u64,
    /// Bytes of written data that may wait in memory, 1048576 at least. 0: 256 MiB.
    pub dirty_limit: u64,
    /// Bytes of read data to keep in memory. 0: 64 MiB.
    pub cache: u64,
    /// SLABFS_STRICT or SLABFS_COMMIT.
    pub consistency: u32,
    /// Not 0: nothing may be changed.
    pub read_only: u32,
    /// Zero.
    pub reserved: [u64; 8],
}

/// Attaches to a running filesystem: at unix:PATH or tcp:HOST:PORT, where its metadata service listens, or at a path
/// on a mount of it. `options` may be NULL. The session is used by any thread; handles of a parent are none in a child of
/// `fork`, which connects only after `exec`, or if the parent had not connected yet.
/// What is written and not flushed is lost when a program exits without `slabfs_close`.
///
/// # Safety
/// Strings end with a zero; `session` is a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_connect(
    place: *const c_char,
    options: *const slabfs_options,
    session: *mut slabfs_session,
) -> i32 {
    call(|| {
        if SESSIONS.inherited() {
            return Err(Failure::new(
                SLABFS_ENOTSUPPORTED,
                "this process is a child by fork of one that has used sessions, whose threads may hold what a session \
                 needs; connect in a program that it executes, or fork before the first session",
            ));
        }
        // SAFETY: the caller's.
        let (place, options, out) = unsafe {
            (
                text(place, "place", MAX_TEXT)?,
                options.as_ref(),
                Out::new(session, "session")?,
            )
        };
        // A program may write to its memory when it must not: then what was stored is whatever was there, and no damage.
        let mut how = ConnectOptions::to(place).steady_memory(false);
        if let Some(options) = options {
            // SAFETY: the caller's.
            how = unsafe { with(how, options) }?;
        }
        let id = SESSIONS.put(Session::connect(&how)?);
        out.set(slabfs_session { id });
        Ok(())
    })
}

/// # Safety
/// Its strings end with a zero.
unsafe fn with(
    mut how: ConnectOptions,
    options: &slabfs_options,
) -> Result<ConnectOptions, Failure> {
    unused(&options.reserved, "options")?;
    // SAFETY: the caller's.
    let (key, host) = unsafe {
        (
            path_or_none(options.key_file, "key_file")?,
            text_or_none(options.host, "host")?,
        )
    };
    if let Some(key) = key {
        how = how.key_file(key);
    }
    if let Some(host) = host {
        how = how.host(host);
    }
    if options.io_timeout_ms > 0 {
        const YEAR: u64 = 365 * 86_400_000;
        how = how.io_timeout(Duration::from_millis(options.io_timeout_ms.min(YEAR)));
    }
    if options.dirty_limit > 0 {
        how = how.dirty_limit(options.dirty_limit.min(1 << 62));
    }
    if options.cache > 0 {
        how = how.cache(options.cache.min(1 << 46));
    }
    let consistency = match options.consistency {
        SLABFS_STRICT => Consistency::Strict,
        SLABFS_COMMIT => Consistency::Commit,
        other => {
            return Err(Failure::invalid(format!(
                "{other} is no consistency; give SLABFS_STRICT or SLABFS_COMMIT"
            )));
        }
    };
    Ok(how
        .consistency(consistency)
        .read_only(options.read_only != 0))
}

/// Brings everything the session has written onto the servers' disks.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_sync(session: slabfs_session) -> i32 {
    call(|| Ok(SESSIONS.get(session.id)?.sync()?))
}

/// Ends the session: what was written is brought onto the servers' disks. Its objects can only be closed from then
/// on. The handle is none any more, whatever the call returns.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_close(session: slabfs_session) -> i32 {
    call(|| Ok(SESSIONS.take(session.id)?.close()?))
}
