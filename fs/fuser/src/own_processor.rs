//! Event loops on processors of their own (`Config::own_processors`).
//!
//! A program that makes files, or looks at them, waits for each answer: it and the event loop that answers put
//! each other to sleep and wake each other for each request. Where both take turns on one processor that is
//! a switch each way. Where they are on two, each has gone idle when it is woken, which takes many times as
//! long, on a virtual machine longer than all the rest of such a request; and the scheduler leaves both
//! where they are, because both find their processor idle. With a loop on each processor the loop beside
//! the program mostly takes the request before another one has been woken, and several programs are not
//! crowded out by loops that share a processor.
//!
//! So when requests about names and attributes outnumber those for data by [`ROW`], whichever loops they came to,
//! each loop stays on one processor, if there are loops for all that the process may use. When there were as
//! many for data again, or one for much, the loops run where there is room: programs that wait for data are
//! often several that compute in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use log::debug;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::ll::fuse_abi::fuse_opcode;

/// By how many requests about names outnumber those for data when the loops stay.
const ROW: u32 = 32;
/// Data up to which a copy takes less time than waking a processor, in bytes: small files are read and written with
/// their names.
const LITTLE: usize = 64 << 10;

/// What the event loops of a session know together: by how many requests about names outnumber those for data,
/// from zero to [`ROW`]. It need not be exact.
pub(crate) type Row = AtomicU32;

/// What an event loop knows.
#[derive(Debug)]
pub(crate) struct OwnProcessor {
    row: Arc<Row>,
    /// All the processors, and its own.
    sets: (CpuSet, CpuSet),
    /// It stays on its own.
    stays: bool,
    /// Somebody else has bound the thread meanwhile, and knows better.
    left_alone: bool,
}

impl OwnProcessor {
    /// Of loop `number` of `loops`, whose thread runs where the calling one may; `None` if there are fewer
    /// loops than processors, or one of these alone. All loops of a session have the same `row`.
    pub(crate) fn new(row: Arc<Row>, number: usize, loops: usize) -> Option<Self> {
        let all = sched_getaffinity(Pid::from_raw(0))
            .inspect_err(|error| debug!("The processors of a thread cannot be told: {error}"))
            .ok()?;
        let processors = (0..CpuSet::count()).filter(|&cpu| all.is_set(cpu) == Ok(true));
        let processors: Vec<usize> = processors.collect();
        if processors.len() < 2 || loops < processors.len() {
            return None;
        }
        let mut own = CpuSet::new();
        own.set(processors[number % processors.len()]).ok()?;
        Some(Self {
            row,
            sets: (all, own),
            stays: false,
            left_alone: false,
        })
    }

    /// To be called by the loop's thread before it answers a request: stays, or goes where there is room.
    /// `data` are the bytes that are read or written.
    pub(crate) fn note(&mut self, opcode: u32, data: usize) {
        let row = self.row.load(Ordering::Relaxed);
        let now = match kind(opcode, data) {
            Kind::Names => ROW.min(row + 1),
            Kind::Nothing => row,
            Kind::Little => row.saturating_sub(1),
            Kind::Other => 0,
        };
        if now != row {
            self.row.store(now, Ordering::Relaxed);
        }
        let stay = match now {
            0 => false,
            ROW => true,
            _ => return,
        };
        if stay == self.stays || self.left_alone {
            return;
        }
        let (all, own) = &self.sets;
        let (from, to) = if stay { (all, own) } else { (own, all) };
        let this = Pid::from_raw(0);
        self.left_alone = sched_getaffinity(this).as_ref() != Ok(from);
        if self.left_alone {
            return;
        }
        if let Err(error) = sched_setaffinity(this, to) {
            // Processors come and go.
            debug!("An event loop cannot be bound to processors: {error}");
        }
        self.stays = stay;
    }
}

/// What a request says about what is asked for.
#[derive(Debug, PartialEq)]
enum Kind {
    /// Answered from memory in most filesystems, as far as it is answered fast.
    Names,
    /// The data of a small file, or of a program that reads a little at a time.
    Little,
    /// Nobody waits for it.
    Nothing,
    /// Much data: others may be at work on the answer, and a copy takes as long as a processor is slow.
    Other,
}

