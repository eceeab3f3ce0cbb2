//! The work of the upkeep thread: moving pending changes into the index, writing checkpoints, repairing the index.
//!
//! Only that thread calls these functions, so no other thread changes the index during a dump. The dump itself moves
//! pending changes a part at a time if too many are pending (`before`). (Opening and closing call some of the functions
//! too, before the thread runs and after it has ended.)

use super::base::Base;
use super::before::Before;
use super::checkpoint::{Head, Writer};
use super::direct::Direct;
use super::disk::{checkpoint_name, journal_name, numbered, remove};
use super::engine::Engine;
use super::index::{Fault, Index};
use super::memtable::{Memtable, bytes_of};
use super::reconcile::Surroundings;
use super::scan::wrong;
use super::truth::{SLED, damaged, find};
use super::verify::open_index;
use super::{KvError, Lsn, Snapshot};
use std::fs::File;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Pending changes of this size are moved into the index without waiting for the next interval.
pub(super) const SEAL_BYTES: usize = 32 << 20;
/// Bytes moved between two checks of the free space, and bytes dumped between two notifications of waiting commits.
pub(super) const PART: usize = 16 << 10;
/// sled is written to only if this much is preallocated past the end of its log. A part has some 170 rows of the
/// shortest, each perhaps in a page of its own, and of ten changes of a node of sixteen pages one rewrites all of it: 3
/// KiB a row, or 42 next to rows of 16 KiB. This is the usual amount and not a bound: the changes that rewrite nodes
/// may coincide.
const RESERVE: u64 = 8 << 20;
/// Bytes preallocated at a time if much more is free, because a call is not free.
const AHEAD: u64 = 2 * RESERVE;
/// Free space from which on [`AHEAD`] is preallocated.
const MUCH: u64 = 8 * RESERVE;
/// Free space on the disk that is left to other programs.
const LEFT: u64 = 2 << 20;
/// A checkpoint of a large store is written less often, but at the latest after this much journal:
/// a start reads some hundred MB of journal a second, and holds its changes in memory.
const JOURNAL_CEILING: u64 = 128 << 20;

/// The checkpoints on disk.
#[derive(Debug)]
pub(super) struct Checkpoints {
    pub(super) newest: Head,
    pub(super) newest_bytes: u64,
    pub(super) previous: Option<Head>,
    /// Bytes that had been appended to the journal when the newest was begun.
    pub(super) appended: u64,
}

impl Checkpoints {
    /// Returns the journal length at which the next checkpoint is due, and the one at which commits wait for it. The
    /// distance is `limit`, or more if the dump itself is large, so that dumping never writes more than a few times the
    /// committed bytes.
    pub(super) fn next(&self, limit: u64) -> (u64, u64) {
        let due = self.due(limit);
        (self.appended + due, self.appended + 2 * due)
    }

    fn due(&self, limit: u64) -> u64 {
        (self.newest_bytes / 4).min(JOURNAL_CEILING).max(limit)
    }

    /// Returns how many more bytes may be appended once `bytes` of the next checkpoint are written: waiting commits are
    /// throttled to its pace and not blocked until it is complete. A complete checkpoint grants one full interval.
    fn granted(&self, bytes: u64, limit: u64) -> u64 {
        let part = bytes.min(self.newest_bytes) as f64 / self.newest_bytes.max(1) as f64;
        (part * self.due(limit) as f64) as u64
    }
}

impl Engine {
    /// Moves all pending changes into the index; returns the last commit that the index then contains.
    pub(super) fn move_to_index(&self) -> Result<Lsn, KvError> {
        if let Err(Fault(detail)) = self.base.read().index() {
            return Err(KvError::Index { detail });
        }
        let goal = self.journal.lock().last();
        loop {
            let (table, lsn) = self.tables.write().seal();
            if !table.is_empty() {
                self.apply(&table, lsn)?;
            }
            self.unseal();
            if lsn >= goal {
                return Ok(lsn);
            }
        }
    }

    /// Moves a sealed table, a part at a time. A full disk stops it between parts, and the next attempt continues from
    /// there. Commits that wait for room are woken after each part, so that they are throttled to this pace and not
    /// blocked for the duration of a table.
    fn apply(&self, table: &Memtable, lsn: Lsn) -> Result<(), KvError> {
        loop {
            let base = self.base.read();
            let index = base.index().map_err(|fault| self.failed(fault))?;
            if self.apply_part(index, table, lsn, None)? {
                return Ok(());
            }
        }
    }

