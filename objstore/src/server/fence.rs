//! Fences sessions: only live sessions may change grid chunks.
//!
//! A mount writes into grid chunks in place, so a late write by a session that is over would destroy newer data of
//! other mounts. Each request carries its session id, and the fence checks it before the store is called. The metadata
//! service sends the list of live sessions (`Alive`) in its heartbeat replies, and the next report acknowledges the
//! version in force. Once all data servers have acknowledged a list without a session, no write of that session can
//! arrive any more, and its exclusive rights may be granted to others.
//!
//! Invariants:
//! - a request that was admitted completes before another list comes into force (it holds the read lock);
//! - a server that has had no reply from the metadata service for most of the lease admits no session, because after a
//!   full lease of silence the metadata service takes it to be fenced. Before the first reply it admits none either;
//!   the list in its directory only says which sessions are over.
//!
//! Of a filesystem that is divided into shards each shard has its sessions, whose numbers say so, and sends its list.
//!
//! Deliberately elsewhere: immutable chunks. Those that a session stores after its end are never committed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use parking_lot::{RwLock, RwLockReadGuard};
use slabfs_model::{ServerId, SessionId, ShardId};

use super::orders::Alive;
use crate::{
    Moment,
    error::{Result, StoreError},
};

/// The name of the file in a store's directory.
const FILE: &str = "sessions";
const FIRST_LINE: &str = "slabfs sessions 1";

/// Admits changes of grid chunks by live sessions, and refuses all others.
#[derive(Debug)]
pub struct Fence {
    shards: Vec<Sessions>,
}

/// The sessions of one shard.
#[derive(Debug)]
struct Sessions {
    state: RwLock<State>,
    file: Option<PathBuf>,
}

#[derive(Debug)]
struct State {
    alive: Alive,
    /// When this server stops admitting sessions, unless the metadata service replies before.
    until: Option<Moment>,
}

/// Permission to change grid chunks while this guard is held.
#[derive(Debug)]
pub(super) struct Entered<'a> {
    _state: RwLockReadGuard<'a, State>,
}

impl Fence {
    /// A fence without a file, for a store in memory.
    pub fn in_memory() -> Fence {
        let alive = Alive::default();
        Fence {
            shards: vec![Sessions {
                state: RwLock::new(State { alive, until: None }),
                file: None,
            }],
        }
    }

    /// The fence of the store in `dir`, with the session list that the last process stored.
    pub fn open(dir: &Path) -> Fence {
        Fence::open_divided(dir, 1)
    }

    /// The same for a filesystem of several shards, with a list of each.
    pub fn open_divided(dir: &Path, shards: u8) -> Fence {
        let file = |shard| match shard {
            0 => dir.join(FILE),
            shard => dir.join(format!("{FILE}-{shard}")),
        };
        Fence {
            shards: (0..shards)
                .map(|shard| Sessions::open(file(shard)))
                .collect(),
        }
    }

    /// Admits a request of a session until the guard is dropped.
    pub(super) fn enter(&self, session: SessionId) -> Result<Entered<'_>> {
        let sessions = match self.shards.as_slice() {
            [only] => Some(only),
            all => all.get(usize::from(session.shard().0)),
        };
        sessions
            .ok_or(StoreError::Fenced(session))
            .and_then(|sessions| sessions.enter(session))
    }

    /// The version of a shard's list in force.
    pub(super) fn obeys(&self, shard: ShardId) -> u64 {
        self.of(shard).map_or(0, Sessions::obeys)
    }

    /// Puts a new list of a shard into force, if there is one, after all requests admitted under the old one have completed.
    /// Admits requests until `until`.
    pub(crate) fn take(&self, shard: ShardId, alive: Option<Alive>, until: Moment) {
        if let Some(sessions) = self.of(shard) {
            sessions.take(alive, until);
        }
    }

    fn of(&self, shard: ShardId) -> Option<&Sessions> {
        self.shards.get(usize::from(shard.0))
    }
}

impl Sessions {
    fn open(file: PathBuf) -> Sessions {
        let alive = match fs::read_to_string(&file) {
            Ok(text) => parse(&text).unwrap_or_else(|| {
                tracing::warn!(
                    "{}: the list of sessions cannot be read; the metadata service will send it again",
                    file.display()
                );
                Alive::default()
            }),
            Err(e) => {
                if e.kind() != io::ErrorKind::NotFound {
                    tracing::warn!("{}: {e}", file.display());
                }
                Alive::default()
            }
        };
        Sessions {
            state: RwLock::new(State { alive, until: None }),
            file: Some(file),
        }
    }

    fn enter(&self, session: SessionId) -> Result<Entered<'_>> {
        let state = self.state.read();
        if state.alive.is_over(session) {
            return Err(StoreError::Fenced(session));
        }
        if state.until.is_none_or(|until| Moment::now() >= until) {
            return Err(StoreError::Unavailable {
                // The caller fills in the server.
                server: ServerId(0),
                addr: String::new(),
                detail: "it has not heard from the metadata service".into(),
            });
        }
        Ok(Entered { _state: state })
    }

    fn obeys(&self) -> u64 {
        self.state.read().alive.version
    }

    fn take(&self, alive: Option<Alive>, until: Moment) {
        let mut state = self.state.write();
        state.until = Some(until);
        let Some(mut alive) = alive else { return };
        alive.live.sort_unstable();
        let changed = state.alive != alive;
        state.alive = alive;
        let alive = state.alive.clone();
        drop(state);
        // A failure to store the file is harmless: after a restart no session is admitted before the metadata service
        // has replied. With the file, sessions that are over are refused as such at once.
        if changed
            && let Some(file) = &self.file
            && let Err(e) = store(file, &alive)
        {
            tracing::warn!("{}: {e}", file.display());
        }
    }
}

