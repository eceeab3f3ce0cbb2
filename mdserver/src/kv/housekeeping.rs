//! The work of the upkeep thread: pending changes into the index, checkpoints, repair of the index.
//!
//! Only that thread calls these, so nobody but itself changes the index while it dumps it: a part at a time, when too much
//! waits to be moved (`before`). (Opening and closing call some of them too, before the thread runs and after it has ended.)

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

/// Pending changes of this size are moved into the index without waiting for the next beat.
pub(super) const SEAL_BYTES: usize = 32 << 20;
/// So many bytes are moved between two looks at the free space, and dumped between two words to those who wait.
pub(super) const PART: usize = 16 << 10;
/// sled is written to when so much is set aside behind its log. A part has some 170 rows of the shortest, each perhaps in a
/// page of its own, and of ten changes of a node of sixteen pages one rewrites all of it: 3 KiB a row, or 42 beside rows of
/// 16 KiB. That is what it comes to mostly, and no bound: the changes that rewrite nodes may fall together.
const RESERVE: u64 = 8 << 20;
/// So much is set aside at a time where there is room for many times that, since it is not free to ask.
const AHEAD: u64 = 2 * RESERVE;
const MUCH: u64 = 8 * RESERVE;
/// So much is left to others on the disk.
const LEFT: u64 = 2 << 20;
/// A checkpoint of a large store is written less often, but at the latest after this much journal:
/// a start reads some hundred MB of it a second, and keeps what it changed in memory.
const JOURNAL_CEILING: u64 = 128 << 20;

/// The checkpoints there are.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) newest: Head,
    pub(super) newest_bytes: u64,
    pub(super) previous: Option<Head>,
    /// How much had been appended to the journal when the newest was begun.
    pub(super) appended: u64,
}

impl Kept {
    /// How much must have been appended for the next checkpoint, and how much for commits to wait for
    /// it: the limit, or more when the dump itself is large, so that dumping never costs more than a
    /// few times what is committed.
    pub(super) fn next(&self, limit: u64) -> (u64, u64) {
        let due = self.due(limit);
        (self.appended + due, self.appended + 2 * due)
    }

    fn due(&self, limit: u64) -> u64 {
        (self.newest_bytes / 4).min(JOURNAL_CEILING).max(limit)
    }

    /// How much more may be appended when `bytes` of the next checkpoint are written: commits that wait for it
    /// are held to its pace and not stopped until it is there. For all of it as much as from one to the next.
    fn granted(&self, bytes: u64, limit: u64) -> u64 {
        let part = bytes.min(self.newest_bytes) as f64 / self.newest_bytes.max(1) as f64;
        (part * self.due(limit) as f64) as u64
    }
}

impl Engine {
    /// Moves what is pending into the index; answers the commit the index then stands at.
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

    /// Moves a sealed table, a part at a time: a disk that fills up stops it between parts, and the
    /// next try goes on from there. Commits that wait for room go on after each part, so that they are held to
    /// the pace of this and never stopped for as long as a table takes.
    fn apply(&self, table: &Memtable, lsn: Lsn) -> Result<(), KvError> {
        loop {
            let base = self.base.read();
            let index = base.index().map_err(|fault| self.failed(fault))?;
            if self.apply_part(index, table, lsn, None)? {
                return Ok(());
            }
        }
    }

    /// Moves the next part of a sealed table; true when that was all of it. `before` keeps what is changed.
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
            let kept = before.keep(index, &part);
            let kept = kept.map_err(|fault| self.failed(fault))?;
            if kept < part.len() {
                part.truncate(kept);
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
        // A commit at this moment may put it up once more, until the next part or the end of the table.
        let less = |pending: usize| Some(pending.saturating_sub(bytes));
        // It never fails.
        let _ = self
            .pending
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.signals.stuck(|stuck| stuck.moving = None);
        Ok(false)
    }

