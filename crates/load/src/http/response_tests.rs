use proptest::prelude::*;

use super::*;

fn response(status: u16, body_bytes: u64, is_reusable: bool) -> Response {
    Response { status, body_bytes, is_reusable }
}

/// Feeds pieces of `step` bytes; returns the response and the bytes used.
fn feed_in(step: usize, bytes: &[u8], is_bodyless: bool) -> Result<Option<(Response, usize)>, Malformed> {
    let mut reader = ResponseReader::new(is_bodyless);
    let mut used = 0;
    for piece in bytes.chunks(step) {
        let fed = reader.feed(piece)?;
        used += fed.used;
        if let Some(response) = fed.response {
            return Ok(Some((response, used)));
        }
        assert_eq!(fed.used, piece.len(), "an incomplete response uses all bytes");
    }
    Ok(reader.close().map(|response| (response, used)))
}

#[test]
fn every_framing_ends_where_the_standard_says() {
    for (text, expected, rest) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", response(200, 5, true), ""),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP", response(200, 5, true), "HTTP"),
        ("HTTP/1.1 200\r\ncontent-length:\t5 \r\n\r\nhello", response(200, 5, true), ""),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\nContent-Length: 5\r\n\r\nhello",
            response(200, 5, true),
            "",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: x, Close\r\n\r\nhello",
            response(200, 5, false),
            "",
        ),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", response(200, 5, false), ""),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
            response(200, 5, true),
            "",
        ),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end", response(200, 13, false), ""),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nuntil", response(200, 5, false), ""),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nnext", response(204, 0, true), "next"),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", response(304, 0, true), ""),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nContent-Length: 9\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",
            response(404, 0, true),
            "",
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nx", response(200, 0, true), "x"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n0a \r\n0123456789\r\n000\r\nA: b\r\nC: d\r\n\r\n",
            response(200, 15, true),
            "",
        ),
    ] {
        for step in [1, 2, 3, 7, text.len()] {
            let found = feed_in(step, text.as_bytes(), false).unwrap().unwrap();
            assert_eq!(found.0, expected, "{step}: {text}");
            let left = text.len() - found.1;
            // In one piece the reader stops exactly at the end.
            assert!(step > 1 || left == rest.len(), "{text}");
        }
    }
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n";
    assert_eq!(feed_in(5, head.as_bytes(), true), Ok(Some((response(200, 0, true), head.len()))));
}

#[test]
fn ambiguous_and_endless_responses_are_refused() {
    let ok = "HTTP/1.1 200 OK\r\n";
    let chunked = format!("{ok}Transfer-Encoding: chunked\r\n\r\n");
    let with = |fields: &str| format!("{ok}{fields}\r\n\r\n");
    for (text, expected) in [
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n".into(), Malformed::Head),
        ("HTTP/2 200 OK\r\n\r\n".into(), Malformed::Head),
        ("HTTP/1.1 20x OK\r\n\r\n".into(), Malformed::Head),
        ("HTTP/1.1 099 OK\r\n\r\n".into(), Malformed::Head),
        (with("A: b\r\n folded: c"), Malformed::Head),
        (with("A : b"), Malformed::Head),
        (with("Content-Length: 5\r\nContent-Length: 6"), Malformed::ContentLength),
        (with("Content-Length: -1"), Malformed::ContentLength),
        (with("Content-Length: +1"), Malformed::ContentLength),
        (with("Content-Length: 0x5"), Malformed::ContentLength),
        (with("Content-Length:"), Malformed::ContentLength),
        (with("Content-Length: 18446744073709551616"), Malformed::ContentLength),
        (with("Content-Length: 5\r\nTransfer-Encoding: chunked"), Malformed::TransferEncoding),
        (with("Transfer-Encoding: chunked, gzip"), Malformed::TransferEncoding),
        (with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), Malformed::TransferEncoding),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".into(), Malformed::TransferEncoding),
        ("HTTP/1.1 101 Switching\r\n\r\n".into(), Malformed::SwitchedProtocol),
        ("HTTP/1.1 100 Continue\r\n\r\n".repeat(65), Malformed::TooManyInterim),
        (with(&"A: b\r\n".repeat(129)), Malformed::TooManyFields),
        (format!("{ok}A: {}", "b".repeat(HEAD_MAX)), Malformed::HeadTooLong),
        (format!("{ok}{}", "A: bbbbbbbbbbbbbb\r\n".repeat(100)).repeat(20), Malformed::Head),
        (format!("{chunked}\r\n"), Malformed::Chunk),
        (format!("{chunked}g\r\n"), Malformed::Chunk),
        (format!("{chunked}-1\r\n"), Malformed::Chunk),
        (format!("{chunked}5\nhello"), Malformed::Chunk),
        (format!("{chunked}5\r\nhello0\r\n"), Malformed::Chunk),
        (format!("{chunked}5\r\nhello\r\n0\r\nA: b\n\n"), Malformed::Chunk),
        (format!("{chunked}{}\r\n", "f".repeat(16)), Malformed::Chunk),
        (format!("{chunked}5;{}", "x".repeat(5000)), Malformed::ChunkLine),
        (format!("{chunked}0\r\n{}", "A: b\r\n".repeat(5000)), Malformed::ChunkLine),
    ] {
        for step in [1, 1000, text.len()] {
            let found = feed_in(step, text.as_bytes(), false);
            let shown = &text[..text.len().min(80)];
            assert!(found.is_err(), "{step}: {shown}: {found:?}");
            assert!(step < text.len() || found == Err(expected), "{shown}: {found:?}");
        }
    }
}

