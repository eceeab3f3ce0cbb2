//! Draws a selection: reads as many elements as there is room for, and makes the drawing of them.

use std::path::Path;

use anyhow::anyhow;
use slabfs_model::Selection;

use super::Drawing;
use super::chart::{self, Chart};
use super::source::Source;
use super::terminal::{self, Terminal};
use super::ticks;
use crate::draw::{self, Format};
use crate::{failure, output};

/// The most elements of a line that are read.
const LINE: u64 = 1 << 20;

pub(super) fn draw(
    path: &Path,
    selection: Option<&Selection>,
    drawing: &Drawing,
) -> anyhow::Result<()> {
    let format = drawing.output.as_deref().map(format_of).transpose()?;
    let source = Source::of(path, selection)?;
    let shape = source.shape();
    if shape.is_empty() {
        let sample = source.read(&[])?;
        let units = source
            .units()
            .map_or_else(String::new, |units| format!(" {units}"));
        let value = ticks::short(sample.values.first().copied().unwrap_or(f64::NAN));
        if format.is_some() {
            return Err(failure::usage(format!(
                "{} is one element, {value}{units}: there is nothing to draw; give a selection with more",
                source.title()
            )));
        }
        return output::print(&format!("{} = {value}{units}\n", source.title()));
    }
    let terminal = match format {
        Some(_) => None,
        None => Some(Terminal::found()?),
    };
    let room = match &terminal {
        Some(terminal) => terminal.room(drawing.size),
        None => chart::room(drawing.size),
    };
    let tall = terminal.as_ref().map_or(1, Terminal::tall);
    let steps = steps(&shape, room, tall);
    let sample = source.read(&steps)?;
    let statistics = Statistics::of(&sample.values);
    let table = drawing.map.table();
    let table = match &terminal {
        Some(terminal) => terminal.colours(table),
        None => table,
    };
    let chart = Chart {
        title: source.title(),
        units: source.units(),
        note: note(&shape, &steps),
        statistics: statistics.text(),
        sample: &sample,
        range: drawing.range.unwrap_or(statistics.range()),
        table: &table,
    };
    match (&drawing.output, format, terminal) {
        (Some(file), Some(format), _) => {
            draw::write(file, source.object(), format, &chart.picture(drawing.size))?;
            output::print(&format!("wrote {}: {}\n", file.display(), chart.statistics))
        }
        (_, _, Some(terminal)) => terminal::show(&terminal, &chart, drawing.size),
        _ => Err(anyhow!("neither a file nor a terminal to draw into")),
    }
}

fn format_of(file: &Path) -> anyhow::Result<Format> {
    let end = file.extension().and_then(|end| end.to_str());
    match end.map(str::to_ascii_lowercase).as_deref() {
        Some("png") => Ok(Format::Png),
        Some("svg") => Ok(Format::Svg),
        _ => Err(failure::usage(format!(
            "-o {}: a drawing is PNG or SVG; end the name with .png or .svg",
            file.display()
        ))),
    }
}

/// Which elements are read along each axis, of a picture with room for so many across and down. The axes of a picture
/// have the same step, unless it is long and narrow, or what is drawn of an element is `tall` times as high as wide.
fn steps(shape: &[u64], (across, down): (u64, u64), tall: u64) -> Vec<u64> {
    match *shape {
        [rows, columns] => {
            let steps = [rows.div_ceil(down), columns.div_ceil(across)];
            let narrow = rows.max(columns) / rows.min(columns).max(1) > 4;
            match narrow {
                _ if steps == [1, 1] => vec![1, 1],
                true => steps.to_vec(),
                false => {
                    let step = steps[0].div_ceil(tall).max(steps[1]);
                    vec![step * tall, step]
                }
            }
        }
        _ => shape
            .iter()
            .map(|elements| elements.div_ceil(LINE))
            .collect(),
    }
}

