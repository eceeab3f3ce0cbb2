//! A mount's rights on one object, the operations that run under them, and the recall in progress. Pure.
//!
//! Invariants:
//!
//! - No operation begins without its rights, and none is left running in a *closing* area: a recall first closes its
//!   area, waits for the operations that run there, and removes the area before the lock server is notified.
//! - Waiting operations begin at the moment of the grant, so before any recall can close the area.
//! - Pages of mappings exist only under a right on all of the object, in the mode that the first of them was handed
//!   out for ([`Held::page_mode`]). `out` records the pages that may exist. The kernel's own page reads and writes
//!   continue during a drop, since the drop may be waiting for them; at a closed gate they wait, and no drop is begun
//!   then (docs/decisions/13-rights.md, "Mapped pages").
//! - So does a truncate: the kernel writes back no page until it has ended, so the drop waits for it.
//! - A program's write runs only in bytes of which the kernel has no page, and no page of them is handed out or
//!   written back while it runs: see `page_overlap`.
//!
//! "Used" are the cells that operations of programs touched recently: they stay when more is released than was
//! recalled. Recency is counted in releases, not in time: a mount that does not use the cells that other mounts ask
//! for again and again releases all of them.

use slabfs_mdserver::api::{RightArea, RightMode};

use slabfs_model::{BoxSet, Span, Spans};

/// Most boxes in which the used cells are recorded.
const USED_BOXES: usize = 32;
/// More spans of pages than this are merged into one: scattered page accesses then cause drops that were not needed.
const MOST_SPANS: usize = 256;

/// Id of an operation of one object in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OpId(u64);

/// The origin of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::client) enum By {
    /// A program.
    Program,
    /// A program that sets the size: the kernel writes back no page until it has the reply.
    Truncate,
    /// The kernel reads a page for a mapping.
    PageOut,
    /// The kernel writes back a modified page.
    PageBack,
}

impl By {
    fn is_program(self) -> bool {
        matches!(self, By::Program | By::Truncate)
    }
}

/// The rights and the bytes that an operation needs.
#[derive(Debug, Clone, Hash)]
pub(super) struct Want {
    pub(super) by: By,
    pub(super) mode: RightMode,
    pub(super) area: BoxSet,
    /// The bytes of a page, or the bytes that a program writes; none for a change of the object's form. They are bytes of
    /// the plain object: a request through a selection, or at a position that is unknown until it is done (an append),
    /// counts as everything. Not rounded to pages: the kernel reads complete pages, so a write to any byte of a page
    /// overlaps the span that was read for it.
    pub(super) span: Option<Span>,
}

impl Want {
    /// The bytes that a program writes: no page of them may exist.
    fn written(&self) -> Option<Span> {
        let writes = self.by == By::Program && self.mode == RightMode::Write;
        self.span.filter(|_| writes)
    }

    fn touches(&self, span: Span) -> bool {
        self.span.unwrap_or(Span::ALL).overlaps(span)
    }
}

/// A recall in progress: only mode `keep` may stay of the area.
#[derive(Debug, Clone, Hash)]
pub(super) struct Closing {
    pub(super) keep: Option<RightMode>,
    pub(super) area: BoxSet,
}

impl Closing {
    /// Whether it conflicts with an operation.
    fn stops(&self, mode: RightMode, area: &BoxSet) -> bool {
        (self.keep.is_none() || mode == RightMode::Write) && self.area.overlaps(area)
    }
}

/// The kernel's access to pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
enum PageGate {
    #[default]
    Open,
    /// Pages of these bytes are being dropped: all page requests are served.
    Dropping(Span),
    /// Closed for pages of these bytes.
    Shut(Span),
}

#[derive(Debug, Clone, Hash)]
struct Running {
    id: OpId,
    want: Want,
}

#[derive(Debug, Clone, Hash)]
struct Waiting {
    id: OpId,
    want: Want,
    begun: bool,
}

