//! A drawing as PNG.

use embedded_graphics::geometry::{OriginDimensions, Size as Extent};
use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::iso_8859_1::{FONT_8X13, FONT_9X15, FONT_9X15_BOLD, FONT_10X20};
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::*;
use embedded_graphics::primitives::{Circle, PrimitiveStyle, Triangle};
use embedded_graphics::text::{Alignment, Baseline, Text, TextStyleBuilder};
use thiserror::Error;

use super::{Anchor, Area, CellRun, Colour, Place, Scene, Shape, Size, TIP};

/// Pixels of the picture for one of the drawing.
const SCALE: f64 = 1.5;
/// Widest and highest picture, pixels.
const SIDE_MAX: u32 = 16_384;

/// Why there is no picture.
#[derive(Debug, Error)]
pub enum PngError {
    /// The drawing is larger than a picture may be.
    #[error("the drawing is {width} x {height}, more than {SIDE_MAX} pixels")]
    TooLarge {
        /// Pixels.
        width: u32,
        /// Pixels.
        height: u32,
    },
    /// The encoder's reason.
    #[error(transparent)]
    Encoding(#[from] png::EncodingError),
}

/// Paints a drawing and encodes it as PNG.
///
/// # Errors
/// When the drawing is too large.
pub fn png(scene: &Scene) -> Result<Vec<u8>, PngError> {
    let (width, height) = ((scene.width * SCALE).ceil() as u32, (scene.height * SCALE).ceil() as u32);
    if width > SIDE_MAX || height > SIDE_MAX {
        return Err(PngError::TooLarge { width, height });
    }
    let mut canvas = Canvas { width, height, bytes: vec![255; width as usize * height as usize * 3] };
    for shape in scene.groups.iter().flat_map(|group| &group.shapes) {
        paint(shape, &mut canvas);
    }
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&canvas.bytes)?;
    writer.finish()?;
    Ok(out)
}

/// The pixels: three bytes each, rows from the top.
struct Canvas {
    width: u32,
    height: u32,
    bytes: Vec<u8>,
}

impl Canvas {
    fn mix(&mut self, x: u32, y: u32, colour: Colour, opacity: f64) {
        let Colour(red, green, blue) = colour;
        let at = (y as usize * self.width as usize + x as usize) * 3;
        if let Some(pixel) = self.bytes.get_mut(at..at + 3).filter(|_| x < self.width) {
            for (own, new) in pixel.iter_mut().zip([red, green, blue]) {
                *own = (f64::from(*own) * (1.0 - opacity) + f64::from(new) * opacity).round() as u8;
            }
        }
    }

    /// Fills a rectangle of the drawing; at least one pixel in each direction.
    fn fill(&mut self, area: Area, colour: Colour, opacity: f64) {
        let pixel = |at: f64, max: u32| ((at * SCALE).round().max(0.0) as u32).min(max);
        let (left, top) = (pixel(area.x, self.width), pixel(area.y, self.height));
        let right = pixel(area.x + area.width, self.width).max(left + 1);
        let bottom = pixel(area.y + area.height, self.height).max(top + 1);
        for y in top..bottom {
            for x in left..right {
                self.mix(x, y, colour, opacity);
            }
        }
    }
}

impl OriginDimensions for Canvas {
    fn size(&self) -> Extent {
        Extent::new(self.width, self.height)
    }
}

impl DrawTarget for Canvas {
    type Color = Rgb888;
    type Error = std::convert::Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Self::Error> {
        for Pixel(Point { x, y }, colour) in pixels {
            if let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) {
                self.mix(x, y, Colour(colour.r(), colour.g(), colour.b()), 1.0);
            }
        }
        Ok(())
    }
}

fn rgb(Colour(red, green, blue): Colour) -> Rgb888 {
    Rgb888::new(red, green, blue)
}

fn point(place: Place) -> Point {
    Point::new((place.x * SCALE).round() as i32, (place.y * SCALE).round() as i32)
}

fn paint(shape: &Shape, canvas: &mut Canvas) {
    let Ok(()) = match shape {
        Shape::Fill { area, colour } => {
            canvas.fill(*area, *colour, 1.0);
            Ok(())
        }
        Shape::Text { at, words, size, anchor, colour } => {
            let font = match size {
                Size::Small => &FONT_8X13,
                Size::Normal => &FONT_9X15,
                Size::Bold => &FONT_9X15_BOLD,
                Size::Title => &FONT_10X20,
            };
            let alignment = match anchor {
                Anchor::Start => Alignment::Left,
                Anchor::Middle => Alignment::Center,
                Anchor::End => Alignment::Right,
            };
            let style = TextStyleBuilder::new().alignment(alignment).baseline(Baseline::Alphabetic).build();
            let words = output::text::line(words).to_string();
            let character = MonoTextStyle::new(font, rgb(*colour));
            Text::with_text_style(&words, point(*at), character, style).draw(canvas).map(|_| ())
        }
        Shape::Cells { at, cell, runs, colour, opacity } => {
            for CellRun { column, row, rows } in runs {
                let (x, y) = (at.x + f64::from(*column) * cell, at.y + f64::from(*row) * cell);
                let area = Area { x, y, width: *cell, height: f64::from(*rows) * cell };
                canvas.fill(area, *colour, *opacity);
            }
            Ok(())
        }
        Shape::Dots { places, width, colour } => {
            let diameter = (width * SCALE).round() as u32;
            let style = PrimitiveStyle::with_fill(rgb(*colour));
            places.iter().try_for_each(|place| {
                Circle::with_center(point(*place), diameter).into_styled(style).draw(canvas)
            })
        }
        Shape::Tip { at, points_up, colour, .. } => {
            let (half, height) = (TIP.0 / 2.0, if *points_up { TIP.1 } else { -TIP.1 });
            let corner = |x: f64, y: f64| point(Place { x: at.x + x, y: at.y + y });
            Triangle::new(corner(0.0, 0.0), corner(-half, height), corner(half, height))
                .into_styled(PrimitiveStyle::with_fill(rgb(*colour)))
                .draw(canvas)
        }
    };
}
