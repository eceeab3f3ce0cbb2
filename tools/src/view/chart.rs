//! The drawing of two axes as a picture with a colour bar, or of one as a line.

use super::colours::{self, MISSING};
use super::source::{Axis, Sample};
use super::ticks::{self, Tick};
use crate::draw::canvas::{Anchor, BLACK, CELL, Canvas, GREY, Look, Rect, Rgb, Shape};

/// Height of a line of text.
const LINE: f64 = 18.0;
/// Space above the plot, for two lines.
const TOP: f64 = 48.0;
/// Space below it: marks, the title of the axis, and statistics.
const BOTTOM: f64 = 20.0 + 3.0 * LINE;
/// Length of the line of a mark.
const MARK: f64 = 5.0;
/// Width of the colour bar, and the space before it.
const BAR: f64 = 18.0;
const GAP: f64 = 24.0;
/// Longest texts of marks that get space, in characters.
const DIGITS: usize = 9;
/// Longest texts, in characters.
const LONGEST: usize = 160;
/// Colour of a line.
const BLUE: Rgb = [0x1f, 0x77, 0xb4];

/// What is drawn.
pub(super) struct Chart<'a> {
    pub(super) title: String,
    pub(super) units: Option<String>,
    /// What was read, of how much.
    pub(super) note: String,
    pub(super) statistics: String,
    pub(super) sample: &'a Sample,
    /// Values of the first and the last colour.
    pub(super) range: (f64, f64),
    pub(super) table: &'a [Rgb],
}

/// The pixels that a plot may have in a drawing of this size.
pub(super) fn room((width, height): (u32, u32)) -> (u64, u64) {
    let sides = left() + right();
    let across = f64::from(width) - sides;
    let down = f64::from(height) - TOP - BOTTOM;
    (across.max(50.0) as u64, down.max(50.0) as u64)
}

fn left() -> f64 {
    (DIGITS as f64 + 2.0) * CELL.0 + LINE
}

fn right() -> f64 {
    GAP + BAR + (DIGITS as f64 + 1.0) * CELL.0 + LINE
}

/// Pixels of the colours of values, with the larger coordinates of the first axis at the top, if it has any.
pub(super) fn pixels(sample: &Sample, range: (f64, f64), table: &[Rgb]) -> (usize, Vec<Rgb>) {
    let columns = sample.axes[1].values.len();
    let colour = |value: &f64| colours::index(*value, range).map_or(MISSING, |at| table[at]);
    let rows = sample.values.chunks_exact(columns.max(1));
    let pixels = match upwards(&sample.axes[0]) {
        false => rows.flatten().map(colour).collect(),
        true => rows.rev().flatten().map(colour).collect(),
    };
    (columns, pixels)
}

/// Whether the first element of an axis is at the bottom.
pub(super) fn upwards(axis: &Axis) -> bool {
    axis.coordinate && axis.values.first() < axis.values.last()
}

