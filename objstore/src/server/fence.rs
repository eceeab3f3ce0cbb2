//! Which sessions may change grid chunks: those that live.
//!
//! A mount writes into grid chunks in place, so a write that comes late destroys what others have put
//! there since. A request carries its session, and this is asked before the store is. The metadata
//! service tells with the orders which sessions live (`Alive`), and learns with the next report which
//! list is obeyed; when all data servers obey one that a session is not in, no byte of it can come any
//! more, and what it alone could write may be given to others.
//!
//! UntilNext true:
//! - a request that was let in is done before another list is obeyed (the lock is held over it);
//! - a server that the metadata service has not answered for most of the lease lets nobody in, since
//!   the service counts one that was silent for all of it as obeying. Before the first answer it knows
//!   nobody who lives; whom it has to refuse it knows from its directory.
//!
//! Deliberately elsewhere: chunks that are put and never changed. What a session that is over stores
//! there nobody commits.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use parking_lot::{RwLock, RwLockReadGuard};
use slabfs_model::{ServerId, SessionId};

use super::orders::Alive;
use crate::{
    Moment,
    error::{Result, StoreError},
};

/// The name of the file in a store's directory.
const FILE: &str = "sessions";
const FIRST_LINE: &str = "slabfs sessions 1";

/// Lets living sessions change grid chunks, and no others.
#[derive(Debug)]
pub struct Fence {
    state: RwLock<State>,
    file: Option<PathBuf>,
}

#[derive(Debug)]
struct State {
    alive: Alive,
    /// Until when the metadata service counts on this server to hear of ends in time.
    until: Option<Moment>,
}

/// Leave to change grid chunks, for as long as this is held.
#[derive(Debug)]
pub(super) struct Entered<'a> {
    _state: RwLockReadGuard<'a, State>,
}

impl Fence {
    /// A fence that keeps nothing, for a store that outlives no process.
    pub fn in_memory() -> Fence {
        Fence {
            state: RwLock::new(State {
                alive: Alive::default(),
                until: None,
            }),
            file: None,
        }
    }

    /// The fence of the store in `dir`, as it was when the last process ended.
    pub fn open(dir: &Path) -> Fence {
        let file = dir.join(FILE);
        let alive = match fs::read_to_string(&file) {
            Ok(text) => parse(&text).unwrap_or_else(|| {
                tracing::warn!(
                    "{}: the list of sessions cannot be read; the metadata service tells it anew",
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
        Fence {
            state: RwLock::new(State { alive, until: None }),
            file: Some(file),
        }
    }

    /// Lets a session in, until what is returned is dropped.
    pub(super) fn enter(&self, session: SessionId) -> Result<Entered<'_>> {
        let state = self.state.read();
        if state.alive.is_over(session) {
            return Err(StoreError::Fenced(session));
        }
        if state.until.is_none_or(|until| Moment::now() >= until) {
            return Err(StoreError::Unavailable {
                // The caller knows whom it asked.
                server: ServerId(0),
                addr: String::new(),
                detail: "it has not heard from the metadata service".into(),
            });
        }
        Ok(Entered { _state: state })
    }

    /// The version of the list that is obeyed.
    pub(super) fn obeys(&self) -> u64 {
        self.state.read().alive.version
    }

    /// Obeys a list, where there is a new one, and says so to nobody before all that was let in by the
    /// old one is done. Lets in until `until`.
    pub(crate) fn take(&self, alive: Option<Alive>, until: Moment) {
        let mut state = self.state.write();
        state.until = Some(until);
        let Some(mut alive) = alive else { return };
        alive.live.sort_unstable();
        let changed = state.alive != alive;
        state.alive = alive;
        let alive = state.alive.clone();
        drop(state);
        // The order counts, not the file: after a restart nobody is let in before the service has
        // answered. With it those that are over learn so at once.
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
    fn only_the_living_and_the_newer_are_let_in() {
        let fence = Fence::in_memory();
        assert!(matches!(
            fence.enter(SessionId(4)),
            Err(StoreError::Unavailable { .. })
        ));
        fence.take(Some(alive(7, 6, &[5, 3])), soon());
        assert_eq!(fence.obeys(), 7);
        for (session, lives) in [
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
                Ok(_) => assert!(lives, "{session}"),
                Err(e) => {
                    assert!(!lives, "{session}");
                    assert_eq!(e, StoreError::Fenced(SessionId(session)));
                }
            }
        }
        // The service was not heard in time: nobody, and those that are over learn that.
        fence.take(None, Moment::now());
        assert!(matches!(
            fence.enter(SessionId(3)),
            Err(StoreError::Unavailable { .. })
        ));
        assert_eq!(
            fence.enter(SessionId(4)).err(),
            Some(StoreError::Fenced(SessionId(4)))
        );
        assert_eq!(fence.obeys(), 7);
    }

    #[test]
    fn who_was_let_in_is_done_before_another_list_is_obeyed() {
        let fence = Fence::in_memory();
        fence.take(Some(alive(1, 4, &[3])), soon());
        let entered = fence.enter(SessionId(3)).unwrap();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| fence.take(Some(alive(2, 4, &[])), soon()));
            // It waits for the lock, or has not come to it: obeyed it is not.
            std::thread::yield_now();
            assert!(!taken.is_finished());
            drop(entered);
            taken.join().unwrap();
        });
        assert!(fence.enter(SessionId(3)).is_err());
    }

    #[test]
    fn the_next_process_knows_who_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let fence = Fence::open(dir.path());
        assert_eq!(fence.obeys(), 0);
        fence.take(Some(alive(9, 8, &[7, 2])), soon());
        let next = Fence::open(dir.path());
        assert_eq!(next.obeys(), 9);
        assert_eq!(
            next.enter(SessionId(3)).err(),
            Some(StoreError::Fenced(SessionId(3)))
        );
        assert!(matches!(
            next.enter(SessionId(7)),
            Err(StoreError::Unavailable { .. })
        ));
        // Half a file is none.
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        fs::write(dir.path().join(FILE), &text[..text.len() - 5]).unwrap();
        assert_eq!(Fence::open(dir.path()).obeys(), 0);
    }
}
