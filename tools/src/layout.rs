//! `slabfs layout`: draws how an array is stored.

use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use slabfs_fs::client::LayoutView;

use crate::draw::{self, Cut};
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
  slabfs layout mnt/ocean --axes 2,3 --at 0,5
      time 0, depth 5 of an array of rank 4
  slabfs layout mnt/temp --json | jq '.chunks | length'")]
pub(crate) struct Args {
    /// A file on a slabfs mount
    path: PathBuf,
    /// Write an SVG drawing to this file instead
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The axis drawn downwards and the one drawn across
    #[arg(long, value_name = "I,J", value_parser = parse_axes, default_value = "0,1")]
    axes: (usize, usize),
    /// An index for each axis that is not drawn, in the order of the axes (default: 0)
    #[arg(long, value_name = "INDEX", value_delimiter = ',')]
    at: Vec<u64>,
    /// Characters across (default: the terminal's width)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(8..=1000))]
    width: Option<u16>,
    /// Print everything as JSON, for programs
    #[arg(long, conflicts_with = "svg")]
    json: bool,
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

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let layout = Mount::of(&args.path)?.layout_of(&args.path)?;
    if args.json {
        return output::json(&layout);
    }
    let view: LayoutView = serde_json::from_value(layout)
        .context("this slabfs does not understand the mount's description of the layout; do both have the same version?")?;
    let cut = Cut {
        axes: args.axes,
        at: args.at.clone(),
    };
    let picture = draw::picture(&view, &cut).map_err(|why| anyhow!(why))?;
    if let Some(file) = &args.svg {
        let title = args.path.display().to_string();
        let same = |there: std::fs::Metadata| {
            let drawn = std::fs::metadata(&args.path);
            drawn.is_ok_and(|drawn| (drawn.dev(), drawn.ino()) == (there.dev(), there.ino()))
        };
        if std::fs::metadata(file).is_ok_and(same) {
            bail!(
                "--svg {title} would overwrite the array itself; give another file, such as {title}.svg"
            );
        }
        std::fs::write(file, draw::svg::draw(&picture, &title))
            .with_context(|| format!("cannot write {}", file.display()))?;
        let chunks = counted(picture.pieces.len());
        return output::print(&format!("wrote {}: {chunks}\n", file.display()));
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

fn counted(chunks: usize) -> String {
    match chunks {
        1 => "1 chunk".to_owned(),
        n => format!("{n} chunks"),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_chunk_is_one() {
        assert_eq!([0, 1, 2].map(counted), ["0 chunks", "1 chunk", "2 chunks"]);
    }

    #[test]
    fn axes_are_two_numbers() {
        assert_eq!(parse_axes("2, 3"), Ok((2, 3)));
        for wrong in ["", "1", "1,2,3", "a,b", "-1,0"] {
            assert!(parse_axes(wrong).is_err(), "{wrong:?}");
        }
    }
}
