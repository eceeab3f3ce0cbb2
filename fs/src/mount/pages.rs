//! Which open files read through the kernel's page cache.
//!
//! Through pages, small reads are answered by the kernel: no request each, and read-ahead. Large reads cost one more copy
//! and an allocated page, so they are faster as requests of their own. The kernel decides by a flag of the open file, which
//! stays as it is; the size of its reads is not known by then. What is known:
//!
//! - Files that can be written, selections, files with `O_DIRECT`, coupled objects: no pages. The bytes of a write are an exact
//!   range of the program's, which a page is not.
//! - Objects that grow, with a fill value other than zero: no pages. The kernel has zeros behind the end in its last page.
//! - Another open file of this mount can write the object: no pages. Each write would have to drop some.
//! - A page of the object could not be read, since a chunk is damaged: no pages, so that all of the rest can be read.
//! - The object is at most [`SMALL`]: pages. It takes few requests either way, and may be read again.
//! - Otherwise by how the object was read or written before, and if that is not known, what the program did to others
//!   ([`Habits`]): pages unless these requests were large.
//! - If nothing is known: pages if the data servers are in this process, but not for an array of several axes, whose readers
//!   mostly want parts of rows. Read-ahead would bring the rows; and from servers elsewhere it would bring to each mount what
//!   others read.
//!
//! The kernel's first read of a file through pages shows the size of the program's: its first read-ahead is a small multiple
//! of that.

use std::collections::VecDeque;

use foldhash::HashMap;
use fuser::OpenFlags;
use parking_lot::Mutex;
use slabfs_mdserver::api::Ino;

use super::open_file::OpenFile;
use super::shared::Shared;

/// Objects up to this size are read through pages, if nothing speaks against it.
const SMALL: u64 = 4 << 20;
/// Requests of at least this size on average are large.
const LARGE: u64 = 512 << 10;
/// Most objects, and most programs, whose habits are known.
const MOST: usize = 16_384;
/// After so many requests of an open file it is noted how large they are.
pub(super) const HABIT: u64 = 32;

/// Whether reads use the kernel's page cache: an option of the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pages {
    /// Where it is expected to be faster.
    #[default]
    Auto,
    /// All files that are open for reading only.
    Always,
    /// No file; mappings use it all the same.
    Never,
}

/// The name of a program, as in `/proc/PID/comm`.
pub(super) type Program = [u8; 16];

/// Whether the requests of the last open file were large: by object, and by program.
#[derive(Debug, Default)]
pub(super) struct Habits {
    objects: Mutex<Table<Ino>>,
    programs: Mutex<Table<Program>>,
    /// Objects that programs of this mount have locked.
    locked: Mutex<Table<Ino>>,
    /// Objects of which a page could not be read.
    damaged: Mutex<Table<Ino>>,
    /// Objects of which a file that could write was closed, and whether the kernel may have attributes from before.
    written: Mutex<Table<Ino>>,
}

#[derive(Debug)]
struct Table<K> {
    values: HashMap<K, bool>,
    order: VecDeque<K>,
}

impl<K> Default for Table<K> {
    fn default() -> Table<K> {
        Table {
            values: HashMap::default(),
            order: VecDeque::new(),
        }
    }
}

impl<K: Copy + Eq + std::hash::Hash> Table<K> {
    fn note(&mut self, of: K, value: bool) {
        if self.values.insert(of, value).is_none() {
            self.order.push_back(of);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.values.remove(&oldest);
        }
    }
}

impl Habits {
    /// Notes the number of requests of an open file, and their bytes.
    fn note(&self, ino: Ino, program: Option<Program>, requests: u64, bytes: u64) {
        if requests == 0 {
            return;
        }
        let large = bytes / requests >= LARGE;
        self.objects.lock().note(ino, large);
        if let Some(program) = program {
            self.programs.lock().note(program, large);
        }
    }

    /// Notes that a program asks for a lock.
    pub(super) fn note_locked(&self, ino: Ino) {
        self.locked.lock().note(ino, true);
    }

    /// Whether a program of this mount has asked for a lock, as far as is known.
    pub(super) fn locked(&self, ino: Ino) -> bool {
        self.locked.lock().values.contains_key(&ino)
    }

    /// Notes that a file that could write is closed. A reply to a lookup that crosses the close may give the kernel the size
    /// from before, at which reads through pages end.
    pub(super) fn note_written(&self, ino: Ino) {
        self.written.lock().note(ino, true);
    }

