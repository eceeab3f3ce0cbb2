//! Reads the journal after a checkpoint and decides what is missing.
//!
//! Every frame records the commit before it, so any loss shows as a gap in the numbers. Three cases are distinguished:
//!
//! - Bytes after the last good frame that are no frame, or a record that is cut short: it was not acknowledged and is
//!   truncated.
//! - A gap with good frames after it, or a complete record that is damaged: a **loss**. The store does not open unless
//!   the loss is accepted.
//! - A gap that begins after everything known to be synced, in a file written during another boot: before a power loss
//!   the disk wrote later blocks but not earlier ones. The journal ends before the gap.
//!
//! Damage to bytes that a good checkpoint makes unnecessary costs nothing and is only reported.

use super::disk::{Ground, Id, journal_name, numbered};
use super::frame::{Frame, HEADER, Header, Kind, guess_keys, next_file, parse};
use super::walk::{Bad, Step, Walk};
use super::{Batch, Damage, KvError, Lsn};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The commit that last changed a key, and the value; `None` is a deletion.
pub(super) type Change = (Lsn, Option<Vec<u8>>);

/// The newest change of each key after the checkpoint.
pub(super) type Overlay = BTreeMap<Vec<u8>, Change>;

/// The journal's changes after the checkpoint.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes {
    /// The last commit in the checkpoint.
    pub(super) after: Lsn,
    /// The changes.
    pub(super) overlay: Arc<Overlay>,
}

impl Changes {
    /// See [`super::MetaKv::changed_since`].
    pub(super) fn of(&self, table: u8, after: Lsn) -> Option<Vec<Vec<u8>>> {
        if after < self.after {
            return None;
        }
        let rows = self.overlay.range(vec![table]..);
        let rows = rows.take_while(|(key, _)| key.first() == Some(&table));
        let changed = rows.filter(|(_, (lsn, _))| *lsn > after);
        Some(changed.map(|(key, _)| key.clone()).collect())
    }
}

/// The most missing files that are reported one by one; a stray file may have any number.
const MOST_NAMED: usize = 1024;
/// What is wrong with a missing file.
const MISSING: &str = "the file is missing";

/// Where reading starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct From {
    /// The last commit in the checkpoint.
    pub(super) after: Lsn,
    /// The file that holds the commit after it.
    pub(super) file: u64,
    /// The store the files must belong to, if known.
    pub(super) store: Option<Id>,
    /// That file existed once: if it is missing, that is a loss.
    pub(super) must_exist: bool,
}

/// The result of reading the journal after a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// The changes.
    pub(super) overlay: Arc<Overlay>,
    /// The last commit.
    pub(super) last: Lsn,
    /// Records that were read.
    pub(super) records: u64,
    /// The store the files belong to.
    pub(super) store: Option<Id>,
    /// The last frame is the closing one.
    pub(super) closed: bool,
    /// Bytes of garbage after the last frame.
    pub(super) garbage: u64,
    /// Damage that lost commits.
    pub(super) losses: Vec<Damage>,
    /// Damage that cost nothing.
    pub(super) healed: Vec<Damage>,
    /// Commits lost by a power loss.
    pub(super) unsynced: Option<(Lsn, Lsn)>,
    /// The last file with a good frame, and the offset of that frame's end.
    pub(super) end: Option<(u64, u64)>,
    /// The next file, if the last good frame names one.
    pub(super) next: Option<u64>,
    /// The first file after the last good frame that has a good header and no frames.
    pub(super) empty: Option<u64>,
    /// Each file that was read, with the first commit it may hold.
    pub(super) firsts: Vec<(u64, Lsn)>,
    /// Bytes of good frames.
    pub(super) bytes: u64,
    /// A file that must exist and has not been read yet.
    announced: Option<u64>,
    /// The highest commit that any frame records as synced.
    synced: Lsn,
    /// The boot the last good frame was written in.
    boot: Option<Id>,
    /// Bad stretches since the last good frame.
    pending: Vec<Stretch>,
}

/// A bad stretch of file `number`, and the boot the file was written in.
#[derive(Debug)]
struct Stretch {
    number: u64,
    bad: Bad,
    boot: Option<Id>,
}

impl Stretch {
    fn into_damage(self, lost: Option<(Lsn, Lsn)>) -> Damage {
        let Bad {
            offset,
            keys,
            detail,
            ..
        } = self.bad;
        Damage {
            file: journal_name(self.number).into(),
            offset,
            lost,
            keys,
            detail,
        }
    }
}

