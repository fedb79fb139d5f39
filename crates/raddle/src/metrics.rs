//! Prometheus metrics at `/metrics`, on a loopback address, when asked for.

mod connections;
mod lag;
mod segments;
mod text;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::Semaphore;

use crate::error::Failure;
use connections::Bounded;
use raddle_control::{Answer, DAEMON, Reply, Request};
pub(crate) use text::{Rows, render};

/// How many scrapes are answered at the same time: the daemon does so beside its work.
const SCRAPES: usize = 2;
/// How long a scrape waits for the daemon.
const PATIENCE: Duration = Duration::from_secs(3);

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

/// How a scrape gets its text.
pub(crate) type Render = fn(&Asked<'_>) -> Result<String, Unanswered>;

/// Why a scrape gets no text.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The daemon has not answered in time.
    Busy,
    /// It has, and that made no sense: a mistake of ours.
    Nonsense(raddle_control::Error),
}

/// Serves metrics from a thread of its own; questions go to the daemon through `requests`.
pub(crate) fn serve(address: SocketAddr, requests: Sender<Request>) -> Result<(), Failure> {
    serve_as(address, requests, |daemon| {
        Ok(render(&daemon.ask()?, &daemon.ask()?, &daemon.ask()?))
    })
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
                    .with_state(Asks {
                        requests,
                        render,
                        turns: Arc::new(Semaphore::new(SCRAPES)),
                    });
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => {
                        let listener = Bounded::new(listener);
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

/// Whom a scrape asks.
#[derive(Clone)]
struct Asks {
    requests: Sender<Request>,
    render: Render,
    turns: Arc<Semaphore>,
}

async fn scrape(State(asks): State<Asks>) -> Response {
    let Asks {
        requests,
        render,
        turns,
    } = asks;
    // One whose connection ends while it waits is forgotten; one that asks holds its turn until all is answered.
    let Ok(turn) = turns.acquire_owned().await else {
        return busy();
    };
    let text = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        render(&Asked(&requests))
    });
    match text.await {
        Ok(Ok(text)) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Ok(Err(Unanswered::Nonsense(error))) => {
            tracing::error!("metrics: {error}");
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
        }
        Ok(Err(Unanswered::Busy)) | Err(_) => busy(),
    }
}

fn busy() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the daemon is busy\n").into_response()
}

/// Who is asked.
pub(crate) struct Asked<'a>(&'a Sender<Request>);

impl Asked<'_> {
    /// The answer.
    pub(crate) fn ask<A: Answer>(&self) -> Result<A, Unanswered> {
        let command = A::COMMAND;
        let (answer, answers) = channel::<Reply>();
        let sent = self.0.send(Request { command, answer });
        sent.map_err(|_| Unanswered::Busy)?;
        let reply = answers.recv_timeout(PATIENCE);
        let reply = reply.map_err(|_| Unanswered::Busy)?;
        reply.read(DAEMON).map_err(Unanswered::Nonsense)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_control::{Command, Counters, Segments, Status};

    /// Connections that ask nothing, or little by little, keep no scrape out, however many they are.
    #[test]
    fn idle_connections_make_way() {
        use std::io::{Read, Write};
        let address = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .unwrap();
        let (sender, requests) = channel::<Request>();
        serve(address, sender).unwrap();
        std::thread::spawn(move || {
            for request in requests {
                let _ = request.answer.send(match request.command {
                    Command::Counters => Reply::of(&Counters::default()),
                    Command::Segments => Reply::of(&Segments::default()),
                    _ => Reply::of(&Status::default()),
                });
            }
        });
        let connect = || {
            let stream = std::net::TcpStream::connect(address).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            stream
        };
        let mut idle: Vec<_> = (0..200).map(|_| connect()).collect();
        for stream in idle.iter_mut().step_by(2) {
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHo");
        }
        let started = std::time::Instant::now();
        let mut scrape = connect();
        scrape
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
            .unwrap();
        let mut start = [0; 15];
        scrape.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"HTTP/1.1 200 OK");
        let took = started.elapsed();
        assert!(took < connections::LONGEST, "a scrape took {took:?}");
        // All of them end, also those that make way for nobody.
        for stream in &mut idle {
            let ended = stream.read(&mut [0; 16]);
            assert!(
                !matches!(&ended, Err(e) if e.kind() == io::ErrorKind::WouldBlock),
                "{ended:?}"
            );
        }
    }
}
