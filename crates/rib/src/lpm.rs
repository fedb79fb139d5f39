//! The two table structures behind one face, so that views are written once.

use raddle_fib::{Fib4, Fib6, FibError, Prefix4, Prefix6, TableId};

use crate::prefix::{Addr, Prefix};
use raddle_image::Memory;

/// Longest-prefix match over several tables of one family.
pub(crate) trait Lpm<A: Addr> {
    /// Makes a table; `first` if it is the one that most packets will be looked up in.
    fn create_table(&mut self, first: bool) -> Result<TableId, FibError>;
    fn drop_table(&mut self, table: TableId);
    fn insert(&mut self, table: TableId, p: Prefix<A>, v: u32) -> Result<Option<u32>, FibError>;
    fn remove(&mut self, table: TableId, p: Prefix<A>) -> Result<Option<u32>, FibError>;
    fn replace_all(
        &mut self,
        table: TableId,
        routes: Vec<(Prefix<A>, u32)>,
    ) -> Result<(), FibError>;
}

macro_rules! lpm {
    ($fib:ident, $address:ty, $prefix:ident) => {
        impl Lpm<$address> for $fib<Memory> {
            fn create_table(&mut self, first: bool) -> Result<TableId, FibError> {
                if first {
                    $fib::create_wide_table(self)
                } else {
                    $fib::create_table(self)
                }
            }

            fn drop_table(&mut self, table: TableId) {
                $fib::drop_table(self, table);
            }

            fn insert(
                &mut self,
                table: TableId,
                p: Prefix<$address>,
                v: u32,
            ) -> Result<Option<u32>, FibError> {
                $fib::insert(self, table, $prefix::new(p.addr, p.len)?, v)
            }

            fn remove(
                &mut self,
                table: TableId,
                p: Prefix<$address>,
            ) -> Result<Option<u32>, FibError> {
                $fib::remove(self, table, $prefix::new(p.addr, p.len)?)
            }

            fn replace_all(
                &mut self,
                table: TableId,
                routes: Vec<(Prefix<$address>, u32)>,
            ) -> Result<(), FibError> {
                let checked: Result<Vec<($prefix, u32)>, FibError> = routes
                    .into_iter()
                    .map(|(p, v)| Ok(($prefix::new(p.addr, p.len)?, v)))
                    .collect();
                $fib::replace_all(self, table, checked?.into_iter())
            }
        }
    };
}

lpm!(Fib4, u32, Prefix4);
lpm!(Fib6, u128, Prefix6);
