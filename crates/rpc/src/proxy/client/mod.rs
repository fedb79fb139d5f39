//! A client's connection.

mod read;
mod write;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout_at;

use super::first;
use super::peer::user_of;
use super::shared::{Shared, Socket};
use crate::core::ClientId;
use read::{linger, read};
use write::write;

/// Bytes that a read takes at most.
pub(super) const READ: usize = 256 << 10;
/// Chunks that a write takes.
pub(super) const SLICES: usize = 64;

/// Bytes of replies that the kernel may hold unsent: what is in there comes before every other reply.
const UNSENT: libc::c_int = 512 << 10;

/// Bytes that have to move within [`crate::proxy::Config::patience`] where a record is under way, unless that ends: a
/// client that is too slow holds memory that others could use.
const PACE: usize = 1 << 20;

/// How fast a client reads or writes.
struct Pace {
    patience: Duration,
    since: tokio::time::Instant,
    moved: usize,
}

impl Pace {
    fn new(patience: Duration) -> Pace {
        Pace {
            patience,
            since: tokio::time::Instant::now(),
            moved: 0,
        }
    }

    /// Counts from now on.
    fn begin(&mut self) {
        *self = Pace::new(self.patience);
    }

    /// So many bytes have moved.
    fn moved(&mut self, bytes: usize) {
        self.moved += bytes;
        if self.moved >= PACE {
            self.begin();
        }
    }

    /// Waits until a socket is ready.
    ///
    /// # Errors
    /// `TimedOut` when it is not in time.
    async fn ready(&self, ready: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        match timeout_at(self.since + self.patience, ready).await {
            Ok(ready) => ready,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Takes a client in, or refuses it where there are too many.
pub(super) fn welcome(shared: &Rc<Shared>, stream: TcpStream, peer: SocketAddr) {
    // Before it could have one closed that is idle.
    if shared.with(|core, now, _| core.refuses_port(now, peer)) {
        return;
    }
    let user = user_of(stream.local_addr().unwrap_or(peer), peer);
    let client = shared.with(|core, now, actions| core.welcome(now, peer, user, actions));
    let Some(client) = client else {
        return;
    };
    let _ = stream.set_nodelay(true);
    // The kernel may know better what it can hold; then small replies wait for more.
    let _ = keep_unsent_small(&stream);
    let socket = shared.enter(client, Socket::default());
    let served = serve(Rc::clone(shared), client, Rc::clone(&socket), stream);
    socket.serve(tokio::task::spawn_local(served).abort_handle());
}

/// Has the kernel take no more than [`UNSENT`] bytes before it has sent them (`TCP_NOTSENT_LOWAT`).
fn keep_unsent_small(stream: &TcpStream) -> io::Result<()> {
    let bytes: libc::c_int = UNSENT;
    // SAFETY: the value is an integer of the length that is told, and lives through the call.
    let done = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

async fn serve(shared: Rc<Shared>, client: ClientId, socket: Rc<Socket>, stream: TcpStream) {
    let (reader, writer) = stream.into_split();
    let why = first(
        read(&shared, client, &socket, &reader),
        write(&shared, client, &socket, &writer),
    )
    .await;
    drop(writer);
    if shared.ends() && !why.is_bad {
        linger(&reader).await;
    }
    shared.end_client(client, &why.text, why.is_bad);
}

/// Why a connection ends.
struct End {
    text: String,
    is_bad: bool,
}

impl End {
    fn bad(text: impl ToString) -> End {
        End {
            text: text.to_string(),
            is_bad: true,
        }
    }

    fn of(error: &io::Error) -> End {
        End {
            text: error.to_string(),
            is_bad: false,
        }
    }
}
