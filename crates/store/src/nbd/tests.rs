//! A server that breaks the protocol, ends, and comes back, by a script.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use ::nbd::Place;
use ::nbd::wire::REQUEST_BYTES;

use super::output::{Output, PART_BYTES, Part};
use super::*;
use crate::Buffer;

const SIZE: u64 = 1 << 20;
/// HAS_FLAGS, FLUSH, FUA, WRITE_ZEROES.
const ALL: u16 = 0b100_1101;

/// A request as the server hears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heard {
    flags: u16,
    code: u16,
    cookie: u64,
    offset: u64,
    length: u32,
}

/// A connection from the side of the server.
struct Peer(UnixStream);

impl Peer {
    fn option(&mut self) -> (u32, Vec<u8>) {
        let mut head = [0; 16];
        self.0.read_exact(&mut head).unwrap();
        let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let mut data = vec![0; number(12) as usize];
        self.0.read_exact(&mut data).unwrap();
        (number(8), data)
    }

    fn answer(&mut self, option: u32, kind: u32, data: &[u8]) {
        let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
        for number in [option, kind, data.len() as u32] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(data);
        self.0.write_all(&bytes).unwrap();
    }

    /// Negotiates an export.
    fn negotiate(&mut self, size: u64, flags: u16, structured: bool) {
        self.0.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
        self.0.read_exact(&mut [0; 4]).unwrap();
        loop {
            match self.option() {
                (7, _) => break,
                (10, _) => {
                    self.answer(10, 4, &[&[0, 0, 0, 1][..], b"base:allocation"].concat());
                    self.answer(10, 1, &[]);
                }
                (8, _) if structured => self.answer(8, 1, &[]),
                (option, _) => self.answer(option, 0x8000_0001, &[]),
            }
        }
        self.answer(7, 3, &[&[0, 0][..], &size.to_be_bytes(), &flags.to_be_bytes()].concat());
        self.answer(7, 1, &[]);
    }

    /// The next request, with its data; `None` at the end.
    fn hear(&mut self) -> Option<(Heard, Vec<u8>)> {
        let mut head = [0; REQUEST_BYTES];
        self.0.read_exact(&mut head).ok()?;
        let number = |range: std::ops::Range<usize>| {
            head[range].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
        };
        assert_eq!(number(0..4), 0x2560_9513);
        let heard = Heard {
            flags: number(4..6) as u16,
            code: number(6..8) as u16,
            cookie: number(8..16),
            offset: number(16..24),
            length: number(24..28) as u32,
        };
        let mut data = vec![0; if heard.code == 1 { heard.length as usize } else { 0 }];
        self.0.read_exact(&mut data).ok()?;
        (heard.code != 2).then_some((heard, data))
    }

    fn simple(&mut self, cookie: u64, error: u32, data: &[u8]) {
        let bytes =
            [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes(), data].concat();
        let _ = self.0.write_all(&bytes);
    }

    fn chunk(&mut self, is_last: bool, kind: u16, cookie: u64, data: &[u8]) {
        let mut bytes = 0x668e_33ef_u32.to_be_bytes().to_vec();
        bytes.extend_from_slice(&u16::from(is_last).to_be_bytes());
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&cookie.to_be_bytes());
        bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
        bytes.extend_from_slice(data);
        let _ = self.0.write_all(&bytes);
    }
}

/// A server on a socket of its own: `serve` handles each connection, by its number.
struct Script {
    folder: tempfile::TempDir,
    _thread: JoinHandle<()>,
}

impl Script {
    fn new(mut serve: impl FnMut(usize, Peer) + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let thread = std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                // A client that has gone ends its own connection alone.
                let serving = || serve(number, Peer(stream.unwrap()));
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(serving));
            }
        });
        Self { folder, _thread: thread }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    fn open(&self, how: NbdOptions) -> Result<NbdStore, StoreError> {
        let place = Place::Unix(self.socket());
        NbdStore::open(&Address { place, export: String::new(), tls: false, certificates: None }, how)
    }
}

fn held(milliseconds: u64) -> NbdOptions {
    NbdOptions { hold: Duration::from_millis(milliseconds), ..NbdOptions::default() }
}

