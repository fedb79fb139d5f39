//! The connections of the metrics endpoint, which every user of this machine can make: so many at a time, and none for
//! long.
//!
//! 1. Everybody is taken in at once: no scrape waits for another connection.
//! 2. Where there are too many, the oldest goes that has no request complete; where all have, the oldest.
//! 3. Each ends after [`LONGEST`], idle or not; the next scrape makes another.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Connections at a time: the daemon needs its descriptors for other things.
const MOST: usize = 16;
/// How long a connection may last.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);
/// What a request ends with.
const END: &[u8] = b"\r\n\r\n";

/// What a connection and its listener know of each other.
#[derive(Debug, Default)]
struct Shared {
    /// A request is complete.
    asked: AtomicBool,
    /// It makes way for another one.
    dismissed: AtomicBool,
    /// Whoever waits for it.
    waker: Mutex<Option<Waker>>,
}

impl Shared {
    fn dismiss(&self) {
        self.dismissed.store(true, Ordering::Release);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waker) = waker.as_ref() {
            waker.wake_by_ref();
        }
    }
}

/// Takes in everybody, and keeps no more than [`MOST`].
pub(crate) struct Bounded {
    listener: tokio::net::TcpListener,
    /// The oldest first.
    open: VecDeque<Arc<Shared>>,
}

impl Bounded {
    pub(crate) fn new(listener: tokio::net::TcpListener) -> Bounded {
        Bounded {
            listener,
            open: VecDeque::new(),
        }
    }

    /// Room for one more (rule 2).
    fn admit(&mut self) -> Arc<Shared> {
        // A connection that is over holds nothing any more.
        self.open.retain(|shared| Arc::strong_count(shared) > 1);
        if self.open.len() >= MOST {
            let asked = |shared: &Arc<Shared>| shared.asked.load(Ordering::Relaxed);
            let oldest = self.open.iter().position(|shared| !asked(shared));
            if let Some(shared) = self.open.remove(oldest.unwrap_or(0)) {
                shared.dismiss();
            }
        }
        let shared = Arc::<Shared>::default();
        self.open.push_back(Arc::clone(&shared));
        shared
    }
}

impl axum::serve::Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
        let connection = Connection {
            stream,
            end: Box::pin(tokio::time::sleep(LONGEST)),
            shared: self.admit(),
            last: [0; END.len()],
        };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends by itself after [`LONGEST`], or when it is dismissed.
pub(crate) struct Connection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    shared: Arc<Shared>,
    /// The last bytes that came.
    last: [u8; END.len()],
}

impl Connection {
    /// Does `poll`, unless the time is up.
    fn in_time<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut waker = self
            .shared
            .waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !waker.as_ref().is_some_and(|w| w.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        drop(waker);
        if self.shared.dismissed.load(Ordering::Acquire) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => poll(Pin::new(&mut self.stream), context),
        }
    }

    /// Notes whether these bytes complete a request.
    fn came(&mut self, bytes: &[u8]) {
        let new = &bytes[bytes.len().saturating_sub(END.len())..];
        self.last.rotate_left(new.len());
        let from = END.len() - new.len();
        self.last[from..].copy_from_slice(new);
        self.shared.asked.store(self.last == END, Ordering::Relaxed);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = self.in_time(context, |stream, context| stream.poll_read(context, buffer));
        if buffer.filled().len() > before {
            self.came(&buffer.filled()[before..]);
        }
        read
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
