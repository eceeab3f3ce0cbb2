//! What a mount has of one object's rights, what runs under them, and what is being taken back. Pure.
//!
//! What holds:
//!
//! - Nothing begins that is not held, and nothing ends up running in what is *closing*: who takes something
//!   back closes it first, waits for what runs there, and takes it out before the lock server is told.
//! - Those who wait begin in the moment in which what they wait for is granted, so before anybody can close it.
//! - Pages of mappings exist only under a right on all of the object, in the mode that the first of them was
//!   handed out for ([`Held::page_mode`]). `out` says that there may be some. The kernel's own reads and writes
//!   of pages go on while they are being dropped, since the drop may be waiting for just them; behind the shut
//!   door they wait, and no drop is begun then (docs/decisions/rights.md, "Mapped pages").
//! - So does what sets the size: the kernel sends no page back until it has ended, so the drop waits for it.
//! - A write of a program runs in bytes of which the kernel has no page, and no page of them is handed out, or on its
//!   way back, while it runs: see `page_overlap`.
//!
//! "Used" is what operations of programs touched lately: it stays when more is given than has to be. Lately is
//! counted in givings, not in time: who does not use what others ask for again and again gives all of it.

use slabfs_mdserver::api::{RightArea, RightMode};

use super::cells::Cells;
use super::spans::{Span, Spans};

/// What was used is remembered in at most so many boxes.
const USED_BOXES: usize = 32;

/// Which operation, of one object in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OpId(u64);

/// Who wants to do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::client) enum By {
    /// A program.
    Program,
    /// A program that sets the size: until it is answered the kernel sends no page back.
    Truncate,
    /// The kernel, which wants a page for a mapping.
    PageOut,
    /// The kernel, which brings back a page that was changed.
    PageBack,
}

impl By {
    fn is_program(self) -> bool {
        matches!(self, By::Program | By::Truncate)
    }
}

/// What an operation wants to touch.
#[derive(Debug, Clone, Hash)]
pub(super) struct Want {
    pub(super) by: By,
    pub(super) mode: RightMode,
    pub(super) area: Cells,
    /// The bytes of a page, or those that a program writes: not of what changes the object's form.
    pub(super) span: Option<Span>,
}

impl Want {
    /// The bytes that a program writes: of those no page may be there.
    fn written(&self) -> Option<Span> {
        let writes = self.by == By::Program && self.mode == RightMode::Write;
        self.span.filter(|_| writes)
    }

    fn touches(&self, span: Span) -> bool {
        self.span.unwrap_or(Span::ALL).overlaps(span)
    }
}

/// What is being taken back: only `keep` may stay of the area.
#[derive(Debug, Clone, Hash)]
pub(super) struct Closing {
    pub(super) keep: Option<RightMode>,
    pub(super) area: Cells,
}

impl Closing {
    /// Whether it goes against an operation.
    fn stops(&self, mode: RightMode, area: &Cells) -> bool {
        (self.keep.is_none() || mode == RightMode::Write) && self.area.overlaps(area)
    }
}

/// The way of the kernel to pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
enum Door {
    #[default]
    Open,
    /// Pages of these bytes are being dropped: whatever the kernel wants of pages is done.
    Dropping(Span),
    /// To pages of these bytes.
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

/// See the module's head.
#[derive(Debug, Default, Clone, Hash)]
pub(super) struct Held {
    /// Cells that may be read; those that may be written are among them.
    read: Cells,
    write: Cells,
    /// What was used since something was given last, and between that and the time before.
    used: Cells,
    used_before: Cells,
    running: Vec<Running>,
    /// In the order of their coming.
    waiting: Vec<Waiting>,
    closing: Option<Closing>,
    door: Door,
    /// Of which bytes pages were handed out since the last drop of them began.
    out: Spans,
    /// What for, if they were.
    out_for: Option<RightMode>,
    /// Open files of this mount that may write.
    pub(super) writers: usize,
    last: u64,
}

impl Held {
    /// Whether anything is held.
    pub(super) fn any(&self) -> bool {
        !self.read.is_empty()
    }

    /// Whether anything is held beyond what may stay.
    pub(super) fn has_any(&self, keep: Option<RightMode>) -> bool {
        match keep {
            None => !self.read.is_empty(),
            Some(_) => !self.write.is_empty(),
        }
    }

