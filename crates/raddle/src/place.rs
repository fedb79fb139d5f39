//! `raddle place`: connections of any program, each on a path of its own.

use std::io::{self, PipeWriter, pipe};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use raddle_image::Capacity;
use raddle_place::{Place, cgroup};
use raddle_text::Table;

use crate::cli;
use crate::error::Failure;
use crate::signals;

/// How soon a signal is passed on.
const SOON: Duration = Duration::from_millis(20);

/// Places connections of a program until it ends, or those of a cgroup until a signal comes.
pub(crate) fn run(args: &cli::Place) -> Result<(), Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::needs_root("raddle place"));
    }
    crate::logging::start(false);
    crate::run::leave_no_core();
    // Before the first thread: one that does not block the signals would be ended by them.
    let signal = signals::last_signal()?;
    let mut place = Place::start(&Capacity::default())?;
    for line in place.hindrances() {
        tracing::warn!("{line}");
    }
    let status = match args.command.as_slice() {
        [] => {
            let name = args.cgroup.as_deref().unwrap_or(Path::new("/"));
            place.attach(cgroup::open(name)?.as_fd())?;
            serve(&mut place, signal)?;
            None
        }
        [program, words @ ..] => Some(run_program(&mut place, program, words, signal)?),
    };
    if args.summary {
        summarize(&place);
    }
    match status {
        Some(status) => end_as(status),
        None => Ok(()),
    }
}

/// Follows the kernel until a signal comes.
fn serve(place: &mut Place, signal: Arc<AtomicI32>) -> Result<(), Failure> {
    let (reader, writer) = pipe()?;
    // It lives as long as the process, which has nothing else to do then.
    std::thread::spawn(move || {
        let _open: PipeWriter = writer;
        while signal.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(SOON);
        }
    });
    Ok(place.follow(reader.as_fd())?)
}

/// Runs a program in a cgroup of its own. SIGTERM and SIGHUP are passed on to it; an interrupt from the terminal it gets itself.
fn run_program(
    place: &mut Place,
    program: &str,
    words: &[String],
    signal: Arc<AtomicI32>,
) -> Result<ExitStatus, Failure> {
    let own = cgroup::Own::enter()?;
    place.attach(own.open()?.as_fd())?;
    let child = Command::new(program).args(words).spawn();
    own.leave()?;
    let child = child.map_err(|e| Failure::new(127, format!("cannot run {program}: {e}")))?;
    let (reader, writer) = pipe()?;
    let ended = std::thread::spawn(move || wait(child, &signal, writer));
    place.follow(reader.as_fd())?;
    let status = ended
        .join()
        .map_err(|_| Failure::system("a thread ended"))?;
    Ok(status?)
}

/// Waits until the program has ended; `_open` is closed then.
fn wait(mut child: Child, signal: &AtomicI32, _open: PipeWriter) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        match Signal::try_from(signal.swap(0, Ordering::Relaxed)) {
            Ok(Signal::SIGINT) | Err(_) => {}
            Ok(signal) => {
                // It has not been waited for, so its number is still its own.
                let _ = kill(Pid::from_raw(child.id().cast_signed()), signal);
            }
        }
        std::thread::sleep(SOON);
    }
}

fn summarize(place: &Place) {
    let mut table = Table::new(["connections", "outcome", ""]);
    for (outcome, count) in place.outcomes() {
        table.row([&count.to_string(), outcome.name(), outcome.text()]);
    }
    eprint!("{}", table.render());
}

/// Ends as the program did: with its exit code, or as a shell tells of a signal.
fn end_as(status: ExitStatus) -> Result<(), Failure> {
    let signal = || 128 + status.signal().unwrap_or(0);
    let code = status.code().unwrap_or_else(signal);
    if code != 0 {
        std::process::exit(code);
    }
    Ok(())
}
