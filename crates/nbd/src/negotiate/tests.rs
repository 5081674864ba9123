use proptest::prelude::*;

use super::*;

/// A server that says these bytes, whatever it is asked.
struct Says<'a> {
    bytes: &'a [u8],
    heard: Vec<u8>,
}

impl Read for Says<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(buffer)
    }
}

impl Write for Says<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.heard.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = REPLY.to_be_bytes().to_vec();
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn export(size: u64, flags: u16) -> Vec<u8> {
    reply(OPT_GO, REP_INFO, &[&[0, 0][..], &size.to_be_bytes(), &flags.to_be_bytes()].concat())
}

fn sizes(least: u32, best: u32, most: u32) -> Vec<u8> {
    let data = [&[0, 3][..], &least.to_be_bytes(), &best.to_be_bytes(), &most.to_be_bytes()].concat();
    reply(OPT_GO, REP_INFO, &data)
}

fn chosen(parts: &[Vec<u8>]) -> Result<Export, NegotiateError> {
    let bytes = parts.concat();
    choose(&mut Says { bytes: &bytes, heard: Vec::new() }, &Query { export: "disk" })
}

#[test]
fn a_server_with_everything_is_understood() {
    let context = [&[0, 0, 0, 9][..], b"base:allocation"].concat();
    let parts = [
        reply(OPT_STRUCTURED_REPLY, REP_ACK, &[]),
        reply(OPT_SET_META_CONTEXT, REP_META_CONTEXT, &context),
        reply(OPT_SET_META_CONTEXT, REP_ACK, &[]),
        export(1 << 30, 0x014d),
        sizes(1, 4096, u32::MAX),
        // A name, which was not asked for.
        reply(OPT_GO, REP_INFO, &[0, 1, b'x']),
        reply(OPT_GO, REP_ACK, &[]),
    ];
    let export = chosen(&parts).unwrap();
    assert_eq!((export.size_bytes, export.is_structured, export.has_status), (1 << 30, true, true));
    assert_eq!((export.least_bytes, export.best_bytes, export.most_bytes), (1, 4096, 32 << 20));
    assert!(
        export.has_flush() && export.has_fua() && export.has_write_zeroes() && export.has_many_connections()
    );
    assert!(!export.is_read_only() && !export.is_rotational());
}

#[test]
fn a_plain_server_is_asked_in_blocks_of_512_bytes() {
    let parts =
        [reply(OPT_STRUCTURED_REPLY, REP_ERROR + 1, &[]), export(4096, 3), reply(OPT_GO, REP_ACK, &[])];
    let export = chosen(&parts).unwrap();
    assert_eq!((export.is_structured, export.has_status, export.is_read_only()), (false, false, true));
    assert_eq!((export.least_bytes, export.best_bytes, export.most_bytes), (512, 4096, 32 << 20));
}

#[test]
fn refusals_say_why() {
    let plain = || reply(OPT_STRUCTURED_REPLY, REP_ERROR + 1, &[]);
    let error = |parts: &[Vec<u8>]| chosen(parts).unwrap_err().to_string();
    let unknown = error(&[plain(), reply(OPT_GO, REP_ERROR + 6, b"gone\x1b[31m")]);
    assert_eq!(unknown, "the server refuses the export 'disk': there is no such export (gone [31m)");
    assert!(error(&[plain(), reply(OPT_GO, REP_ERROR + 5, &[])]).contains("nbds://"));
    for parts in [
        // No size.
        vec![plain(), reply(OPT_GO, REP_ACK, &[])],
        vec![plain(), export(1 << 63, 1), reply(OPT_GO, REP_ACK, &[])],
        vec![plain(), export(4096, 1), sizes(3, 4096, 4096), reply(OPT_GO, REP_ACK, &[])],
        vec![plain(), export(4096, 1), sizes(0, 4096, 4096), reply(OPT_GO, REP_ACK, &[])],
        vec![plain(), export(4096, 1), sizes(1 << 20, 1 << 20, 1 << 20), reply(OPT_GO, REP_ACK, &[])],
        vec![plain(), export(4096, 1), sizes(4096, 4096, 512), reply(OPT_GO, REP_ACK, &[])],
        vec![plain(), reply(OPT_GO, REP_INFO, &[0, 0, 1]), reply(OPT_GO, REP_ACK, &[])],
        // Another option, another kind, and without an end.
        vec![reply(OPT_GO, REP_ACK, &[])],
        vec![plain(), reply(OPT_GO, 99, &[])],
        vec![plain(), vec![export(4096, 1); 100].concat()],
    ] {
        assert!(matches!(chosen(&parts), Err(NegotiateError::Protocol(_))), "{parts:?}");
    }
    // A length that nobody has sent yet takes no memory.
    let mut long = reply(OPT_STRUCTURED_REPLY, REP_INFO, &[]);
    long[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(matches!(chosen(&[long]), Err(NegotiateError::Protocol(_))));
}

#[test]
fn strangers_are_told_apart() {
    let greeting =
        |bytes: &[u8]| greet(&mut Says { bytes, heard: Vec::new() }).map_err(|error| error.to_string());
    let newstyle = |flags: u16| [&b"NBDMAGICIHAVEOPT"[..], &flags.to_be_bytes()].concat();
    assert_eq!(greeting(&newstyle(3)), Ok(()));
    assert!(greeting(b"SSH-2.0-OpenSSH_9.2p1").unwrap_err().contains("not an NBD server"));
    assert!(greeting(b"NBDMAGIC\0\x00\x42\x02\x81\x86\x12\x53\0\0").unwrap_err().contains("old style"));
    assert!(greeting(&newstyle(2)).is_err() && greeting(b"NBD").is_err());
    let mut says = Says { bytes: &newstyle(0xffff), heard: Vec::new() };
    greet(&mut says).unwrap();
    assert_eq!(says.heard, [0, 0, 0, 3], "only what is known is agreed to");
}

proptest! {
    #[test]
    fn no_server_causes_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), starts in any::<bool>()) {
        let start = if starts { reply(OPT_STRUCTURED_REPLY, REP_ACK, &[]) } else { Vec::new() };
        let _ = chosen(&[start, bytes.clone()]);
        let _ = greet(&mut Says { bytes: &bytes, heard: Vec::new() });
    }
}