#[test]
fn an_incomplete_response_is_none() {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n";
    for end in 0..text.len() {
        assert_eq!(feed_in(1000, &text.as_bytes()[..end], false), Ok(None), "{end}");
    }
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    for end in 0..text.len() {
        assert_eq!(feed_in(1000, &text.as_bytes()[..end], false), Ok(None), "{end}");
    }
}

#[test]
fn a_body_of_any_size_takes_no_memory() {
    let mut reader = ResponseReader::new(false);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", u64::MAX);
    reader.feed(head.as_bytes()).unwrap();
    let bytes = vec![0; 1 << 20];
    for _ in 0..100 {
        assert_eq!(reader.feed(&bytes), Ok(Fed { used: 1 << 20, response: None }));
    }
    assert!(reader.head.capacity() <= HEAD_MAX);
}

#[test]
fn nothing_of_a_lost_response_remains_after_a_reset() {
    let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    for end in 0..whole.len() {
        let mut reader = ResponseReader::new(false);
        reader.feed(&whole[..end]).unwrap();
        assert_eq!(reader.has_begun(), end > 0);
        reader.reset();
        assert!(!reader.has_begun());
        assert_eq!(reader.feed(whole).unwrap().response, Some(response(200, 5, true)), "{end}");
        assert!(!reader.has_begun(), "the next one has not begun");
    }
}

/// Bytes that resemble responses.
fn resembling() -> impl Strategy<Value = Vec<u8>> {
    let parts = prop::sample::select(vec![
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 200 OK\r\n",
        "HTTP/1.1 100 C\r\n",
        "HTTP/1.1 204 N\r\n",
        "\r\n",
        "\n",
        "\r",
        "Content-Length: 3\r\n",
        "Content-Length: 0\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Connection: close\r\n",
        "3\r\nabc\r\n",
        "0\r\n\r\n",
        "0\r\nA: b\r\n\r\n",
        "abc",
        "0",
        ";x",
        ":",
        " ",
    ]);
    prop::collection::vec(parts, 0..14).prop_map(|parts| parts.concat().into_bytes())
}

proptest! {
    /// A response does not depend on the pieces in which TCP delivers it.
    #[test]
    fn pieces_make_no_difference(bytes in resembling(), steps in prop::collection::vec(1_usize..9, 1..40)) {
        let mut whole = ResponseReader::new(false);
        let expected = whole.feed(&bytes);
        let (mut reader, mut used, mut steps) = (ResponseReader::new(false), 0, steps.into_iter().cycle());
        let mut found = Ok(Fed { used: 0, response: None });
        while used < bytes.len() {
            let step = steps.next().unwrap_or(1).min(bytes.len() - used);
            found = reader.feed(&bytes[used..used + step]);
            match found {
                Ok(fed) if fed.response.is_none() => used += step,
                Ok(fed) => { used += fed.used; break; }
                Err(_) => break,
            }
        }
        match expected {
            Ok(Fed { used: all, response }) => {
                prop_assert_eq!((used, found.map(|fed| fed.response)), (all, Ok(response)));
                prop_assert_eq!(reader.close(), whole.close());
            }
            // The error may only show once the rest of a line has come.
            Err(_) => prop_assert!(found.map_or(true, |fed| fed.response.is_none())),
        }
    }
}
