//! Drawings in a terminal: pictures by kitty's protocol or sixels where the terminal says that it can, else blocks of half a
//! character, and characters alone where there are no colours.
//!
//! Kitty: <https://sw.kovidgoyal.net/kitty/graphics-protocol/>; sixels, and the question for them (primary device attributes):
//! VT330/VT340 Programmer Reference Manual, volume 2, <https://vt100.net/docs/vt3xx-gp/chapter14.html>.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr};

use super::chart::{self, Chart};
use super::{colours, ticks};
use crate::draw::canvas::{Canvas, Rgb};
use crate::draw::raster::{self, Pixels};
use crate::output;

/// Characters from the smallest value to the largest, without colours.
const SHADES: &[u8] = b" .:-=+*#%@";
/// Lines besides the plot.
const LINES: u16 = 7;
/// How long a terminal may take to answer.
const ANSWER: Duration = Duration::from_millis(300);
/// Bytes of a part of a picture in kitty's protocol.
const PART: usize = 4096;
/// Colours of a picture in sixels.
const REGISTERS: usize = 256;

/// What stdout can show.
#[derive(Debug, PartialEq, Eq)]
enum Form {
    Kitty,
    Sixel,
    /// Two pixels a character, one above the other.
    Blocks,
    /// No colours.
    Text,
}

/// Where it is drawn.
pub(super) struct Terminal {
    form: Form,
    columns: u16,
    rows: u16,
}

impl Terminal {
    /// That of stdout. What is no terminal has 80 columns and no colours.
    pub(super) fn found() -> anyhow::Result<Terminal> {
        let stdout = std::io::stdout();
        let is_terminal = stdout.is_terminal();
        let (columns, rows) = match tcgetwinsize(stdout.as_fd()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
            _ => (80, 40),
        };
        let form = match is_terminal && std::env::var_os("NO_COLOR").is_none() {
            false => Form::Text,
            true => asked(),
        };
        Ok(Terminal {
            form,
            columns: columns.clamp(20, 1000),
            rows: rows.clamp(LINES + 5, 500),
        })
    }

    /// Elements that it has room for, across and down.
    pub(super) fn room(&self, size: (u32, u32)) -> (u64, u64) {
        let (columns, rows) = (u64::from(self.columns), u64::from(self.rows - LINES));
        match self.form {
            Form::Kitty | Form::Sixel => chart::room(size),
            Form::Blocks => (columns, 2 * rows),
            Form::Text => (columns, rows),
        }
    }

    /// How many times as high as wide an element is drawn.
    pub(super) fn tall(&self) -> u64 {
        match self.form {
            Form::Text => 2,
            Form::Kitty | Form::Sixel | Form::Blocks => 1,
        }
    }

    /// A table of colours as it can show them: every second one if there would be no registers for all.
    pub(super) fn colours(&self, table: Vec<Rgb>) -> Vec<Rgb> {
        match self.form {
            Form::Sixel => (0..table.len()).map(|at| table[at & !1]).collect(),
            _ => table,
        }
    }
}

/// Asks the terminal what it can show: for kitty's protocol by a picture that it does not draw, then for its attributes, which
/// every terminal answers.
fn asked() -> Form {
    let answer = ask("\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[c").unwrap_or_default();
    form_of(&answer)
}

fn form_of(answer: &str) -> Form {
    if answer.contains("\x1b_Gi=31;OK") {
        return Form::Kitty;
    }
    let attributes = answer
        .rsplit("\x1b[?")
        .next()
        .and_then(|rest| rest.strip_suffix('c'));
    match attributes.is_some_and(|list| list.split(';').skip(1).any(|one| one == "4")) {
        true => Form::Sixel,
        false => Form::Blocks,
    }
}