    /// The sealed table is in the index.
    fn unseal(&self) {
        let pending = {
            let mut tables = self.tables.write();
            tables.unseal();
            tables.pending()
        };
        self.pending.store(pending, Ordering::Relaxed);
        self.signals.stuck(|stuck| stuck.moving = None);
    }

    /// While the index is dumped: moves a part of what is pending, if that is much and leaves room for the `rest` of the dump.
    /// False when there is none: the dump goes on alone then, for it is what makes room.
    fn move_aside(&self, index: &Index, before: &mut Before, rest: u64) -> Result<bool, KvError> {
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

    /// Sets aside what sled will write of one part, for it does not survive a full disk. Looking at
    /// the free space alone would not do: what fills the disk may be faster.
    fn make_room(&self, index: &Index) -> Result<(), KvError> {
        let ahead = match self.check_space(MUCH) {
            Ok(()) => AHEAD,
            Err(_) => RESERVE,
        };
        let made = index.reserve(&*self.ground.disk, RESERVE, ahead);
        made.map_err(|error| KvError::io("set room aside for", &self.dir.join(SLED), &error))?;
        self.check_space(LEFT)
    }

    /// An error when less than `bytes` are free.
    fn check_space(&self, bytes: u64) -> Result<(), KvError> {
        let free = self.ground.disk.free(&self.dir);
        let free =
            free.map_err(|error| KvError::io("ask for the free space of", &self.dir, &error))?;
        if free < bytes {
            Err(KvError::NoSpace {
                path: self.dir.clone(),
            })
        } else {
            Ok(())
        }
    }

    /// Lets the index be repaired.
    fn failed(&self, fault: Fault) -> KvError {
        let detail = fault.to_string();
        self.signals.report(fault);
        KvError::Index { detail }
    }

    /// True when enough was appended since the newest checkpoint.
    pub(super) fn checkpoint_due(&self) -> bool {
        self.journal.lock().appended() >= self.signals.checkpoint_at()
    }

    /// True when so much is pending that it should be moved now.
    pub(super) fn much_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > SEAL_BYTES
    }

    /// After a failure: tries again at the next beat.
    pub(super) fn put_off_checkpoint(&self) {
        self.signals
            .set_checkpoint_at(u64::MAX, self.signals.overdue_at());
    }

