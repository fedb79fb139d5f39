//! Changes of what packets meet on their way beside the routes, as the kernel announces them: nftables, tc
//! (qdiscs, filters), xfrm policies.
//!
//! What exactly has changed is not looked at: whoever listens looks at everything again. Legacy iptables, IPVS, tcx
//! and BPF netfilter links are announced to nobody.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

use crate::error::Error;
use crate::socket::Socket;
use crate::wake::{Wake, wait_all};

/// `NFNLGRP_NFTABLES`, `RTNLGRP_TC`, `XFRMNLGRP_POLICY`.
const NFTABLES: u32 = 7;
const TC: u32 = 4;
const XFRM_POLICY: u32 = 4;
/// More than a look at what they say would take: that is never done.
const BUFFER: usize = 64 << 10;

/// Listens from when it is made on.
#[derive(Debug)]
pub struct Announced {
    count: Arc<AtomicU64>,
    news: Arc<Wake>,
    stop: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
    number: Option<i32>,
}

impl Announced {
    /// Listens in the calling thread's network namespace. With each announcement [`Announced::count`] is higher, and
    /// after that `doubt` is called: by a thread that must not wait for anybody.
    ///
    /// A kernel without one of these subsystems announces nothing of it.
    ///
    /// # Errors
    /// [`Error::Io`] where the system has no sockets or threads to give.
    pub fn open(doubt: impl Fn() + Send + 'static) -> Result<Announced, Error> {
        let sockets = [
            (libc::NETLINK_NETFILTER, NFTABLES),
            (libc::NETLINK_ROUTE, TC),
            (libc::NETLINK_XFRM, XFRM_POLICY),
        ];
        let sockets: Vec<Socket> = sockets
            .into_iter()
            .filter_map(|(protocol, group)| listen(protocol, group).transpose())
            .collect::<Result<_, _>>()?;
        let new = || Wake::new().map(Arc::new).map_err(failed("make an eventfd"));
        let (news, stop) = (new()?, new()?);
        let count = Arc::new(AtomicU64::new(0));
        let (tell, told) = std::sync::mpsc::channel();
        let thread = Builder::new().name("announced".to_owned()).spawn({
            let (count, news, stop) = (count.clone(), news.clone(), stop.clone());
            move || {
                let _ = tell.send(nix::unistd::gettid().as_raw());
                run(&sockets, &stop, || {
                    count.fetch_add(1, Ordering::SeqCst);
                    doubt();
                    news.set();
                });
            }
        });
        let thread = thread.map_err(failed("start a thread"))?;
        Ok(Announced {
            count,
            news,
            stop,
            number: told.recv().ok(),
            thread: Some(thread),
        })
    }

    /// How many announcements have come. A look at everything is up to date if this is after it what it was before
    /// it.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Readable from an announcement to [`Announced::taken`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// What has come will be looked at.
    pub fn taken(&self) {
        self.news.clear();
    }

    /// The kernel's number of the thread that listens.
    pub fn thread(&self) -> Option<i32> {
        self.number
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Io { what, source }
}

/// A socket that hears a group; none if the kernel was built without the protocol.
fn listen(protocol: libc::c_int, group: u32) -> Result<Option<Socket>, Error> {
    let Some(socket) = Socket::open_for(protocol)? else {
        return Ok(None);
    };
    socket.join(group)?;
    Ok(Some(socket))
}

/// Calls `tell` for whatever comes, until `stop` is set. What is lost (`ENOBUFS`) came, too. A socket that fails for
/// another reason is as if changes came all the time: `tell` is called once, and a thread that hears nothing any
/// more ends.
fn run(sockets: &[Socket], stop: &Wake, tell: impl Fn()) {
    let mut buffer = Vec::with_capacity(BUFFER);
    loop {
        let fds = sockets.iter().map(AsFd::as_fd).chain([stop.as_fd()]);
        match wait_all(fds) {
            Ok(ready) if ready.last() == Some(&true) => return,
            Ok(ready) if ready.contains(&true) => {}
            Ok(_) => continue,
            Err(_) => break,
        }
        // First of all: what is read is not looked at.
        tell();
        for socket in sockets {
            loop {
                buffer.clear();
                match socket.receive(&mut buffer, false) {
                    Ok(None) => break,
                    Ok(Some(_)) | Err(Error::Overrun | Error::Oversized(_)) => {}
                    Err(_) => return tell(),
                }
            }
        }
    }
    tell();
}
