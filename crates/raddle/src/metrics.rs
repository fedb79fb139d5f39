//! Prometheus metrics at `/metrics`, on a loopback address, when asked for.

mod segments;
mod text;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

use crate::control::{Command, Request};
use crate::error::Failure;
pub(crate) use text::{Rows, render};

/// How long a scrape waits for the daemon.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many connections there may be at once. Every user of this machine can make some, and the
/// daemon needs its descriptors for other things.
const CONNECTIONS: usize = 8;
/// How long a connection may last, idle or not; the next scrape makes another.
const LONGEST: Duration = Duration::from_secs(5);

fn failed(address: SocketAddr) -> impl Fn(io::Error) -> Failure {
    move |e| {
        Failure::system(format!(
            "cannot serve metrics at {address}: {e}; choose another address"
        ))
    }
}

/// Whether metrics could be served at this address now.
pub(crate) fn check(address: SocketAddr) -> Result<(), Failure> {
    std::net::TcpListener::bind(address)
        .map(drop)
        .map_err(failed(address))
}

/// What makes text of the answers to status, counters and segments.
pub(crate) type Render = fn(&Value, &Value, &Value) -> Option<String>;

/// Serves metrics from a thread of its own; questions go to the daemon through `requests`.
pub(crate) fn serve(address: SocketAddr, requests: Sender<Request>) -> Result<(), Failure> {
    serve_as(address, requests, render)
}

/// The same, with another text.
pub(crate) fn serve_as(
    address: SocketAddr,
    requests: Sender<Request>,
    render: Render,
) -> Result<(), Failure> {
    let failed = failed(address);
    let listener = std::net::TcpListener::bind(address).map_err(&failed)?;
    listener.set_nonblocking(true).map_err(&failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(&failed)?;
    std::thread::Builder::new()
        .name("metrics".into())
        .spawn(move || {
            runtime.block_on(async move {
                let app = Router::new()
                    .route("/metrics", get(scrape))
                    .with_state((requests, render));
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => {
                        let listener = Bounded {
                            listener,
                            room: Arc::new(Semaphore::new(CONNECTIONS)),
                        };
                        if let Err(e) = axum::serve(listener, app).await {
                            tracing::error!("metrics are no longer served: {e}");
                        }
                    }
                    Err(e) => tracing::error!("metrics are not served: {e}"),
                }
            });
        })?;
    Ok(())
}

/// Accepts no more than so many connections at a time.
struct Bounded {
    listener: tokio::net::TcpListener,
    room: Arc<Semaphore>,
}

impl axum::serve::Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let room = Arc::clone(&self.room).acquire_owned().await.ok();
        let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
        let connection = Connection {
            stream,
            end: Box::pin(tokio::time::sleep(LONGEST)),
            _room: room,
        };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends by itself after [`LONGEST`].
struct Connection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    /// Given back when it ends. (The semaphore is never closed, so there always is one.)
    _room: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// Does `poll`, unless the time is up.
    fn in_time<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => poll(Pin::new(&mut self.stream), context),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.in_time(context, |stream, context| stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.in_time(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.in_time(context, AsyncWrite::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.in_time(context, AsyncWrite::poll_shutdown)
    }
}

async fn scrape(State((requests, render)): State<(Sender<Request>, Render)>) -> Response {
    let asked = tokio::task::spawn_blocking(move || {
        Some((
            question(&requests, Command::Status)?,
            question(&requests, Command::Counters)?,
            question(&requests, Command::Segments)?,
        ))
    });
    let text = match asked.await {
        Ok(Some((status, counters, segments))) => render(&status, &counters, &segments),
        _ => None,
    };
    match text {
        Some(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, "the daemon is busy\n").into_response(),
    }
}

fn question(requests: &Sender<Request>, command: Command) -> Option<Value> {
    let (answer, answers) = channel();
    requests.send(Request { command, answer }).ok()?;
    answers.recv_timeout(PATIENCE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Connections that ask nothing neither pile up nor keep scrapes out for long.
    #[test]
    fn idle_connections_end() {
        use std::io::{Read, Write};
        let address = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .unwrap();
        let (sender, requests) = channel::<Request>();
        serve(address, sender).unwrap();
        std::thread::spawn(move || {
            for request in requests {
                let _ = request.answer.send(json!({ "version": "9.9" }));
            }
        });
        let connect = || {
            let stream = std::net::TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(2 * LONGEST)).unwrap();
            stream
        };
        let mut idle: Vec<_> = (0..CONNECTIONS).map(|_| connect()).collect();
        let mut scrape = connect();
        scrape
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
            .unwrap();
        let mut start = [0; 15];
        scrape.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"HTTP/1.1 200 OK");
        for stream in &mut idle {
            let ended = stream.read(&mut [0; 16]);
            assert!(
                !matches!(&ended, Err(e) if e.kind() == io::ErrorKind::WouldBlock),
                "{ended:?}"
            );
        }
    }
}
