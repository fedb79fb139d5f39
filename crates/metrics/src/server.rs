//! The endpoint: a thread of its own, which answers a bounded number of scrapes by asking whom the metrics are of.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::Semaphore;

use raddle_control::{Answer, DAEMON, PROXIES, Reply, Request, Who};

use crate::connections::Bounded;
use crate::error::Error;
use crate::{daemon_text, proxies_text};

/// How many scrapes are answered at the same time: the daemon does so beside its work.
const SCRAPES: usize = 2;
/// How long a scrape waits for the daemon.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whose metrics are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The daemon's: it is asked for [`Status`](raddle_control::Status), [`Counters`](raddle_control::Counters) and
    /// [`Segments`](raddle_control::Segments).
    Daemon,
    /// Those of the proxies of `raddle rpc`, which are asked for [`Proxies`](raddle_control::Proxies).
    Proxies,
}

impl Source {
    /// Who is asked.
    fn who(self) -> Who {
        match self {
            Source::Daemon => DAEMON,
            Source::Proxies => PROXIES,
        }
    }

    fn text(self, requests: &Sender<Request>) -> Result<String, Unanswered> {
        let asked = Asked(requests, self.who());
        match self {
            Source::Daemon => Ok(daemon_text(&asked.ask()?, &asked.ask()?, &asked.ask()?)),
            Source::Proxies => Ok(proxies_text(&asked.ask()?)),
        }
    }
}

/// Why a scrape gets no text.
#[derive(Debug)]
enum Unanswered {
    /// There was no answer in time.
    Busy,
    /// There was, and it made no sense: a mistake of ours.
    Nonsense(raddle_control::Error),
}

/// Whether metrics may be served at this address: metrics have no access control.
///
/// # Errors
/// It is not a loopback address.
pub fn require_loopback(address: SocketAddr) -> Result<(), Error> {
    match address.ip().is_loopback() {
        true => Ok(()),
        false => Err(Error::NotLoopback(address)),
    }
}

/// Whether metrics could be served at this address now.
///
/// # Errors
/// It is not a loopback address, or cannot be listened at.
pub fn check(address: SocketAddr) -> Result<(), Error> {
    bind(address).map(drop)
}

fn bind(address: SocketAddr) -> Result<std::net::TcpListener, Error> {
    require_loopback(address)?;
    std::net::TcpListener::bind(address).map_err(failed(address))
}

fn failed(address: SocketAddr) -> impl Fn(io::Error) -> Error {
    move |source| Error::Listen { address, source }
}

/// Serves metrics at `http://ADDRESS/metrics`: [`Endpoint::bind`] and [`Endpoint::serve`].
///
/// # Errors
/// The address is not a loopback address or cannot be listened at, or there is no thread to be had.
pub fn serve(address: SocketAddr, source: Source) -> Result<Receiver<Request>, Error> {
    Endpoint::bind(address)?.serve(source)
}

/// An address that is listened at, so that nobody else can take it. Scrapes wait until it is served.
#[derive(Debug)]
pub struct Endpoint {
    listener: std::net::TcpListener,
    runtime: tokio::runtime::Runtime,
}

impl Endpoint {
    /// Listens.
    ///
    /// # Errors
    /// The address is not a loopback address or cannot be listened at.
    pub fn bind(address: SocketAddr) -> Result<Endpoint, Error> {
        let failed = failed(address);
        let listener = bind(address)?;
        listener.set_nonblocking(true).map_err(&failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(&failed)?;
        Ok(Endpoint { listener, runtime })
    }

    /// Answers scrapes from a thread of its own, until the process ends. A scrape's questions come through the channel, as
    /// those of the control socket do ([`raddle_control::Server`]); whoever has it answers them within three seconds, or the
    /// scrape is answered with 503.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn serve(self, source: Source) -> Result<Receiver<Request>, Error> {
        let Endpoint { listener, runtime } = self;
        let (requests, receiver) = channel();
        std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || {
                runtime.block_on(async move {
                    let app = Router::new()
                        .route("/metrics", get(scrape))
                        .with_state(Asks {
                            requests,
                            source,
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
            })
            .map_err(Error::Thread)?;
        Ok(receiver)
    }
}

/// Whom a scrape asks.
#[derive(Clone)]
struct Asks {
    requests: Sender<Request>,
    source: Source,
    turns: Arc<Semaphore>,
}

async fn scrape(State(asks): State<Asks>) -> Response {
    let Asks {
        requests,
        source,
        turns,
    } = asks;
    // One whose connection ends while it waits is forgotten; one that asks holds its turn until all is answered.
    let Ok(turn) = turns.acquire_owned().await else {
        return busy(source);
    };
    let text = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        source.text(&requests)
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
        Ok(Err(Unanswered::Busy)) | Err(_) => busy(source),
    }
}

fn busy(source: Source) -> Response {
    let said = format!("the {} is busy\n", source.who().name);
    (StatusCode::SERVICE_UNAVAILABLE, said).into_response()
}

/// Who is asked, and what it is called.
struct Asked<'a>(&'a Sender<Request>, Who);

impl Asked<'_> {
    /// The answer.
    fn ask<A: Answer>(&self) -> Result<A, Unanswered> {
        let command = A::COMMAND;
        let (answer, answers) = channel::<Reply>();
        let sent = self.0.send(Request { command, answer });
        sent.map_err(|_| Unanswered::Busy)?;
        let reply = answers.recv_timeout(PATIENCE);
        let reply = reply.map_err(|_| Unanswered::Busy)?;
        reply.read(self.1).map_err(Unanswered::Nonsense)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_control::{Command, Counters, Segments, Status};

    fn free() -> SocketAddr {
        let free = std::net::TcpListener::bind("127.0.0.1:0");
        free.and_then(|free| free.local_addr()).unwrap()
    }

    #[test]
    fn a_scrape_without_an_answer_says_whose_it_is() {
        use std::io::{Read, Write};
        for (source, who) in [
            (Source::Daemon, "the raddle daemon is busy\n"),
            (Source::Proxies, "the proxy (raddle rpc) is busy\n"),
        ] {
            let address = free();
            drop(serve(address, source).unwrap());
            let mut scrape = std::net::TcpStream::connect(address).unwrap();
            scrape
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
                .unwrap();
            let mut text = String::new();
            scrape.read_to_string(&mut text).unwrap();
            assert!(
                text.starts_with("HTTP/1.1 503") && text.ends_with(who),
                "{text}"
            );
        }
    }

    /// Connections that ask nothing, or little by little, keep no scrape out, however many they are.
    #[test]
    fn idle_connections_make_way() {
        use std::io::{Read, Write};
        let address = free();
        let requests = serve(address, Source::Daemon).unwrap();
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
        assert!(took < crate::connections::LONGEST, "a scrape took {took:?}");
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
