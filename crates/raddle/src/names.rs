//! The names by which answers of `explain` call tables and protocols.

use std::borrow::Cow;

use raddle_iproute::Names;

/// iproute2's.
#[derive(Debug)]
pub(crate) struct ByIproute(pub Names);

impl raddle_explain::Names for ByIproute {
    fn table(&self, number: u32) -> Cow<'_, str> {
        self.0.table(number)
    }

    fn protocol(&self, number: u8) -> Cow<'_, str> {
        self.0.protocol(number)
    }
}
