//! `slabfs layout`: draws how an array is stored.

use std::io::IsTerminal;
use std::path::PathBuf;

use crate::draw::{self, CutArgs, Format};
use crate::onmount::Mount;
use crate::output;

/// Draw how an array is cut into chunks, and which server has each.
///
/// Prints a drawing of letters, one letter per chunk, with a legend; colours stand for servers. Large arrays
/// are scaled down to the terminal.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs layout mnt/temp
  slabfs layout mnt/temp --svg temp.svg
  slabfs layout mnt/temp --png temp.png
  slabfs layout mnt/ocean --axes 2,3 --at 0,5
      time 0, depth 5 of an array of rank 4
  slabfs layout mnt/temp --json | jq '.chunks | length'")]
pub(crate) struct Args {
    /// A file on a slabfs mount
    path: PathBuf,
    /// Write an SVG drawing to this file instead
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The same as a PNG file
    #[arg(long, value_name = "FILE", conflicts_with = "svg")]
    png: Option<PathBuf>,
    #[command(flatten)]
    cut: CutArgs,
    /// Characters across (default: the terminal's width)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(8..=1000))]
    width: Option<u16>,
    /// Print everything as JSON, for programs
    #[arg(long, conflicts_with_all = ["svg", "png"])]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let layout = Mount::of(&args.path)?.layout_of(&args.path)?;
    if args.json {
        return output::json(&layout);
    }
    let picture = args.cut.picture(&draw::view(layout)?, &[])?;
    let png = args.png.iter().map(|file| (file, Format::Png));
    let mut files = args.svg.iter().map(|file| (file, Format::Svg)).chain(png);
    if let Some((file, format)) = files.next() {
        let written = draw::write_picture(file, &args.path, format, &picture)?;
        return output::print(&format!("{written}\n"));
    }
    let style = draw::text::Style {
        width: args
            .width
            .map_or_else(terminal_width, usize::from)
            .saturating_sub(2)
            .max(8),
        height: 40,
        colours: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    };
    output::print(&draw::text::draw(&picture, style))
}

/// `COLUMNS` if it is set, else 80. The actual window is not queried, so that drawings in files do not depend
/// on it.
fn terminal_width() -> usize {
    std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|width| (20..=1000).contains(width))
        .unwrap_or(80)
}