    /// Moves the next part of a sealed table; true if that was the last. `before` receives the previous values of the
    /// changed keys.
    fn apply_part(
        &self,
        index: &Index,
        table: &Memtable,
        lsn: Lsn,
        before: Option<&mut Before>,
    ) -> Result<bool, KvError> {
        let mut moved = self.moved.lock();
        let (mut part, mut bytes) = table.part(moved.as_deref(), PART);
        self.make_room(index)?;
        if let Some(before) = before {
            let saved = before.keep(index, &part);
            let saved = saved.map_err(|fault| self.failed(fault))?;
            if saved < part.len() {
                part.truncate(saved);
                bytes = part.iter().copied().map(bytes_of).sum();
            }
        }
        let last = part.last().map(|(key, _)| key.to_vec());
        index
            .apply(&part, last.is_none().then_some(lsn))
            .map_err(|fault| self.failed(fault))?;
        *moved = last;
        if moved.is_none() {
            return Ok(true);
        }
        if let Some(table) = self.options.remembered {
            self.moving.remember(&part, table);
        }
        self.moving.add(bytes);
        // A concurrent commit may overwrite this with a higher value, until the next part or the end of the table.
        let less = |pending: usize| Some(pending.saturating_sub(bytes));
        // It never fails.
        let _ = self
            .pending
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.signals.stuck(|stuck| stuck.moving = None);
        Ok(false)
    }

    /// Drops the sealed table, which is now in the index.
    fn unseal(&self) {
        let pending = {
            let mut tables = self.tables.write();
            tables.unseal();
            tables.pending()
        };
        self.pending.store(pending, Ordering::Relaxed);
        self.signals.stuck(|stuck| stuck.moving = None);
    }