impl Chart<'_> {
    /// Two axes as a picture.
    pub(super) fn picture(&self, size: (u32, u32)) -> Canvas {
        let [down, across] = &self.sample.axes[..] else {
            return self.line(size);
        };
        let (rows, columns) = (down.values.len() as f64, across.values.len() as f64);
        let room = room(size);
        let fit = (
            (room.0 as f64 / columns).floor(),
            (room.1 as f64 / rows).floor(),
        );
        let fit = (fit.0.max(1.0), fit.1.max(1.0));
        // Elements are squares, unless the array is long and narrow.
        let scale = match (rows / columns).max(columns / rows) > 4.0 {
            true => fit,
            false => (fit.0.min(fit.1), fit.0.min(fit.1)),
        };
        let plot = Rect {
            x: left(),
            y: TOP,
            width: columns * scale.0,
            height: rows * scale.1,
        };
        let (columns, pixels) = pixels(self.sample, self.range, self.table);
        let mut shapes = self.texts(&plot);
        shapes.push(Shape::Image {
            at: plot,
            columns,
            pixels,
        });
        shapes.push(frame(&plot));
        x_axis(&mut shapes, &plot, scale.0, across);
        y_axis(&mut shapes, &plot, scale.1, down);
        self.bar(&mut shapes, &plot);
        self.canvas(shapes, plot.x + plot.width + right(), &plot)
    }

    /// One axis as a line: of the elements in a column of pixels, the smallest to the largest.
    pub(super) fn line(&self, size: (u32, u32)) -> Canvas {
        let room = room(size);
        let plot = Rect {
            x: left(),
            y: TOP,
            width: room.0 as f64,
            height: room.1 as f64,
        };
        let mut shapes = self.texts(&plot);
        let (low, high) = self.range;
        let values = ticks::round_values(low, high, room.1 as usize / 60);
        let marks = ticks::texts(&values);
        let (low, high) = if high > low {
            (low, high)
        } else {
            (low - 0.5, high + 0.5)
        };
        let height = |value: f64| {
            let part = colours::part(value, (low, high)).clamp(0.0, 1.0);
            plot.y + plot.height * (1.0 - part)
        };
        for (value, text) in values.iter().zip(marks) {
            let y = height(*value);
            shapes.push(Shape::Line(vec![(plot.x - MARK, y), (plot.x, y)], BLACK));
            shapes.push(Shape::text(plot.x - MARK - 3.0, y + 4.0, Anchor::End, text));
        }
        if let Some(units) = &self.units {
            let middle = plot.y + plot.height / 2.0;
            shapes.push(Shape::text(LINE, middle, Anchor::Up, cut(units)));
        }
        let all = &self.sample.values;
        let step = plot.width / all.len().max(1) as f64;
        for points in lines(all, plot.width as usize) {
            let points = points
                .iter()
                .map(|(at, value)| (plot.x + (at + 0.5) * step, height(*value)));
            shapes.push(Shape::Line(points.collect(), BLUE));
        }
        shapes.push(frame(&plot));
        if let Some(axis) = self.sample.axes.first() {
            x_axis(&mut shapes, &plot, step, axis);
        }
        self.canvas(shapes, plot.x + plot.width + GAP, &plot)
    }

    fn texts(&self, plot: &Rect) -> Vec<Shape> {
        let bottom = plot.y + plot.height + 20.0 + 2.0 * LINE;
        vec![
            Shape::text(8.0, 18.0, Anchor::Start, cut(&self.title)).in_bold(),
            Shape::text(8.0, 36.0, Anchor::Start, self.note.clone()).in_colour(GREY),
            Shape::text(8.0, bottom, Anchor::Start, self.statistics.clone()),
        ]
    }

    fn canvas(&self, shapes: Vec<Shape>, width: f64, plot: &Rect) -> Canvas {
        let texts = [&cut(&self.title), &self.note, &self.statistics];
        let longest = texts.map(|text| text.chars().count()).into_iter().max();
        let longest = longest.unwrap_or(0) as f64 * CELL.0 + 16.0;
        Canvas {
            width: width.max(longest).ceil() as u32,
            height: (plot.y + plot.height + BOTTOM).ceil() as u32,
            shapes,
        }
    }

    /// The colour bar.
    fn bar(&self, shapes: &mut Vec<Shape>, plot: &Rect) {
        let at = Rect {
            x: plot.x + plot.width + GAP,
            y: plot.y,
            width: BAR,
            height: plot.height.max(100.0),
        };
        shapes.push(Shape::Image {
            at,
            columns: 1,
            pixels: self.table.iter().rev().copied().collect(),
        });
        shapes.push(frame(&at));
        let (low, high) = self.range;
        let values = ticks::round_values(low, high, (at.height / 50.0) as usize);
        let right = at.x + at.width;
        let texts = ticks::texts(&values);
        let longest = texts.iter().map(|text| text.chars().count()).max();
        for (value, text) in values.iter().zip(texts) {
            let part = if high > low {
                colours::part(*value, (low, high))
            } else {
                0.5
            };
            let y = at.y + at.height * (1.0 - part);
            shapes.push(Shape::Line(vec![(right, y), (right + MARK, y)], BLACK));
            shapes.push(Shape::text(
                right + MARK + 3.0,
                y + 4.0,
                Anchor::Start,
                text,
            ));
        }
        if let Some(units) = &self.units {
            let x = right + MARK + (longest.unwrap_or(0) as f64 + 1.0) * CELL.0 + LINE;
            shapes.push(Shape::text(
                x,
                at.y + at.height / 2.0,
                Anchor::Up,
                cut(units),
            ));
        }
    }
}

