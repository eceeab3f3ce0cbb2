//! A picture as shapes, for SVG and PNG: one rectangle per chunk, coloured by its server and labelled with its shape.
//!
//! Chunks with steps are drawn block by block up to a limit, beyond it as their bounding box, with a dashed frame.

use super::canvas::{Anchor, BLACK, CELL, Canvas, GREY, Look, Rect, Rgb, Shape, WHITE};
use super::{Extent, Picture, Piece, PlaneMark, Waits};
use crate::args::show_size;

/// The longer side of the drawn plane, in pixels.
const SIDE: f64 = 960.0;
/// A plane thinner than this is widened, so that a vector can be seen.
const THINNEST: f64 = 48.0;
/// The most blocks of one chunk with steps that are drawn one by one.
const BLOCKS: u64 = 4096;
/// Fill colours for servers, used cyclically: light enough for black text.
const COLOURS: [Rgb; 10] = [
    [0xa6, 0xce, 0xe3],
    [0xfd, 0xbf, 0x6f],
    [0xb2, 0xdf, 0x8a],
    [0xca, 0xb2, 0xd6],
    [0xfb, 0x9a, 0x99],
    [0xff, 0xff, 0x99],
    [0x8d, 0xd3, 0xc7],
    [0xfc, 0xcd, 0xe5],
    [0xd9, 0xd9, 0xd9],
    [0x80, 0xb1, 0xd3],
];
/// Of what waiting reads ask for, and what of it is missing.
const ASKED: Rgb = [0x1f, 0x4f, 0xbf];
const MISSING: Rgb = [0xd6, 0x27, 0x28];
/// Frames of chunks, and of the plane.
const FRAME: Rgb = [0x44; 3];
const EDGE: Rgb = [0x99; 3];
const EMPTY: Rgb = [0xf7; 3];
/// Height of a line of the legend.
const LINE: f64 = 18.0;
/// Where the plane begins.
const LEFT: f64 = 16.0;
const TOP: f64 = 44.0;

/// The picture as a drawing.
pub(crate) fn draw(picture: &Picture, title: &str) -> Canvas {
    let longest = picture.rows.max(picture.columns).max(1) as f64;
    let side = |length: u64| (length as f64 / longest * SIDE).max(THINNEST);
    let (width, height) = (side(picture.columns), side(picture.rows));
    let scale = Scale {
        x: width / picture.columns.max(1) as f64,
        y: height / picture.rows.max(1) as f64,
    };
    let legend = legend(picture, TOP + height + 14.0);
    let caption = format!("{}; {} chunks", picture.caption, picture.pieces.len());
    let widest = title.chars().count().max(caption.chars().count()) as f64 * CELL.0;
    let mut shapes = vec![
        Shape::text(LEFT, 18.0, Anchor::Start, title).in_bold(),
        Shape::text(LEFT, 36.0, Anchor::Start, caption).in_colour(GREY),
        Shape::Rect(
            Rect {
                x: LEFT,
                y: TOP,
                width,
                height,
            },
            Look {
                fill: Some((EMPTY, 1.0)),
                stroke: Some((EDGE, 1.0)),
                dashed: false,
            },
        ),
    ];
    shapes.extend(picture.pieces.iter().map(|piece| of_piece(piece, scale)));
    shapes.extend(picture.marks.iter().map(|mark| of_mark(mark, scale)));
    let lines = legend.len() as f64 / 2.0;
    shapes.extend(legend);
    Canvas {
        width: (width.max(420.0).max(widest) + 2.0 * LEFT).round() as u32,
        height: (TOP + height + 14.0 + LINE * (lines + 1.0)).round() as u32,
        shapes,
    }
}

/// Two shapes for each server and each kind of box.
fn legend(picture: &Picture, top: f64) -> Vec<Shape> {
    let mut lines = Vec::new();
    let mut servers: Vec<Option<u32>> = picture.pieces.iter().map(|piece| piece.server).collect();
    servers.sort_unstable();
    servers.dedup();
    for server in servers {
        let own = picture.pieces.iter().filter(|piece| piece.server == server);
        let (chunks, bytes) = own.fold((0, 0_u64), |(n, sum), piece| {
            (n + 1, sum.saturating_add(piece.bytes))
        });
        let name = server.map_or_else(|| "punched".to_owned(), |server| format!("server {server}"));
        let look = Look {
            fill: Some((colour(server), 1.0)),
            stroke: Some((FRAME, 1.0)),
            dashed: false,
        };
        lines.push((
            look,
            format!("{name}: {chunks} chunks, {}", show_size(bytes)),
        ));
    }
    for waits in [Waits::Asked, Waits::Missing] {
        let boxes = picture.marks.iter().filter(|mark| mark.waits == waits);
        let boxes = boxes.count();
        let name = match waits {
            Waits::Asked => "waiting reads",
            Waits::Missing => "not written",
        };
        if boxes > 0 {
            lines.push((look(waits), format!("{name}: {boxes} boxes")));
        }
    }
    let shapes = lines
        .into_iter()
        .enumerate()
        .flat_map(|(line, (look, text))| {
            let y = top + LINE * line as f64;
            let sample = Rect {
                x: LEFT,
                y,
                width: 12.0,
                height: 12.0,
            };
            let text = Shape::text(LEFT + 20.0, y + 11.0, Anchor::Start, text);
            [Shape::Rect(sample, look), text]
        });
    shapes.collect()
}