    /// What the kernel's pages are for: a page in a file that is open for writing may come back changed
    /// without warning.
    pub(super) fn page_mode(&self) -> RightMode {
        match self.out_for {
            Some(mode) if !self.out.is_empty() || self.door != Door::Open => mode,
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

    fn has(&self, mode: RightMode, area: &Cells) -> bool {
        match mode {
            RightMode::Read => self.read.covers(area),
            RightMode::Write => self.write.covers(area),
        }
    }

    /// Whether what `want` needs is held, be it that it is being taken back.
    pub(super) fn holds(&self, want: &Want) -> bool {
        self.has(self.mode_of(want), &want.area)
    }

    fn may_begin(&self, want: &Want) -> bool {
        let mode = self.mode_of(want);
        if !self.has(mode, &want.area) {
            return false;
        }
        self.is_let_in(want, mode)
    }

    /// Whether nothing that goes on stops `want`.
    fn is_let_in(&self, want: &Want, mode: RightMode) -> bool {
        let stopped = || {
            let closing = self.closing.as_ref();
            closing.is_some_and(|closing| closing.stops(mode, &want.area))
        };
        match (want.by, self.door) {
            (By::Program, _) => {
                !stopped() && !self.has_pages_under(want) && !self.is_brought_back(want)
            }
            (By::PageOut, _) if self.is_written(want) => false,
            (_, Door::Dropping(_)) => true,
            // It need not wait for pages: the next drop lets it in, if there is one.
            (By::Truncate, _) => !stopped(),
            (_, Door::Shut(span)) if want.touches(span) => false,
            (_, Door::Shut(_) | Door::Open) => !self.out.is_empty() || !stopped(),
        }
    }

    /// Whether a program writes what `want` reads. It ends without waiting for the kernel.
    fn is_written(&self, want: &Want) -> bool {
        let mut written = self.running.iter().filter_map(|one| one.want.written());
        written.any(|span| want.touches(span))
    }

    /// Whether pages have to be dropped before `want`, the write of a program, begins.
    pub(super) fn has_pages_under(&self, want: &Want) -> bool {
        let written = want.written();
        written.is_some_and(|span| self.out.overlaps(span))
    }

    /// Whether changed pages may be on their way to where `want`, the write of a program, goes: those of a drop
    /// that goes on, though they count as handed out no more. They are older, and must come in before.
    fn is_brought_back(&self, want: &Want) -> bool {
        let Some(span) = want.written() else {
            return false;
        };
        let dropping = matches!(self.door, Door::Dropping(of) if of.overlaps(span));
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
                self.out.add(want.span.unwrap_or(Span::ALL));
            }
            // Those of whole objects are few, and say nothing about where the next ones are.
            By::Program if want.area != Cells::All => {
                self.used.add(&want.area);
                self.used.rounded(USED_BOXES);
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

    /// Begins an operation where nothing has to be held: this mount is alone. Nothing while all is being
    /// taken back.
    pub(super) fn begin_alone(&mut self, want: &Want) -> Option<OpId> {
        self.is_let_in(want, self.mode_of(want)).then(|| {
            let id = self.next_id();
            self.start(id, want.clone());
            id
        })
    }

    /// Puts an operation among those that wait.
    pub(super) fn wait(&mut self, want: Want) -> OpId {
        let id = self.next_id();
        self.waiting.push(Waiting {
            id,
            want,
            begun: false,
        });
        id
    }

    /// Whether an operation that waited has begun; it does not wait any more then.
    pub(super) fn take_begun(&mut self, id: OpId) -> bool {
        let at = self
            .waiting
            .iter()
            .position(|one| one.id == id && one.begun);
        at.map(|at| self.waiting.remove(at)).is_some()
    }

    /// An operation waits no more; if it has begun it ends.
    pub(super) fn give_up(&mut self, id: OpId) {
        self.waiting.retain(|one| one.id != id);
        self.end(id);
    }

    /// Lets all begin that wait and may begin; programs first, who would have to let pages be dropped else.
    pub(super) fn let_in(&mut self) {
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

    /// An operation is over; who waits for just that may begin.
    pub(super) fn end(&mut self, id: OpId) {
        self.running.retain(|one| one.id != id);
        if !self.waiting.is_empty() {
            self.let_in();
        }
    }

    /// A right was granted; those that waited for it begin.
    pub(super) fn grant(&mut self, mode: RightMode, area: &Cells) {
        self.read.add(area);
        if mode == RightMode::Write {
            self.write.add(area);
        }
        self.let_in();
    }

    /// Begins to take something back: programs begin nothing there any more.
    pub(super) fn close(&mut self, closing: Closing) {
        self.closing = Some(closing);
        // The kernel's pages have to get to where they can be dropped.
        self.let_in();
    }

    /// Whether something is being taken back, or pages are being dropped.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_some() || self.door != Door::Open
    }

    /// Whether operations of programs run in what is being taken back. None of them waits for the kernel.
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

    /// Whether anything runs that was let in while pages of `span` were dropped.
    pub(super) fn is_paging(&self, span: Span) -> bool {
        let mut pages = self.running.iter().filter(|one| one.want.by != By::Program);
        pages.any(|one| one.want.touches(span))
    }

    /// Whether pages have to be dropped before what is closing can be given.
    pub(super) fn has_pages(&self) -> bool {
        let stopped = |closing: &Closing| {
            closing.stops(self.out_for.unwrap_or(RightMode::Write), &Cells::All)
        };
        !self.out.is_empty() && self.closing.as_ref().is_none_or(stopped)
    }

    /// Whether there may be pages that were handed out for reading, or may be handed out so before a drop of them
    /// has ended: until then what the kernel fetches is of the mode of what is dropped.
    pub(super) fn has_pages_to_read(&self) -> bool {
        let any = !self.out.is_empty() || self.door != Door::Open;
        any && self.out_for == Some(RightMode::Read)
    }

    /// A drop of the pages of `span` begins.
    pub(super) fn drop_begins(&mut self, span: Span) {
        self.door = Door::Dropping(span);
        self.out.remove(span);
        self.let_in();
    }

    /// It has returned: nobody gets at those pages now.
    pub(super) fn drop_ended(&mut self, span: Span) {
        self.door = Door::Shut(span);
    }

    /// Takes out what was closed. If more may be given, also what nobody has used lately, but for what `more`
    /// names. Says which cells have to be told to the lock server.
    pub(super) fn take_out(&mut self, closing: &Closing, more: Option<&Cells>) -> Cells {
        let held = match closing.keep {
            None => &self.read,
            Some(_) => &self.write,
        };
        let mut given = Cells::default();
        if let Some(kept) = more {
            given = held.clone();
            given.subtract(kept);
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
                    Cells::All => *used = Cells::default(),
                    _ => used.subtract(&given),
                }
            }
        }
        self.grow_old();
        given
    }

    /// Something was given: what was used only before the time before counts as used no more. What runs may be
    /// using what it has.
    fn grow_old(&mut self) {
        self.used_before = std::mem::take(&mut self.used);
        for one in &self.running {
            if one.want.area != Cells::All {
                self.used.add(&one.want.area);
            }
        }
    }

    /// What was closing is given, or the pages are dropped: all goes on.
    pub(super) fn reopen(&mut self) {
        self.closing = None;
        self.door = Door::Open;
        if self.out.is_empty() {
            self.out_for = None;
        }
        self.let_in();
    }

    /// Everything is held: this mount was alone, and begins to take all back.
    pub(super) fn own_all(&mut self) {
        self.read = Cells::All;
        self.write = Cells::All;
    }

    /// What is held, as it travels.
    pub(super) fn to_wire(&self) -> Vec<(RightMode, RightArea)> {
        let areas = |mode, cells: &Cells| {
            let areas = cells.to_wire().into_iter();
            areas.map(move |area| (mode, area)).collect::<Vec<_>>()
        };
        let mut all = areas(RightMode::Write, &self.write);
        if self.read != self.write {
            all.extend(areas(RightMode::Read, &self.read));
        }
        all
    }

    /// Nothing is held any more.
    pub(super) fn lose(&mut self) {
        self.read = Cells::default();
        self.write = Cells::default();
        self.used = Cells::default();
        self.used_before = Cells::default();
        self.closing = None;
        self.door = Door::Open;
        self.out.clear();
        self.out_for = None;
    }

    /// Those that wait, and have not begun.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Want> {
        let not_begun = self.waiting.iter().filter(|one| !one.begun);
        not_begun.map(|one| &one.want)
    }
}

#[cfg(test)]
mod tests;
