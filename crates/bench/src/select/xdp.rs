//! What selection adds to a forward in the XDP program: repeated test runs of packets to a route of
//! one nexthop, and to routes of several.

use crate::measure::{Column, Machine, Settings, progress};
use crate::router;
use raddle_exit::Failure;

/// Packets of a test run.
const REPEAT: u32 = 20_000;

/// The test runs of one family.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) v6: bool,
    /// Nanoseconds that the generator and a program that only passes on take, by round: they are inside
    /// of the others.
    pub(super) floor: Vec<f64>,
    /// Nanoseconds with one nexthop, by round.
    pub(super) one: Vec<f64>,
    /// The same by L4 hash among 2.
    pub(super) of_2: Vec<f64>,
    /// The same among 64.
    pub(super) of_64: Vec<f64>,
}

/// Builds a router in a namespace of this thread and measures both families.
pub(super) fn measure(rounds: u32) -> Result<Vec<Cell>, Failure> {
    router::build()?;
    let machine = Machine::start(&Settings {
        rounds,
        packets: REPEAT,
        routes: 0,
        columns: Vec::new(),
        segments: 0,
    })?;
    let mut cells = [false, true].map(|v6| Cell {
        v6,
        floor: Vec::new(),
        one: Vec::new(),
        of_2: Vec::new(),
        of_64: Vec::new(),
    });
    let before = machine.punted();
    for round in 0..rounds {
        progress(&format!("XDP, round {}", round + 1));
        for cell in &mut cells {
            let time = |column| machine.test_run(column, cell.v6, REPEAT);
            cell.floor.push(time(None)?);
            cell.one.push(time(Some(Column::One))?);
            cell.of_2.push(time(Some(Column::Ecmp2))?);
            cell.of_64.push(time(Some(Column::Ecmp64))?);
        }
    }
    if machine.punted() != before {
        return Err(Failure::system(
            "the XDP program did not forward every packet of the test runs; is something else \
             changing this kernel's hash seed (Linux 6.11 or later has one)?",
        ));
    }
    Ok(cells.into())
}
