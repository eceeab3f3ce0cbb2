//! `slabfs view`: a selection of an array, drawn, or as the input or output of a program.

mod batch;
mod chart;
mod colours;
mod element;
mod picture;
mod program;
mod source;
mod terminal;
mod ticks;

use std::ffi::OsString;
use std::path::PathBuf;

use slabfs_model::Selection;

use crate::failure;
use colours::Colours;

/// Draw a part of an array, or run a program that reads or writes it.
///
/// Without a program the selected elements are drawn, in the terminal or into a file: two axes as a picture, one as a
/// line. A program has them, one after the other, as its standard input; with --write its standard output writes them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs view mnt/temp
  slabfs view mnt/temp '[::2, 10:16]' -o temp.png
  slabfs view mnt/temp '[0]' -o row.svg --range 0,1
  slabfs view 'mnt/temp@[::4, 10:16]' -- sha256sum
  slabfs view --write 'mnt/temp@[0]' -- cat row.bin
  echo '[{\"offset\": 4, \"stride\": 64, \"count\": 2, \"size\": 8}]' > pattern.json
  slabfs view --batch pattern.json mnt/temp -- od -t f4

A selection names a box of an array; PATH@[A,B,…] is the same as a file. Slowest axis first, each axis one of
  3        that index             2:5      2, 3 and 4
  -1       the last one           :5, 2:   up to 4, from 2 on; -3: is the last three
  :        all of it              0:10:2   every other one
  ...      all axes that are not named; those behind the last one need not be
Quote it in a shell; read the file with cat, write it with cp.

Drawing reads no more elements than the picture has room for: with steps along each axis, which data servers apply, so \
that arrays of any size can be drawn. Statistics are those of the elements that were read. Of an array with more than \
two axes the first index of the others is taken. The tags dim_names, units, long_name, _FillValue, missing_value, \
scale_factor and add_offset are used, and as coordinates arrays of one axis in the same directory that have the name of an axis; \
if there are any, larger ones are further up.

A batch is a JSON list of {\"offset\": 0, \"stride\": 64, \"count\": 100, \"size\": 8}, in bytes; \"of\": [...] in \
place of \"size\" repeats a list, \"absolute\": true counts its offset from the start of the file and not from the \
element before it. Everything but \"size\" or \"of\" may be left out.

For a selection the program has the file of that selection, with a size of its own. With --batch it has the object, \
and the view belongs to the open file: a program that opens /dev/stdin or /dev/stdout again has the entire object, and \
may truncate it (`cp row.bin /dev/stdout`); mmap also shows the object. Reading ends where the view ends, but `stat` \
and a seek to the end return the size of the object, so programs that query it first (numpy.fromfile, `tail -c`, \
`wc -c`) need a pipe: run `sh -c 'cat | ...'`. Copies made by the kernel (`cat` into a file, `sendfile`) are of the view.")]
pub(crate) struct Args {
    /// A file on a slabfs mount, or a selection of one
    path: PathBuf,
    /// What of it: [0, 10:20, ::4]
    selection: Option<Selection>,
    #[command(flatten)]
    drawing: Drawing,
    /// The program writes: the file is its standard output
    #[arg(long, requires = "command")]
    write: bool,
    /// JSON file with the batch of byte ranges
    #[arg(long, value_name = "FILE", requires = "command")]
    batch: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How it is drawn.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Drawing")]
struct Drawing {
    /// Draw into this file, PNG or SVG by the end of its name
    #[arg(short, long, value_name = "FILE", conflicts_with = "command")]
    output: Option<PathBuf>,
    /// The colours of values
    #[arg(long, value_name = "MAP", default_value = "viridis")]
    map: Colours,
    /// The values of the first and the last colour, or of the axis of a line (default: the smallest and the largest)
    #[arg(long, value_name = "MIN,MAX", value_parser = parse_range, allow_hyphen_values = true)]
    range: Option<(f64, f64)>,
    /// Pixels of the drawing at most
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_size, default_value = "1000x750")]
    size: (u32, u32),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match args.command.is_empty() {
        true => picture::draw(&args.path, args.selection.as_ref(), &args.drawing),
        false => match &args.selection {
            None => program::run(args),
            Some(selection) => Err(failure::usage(format!(
                "a program takes a selection as a file: slabfs view '{}@{selection}' -- …",
                args.path.display()
            ))),
        },
    }
}

fn parse_range(text: &str) -> Result<(f64, f64), String> {
    let parts = text.split_once(',');
    let parsed = parts.and_then(|(low, high)| Some((number(low)?, number(high)?)));
    parsed.filter(|(low, high)| low < high).ok_or_else(|| {
        format!("{text:?} is not two numbers, the smaller first; write e.g. 270,310")
    })
}

fn number(text: &str) -> Option<f64> {
    text.trim()
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
}

fn parse_size(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once('x');
    let parsed =
        parts.and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    parsed
        .filter(|size: &(u32, u32)| {
            [size.0, size.1]
                .iter()
                .all(|side| (300..=8000).contains(side))
        })
        .ok_or_else(|| {
            format!("{text:?} is no size; write e.g. 1000x750, with 300 to 8000 pixels a side")
        })
}
