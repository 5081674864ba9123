//! A drawing as shapes, written as SVG or painted as PNG.
//!
//! Both come from one description, so that they cannot differ. A picture needs no font, program or file of the machine.

mod png;
mod svg;

pub use self::png::{PngError, png};
pub use self::svg::svg;

/// A colour: red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(pub u8, pub u8, pub u8);

/// Text and axes.
pub(crate) const INK: Colour = Colour(28, 36, 48);
/// Less important text.
pub(crate) const FAINT: Colour = Colour(84, 96, 114);
/// Lines of a grid.
pub(crate) const GRID: Colour = Colour(222, 227, 234);
/// The background of what a closer view shows.
pub(crate) const BAND: Colour = Colour(237, 241, 247);

/// Where a text is relative to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// To the right of it.
    Start,
    /// Around it.
    Middle,
    /// To the left of it.
    End,
}

/// The size of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Labels.
    Small,
    /// Text.
    Normal,
    /// Text that stands out.
    Bold,
    /// A title.
    Title,
}

impl Size {
    /// Height, pixels.
    pub(crate) fn pixels(self) -> f64 {
        match self {
            Self::Small => 11.0,
            Self::Normal | Self::Bold => 12.5,
            Self::Title => 18.0,
        }
    }

    /// Width of a text, pixels, at most (roughly: fonts differ).
    pub(crate) fn width(self, text: &str) -> f64 {
        let each = match self {
            Self::Small => 6.0,
            Self::Normal => 6.7,
            Self::Bold => 7.2,
            Self::Title => 10.0,
        };
        each * text.chars().count() as f64
    }
}

/// A vertical run of cells of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CellRun {
    /// Its column, from the left.
    pub(crate) column: u16,
    /// Its uppermost row, from the top.
    pub(crate) row: u16,
    /// Its length, rows.
    pub(crate) rows: u16,
}

/// A place, pixels from the upper left corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// A rectangle, pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// A filled rectangle; also a line.
    Fill { area: Area, colour: Colour },
    /// Words on one line; `at` is the begin, middle or end of their baseline.
    Text { at: Place, words: String, size: Size, anchor: Anchor, colour: Colour },
    /// Cells of this size, pixels, in the area whose upper left corner is `at`.
    Cells { at: Place, cell: f64, runs: Vec<CellRun>, colour: Colour, opacity: f64 },
    /// Round dots.
    Dots { places: Vec<Place>, width: f64, colour: Colour },
    /// A triangle whose tip is at the place and points up or down; a viewer shows the words.
    Tip { at: Place, points_up: bool, colour: Colour, words: String },
}

/// Shapes that belong together, with what they mean.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    /// Names and values, for programs that read the picture: `data-NAME="VALUE"`.
    pub(crate) data: Vec<(&'static str, String)>,
    /// Drawn in this order.
    pub(crate) shapes: Vec<Shape>,
}

impl Group {
    pub(crate) fn fill(&mut self, area: Area, colour: Colour) {
        self.shapes.push(Shape::Fill { area, colour });
    }

    pub(crate) fn text(
        &mut self,
        at: Place,
        size: Size,
        anchor: Anchor,
        colour: Colour,
        words: impl Into<String>,
    ) {
        self.shapes.push(Shape::Text { at, words: words.into(), size, anchor, colour });
    }
}

/// A drawing.
#[derive(Clone, Debug)]
pub struct Scene {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) title: String,
    pub(crate) groups: Vec<Group>,
}

/// Width and height of a [`Shape::Tip`], pixels.
pub(crate) const TIP: (f64, f64) = (8.0, 6.0);
