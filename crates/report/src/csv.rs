//! Operation records as comma-separated values.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use ring::{Lap, OpKind};

/// Records kept in memory per session before they are written.
pub const LAPS_PER_SESSION_MAX: usize = 4 << 20;

/// Writes the start and finish of every operation.
#[derive(Debug)]
pub struct LapWriter {
    out: BufWriter<File>,
}

impl LapWriter {
    /// Creates the file and its heading.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut out = BufWriter::new(output::file::create(path)?);
        writeln!(out, "block_size_bytes,queue_depth,connection,tag,kind,data_bytes,start_ns,finish_ns")?;
        Ok(Self { out })
    }

    /// Appends the operations of one run.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, block_size_bytes: u64, queue_depth: u32, laps: &[Lap]) -> io::Result<()> {
        for lap in laps {
            let kind = match lap.kind {
                OpKind::Read => "read",
                OpKind::Write => "write",
                OpKind::Other => "other",
            };
            let (start, finish) = (lap.start.ns().unwrap_or(0), lap.finish.ns().unwrap_or(0));
            let (connection, tag, bytes) = (lap.connection, lap.tag, lap.data_bytes);
            writeln!(
                self.out,
                "{block_size_bytes},{queue_depth},{connection},{tag},{kind},{bytes},{start},{finish}"
            )?;
        }
        Ok(())
    }

    /// Brings everything to the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}
