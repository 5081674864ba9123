//! Writing pcapng: nanosecond stamps, directions, comments, drops.

use std::io::{self, Write};

/// The description of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceDescription {
    /// Its name: a capture point.
    pub name: String,
    /// A description.
    pub description: Option<String>,
    /// LINKTYPE number.
    pub link: u32,
    /// Bytes kept of each packet at most; 0: all.
    pub snap_bytes: u32,
    /// Bits per second.
    pub bits_per_second: Option<u64>,
}

/// Writes a capture file.
#[derive(Debug)]
pub struct PcapngWriter<W> {
    out: W,
    interfaces: u32,
    block: Vec<u8>,
    /// Bytes written.
    pub bytes: u64,
}

impl<W: Write> PcapngWriter<W> {
    /// Begins a file, with the name of the application.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(out: W, application: &str) -> io::Result<Self> {
        let mut writer = Self { out, interfaces: 0, block: Vec::with_capacity(2048), bytes: 0 };
        writer.begin(0x0a0d_0d0a);
        writer.word(0x1a2b_3c4d);
        // Version 1.0, and a section of unknown length.
        writer.block.extend_from_slice(&[1, 0, 0, 0]);
        writer.block.extend_from_slice(&u64::MAX.to_le_bytes());
        writer.option(4, application.as_bytes());
        writer.end()?;
        Ok(writer)
    }

    /// Adds an interface and returns its number.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn interface(&mut self, interface: &InterfaceDescription) -> io::Result<u32> {
        self.begin(1);
        self.word(interface.link & 0xffff);
        self.word(interface.snap_bytes);
        self.option(2, interface.name.as_bytes());
        if let Some(description) = &interface.description {
            self.option(3, description.as_bytes());
        }
        if let Some(rate) = interface.bits_per_second {
            self.option(8, &rate.to_le_bytes());
        }
        // Stamps in nanoseconds.
        self.option(9, &[9]);
        self.end()?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Adds a packet of `wire_bytes`, of which `data` was captured, with a comment that Wireshark shows.
    ///
    /// # Errors
    /// When it cannot be written.
    #[inline]
    pub fn frame(
        &mut self,
        interface: u32,
        time_ns: u64,
        outgoing: Option<bool>,
        data: &[u8],
        wire_bytes: u32,
        comment: Option<&str>,
    ) -> io::Result<()> {
        self.begin(6);
        self.word(interface);
        self.word((time_ns >> 32) as u32);
        self.word(time_ns as u32);
        self.word(data.len() as u32);
        self.word(wire_bytes);
        self.block.extend_from_slice(data);
        self.pad();
        if let Some(comment) = comment {
            self.option(1, comment.as_bytes());
        }
        if let Some(outgoing) = outgoing {
            let direction: u32 = if outgoing { 2 } else { 1 };
            self.option(2, &direction.to_le_bytes());
        }
        self.end()
    }

    /// Writes the counters of an interface: packets that passed its filter, and dropped packets.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn statistics(&mut self, interface: u32, time_ns: u64, received: u64, drops: u64) -> io::Result<()> {
        self.begin(5);
        self.word(interface);
        self.word((time_ns >> 32) as u32);
        self.word(time_ns as u32);
        self.option(4, &received.to_le_bytes());
        self.option(5, &drops.to_le_bytes());
        self.end()
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.word(kind);
        self.word(0);
    }

    #[inline]
    fn word(&mut self, word: u32) {
        self.block.extend_from_slice(&word.to_le_bytes());
    }

    fn pad(&mut self) {
        let padded = self.block.len().next_multiple_of(4);
        self.block.resize(padded, 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(0xffff)];
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.block.extend_from_slice(value);
        self.pad();
    }

    /// Fills in the length at both ends and writes the block. The end-of-options option may be omitted.
    fn end(&mut self) -> io::Result<()> {
        let length = self.block.len() as u32 + 4;
        self.block[4..8].copy_from_slice(&length.to_le_bytes());
        self.word(length);
        self.bytes += u64::from(length);
        self.out.write_all(&self.block)
    }
}