#[test]
fn each_request_is_sent_as_the_server_takes_it() {
    let (tell, heard) = mpsc::channel();
    let run = |flags: u16| {
        let tell = tell.clone();
        Script::new(move |_, mut peer| {
            peer.negotiate(SIZE, flags, false);
            while let Some((request, data)) = peer.hear() {
                let answer = vec![7; if request.code == 0 { request.length as usize } else { 0 }];
                tell.send((request.flags, request.code, request.offset, request.length, data.len())).unwrap();
                peer.simple(request.cookie, 0, &answer);
            }
        })
    };
    let server = run(ALL);
    let store = server.open(held(1000)).unwrap();
    let mut buffer = [0; 512];
    store.read_at(1024, &mut buffer).unwrap();
    assert_eq!(buffer, [7; 512]);
    store.write_at(512, &[1; 1024]).unwrap();
    store.write_stable_at(0, &[1; 512]).unwrap();
    store.discard(4096, 4096).unwrap();
    store.zero(8192, 4096).unwrap();
    store.flush().unwrap();
    let expected = [
        (0, 0, 1024, 512, 0),
        (0, 1, 512, 1024, 1024),
        (1, 1, 0, 512, 512),
        (0, 6, 4096, 4096, 0),
        (2, 6, 8192, 4096, 0),
        (0, 3, 0, 0, 0),
    ];
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), expected);
    assert!(store.has_volatile_cache() && store.limits().granularity_bytes.is_some());
    assert_eq!(
        store.read_at(SIZE - 1, &mut buffer).unwrap_err(),
        StoreError::OutOfRange { offset: SIZE - 1, length: 512, size: SIZE }
    );
    // Without FUA a stable write is a write and a flush; without zeros they are written.
    let server = run(0b101);
    let store = server.open(held(1000)).unwrap();
    store.write_stable_at(0, &[1; 512]).unwrap();
    store.discard(0, 1024).unwrap();
    assert_eq!(store.limits().granularity_bytes, None);
    let expected = [(0, 1, 0, 512, 512), (0, 3, 0, 0, 0), (0, 1, 0, 1024, 1024)];
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), expected);
    // Without a cache nothing is flushed, and of a server that takes no writes none is asked.
    let server = run(0b11);
    let store = server.open(held(1000)).unwrap();
    store.flush().unwrap();
    assert_eq!(store.write_at(0, &[1; 512]), Err(StoreError::ReadOnly));
    assert_eq!(
        (heard.try_iter().count(), store.has_volatile_cache(), store.is_read_only()),
        (0, false, true)
    );
}

#[test]
fn structured_replies_come_in_any_order_and_in_parts() {
    let server = Script::new(|_, mut peer| {
        peer.negotiate(SIZE, ALL, true);
        let (first, _) = peer.hear().unwrap();
        let (second, _) = peer.hear().unwrap();
        let at = |heard: Heard, from: u64, bytes: &[u8]| {
            [&(heard.offset + from).to_be_bytes()[..], bytes].concat()
        };
        // Parts of both, the later half first.
        peer.chunk(false, 1, first.cookie, &at(first, 256, &[2; 256]));
        peer.chunk(false, 1, second.cookie, &at(second, 0, &[3; 100]));
        peer.chunk(false, 1, first.cookie, &at(first, 0, &[1; 256]));
        peer.chunk(true, 2, second.cookie, &at(second, 100, &412_u32.to_be_bytes()));
        peer.chunk(true, 0, first.cookie, &[]);
        let (status, _) = peer.hear().unwrap();
        assert_eq!((status.code, status.flags), (7, 8));
        let extent = [&[0, 0, 0, 1][..], &4096_u32.to_be_bytes(), &3_u32.to_be_bytes()].concat();
        peer.chunk(true, 5, status.cookie, &extent);
        let (failing, _) = peer.hear().unwrap();
        peer.chunk(true, 32_769, failing.cookie, &[&28_u32.to_be_bytes()[..], &[0, 4], b"full"].concat());
        let (failing, _) = peer.hear().unwrap();
        peer.chunk(
            true,
            32_770,
            failing.cookie,
            &[&5_u32.to_be_bytes()[..], &[0, 3], b"bad", &[0; 8]].concat(),
        );
        let _ = peer.hear();
    });
    let store = server.open(held(1000)).unwrap();
    let (tell, ends) = mpsc::channel();
    for offset in [0, 4096] {
        let tell = tell.clone();
        let request = Request::Read { offset, buffer: Buffer::new(512) };
        store.begin(request, Box::new(move |ended| tell.send((offset, ended)).unwrap()));
    }
    let mut ended: Vec<_> = ends.iter().take(2).collect();
    ended.sort_by_key(|(offset, _)| *offset);
    let data = |index: usize| ended[index].1.buffer.as_ref().unwrap().to_vec();
    assert_eq!(data(0), [[1; 256], [2; 256]].concat());
    assert_eq!(data(1), [&[3; 100][..], &[0; 412]].concat());
    assert_eq!(store.is_mapped(0), (false, 4096));
    assert!(matches!(store.write_at(0, &[0; 512]), Err(StoreError::NoSpace(_))));
    let error = store.write_at(0, &[0; 512]).unwrap_err().to_string();
    assert!(error.ends_with("the server answered: input/output error (bad)"), "{error}");
}