/// See the module documentation.
#[derive(Debug, Default, Clone, Hash)]
pub(super) struct Held {
    /// Cells that may be read, including those that may be written.
    read: BoxSet,
    write: BoxSet,
    /// Cells used since the last release, and between the last two releases.
    used: BoxSet,
    used_before: BoxSet,
    running: Vec<Running>,
    /// In order of arrival.
    waiting: Vec<Waiting>,
    closing: Option<Closing>,
    page_gate: PageGate,
    /// The bytes of which pages were handed out since their last drop began.
    out: Spans<()>,
    /// The mode that they were handed out for, if any.
    out_for: Option<RightMode>,
    /// Pages were handed out whose drop this does not wait for: the rights were lost, or their epoch is over.
    out_of_sight: bool,
    /// Number of open files of this mount that can write.
    pub(super) writers: usize,
    last: u64,
}

impl Held {
    /// Whether any right is held.
    pub(super) fn any(&self) -> bool {
        !self.read.is_empty()
    }

    /// Whether any right is held beyond `keep`.
    pub(super) fn has_any(&self, keep: Option<RightMode>) -> bool {
        match keep {
            None => !self.read.is_empty(),
            Some(_) => !self.write.is_empty(),
        }
    }

    /// The mode that the kernel's pages need: a page of a file that is open for writing may come back modified
    /// without warning.
    pub(super) fn page_mode(&self) -> RightMode {
        match self.out_for {
            Some(mode) if !self.out.is_empty() || self.page_gate != PageGate::Open => mode,
            _ if self.writers > 0 => RightMode::Write,
            _ => RightMode::Read,
        }
    }

    /// The mode that `want` needs now.
    pub(super) fn mode_of(&self, want: &Want) -> RightMode {
        match want.by {
            By::PageOut => self.page_mode(),
            By::Program | By::Truncate | By::PageBack => want.mode,
        }
    }

    fn has(&self, mode: RightMode, area: &BoxSet) -> bool {
        match mode {
            RightMode::Read => self.read.covers(area),
            RightMode::Write => self.write.covers(area),
        }
    }

    /// Whether the rights that `want` needs are held, even if they are being recalled.
    pub(super) fn holds(&self, want: &Want) -> bool {
        self.has(self.mode_of(want), &want.area)
    }

    fn may_begin(&self, want: &Want) -> bool {
        let mode = self.mode_of(want);
        if !self.has(mode, &want.area) {
            return false;
        }
        self.is_admitted(want, mode)
    }

    /// Whether no recall, drop or running operation stops `want`.
    fn is_admitted(&self, want: &Want, mode: RightMode) -> bool {
        let stopped = || {
            let closing = self.closing.as_ref();
            closing.is_some_and(|closing| closing.stops(mode, &want.area))
        };
        match (want.by, self.page_gate) {
            (By::Program, _) => {
                !stopped() && !self.has_pages_under(want) && !self.has_pages_in_flight(want)
            }
            (By::PageOut, _) if self.is_written(want) => false,
            (_, PageGate::Dropping(_)) => true,
            // It need not wait for pages: the next drop admits it, if there is one.
            (By::Truncate, _) => !stopped(),
            (_, PageGate::Shut(span)) if want.touches(span) => false,
            (_, PageGate::Shut(_) | PageGate::Open) => !self.out.is_empty() || !stopped(),
        }
    }

    /// Whether a program writes the bytes that `want` reads. That write ends without waiting for the kernel.
    fn is_written(&self, want: &Want) -> bool {
        let mut written = self.running.iter().filter_map(|one| one.want.written());
        written.any(|span| want.touches(span))
    }

    /// Whether pages have to be dropped before `want`, a program's write, begins.
    pub(super) fn has_pages_under(&self, want: &Want) -> bool {
        let written = want.written();
        written.is_some_and(|span| self.out.overlaps(span))
    }

    /// Whether modified pages may be in flight to the bytes of `want`, a program's write: pages of a drop in
    /// progress, though they no longer count as handed out. They are older than the write, and have to arrive before
    /// it.
    fn has_pages_in_flight(&self, want: &Want) -> bool {
        let Some(span) = want.written() else {
            return false;
        };
        let dropping = matches!(self.page_gate, PageGate::Dropping(of) if of.overlaps(span));
        let mut back = self
            .running
            .iter()
            .filter(|one| one.want.by == By::PageBack);
        dropping || back.any(|one| one.want.touches(span))
    }

    fn next_id(&mut self) -> OpId {
        self.last += 1;
        OpId(self.last)
    }