/// A text of a length that a drawing has room for.
fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Lines through values, broken where there are none, with at most a few points for each of so many pixels.
fn lines(values: &[f64], pixels: usize) -> Vec<Vec<(f64, f64)>> {
    let most = values.len().div_ceil(pixels.max(1)).max(1);
    let mut lines = vec![Vec::new()];
    let mut at = 0;
    for group in values.chunks(most) {
        let known = group
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, value)| !value.is_nan());
        let known: Vec<(usize, f64)> = known.collect();
        if known.len() < group.len() {
            lines.push(Vec::new());
        }
        let smallest = known.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        let largest = known.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let mut ends: Vec<_> = smallest.into_iter().chain(largest).collect();
        ends.sort_by_key(|(index, _)| *index);
        ends.dedup_by_key(|(index, _)| *index);
        if let Some(line) = lines.last_mut() {
            line.extend(
                ends.into_iter()
                    .map(|(index, value)| ((at + index) as f64, *value)),
            );
        }
        at += group.len();
    }
    for line in &mut lines {
        // One value alone is a dash.
        if let [only] = line[..] {
            *line = vec![(only.0 - 0.4, only.1), (only.0 + 0.4, only.1)];
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

fn frame(at: &Rect) -> Shape {
    let look = Look {
        stroke: Some((BLACK, 1.0)),
        ..Look::default()
    };
    // Outside, so that it covers no elements.
    let around = Rect {
        x: at.x - 1.0,
        y: at.y - 1.0,
        width: at.width + 1.0,
        height: at.height + 1.0,
    };
    Shape::Rect(around, look)
}

fn x_axis(shapes: &mut Vec<Shape>, plot: &Rect, scale: f64, axis: &Axis) {
    let bottom = plot.y + plot.height;
    let mut free = f64::NEG_INFINITY;
    let mut marks = ticks::ticks(&axis.values, (plot.width / 90.0) as usize, !axis.coordinate);
    marks.sort_by(|a, b| a.at.total_cmp(&b.at));
    for Tick { at, text } in marks {
        let x = plot.x + at * scale;
        shapes.push(Shape::Line(vec![(x, bottom), (x, bottom + MARK)], BLACK));
        let half = text.chars().count() as f64 * CELL.0 / 2.0;
        if x - half > free {
            free = x + half + CELL.0;
            shapes.push(Shape::text(x, bottom + 17.0, Anchor::Middle, text));
        }
    }
    let middle = plot.x + plot.width / 2.0;
    shapes.push(Shape::text(
        middle,
        bottom + 17.0 + LINE,
        Anchor::Middle,
        cut(&axis.title),
    ));
}

fn y_axis(shapes: &mut Vec<Shape>, plot: &Rect, scale: f64, axis: &Axis) {
    let mut free = f64::INFINITY;
    let turned = upwards(axis);
    let place = |at: f64| match turned {
        true => plot.y + plot.height - at * scale,
        false => plot.y + at * scale,
    };
    let marks = ticks::ticks(
        &axis.values,
        (plot.height / 50.0) as usize,
        !axis.coordinate,
    );
    let mut marks: Vec<(f64, String)> = marks
        .into_iter()
        .map(|tick| (place(tick.at), tick.text))
        .collect();
    marks.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (y, text) in marks {
        shapes.push(Shape::Line(
            vec![(plot.x - 1.0 - MARK, y), (plot.x - 1.0, y)],
            BLACK,
        ));
        if y < free {
            free = y - CELL.1;
            shapes.push(Shape::text(plot.x - MARK - 4.0, y + 4.0, Anchor::End, text));
        }
    }
    let middle = plot.y + plot.height / 2.0;
    shapes.push(Shape::text(LINE, middle, Anchor::Up, cut(&axis.title)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_where_there_is_no_value() {
        let nan = f64::NAN;
        assert_eq!(
            lines(&[1.0, 2.0, nan, 4.0], 100),
            [vec![(0.0, 1.0), (1.0, 2.0)], vec![(2.6, 4.0), (3.4, 4.0)]]
        );
        assert!(lines(&[nan], 100).is_empty());
    }

    #[test]
    fn many_values_of_a_pixel_are_the_smallest_and_the_largest() {
        let values: Vec<f64> = (0..1000).map(f64::from).collect();
        let found = lines(&values, 10);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].len(), 20);
        assert_eq!((found[0][0], found[0][19]), ((0.0, 0.0), (999.0, 999.0)));
    }
}