fn kind(opcode: u32, data: usize) -> Kind {
    match fuse_opcode::try_from(opcode) {
        Ok(
            fuse_opcode::FUSE_LOOKUP
            | fuse_opcode::FUSE_GETATTR
            | fuse_opcode::FUSE_SETATTR
            | fuse_opcode::FUSE_READLINK
            | fuse_opcode::FUSE_SYMLINK
            | fuse_opcode::FUSE_MKNOD
            | fuse_opcode::FUSE_MKDIR
            | fuse_opcode::FUSE_UNLINK
            | fuse_opcode::FUSE_RMDIR
            | fuse_opcode::FUSE_RENAME
            | fuse_opcode::FUSE_RENAME2
            | fuse_opcode::FUSE_LINK
            | fuse_opcode::FUSE_OPEN
            | fuse_opcode::FUSE_CREATE
            | fuse_opcode::FUSE_FLUSH
            | fuse_opcode::FUSE_ACCESS
            | fuse_opcode::FUSE_GETXATTR
            | fuse_opcode::FUSE_SETXATTR
            | fuse_opcode::FUSE_LISTXATTR
            | fuse_opcode::FUSE_REMOVEXATTR
            | fuse_opcode::FUSE_OPENDIR
            | fuse_opcode::FUSE_READDIR
            | fuse_opcode::FUSE_READDIRPLUS,
        ) => Kind::Names,
        Ok(
            fuse_opcode::FUSE_RELEASE
            | fuse_opcode::FUSE_RELEASEDIR
            | fuse_opcode::FUSE_FORGET
            | fuse_opcode::FUSE_BATCH_FORGET,
        ) => Kind::Nothing,
        Ok(fuse_opcode::FUSE_READ | fuse_opcode::FUSE_WRITE) if data <= LITTLE => Kind::Little,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKUP: u32 = fuse_opcode::FUSE_LOOKUP as u32;
    const READ: u32 = fuse_opcode::FUSE_READ as u32;
    const RELEASE: u32 = fuse_opcode::FUSE_RELEASE as u32;

    fn here() -> CpuSet {
        sched_getaffinity(Pid::from_raw(0)).unwrap()
    }

    fn count(set: &CpuSet) -> usize {
        (0..CpuSet::count())
            .filter(|&cpu| set.is_set(cpu) == Ok(true))
            .count()
    }

    #[test]
    fn loops_stay_while_names_outnumber_data() {
        let all = here();
        let loops = count(&all);
        let row = Arc::new(Row::default());
        let made: Vec<_> = (0..loops)
            .map(|number| OwnProcessor::new(row.clone(), number, loops))
            .collect();
        if loops < 2 {
            assert!(made[0].is_none());
            return;
        }
        let mut together = CpuSet::new();
        for own in made {
            let mut own = own.unwrap();
            let stayed = std::thread::spawn(move || {
                for _ in 0..ROW {
                    own.note(LOOKUP, 0);
                    own.note(READ, LITTLE);
                    own.note(RELEASE, 0);
                    own.note(LOOKUP, 0);
                }
                let stayed = here();
                for _ in 0..ROW {
                    assert_eq!(here(), stayed);
                    own.note(READ, LITTLE);
                }
                assert_eq!(here(), all);
                for _ in 0..ROW {
                    own.note(LOOKUP, 0);
                }
                assert_eq!(here(), stayed);
                own.note(READ, LITTLE + 1);
                assert_eq!(here(), all);
                stayed
            });
            let stayed = stayed.join().unwrap();
            assert_eq!(count(&stayed), 1);
            for cpu in (0..CpuSet::count()).filter(|&cpu| stayed.is_set(cpu) == Ok(true)) {
                together.set(cpu).unwrap();
            }
        }
        assert_eq!(together, all);
    }

    #[test]
    fn what_others_bind_stays_bound() {
        let all = here();
        let Some(mut own) = OwnProcessor::new(Arc::default(), 0, count(&all)) else {
            return;
        };
        let bound = std::thread::spawn(move || {
            let ask = |own: &mut OwnProcessor| (0..ROW).for_each(|_| own.note(LOOKUP, 0));
            ask(&mut own);
            let mut last = CpuSet::new();
            let cpu = (0..CpuSet::count()).rfind(|&cpu| all.is_set(cpu) == Ok(true));
            last.set(cpu.unwrap()).unwrap();
            sched_setaffinity(Pid::from_raw(0), &last).unwrap();
            own.note(READ, LITTLE + 1);
            assert_eq!(here(), last);
            ask(&mut own);
            assert_eq!(here(), last);
        });
        bound.join().unwrap();
    }

    #[test]
    fn fewer_loops_than_processors_go_where_there_is_room() {
        let loops = count(&here()) - 1;
        assert!(OwnProcessor::new(Arc::default(), 0, loops).is_none());
    }
}
