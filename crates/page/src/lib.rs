//! Pages of results.
//!
//! A [`Page`] says what is to be shown: answers, rings, charts, tables. [`Page::html`] makes one self-contained file of it, which works
//! offline: the style, the script and the chart library (uPlot) are in the page. No I/O, no clock.

#![forbid(unsafe_code)]

mod bars;
mod chart;
mod document;
mod html;
mod ring;
mod table;
mod unit;

pub use bars::{Bar, Bars};
pub use chart::{Axis, Cell as HeatCell, Chart, Heat, Line, Look};
pub use document::{Page, Part, Report, Section};
pub use html::escape;
pub use ring::{Ring, Stage, Where};
pub use table::{Cell, Column, Mark, Row, Table};
pub use unit::Unit;