    /// Whether that was noted since the last call.
    fn take_written(&self, ino: Ino) -> bool {
        let mut written = self.written.lock();
        written.values.get_mut(&ino).is_some_and(std::mem::take)
    }

    /// Notes that a page of an object could not be read.
    pub(super) fn note_damaged(&self, ino: Ino) {
        self.damaged.lock().note(ino, true);
    }

    /// Whether a page of an object could not be read, as far as is known.
    fn damaged(&self, ino: Ino) -> bool {
        self.damaged.lock().values.contains_key(&ino)
    }

    /// Whether the requests on an object are expected to be large, if anything is known.
    fn large(&self, ino: Ino, program: Option<Program>) -> Option<bool> {
        let known = self.objects.lock().values.get(&ino).copied();
        known.or_else(|| self.programs.lock().values.get(&program?).copied())
    }
}

/// The name of the program of a process, where the mount sees it.
fn program_of(process: u32) -> Option<Program> {
    let name = std::fs::read(format!("/proc/{process}/comm")).ok()?;
    let mut program = Program::default();
    let len = name.len().min(program.len());
    program[..len].copy_from_slice(&name[..len]);
    Some(program)
}

impl Shared {
    /// Whether the kernel has to request the attributes of an open file before it reads to the end.
    pub(super) fn needs_size(&self, file: &OpenFile) -> bool {
        file.has_pages() && self.habits.take_written(file.object)
    }

    /// Whether the kernel need not send a flush at each `close` of an open file: nothing is written through it, and no
    /// program of this mount has locked the object so far.
    pub(super) fn needs_no_flush(&self, file: &OpenFile) -> bool {
        !file.write
            && !file.handle().is_coupled()
            && file.handle().size() > 0
            && !self.habits.locked(file.object)
    }

    /// Notes the requests of an open file so far, if any of them says something about those to come.
    pub(super) fn note_habit(&self, file: &OpenFile) {
        if !file.is_selection() {
            let (requests, bytes) = file.requests();
            self.habits
                .note(file.object, file.program(), requests, bytes);
        }
    }

    /// Whether an open file of a plain inode reads through pages. Called once, before the reply to its open.
    pub(super) fn reads_pages(&self, file: &OpenFile, flags: OpenFlags) -> bool {
        let handle = file.handle();
        let size = handle.size();
        if size > SMALL && self.pages == Pages::Auto {
            file.set_program(program_of(file.opener));
        }
        if file.write || flags.0 & libc::O_DIRECT != 0 || !handle.grows_by_zeros() {
            return false;
        }
        match self.pages {
            Pages::Never => false,
            Pages::Always => !handle.is_coupled(),
            Pages::Auto => {
                self.client.strict()
                    && !handle.is_coupled()
                    && !handle.has_writers()
                    && !self.habits.damaged(file.object)
                    && (size <= SMALL || self.expects_small(file))
            }
        }
    }

    fn expects_small(&self, file: &OpenFile) -> bool {
        match self.habits.large(file.object, file.program()) {
            Some(large) => !large,
            None => file.handle().rank() <= 1 && self.client.of(file.object).local(),
        }
    }
}

#[cfg(test)]
mod tests {
    use slabfs_model::ObjectId;

    use super::*;

    #[test]
    fn habits_of_objects_go_before_those_of_programs() {
        let habits = Habits::default();
        let (ino, other) = (ObjectId(3), ObjectId(4));
        let program = program_of(std::process::id());
        assert!(program.is_some());
        habits.note(ino, program, 0, 0);
        assert_eq!(habits.large(ino, program), None);
        habits.note(ino, program, 10, 10 << 20);
        assert_eq!(habits.large(ino, None), Some(true));
        assert_eq!(habits.large(other, None), None);
        assert_eq!(habits.large(other, program), Some(true));
        habits.note(other, None, 1000, 4096 * 1000);
        assert_eq!(habits.large(other, program), Some(false));
    }

    #[test]
    fn the_oldest_habits_make_room() {
        let habits = Habits::default();
        for object in 0..=MOST as u64 {
            habits.note(ObjectId(object), None, 1, 1);
        }
        assert_eq!(habits.large(ObjectId(0), None), None);
        assert_eq!(habits.large(ObjectId(1), None), Some(false));
    }
}