/// What a server must not say ends the connection, and after the time the request; nothing else.
#[test]
fn a_server_that_breaks_the_protocol_harms_nothing() {
    type Wrong = fn(&mut Peer, Heard);
    let structured: [(Wrong, bool); 13] = [
        // The same half twice; and parts without end.
        (
            |peer, heard| {
                let half = [&heard.offset.to_be_bytes()[..], &[0; 256]].concat();
                peer.chunk(false, 1, heard.cookie, &half);
                peer.chunk(true, 1, heard.cookie, &half);
            },
            true,
        ),
        (|peer, heard| (0..200).for_each(|_| peer.chunk(false, 0, heard.cookie, &[])), true),
        (|peer, heard| peer.simple(heard.cookie + 1, 0, &[0; 512]), false),
        (|peer, heard| peer.simple(heard.cookie | 1 << 40, 0, &[0; 512]), false),
        (|peer, _| peer.0.write_all(&[0; 64]).unwrap(), false),
        (|peer, heard| peer.chunk(true, 0, heard.cookie, &[]), false),
        // A simple reply to a read after structured ones were agreed.
        (|peer, heard| peer.simple(heard.cookie, 0, &[0; 512]), true),
        // Too few bytes, too many, and before the range.
        (
            |peer, heard| {
                peer.chunk(true, 1, heard.cookie, &[&heard.offset.to_be_bytes()[..], &[0; 511]].concat());
            },
            true,
        ),
        (
            |peer, heard| {
                peer.chunk(true, 1, heard.cookie, &[&heard.offset.to_be_bytes()[..], &[0; 513]].concat());
            },
            true,
        ),
        (
            |peer, heard| {
                peer.chunk(
                    true,
                    1,
                    heard.cookie,
                    &[&(heard.offset - 1).to_be_bytes()[..], &[0; 512]].concat(),
                );
            },
            true,
        ),
        (
            |peer, heard| {
                peer.chunk(true, 2, heard.cookie, &[&heard.offset.to_be_bytes()[..], &[0xff; 4]].concat());
            },
            true,
        ),
        // Without data, and what was not asked for.
        (|peer, heard| peer.chunk(true, 0, heard.cookie, &[]), true),
        (|peer, heard| peer.chunk(true, 5, heard.cookie, &[1; 12]), true),
    ];
    for (index, (wrong, is_structured)) in structured.into_iter().enumerate() {
        let server = Script::new(move |_, mut peer| {
            peer.negotiate(SIZE, ALL, is_structured);
            while let Some((heard, _)) = peer.hear() {
                wrong(&mut peer, heard);
            }
        });
        let store = server.open(held(150)).unwrap();
        let begun = Instant::now();
        let error = store.read_at(4096, &mut [0; 512]).unwrap_err();
        assert!(
            matches!(&error, StoreError::TimedOut { reason, .. } if reason.contains("protocol")),
            "{index}: {error}"
        );
        assert!(begun.elapsed() < Duration::from_secs(5), "{index}");
    }
}

