//! Renders a picture as characters: one letter per chunk, and a legend below.
//!
//! Small arrays get one character per element; larger ones are sampled in the middle of the area that a
//! character stands for, so that the picture never exceeds the terminal.

use std::fmt::Write;
use std::ops::Range;

use super::{Extent, Picture};
use crate::args::show_size;

/// Letters for chunks, used cyclically.
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// Elements that were never written.
const HOLE: u8 = b'.';
/// The most chunks in the legend.
const LEGEND: usize = 40;
/// ANSI colours for servers, used cyclically.
const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 31];

/// The size of the drawing, and whether to use colours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// Characters across.
    pub(crate) width: usize,
    /// Lines down, without the legend.
    pub(crate) height: usize,
    /// Whether to colour letters by server.
    pub(crate) colours: bool,
}

/// The drawing with caption and legend.
pub(crate) fn draw(picture: &Picture, style: Style) -> String {
    let rows = scaled(picture.rows, style.height);
    let columns = scaled(picture.columns, style.width);
    let mut canvas = vec![None; rows * columns];
    for (index, piece) in picture.pieces.iter().enumerate() {
        for row in hits(&piece.down, picture.rows, rows) {
            for column in hits(&piece.across, picture.columns, columns) {
                canvas[row * columns + column] = Some(index);
            }
        }
    }
    let mut out = String::new();
    caption(&mut out, picture, rows, columns);
    // Characters are twice as high as wide: a space between them keeps squares square.
    let gap = if columns * 2 <= style.width { " " } else { "" };
    for row in canvas.chunks(columns.max(1)) {
        out.push_str("  ");
        for &owner in row {
            match owner {
                Some(index) => {
                    letter(&mut out, index, picture.pieces[index].server, style.colours);
                }
                None => out.push(char::from(HOLE)),
            }
            out.push_str(gap);
        }
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
    legend(&mut out, picture, &canvas, style.colours);
    out
}

fn caption(out: &mut String, picture: &Picture, rows: usize, columns: usize) {
    let unscaled = rows as u64 == picture.rows && columns as u64 == picture.columns;
    let scale = if unscaled || picture.rows == 0 || picture.columns == 0 {
        String::new()
    } else {
        format!(
            "; a character stands for {} x {} elements",
            picture.rows.div_ceil(rows as u64),
            picture.columns.div_ceil(columns as u64)
        )
    };
    out.push_str(&picture.caption);
    out.push_str(&scale);
    out.push('\n');
    if picture.rows == 0 || picture.columns == 0 {
        out.push_str("  (an axis has no elements)\n");
    }
}

fn legend(out: &mut String, picture: &Picture, canvas: &[Option<usize>], colours: bool) {
    if picture.pieces.is_empty() {
        out.push_str("nothing is stored; all elements read as the fill value\n");
        return;
    }
    let shown = &picture.pieces[..picture.pieces.len().min(LEGEND)];
    let selections: Vec<String> = shown.iter().map(|piece| piece.selection()).collect();
    let shapes: Vec<String> = shown.iter().map(|piece| piece.shape()).collect();
    let places: Vec<String> = shown.iter().map(|piece| piece.place()).collect();
    let wide = |texts: &[String]| texts.iter().map(String::len).max().unwrap_or(0);
    let (first, second, third) = (wide(&selections), wide(&shapes), wide(&places));
    let mut drawn = vec![false; shown.len()];
    for &index in canvas
        .iter()
        .flatten()
        .filter(|&&index| index < shown.len())
    {
        drawn[index] = true;
    }
    for (index, piece) in shown.iter().enumerate() {
        out.push_str("  ");
        letter(out, index, piece.server, colours);
        let hidden = if drawn[index] {
            ""
        } else {
            "  (hidden, or too thin to see)"
        };
        let line = format!(
            "  {:first$}  {:>second$}  {:third$}  {}{hidden}\n",
            selections[index],
            shapes[index],
            places[index],
            show_size(piece.bytes),
        );
        out.push_str(&line);
    }
    if picture.pieces.len() > shown.len() {
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "  … and {} more chunks",
            picture.pieces.len() - shown.len()
        );
    }
    if canvas.iter().any(Option::is_none) {
        out.push_str("  .  never written: reads as the fill value\n");
    }
}

