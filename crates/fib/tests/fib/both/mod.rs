//! What the tests of both families share: the writer of either as one trait, and the tests that differ
//! in numbers only.

mod scale;
pub(crate) mod steps;

use std::fmt::{Debug, LowerHex};

use prefix_trie::{Prefix, PrefixMap};
use raddle_fib::{
    Fib4, Fib6, FibError, Heap4, Heap6, Prefix4, Prefix6, TableId, Usage, Value, lookup4,
    lookup4_batch, lookup6, lookup6_batch,
};

pub(crate) use scale::{
    Grace, bulk_and_single_changes, grows_and_shrinks, long_churn, readers_see_old_or_new,
    refuses_bad_requests,
};
pub(crate) use steps::{answers_like_a_linear_scan, full_memory_changes_nothing, step};

/// The tables of either family.
pub(crate) trait Fib {
    type Addr: Copy + Ord + LowerHex + Send;
    type Prefix: Copy + Ord + Debug;
    type Memory: Send + Sync;
    /// A prefix as the `prefix-trie` crate takes it.
    type Key: Prefix;
    const ALL: Self::Prefix;
    /// Lowest and highest address, and one in the middle.
    const CORNERS: [Self::Addr; 3];

    fn lookup(memory: &Self::Memory, table: u32, addr: Self::Addr) -> Value;
    fn lookup_batch(memory: &Self::Memory, table: u32, addrs: &[Self::Addr], values: &mut [Value]);
    fn contains(prefix: Self::Prefix, addr: Self::Addr) -> bool;
    fn bits(prefix: Self::Prefix) -> u8;
    /// First and last address, and their neighbours.
    fn edges(prefix: Self::Prefix) -> [Self::Addr; 6];
    fn key(prefix: Self::Prefix) -> Self::Key;
    fn host(addr: Self::Addr) -> Self::Key;

    fn memory(&self) -> &Self::Memory;
    fn create_table(&mut self) -> Result<TableId, FibError>;
    fn drop_table(&mut self, table: TableId);
    fn insert(&mut self, t: TableId, p: Self::Prefix, v: Value) -> Result<Option<Value>, FibError>;
    fn remove(&mut self, t: TableId, p: Self::Prefix) -> Result<Option<Value>, FibError>;
    fn replace_all(&mut self, t: TableId, all: &[(Self::Prefix, Value)]) -> Result<(), FibError>;
    fn get(&self, table: TableId, prefix: Self::Prefix) -> Option<Value>;
    fn len(&self, table: TableId) -> usize;
    fn routes(&self, table: TableId) -> Vec<(Self::Prefix, Value)>;
    fn usage(&self) -> Vec<Usage>;
    fn reclaim(&mut self);
}

macro_rules! fib {
    ($fib:ty, $memory:ty, $prefix:ty, $addr:ty, $lookup:ident, $batch:ident) => {
        impl Fib for $fib {
            type Addr = $addr;
            type Prefix = $prefix;
            type Memory = $memory;
            type Key = ($addr, u8);
            const ALL: $prefix = <$prefix>::ALL;
            const CORNERS: [$addr; 3] = [0, <$addr>::MAX, <$addr>::MAX / 2 + 1];

            fn lookup(memory: &$memory, table: u32, addr: $addr) -> Value {
                $lookup(memory, table, addr)
            }
            fn lookup_batch(memory: &$memory, table: u32, addrs: &[$addr], values: &mut [Value]) {
                $batch(memory, table, addrs, values);
            }
            fn contains(prefix: $prefix, addr: $addr) -> bool {
                prefix.contains(addr)
            }
            fn bits(prefix: $prefix) -> u8 {
                prefix.len()
            }
            fn edges(prefix: $prefix) -> [$addr; 6] {
                let (first, last) = (prefix.addr(), prefix.last());
                let around = |a: $addr| [a, a.wrapping_sub(1), a.wrapping_add(1)];
                let ([a, b, c], [d, e, f]) = (around(first), around(last));
                [a, b, c, d, e, f]
            }
            fn key(prefix: $prefix) -> ($addr, u8) {
                (prefix.addr(), prefix.len())
            }
            fn host(addr: $addr) -> ($addr, u8) {
                (addr, <$prefix>::WIDTH)
            }

            fn memory(&self) -> &$memory {
                <$fib>::memory(self)
            }
            fn create_table(&mut self) -> Result<TableId, FibError> {
                <$fib>::create_table(self)
            }
            fn drop_table(&mut self, table: TableId) {
                <$fib>::drop_table(self, table);
            }
            fn insert(
                &mut self,
                table: TableId,
                prefix: $prefix,
                value: Value,
            ) -> Result<Option<Value>, FibError> {
                <$fib>::insert(self, table, prefix, value)
            }
            fn remove(&mut self, table: TableId, p: $prefix) -> Result<Option<Value>, FibError> {
                <$fib>::remove(self, table, p)
            }
            fn replace_all(
                &mut self,
                table: TableId,
                all: &[($prefix, Value)],
            ) -> Result<(), FibError> {
                <$fib>::replace_all(self, table, all.iter().copied())
            }
            fn get(&self, table: TableId, prefix: $prefix) -> Option<Value> {
                <$fib>::get(self, table, prefix)
            }
            fn len(&self, table: TableId) -> usize {
                <$fib>::len(self, table)
            }
            fn routes(&self, table: TableId) -> Vec<($prefix, Value)> {
                self.iter(table).collect()
            }
            fn usage(&self) -> Vec<Usage> {
                <$fib>::usage(self).to_vec()
            }
            fn reclaim(&mut self) {
                <$fib>::reclaim(self);
            }
        }
    };
}

fib!(Fib4<Heap4>, Heap4, Prefix4, u32, lookup4, lookup4_batch);
fib!(Fib6<Heap6>, Heap6, Prefix6, u128, lookup6, lookup6_batch);

/// First and last addresses of all prefixes, and their neighbours.
pub(crate) fn edges<F: Fib>(prefixes: impl Iterator<Item = F::Prefix>) -> Vec<F::Addr> {
    let mut all = F::CORNERS.to_vec();
    all.extend(prefixes.flat_map(F::edges));
    all.sort_unstable();
    all.dedup();
    all
}

/// Holds the first table against the `prefix-trie` crate at these addresses, one by one and in a batch.
pub(crate) fn check_trie<F: Fib>(fib: &F, want: &PrefixMap<F::Key, Value>, addrs: &[F::Addr]) {
    let mut values = vec![0; addrs.len()];
    F::lookup_batch(fib.memory(), 0, addrs, &mut values);
    for (addr, value) in addrs.iter().zip(values) {
        let best = want.get_lpm(&F::host(*addr)).map_or(0, |(_, v)| *v);
        assert_eq!(value, best, "{addr:#x}");
        assert_eq!(F::lookup(fib.memory(), 0, *addr), best, "{addr:#x}");
    }
}
