//! Renders a picture as SVG: one rectangle per chunk, coloured by its server and labelled with its shape.
//!
//! Chunks with steps are drawn block by block up to a limit, beyond it as their bounding box, hatched.

use std::fmt::Write;

use super::{Extent, Picture, Piece, PlaneMark, Waits};
use crate::args::show_size;

/// The longer side of the drawn plane, in pixels.
const SIDE: f64 = 960.0;
/// A plane thinner than this is widened, so that a vector can be seen.
const THINNEST: f64 = 48.0;
/// The most blocks of one chunk with steps that are drawn one by one.
const BLOCKS: u64 = 4096;
/// Fill colours for servers, used cyclically: light enough for black text.
const COLOURS: [&str; 10] = [
    "#a6cee3", "#fdbf6f", "#b2df8a", "#cab2d6", "#fb9a99", "#ffff99", "#8dd3c7", "#fccde5",
    "#d9d9d9", "#80b1d3",
];
/// Height of a line of the legend.
const LINE: f64 = 18.0;

/// The picture as an SVG document.
pub(crate) fn draw(picture: &Picture, title: &str) -> String {
    let longest = picture.rows.max(picture.columns).max(1) as f64;
    let side = |length: u64| (length as f64 / longest * SIDE).max(THINNEST);
    let (width, height) = (side(picture.columns), side(picture.rows));
    let scale = Scale {
        x: width / picture.columns.max(1) as f64,
        y: height / picture.rows.max(1) as f64,
    };
    let mut servers: Vec<Option<u32>> = picture.pieces.iter().map(|piece| piece.server).collect();
    servers.sort_unstable();
    servers.dedup();
    let waits = [Waits::Asked, Waits::Missing].map(|waits| {
        let marks = picture.marks.iter().filter(|mark| mark.waits == waits);
        (waits, marks.count())
    });
    let waits: Vec<_> = waits.iter().filter(|(_, boxes)| *boxes > 0).collect();
    let lines = servers.len() + waits.len();
    let (left, top) = (16.0, 44.0);
    let full_width = width.max(420.0) + 2.0 * left;
    let full_height = top + height + 14.0 + LINE * (lines as f64 + 1.0);
    let mut out = String::new();
    // Writing to a String cannot fail, here and below.
    let _ = write!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{full_width:.0}" height="{full_height:.0}" viewBox="0 0 {full_width:.0} {full_height:.0}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{left}" y="18" font-size="14" font-weight="bold">{}</text>
<text x="{left}" y="36" fill="#555">{}; {} chunks</text>
<g transform="translate({left} {top})">
<rect width="{width:.2}" height="{height:.2}" fill="#f7f7f7" stroke="#999"/>
"##,
        escape(title),
        escape(&picture.caption),
        picture.pieces.len(),
    );
    for piece in &picture.pieces {
        draw_piece(&mut out, piece, scale);
    }
    for mark in &picture.marks {
        draw_mark(&mut out, mark, scale);
    }
    out.push_str("</g>\n");
    for (line, server) in servers.iter().enumerate() {
        let y = top + height + 14.0 + LINE * line as f64;
        let (chunks, bytes) = picture
            .pieces
            .iter()
            .filter(|piece| piece.server == *server)
            .fold((0, 0_u64), |(n, sum), piece| {
                (n + 1, sum.saturating_add(piece.bytes))
            });
        let _ = writeln!(
            out,
            r##"<rect x="{left}" y="{y:.2}" width="12" height="12" fill="{}" stroke="#444"/><text x="{}" y="{:.2}">{}: {chunks} chunks, {}</text>"##,
            colour(*server),
            left + 20.0,
            y + 11.0,
            server.map_or_else(|| "punched".to_owned(), |server| format!("server {server}")),
            show_size(bytes),
        );
    }
    for (line, (waits, boxes)) in waits.iter().enumerate() {
        let y = top + height + 14.0 + LINE * (servers.len() + line) as f64;
        let name = match waits {
            Waits::Asked => "waiting reads",
            Waits::Missing => "not written",
        };
        let _ = writeln!(
            out,
            r##"<rect x="{left}" y="{y:.2}" width="12" height="12" {}/><text x="{}" y="{:.2}">{name}: {boxes} boxes</text>"##,
            look(*waits),
            left + 20.0,
            y + 11.0,
        );
    }
    out.push_str("</svg>\n");
    out
}

/// The colours of a box of a waiting read.
fn look(waits: Waits) -> &'static str {
    match waits {
        Waits::Asked => r##"fill="none" stroke="#1f4fbf" stroke-width="2" stroke-dasharray="6 4""##,
        Waits::Missing => {
            r##"fill="#d62728" fill-opacity="0.35" stroke="#d62728" stroke-width="1""##
        }
    }
}

fn draw_mark(out: &mut String, mark: &PlaneMark, scale: Scale) {
    let name = match mark.waits {
        Waits::Asked => "read",
        Waits::Missing => "missing",
    };
    let _ = write!(
        out,
        "<g {}><title>{name} {}</title>",
        look(mark.waits),
        escape(&mark.text)
    );
    let (down, across) = (&mark.down.span, &mark.across.span);
    let bounds = [
        across.start,
        down.start,
        across.end - across.start,
        down.end - down.start,
    ];
    rect(out, bounds, scale, "");
    out.push_str("</g>\n");
}

