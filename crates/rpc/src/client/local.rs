//! A client within one thread.

use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::config::{Config, ConnectError};
use super::{CallError, Reply};
use super::{Credentials, Request};
use crate::proxy::{Connect, Lost, Message, Proxy, Status, TransportState};

/// How often it is looked whether the first connection stands.
const LOOK: Duration = Duration::from_millis(5);

/// A client whose transports run in the thread that uses it, within a [`tokio::task::LocalSet`]: the cheapest way
/// to make calls. Dropping it closes the connections.
pub struct Local {
    proxy: Proxy,
    room: Semaphore,
    most: u32,
}

impl Local {
    /// Connects, as [`super::Client::connect`] does.
    ///
    /// # Errors
    /// [`ConnectError`]: a value is out of its range, or no connection stands within [`Config::patience`].
    ///
    /// # Panics
    /// Outside of a [`tokio::task::LocalSet`].
    pub async fn connect(connect: Rc<dyn Connect>, config: Config) -> Result<Local, ConnectError> {
        config.check()?;
        // XIDs start anywhere, so that a server does not take them for those of the last run.
        let start = RandomState::new().hash_one(std::process::id()) as u32;
        let client = Local {
            proxy: Proxy::start(config.of_transports(), connect, start),
            room: Semaphore::new(config.calls),
            most: config.most,
        };
        let begun = Instant::now();
        loop {
            tokio::time::sleep(LOOK).await;
            let mut why = String::new();
            for transport in client.status().transports {
                match transport.state {
                    TransportState::Up { .. } => return Ok(client),
                    TransportState::Down { why: said } => why = said,
                }
            }
            if begun.elapsed() >= config.patience {
                return Err(ConnectError::NoConnection(why));
            }
        }
    }

    /// Makes a call, and waits for its reply, as [`super::Client::call`] does.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call(
        &self,
        program: u32,
        version: u32,
        procedure: u32,
        credentials: &Credentials,
        arguments: Bytes,
    ) -> Result<Reply, CallError> {
        let request = Request::new(program, version, procedure).credentials(credentials);
        self.send(request.arguments(arguments)).await
    }

    /// The same, for a call that says more about itself.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn send(&self, request: Request) -> Result<Reply, CallError> {
        let message = request.message(self.most)?;
        // Nobody closes the semaphore.
        let _room = self.room.acquire().await.map_err(|_| CallError::Ended)?;
        self.transfer(message).await
    }

    /// The same, for whoever has counted it.
    pub(super) async fn transfer(&self, message: Message) -> Result<Reply, CallError> {
        match self.proxy.call(message).await {
            Ok(record) => Reply::parse(&record),
            Err(Lost::Connection(why)) => Err(CallError::Lost(why)),
            Err(Lost::Stopped) => Err(CallError::Ended),
        }
    }

    /// What its transports do.
    pub fn status(&self) -> Status {
        self.proxy.status()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.proxy.stop();
    }
}
