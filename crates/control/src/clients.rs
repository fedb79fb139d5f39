//! The clients of the control socket: each has a thread of its own for as long as it takes, and there are so many
//! at a time.
//!
//! 1. Everybody is taken in at once: nobody waits for another client, only for the daemon.
//! 2. Where there are too many, the oldest that has not asked anything goes; where all have asked, the oldest.
//! 3. When there are no descriptors left, one goes likewise.

use std::collections::VecDeque;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Clients at a time.
const MOST: usize = 32;
/// Bytes of a client's stack: what it asks is small, and the answer is a tree of few levels.
const STACK: usize = 256 << 10;
/// After an error that one cannot do anything about.
const REST: Duration = Duration::from_millis(50);

struct Client {
    stream: Arc<UnixStream>,
    asked: bool,
}

/// Those that are there, the oldest first.
#[derive(Default)]
struct Clients(Mutex<VecDeque<Client>>);

impl Clients {
    /// A thread that panicked has left a list that is whole.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, stream: &Arc<UnixStream>) {
        let mut all = self.lock();
        if all.len() >= MOST {
            dismiss(&mut all);
        }
        all.push_back(Client {
            stream: Arc::clone(stream),
            asked: false,
        });
    }

    fn asked(&self, stream: &Arc<UnixStream>) {
        let mut all = self.lock();
        if let Some(client) = all.iter_mut().find(|c| Arc::ptr_eq(&c.stream, stream)) {
            client.asked = true;
        }
    }

    fn done(&self, stream: &Arc<UnixStream>) {
        self.lock().retain(|c| !Arc::ptr_eq(&c.stream, stream));
    }
}

/// Rule 2. Its thread ends with its connection.
fn dismiss(all: &mut VecDeque<Client>) {
    let oldest = all.iter().position(|client| !client.asked).unwrap_or(0);
    if let Some(client) = all.remove(oldest) {
        let _ = client.stream.shutdown(Shutdown::Both);
    }
}

/// Takes clients in until the process ends; `serve` answers one, and says when it has asked.
pub(super) fn accept(
    listener: &UnixListener,
    serve: impl Fn(&UnixStream, &dyn Fn()) + Send + Sync + 'static,
) {
    let clients = Arc::new(Clients::default());
    let serve = Arc::new(serve);
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => Arc::new(stream),
            Err(e) => {
                if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
                    dismiss(&mut clients.lock());
                }
                std::thread::sleep(REST);
                continue;
            }
        };
        clients.admit(&stream);
        let (all, serve, its) = (Arc::clone(&clients), Arc::clone(&serve), stream.clone());
        let thread = std::thread::Builder::new()
            .name("control-client".into())
            .stack_size(STACK)
            .spawn(move || {
                serve(&its, &|| all.asked(&its));
                all.done(&its);
            });
        if thread.is_err() {
            // Dropped, which the client sees.
            clients.done(&stream);
            std::thread::sleep(REST);
        }
    }
}
