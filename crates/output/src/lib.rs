//! Output of the program: files that follow no symbolic links, and text without control characters.

#![forbid(unsafe_code)]

mod draft;
pub mod file;
mod partial;
pub mod text;

pub use draft::Draft;
pub use partial::Partial;