    fn start(&mut self, id: OpId, want: Want) {
        match want.by {
            By::PageOut => {
                self.out_for = Some(self.page_mode());
                self.out.set(want.span.unwrap_or(Span::ALL), Some(()));
                self.out.bound(MOST_SPANS);
            }
            // Operations on the entire object are few, and do not predict where the next ones are.
            By::Program if want.area != BoxSet::All => {
                self.used.add(&want.area);
                self.used = std::mem::take(&mut self.used).bounded(USED_BOXES);
            }
            By::Program | By::Truncate | By::PageBack => {}
        }
        self.running.push(Running { id, want });
    }

    /// Begins an operation if it may begin now.
    pub(super) fn begin(&mut self, want: &Want) -> Option<OpId> {
        self.may_begin(want).then(|| {
            let id = self.next_id();
            self.start(id, want.clone());
            id
        })
    }

    /// Begins an operation while this mount is alone, so that it needs no rights. `None` during a recall of
    /// everything.
    pub(super) fn begin_alone(&mut self, want: &Want) -> Option<OpId> {
        self.is_admitted(want, self.mode_of(want)).then(|| {
            let id = self.next_id();
            self.start(id, want.clone());
            id
        })
    }

    /// Adds an operation to the waiting list.
    pub(super) fn wait(&mut self, want: Want) -> OpId {
        let id = self.next_id();
        self.waiting.push(Waiting {
            id,
            want,
            begun: false,
        });
        id
    }

    /// Whether a waiting operation has begun; if so, removes it from the waiting list.
    pub(super) fn take_begun(&mut self, id: OpId) -> bool {
        let at = self
            .waiting
            .iter()
            .position(|one| one.id == id && one.begun);
        at.map(|at| self.waiting.remove(at)).is_some()
    }

    /// Removes an operation from the waiting list; if it has begun, it ends.
    pub(super) fn give_up(&mut self, id: OpId) {
        self.waiting.retain(|one| one.id != id);
        self.end(id);
    }

    /// Begins all waiting operations that may begin; programs first, since they would have to have pages dropped
    /// otherwise.
    pub(super) fn begin_waiting(&mut self) {
        for programs in [true, false] {
            for at in 0..self.waiting.len() {
                let one = &self.waiting[at];
                let of_these = (one.want.by == By::Program) == programs;
                if of_these && !one.begun && self.may_begin(&one.want) {
                    let (id, want) = (one.id, one.want.clone());
                    self.waiting[at].begun = true;
                    self.start(id, want);
                }
            }
        }
    }

    /// Ends an operation; operations that waited for that begin.
    pub(super) fn end(&mut self, id: OpId) {
        self.running.retain(|one| one.id != id);
        if !self.waiting.is_empty() {
            self.begin_waiting();
        }
    }

    /// Records a granted right; operations that waited for it begin.
    pub(super) fn grant(&mut self, mode: RightMode, area: &BoxSet) {
        self.read.add(area);
        if mode == RightMode::Write {
            self.write.add(area);
        }
        self.begin_waiting();
    }

    /// Begins a recall: programs no longer begin operations in its area.
    pub(super) fn close(&mut self, closing: Closing) {
        self.closing = Some(closing);
        // The kernel's page operations have to proceed to where the drop can handle them.
        self.begin_waiting();
    }