fn note(shape: &[u64], steps: &[u64]) -> String {
    let lengths: Vec<String> = shape.iter().map(u64::to_string).collect();
    let elements = match shape.len() {
        1 => " elements",
        _ => "",
    };
    let all = format!("{}{elements}", lengths.join(" x "));
    match steps.iter().all(|step| *step == 1) {
        true => all,
        false => {
            let steps: Vec<String> = steps.iter().map(|step| format!("::{step}")).collect();
            format!("{all}, drawn are [{}]", steps.join(", "))
        }
    }
}

/// Of the values that were read.
struct Statistics {
    low: f64,
    high: f64,
    mean: f64,
    deviation: f64,
    infinite: usize,
    /// Values, and all elements.
    count: (usize, usize),
}

impl Statistics {
    fn of(values: &[f64]) -> Statistics {
        let known = || values.iter().copied().filter(|value| value.is_finite());
        let count = known().count();
        let (low, high) = (
            known().fold(f64::NAN, f64::min),
            known().fold(f64::NAN, f64::max),
        );
        // Squares of larger ones would be infinite.
        let scale = match low.abs().max(high.abs()) {
            large if large > 1e150 => large,
            _ => 1.0,
        };
        // Apart from the first one, so that large values leave digits for small differences.
        let first = known().next().unwrap_or(f64::NAN) / scale;
        let apart = || known().map(|value| value / scale - first);
        let mean = apart().sum::<f64>() / count as f64;
        let squares = apart().map(|value| (value - mean).powi(2)).sum::<f64>();
        Statistics {
            low,
            high,
            mean: (first + mean) * scale,
            deviation: (squares / count as f64).sqrt() * scale,
            infinite: values.iter().filter(|value| value.is_infinite()).count(),
            count: (count, values.len()),
        }
    }

    /// The smallest and the largest value; 0 to 1 if there are none.
    fn range(&self) -> (f64, f64) {
        match self.count.0 {
            0 => (0.0, 1.0),
            _ => (self.low, self.high),
        }
    }

    fn text(&self) -> String {
        let (known, all) = self.count;
        if known == 0 {
            return format!("no values in {all} elements");
        }
        let digits = self.deviation.max(self.mean.abs() * 1e-9) / 100.0;
        let [low, high, mean, deviation] = [self.low, self.high, self.mean, self.deviation]
            .map(|value| ticks::text(value, digits));
        let mut text = format!("min {low}  max {high}  mean {mean}  std {deviation}");
        let missing = all - known - self.infinite;
        for (count, what) in [(self.infinite, "infinite"), (missing, "without a value")] {
            if count > 0 {
                text.push_str(&format!("  {what} {count} of {all}"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_there_is_room_for() {
        assert_eq!(steps(&[100, 200], (800, 600), 1), [1, 1]);
        assert_eq!(steps(&[1000, 2000], (800, 600), 1), [3, 3]);
        assert_eq!(steps(&[10, 1_000_000], (800, 600), 1), [1, 1250]);
        assert_eq!(steps(&[1 << 40], (800, 600), 1), [1 << 20]);
        assert_eq!(steps(&[90, 180], (80, 30), 2), [6, 3]);
        assert_eq!(steps(&[9, 18], (80, 30), 2), [1, 1]);
        assert_eq!(
            note(&[1000, 2000], &[3, 3]),
            "1000 x 2000, drawn are [::3, ::3]"
        );
        assert_eq!(note(&[7], &[1]), "7 elements");
    }

    #[test]
    fn statistics_leave_out_what_has_no_value() {
        let found = Statistics::of(&[1.0, f64::NAN, 3.0, f64::INFINITY]);
        assert_eq!(found.range(), (1.0, 3.0));
        assert_eq!(
            found.text(),
            "min 1.00  max 3.00  mean 2.00  std 1.00  infinite 1 of 4  without a value 1 of 4"
        );
        let none = Statistics::of(&[f64::NAN]);
        assert_eq!(none.range(), (0.0, 1.0));
        assert_eq!(none.text(), "no values in 1 elements");
        let large = Statistics::of(&[1e9 + 1.0, 1e9 + 2.0]);
        assert_eq!(large.deviation, 0.5);
        let largest = Statistics::of(&[-1.7e308, 1.7e308]);
        assert_eq!((largest.mean, largest.deviation), (0.0, 1.7e308));
    }
}
