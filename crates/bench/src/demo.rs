//! `raddle-bench demo`: what raddle is for, shown on a fabric of network namespaces.
//!
//! Three TCP streams cross a Clos fabric whose leaves have two links upwards. Which links they take
//! is predicted, observed and compared, for two hash policies, with ports of the system's and of
//! our choosing, forwarded by the kernel and by raddle. Then raddle starts and stops in mid-transfer.
//!
//! [`plan`] says what is measured; [`fabric`], [`daemons`], [`iperf`], [`tap`] and [`predict`] deal
//! with the outside; [`measure`] and [`takeover`] put them together; [`report`], [`text`] and
//! [`chart`] tell the result.

mod chart;
mod daemons;
mod fabric;
mod iperf;
mod measure;
mod plan;
mod predict;
mod report;
mod takeover;
mod tap;
mod text;

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use raddle_lab::{HashPolicy, Interrupt, Rate};

use crate::cli;
use crate::program;
use daemons::Daemons;
use fabric::{Fabric, Progress};
use measure::Outcome;
use plan::{Forwarder, Measurement, Ports};
use predict::Oracle;
use raddle_exit::Failure;
use report::Report;
use takeover::Takeover;

/// Runs the demo. The fabric is removed however it ends.
///
/// # Errors
/// What is missing or failed; and exit code 3 when something was not as promised.
pub(crate) fn run(args: &cli::Demo) -> Result<(), Failure> {
    fabric::preflight()?;
    let raddle = program::raddle()?;
    std::fs::create_dir_all(&args.out).map_err(|e| {
        Failure::usage(format!(
            "cannot make the directory {}: {e}",
            args.out.display()
        ))
    })?;
    // Before anything is built, and until all of it is gone: a signal ends the work, not the process.
    let interrupt = Interrupt::catch();
    let fabric = Fabric::up(args.rate)?;
    let result = perform(&fabric, &interrupt, args.rate, args.seconds);
    let flow = example(&fabric);
    // A failure of the demo is worth more than one of cleaning up after it.
    let down = fabric.lab.down();
    // A signal reaches what runs in the fabric, too: its failures then say nothing.
    interrupt.check()?;
    let report = result?;
    down?;
    print!("{}", text::render(&report));
    let files = write(&report, &args.out)?;
    println!(
        "{}",
        text::next(&program::called(&raddle), &flow, &files).trim_end()
    );
    match report.problems.len() {
        0 => Ok(()),
        n => Err(Failure::system(format!(
            "{n} of raddle's promises did not hold, see above"
        ))),
    }
}

/// All measurements, then the takeover.
fn perform(
    fabric: &Fabric,
    interrupt: &Interrupt,
    rate: Rate,
    seconds: u32,
) -> Result<Report, Failure> {
    let chosen = choose(fabric)?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut show = Show {
        progress: Progress::new(),
        done: 0,
    };
    let mut takes = Duration::ZERO;
    for forwarder in [Forwarder::Kernel, Forwarder::Raddle] {
        let daemons = match forwarder {
            Forwarder::Kernel => None,
            Forwarder::Raddle => {
                show.step("starting raddle on every leaf and spine");
                let began = Instant::now();
                let daemons = Daemons::start(fabric)?;
                takes = began.elapsed();
                Some(RefCell::new(daemons))
            }
        };
        let forwarded = || daemons.as_ref().map(|d| d.borrow().forwarded()).transpose();
        for it in plan::measurements().filter(|it| it.forwarder == forwarder) {
            show.measuring(it);
            fabric.lab.set_policy(it.policy)?;
            if let Some(daemons) = &daemons {
                daemons.borrow_mut().wait_policy(it.policy)?;
            }
            let ports = (it.ports == Ports::Chosen).then_some(chosen);
            let outcome = measure::measure(fabric, interrupt, it, ports, seconds, &forwarded)?;
            show.result(&text::line(&outcome));
            outcomes.push(outcome);
        }
        if let Some(daemons) = daemons {
            daemons.into_inner().stop()?;
        }
    }
    show.step("one long transfer: raddle starts and stops in the middle of it");
    let pause = Duration::from_secs(u64::from(seconds)) / 2;
    let takeover: Takeover = takeover::run(fabric, interrupt, chosen, pause, takes)?;
    Ok(Report::new(rate, seconds, outcomes, takeover))
}

/// The first of the source ports that cover all links under the L4 policy.
fn choose(fabric: &Fabric) -> Result<u16, Failure> {
    fabric.lab.set_policy(HashPolicy::L4)?;
    let links = fabric.links.len();
    let chosen = Oracle::consult(fabric, iperf::PORT, |oracle| {
        plan::choose_ports(plan::STREAMS, links, |port| {
            let prediction = oracle.predict(port)?;
            // Where the seed is hidden, the kernel itself can still be asked.
            Ok::<_, Failure>(prediction.explained.unwrap_or(prediction.kernel))
        })
    })?;
    chosen.ok_or_else(|| {
        Failure::system("no source ports cover all links: the leaf does not use all of them")
    })
}

/// The first stream of chosen ports, in the words of `raddle explain`.
fn example(fabric: &Fabric) -> String {
    let [src, dst] = fabric.addresses;
    let input = &fabric.input;
    format!(
        "{dst} from {src} iif {input} ipproto tcp sport 20000 dport {}",
        iperf::PORT
    )
}

/// Writes the figures and the pictures, and returns the files' names.
fn write(report: &Report, directory: &Path) -> Result<Vec<String>, Failure> {
    let file = directory.join("demo.json");
    let text =
        serde_json::to_string_pretty(report).map_err(|e| Failure::system(e.to_string()))? + "\n";
    std::fs::write(&file, text)
        .map_err(|e| Failure::system(format!("cannot write {}: {e}", file.display())))?;
    let pictures = chart::draw(report, directory)?;
    let files = pictures.into_iter().chain([file]);
    Ok(files.map(|file| file.display().to_string()).collect())
}

/// What the user sees meanwhile.
struct Show {
    progress: Progress,
    done: usize,
}

impl Show {
    fn step(&mut self, text: &str) {
        self.progress.say(text);
    }

    fn measuring(&mut self, it: Measurement) {
        self.done += 1;
        let (forwarder, policy) = (it.forwarder.name(), plan::policy_name(it.policy));
        let all = plan::measurements().count();
        self.progress.say(&format!(
            "measurement {} of {all}: {forwarder} forwards, policy {policy}, {} ports",
            self.done,
            it.ports.name()
        ));
    }

    fn result(&mut self, text: &str) {
        self.progress.end();
        eprintln!("{text}");
    }
}
