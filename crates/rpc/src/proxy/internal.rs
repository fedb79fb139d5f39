//! Internal calls, of the program itself: clients without a connection, one for each call.
//!
//! To all the rest they are clients like others: what becomes of their calls when a connection fails, or
//! when nobody wants the reply any more, is decided in one place.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::Proxy;
use super::shared::{Shared, Socket};
use crate::core::ClientId;
use crate::message;
use crate::program::Class;
use crate::record::{Marks, Step};

/// Where the stream of a reply goes, or the reason why there is none.
pub(super) type Taker = oneshot::Sender<Result<Vec<Bytes>, String>>;

/// What stands for the address of a client without a connection; no connection comes from there.
const INTERNAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A call without record marks, in two parts so that large arguments need no copy.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The header, with any XID, and as much of the arguments as decides how it is treated.
    pub head: Bytes,
    /// The rest of the arguments.
    pub rest: Bytes,
    /// What it does when it is made twice, where the caller knows.
    pub class: Option<Class>,
}

/// Why a call has no reply.
#[derive(Clone, Debug)]
pub(crate) enum Lost {
    /// Its connection failed, and it could not be repeated.
    Connection(String),
    /// The proxy has stopped.
    Stopped,
}

/// Ends a call that nobody waits for any more.
struct Wanted {
    shared: Rc<Shared>,
    client: ClientId,
}

impl Drop for Wanted {
    fn drop(&mut self) {
        let why = "nobody waits for the reply";
        self.shared.end_client(self.client, why, false);
    }
}

impl Proxy {
    /// Makes a call, and gives the record that answers it, without marks. Waits for room before it takes
    /// the call. Dropping the future ends the call as far as that is possible.
    ///
    /// # Errors
    /// [`Lost`]: by a rule of [`crate::replay::decide`], or because the proxy was stopped.
    pub(crate) async fn call(&self, message: Message) -> Result<Bytes, Lost> {
        let header = message::Call::parse(&message.head);
        let header = header.map_err(|e| Lost::Connection(e.to_string()))?;
        let shared = &self.shared;
        shared.room_for_calls().await;
        let (taker, taken) = oneshot::channel();
        let client = shared.with(|core, now, _| core.welcome_internal(now, INTERNAL));
        shared.enter(client, Socket::taken_by(taker));
        let wanted = Wanted {
            shared: Rc::clone(shared),
            client,
        };
        let parts = (message.head, message.rest, message.class);
        shared.with(|core, now, actions| core.call(now, client, header, parts, actions));
        let reply = taken.await.map_err(|_| Lost::Stopped)?;
        drop(wanted);
        let reply = reply.map_err(Lost::Connection)?;
        Ok(record(reply))
    }
}

/// A reply without its marks; copied where it came in several pieces.
fn record(reply: Vec<Bytes>) -> Bytes {
    let mut pieces = Vec::new();
    // What has come was checked for its length.
    let mut marks = Marks::new(u32::MAX);
    for mut chunk in reply {
        while let Ok((taken, step)) = marks.step(&chunk) {
            let piece = chunk.split_to(taken);
            match step {
                Step::More | Step::End => break,
                Step::Payload(_) => pieces.push(piece),
                Step::Fragment { .. } => {}
            }
        }
    }
    match pieces.as_slice() {
        [piece] => piece.clone(),
        _ => pieces.concat().into(),
    }
}