/// The server ends in the middle of requests: each is carried out by the next connection.
#[test]
fn what_was_not_answered_is_sent_again() {
    let (tell, heard) = mpsc::channel();
    let server = Script::new(move |number, mut peer| {
        peer.negotiate(SIZE, ALL, false);
        let mut answered = 0;
        while let Some((request, data)) = peer.hear() {
            tell.send((number, request.offset, data.first().copied())).unwrap();
            // The first connection answers one of them and ends; the second is shutting down.
            match number {
                0 if answered == 1 => return,
                1 => {
                    peer.simple(request.cookie, 108, &[]);
                    return;
                }
                _ => peer.simple(request.cookie, 0, &[]),
            }
            answered += 1;
        }
    });
    let store = server.open(held(5000)).unwrap();
    let (done, ends) = mpsc::channel();
    for number in 0..3_u8 {
        let done = done.clone();
        let data = Buffer::from(&[number; 512][..]);
        let request = Request::Write { offset: u64::from(number) * 512, data, is_stable: false };
        store.begin(request, Box::new(move |ended| done.send(ended.outcome).unwrap()));
    }
    assert_eq!(ends.iter().take(3).collect::<Vec<_>>(), vec![Ok(()); 3]);
    let heard: Vec<_> = heard.try_iter().collect();
    assert_eq!(heard[0], (0, 0, Some(0)));
    // The answered one is not sent again, and the others are in their order.
    assert_eq!(heard.iter().filter(|(_, offset, _)| *offset == 0).count(), 1, "{heard:?}");
    let last: Vec<_> = heard.iter().filter(|(number, ..)| *number == 2).collect();
    assert_eq!(last, [&(2, 512, Some(1)), &(2, 1024, Some(2))]);
}

