//! A drawing as a list of shapes, and its form as SVG. `raster` makes pixels of the same shapes.
//!
//! Coordinates are pixels from the upper left corner. Text is of one width a character ([`CELL`]), so that both forms
//! have the same layout.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::png;

/// Width and height of a character, in pixels.
pub(crate) const CELL: (f64, f64) = (8.0, 13.0);

/// Red, green and blue.
pub(crate) type Rgb = [u8; 3];

pub(crate) const BLACK: Rgb = [0; 3];
pub(crate) const WHITE: Rgb = [255; 3];
/// Of frames and captions.
pub(crate) const GREY: Rgb = [0x55; 3];

/// Where a text is from its position, which is on its base line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
    /// Its middle, and it runs upwards.
    Up,
}

/// A rectangle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rect {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// How a rectangle is filled and framed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Look {
    /// Colour, and opacity from 0 to 1.
    pub(crate) fill: Option<(Rgb, f64)>,
    /// Colour and width.
    pub(crate) stroke: Option<(Rgb, f64)>,
    /// The frame is a dashed line.
    pub(crate) dashed: bool,
}

/// One shape.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    Rect(Rect, Look),
    /// A line through points.
    Line(Vec<(f64, f64)>, Rgb),
    Text {
        x: f64,
        y: f64,
        text: String,
        anchor: Anchor,
        bold: bool,
        colour: Rgb,
    },
    /// Pixels, row by row from the top, each drawn as a rectangle of the same size.
    Image {
        at: Rect,
        columns: usize,
        pixels: Vec<Rgb>,
    },
    /// Shapes that an SVG viewer explains with a text.
    Group(String, Vec<Shape>),
}

impl Shape {
    pub(crate) fn text(x: f64, y: f64, anchor: Anchor, text: impl Into<String>) -> Shape {
        Shape::Text {
            x,
            y,
            text: text.into(),
            anchor,
            bold: false,
            colour: BLACK,
        }
    }

    /// The same in another colour.
    pub(crate) fn in_colour(mut self, new: Rgb) -> Shape {
        if let Shape::Text { colour, .. } = &mut self {
            *colour = new;
        }
        self
    }

    /// The same in bold letters.
    pub(crate) fn in_bold(mut self) -> Shape {
        if let Shape::Text { bold, .. } = &mut self {
            *bold = true;
        }
        self
    }
}

/// A drawing.
#[derive(Debug, Clone)]
pub(crate) struct Canvas {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) shapes: Vec<Shape>,
}

impl Canvas {
    /// The drawing as an SVG document.
    pub(crate) fn svg(&self) -> anyhow::Result<String> {
        let (width, height) = (self.width, self.height);
        let mut out = String::new();
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="monospace" font-size="{}">
<rect width="100%" height="100%" fill="white"/>
"#,
            CELL.1
        );
        for shape in &self.shapes {
            write_shape(&mut out, shape)?;
        }
        out.push_str("</svg>\n");
        Ok(out)
    }
}

fn write_shape(out: &mut String, shape: &Shape) -> anyhow::Result<()> {
    match shape {
        Shape::Rect(at, look) => {
            write_rect(out, at);
            write_look(out, look);
            out.push_str("/>\n");
        }
        Shape::Line(points, colour) => {
            let points: Vec<String> = points
                .iter()
                .map(|(x, y)| format!("{x:.1},{y:.1}"))
                .collect();
            let _ = writeln!(
                out,
                r#"<polyline points="{}" fill="none" stroke="{}"/>"#,
                points.join(" "),
                hex(*colour)
            );
        }
        Shape::Text {
            x,
            y,
            text,
            anchor,
            bold,
            colour,
        } => {
            let (anchor, turned) = match anchor {
                Anchor::Start => ("start", false),
                Anchor::Middle => ("middle", false),
                Anchor::End => ("end", false),
                Anchor::Up => ("middle", true),
            };
            let _ = write!(out, r#"<text x="{x:.1}" y="{y:.1}""#);
            if anchor != "start" {
                let _ = write!(out, r#" text-anchor="{anchor}""#);
            }
            if *bold {
                out.push_str(r#" font-weight="bold""#);
            }
            if *colour != BLACK {
                let _ = write!(out, r#" fill="{}""#, hex(*colour));
            }
            if turned {
                let _ = write!(out, r#" transform="rotate(-90 {x:.1} {y:.1})""#);
            }
            let _ = writeln!(out, ">{}</text>", escape(text));
        }
        Shape::Image {
            at,
            columns,
            pixels,
        } => {
            let rows = pixels.len() / (*columns).max(1);
            let file = png::encode(*columns as u32, rows as u32, pixels.as_flattened())?;
            let _ = writeln!(
                out,
                r#"<image x="{:.2}" y="{:.2}" width="{:.2}" height="{:.2}" preserveAspectRatio="none" style="image-rendering:pixelated" href="data:image/png;base64,{}"/>"#,
                at.x,
                at.y,
                at.width,
                at.height,
                STANDARD.encode(file)
            );
        }
        Shape::Group(title, shapes) => {
            let _ = writeln!(out, "<g><title>{}</title>", escape(title));
            for shape in shapes {
                write_shape(out, shape)?;
            }
            out.push_str("</g>\n");
        }
    }
    Ok(())
}

fn write_rect(out: &mut String, at: &Rect) {
    let _ = write!(
        out,
        r#"<rect x="{:.2}" y="{:.2}" width="{:.2}" height="{:.2}""#,
        at.x, at.y, at.width, at.height
    );
}

fn write_look(out: &mut String, look: &Look) {
    match look.fill {
        None => out.push_str(r#" fill="none""#),
        Some((colour, opacity)) => {
            let _ = write!(out, r#" fill="{}""#, hex(colour));
            if opacity < 1.0 {
                let _ = write!(out, r#" fill-opacity="{opacity}""#);
            }
        }
    }
    if let Some((colour, width)) = look.stroke {
        let _ = write!(out, r#" stroke="{}" stroke-width="{width}""#, hex(colour));
        if look.dashed {
            out.push_str(r#" stroke-dasharray="5 4""#);
        }
    }
}

fn hex([red, green, blue]: Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        // XML has no other control characters.
        .replace(|one: char| one.is_control(), "\u{fffd}")
}
