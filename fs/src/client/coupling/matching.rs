//! Reads of coupled objects wait for their cells.
//!
//! The mount asks the matcher once for each read: which cells, and which version of the tiling it has. The reply comes
//! when they are written and brings what is new in the tiling. A read that waits longer asks again every few seconds,
//! so that it finds a service that was restarted, and ends after the object's timeout.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slabfs_mdserver::api::{
    Entry, Ino, MAX_MATCH_BOXES, Matched, MdError, NameWait, Outcome, TilingReply, op,
};
use slabfs_model::layout::boxes_of_run;
use slabfs_model::{Region, Version};

use crate::client::Client;
use crate::client::error::FsError;
use crate::client::handle::{Handle, ReadSink};
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;
use crate::client::stored::tilings::around;

/// How long one request waits.
const WAIT: Duration = Duration::from_secs(2);
/// Boxes that an error names.
const MOST_NAMED: usize = 4;

thread_local! {
    /// The thread of a program whose request this thread executes; 0 for none.
    static CALLER: Cell<u32> = const { Cell::new(0) };
}

/// The thread of a program whose request this thread executes; in a program that uses the library, this thread.
pub(super) fn caller() -> u32 {
    match CALLER.get() {
        0 => nix::unistd::gettid().as_raw() as u32,
        known => known,
    }
}

/// Executes a request of a thread of a program: deadlocks are found by these threads.
pub fn for_thread<T>(thread: u32, run: impl FnOnce() -> T) -> T {
    struct Back(u32);
    impl Drop for Back {
        fn drop(&mut self) {
            CALLER.set(self.0);
        }
    }
    let _back = Back(CALLER.replace(thread));
    run()
}

/// What a read of a coupled object has waited for, and so may rely on. The object may be emptied between the wait and
/// the read: then fill, and an end of file, belong to what is written next, and the read has to wait again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Awaited {
    /// Nothing: what is not written is fill.
    Nothing,
    /// All its cells are written.
    Cells,
    /// No more data comes to this version of the tiling: what is not written is fill.
    End(Version),
}

impl Awaited {
    fn of(outcome: &Outcome, entry: &Entry) -> Awaited {
        match outcome {
            Outcome::Covered => Awaited::Cells,
            Outcome::Ended => {
                let version = entry.info.as_ref().map(|info| info.tiling);
                Awaited::End(version.unwrap_or(Version(0)))
            }
            _ => Awaited::Nothing,
        }
    }

    /// Whether a read may return fill, or less than it asked for. The caller holds the form since before it looked up
    /// the chunks, and looks at the tiling again now: a newer one may be what it has read.
    pub(in crate::client) fn allows_fill(self, object: &Object, geometry: &Geometry) -> bool {
        match self {
            Awaited::Nothing => true,
            Awaited::Cells => false,
            Awaited::End(version) => {
                let known = object.tiling.read().version;
                geometry.info.tiling == version && known.is_none_or(|known| known == version)
            }
        }
    }
}

