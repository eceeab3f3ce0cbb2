//! Groups runs that lie close together, to be read or written together.

use crate::error::Result;
use crate::store::extent::Extent;

/// The maximum span of a window of several runs, in bytes.
const SPAN_MAX: u64 = 1 << 20;

/// A contiguous run of cells: its offset in the chunk, its length, and its offset in the packed data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) at: u64,
    pub(super) len: u64,
    pub(super) packed: u64,
}

/// Calls `f` with the runs of the slab in ascending order, in windows: gaps within a window are at most `gap` bytes,
/// and a window of several runs spans at most [`SPAN_MAX`].
pub(super) fn windows(
    extent: &Extent<'_>,
    gap: u64,
    f: &mut dyn FnMut(&[Run]) -> Result<()>,
) -> Result<()> {
    let mut held: Vec<Run> = Vec::new();
    let mut packed = 0;
    extent.runs(&mut |at, len| {
        let run = Run { at, len, packed };
        packed += len;
        if let (Some(first), Some(last)) = (held.first(), held.last()) {
            let between = at - (last.at + last.len);
            let close = between <= gap && at + len - first.at <= SPAN_MAX;
            if !close {
                f(&held)?;
                held.clear();
            }
        }
        held.push(run);
        Ok(())
    })?;
    if held.is_empty() { Ok(()) } else { f(&held) }
}

/// The byte range that a window spans.
pub(super) fn span(runs: &[Run]) -> (u64, u64) {
    match (runs.first(), runs.last()) {
        (Some(first), Some(last)) => (first.at, last.at + last.len),
        _ => (0, 0),
    }
}