/// Reads the journal in `dir`.
pub(super) fn replay(dir: &Path, from: From, ground: &Ground) -> Result<Replay, KvError> {
    let numbers: Vec<u64> = numbered(dir, "journal")?
        .into_iter()
        .filter(|&n| n >= from.file)
        .collect();
    let mut replay = Replay {
        last: from.after,
        store: from.store,
        announced: from.must_exist.then_some(from.file),
        ..Replay::default()
    };
    let mut expected = from.file;
    for (i, &number) in numbers.iter().enumerate() {
        let missing = (expected..number).take(MOST_NAMED);
        missing.for_each(|missing| replay.bad_start(missing, 0, MISSING));
        expected = number.saturating_add(1);
        let bytes = read_file(dir, number)?;
        let later = || Ahead::in_files(dir, &numbers[i + 1..]);
        if !replay.read_file(number, &bytes, &later, ground)? {
            return Ok(replay);
        }
    }
    if let Some(missing) = replay.announced.filter(|&n| n >= expected) {
        replay.bad_start(missing, 0, MISSING);
    }
    replay.finish(ground);
    Ok(replay)
}

fn read_file(dir: &Path, number: u64) -> Result<Vec<u8>, KvError> {
    let path = dir.join(journal_name(number));
    fs::read(&path).map_err(|error| KvError::io("read", &path, &error))
}

/// What the good frames ahead record.
#[derive(Debug, Default, Clone, Copy)]
struct Ahead {
    /// The highest commit recorded as synced.
    synced: Lsn,
    /// The highest commit.
    last: Lsn,
}

impl Ahead {
    fn and(self, other: Self) -> Self {
        Self {
            synced: self.synced.max(other.synced),
            last: self.last.max(other.last),
        }
    }

    fn frame(frame: &Frame<'_>) -> Self {
        Self {
            synced: frame.synced,
            last: frame.lsn,
        }
    }

    fn in_file(walk: Walk<'_>) -> Self {
        walk.fold(Self::default(), |ahead, step| match step {
            Step::Frame(frame, _) => ahead.and(Self::frame(&frame)),
            Step::Bad(_) => ahead,
        })
    }

    fn in_files(dir: &Path, files: &[u64]) -> Result<Self, KvError> {
        let mut ahead = Self::default();
        for &number in files {
            ahead = ahead.and(Self::in_file(Walk::new(&read_file(dir, number)?, number)));
        }
        Ok(ahead)
    }
}

/// Returns the last commit before `frame`, as it records.
fn before(frame: &Frame<'_>) -> Lsn {
    match frame.kind {
        Kind::Record => Lsn(frame.lsn.0.saturating_sub(1)),
        Kind::Synced | Kind::Next | Kind::Close => frame.lsn,
    }
}

impl Replay {
    /// Reads one file; false if the journal ends in it.
    fn read_file(
        &mut self,
        number: u64,
        bytes: &[u8],
        later: &dyn Fn() -> Result<Ahead, KvError>,
        ground: &Ground,
    ) -> Result<bool, KvError> {
        let boot = match self.read_header(number, bytes)? {
            Verdict::Ours(boot) => Some(boot),
            Verdict::Damaged => None,
            Verdict::Foreign => return Ok(true),
        };
        self.firsts.push((number, Lsn(self.last.0 + 1)));
        let mut walk = Walk::new(bytes, number);
        while let Some(step) = walk.next() {
            let (frame, end) = match step {
                Step::Bad(bad) => {
                    self.pending.push(Stretch { number, bad, boot });
                    continue;
                }
                Step::Frame(frame, end) => (frame, end),
            };
            if before(&frame) > self.last {
                if self.written_in_another_boot(ground) {
                    let rest = Ahead::in_file(walk.clone()).and(later()?);
                    let ahead = Ahead::frame(&frame).and(rest);
                    if ahead.synced <= self.last {
                        self.unsynced = Some((Lsn(self.last.0 + 1), ahead.last));
                        return Ok(false);
                    }
                }
                self.gap(number, end - frame.len as u64, before(&frame));
            }
            self.nothing_lost();
            self.take(&frame, number, end);
            self.boot = boot;
        }
        Ok(true)
    }

    fn read_header(&mut self, number: u64, bytes: &[u8]) -> Result<Verdict, KvError> {
        match Header::decode(bytes) {
            Ok(header)
                if header.number == number
                    && self.store.is_none_or(|store| store == header.store) =>
            {
                self.store = Some(header.store);
                self.announced = self.announced.filter(|&announced| announced != number);
                if self.pending.is_empty() {
                    self.empty.get_or_insert(number);
                    self.boot = Some(header.boot);
                }
                Ok(Verdict::Ours(header.boot))
            }
            Ok(_) => {
                let detail = "the file belongs to another place or store";
                self.bad_start(number, bytes.len(), detail);
                Ok(Verdict::Foreign)
            }
            Err(detail) if detail.starts_with("format version") => Err(KvError::Invalid(format!(
                "{}: {detail}",
                journal_name(number)
            ))),
            Err(detail) => {
                self.bad_start(number, bytes.len().min(HEADER), &detail);
                Ok(Verdict::Damaged)
            }
        }
    }