fn store(file: &Path, alive: &Alive) -> io::Result<()> {
    let tmp = file.with_extension("tmp");
    let mut out = File::create(&tmp)?;
    out.write_all(text(alive).as_bytes())?;
    out.sync_all()?;
    fs::rename(&tmp, file)?;
    match file.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

fn text(alive: &Alive) -> String {
    let mut text = format!(
        "{FIRST_LINE}\nversion {}\nnext {}\nlive",
        alive.version, alive.next.0
    );
    for session in &alive.live {
        text.push_str(&format!(" {}", session.0));
    }
    text.push_str("\nend\n");
    text
}

fn parse(text: &str) -> Option<Alive> {
    let mut lines = text.lines();
    if lines.next() != Some(FIRST_LINE) {
        return None;
    }
    let version = lines.next()?.strip_prefix("version ")?.parse().ok()?;
    let next = lines.next()?.strip_prefix("next ")?.parse().ok()?;
    let mut live = Vec::new();
    for id in lines.next()?.strip_prefix("live")?.split_whitespace() {
        live.push(SessionId(id.parse().ok()?));
    }
    live.sort_unstable();
    (lines.next() == Some("end")).then_some(Alive {
        version,
        next: SessionId(next),
        live,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn alive(version: u64, next: u64, live: &[u64]) -> Alive {
        Alive {
            version,
            next: SessionId(next),
            live: live.iter().copied().map(SessionId).collect(),
        }
    }

    fn soon() -> Moment {
        Moment::now() + Duration::from_secs(600)
    }

    #[test]
    fn only_live_and_later_sessions_are_admitted() {
        let fence = Fence::in_memory();
        assert!(matches!(
            fence.enter(SessionId(4)),
            Err(StoreError::Unavailable { .. })
        ));
        fence.take(ShardId::NAMES, Some(alive(7, 6, &[5, 3])), soon());
        assert_eq!(fence.obeys(ShardId::NAMES), 7);
        for (session, is_live) in [
            (0, false),
            (3, true),
            (4, false),
            (5, true),
            (6, true),
            (1000, true),
            // Of another filesystem that was at this address.
            (1 << 46, false),
        ] {
            let entered = fence.enter(SessionId(session));
            match entered {
                Ok(_) => assert!(is_live, "{session}"),
                Err(e) => {
                    assert!(!is_live, "{session}");
                    assert_eq!(e, StoreError::Fenced(SessionId(session)));
                }
            }
        }
        // The metadata service did not reply in time: no session is admitted, and those that are over still get
        // `Fenced`.
        fence.take(ShardId::NAMES, None, Moment::now());
        assert!(matches!(
            fence.enter(SessionId(3)),
            Err(StoreError::Unavailable { .. })
        ));
        assert_eq!(
            fence.enter(SessionId(4)).err(),
            Some(StoreError::Fenced(SessionId(4)))
        );
        assert_eq!(fence.obeys(ShardId::NAMES), 7);
    }

    #[test]
    fn admitted_requests_complete_before_a_new_list_comes_into_force() {
        let fence = Fence::in_memory();
        fence.take(ShardId::NAMES, Some(alive(1, 4, &[3])), soon());
        let entered = fence.enter(SessionId(3)).unwrap();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| fence.take(ShardId::NAMES, Some(alive(2, 4, &[])), soon()));
            // It waits for the lock or has not reached it yet: the new list is not in force.
            std::thread::yield_now();
            assert!(!taken.is_finished());
            drop(entered);
            taken.join().unwrap();
        });
        assert!(fence.enter(SessionId(3)).is_err());
    }

    #[test]
    fn the_session_list_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let fence = Fence::open(dir.path());
        assert_eq!(fence.obeys(ShardId::NAMES), 0);
        fence.take(ShardId::NAMES, Some(alive(9, 8, &[7, 2])), soon());
        let next = Fence::open(dir.path());
        assert_eq!(next.obeys(ShardId::NAMES), 9);
        assert_eq!(
            next.enter(SessionId(3)).err(),
            Some(StoreError::Fenced(SessionId(3)))
        );
        assert!(matches!(
            next.enter(SessionId(7)),
            Err(StoreError::Unavailable { .. })
        ));
        // A truncated file is ignored.
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        fs::write(dir.path().join(FILE), &text[..text.len() - 5]).unwrap();
        assert_eq!(Fence::open(dir.path()).obeys(ShardId::NAMES), 0);
    }

    #[test]
    fn each_shard_has_its_sessions() {
        let dir = tempfile::tempdir().unwrap();
        let fence = Fence::open_divided(dir.path(), 2);
        let session = |shard, low: u64| SessionId(ShardId(shard).session(1 << 46 | low));
        let list = |shard, version| Alive {
            version,
            next: session(shard, 8),
            live: vec![session(shard, 5)],
        };
        fence.take(ShardId(0), Some(list(0, 3)), soon());
        assert!(fence.enter(session(0, 5)).is_ok());
        assert!(fence.enter(session(0, 4)).is_err());
        // The other shard has not replied yet.
        assert!(matches!(
            fence.enter(session(1, 5)),
            Err(StoreError::Unavailable { .. })
        ));
        fence.take(ShardId(1), Some(list(1, 9)), soon());
        assert!(fence.enter(session(1, 5)).is_ok());
        let over = session(1, 4);
        assert_eq!(fence.enter(over).err(), Some(StoreError::Fenced(over)));
        let none = session(2, 5);
        assert_eq!(fence.enter(none).err(), Some(StoreError::Fenced(none)));
        let next = Fence::open_divided(dir.path(), 2);
        assert_eq!([0, 1, 2].map(|shard| next.obeys(ShardId(shard))), [3, 9, 0]);
    }
}