    /// During a dump: moves a part of the pending changes if there are many and enough space stays free for the `rest`
    /// of the dump. Returns false if the disk has no space: the dump then continues alone, because its completion frees
    /// space.
    fn move_during_dump(
        &self,
        index: &Index,
        before: &mut Before,
        rest: u64,
    ) -> Result<bool, KvError> {
        if !self.much_pending() || before.is_full() {
            return Ok(true);
        }
        let sealed = self.tables.read().sealed();
        let (table, lsn) = sealed.unwrap_or_else(|| self.tables.write().seal());
        let moved = self
            .check_space(LEFT + AHEAD + rest)
            .and_then(|()| self.apply_part(index, &table, lsn, Some(before)));
        match moved {
            Ok(true) => self.unseal(),
            Ok(false) => {}
            Err(KvError::NoSpace { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Preallocates the space that sled needs for one part, because sled does not survive a full disk. Checking the
    /// free space alone is not enough: another program may fill the disk first.
    fn make_room(&self, index: &Index) -> Result<(), KvError> {
        let ahead = match self.check_space(MUCH) {
            Ok(()) => AHEAD,
            Err(_) => RESERVE,
        };
        let made = index.reserve(&*self.ground.disk, RESERVE, ahead);
        made.map_err(|error| KvError::io("preallocate space for", &self.dir.join(SLED), &error))?;
        self.check_space(LEFT)
    }

    /// Fails if fewer than `bytes` are free.
    fn check_space(&self, bytes: u64) -> Result<(), KvError> {
        let free = self.ground.disk.free(&self.dir);
        let free =
            free.map_err(|error| KvError::io("query the free space of", &self.dir, &error))?;
        if free < bytes {
            Err(KvError::NoSpace {
                path: self.dir.clone(),
            })
        } else {
            Ok(())
        }
    }

    /// Reports the fault, so that the index is repaired.
    fn failed(&self, fault: Fault) -> KvError {
        let detail = fault.to_string();
        self.signals.report(fault);
        KvError::Index { detail }
    }

    /// True if enough was appended since the newest checkpoint.
    pub(super) fn checkpoint_due(&self) -> bool {
        self.journal.lock().appended() >= self.signals.checkpoint_at()
    }

    /// True if so many changes are pending that they should be moved now.
    pub(super) fn much_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > SEAL_BYTES
    }

    /// After a failure: the next attempt is made at the next interval.
    pub(super) fn put_off_checkpoint(&self) {
        self.signals
            .set_checkpoint_at(u64::MAX, self.signals.overdue_at());
    }

    /// Dumps the index as of one commit; commits continue meanwhile.
    pub(super) fn write_checkpoint(&self) -> Result<Head, KvError> {
        // The journal continues in a new file, so that all earlier files can be removed when this checkpoint is the
        // older one. Without space for a new file they are removed later.
        if let Err(error) = self.make_spare() {
            tracing::debug!(%error, "starting a checkpoint without a new journal file");
        }
        let appended = {
            let mut journal = self.journal.lock();
            journal.rotate(self.group.synced())?;
            journal.appended()
        };
        let lsn = self.move_to_index()?;
        self.sync()?;
        let newest = self.checkpoints.lock().newest;
        let head = Head {
            store: self.store,
            lsn,
            journal: self.journal.lock().file_after(lsn),
        };
        let bytes = if newest.lsn == lsn {
            None
        } else {
            let hook = self.before_checkpoint.lock().clone();
            if let Some(hook) = hook {
                hook(lsn);
            }
            Some(self.dump(head)?)
        };
        let mut checkpoints = self.checkpoints.lock();
        if let Some(bytes) = bytes {
            checkpoints.previous = Some(newest);
            checkpoints.newest = head;
            checkpoints.newest_bytes = bytes;
        }
        checkpoints.appended = appended;
        let (due, overdue) = checkpoints.next(self.options.journal_limit);
        let newest = checkpoints.newest;
        let oldest = checkpoints.previous.unwrap_or(newest);
        drop(checkpoints);
        self.remove_old(newest, oldest)?;
        self.signals.set_checkpoint_at(due, overdue);
        self.signals.stuck(|stuck| stuck.dumping = None);
        Ok(newest)
    }

    fn dump(&self, head: Head) -> Result<u64, KvError> {
        self.check_space(LEFT + self.checkpoints.lock().newest_bytes)?;
        let base = self.base.read();
        let index = base.index().map_err(|fault| self.failed(fault))?;
        let mut entries = index.range(b"", None).map_err(|fault| self.failed(fault))?;
        let mut writer = Writer::new(&self.dir, &self.ground, head)?;
        let mut before = Before::default();
        let about = self.checkpoints.lock().newest_bytes;
        let (mut granted, mut moves) = (0, true);
        while let Some((key, value)) = entries.next().map_err(|fault| self.failed(fault))? {
            let mut is_changed = false;
            while let Some((saved, value)) = before.next_upto(&key) {
                is_changed |= *saved == *key;
                if let Some(value) = value {
                    writer.push(&saved, &value)?;
                }
            }
            if !is_changed {
                let value = value.ok_or_else(|| self.failed(wrong(&key)))?;
                writer.push(&key, &value)?;
            }
            before.dumped_upto(&key);
            if writer.written() >= granted + PART as u64 {
                granted = writer.written();
                self.grant(granted);
                let rest = about.saturating_sub(granted);
                moves = moves && self.move_during_dump(index, &mut before, rest)?;
            }
        }
        while let Some((saved, value)) = before.next() {
            if let Some(value) = value {
                writer.push(&saved, &value)?;
            }
        }
        writer.finish()
    }

    /// Wakes commits that wait for the checkpoint of which `bytes` are written.
    fn grant(&self, bytes: u64) {
        let limit = self.options.journal_limit;
        let overdue = {
            let checkpoints = self.checkpoints.lock();
            checkpoints.next(limit).1 + checkpoints.granted(bytes, limit)
        };
        self.signals
            .set_checkpoint_at(self.signals.checkpoint_at(), overdue);
    }

    /// The newest checkpoint, open for reading.
    pub(super) fn newest_checkpoint(&self) -> Result<Snapshot, KvError> {
        // While this lock is held the checkpoint is not replaced, and so not removed.
        let checkpoints = self.checkpoints.lock();
        let path = self.dir.join(checkpoint_name(checkpoints.newest.lsn.0));
        let file = File::open(&path).map_err(|error| KvError::io("open", &path, &error))?;
        Ok(Snapshot {
            file,
            bytes: checkpoints.newest_bytes,
            last: checkpoints.newest.lsn,
        })
    }

    /// Removes the checkpoints other than these two, and the journal files that neither of them needs.
    fn remove_old(&self, newest: Head, oldest: Head) -> Result<(), KvError> {
        for lsn in numbered(&self.dir, "checkpoint")? {
            if lsn != newest.lsn.0 && lsn != oldest.lsn.0 {
                remove(&self.dir.join(checkpoint_name(lsn)))?;
            }
        }
        for number in self.journal.lock().forget_before(oldest.journal) {
            remove(&self.dir.join(journal_name(number)))?;
        }
        Ok(())
    }

    /// Notes that the older checkpoint was moved away.
    pub(super) fn forget_previous(&self) {
        let mut checkpoints = self.checkpoints.lock();
        checkpoints.previous = None;
        self.journal
            .lock()
            .forget_before(checkpoints.newest.journal);
    }

    /// After a failure of the index, or of the checkpoint below the tables: reads checkpoint and journal again and
    /// answers from them until the index is compared again.
    pub(super) fn repair(&self) -> Result<(), KvError> {
        let journal = self.journal.lock();
        let mut base = self.base.write();
        *base = Base::Nothing(Fault("the metadata is being read again".to_owned()));
        self.indexed.store(false, Ordering::Release);
        match self.read_truth(journal.last()) {
            Ok(direct) => {
                self.tables.write().replace(Memtable::default());
                *self.moved.lock() = None;
                self.pending.store(0, Ordering::Relaxed);
                *base = Base::Direct(direct);
                Ok(())
            }
            Err(error) => {
                *base = Base::Nothing(Fault(error.to_string()));
                Err(error)
            }
        }
    }

    fn read_truth(&self, last: Lsn) -> Result<Direct, KvError> {
        let mut found = find(&self.dir, &self.ground)?;
        if !found.replay.losses.is_empty() {
            return Err(damaged(&self.dir, found.replay.losses));
        }
        if found.replay.last != last {
            let read = found.replay.last;
            return Err(KvError::Index {
                detail: format!("the journal ends at {read} and not at {last}"),
            });
        }
        found.new = false;
        Ok(found.direct())
    }

    /// Opens the index, compares every entry with checkpoint and journal, which answer meanwhile, and answers from the
    /// index from then on.
    pub(super) fn compare(&self) -> Result<(), KvError> {
        let truth = match &*self.base.read() {
            Base::Direct(direct) => direct.clone(),
            Base::Index(_) | Base::Nothing(_) => return Ok(()),
        };
        let start = Instant::now();
        let opened = open_index(&self.dir, &self.options, &self.ground, &truth, self)?;
        opened.report(&mut self.recovery.lock());
        opened.log(start.elapsed());
        let mut base = self.base.write();
        let mut tables = self.tables.write();
        tables.lay_under(opened.reconciled.memtable, truth.last);
        self.pending.store(tables.pending(), Ordering::Relaxed);
        *base = Base::Index(opened.index);
        self.indexed.store(true, Ordering::Release);
        Ok(())
    }
}

impl Surroundings for Engine {
    fn stopping(&self) -> bool {
        self.is_closed()
    }

    fn make_room(&self, index: &Index) -> Result<(), KvError> {
        Engine::make_room(self, index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commits that wait for a checkpoint continue as it is written, and never append more than one further interval.
    #[test]
    fn a_checkpoint_grants_as_it_is_written() {
        let head = Head {
            store: [0; 16],
            lsn: Lsn(1),
            journal: 1,
        };
        let checkpoints = |newest_bytes| Checkpoints {
            newest: head,
            newest_bytes,
            previous: None,
            appended: 5 << 20,
        };
        let (large, limit) = (checkpoints(400 << 20), 64 << 20);
        assert_eq!(large.next(limit), (105 << 20, 205 << 20));
        assert_eq!(large.granted(0, limit), 0);
        assert_eq!(large.granted(200 << 20, limit), 50 << 20);
        for bytes in [400 << 20, u64::MAX] {
            assert_eq!(large.granted(bytes, limit), 100 << 20);
        }
        assert_eq!(checkpoints(0).granted(1 << 20, limit), 0);
        assert_eq!(checkpoints(88).granted(1 << 20, limit), limit);
    }
}