/// How a box of a waiting read is drawn.
fn look(waits: Waits) -> Look {
    match waits {
        Waits::Asked => Look {
            fill: None,
            stroke: Some((ASKED, 2.0)),
            dashed: true,
        },
        Waits::Missing => Look {
            fill: Some((MISSING, 0.35)),
            stroke: Some((MISSING, 1.0)),
            dashed: false,
        },
    }
}

fn of_mark(mark: &PlaneMark, scale: Scale) -> Shape {
    let name = match mark.waits {
        Waits::Asked => "read",
        Waits::Missing => "missing",
    };
    let shape = Shape::Rect(scale.bounds(&mark.down, &mark.across), look(mark.waits));
    Shape::Group(format!("{name} {}", mark.text), vec![shape])
}

/// Pixels an element.
#[derive(Clone, Copy)]
struct Scale {
    x: f64,
    y: f64,
}

impl Scale {
    fn rect(self, [x, y, width, height]: [u64; 4]) -> Rect {
        Rect {
            x: LEFT + x as f64 * self.x,
            y: TOP + y as f64 * self.y,
            width: width as f64 * self.x,
            height: height as f64 * self.y,
        }
    }

    fn bounds(self, down: &Extent, across: &Extent) -> Rect {
        let (down, across) = (&down.span, &across.span);
        self.rect([
            across.start,
            down.start,
            across.end - across.start,
            down.end - down.start,
        ])
    }
}

fn of_piece(piece: &Piece, scale: Scale) -> Shape {
    let look = Look {
        fill: Some((colour(piece.server), 1.0)),
        stroke: Some((FRAME, 1.0)),
        dashed: false,
    };
    let (down, across) = (blocks(&piece.down), blocks(&piece.across));
    let mut shapes = Vec::new();
    match (down, across) {
        (Some(down), Some(across)) if (down.len() * across.len()) as u64 <= BLOCKS => {
            for &(row, high) in &down {
                for &(column, wide) in &across {
                    shapes.push(Shape::Rect(scale.rect([column, row, wide, high]), look));
                }
            }
        }
        _ => {
            let look = Look {
                fill: Some((colour(piece.server), 0.5)),
                dashed: true,
                ..look
            };
            shapes.push(Shape::Rect(scale.bounds(&piece.down, &piece.across), look));
        }
    }
    shapes.extend(label(piece, scale));
    let title = [
        piece.selection(),
        piece.shape(),
        piece.place(),
        show_size(piece.bytes),
    ];
    Shape::Group(title.join(" \u{b7} "), shapes)
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

/// The shape in the middle of the chunk, where there is room for it.
fn label(piece: &Piece, scale: Scale) -> Option<Shape> {
    let text = piece.shape();
    let at = scale.bounds(&piece.down, &piece.across);
    if at.width < text.len() as f64 * CELL.0 + 4.0 || at.height < CELL.1 + 3.0 {
        return None;
    }
    let middle = (at.x + at.width / 2.0, at.y + at.height / 2.0 + 4.0);
    let text = Shape::text(middle.0, middle.1, Anchor::Middle, text);
    Some(text.in_colour(BLACK))
}

fn colour(server: Option<u32>) -> Rgb {
    server.map_or(WHITE, |server| COLOURS[server as usize % COLOURS.len()])
}

#[cfg(test)]
mod tests {
    use super::super::raster::{self, Pixels};
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
        let svg = draw(&picture, "a<b>&c").svg().expect("text");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a&lt;b&gt;&amp;c"));
        for shape in ["10 x 9", "7 x 7", "6 x 9", "9 x 7"] {
            assert!(svg.contains(&format!(">{shape}</text>")), "{shape}");
        }
        assert!(svg.contains("server 1: 2 chunks, 576 B"));
        // Background, plane, four chunks and two lines of the legend.
        assert_eq!(svg.matches("<rect ").count(), 8);
        assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());
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
        let svg = draw(&picture, "t").svg().expect("text");
        for part in [
            "<title>read [12:20,0:16] · session 3</title>",
            "<title>missing [16:20,0:16] · session 3</title>",
            "waiting reads: 1 boxes",
            "not written: 1 boxes",
        ] {
            assert!(svg.contains(part), "{part}\n{svg}");
        }
        assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());
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
        let drawn = draw(&picture, "t");
        let svg = drawn.svg().expect("text");
        assert_eq!(svg.matches("<rect ").count(), 2 + 3 * 2 + 1);
        // The same shapes as pixels: the first block, and the gap behind it.
        let pixels = Pixels::of(&drawn);
        let at = |x: f64, y: f64| pixels.data[y as usize * pixels.width as usize + x as usize];
        let row = SIDE / 16.0;
        assert_eq!(at(LEFT + 20.0, TOP + row / 4.0), COLOURS[1]);
        assert_eq!(at(LEFT + 20.0, TOP + row * 1.5), EMPTY);
        let png = raster::png(&drawn).expect("a file");
        assert!(png.starts_with(b"\x89PNG"));
    }
}
