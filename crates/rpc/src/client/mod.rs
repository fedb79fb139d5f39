//! An RPC client for other programs, over the same transports as the proxy.
//!
//! Many calls are on their way at once, over several connections; XIDs, the choice of a connection, dead
//! connections and what becomes of their calls are the proxy's, by the same rules ([`crate::dispatch`],
//! [`crate::liveness`], [`crate::replay`]).
//!
//! ```no_run
//! use raddle_rpc::client::{Client, Config, Credentials, Direct};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect(Direct::to("10.0.0.2:2049".parse()?), Config::default()).await?;
//! let root = Credentials::sys("client1", 0, 0, &[])?;
//! // NFSv3, NULL: no arguments, no results.
//! let reply = client.call(100_003, 3, 0, &root, Default::default()).await?;
//! assert!(reply.results.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! [`Client`] may be used from any thread, and any runtime; [`Local`] only within one thread. The example
//! `nfs-getattr` mounts an export, and asks for its attributes as often and as fast as it is told.

mod config;
mod credentials;
mod direct;
mod local;
mod request;

use std::rc::Rc;
use std::sync::Arc;
use std::thread::Builder;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::LocalSet;

use crate::proxy::{Connect, Message, Status, first};
pub use config::{Config, ConnectError};
pub use credentials::{Credentials, CredentialsError};
pub use direct::Direct;
pub use local::Local;
pub use raddle_rpc_core::reply::{AuthStatus, CallError, Reply};
pub use request::Request;

/// A client with a thread of its own for its connections. It may be cloned and used from any thread; the
/// connections close when the last clone is gone.
#[derive(Clone, Debug)]
pub struct Client {
    questions: mpsc::UnboundedSender<Question>,
    room: Arc<Semaphore>,
    most: u32,
}

/// What the client's thread is asked.
#[derive(Debug)]
enum Question {
    /// To make a call. It is counted until it has its reply.
    Call {
        message: Message,
        answer: oneshot::Sender<Result<Reply, CallError>>,
        counted: OwnedSemaphorePermit,
    },
    /// What the transports do.
    Status(oneshot::Sender<Status>),
}

impl Client {
    /// Connects, and waits until one connection stands. The others are made meanwhile, and all are made again
    /// when they fail, for as long as the client lives.
    ///
    /// # Errors
    /// [`ConnectError`]: a value is out of its range, no connection stands within [`Config::patience`], or there
    /// is no thread to be had.
    pub async fn connect<C>(connect: C, config: Config) -> Result<Client, ConnectError>
    where
        C: Connect + Send + 'static,
    {
        config.check()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(ConnectError::Thread)?;
        let (questions, asked) = mpsc::unbounded_channel();
        let (ready, stands) = oneshot::channel();
        let (room, most) = (Arc::new(Semaphore::new(config.calls)), config.most);
        // What runs in the thread is made in it, since it never leaves.
        let run = move || {
            let serving = async move {
                match Local::connect(Rc::new(connect), config).await {
                    Ok(local) => {
                        if ready.send(Ok(())).is_ok() {
                            answer(Rc::new(local), asked).await;
                        }
                    }
                    Err(e) => drop(ready.send(Err(e))),
                }
            };
            runtime.block_on(LocalSet::new().run_until(serving));
        };
        let thread = Builder::new().name("raddle-rpc".into());
        thread.spawn(run).map_err(ConnectError::Thread)?;
        let ended = || ConnectError::NoConnection("the client's thread has ended".into());
        stands.await.unwrap_or_else(|_| Err(ended()))?;
        Ok(Client {
            questions,
            room,
            most,
        })
    }

    /// Makes a call, and waits for its reply; any number may be made at once, of which [`Config::calls`] are on
    /// their way. There is no limit of time: put a [`tokio::time::timeout`] around it. Dropping the future ends
    /// the call: it is not sent if it has not been, and its reply is not kept. The server may have run it.
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
        let room = Arc::clone(&self.room).acquire_owned();
        let counted = room.await.map_err(|_| CallError::Ended)?;
        let (answer, answered) = oneshot::channel();
        let question = Question::Call {
            message,
            answer,
            counted,
        };
        let asked = self.questions.send(question);
        asked.map_err(|_| CallError::Ended)?;
        answered.await.unwrap_or(Err(CallError::Ended))
    }

    /// What its transports do.
    ///
    /// # Errors
    /// [`CallError::Ended`].
    pub async fn status(&self) -> Result<Status, CallError> {
        let (answer, answered) = oneshot::channel();
        let asked = self.questions.send(Question::Status(answer));
        asked.map_err(|_| CallError::Ended)?;
        answered.await.map_err(|_| CallError::Ended)
    }
}

/// Answers until nobody can ask any more.
async fn answer(local: Rc<Local>, mut asked: mpsc::UnboundedReceiver<Question>) {
    while let Some(question) = asked.recv().await {
        match question {
            Question::Call {
                message,
                mut answer,
                counted,
            } => {
                let local = Rc::clone(&local);
                tokio::task::spawn_local(async move {
                    let unwanted = async {
                        answer.closed().await;
                        None
                    };
                    let done = first(async { Some(local.transfer(message).await) }, unwanted).await;
                    drop(counted);
                    if let Some(done) = done {
                        // Nobody may wait for it any more by now.
                        let _ = answer.send(done);
                    }
                });
            }
            Question::Status(answer) => drop(answer.send(local.status())),
        }
    }
}