impl Handle {
    /// Waits until the cells of a read are written, or no more data comes. A handle that can write does not wait, and
    /// only gets the newest tiling. `wanted` is asked now and then whether the read still waits.
    ///
    /// # Errors
    /// `NoData` after the object's timeout; `DataLost`; those of the metadata service.
    pub(in crate::client) fn await_cells(
        &self,
        offset: u64,
        len: usize,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Awaited, FsError> {
        let cells = |geometry: &Geometry| self.cells_of_read(geometry, offset, len as u64);
        self.await_boxes(&cells, wanted)
    }

    /// As [`Handle::await_cells`] for a page of a mapping, which the kernel locks meanwhile: a write to it on this mount
    /// would wait for that lock, and never reach this process. So while a program on this mount may write, the page does
    /// not wait.
    ///
    /// # Errors
    /// As [`Handle::await_cells`]; `Deadlock`.
    pub(in crate::client) fn await_page(
        &self,
        offset: u64,
        len: usize,
        sink: &dyn ReadSink,
    ) -> Result<Awaited, FsError> {
        let may_wait = || !self.client.has_coupled_writer(self.object.ino);
        let wanted = || sink.is_wanted() && may_wait();
        match self.await_cells(offset, len, &wanted) {
            Err(FsError::Cancelled) if !may_wait() => Err(FsError::Deadlock(format!(
                "object {}: a mapping on the mount of a writer asks for bytes that are not written yet, and would block the writer; \
                 read the file, or map it on another mount",
                self.object.ino
            ))),
            other => other,
        }
    }

    /// Whether all cells of a read are known to be written, and it may be answered at once.
    pub(in crate::client) fn knows_read(&self, offset: u64, len: usize) -> bool {
        if self.writable {
            return false;
        }
        let Some(geometry) = self.object.geometry.try_read() else {
            return false;
        };
        let cells = self.cells_of_read(&geometry, offset, len as u64);
        let row = cells.iter().map(|region| region.offset[0]).min();
        // A row that is read for the first time may have to be reported.
        let reads_on = self.object.coupled.has_queue()
            && row.is_none_or(|row| row >= self.row.load(Ordering::Acquire));
        !cells.is_empty()
            && !reads_on
            && self
                .client
                .knows_now(&self.object, geometry.info.tiling, &cells)
    }

    /// Whether this handle may be used only when all writers have closed the object ([`Handle::await_end`]).
    pub fn awaits_end(&self) -> bool {
        !self.writable && self.object.coupled.in_files()
    }

    /// Waits until all writers have closed the object, and adopts its form then.
    ///
    /// # Errors
    /// `NoData` after the object's timeout; those of the metadata service.
    pub fn await_end(&self) -> Result<(), FsError> {
        let none = |_: &Geometry| Vec::new();
        self.client
            .match_cells(&self.object, &none, true, &|| true)
            .map(drop)
    }

    /// Whether reads through this handle wait for data, and more data may come.
    ///
    /// # Errors
    /// Those of the metadata service.
    pub(in crate::client) fn awaits_more(&self) -> Result<bool, FsError> {
        if !self.awaits_data() {
            return Ok(false);
        }
        let none = |_: &Geometry| Vec::new();
        let (outcome, _) = self
            .client
            .match_cells(&self.object, &none, false, &|| true)?;
        Ok(matches!(outcome, Outcome::Waits(_)))
    }

    /// Waits for the cells of a request, as [`Handle::await_cells`] for a read.
    ///
    /// # Errors
    /// As [`Handle::await_cells`].
    pub(in crate::client) fn await_boxes(
        &self,
        boxes: &dyn Fn(&Geometry) -> Vec<Region>,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Awaited, FsError> {
        let cells = |geometry: &Geometry| few(boxes(geometry));
        let first = cells(&self.object.geometry.read());
        let Some(row) = first.iter().map(|region| region.offset[0]).min() else {
            // Nothing, as behind the end of an array that does not grow.
            return Ok(Awaited::Nothing);
        };
        if !self.writable && self.object.coupled.has_queue() {
            self.client.coupled_read_on(self, row)?;
        }
        if !self.writable && self.client.knows_cells(&self.object, &cells)? {
            return Ok(Awaited::Cells);
        }
        self.client.count_match();
        let matched = self
            .client
            .match_cells(&self.object, &cells, !self.writable, wanted);
        let (outcome, awaited) = matched?;
        match outcome {
            Outcome::Lost(servers) => return Err(FsError::DataLost(servers)),
            Outcome::Covered if !self.writable => self.client.watch(&self.object),
            _ => {}
        }
        Ok(match self.writable {
            true => Awaited::Nothing,
            false => awaited,
        })
    }

    /// The boxes of a read, also beyond the object's present size.
    fn cells_of_read(&self, geometry: &Geometry, offset: u64, len: u64) -> Vec<Region> {
        let mut boxes = Vec::new();
        match &self.selected {
            None => {
                let mut cells = geometry.cells.clone();
                let mut len = len;
                if geometry.grows() {
                    let row: u64 = cells.iter().skip(1).product();
                    cells[0] = (i64::MAX as u64) / row.max(1);
                } else {
                    len = len.min(geometry.size().saturating_sub(offset));
                }
                boxes_of_run(&cells, offset, len, &mut boxes);
            }
            Some(selected) => {
                let len = len.min(selected.bytes.saturating_sub(offset));
                let mut packed = Vec::new();
                boxes_of_run(&selected.shape, offset, len, &mut packed);
                for region in packed {
                    let parts = selected.slab.parts(&region);
                    boxes.extend(parts.into_iter().filter_map(|(_, slab)| slab.bounds()));
                }
            }
        }
        few(boxes)
    }
}

/// The boxes, or the one around them if they are too many for a request.
fn few(mut boxes: Vec<Region>) -> Vec<Region> {
    boxes.retain(|region| !region.is_empty());
    if boxes.len() <= MAX_MATCH_BOXES {
        return boxes;
    }
    let all = boxes
        .iter()
        .skip(1)
        .fold(boxes[0].clone(), |all, one| around(&all, one));
    vec![all]
}

impl Client {
    /// Has cells matched, which `cells` computes from the form. If it `waits`, the outcome is never that they are missing.
    ///
    /// # Errors
    /// `NoData` after the object's timeout; those of the metadata service.
    pub(in crate::client) fn match_cells(
        &self,
        object: &Object,
        cells: &dyn Fn(&Geometry) -> Vec<Region>,
        waits: bool,
        wanted: &dyn Fn() -> bool,
    ) -> Result<(Outcome, Awaited), FsError> {
        let begun = Instant::now();
        loop {
            let (timeout, cells) = {
                let geometry = object.geometry.read();
                let Some(couple) = geometry.info.couple.on() else {
                    return Ok((Outcome::NotCoupled, Awaited::Nothing));
                };
                (couple.timeout(), cells(&geometry))
            };
            let left = timeout.saturating_sub(begun.elapsed());
            let wait = match waits {
                true if !wanted() => Duration::ZERO,
                true => left.min(WAIT).min(self.options.io_timeout / 2),
                false => Duration::ZERO,
            };
            let known = object.tiling.read().version.unwrap_or(Version(0));
            let asked = self.md.call(op::Match {
                ino: object.ino,
                known,
                cells,
                pid: caller(),
                waited_ms: begun.elapsed().as_millis() as u64,
                wait_ms: op::millis(wait),
            });
            let matched = match asked {
                // The object was declared again: its cells are others.
                Err(MdError::Stale) => {
                    self.refresh(object)?;
                    if left.is_zero() {
                        return Err(FsError::Unsettled(
                            "a read of a coupled object gave up".into(),
                        ));
                    }
                    continue;
                }
                asked => *asked?,
            };
            let awaited = Awaited::of(&matched.outcome, &matched.entry);
            let outcome = self.adopt_match(object, known, matched)?;
            match outcome {
                Outcome::Deadlock => {
                    return Err(FsError::Deadlock(format!(
                        "object {}: all programs that have it open for writing wait for data themselves, of the program that reads \
                         it; `slabfs couple status` shows what for",
                        object.ino
                    )));
                }
                Outcome::Waits(missing) if waits => {
                    if left.is_zero() {
                        return Err(self.no_data(object.ino, timeout, &missing));
                    }
                    if !wanted() {
                        return Err(FsError::Cancelled);
                    }
                }
                outcome => return Ok((outcome, awaited)),
            }
        }
    }

    /// Waits for a name that does not exist, if its container couples objects of that name. Returns whether it exists now.
    ///
    /// # Errors
    /// `NoData` after the container's timeout; those of the metadata service.
    pub fn await_name(&self, parent: Ino, name: &[u8]) -> Result<bool, FsError> {
        let begun = Instant::now();
        let mut wait = WAIT.min(self.options.io_timeout / 2);
        loop {
            let reply = self.md.call(op::AwaitName {
                parent,
                name: name.to_vec(),
                wait_ms: op::millis(wait),
            })?;
            let timeout = match reply {
                NameWait::Found => return Ok(true),
                NameWait::NotCoupled => return Ok(false),
                NameWait::Missing { timeout_ms } => Duration::from_millis(timeout_ms),
            };
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(FsError::NoData(format!(
                    "{}: no program made an object of this name in a coupled container within {timeout:?}; is its writer \
                     running?",
                    String::from_utf8_lossy(name)
                )));
            }
            wait = wait.min(left);
        }
    }

    /// Takes the form and the tiling that a match has brought.
    fn adopt_match(
        &self,
        object: &Object,
        known: Version,
        matched: Matched,
    ) -> Result<Outcome, FsError> {
        let Matched {
            outcome,
            entry,
            tiling,
        } = matched;
        self.adopt_tiling(object, known, &entry, tiling)?;
        self.adopt_entry(object, &entry)?;
        Ok(outcome)
    }

    /// Adopts a newer form. The caller holds no lock of the object.
    pub(super) fn adopt_entry(&self, object: &Object, entry: &Entry) -> Result<(), FsError> {
        if entry.attr.change > object.geometry.read().attr.change {
            let mut geometry = object.geometry.write();
            self.adopt(object, &mut geometry, entry)?;
        }
        Ok(())
    }

    /// Adopts what is new in a tiling since version `known`.
    pub(super) fn adopt_tiling(
        &self,
        object: &Object,
        known: Version,
        entry: &Entry,
        tiling: Option<TilingReply>,
    ) -> Result<(), FsError> {
        if let Some(reply) = tiling {
            let rank = entry.info.as_ref().map_or(1, |info| info.dims.len().max(1));
            let mut chunks = object.tiling.write();
            // Another read, or a commit of this mount, may have brought more meanwhile.
            let older = chunks.version.is_some_and(|have| have >= reply.version());
            if !older && chunks.version.unwrap_or(Version(0)) == known {
                let answered = chunks.answered(known, rank, reply);
                if answered.is_err() {
                    chunks.version = None;
                }
                answered.map_err(|error| FsError::Invalid(error.to_string()))?;
                let weight = chunks.weight();
                drop(chunks);
                self.tilings.weigh(object.ino, &object.tiling, weight);
                object.epoch.fetch_add(1, Ordering::AcqRel);
                self.cache().forget_object(object);
            }
        }
        Ok(())
    }

    fn no_data(&self, ino: Ino, timeout: Duration, missing: &[Region]) -> FsError {
        let boxes = missing.iter().take(MOST_NAMED).map(shown);
        let boxes: Vec<String> = boxes.collect();
        let more = match missing.len() > MOST_NAMED {
            true => format!(" and {} more", missing.len() - MOST_NAMED),
            false => String::new(),
        };
        let paths = self.names().call(op::Paths {
            inos: vec![ino],
            who: None,
        });
        let path = paths.ok().and_then(|paths| paths.into_iter().next());
        let path = path.filter(|path| !path.is_empty());
        let name = match path {
            Some(path) => format!("{} (object {ino})", String::from_utf8_lossy(&path)),
            None => format!("object {ino}"),
        };
        if missing.is_empty() {
            return FsError::NoData(format!(
                "{name}: its writers have not closed it within {timeout:?}, or none has begun; `slabfs couple status` shows who has it \
                 open"
            ));
        }
        FsError::NoData(format!(
            "{name}: nothing was written to cells {}{more} within {timeout:?}; is its writer running? `slabfs couple status` \
             shows what it waits for",
            boxes.join(", ")
        ))
    }
}

/// A box as a selection, in cells.
fn shown(region: &Region) -> String {
    let axes =
        (0..region.rank()).map(|axis| format!("{}:{}", region.offset[axis], region.end(axis)));
    format!("[{}]", axes.collect::<Vec<_>>().join(","))
}
