//! Requests as users define them: method, header fields and body.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::message;

/// Why a method or header field is refused. It never contains the value of a field, which may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The method is no token (RFC 9110 5.6.2).
    #[error("'{0}' is not a method; write a name such as GET, HEAD, PUT or DELETE")]
    Method(String),
    /// CONNECT turns the connection into a tunnel.
    #[error("the method CONNECT is not supported: it turns the connection into a tunnel")]
    Connect,
    /// A field without a colon.
    #[error("a header field has no colon; write 'Name: value'")]
    NoColon,
    /// The name of a field is no token.
    #[error("a header field's name is empty or has a character that names cannot have; write 'Name: value'")]
    Name,
    /// A value with a control character.
    #[error("the value of '{0}' contains a line break or another control character")]
    Value(String),
    /// A field that the program sets.
    #[error("'{0}' cannot be set: the program sets it from the body")]
    Reserved(String),
}

/// The characters of a token (RFC 9110 5.6.2).
fn is_token(text: &str) -> bool {
    let is_token_byte = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(is_token_byte)
}

/// A request method, case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method(String);

impl Method {
    /// GET.
    #[must_use]
    pub fn get() -> Self {
        Self("GET".into())
    }

    /// POST.
    #[must_use]
    pub fn post() -> Self {
        Self("POST".into())
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Returns whether a request can be repeated when its outcome is unknown (RFC 9110 9.2.2).
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        matches!(&*self.0, "GET" | "HEAD" | "PUT" | "DELETE" | "OPTIONS" | "TRACE")
    }

    /// Returns whether requests usually have a body.
    #[must_use]
    pub fn has_body(&self) -> bool {
        matches!(&*self.0, "POST" | "PUT" | "PATCH")
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Method {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        match text {
            "CONNECT" => Err(RequestError::Connect),
            _ if is_token(text) => Ok(Self(text.to_owned())),
            _ => Err(RequestError::Method(text.to_owned())),
        }
    }
}

/// A header field. Its `Debug` output hides the value, which may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Header {
    name: String,
    value: String,
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Header({}: ...)", self.name)
    }
}

impl FromStr for Header {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        let (name, value) = text.split_once(':').ok_or(RequestError::NoColon)?;
        if !is_token(name) {
            return Err(RequestError::Name);
        }
        let (name, value) = (name.to_owned(), value.trim_matches([' ', '\t']).to_owned());
        // RFC 9110 5.5: no control characters but the tab.
        if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            return Err(RequestError::Value(name));
        }
        let is_reserved = |reserved: &&str| name.eq_ignore_ascii_case(reserved);
        if ["content-length", "transfer-encoding"].iter().any(is_reserved) {
            return Err(RequestError::Reserved(name));
        }
        Ok(Self { name, value })
    }
}

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// None, and no Content-Length.
    None,
    /// This many zero bytes, at most [`BODY_MAX`](super::BODY_MAX).
    Zeros(usize),
    /// These bytes, such as those of a file.
    Bytes(Arc<[u8]>),
}

impl Body {
    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Zeros(count) => message::body(*count),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// A request that a run repeats.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// The value of the Host field, unless `headers` has one.
    pub authority: String,
    /// Further fields; they replace the program's own.
    pub headers: Vec<Header>,
    /// The body.
    pub body: Body,
}

impl HttpRequest {
    /// Returns the head as it is sent.
    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let mut line = |name: &str, value: &str| {
            head.push_str(&format!("{name}: {value}\r\n"));
        };
        let is_given = |name: &str| self.headers.iter().any(|field| field.name.eq_ignore_ascii_case(name));
        if !is_given("host") {
            line("Host", &self.authority);
        }
        if self.body != Body::None {
            if !is_given("content-type") {
                line("Content-Type", "application/octet-stream");
            }
            line("Content-Length", &self.body.bytes().len().to_string());
        }
        for field in &self.headers {
            line(&field.name, &field.value);
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> Result<Header, RequestError> {
        text.parse()
    }

    #[test]
    fn fields_that_would_add_lines_or_change_the_framing_are_refused_without_showing_values() {
        for text in [
            "X: secret\r\nY: z",
            "X: secret\nY",
            "X: secret\r",
            "X: secret\0",
            "secret",
            "X secret: a",
            ": secret",
            "X : secret",
            "Content-Length: secret",
            "transfer-encoding: secret",
            "X\r\nsecret: a",
        ] {
            let error = header(text).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{text:?}: {error}");
        }
        let hidden = format!("{:?}", header("Authorization: Bearer secret").unwrap());
        assert!(hidden.contains("Authorization") && !hidden.contains("secret"), "{hidden}");
    }

    #[test]
    fn methods_are_tokens_and_not_connect() {
        assert!("PROPFIND".parse::<Method>().is_ok());
        for method in ["", "GET /", "GET\r\n", "CONNECT"] {
            assert!(method.parse::<Method>().is_err(), "{method:?}");
        }
        let idempotent =
            ["GET", "PUT", "DELETE", "POST", "PATCH", "get"].map(|name| Method(name.into()).is_idempotent());
        assert_eq!(idempotent, [true, true, true, false, false, false]);
    }

    #[test]
    fn given_fields_replace_those_of_the_program() {
        let request = HttpRequest {
            method: Method::post(),
            path: "/a?b".into(),
            authority: "host:8080".into(),
            headers: ["host: other", "Content-Type: text/plain", "X-A:  1 ", "X-A: 2"]
                .map(|h| header(h).unwrap())
                .into(),
            body: Body::Bytes(Arc::from(*b"12345")),
        };
        let head = String::from_utf8(request.head()).unwrap();
        let expected = "POST /a?b HTTP/1.1\r\nContent-Length: 5\r\nhost: other\r\nContent-Type: text/plain\r\n\
                        X-A: 1\r\nX-A: 2\r\n\r\n";
        assert_eq!(head, expected);
        let get = HttpRequest { method: Method::get(), headers: Vec::new(), body: Body::None, ..request };
        assert_eq!(String::from_utf8(get.head()).unwrap(), "GET /a?b HTTP/1.1\r\nHost: host:8080\r\n\r\n");
        let empty = HttpRequest { body: Body::Zeros(0), ..get };
        assert!(String::from_utf8(empty.head()).unwrap().contains("Content-Length: 0\r\n"));
    }
}