/// Sends a question to the terminal and reads up to the answer about its attributes.
fn ask(question: &str) -> Option<String> {
    let mut tty = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/tty")
        .ok()?;
    let before = tcgetattr(&tty).ok()?;
    let mut raw = before.clone();
    raw.make_raw();
    tcsetattr(&tty, OptionalActions::Now, &raw).ok()?;
    let mut answer = Vec::new();
    let end = Instant::now() + ANSWER;
    if tty.write_all(question.as_bytes()).is_ok() {
        while !answer.ends_with(b"c") && answer.len() < PART {
            let left = end.saturating_duration_since(Instant::now());
            let wait = Timespec::try_from(left).ok()?;
            let mut ready = [PollFd::new(&tty, PollFlags::IN)];
            if !matches!(poll(&mut ready, Some(&wait)), Ok(1)) {
                break;
            }
            let mut part = [0; 256];
            match tty.read(&mut part) {
                Ok(read) if read > 0 => answer.extend_from_slice(&part[..read]),
                _ => break,
            }
        }
    }
    // Left in this mode it would echo nothing.
    if let Err(error) = tcsetattr(&tty, OptionalActions::Now, &before) {
        tracing::warn!("cannot set the terminal back: {error}; type `stty sane`");
    }
    String::from_utf8(answer).ok()
}

/// Draws into the terminal.
pub(super) fn show(terminal: &Terminal, chart: &Chart<'_>, size: (u32, u32)) -> anyhow::Result<()> {
    let text = match terminal.form {
        Form::Kitty => kitty(&chart.picture(size))?,
        Form::Sixel => sixel(&chart.picture(size)),
        Form::Blocks => framed(chart, &blocks(&plot(terminal, chart, 2)), true),
        Form::Text => framed(chart, &shades(terminal, chart), false),
    };
    output::print(&text)
}

/// Pixels of a picture, or of a line.
fn plot(terminal: &Terminal, chart: &Chart<'_>, halves: usize) -> (usize, Vec<Rgb>) {
    if chart.sample.is_picture() {
        return chart::pixels(chart.sample, chart.range, chart.table);
    }
    let heights = heights(terminal, chart, halves);
    let (rows, columns) = (heights.0, heights.1.len());
    let middle = chart.table[chart.table.len() / 2];
    let pixel = |row: usize, at: &Option<(usize, usize)>| match at {
        Some((low, high)) if (*low..=*high).contains(&(rows - 1 - row)) => middle,
        _ => [0; 3],
    };
    let pixels = (0..rows).flat_map(|row| heights.1.iter().map(move |at| pixel(row, at)));
    (columns, pixels.collect())
}

/// For each column the rows between the smallest and the largest value, counted from the bottom; and the number of rows.
fn heights(
    terminal: &Terminal,
    chart: &Chart<'_>,
    halves: usize,
) -> (usize, Vec<Option<(usize, usize)>>) {
    let rows = usize::from(terminal.rows - LINES) * halves;
    let values = &chart.sample.values;
    let columns = usize::from(terminal.columns).min(values.len());
    let (low, high) = chart.range;
    let row = |value: f64| {
        let part = if high > low {
            colours::part(value, (low, high))
        } else {
            0.5
        };
        (part * (rows - 1) as f64)
            .round()
            .clamp(0.0, (rows - 1) as f64) as usize
    };
    let column = |at: usize| {
        let part = &values[at * values.len() / columns..(at + 1) * values.len() / columns];
        let known = || part.iter().copied().filter(|value| !value.is_nan());
        known().next()?;
        Some((
            row(known().fold(f64::INFINITY, f64::min)),
            row(known().fold(f64::NEG_INFINITY, f64::max)),
        ))
    };
    (rows, (0..columns).map(column).collect())
}

/// Two rows of pixels a line, by the upper half block in one colour on the other.
fn blocks((columns, pixels): &(usize, Vec<Rgb>)) -> String {
    let mut out = String::new();
    let rows: Vec<&[Rgb]> = pixels.chunks_exact(*columns).collect();
    for pair in rows.chunks(2) {
        for (x, [r, g, b]) in pair[0].iter().enumerate() {
            let _ = write!(out, "\x1b[38;2;{r};{g};{b}m");
            match pair.get(1) {
                Some(lower) => {
                    let [r, g, b] = lower[x];
                    let _ = write!(out, "\x1b[48;2;{r};{g};{b}m");
                }
                None => out.push_str("\x1b[49m"),
            }
            out.push('\u{2580}');
        }
        out.push_str("\x1b[0m\n");
    }
    out
}