#[test]
fn requests_wait_for_a_server_as_long_as_they_are_held() {
    let (end, ends) = mpsc::channel::<()>();
    let mut server = Some(Script::new(move |_, mut peer| {
        peer.negotiate(SIZE, ALL, false);
        let _ = ends.recv();
    }));
    let folder = server.as_ref().unwrap().socket();
    let store = server.as_ref().unwrap().open(held(300)).unwrap();
    std::fs::remove_file(&folder).unwrap();
    end.send(()).unwrap();
    let begun = Instant::now();
    let error = store.write_at(0, &[1; 512]).unwrap_err();
    assert!(matches!(error, StoreError::TimedOut { .. }), "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(250), "{:?}", begun.elapsed());
    // It is known to be away: nothing more waits for it.
    let begun = Instant::now();
    assert!(store.read_at(0, &mut [0; 512]).is_err());
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
    drop(server.take());
}

#[test]
fn a_different_export_is_not_the_same_disk() {
    let server = Script::new(|number, mut peer| {
        peer.negotiate(if number == 0 { SIZE } else { 2 * SIZE }, ALL, false);
        // The first connection ends at once.
        while number > 0 && peer.hear().is_some() {}
    });
    let store = server.open(held(300)).unwrap();
    let error = store.read_at(0, &mut [0; 512]).unwrap_err().to_string();
    assert!(error.contains("the export had 1048576 B and has 2097152 B now"), "{error}");
}

#[test]
fn a_read_can_be_cancelled_and_a_write_only_before_it_is_sent() {
    let (go, goes) = mpsc::channel::<()>();
    let server = Script::new(move |_, mut peer| {
        peer.negotiate(SIZE, ALL, false);
        let all = [peer.hear().unwrap().0, peer.hear().unwrap().0];
        goes.recv().unwrap();
        peer.simple(all[0].cookie, 0, &[9; 512]);
        peer.simple(all[1].cookie, 0, &[]);
        while let Some((heard, _)) = peer.hear() {
            peer.simple(heard.cookie, 0, &[5; 512]);
        }
    });
    let store = server.open(held(1000)).unwrap();
    let (done, ends) = mpsc::channel();
    let begin = |request: Request| {
        let done = done.clone();
        let code = request.writes();
        store.begin(request, Box::new(move |ended| done.send((code, ended.outcome)).unwrap()))
    };
    let read = begin(Request::Read { offset: 0, buffer: Buffer::new(512) });
    let write = begin(Request::Write { offset: 0, data: Buffer::new(512), is_stable: false });
    std::thread::sleep(Duration::from_millis(100));
    read.cancel();
    write.cancel();
    assert_eq!(ends.recv().unwrap(), (false, Err(StoreError::Cancelled)));
    assert!(ends.recv_timeout(Duration::from_millis(100)).is_err(), "the server may still carry it out");
    go.send(()).unwrap();
    assert_eq!(ends.recv().unwrap(), (true, Ok(())));
    // The data of the cancelled read are not those of the next one.
    let mut there = [0; 512];
    store.read_at(0, &mut there).unwrap();
    assert_eq!(there, [5; 512]);
}

/// The server answers the negotiation byte by byte: requests are held no longer for that.
#[test]
fn a_server_gains_no_time_by_answering_slowly() {
    let server = Script::new(|number, mut peer| {
        if number == 0 {
            peer.negotiate(SIZE, ALL, false);
            return;
        }
        for byte in b"NBDMAGICIHAVEOPT\0\x03".iter().cycle() {
            std::thread::sleep(Duration::from_millis(200));
            if peer.0.write_all(&[*byte]).is_err() {
                return;
            }
        }
    });
    let store = server.open(held(1000)).unwrap();
    let begun = Instant::now();
    let error = store.read_at(0, &mut [0; 512]).unwrap_err();
    assert!(
        matches!(&error, StoreError::TimedOut { reason, .. } if reason.contains("no answer within")),
        "{error}"
    );
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

/// A backlog that never empties does not keep what was sent.
#[test]
fn what_was_sent_takes_no_memory() {
    let mut output = Output::default();
    for _ in 0..1000 {
        output.tail().extend_from_slice(&[0; 4096]);
        // Half of it is sent at a time.
        let front = match output.parts.front() {
            Some(Part::Bytes(bytes)) => bytes.len(),
            _ => 0,
        };
        output.sent += 4000;
        if output.sent >= front {
            output.parts.pop_front();
            output.sent -= front;
        }
        let kept: usize =
            output.parts.iter().map(|part| if let Part::Bytes(bytes) = part { bytes.len() } else { 0 }).sum();
        assert!(kept <= 1000 * 96 + 3 * PART_BYTES, "{kept}");
    }
    assert!(output.parts.len() < 8, "{}", output.parts.len());
}

/// A closed disk leaves neither a thread nor a connection behind: of a server that negotiates, floods, or answers nothing.
#[test]
fn a_closed_disk_leaves_nothing_behind() {
    let server = Script::new(|_, mut peer| {
        peer.negotiate(SIZE, ALL | 1 << 8, false);
        std::thread::spawn(move || while peer.hear().is_some() {});
    });
    let store = server.open(NbdOptions { connections: 4, ..held(300) }).unwrap();
    let (done, ends) = mpsc::channel();
    let request = Request::Write { offset: 0, data: Buffer::new(512), is_stable: false };
    store.begin(request, Box::new(move |ended| done.send(ended.outcome).unwrap()));
    let threads: Vec<_> = store.lines.iter().map(Line::watch).collect();
    drop(store);
    assert!(matches!(ends.recv_timeout(Duration::from_secs(5)), Ok(Err(StoreError::TimedOut { .. }))));
    let until = Instant::now() + Duration::from_secs(5);
    while threads.iter().any(|thread| thread.strong_count() > 0) {
        assert!(Instant::now() < until, "a thread is left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A server that needs longer for its negotiation than requests are held is back some time.
#[test]
fn a_server_that_opens_slowly_comes_back() {
    let server = Script::new(|number, mut peer| {
        if number > 0 {
            std::thread::sleep(Duration::from_millis(800));
        }
        peer.negotiate(SIZE, ALL, false);
        // The first connection ends at once.
        if number == 0 {
            return;
        }
        while let Some((heard, _)) = peer.hear() {
            peer.simple(heard.cookie, 0, &[6; 512]);
        }
    });
    let store = server.open(held(200)).unwrap();
    assert!(store.read_at(0, &mut [0; 512]).is_err());
    let until = Instant::now() + Duration::from_secs(20);
    let mut there = [0; 512];
    while store.read_at(0, &mut there).is_err() {
        assert!(Instant::now() < until, "it never comes back");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(there, [6; 512]);
}