    /// Whether a recall or a drop of pages is in progress.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_some() || self.page_gate != PageGate::Open
    }

    /// Whether operations of programs run in the area of the recall. None of them waits for the kernel.
    pub(super) fn is_busy(&self) -> bool {
        let Some(closing) = &self.closing else {
            return false;
        };
        let mut wants = self
            .running
            .iter()
            .map(|one| &one.want)
            .filter(|want| want.by.is_program());
        wants.any(|want| closing.stops(want.mode, &want.area))
    }

    /// Whether operations run that were admitted while pages of `span` were dropped.
    pub(super) fn is_paging(&self, span: Span) -> bool {
        let mut pages = self.running.iter().filter(|one| one.want.by != By::Program);
        pages.any(|one| one.want.touches(span))
    }

    /// Whether pages may exist that were handed out for writing.
    pub(super) fn has_pages_to_write(&self) -> bool {
        self.has_any_page() && self.out_for == Some(RightMode::Write)
    }

    /// Whether all pages that the kernel may have are as new as the object.
    pub(super) fn knows_pages(&self) -> bool {
        !self.out_of_sight && self.page_gate == PageGate::Open
    }

    /// Whether the kernel may have pages.
    pub(super) fn has_any_page(&self) -> bool {
        !self.out.is_empty() || self.page_gate != PageGate::Open
    }

    /// Whether pages have to be dropped before the closing area can be released.
    pub(super) fn has_pages(&self) -> bool {
        let stopped = |closing: &Closing| {
            closing.stops(self.out_for.unwrap_or(RightMode::Write), &BoxSet::All)
        };
        !self.out.is_empty() && self.closing.as_ref().is_none_or(stopped)
    }

    /// Whether pages may exist that were handed out for reading, or may be handed out so before the end of a drop:
    /// until then page reads of the kernel are of the mode of the pages being dropped.
    pub(super) fn has_pages_to_read(&self) -> bool {
        let any = !self.out.is_empty() || self.page_gate != PageGate::Open;
        any && self.out_for == Some(RightMode::Read)
    }

    /// A drop of the pages of `span` begins.
    pub(super) fn drop_begins(&mut self, span: Span) {
        self.page_gate = PageGate::Dropping(span);
        self.out.set(span, None);
        self.begin_waiting();
    }

    /// It has returned: access to those pages is closed now.
    pub(super) fn drop_ended(&mut self, span: Span) {
        self.page_gate = PageGate::Shut(span);
    }

    /// Removes the closed area. With `more`, also removes all cells that are not recently used, except for `more`.
    /// Returns the cells that the release has to name.
    pub(super) fn take_out(&mut self, closing: &Closing, more: Option<&BoxSet>) -> BoxSet {
        let held = match closing.keep {
            None => &self.read,
            Some(_) => &self.write,
        };
        let mut given = BoxSet::default();
        if let Some(retained) = more {
            given = held.clone();
            given.subtract(retained);
            given.subtract(&self.used);
            given.subtract(&self.used_before);
            for one in &self.running {
                given.subtract(&one.want.area);
            }
        }
        given.add(&closing.area);
        self.write.subtract(&given);
        if closing.keep.is_none() {
            self.read.subtract(&given);
            for used in [&mut self.used, &mut self.used_before] {
                match given {
                    BoxSet::All => *used = BoxSet::default(),
                    _ => used.subtract(&given),
                }
            }
        }
        self.age_used();
        given
    }

    /// Ages the used cells after a release: cells that were last used before the previous release no longer count.
    /// Running operations may still be using theirs.
    fn age_used(&mut self) {
        self.used_before = std::mem::take(&mut self.used);
        for one in &self.running {
            if one.want.area != BoxSet::All {
                self.used.add(&one.want.area);
            }
        }
    }

    /// Ends a recall or a drop: operations may begin again.
    pub(super) fn reopen(&mut self) {
        self.closing = None;
        self.page_gate = PageGate::Open;
        if self.out.is_empty() {
            self.out_for = None;
        }
        self.begin_waiting();
    }

    /// This mount was alone and held everything; all of it is now to be released.
    pub(super) fn own_all(&mut self) {
        self.read = BoxSet::All;
        self.write = BoxSet::All;
    }

    /// The wire form of the rights held.
    pub(super) fn to_wire(&self) -> Vec<(RightMode, RightArea)> {
        let areas = |mode, cells: &BoxSet| {
            let areas = RightArea::of(cells).into_iter();
            areas.map(move |area| (mode, area)).collect::<Vec<_>>()
        };
        let mut all = areas(RightMode::Write, &self.write);
        if self.read != self.write {
            all.extend(areas(RightMode::Read, &self.read));
        }
        all
    }

    /// Drops all rights.
    pub(super) fn lose(&mut self) {
        self.read = BoxSet::default();
        self.write = BoxSet::default();
        self.used = BoxSet::default();
        self.used_before = BoxSet::default();
        self.closing = None;
        self.out_of_sight |= self.has_any_page();
        self.page_gate = PageGate::Open;
        self.out = Spans::default();
        self.out_for = None;
    }

    /// The waiting operations that have not begun.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Want> {
        let not_begun = self.waiting.iter().filter(|one| !one.begun);
        not_begun.map(|one| &one.want)
    }
}

#[cfg(test)]
mod tests;
