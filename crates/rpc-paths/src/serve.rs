//! Serves servers until it is told to stop: what the process does besides the proxies.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use raddle_control::{Command, PROXIES, Proxies, Reply, Request};
use tokio::task::LocalSet;

use crate::config::{Config, Process};
use crate::reload::Reads;
use crate::servers::Servers;
use crate::trim::Trim;
use crate::{Error, Server};

/// How often questions and signals are looked for.
const TICK: Duration = Duration::from_millis(50);

/// What a process serves, and by what it is asked and told.
#[derive(Debug)]
pub struct Options<'a> {
    /// The servers; of a file, what it says.
    pub servers: Vec<Server>,
    /// The file, which is read again on `reload`, and what it said of the process.
    pub file: Option<(PathBuf, Process)>,
    /// What journals' names begin with.
    pub journals: PathBuf,
    /// By whom and how it is asked and told.
    pub asked: Asked<'a>,
}

/// By what a process is asked and told.
#[derive(Debug)]
pub struct Asked<'a> {
    /// Questions, as of a control socket and of metrics.
    pub requests: Vec<&'a Receiver<Request>>,
    /// It is to end.
    pub stop: &'a AtomicBool,
    /// The file is to be read again.
    pub reload: &'a AtomicBool,
}

/// What a service manager wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Servers are served.
    Ready,
    /// What is under way is finished, and nothing new begun.
    Stopping,
}

/// Serves until it is to stop, and ends in order. It is for a process of its own: it has the C library keep freed memory,
/// and raises the number of files that may be open.
///
/// # Errors
/// None of the servers can be served, or one never, at the start; or a listener fails later.
pub fn serve(options: Options<'_>, phase: impl Fn(Phase)) -> Result<(), Error> {
    keep_memory();
    open_many();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let done = runtime.block_on(LocalSet::new().run_until(async {
        let mut servers = Servers::start(options.servers, options.journals).await?;
        phase(Phase::Ready);
        let mut file = options.file.map(|(path, first)| Watched {
            reads: Reads::first(path.clone(), Instant::now()),
            path,
            first,
        });
        let done = attend(&mut servers, options.asked, &mut file).await;
        phase(Phase::Stopping);
        servers.drain().await;
        done
    }));
    // A name server that does not answer holds nobody up.
    runtime.shutdown_background();
    done
}

/// Has the C library keep what is freed: buffers of replies come and go by hundreds of KiB, and pages that
/// are given back and asked for again, zeroed, take a sixth of the proxy's time.
fn keep_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the options are known, the values in range; no other thread changes them.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, 256 << 20);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TOP_PAD, 1 << 20);
    }
}

/// Has the C library give back what is free, once nothing is under way that would ask for it again.
fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number, and looks at the library's own lists, with their lock.
    unsafe {
        libc::malloc_trim(1 << 20);
    }
}

/// Has the process open as many files as it may: many systems start programs with 1024, which is fewer than the
/// clients of one server.
fn open_many() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // What cannot be raised stays.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// The file that it was started by.
struct Watched {
    path: PathBuf,
    /// What it said of the process then.
    first: Process,
    reads: Reads,
}

/// What all servers do, and what is known of the configuration.
fn answer(servers: &Servers, file: Option<&Watched>) -> Proxies {
    Proxies {
        servers: servers.status(),
        config: file.map(|file| file.reads.said(Instant::now())),
    }
}

/// Answers questions until it is to stop, or a listener fails.
async fn attend(
    servers: &mut Servers,
    options: Asked<'_>,
    file: &mut Option<Watched>,
) -> Result<(), Error> {
    let Asked {
        requests,
        stop,
        reload,
    } = options;
    let mut trim = Trim::default();
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(TICK).await;
        if trim.is_due(servers.kept(), Instant::now()) {
            give_memory_back();
        }
        for requests in &requests {
            while let Ok(request) = requests.try_recv() {
                let answer = match request.command {
                    Command::Rpc => Reply::of(&answer(servers, file.as_ref())),
                    command => Reply::not_mine(command, PROXIES),
                };
                let _ = request.answer.send(answer);
            }
        }
        if reload.swap(false, Ordering::Relaxed) {
            match file {
                Some(file) => read_again(servers, file).await,
                None => tracing::warn!(
                    "SIGHUP does nothing without --config: there is no file to read again"
                ),
            }
        }
        servers.tend().await;
        if let Some(failure) = servers.ended().await {
            return Err(failure);
        }
    }
    Ok(())
}

async fn read_again(servers: &mut Servers, file: &mut Watched) {
    match Config::load(&file.path) {
        Ok(read) => {
            if read.process != file.first {
                tracing::warn!(
                    "metrics, socket and log-json are as they were; they change when raddle rpc starts again"
                );
            }
            servers.change_to(read.servers).await;
            file.reads.again(Instant::now());
        }
        Err(e) => {
            let why = e.one_line();
            tracing::error!("configuration refused, what was read before holds: {why}");
            file.reads.refused(why, Instant::now());
        }
    }
}
