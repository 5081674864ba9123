//! The thread that serves HTTP: bounded connections, each with bounded time and bounded bodies.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::LocalSet;

use crate::events::Events;
use crate::openapi;
use crate::request::{Refusal, Reply, Request};

/// Longest body of a request, bytes.
const BODY_BYTES_MAX: usize = 2 << 20;
/// Connections to the control socket served at a time; others wait in the kernel.
const CONNECTIONS_MAX: usize = 32;
/// The same to all sockets for metrics: they take nothing from control.
const SCRAPES_MAX: usize = 8;
/// Most that follow events. They hold no slot of those above.
const FOLLOWERS_MAX: usize = 8;
/// Longest time for the header of a request, and for its body.
const READ_PATIENCE: Duration = Duration::from_secs(5);
/// Longest time until the target has carried out a request.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// Longest time of a connection in all.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(120);

/// A request, and where its answer goes.
#[derive(Debug)]
pub struct Asked {
    /// What is asked for.
    pub request: Request,
    answer: oneshot::Sender<Result<Reply, Refusal>>,
}

impl Asked {
    /// Answers it.
    pub fn answer(self, answer: Result<Reply, Refusal>) {
        // Whoever has asked may have gone.
        let _ = self.answer.send(answer);
    }
}

/// What all connections share.
struct Common {
    asks: SyncSender<Asked>,
    events: Events,
    followers: Arc<Semaphore>,
}

/// The sockets to listen on.
#[derive(Debug, Default)]
pub struct Sockets {
    /// For everything. Who may open it is decided by the rights of its path.
    pub control: Option<std::os::unix::net::UnixListener>,
    /// For metrics alone.
    pub metrics: Vec<std::net::TcpListener>,
}

/// Starts the thread. Requests go to `asks`, whose capacity bounds those that wait.
///
/// # Errors
/// When the thread or what it needs cannot be made.
pub fn start(sockets: Sockets, asks: SyncSender<Asked>, events: Events) -> io::Result<()> {
    sockets.control.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
    sockets.metrics.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let serve = move || {
        let followers = Arc::new(Semaphore::new(FOLLOWERS_MAX));
        let (common, all) = (Arc::new(Common { asks, events, followers }), LocalSet::new());
        let scrapes = Arc::new(Semaphore::new(SCRAPES_MAX));
        for socket in sockets.metrics {
            let (common, slots) = (Arc::clone(&common), Arc::clone(&scrapes));
            all.spawn_local(async move {
                match TcpListener::from_std(socket) {
                    Ok(socket) => {
                        accept(slots, common, true, async || socket.accept().await.map(|(socket, _)| socket))
                            .await;
                    }
                    Err(error) => tracing::error!("cannot serve metrics: {error}"),
                }
            });
        }
        if let Some(socket) = sockets.control {
            let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
            all.spawn_local(async move {
                match UnixListener::from_std(socket) {
                    Ok(socket) => {
                        accept(slots, common, false, async || {
                            socket.accept().await.map(|(socket, _)| socket)
                        })
                        .await;
                    }
                    Err(error) => tracing::error!("cannot serve the control socket: {error}"),
                }
            });
        }
        runtime.block_on(all);
    };
    std::thread::Builder::new().name("control".to_owned()).spawn(serve).map(drop)
}