    /// True if the bytes that come next were written during an earlier boot of the machine, so that a power loss may
    /// have destroyed them.
    fn written_in_another_boot(&self, ground: &Ground) -> bool {
        let boot = self
            .pending
            .first()
            .map_or(self.boot, |stretch| stretch.boot);
        another_boot(boot, ground)
    }

    /// Notes that the first `len` bytes of file `number` are bad.
    fn bad_start(&mut self, number: u64, len: usize, detail: &str) {
        let bad = Bad::new(0, len as u64, detail);
        self.pending.push(Stretch {
            number,
            bad,
            boot: None,
        });
    }

    /// Notes the loss of the commits up to `upto`; the next good frame is at `offset` of file `number`.
    fn gap(&mut self, number: u64, offset: u64, upto: Lsn) {
        let lost = Some((Lsn(self.last.0 + 1), upto));
        let mut stretches = self.pending.drain(..);
        let damage = match stretches.next() {
            Some(first) => {
                let mut damage = first.into_damage(lost);
                for other in stretches {
                    damage.keys.extend(other.bad.keys.iter().cloned());
                    let place = format!(
                        "; also {} at byte {}",
                        journal_name(other.number),
                        other.bad.offset
                    );
                    damage.detail.push_str(&place);
                }
                damage
            }
            None => Damage {
                file: journal_name(number).into(),
                offset,
                lost,
                keys: Vec::new(),
                detail: "records before this one are missing".to_owned(),
            },
        };
        self.losses.push(damage);
        self.last = upto;
    }

    /// Notes that the bad stretches held nothing that is needed, as the next good frame shows.
    fn nothing_lost(&mut self) {
        let bad = self.pending.drain(..);
        self.healed
            .extend(bad.map(|stretch| stretch.into_damage(None)));
    }

    fn take(&mut self, frame: &Frame<'_>, number: u64, end: u64) {
        self.closed = frame.kind == Kind::Close;
        (self.next, self.announced, self.empty) = (None, None, None);
        match frame.kind {
            Kind::Record if frame.lsn > self.last => match parse(frame.payload) {
                Some(batch) => {
                    self.apply(batch, frame.lsn);
                    self.records += 1;
                    self.last = frame.lsn;
                }
                None => self.unreadable(frame, number, end),
            },
            Kind::Next => {
                (self.next, self.announced) = (next_file(frame.payload), next_file(frame.payload))
            }
            Kind::Record | Kind::Synced | Kind::Close => {}
        }
        self.synced = self.synced.max(frame.synced);
        self.end = Some((number, end));
        self.bytes += frame.len as u64;
    }

    fn unreadable(&mut self, frame: &Frame<'_>, number: u64, end: u64) {
        self.losses.push(Damage {
            file: journal_name(number).into(),
            offset: end - frame.len as u64,
            lost: Some((frame.lsn, frame.lsn)),
            keys: guess_keys(frame.payload),
            detail: "the record is malformed although its checksum is right".to_owned(),
        });
        self.last = frame.lsn;
    }

    fn apply(&mut self, batch: Batch, lsn: Lsn) {
        let overlay = Arc::make_mut(&mut self.overlay);
        for (key, value) in batch.puts {
            overlay.insert(key.into(), (lsn, Some(value)));
        }
        for key in batch.deletes {
            overlay.insert(key.into(), (lsn, None));
        }
    }

    /// Decides about the bytes after the last good frame.
    fn finish(&mut self, ground: &Ground) {
        let announced = self.announced;
        for stretch in std::mem::take(&mut self.pending) {
            let next = Lsn(self.last.0 + 1);
            match stretch.bad.record {
                Some(lsn) if lsn <= self.last => self.healed.push(stretch.into_damage(None)),
                Some(lsn) if another_boot(stretch.boot, ground) && lsn > self.synced => {
                    let first = self.unsynced.map_or(next, |(first, _)| first);
                    self.unsynced = Some((first, lsn));
                    self.garbage += stretch.bad.len;
                }
                Some(lsn) => {
                    self.losses
                        .push(stretch.into_damage(Some((next.min(lsn), lsn))));
                    self.last = lsn;
                }
                None if announced == Some(stretch.number) => {
                    let mut damage = stretch.into_damage(None);
                    damage
                        .detail
                        .push_str(&format!("; gone: any records from {next} on"));
                    self.losses.push(damage);
                }
                None => self.garbage += stretch.bad.len,
            }
        }
        self.closed &= self.garbage == 0 && self.losses.is_empty();
    }
}

enum Verdict {
    Ours(Id),
    Damaged,
    Foreign,
}

fn another_boot(boot: Option<Id>, ground: &Ground) -> bool {
    match (boot, ground.boot) {
        (Some(then), Some(now)) => then != now && then != Id::default(),
        _ => false,
    }
}
