//! Neighbours that packets of raddle's own segments lack.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use raddle_fib::Region;
use raddle_image::{SCRATCH_SIZE, SCRATCH_WANTED, WANTED, Wanted};

use crate::engine::Engine;
use crate::mapping::{STATE, region};
use crate::{Error, Result};

/// Where `wanted` is in `struct scratch`, in words, and how long each is.
const FIRST: usize = SCRATCH_WANTED / 8;
const WORDS: usize = 3;

/// Where the programs leave the neighbours that they lack: for each CPU at most [`WANTED`]. While one waits at its
/// place, others of that place are not noted.
#[derive(Debug)]
pub struct WantedPlaces(Region);

impl Engine {
    /// Those of this engine's programs.
    ///
    /// # Errors
    /// When the memory cannot be mapped.
    pub fn wanted(&self) -> Result<WantedPlaces> {
        let scratch = region(self.maps().state[0].as_fd()).map_err(|source| Error::Map {
            name: STATE[0].to_owned(),
            source,
        })?;
        Ok(WantedPlaces(scratch))
    }
}

impl WantedPlaces {
    /// Takes up to `most` neighbours out of their places; others stay for the next time. Costs a load for each
    /// place.
    pub fn take(&self, most: usize) -> Vec<Wanted> {
        let each = self.0.words().chunks_exact(SCRATCH_SIZE / 8);
        let places = each.flat_map(|words| words[FIRST..].chunks_exact(WORDS).take(WANTED));
        let taken = places.filter_map(|place| {
            // The program writes the last word last, and nothing while it is there.
            let last = place[2].load(Ordering::Acquire);
            if last as u32 == 0 {
                return None;
            }
            let [high, low] = [0, 1].map(|n| place[n].load(Ordering::Relaxed));
            place[2].store(0, Ordering::Release);
            Wanted::from_words([high, low, last])
        });
        taken.take(most).collect()
    }
}
