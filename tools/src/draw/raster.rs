//! A drawing as pixels, and as a PNG file.
//!
//! Rectangles and images cover all pixels whose middle is inside; lines are one pixel wide. Nothing is smoothed, so the
//! colours in the file are those of the shapes.

use std::convert::Infallible;

use embedded_graphics::Pixel;
use embedded_graphics::draw_target::DrawTarget;
use embedded_graphics::geometry::{OriginDimensions, Point, Size};
use embedded_graphics::mono_font::iso_8859_1::{FONT_8X13, FONT_8X13_BOLD};
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle};
use embedded_graphics::pixelcolor::{Rgb888, RgbColor};
use embedded_graphics::primitives::{Line, Primitive, PrimitiveStyle};
use embedded_graphics::text::Text;
use embedded_graphics::{Drawable, pixelcolor};

use super::canvas::{Anchor, CELL, Canvas, Look, Rect, Rgb, Shape, WHITE};

/// The drawing as a PNG file.
pub(crate) fn png(canvas: &Canvas) -> anyhow::Result<Vec<u8>> {
    let pixels = Pixels::of(canvas);
    super::png::encode(pixels.width, pixels.height, pixels.data.as_flattened())
}

/// The pixels of a drawing.
pub(crate) struct Pixels {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Row by row, from the top.
    pub(crate) data: Vec<Rgb>,
}

impl Pixels {
    pub(crate) fn of(canvas: &Canvas) -> Pixels {
        let mut pixels = Pixels {
            width: canvas.width,
            height: canvas.height,
            data: vec![WHITE; canvas.width as usize * canvas.height as usize],
        };
        for shape in &canvas.shapes {
            pixels.draw(shape);
        }
        pixels
    }

    fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Rect(at, look) => self.rect(at, look),
            Shape::Line(points, colour) => {
                for pair in points.windows(2) {
                    self.line(pair[0], pair[1], *colour);
                }
            }
            Shape::Text {
                x,
                y,
                text,
                anchor,
                bold,
                colour,
            } => self.text((*x, *y), text, *anchor, *bold, *colour),
            Shape::Image {
                at,
                columns,
                pixels,
            } => self.image(at, *columns, pixels),
            Shape::Group(_, shapes) => shapes.iter().for_each(|shape| self.draw(shape)),
        }
    }

    /// Mixes a colour into a pixel.
    fn set(&mut self, x: i64, y: i64, colour: Rgb, opacity: f64) {
        let (width, height) = (i64::from(self.width), i64::from(self.height));
        if !(0..width).contains(&x) || !(0..height).contains(&y) {
            return;
        }
        let pixel = &mut self.data[(y * width + x) as usize];
        for (old, new) in pixel.iter_mut().zip(colour) {
            let mixed = f64::from(*old) * (1.0 - opacity) + f64::from(new) * opacity;
            *old = mixed.round() as u8;
        }
    }

    fn rect(&mut self, at: &Rect, look: &Look) {
        let (columns, rows) = (
            inside(at.x, at.width, self.width),
            inside(at.y, at.height, self.height),
        );
        if let Some((colour, opacity)) = look.fill {
            for y in rows.clone() {
                for x in columns.clone() {
                    self.set(x, y, colour, opacity);
                }
            }
        }
        let Some((colour, width)) = look.stroke else {
            return;
        };
        let (right, bottom) = (at.x + at.width, at.y + at.height);
        let corners = [(at.x, at.y), (right, at.y), (right, bottom), (at.x, bottom)];
        for thick in 0..(width.round() as i32).max(1) {
            let grown = f64::from(thick);
            for side in 0..4 {
                let ends = [corners[side], corners[(side + 1) % 4]].map(|(x, y)| {
                    let out = |at: f64, first: f64| if at == first { -grown } else { grown };
                    (x + out(x, at.x), y + out(y, at.y))
                });
                match look.dashed {
                    false => self.line(ends[0], ends[1], colour),
                    true => self.dashes(ends[0], ends[1], colour),
                }
            }
        }
    }

    fn dashes(&mut self, from: (f64, f64), to: (f64, f64), colour: Rgb) {
        let length = (to.0 - from.0).hypot(to.1 - from.1);
        let at = |distance: f64| {
            let part = distance.min(length) / length.max(1.0);
            (
                from.0 + (to.0 - from.0) * part,
                from.1 + (to.1 - from.1) * part,
            )
        };
        let mut start = 0.0;
        while start < length {
            self.line(at(start), at(start + 5.0), colour);
            start += 9.0;
        }
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: Rgb) {
        let point = |(x, y): (f64, f64)| Point::new(x.floor() as i32, y.floor() as i32);
        let style = PrimitiveStyle::with_stroke(of_rgb(colour), 1);
        let Ok(()) = Line::new(point(from), point(to))
            .into_styled(style)
            .draw(self);
    }

    fn text(&mut self, (x, y): (f64, f64), text: &str, anchor: Anchor, bold: bool, colour: Rgb) {
        let font: &MonoFont<'_> = if bold { &FONT_8X13_BOLD } else { &FONT_8X13 };
        let style = MonoTextStyle::new(font, of_rgb(colour));
        let length = text.chars().count() as f64 * CELL.0;
        let before = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle | Anchor::Up => length / 2.0,
            Anchor::End => length,
        };
        let (x, y) = (x.round() as i32, y.round() as i32);
        let before = before.round() as i32;
        let Ok(_) = match anchor {
            Anchor::Up => {
                Text::new(text, Point::new(-before, 0), style).draw(&mut Upwards { on: self, x, y })
            }
            _ => Text::new(text, Point::new(x - before, y), style).draw(self),
        };
    }

    fn image(&mut self, at: &Rect, columns: usize, pixels: &[Rgb]) {
        let rows = pixels.len() / columns.max(1);
        for y in inside(at.y, at.height, self.height) {
            let row = ((y as f64 + 0.5 - at.y) / at.height * rows as f64) as usize;
            for x in inside(at.x, at.width, self.width) {
                let column = ((x as f64 + 0.5 - at.x) / at.width * columns as f64) as usize;
                let pixel = pixels[row.min(rows - 1) * columns + column.min(columns - 1)];
                self.set(x, y, pixel, 1.0);
            }
        }
    }
}

/// The pixels of a row or column whose middle is in a span.
fn inside(start: f64, length: f64, all: u32) -> std::ops::Range<i64> {
    let first = (start - 0.5).ceil().max(0.0) as i64;
    let end = (start + length - 0.5).ceil().min(f64::from(all)) as i64;
    first..end.max(first)
}

fn of_rgb([red, green, blue]: Rgb) -> Rgb888 {
    pixelcolor::Rgb888::new(red, green, blue)
}

impl OriginDimensions for Pixels {
    fn size(&self) -> Size {
        Size::new(self.width, self.height)
    }
}

impl DrawTarget for Pixels {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(
        &mut self,
        pixels: I,
    ) -> Result<(), Infallible> {
        for Pixel(at, colour) in pixels {
            let colour = [colour.r(), colour.g(), colour.b()];
            self.set(i64::from(at.x), i64::from(at.y), colour, 1.0);
        }
        Ok(())
    }
}

/// Pixels where what is to the right goes upwards from a point.
struct Upwards<'a> {
    on: &'a mut Pixels,
    x: i32,
    y: i32,
}

impl OriginDimensions for Upwards<'_> {
    fn size(&self) -> Size {
        self.on.size()
    }
}

impl DrawTarget for Upwards<'_> {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(
        &mut self,
        pixels: I,
    ) -> Result<(), Infallible> {
        let (x, y) = (self.x, self.y);
        let pixels = pixels.into_iter();
        self.on.draw_iter(
            pixels.map(|Pixel(at, colour)| Pixel(Point::new(x + at.y, y - at.x), colour)),
        )
    }
}
