//! Output of the program: files that follow no symbolic links, and text without control characters.

#![forbid(unsafe_code)]

pub mod file;
pub mod text;
