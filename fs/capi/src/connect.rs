//! The calls for sessions: connect, sync, close.

use std::ffi::c_char;
use std::time::Duration;

use slabfs_fs::session::{ConnectOptions, Consistency, Session};

use crate::argument::{MAX_TEXT, path_or_none, result, text, text_or_none, unused};
use crate::error::{Failure, SLABFS_ENOTSUPPORTED, call};
use crate::handles::{SESSIONS, slabfs_session};

/// Each read returns the data of the last write by any client.
pub const SLABFS_STRICT: u32 = 0;
/// Written data becomes visible to other clients after a sync or a close, when they next open the object.
pub const SLABFS_COMMIT: u32 = 1;

/// Options of a connection; zero members select the defaults.
#[repr(C)]
#[derive(Debug)]
pub struct slabfs_options {
    /// The file with the shared key of the filesystem; required for tcp. NULL: none.
    pub key_file: *const c_char,
    /// The name of this host, by which placement `local` selects data servers. NULL: the host name.
    pub host: *const c_char,
    /// How long a call waits for an unreachable server, in milliseconds, at least 100. 0: 30 seconds.
    pub io_timeout_ms: u64,
    /// The maximum amount of dirty data in memory, in bytes, at least 1048576. 0: 256 MiB.
    pub dirty_limit: u64,
    /// The size of the cache of read data, in bytes. 0: 64 MiB.
    pub cache: u64,
    /// SLABFS_STRICT or SLABFS_COMMIT.
    pub consistency: u32,
    /// Not 0: changes are refused.
    pub read_only: u32,
    /// Must be zero.
    pub reserved: [u64; 8],
}

/// Attaches to a running filesystem: at unix:PATH or tcp:HOST:PORT, where its metadata service listens, or at a
/// path on a mount of it. `options` may be NULL. Any thread may use the session. After `fork`, a parent's handles
/// are invalid in the child, which may connect only after `exec`, or if the parent had not connected before. Data
/// that is not flushed is lost when a program exits without `slabfs_close`.
///
/// # Safety
/// Strings are NUL-terminated; `session` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_connect(
    place: *const c_char,
    options: *const slabfs_options,
    session: *mut slabfs_session,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        result(session, "session", || {
            if SESSIONS.inherited() {
                return Err(Failure::new(
                    SLABFS_ENOTSUPPORTED,
                    "this process is a fork child of a process that has used sessions, whose threads may hold locks that a \
                     session needs; connect after exec, or fork before the first session",
                ));
            }
            // A program may wrongly change its buffer during a write: then the stored data is arbitrary, but must not
            // count as damaged.
            let place = text(place, "place", MAX_TEXT)?;
            let mut how = ConnectOptions::to(place).steady_memory(false);
            if let Some(options) = options.as_ref() {
                how = with(how, options)?;
            }
            let id = SESSIONS.put(Session::connect(&how)?);
            Ok(slabfs_session { id })
        })
    }
}

/// # Safety
/// Its strings are NUL-terminated.
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
                "{other} is not a consistency; use SLABFS_STRICT or SLABFS_COMMIT"
            )));
        }
    };
    Ok(how
        .consistency(consistency)
        .read_only(options.read_only != 0))
}

/// Writes back all dirty data of the session and makes it durable on the servers.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_sync(session: slabfs_session) -> i32 {
    call(|| Ok(SESSIONS.get(session.id)?.sync()?))
}

/// Ends the session: writes back all dirty data and makes it durable on the servers. From then on its objects can
/// only be closed. The handle becomes invalid, whatever the call returns.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_close(session: slabfs_session) -> i32 {
    call(|| Ok(SESSIONS.take(session.id)?.close()?))
}
