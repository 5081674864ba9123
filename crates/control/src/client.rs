//! A client of the control socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Longest answer, bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Longest time until there is an answer.
const PATIENCE: Duration = Duration::from_secs(90);

/// An answer of HTTP.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub text: String,
}

impl Answer {
    /// The JSON of a success, or why there is none.
    ///
    /// # Errors
    /// What the target has said.
    pub fn json(&self) -> Result<Value, String> {
        let value: Value = serde_json::from_str(&self.text).unwrap_or(Value::Null);
        if self.status == 200 {
            return Ok(value);
        }
        Err(value["error"].as_str().map_or_else(|| format!("status {}", self.status), str::to_owned))
    }
}

/// Asks the target that listens at `socket`.
///
/// # Errors
/// When it cannot be reached, or gives no answer in time.
pub fn ask(socket: &Path, method: &str, path: &str, body: Option<&Value>) -> io::Result<Answer> {
    in_time(async {
        let stream = UnixStream::connect(socket).await?;
        exchange(stream, "localhost", method, path, body).await
    })
}

/// The URL of something that is read by HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    host: String,
    path: String,
}

impl std::str::FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}': write http://HOST:PORT/metrics");
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong());
        }
        Ok(Self {
            host: host.to_owned(),
            path: if path.is_empty() { "/metrics".to_owned() } else { path.to_owned() },
        })
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.host, self.path)
    }
}

/// Reads a URL.
///
/// # Errors
/// When its host cannot be reached, or gives no answer in time.
pub fn get(url: &Url) -> io::Result<Answer> {
    in_time(async {
        let has_port = url.host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { url.host.clone() } else { format!("{}:80", url.host) };
        let stream = TcpStream::connect(address).await?;
        exchange(stream, &url.host, "GET", &url.path, None).await
    })
}

/// Runs an exchange with a time limit.
fn in_time(exchange: impl Future<Output = io::Result<Answer>>) -> io::Result<Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let limited = async { tokio::time::timeout(PATIENCE, exchange).await };
    runtime.block_on(limited).unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))
}

/// One request and its answer.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    host: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> io::Result<Answer> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header("host", host)
        .header("connection", "close")
        .body(Full::new(Bytes::from(body)))
        .map_err(io::Error::other)?;
    let exchange = async {
        let (head, body) = sender.send_request(request).await.map_err(io::Error::other)?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(io::Error::other)?;
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        Ok(Answer { status: head.status.as_u16(), text })
    };
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        // The connection's part of the work; what it has received is with the exchange before it ends.
        _ = connection => exchange.await,
    }
}

/// Follows the events of the target that listens at `socket`: each line goes to `line`, until it returns false or the target ends.
///
/// # Errors
/// When the target cannot be reached, or refuses.
pub fn follow(socket: &Path, mut line: impl FnMut(&str) -> bool) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stream = TokioIo::new(UnixStream::connect(socket).await?);
        let (mut sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
        let request = hyper::Request::builder()
            .uri("/v1/events")
            .header("host", "localhost")
            .body(Full::new(Bytes::new()))
            .map_err(io::Error::other)?;
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(io::Error::other)?;
            if answer.status() != 200 {
                return Err(io::Error::other(format!("status {}", answer.status())));
            }
            let (mut body, mut rest) = (answer.into_body(), String::new());
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame.map_err(io::Error::other)?.into_data() else { continue };
                rest.push_str(&String::from_utf8_lossy(&data));
                while let Some((first, behind)) = rest.split_once('\n') {
                    if !line(first) {
                        return Ok(());
                    }
                    rest = behind.to_owned();
                }
                if rest.len() > ANSWER_BYTES_MAX {
                    return Err(io::Error::other("an event without an end"));
                }
            }
            Ok(())
        };
        tokio::pin!(exchange);
        tokio::select! {
            done = &mut exchange => done,
            _ = connection => exchange.await,
        }
    })
}