/// Accepts connections forever.
async fn accept<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    slots: Arc<Semaphore>,
    common: Arc<Common>,
    metrics_only: bool,
    next: impl AsyncFn() -> io::Result<S>,
) {
    loop {
        // The semaphore is never closed.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        match next().await {
            Ok(socket) => {
                let common = Arc::clone(&common);
                tokio::task::spawn_local(async move {
                    serve(socket, &common, slot, metrics_only).await;
                });
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection of the control: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    socket: S,
    common: &Common,
    slot: OwnedSemaphorePermit,
    metrics_only: bool,
) {
    let slot = &Cell::new(Some(slot));
    // A connection that follows events holds one of their slots, until it ends, in place of its own.
    let followers_slot = &Cell::new(None);
    let follows = &Cell::new(false);
    let service = service_fn(|request| async move {
        let mut answer = answer(request, &common.asks, metrics_only).await;
        if matches!(answer, Ok(Answer::Events)) {
            match Arc::clone(&common.followers).try_acquire_owned() {
                Ok(permit) => {
                    followers_slot.set(Some(permit));
                    slot.set(None);
                    follows.set(true);
                    return Ok::<_, Infallible>(stream(&common.events));
                }
                Err(_) => {
                    let why = format!("{FOLLOWERS_MAX} follow the events already");
                    answer = Err(Refusal::Unavailable(why));
                }
            }
        }
        Ok(response(answer))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(READ_PATIENCE)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(socket), service);
    tokio::pin!(connection);
    let ended = match tokio::time::timeout(CONNECTION_PATIENCE, &mut connection).await {
        // One that follows events may stay.
        Err(_) if follows.get() => connection.await,
        Err(_) => return tracing::debug!("a connection of the control took too long"),
        Ok(ended) => ended,
    };
    if let Err(error) = ended {
        tracing::debug!("a connection of the control ended: {error}");
    }
}

/// The answer to those that follow events: a body without end.
fn stream(events: &Events) -> Response<Body> {
    let follower = events.follow();
    let lines = futures_util::stream::unfold(follower, |mut follower| async move {
        let text = follower.next().await?;
        Some((Ok(Frame::data(Bytes::from(text))), follower))
    });
    let mut response = Response::new(StreamBody::new(lines).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/jsonl"));
    response
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// An answer to a request.
enum Answer {
    Reply(Reply),
    Events,
}

/// Has a request carried out.
async fn answer(
    request: hyper::Request<Incoming>,
    asks: &SyncSender<Asked>,
    metrics_only: bool,
) -> Result<Answer, Refusal> {
    let (head, body) = request.into_parts();
    let body = tokio::time::timeout(READ_PATIENCE, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let body = body
        .map_err(|_| Refusal::Invalid("the body did not arrive within 5 s".to_owned()))?
        .map_err(|error| match error.downcast_ref::<http_body_util::LengthLimitError>() {
            Some(_) => Refusal::TooLong(format!("the body is longer than {BODY_BYTES_MAX} bytes")),
            None => Refusal::Invalid(format!("the body: {error}")),
        })?
        .to_bytes();
    let request = Request::read(head.method.as_str(), head.uri.path(), &body, metrics_only)?;
    match request {
        Request::Events => return Ok(Answer::Events),
        Request::OpenApi => return Ok(Answer::Reply(Reply::Json(openapi::document()))),
        _ => {}
    }
    let (sender, receiver) = oneshot::channel();
    asks.try_send(Asked { request, answer: sender }).map_err(|error| {
        Refusal::Unavailable(match error {
            TrySendError::Full(_) => "too many requests wait; try again".to_owned(),
            TrySendError::Disconnected(_) => "the target is ending".to_owned(),
        })
    })?;
    match tokio::time::timeout(ANSWER_PATIENCE, receiver).await {
        Ok(Ok(answer)) => answer.map(Answer::Reply),
        Ok(Err(_)) => Err(Refusal::Unavailable("the target is ending".to_owned())),
        Err(_) => Err(Refusal::Unavailable("the target has not answered in time".to_owned())),
    }
}

fn response(answer: Result<Answer, Refusal>) -> Response<Body> {
    let (status, kind, text) = match answer {
        Ok(Answer::Events) => (200, "application/jsonl", String::new()),
        Ok(Answer::Reply(Reply::Json(value))) => (200, "application/json", value.to_string()),
        Ok(Answer::Reply(Reply::Text(text))) => (200, "text/plain; charset=utf-8", text),
        Ok(Answer::Reply(Reply::Metrics(text))) => {
            (200, "application/openmetrics-text; version=1.0.0; charset=utf-8", text)
        }
        Err(refusal) => {
            let text = serde_json::json!({ "error": refusal.to_string() }).to_string();
            (refusal.status(), "application/json", text)
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
