//! Drawing an array's tiling: the content (`Picture`), apart from its rendering (`text`, `svg`). Pure.
//!
//! The mount reports offsets and shapes in cells (the last axis counts bytes); users think in elements. A chunk
//! that begins or ends inside an element is drawn over the complete element.

use std::ops::Range;

use slabfs_fs::client::{ChunkView, LayoutView};

pub(crate) mod svg;
pub(crate) mod text;

/// The plane of an array of any rank that is drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The axis drawn downwards and the one drawn across.
    pub(crate) axes: (usize, usize),
    /// One index for each other axis, in the order of the axes.
    pub(crate) at: Vec<u64>,
}

/// A chunk's extent on one axis, in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extent {
    /// From the first element touched to behind the last.
    pub(crate) span: Range<u64>,
    /// Distance of the elements, when there are gaps.
    pub(crate) step: Option<u64>,
}

impl Extent {
    /// Whether the element at `index` belongs to it.
    pub(crate) fn contains(&self, index: u64) -> bool {
        self.span.contains(&index)
            && self
                .step
                .is_none_or(|step| (index - self.span.start).is_multiple_of(step))
    }

    fn show(&self) -> String {
        match self.step {
            None => format!("{}:{}", self.span.start, self.span.end),
            Some(step) => format!("{}:{}:{step}", self.span.start, self.span.end),
        }
    }
}

/// One chunk in a picture.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// Extents on all axes of the array.
    pub(crate) extents: Vec<Extent>,
    /// Extent downwards.
    pub(crate) down: Extent,
    /// Extent across.
    pub(crate) across: Extent,
    /// The server that has it; none for a punched hole.
    pub(crate) server: Option<u32>,
    /// Bytes of it.
    pub(crate) bytes: u64,
}

impl Piece {
    /// Its location: `server 1`, or `punched`.
    pub(crate) fn place(&self) -> String {
        self.server
            .map_or_else(|| "punched".to_owned(), |server| format!("server {server}"))
    }

    /// The chunk as a selection: `[0:10,0:9]`.
    pub(crate) fn selection(&self) -> String {
        let axes: Vec<String> = self.extents.iter().map(Extent::show).collect();
        format!("[{}]", axes.join(","))
    }

    /// The chunk's shape in elements: `10 x 9`.
    pub(crate) fn shape(&self) -> String {
        let count = |extent: &Extent| {
            let length = extent.span.end - extent.span.start;
            match extent.step {
                None => length,
                Some(step) => length.div_ceil(step),
            }
        };
        let axes: Vec<String> = self.extents.iter().map(|e| count(e).to_string()).collect();
        if axes.is_empty() {
            "scalar".to_owned()
        } else {
            axes.join(" x ")
        }
    }
}

/// A plane of an array and the chunks on it.
#[derive(Debug, Clone)]
pub(crate) struct Picture {
    /// Elements downwards.
    pub(crate) rows: u64,
    /// Elements across.
    pub(crate) columns: u64,
    /// The two directions: `axis 0 down, axis 1 across, axis 2 at 5`.
    pub(crate) caption: String,
    /// The chunks that cross the plane, oldest first.
    pub(crate) pieces: Vec<Piece>,
}

/// The plane that `cut` names, or an error that lists the valid ones.
pub(crate) fn picture(view: &LayoutView, cut: &Cut) -> Result<Picture, String> {
    // A scalar is drawn as one element, a vector as one row.
    let rank = view.dims.len();
    let (down, across) = cut.axes;
    check(&view.dims, cut)?;
    let dim = |axis: usize| view.dims.get(axis).copied().unwrap_or(1);
    let (rows, columns) = match rank {
        0 => (1, 1),
        1 => (1, dim(0)),
        _ => (dim(down), dim(across)),
    };
    let fixed: Vec<(usize, u64)> = (0..rank)
        .filter(|&axis| rank > 1 && axis != down && axis != across)
        .zip(cut.at.iter().copied().chain(std::iter::repeat(0)))
        .collect();
    let elem = view.elem.max(1);
    let mut pieces = Vec::new();
    for chunk in &view.chunks {
        let extents: Vec<Extent> = (0..rank)
            .map(|axis| extent(chunk, axis, rank, elem))
            .collect();
        let visible = extents.iter().all(|extent| !extent.span.is_empty());
        if !visible
            || !fixed
                .iter()
                .all(|&(axis, index)| extents[axis].contains(index))
        {
            continue;
        }
        let single = Extent {
            span: 0..1,
            step: None,
        };
        let (piece_down, piece_across) = match rank {
            0 => (single.clone(), single),
            1 => (single, extents[0].clone()),
            _ => (extents[down].clone(), extents[across].clone()),
        };
        pieces.push(Piece {
            extents,
            down: piece_down,
            across: piece_across,
            server: chunk.server,
            bytes: chunk.bytes,
        });
    }
    let mut caption = match rank {
        0 => "a scalar".to_owned(),
        1 => format!("axis 0 ({columns}) across"),
        _ => format!("axis {down} ({rows}) down, axis {across} ({columns}) across"),
    };
    for (axis, index) in fixed {
        caption.push_str(&format!(", axis {axis} at {index}"));
    }
    if !view.complete {
        caption.push_str("; too many chunks to list");
    }
    Ok(Picture {
        rows,
        columns,
        caption,
        pieces,
    })
}

fn check(dims: &[u64], cut: &Cut) -> Result<(), String> {
    let rank = dims.len();
    let (down, across) = cut.axes;
    if rank < 2 {
        return Ok(());
    }
    if down == across || down >= rank || across >= rank {
        return Err(format!(
            "--axes {down},{across}: there is no such pair; an axis is a number from 0 to {}, and the two differ",
            rank - 1
        ));
    }
    if cut.at.len() > rank - 2 {
        return Err(format!(
            "--at takes one index for each of the {} axes that are not drawn",
            rank - 2
        ));
    }
    let others = (0..rank).filter(|&axis| axis != down && axis != across);
    for (axis, &index) in others.zip(&cut.at) {
        if index >= dims[axis] {
            return Err(format!(
                "--at: index {index} is outside axis {axis}, which has {} elements",
                dims[axis]
            ));
        }
    }
    Ok(())
}

/// A chunk's extent on one axis, in elements; empty where a shrink has cut all of it off.
fn extent(chunk: &ChunkView, axis: usize, rank: usize, elem: u64) -> Extent {
    let unit = if axis + 1 == rank { elem } else { 1 };
    let of = |list: &[u64], other: u64| list.get(axis).copied().unwrap_or(other);
    let (start, length) = (of(&chunk.offset, 0), of(&chunk.shape, 1));
    let end = start.saturating_add(length);
    let end = match &chunk.clip {
        // Clips begin at the origin: shrinking an array removes the ends of its axes.
        Some((from, shape)) => end
            .min(of(from, 0).saturating_add(of(shape, length)))
            .max(start),
        None => end,
    };
    let step = chunk
        .step
        .as_ref()
        .map(|list| of(list, 1))
        .filter(|&s| s > unit && s < length);
    Extent {
        span: start / unit..end.div_ceil(unit),
        step: step.map(|step| step / unit),
    }
}

#[cfg(test)]
mod tests;
