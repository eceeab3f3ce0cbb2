//! Drawing an array's tiling: the content (`Picture`), apart from its rendering (`text` for terminals, `svg` as
//! shapes of a `canvas`, which `raster` makes pixels of).
//!
//! The mount reports offsets and shapes in cells (the last axis counts bytes); users think in elements. A chunk
//! that begins or ends inside an element is drawn over the complete element.

use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use serde_json::Value;
use slabfs_fs::client::{ChunkView, LayoutView};

pub(crate) mod canvas;
mod png;
pub(crate) mod raster;
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

/// The options that choose the plane.
#[derive(Debug, clap::Args)]
pub(crate) struct CutArgs {
    /// The axis drawn downwards and the one drawn across
    #[arg(long, value_name = "I,J", value_parser = parse_axes, default_value = "0,1")]
    axes: (usize, usize),
    /// An index for each axis that is not drawn, in the order of the axes (default: 0)
    #[arg(long, value_name = "INDEX", value_delimiter = ',')]
    at: Vec<u64>,
}

impl CutArgs {
    /// The plane, with boxes of waiting reads over its chunks.
    pub(crate) fn picture(&self, view: &LayoutView, marks: &[Mark]) -> anyhow::Result<Picture> {
        let cut = Cut {
            axes: self.axes,
            at: self.at.clone(),
        };
        picture(view, &cut, marks).map_err(|why| anyhow!(why))
    }
}

fn parse_axes(text: &str) -> Result<(usize, usize), String> {
    let axes: Option<Vec<usize>> = text
        .split(',')
        .map(|part| part.trim().parse().ok())
        .collect();
    match axes.as_deref() {
        Some(&[down, across]) => Ok((down, across)),
        _ => Err(format!("{text:?} does not name two axes; write 0,1 or 2,3")),
    }
}

/// The mount's description of a layout.
pub(crate) fn view(layout: Value) -> anyhow::Result<LayoutView> {
    serde_json::from_value(layout)
        .context("this slabfs does not understand the mount's description of the layout; do both have the same version?")
}

/// Writes the picture of an array to a file; returns a sentence about it.
pub(crate) fn write_picture(
    file: &Path,
    array: &Path,
    format: Format,
    picture: &Picture,
) -> anyhow::Result<String> {
    let canvas = svg::draw(picture, &array.display().to_string());
    write(file, array, format, &canvas)?;
    let chunks = match picture.pieces.len() {
        1 => "1 chunk".to_owned(),
        n => format!("{n} chunks"),
    };
    Ok(format!("wrote {}: {chunks}", file.display()))
}

/// The form of a drawing in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Svg,
    Png,
}

/// Writes a drawing to a file that is not the array.
pub(crate) fn write(
    file: &Path,
    array: &Path,
    format: Format,
    canvas: &canvas::Canvas,
) -> anyhow::Result<()> {
    let same = |there: std::fs::Metadata| {
        let drawn = std::fs::metadata(array);
        drawn.is_ok_and(|drawn| (drawn.dev(), drawn.ino()) == (there.dev(), there.ino()))
    };
    if std::fs::metadata(file).is_ok_and(same) {
        let end = match format {
            Format::Svg => "svg",
            Format::Png => "png",
        };
        let array = array.display();
        bail!(
            "{} would overwrite the array itself; give another file, such as {array}.{end}",
            file.display()
        );
    }
    let bytes = match format {
        Format::Svg => canvas.svg()?.into_bytes(),
        Format::Png => raster::png(canvas)?,
    };
    std::fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}

/// A box that a waiting read asks for, or that is missing; in cells, the last axis in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub(crate) offset: Vec<u64>,
    pub(crate) shape: Vec<u64>,
    pub(crate) waits: Waits,
    /// Who waits.
    pub(crate) text: String,
}

/// What a box of a waiting read is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// All that the read asks for.
    Asked,
    /// What of it is not written.
    Missing,
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
        selection(&self.extents)
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
    /// Boxes of waiting reads that cross it.
    pub(crate) marks: Vec<PlaneMark>,
}

/// A box of a waiting read on the plane.
#[derive(Debug, Clone)]
pub(crate) struct PlaneMark {
    pub(crate) down: Extent,
    pub(crate) across: Extent,
    pub(crate) waits: Waits,
    /// The box as a selection, and who waits for it.
    pub(crate) text: String,
}

/// The plane that `cut` names, or an error that lists the valid ones. It has the rows that waiting reads ask for, also
/// behind the end of an array that grows.
pub(crate) fn picture(view: &LayoutView, cut: &Cut, marks: &[Mark]) -> Result<Picture, String> {
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
    let plane = Plane {
        rank,
        elem: view.elem.max(1),
        axes: cut.axes,
        fixed: &fixed,
    };
    let pieces = view.chunks.iter().filter_map(|chunk| {
        let (extents, down, across) = plane.place(chunk)?;
        Some(Piece {
            extents,
            down,
            across,
            server: chunk.server,
            bytes: chunk.bytes,
        })
    });
    let pieces = pieces.collect();
    let marks: Vec<PlaneMark> = marks.iter().filter_map(|mark| plane.mark(mark)).collect();
    let end = |of: fn(&PlaneMark) -> &Extent| marks.iter().map(|mark| of(mark).span.end).max();
    let rows = rows.max(end(|mark| &mark.down).unwrap_or(0));
    let columns = columns.max(end(|mark| &mark.across).unwrap_or(0));
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
        marks,
    })
}

/// The plane of an array of `rank` axes that is drawn.
struct Plane<'a> {
    rank: usize,
    /// Bytes of an element.
    elem: u64,
    axes: (usize, usize),
    /// The other axes, with an index each.
    fixed: &'a [(usize, u64)],
}

impl Plane<'_> {
    /// A chunk's extents on all axes, downwards and across; none if it does not cross the plane.
    fn place(&self, chunk: &ChunkView) -> Option<(Vec<Extent>, Extent, Extent)> {
        let rank = self.rank;
        let extents: Vec<Extent> = (0..rank)
            .map(|axis| extent(chunk, axis, rank, self.elem))
            .collect();
        let visible = extents.iter().all(|extent| !extent.span.is_empty());
        let crosses = |&(axis, index): &(usize, u64)| extents[axis].contains(index);
        if !visible || !self.fixed.iter().all(crosses) {
            return None;
        }
        let single = Extent {
            span: 0..1,
            step: None,
        };
        let (down, across) = match rank {
            0 => (single.clone(), single),
            1 => (single, extents[0].clone()),
            _ => (extents[self.axes.0].clone(), extents[self.axes.1].clone()),
        };
        Some((extents, down, across))
    }

    fn mark(&self, mark: &Mark) -> Option<PlaneMark> {
        let chunk = ChunkView {
            offset: mark.offset.clone(),
            shape: mark.shape.clone(),
            clip: None,
            step: None,
            server: None,
            chunk: None,
            bytes: 0,
            order: None,
            codec: None,
        };
        let (extents, down, across) = self.place(&chunk)?;
        Some(PlaneMark {
            down,
            across,
            waits: mark.waits,
            text: format!("{} · {}", selection(&extents), mark.text),
        })
    }
}

/// Extents as a selection: `[0:10,0:9]`.
fn selection(extents: &[Extent]) -> String {
    let axes: Vec<String> = extents.iter().map(Extent::show).collect();
    format!("[{}]", axes.join(","))
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
