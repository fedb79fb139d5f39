//! Rows about links that fail.

use std::time::Duration;

use super::load::{BIN, Kind, Measured, OUTSTANDING, transfer};
use super::report::{Must, Unit};
use super::stage::{FILES, PROXY, Stage, Way};
use super::{LINKS, Trials, WARM};
use raddle_exit::Failure;

/// When the link goes silent.
const CUT: Duration = Duration::from_millis(2500);
/// How long the read goes on.
const TIME: Duration = Duration::from_secs(7);
/// The rate is not full in a window that has less than this of what is left. Replies come in lumps of
/// several MiB, which a shorter window or a higher share would take for gaps.
const WINDOW: Duration = Duration::from_millis(400);
const FULL: f64 = 0.85;

/// A link that a connection comes back by loses everything in the middle of a read.
pub(super) fn silent(trials: &mut Trials<'_>, stage: &Stage) -> Result<(), Failure> {
    let figures = trials.each(stage, || {
        let proxy = stage.proxy(&[])?;
        let handle = stage.handle(PROXY, PROXY, FILES[0])?;
        let back = proxy.links(Way::Back)?;
        let topology = stage.lab.topology();
        let link = back.first().and_then(|dev| topology.link_of("client", dev));
        let Some((link, _)) = link else {
            return Err(Failure::system("raddle rpc does not know its links"));
        };
        let (done, cut) = std::thread::scope(|scope| {
            let cut = scope.spawn(|| {
                std::thread::sleep(CUT);
                let at = std::time::Instant::now();
                stage.lab.cut(link).map(|()| at)
            });
            let load = (Kind::Read, OUTSTANDING);
            let done = stage.client(|| transfer(PROXY, &handle, load, TIME, false));
            (done, cut.join())
        });
        stage.lab.restore(link)?;
        let cut = cut.map_err(|_| Failure::system("cutting the link broke off"))??;
        let done = done?;
        let cut = cut.saturating_duration_since(done.start);
        Ok(outage(&done, cut).map(|time| time.as_secs_f64()))
    })?;
    let column = |n: usize| figures.iter().map(|f| f[n]).collect::<Vec<_>>();
    let what = "a link goes silent: until the full remaining rate";
    let must = Must::AtMost(1.0, Some(1.0));
    trials.line(what, Unit::Seconds, must, column(0));
    let what = "the longest time without a byte";
    trials.line(what, Unit::Seconds, Must::Nothing, column(1));
    trials.note(format!(
        "until the middle of the last {} ms that have less than {:.0} % of {}/{LINKS} of the rate before; a \
         link may carry two connections, one each way",
        WINDOW.as_millis(),
        FULL * 100.0,
        LINKS - 1,
    ));
    Ok(())
}

/// How long after the cut the middle of the last window is that has less than the full remaining rate (zero
/// where none has), and the longest time without a byte from then on.
fn outage(done: &Measured, cut: Duration) -> [Duration; 2] {
    let before = done.rate(WARM, cut);
    let full = FULL * before * f64::from(LINKS - 1) / f64::from(LINKS);
    let from = cut.as_millis() / BIN.as_millis();
    let bins = u32::try_from(done.bins.len()).unwrap_or(u32::MAX);
    let end = BIN * bins;
    // The bin of the cut itself is of the time before.
    let starts = (from as u32 + 1..bins).map(|bin| BIN * bin);
    let starts = starts.take_while(|start| *start + WINDOW <= end);
    let last = starts
        .filter(|start| done.rate(*start, *start + WINDOW) < full)
        .last();
    let after = done.bins.get(from as usize..).unwrap_or_default();
    let empty = after.split(|bytes| *bytes > 0).map(<[u64]>::len).max();
    [
        last.map_or(Duration::ZERO, |start| {
            (start + WINDOW / 2).saturating_sub(cut)
        }),
        BIN * empty.unwrap_or(0) as u32,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_ends_with_the_full_remaining_rate() {
        let mut bins = vec![400_u64; 500];
        // Cut at 2 s: nothing for 0.1 s, half until 2.6 s, three quarters then.
        bins[200..210].fill(0);
        bins[210..260].fill(200);
        bins[260..].fill(300);
        let mut done = Measured {
            start: std::time::Instant::now(),
            bins,
            getattrs: Vec::new(),
        };
        let cut = Duration::from_secs(2);
        let [full, gap] = outage(&done, cut).map(|time| time.as_millis());
        assert_eq!(gap, 100);
        assert!((550..=650).contains(&full), "{full}");
        // It breaks in once more.
        done.bins[400..430].fill(0);
        let again = outage(&done, cut)[0].as_millis();
        assert!((2400..=2500).contains(&again), "{again}");
        done.bins[200..].fill(300);
        assert_eq!(outage(&done, cut)[0], Duration::ZERO);
    }
}
