//! A thread that reads ahead of the parser, so that decompressing has a processor of its own: a third more speed. Plain files are
//! read as fast without one.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// Bytes of a block.
const BLOCK_BYTES: usize = 256 << 10;
/// Blocks that are filled, full, or being emptied.
const BLOCKS: usize = 4;

/// The bytes of a reader, which a thread reads. An error comes where it occurred, behind the bytes before it.
pub(super) struct Ahead {
    full: Receiver<io::Result<Vec<u8>>>,
    empty: Sender<Vec<u8>>,
    block: Vec<u8>,
    from: usize,
}

impl Ahead {
    /// Begins to read.
    pub(super) fn new(reader: Box<dyn Read + Send>) -> io::Result<Self> {
        let (deliver, full) = sync_channel(BLOCKS);
        let (empty, blocks) = channel();
        for _ in 0..BLOCKS {
            // The receiver is in this function.
            let _ = empty.send(vec![0; BLOCK_BYTES]);
        }
        std::thread::Builder::new()
            .name("read ahead".to_owned())
            .spawn(move || fill(reader, &blocks, &deliver))?;
        Ok(Self { full, empty, block: Vec::new(), from: 0 })
    }
}

/// Reads until the end, an error, or the parser's end.
fn fill(
    mut reader: Box<dyn Read + Send>,
    blocks: &Receiver<Vec<u8>>,
    deliver: &SyncSender<io::Result<Vec<u8>>>,
) {
    while let Ok(mut block) = blocks.recv() {
        block.resize(BLOCK_BYTES, 0);
        let read = loop {
            match reader.read(&mut block) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let is_last = !matches!(read, Ok(1..));
        let delivered = deliver.send(read.map(|count| {
            block.truncate(count);
            block
        }));
        if is_last || delivered.is_err() {
            return;
        }
    }
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.from == self.block.len() {
            // Behind the last block, or an error, comes nothing.
            let Ok(next) = self.full.recv() else { return Ok(0) };
            let used = std::mem::replace(&mut self.block, next?);
            self.from = 0;
            if !used.is_empty() {
                // The thread may have read all.
                let _ = self.empty.send(used);
            }
        }
        let count = buffer.len().min(self.block.len() - self.from);
        buffer[..count].copy_from_slice(&self.block[self.from..self.from + count]);
        self.from += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader of counted bytes in pieces, which fails at their end.
    struct Failing {
        left: usize,
        next: u8,
    }

    impl Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.left == 0 {
                return Err(io::Error::other("a bad sector"));
            }
            let count = buffer.len().min(self.left).min(70_001);
            for byte in &mut buffer[..count] {
                *byte = self.next;
                self.next = self.next.wrapping_add(1);
            }
            self.left -= count;
            Ok(count)
        }
    }

    #[test]
    fn all_bytes_come_in_order_and_an_error_behind_them() {
        let bytes = 9 * BLOCK_BYTES + 17;
        let mut ahead = Ahead::new(Box::new(Failing { left: bytes, next: 0 })).unwrap();
        let mut all = Vec::new();
        let error = ahead.read_to_end(&mut all).unwrap_err();
        assert_eq!((all.len(), error.to_string()), (bytes, "a bad sector".to_owned()));
        assert!(all.iter().zip(0_usize..).all(|(&byte, at)| byte == at as u8));
        assert_eq!(ahead.read(&mut [0; 10]).unwrap(), 0);
    }

    #[test]
    fn a_reader_is_not_read_further_than_the_blocks() {
        struct Endless(std::sync::Arc<std::sync::atomic::AtomicUsize>);
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0.fetch_add(buffer.len(), std::sync::atomic::Ordering::SeqCst);
                Ok(buffer.len())
            }
        }
        let read = std::sync::Arc::default();
        let mut ahead = Ahead::new(Box::new(Endless(std::sync::Arc::clone(&read)))).unwrap();
        let mut taken = vec![0; 3 * BLOCK_BYTES];
        ahead.read_exact(&mut taken).unwrap();
        // It ends, although nobody reads all.
        drop(ahead);
        while std::sync::Arc::strong_count(&read) > 1 {
            std::thread::yield_now();
        }
        let read = read.load(std::sync::atomic::Ordering::SeqCst);
        assert!(read <= (3 + BLOCKS) * BLOCK_BYTES, "{read}");
    }
}