fn letter(out: &mut String, index: usize, server: Option<u32>, colours: bool) {
    let letter = char::from(LETTERS[index % LETTERS.len()]);
    if let Some(server) = server.filter(|_| colours) {
        let colour = COLOURS[server as usize % COLOURS.len()];
        // Writing to a String cannot fail.
        let _ = write!(out, "\x1b[{colour}m{letter}\x1b[0m");
    } else {
        out.push(letter);
    }
}

/// The number of characters that `length` elements get.
fn scaled(length: u64, limit: usize) -> usize {
    usize::try_from(length)
        .unwrap_or(usize::MAX)
        .min(limit.max(1))
}

/// The element that character `at` of `count` shows: the one in the middle of its area.
fn sample(at: usize, length: u64, count: usize) -> u64 {
    let position = (2 * at as u128 + 1) * u128::from(length) / (2 * count as u128);
    // Below `length`, which is a u64.
    position as u64
}

/// The characters whose sampled element lies in `extent`.
fn hits(extent: &Extent, length: u64, count: usize) -> impl Iterator<Item = usize> + '_ {
    let first = first_at_or_after(extent.span.start, length, count);
    let end = first_at_or_after(extent.span.end, length, count);
    let range: Range<usize> = first..end;
    range.filter(move |&at| extent.contains(sample(at, length, count)))
}

/// The first character that shows `element` or a later one; the sampled elements increase with the character.
fn first_at_or_after(element: u64, length: u64, count: usize) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if sample(middle, length, count) < element {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use slabfs_fs::client::LayoutView;

    use super::super::{Cut, picture, tests::table};
    use super::*;

    const STYLE: Style = Style {
        width: 80,
        height: 40,
        colours: false,
    };

    fn drawn(view: &LayoutView, style: Style) -> String {
        draw(
            &picture(
                view,
                &Cut {
                    axes: (0, 1),
                    at: vec![],
                },
                &[],
            )
            .expect("a picture"),
            style,
        )
    }

    #[test]
    fn the_table_has_one_letter_per_element() {
        let text = drawn(&table(), STYLE);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "axis 0 (16) down, axis 1 (16) across");
        assert_eq!(lines[1], "  A A A A A A A A A B B B B B B B");
        assert_eq!(lines[8], "  A A A A A A A A A D D D D D D D");
        assert_eq!(lines[16], "  C C C C C C C C C D D D D D D D");
        assert_eq!(lines[17], "  A  [0:10,0:9]   10 x 9  server 1  360 B");
        assert_eq!(lines.len(), 21);
    }

    #[test]
    fn large_arrays_are_scaled_down() {
        let mut view = table();
        view.dims = vec![1 << 40, 1 << 20];
        view.cells = vec![1 << 40, 1 << 22];
        view.chunks.truncate(1);
        view.chunks[0].shape = vec![1 << 39, 1 << 22];
        let text = drawn(&view, STYLE);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("a character stands for"), "{}", lines[0]);
        assert_eq!(lines[1], format!("  {}", "A".repeat(80)));
        assert_eq!(lines[20], lines[1]);
        assert_eq!(lines[21], format!("  {}", ".".repeat(80)));
        assert!(text.ends_with("never written: reads as the fill value\n"));
    }

    #[test]
    fn the_newest_chunk_wins_and_the_legend_marks_hidden_ones() {
        let mut view = table();
        view.chunks.push(view.chunks[0].clone());
        let text = drawn(&view, STYLE);
        assert!(text.lines().nth(1).expect("a row").starts_with("  E E"));
        assert!(
            text.contains("360 B  (hidden, or too thin to see)"),
            "{text}"
        );
    }

    #[test]
    fn colours_only_when_asked() {
        assert!(!drawn(&table(), STYLE).contains('\x1b'));
        assert!(
            drawn(
                &table(),
                Style {
                    colours: true,
                    ..STYLE
                }
            )
            .contains("\x1b[33mA")
        );
    }

    #[test]
    fn nothing_to_draw() {
        let mut view = table();
        view.chunks.clear();
        assert!(drawn(&view, STYLE).ends_with("fill value\n"));
        view.dims = vec![0, 16];
        view.cells = vec![0, 64];
        assert!(drawn(&view, STYLE).contains("no elements"));
    }

    #[test]
    fn many_chunks_shorten_the_legend() {
        let mut view = table();
        view.chunks = (0..100).map(|_| view.chunks[0].clone()).collect();
        assert!(drawn(&view, STYLE).contains("… and 60 more chunks"));
    }
}