/// Pixels an element.
#[derive(Clone, Copy)]
struct Scale {
    x: f64,
    y: f64,
}

fn draw_piece(out: &mut String, piece: &Piece, scale: Scale) {
    let _ = write!(
        out,
        "<g fill=\"{}\" stroke=\"#444\" stroke-width=\"1\"><title>{} · {} · {} · {}</title>",
        colour(piece.server),
        piece.selection(),
        piece.shape(),
        piece.place(),
        show_size(piece.bytes),
    );
    let (down, across) = (blocks(&piece.down), blocks(&piece.across));
    match (down, across) {
        (Some(down), Some(across)) if (down.len() * across.len()) as u64 <= BLOCKS => {
            for &(row, high) in &down {
                for &(column, wide) in &across {
                    rect(out, [column, row, wide, high], scale, "");
                }
            }
        }
        _ => {
            let (d, a) = (&piece.down.span, &piece.across.span);
            let bounds = [a.start, d.start, a.end - a.start, d.end - d.start];
            rect(
                out,
                bounds,
                scale,
                " fill-opacity=\"0.5\" stroke-dasharray=\"4 3\"",
            );
        }
    }
    label(out, piece, scale);
    out.push_str("</g>\n");
}

/// Starts and lengths of the blocks on one axis; `None` when there are too many to draw.
fn blocks(extent: &Extent) -> Option<Vec<(u64, u64)>> {
    let span = &extent.span;
    match extent.step {
        None => Some(vec![(span.start, span.end - span.start)]),
        Some(step) => {
            let count = (span.end - span.start).div_ceil(step);
            (count <= BLOCKS).then(|| (0..count).map(|i| (span.start + i * step, 1)).collect())
        }
    }
}

fn rect(out: &mut String, [x, y, wide, high]: [u64; 4], scale: Scale, more: &str) {
    let _ = write!(
        out,
        "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\"{more}/>",
        x as f64 * scale.x,
        y as f64 * scale.y,
        wide as f64 * scale.x,
        high as f64 * scale.y,
    );
}

/// The shape in the middle of the chunk, where there is room for it.
fn label(out: &mut String, piece: &Piece, scale: Scale) {
    let text = piece.shape();
    let (down, across) = (&piece.down.span, &piece.across.span);
    let width = (across.end - across.start) as f64 * scale.x;
    let height = (down.end - down.start) as f64 * scale.y;
    if width < text.len() as f64 * 7.0 + 4.0 || height < 16.0 {
        return;
    }
    let _ = write!(
        out,
        "<text x=\"{:.2}\" y=\"{:.2}\" text-anchor=\"middle\" fill=\"black\" stroke=\"none\">{text}</text>",
        across.start as f64 * scale.x + width / 2.0,
        down.start as f64 * scale.y + height / 2.0 + 4.0,
    );
}

fn colour(server: Option<u32>) -> &'static str {
    server.map_or("white", |server| COLOURS[server as usize % COLOURS.len()])
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::{Cut, Mark, picture, tests::table};
    use super::*;

    #[test]
    fn the_table_with_shapes_and_servers() {
        let picture = picture(
            &table(),
            &Cut {
                axes: (0, 1),
                at: vec![],
            },
            &[],
        )
        .expect("a picture");
        let svg = draw(&picture, "a<b>&c");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a&lt;b&gt;&amp;c"));
        for shape in ["10 x 9", "7 x 7", "6 x 9", "9 x 7"] {
            assert!(svg.contains(&format!(">{shape}</text>")), "{shape}");
        }
        assert!(svg.contains("server 1: 2 chunks, 576 B"));
        // Background, plane, four chunks and two lines of the legend.
        assert_eq!(svg.matches("<rect ").count(), 8);
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
    }

    #[test]
    fn waiting_reads_are_drawn_over_the_chunks() {
        let mark = |offset: [u64; 2], shape: [u64; 2], waits| Mark {
            offset: vec![offset[0], offset[1] * 4],
            shape: vec![shape[0], shape[1] * 4],
            waits,
            text: "session 3".to_owned(),
        };
        let marks = [
            mark([12, 0], [8, 16], Waits::Asked),
            mark([16, 0], [4, 16], Waits::Missing),
        ];
        let cut = Cut {
            axes: (0, 1),
            at: vec![],
        };
        let picture = picture(&table(), &cut, &marks).expect("a picture");
        assert_eq!((picture.rows, picture.columns), (20, 16), "rows to come");
        let svg = draw(&picture, "t");
        for part in [
            "<title>read [12:20,0:16] · session 3</title>",
            "<title>missing [16:20,0:16] · session 3</title>",
            "waiting reads: 1 boxes",
            "not written: 1 boxes",
        ] {
            assert!(svg.contains(part), "{part}\n{svg}");
        }
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
    }

    #[test]
    fn steps_are_drawn_block_by_block() {
        let mut view = table();
        view.chunks.truncate(1);
        view.chunks[0].step = Some(vec![2, 8]);
        view.chunks[0].shape = vec![5, 12];
        let picture = picture(
            &view,
            &Cut {
                axes: (0, 1),
                at: vec![],
            },
            &[],
        )
        .expect("a picture");
        assert_eq!(draw(&picture, "t").matches("<rect ").count(), 2 + 3 * 2 + 1);
    }
}
