//! Watches the far ends of veth pairs: who changes an offload there, in whatever network namespace, tells nobody here, and
//! packets are lost without a trace from then on.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use raddle_rib::Rib;
use raddle_rib::event::Link;

use super::links::Plan;
use crate::config::{Config, Mode};
use raddle_preflight::{beneath, far_ends, with_beneath};

/// How often is looked.
const EACH: Duration = Duration::from_secs(1);
/// A look that takes long, with many namespaces, is followed by a rest of so many times that.
const REST: u32 = 20;

/// What the thread that looks is told, and tells.
#[derive(Debug, Default)]
struct Shared {
    /// All links, and those of them that are veths in use.
    links: Mutex<(Vec<Link>, BTreeSet<u32>)>,
    changed: AtomicBool,
}

/// The watch. Its thread ends some time after it is dropped.
#[derive(Debug, Default)]
pub(super) struct Watch(Arc<Shared>);

impl Watch {
    /// Watches the veths of the plan from now on; the thread starts with the first.
    pub(super) fn follow(&mut self, rib: &Rib, plan: &Plan, config: &Config) {
        let links: Vec<Link> = rib.links().cloned().collect();
        let beneath = beneath(links.iter());
        // All ports of a bridge, for one that is left out for its far end may be taken when that changes.
        let (ins, outs) = (
            with_beneath(&plan.attach, &beneath),
            with_beneath(&plan.out, &beneath),
        );
        // In generic mode nothing is lost there, but tags.
        let used = |link: &Link| {
            let is_in = ins.contains_key(&link.index);
            let matters = match config.mode {
                Mode::Generic => is_in,
                _ => is_in || outs.contains_key(&link.index),
            };
            matters && link.kind.as_deref() == Some("veth")
        };
        let watched: BTreeSet<u32> = links.iter().filter(|l| used(l)).map(|l| l.index).collect();
        let is_first = !watched.is_empty() && Arc::strong_count(&self.0) == 1;
        *self.0.links.lock().unwrap_or_else(PoisonError::into_inner) = (links, watched);
        if !is_first {
            return;
        }
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("veths".to_owned());
        if let Err(e) = thread.spawn(move || look(&shared)) {
            tracing::warn!(
                "the far ends of veth pairs are looked at with changes of links only: {e}"
            );
        }
    }

    /// Whether something has changed since this was asked last.
    pub(super) fn take_changed(&self) -> bool {
        self.0.changed.swap(false, Ordering::Relaxed)
    }
}

fn look(shared: &Arc<Shared>) {
    let mut before = None;
    // The watch has the other one.
    while Arc::strong_count(shared) > 1 {
        let started = Instant::now();
        let (links, watched) = shared
            .links
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if !watched.is_empty()
            && let Ok(now) = far_ends(&links, &watched)
        {
            let changed = before.as_ref().is_some_and(|before| *before != now);
            if changed {
                shared.changed.store(true, Ordering::Relaxed);
            }
            before = Some(now);
        }
        std::thread::sleep(EACH.max(started.elapsed() * REST));
    }
}