/// A character an element, darker ones for larger values.
fn shades(terminal: &Terminal, chart: &Chart<'_>) -> String {
    let mut out = String::new();
    if !chart.sample.is_picture() {
        let (rows, columns) = heights(terminal, chart, 1);
        for row in (0..rows).rev() {
            let dot = |at: &Option<(usize, usize)>| match at {
                Some((low, high)) if (*low..=*high).contains(&row) => '*',
                _ => ' ',
            };
            let line: String = columns.iter().map(dot).collect();
            out.push_str(line.trim_end());
            out.push('\n');
        }
        return out;
    }
    let columns = chart.sample.axes[1].values.len();
    let shade = |value: &f64| match colours::index(*value, chart.range) {
        Some(at) => char::from(SHADES[at * SHADES.len() / 256]),
        None => '?',
    };
    let rows = chart.sample.values.chunks_exact(columns);
    let mut lines: Vec<String> = rows.map(|row| row.iter().map(shade).collect()).collect();
    if chart::upwards(&chart.sample.axes[0]) {
        lines.reverse();
    }
    for line in lines {
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The plot with its title above, and axes, colours and statistics as lines below.
fn framed(chart: &Chart<'_>, plot: &str, colours: bool) -> String {
    let mut out = format!("{}\n{}\n{plot}", chart.title, chart.note);
    let words = match chart.sample.is_picture() {
        true => ["down", "across"],
        false => ["across", ""],
    };
    for (axis, word) in chart.sample.axes.iter().zip(words) {
        let (Some(first), Some(last)) = (axis.values.first(), axis.values.last()) else {
            continue;
        };
        let (first, last) = match word == "down" && chart::upwards(axis) {
            true => (last, first),
            false => (first, last),
        };
        let step = (last - first).abs() / 1000.0;
        let ends = [first, last].map(|value| ticks::text(*value, step.max(value.abs() * 1e-6)));
        let ends = match axis.coordinate {
            true => ends,
            false => [first, last].map(f64::to_string),
        };
        let _ = writeln!(out, "{word}: {}, {} to {}", axis.title, ends[0], ends[1]);
    }
    let (low, high) = chart.range;
    let step = (high - low) / 100.0;
    let units = chart
        .units
        .as_deref()
        .map_or_else(String::new, |units| format!(" {units}"));
    let bar = match (colours, chart.sample.is_picture()) {
        (true, true) => {
            let row: Vec<Rgb> = chart.table.iter().step_by(8).copied().collect();
            let pixels = (row.len(), row.repeat(2));
            blocks(&pixels).trim_end().to_owned()
        }
        (false, true) => String::from_utf8_lossy(SHADES).into_owned(),
        (_, false) => "to".to_owned(),
    };
    let _ = writeln!(
        out,
        "{} {bar} {}{units}\n{}",
        ticks::text(low, step),
        ticks::text(high, step),
        chart.statistics
    );
    out
}

/// A PNG file in parts.
fn kitty(canvas: &Canvas) -> anyhow::Result<String> {
    let encoded = STANDARD.encode(raster::png(canvas)?);
    let mut out = String::new();
    let mut rest = &encoded[..];
    let mut head = "a=T,f=100,q=2,";
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(rest.len().min(PART));
        let more = u8::from(!behind.is_empty());
        let _ = write!(out, "\x1b_G{head}m={more};{part}\x1b\\");
        (rest, head) = (behind, "");
    }
    out.push('\n');
    Ok(out)
}

/// Six rows of pixels a line: for each colour which of them it has.
fn sixel(canvas: &Canvas) -> String {
    let pixels = Pixels::of(canvas);
    let mut registers: Vec<Rgb> = pixels.data.clone();
    registers.sort_unstable();
    registers.dedup();
    registers.truncate(REGISTERS);
    let mut out = format!("\x1bPq\"1;1;{};{}", pixels.width, pixels.height);
    for (at, colour) in registers.iter().enumerate() {
        let [r, g, b] = colour.map(|level| u32::from(level) * 100 / 255);
        let _ = write!(out, "#{at};2;{r};{g};{b}");
    }
    let width = pixels.width as usize;
    for band in pixels.data.chunks(6 * width) {
        let mut of = vec![0; width];
        for (at, colour) in registers.iter().enumerate() {
            of.fill(0u8);
            for (place, pixel) in band.iter().enumerate() {
                if pixel == colour {
                    of[place % width] |= 1 << (place / width);
                }
            }
            if of.iter().all(|bits| *bits == 0) {
                continue;
            }
            let _ = write!(out, "#{at}");
            for run in of.chunk_by(|a, b| a == b) {
                let one = char::from(63 + run[0]);
                match run.len() {
                    1..=3 => out.extend(std::iter::repeat_n(one, run.len())),
                    count => {
                        let _ = write!(out, "!{count}{one}");
                    }
                }
            }
            out.push('$');
        }
        out.push('-');
    }
    out.push_str("\x1b\\\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::canvas::{BLACK, Look, Rect, Shape};

    #[test]
    fn terminals_say_what_they_can() {
        assert_eq!(form_of("\x1b_Gi=31;OK\x1b\\\x1b[?62;c"), Form::Kitty);
        assert_eq!(form_of("\x1b[?62;4;22c"), Form::Sixel);
        assert_eq!(form_of("\x1b[?64;1;2;6;14;22c"), Form::Blocks);
        assert_eq!(form_of("\x1b[?4c"), Form::Blocks, "a kind of terminal");
        assert_eq!(form_of(""), Form::Blocks);
    }

    #[test]
    fn sixels_of_two_rows() {
        let black = Look {
            fill: Some((BLACK, 1.0)),
            ..Look::default()
        };
        let lower = Rect {
            x: 0.0,
            y: 1.0,
            width: 5.0,
            height: 1.0,
        };
        let canvas = Canvas {
            width: 5,
            height: 2,
            shapes: vec![Shape::Rect(lower, black)],
        };
        let expected = "\x1bPq\"1;1;5;2#0;2;0;0;0#1;2;100;100;100#0!5A$#1!5@$-\x1b\\\n";
        assert_eq!(sixel(&canvas), expected);
    }

    #[test]
    fn a_picture_in_parts() {
        let canvas = Canvas {
            width: 300,
            height: 300,
            shapes: (0..300)
                .map(|at| {
                    let to = f64::from(at * 37 % 300);
                    Shape::Line(vec![(f64::from(at), 0.0), (to, 299.0)], [at as u8, 7, 9])
                })
                .collect(),
        };
        let text = kitty(&canvas).expect("a picture");
        let parts: Vec<&str> = text.trim_end().split_inclusive("\x1b\\").collect();
        assert!(parts.len() > 2 && parts[0].starts_with("\x1b_Ga=T,f=100,q=2,m=1;"));
        assert!(parts[parts.len() - 1].starts_with("\x1b_Gm=0;"));
        let body = |part: &&str| {
            part.split_once(';')
                .map(|(_, rest)| rest.trim_end_matches("\x1b\\").to_owned())
        };
        let all: String = parts.iter().filter_map(body).collect();
        assert_eq!(
            STANDARD.decode(all).expect("base64"),
            raster::png(&canvas).expect("a file")
        );
    }

    #[test]
    fn blocks_have_two_rows_a_line() {
        let pixels = (1, vec![[1, 2, 3], [4, 5, 6], [7, 8, 9]]);
        let expected = "\x1b[38;2;1;2;3m\x1b[48;2;4;5;6m\u{2580}\x1b[0m\n\x1b[38;2;7;8;9m\x1b[49m\u{2580}\x1b[0m\n";
        assert_eq!(blocks(&pixels), expected);
    }
}
