//! Longest-prefix match for IPv4 and IPv6, in a layout that an XDP program reads as it stands.
//!
//! Every table lives in [`Region`]s: plain memory of fixed capacity that is either ours or a BPF
//! map mapped into this process. There is one writer, [`Fib4`] or [`Fib6`], and any number of
//! readers: threads that call [`lookup4`] and its like, and XDP programs. Updates are published in
//! place by single-word stores, so that a reader on another core, or in the kernel, sees the old
//! answer or the new one and nothing else. What a store has replaced is not used again before the
//! writer's `grace` function has returned, which must wait for all readers that may still be there.
//!
//! ```
//! use std::sync::Arc;
//! use raddle_fib::{Fib4, Heap4, Prefix4, lookup4};
//!
//! let memory = Arc::new(Heap4::new(16, 1 << 16, 1 << 16));
//! let mut fib = Fib4::new(Arc::clone(&memory), Box::new(|| {}));
//! let main = fib.create_table()?;
//! fib.insert(main, Prefix4::ALL, 1)?;
//! fib.insert(main, Prefix4::new(0x0a00_0000, 8)?, 2)?;
//! assert_eq!(lookup4(&*memory, main.index(), 0x0a01_0203), 2);
//! assert_eq!(lookup4(&*memory, main.index(), 0x0b01_0203), 1);
//! # Ok::<(), raddle_fib::FibError>(())
//! ```
//!
//! # Layout
//!
//! Words are 64 bits in host order (little endian); a *cell* is a 16-bit quarter of a word and a
//! *half* a 32-bit half, the lowest first. Word 0 of what leaves and IPv6 entries live in is never
//! handed out and stays zero. Values have 31 bits; 0 is "no route".
//!
//! ## IPv4: [`Memory4`]
//!
//! ```text
//! roots[table]    | index of the first node .................... | S: 3, 11, 19 |   0: empty table
//!                  63                                           8 7             0
//!
//! address         | S bits: which node   | 5 bits: slot | then 3 bits: node, 5 bits: slot, ...
//!
//! nodes[i]        | 0 | base: first leaf        | bitmap: where the leaf changes |
//!          or     | 1 | second value | first    | bitmap: slots of the second   |
//!                  63  62          47 46       32 31                            0
//!
//! leaves          | leaf | leaf | leaf | ...     one for each bit that is set, from the lowest
//! ```
//!
//! A node answers for 32 slots. Most hold at most two values: such a node is a *pair* and holds them
//! itself, 15 bits each, with a bit for each slot that chooses; a look-up then reads memory once.
//! Other nodes have leaves. The leaf for a slot is number `popcount(bitmap & ones up to the
//! slot) - 1` of its run. Bit 0 always begins a leaf, so it can say something else: where it is
//! set, the node is *narrow* and its leaves are cells, the base counting cells; where it is clear
//! (and taken as set when counting), the node is *wide*, its leaves are halves, and the base, still
//! counted in cells, is even. The top bit of a leaf, 15 or 31, says that the rest is not a value
//! but a child: a block of eight nodes from `nodes[8 * rest]` on, which the next three bits choose
//! among. Roots end at a bit whose number is 5 short of a byte, so blocks do so too, and a lookup
//! takes 2, 3 or 4 nodes at most. A node that is zero answers 0 everywhere.
//!
//! The width of the root follows the number of routes, but a table can be *wide* from its first
//! route on. Roots are taken from the end of the nodes and blocks from their start, so that
//! children's numbers fit into narrow leaves.
//!
//! ## IPv6: [`Memory6`]
//!
//! An *entry* of 32 bits resolves 16 more bits of the address, the *key*, or more of them at once. A
//! table's entry is the low half of its root word.
//!
//! ```text
//! 0 | value                31 bits   the answer
//! 10 | offset              30 bits   BLOCK at words[offset]: cell 0 is n - 1, then n - 1 ends of
//!                                    intervals of keys in ascending order (the last one, 0xffff,
//!                                    only fills the word), from the next word on n entries.
//!                                    The key's entry is number (ends below the key).
//! 1100 | offset            28 bits   RANK GROUP at words[offset]: 2048 nodes, chosen by the upper
//!                                    11 bits of the key, like wide IPv4 nodes, but with a base
//!                                    that counts halves; leaves are entries.
//! 1101 | offset | long     28 bits   COMPARE at words[offset], which is even: 64 bits that the
//!                                    address is to have; past (6 bits), outside (26), inside (32);
//!                                    if long, 64 bits more. The last `past` bits do not count. If
//!                                    the others are the address's, the entry is `inside`, behind
//!                                    all that was compared, else the answer is `outside`.
//! 1110 | offset            28 bits   DIRECT at words[offset]: 65536 entries, one for each key.
//! 1111 | offset            28 bits   HOSTS at words[offset], which is even: the answer for what is
//!                                    not found (32), lines (32); bits of the address in front, a
//!                                    multiple of 16 from 32 on. Lines of eight words begin at the
//!                                    next multiple of eight, with 15 more behind the last. A line is
//!                                    four slots: the first 64 bits behind those in front; value
//!                                    (32), the next 32 bits (32). The answer, and never an entry.
//! ```
//!
//! A key that has longer prefixes below it has an interval of its own even where its neighbours
//! have the same entry, so that a change below it is one store of 32 bits. Spans of up to some
//! hundred intervals are blocks, larger ones rank groups, and the first span of a large table is
//! direct. A span in which all keys have one answer but for those that begin with the same bits is a
//! compare; spans below each other that are compares with one answer outside are one compare
//! together. Runs of words begin at an even number, so that a short compare is in one cache line.
//!
//! A span of the third 16 bits or below that holds 64 host routes or more, and no others, is a hash
//! table of them. With `high` and `low` the first 64 and the next 32 bits behind those in front, and F
//! 0x9e3779b97f4a7c15, a look-up begins in line `(h >> 32) * lines >> 32`, where `h` is `(g ^ g >> 32) * F`
//! and `g` is `(high ^ low << 29) * F`, both of 64 bits. It goes through 64 slots at most: a value of 0
//! ends it, and one with the top bit says that this host is gone. Those of a line are taken in order, so that where the
//! last is free the way ends. A slot keeps its address, which is
//! written before the value; readers read the value first.
//!
//! # When memory runs out
//!
//! A change that does not fit fails with [`FibError::Full`] and leaves everything as it was. A
//! little memory is kept for removals. Runs of the regions are handed out first fit from bins of
//! exact lengths and coalesce when they are freed, so that steady churn does not fragment them.

mod alloc;
mod error;
mod memory;
mod prefix;
mod region;
mod table;
mod v4;
mod v6;

pub use error::{FibError, Part};
pub use memory::{Heap4, Heap6, Memory4, Memory6};
pub use prefix::{Prefix4, Prefix6};
pub use region::Region;
pub use table::{TableId, Usage, Value};
pub use v4::{Fib4, Routes4, lookup4, lookup4_batch};
pub use v6::{Fib6, Routes6, lookup6, lookup6_batch};