    /// Dumps the index as it stands at one commit; commits go on meanwhile.
    pub(super) fn write_checkpoint(&self) -> Result<Head, KvError> {
        // The journal goes on in a new file, so that all before can go when this checkpoint is old.
        // Without room for a new file it goes later.
        if let Err(error) = self.make_spare() {
            tracing::debug!(%error, "a checkpoint begins without a new journal file");
        }
        let appended = {
            let mut journal = self.journal.lock();
            journal.rotate(self.group.synced())?;
            journal.appended()
        };
        let lsn = self.move_to_index()?;
        self.sync()?;
        let newest = self.kept.lock().newest;
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
                hook.run(lsn);
            }
            Some(self.dump(head)?)
        };
        let mut kept = self.kept.lock();
        if let Some(bytes) = bytes {
            kept.previous = Some(newest);
            kept.newest = head;
            kept.newest_bytes = bytes;
        }
        kept.appended = appended;
        let (due, overdue) = kept.next(self.options.journal_limit);
        let newest = kept.newest;
        let oldest = kept.previous.unwrap_or(newest);
        drop(kept);
        self.remove_old(newest, oldest)?;
        self.signals.set_checkpoint_at(due, overdue);
        self.signals.stuck(|stuck| stuck.dumping = None);
        Ok(newest)
    }

    fn dump(&self, head: Head) -> Result<u64, KvError> {
        self.check_space(LEFT + self.kept.lock().newest_bytes)?;
        let base = self.base.read();
        let index = base.index().map_err(|fault| self.failed(fault))?;
        let mut entries = index.range(b"", None).map_err(|fault| self.failed(fault))?;
        let mut writer = Writer::new(&self.dir, &self.ground, head)?;
        let mut before = Before::default();
        let about = self.kept.lock().newest_bytes;
        let (mut told, mut moves) = (0, true);
        while let Some((key, value)) = entries.next().map_err(|fault| self.failed(fault))? {
            let mut is_changed = false;
            while let Some((kept, value)) = before.next_upto(&key) {
                is_changed |= *kept == *key;
                if let Some(value) = value {
                    writer.push(&kept, &value)?;
                }
            }
            if !is_changed {
                let value = value.ok_or_else(|| self.failed(wrong(&key)))?;
                writer.push(&key, &value)?;
            }
            before.pass(&key);
            if writer.written() >= told + PART as u64 {
                told = writer.written();
                self.grant(told);
                let rest = about.saturating_sub(told);
                moves = moves && self.move_aside(index, &mut before, rest)?;
            }
        }
        while let Some((kept, value)) = before.next() {
            if let Some(value) = value {
                writer.push(&kept, &value)?;
            }
        }
        writer.finish()
    }

    /// Lets commits go on that wait for the checkpoint of which `bytes` are written.
    fn grant(&self, bytes: u64) {
        let limit = self.options.journal_limit;
        let overdue = {
            let kept = self.kept.lock();
            kept.next(limit).1 + kept.granted(bytes, limit)
        };
        self.signals
            .set_checkpoint_at(self.signals.checkpoint_at(), overdue);
    }

    /// The newest checkpoint, open for reading.
    pub(super) fn newest_checkpoint(&self) -> Result<Snapshot, KvError> {
        // While the lock is held it is not replaced, and so not removed.
        let kept = self.kept.lock();
        let path = self.dir.join(checkpoint_name(kept.newest.lsn.0));
        let file = File::open(&path).map_err(|error| KvError::io("open", &path, &error))?;
        Ok(Snapshot {
            file,
            bytes: kept.newest_bytes,
            last: kept.newest.lsn,
        })
    }

    /// Removes what no kept checkpoint needs.
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

    /// The older checkpoint was taken away.
    pub(super) fn forget_previous(&self) {
        let mut kept = self.kept.lock();
        kept.previous = None;
        self.journal.lock().forget_before(kept.newest.journal);
    }

    /// The index failed, or the truth under the tables did: reads the truth anew and answers from
    /// that, until the index is compared again.
    pub(super) fn repair(&self) -> Result<(), KvError> {
        let journal = self.journal.lock();
        let mut base = self.base.write();
        *base = Base::Nothing(Fault("the metadata is read anew".to_owned()));
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

    /// Opens the index, compares every entry with the truth that answers meanwhile, and lets the
    /// index answer from then on.
    pub(super) fn compare(&self) -> Result<(), KvError> {
        let truth = match &*self.base.read() {
            Base::Direct(direct) => direct.clone(),
            Base::Index(_) | Base::Nothing(_) => return Ok(()),
        };
        let start = Instant::now();
        let opened = open_index(&self.dir, &self.options, &self.ground, &truth, self)?;
        opened.tell(&mut self.recovery.lock());
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

    /// Who waits for a checkpoint goes on as it is written, and never beyond as much again as starts the next.
    #[test]
    fn a_checkpoint_grants_as_it_is_written() {
        let head = Head {
            store: [0; 16],
            lsn: Lsn(1),
            journal: 1,
        };
        let kept = |newest_bytes| Kept {
            newest: head,
            newest_bytes,
            previous: None,
            appended: 5 << 20,
        };
        let (large, limit) = (kept(400 << 20), 64 << 20);
        assert_eq!(large.next(limit), (105 << 20, 205 << 20));
        assert_eq!(large.granted(0, limit), 0);
        assert_eq!(large.granted(200 << 20, limit), 50 << 20);
        for bytes in [400 << 20, u64::MAX] {
            assert_eq!(large.granted(bytes, limit), 100 << 20);
        }
        assert_eq!(kept(0).granted(1 << 20, limit), 0);
        assert_eq!(kept(88).granted(1 << 20, limit), limit);
    }
}
