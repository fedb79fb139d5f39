//! A server that knows which calls must not be run twice, as knfsd and nfs-ganesha do, and logs what it has run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::rpc::{Pair, SERVER, inside, record, send};

/// NFSv3's WRITE; its words are a name, and who writes.
pub const WRITE: u32 = 7;
/// Its MKDIR; its word is a name.
pub const MKDIR: u32 = 9;
/// Its REMOVE; its word is a name.
pub const REMOVE: u32 = 12;
/// Its RENAME; its words are two names.
pub const RENAME: u32 = 14;

/// How long a call of this procedure and name waits before it is run, and its reply after that.
pub type Pace = fn(u32, u32) -> [Duration; 2];

/// A server's memory.
#[derive(Debug, Default)]
pub struct Server {
    /// The replies that it remembers, by peer, XID and a sum of the call; none of a call that is being run.
    cache: BTreeMap<(SocketAddr, u32, u64), Option<u32>>,
    /// Names that there are.
    pub tree: BTreeSet<u32>,
    /// What was written last, by worker.
    pub written: BTreeMap<u32, u32>,
    /// What was run: procedure and name, and how often.
    pub runs: BTreeMap<(u32, u32), u32>,
    /// Calls that it knew already.
    pub hits: u32,
}

fn word(call: &[u8], i: usize) -> u32 {
    u32::from_be_bytes(std::array::from_fn(|byte| call[4 * i + byte]))
}

fn lock(server: &Mutex<Server>) -> MutexGuard<'_, Server> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// The status of a call: 0, 2 (no such name), 17 (it exists); none while it is being run.
    fn call(
        server: &Mutex<Server>,
        peer: SocketAddr,
        call: &[u8],
        before: Duration,
    ) -> Option<u32> {
        let sum = call.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        let key = (peer, word(call, 0), sum);
        let (procedure, name) = (word(call, 5), word(call, 10));
        let mut of = lock(server);
        if let Some(status) = of.cache.get(&key).copied() {
            of.hits += 1;
            return status;
        }
        of.cache.insert(key, None);
        if !before.is_zero() {
            drop(of);
            std::thread::sleep(before);
            of = lock(server);
        }
        *of.runs.entry((procedure, name)).or_default() += 1;
        let status = match procedure {
            MKDIR if of.tree.insert(name) => 0,
            MKDIR => 17,
            REMOVE if of.tree.remove(&name) => 0,
            RENAME if of.tree.remove(&name) => {
                of.tree.insert(word(call, 11));
                0
            }
            WRITE => {
                of.written.insert(word(call, 11), name);
                0
            }
            _ => 2,
        };
        of.cache.insert(key, Some(status));
        Some(status)
    }
}

/// Serves in the pair's server.
///
/// # Panics
/// When it cannot listen.
pub fn serve(pair: &Pair, pace: Pace) -> Arc<Mutex<Server>> {
    let server = Arc::new(Mutex::new(Server::default()));
    let listener = inside(&pair.server, || TcpListener::bind((SERVER, 2049)).unwrap());
    let shared = Arc::clone(&server);
    std::thread::spawn(move || {
        while let Ok((mut stream, peer)) = listener.accept() {
            let server = Arc::clone(&shared);
            std::thread::spawn(move || {
                while let Ok(call) = record(&mut stream) {
                    let null = word(&call, 5) == 0;
                    let [before, after] = match null {
                        true => [Duration::ZERO; 2],
                        false => pace(word(&call, 5), word(&call, 10)),
                    };
                    let status = match null {
                        true => Some(0),
                        false => Server::call(&server, peer, &call, before),
                    };
                    let Some(status) = status else { continue };
                    std::thread::sleep(after);
                    if send(&mut stream, &[word(&call, 0), 1, 0, 0, 0, 0, status], 0).is_err() {
                        return;
                    }
                }
            });
        }
    });
    server
}
