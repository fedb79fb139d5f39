/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * IPv6 longest-prefix match: a chain of entries that each resolve 16 bits of the address.
 *
 * An entry is a value, or one of three structures in words6: an array of 65536 entries (direct),
 * the same compressed by rank (group), or a sorted run of intervals (block).
 */
#ifndef RADDLE_FIB6_H
#define RADDLE_FIB6_H

#include "fib4.h"

inline_always __u32 half6(__u32 half)
{
	return READ(words6, __u32, words6_len * 2, half, 0);
}

inline_always __u32 cell6(__u32 cell)
{
	return READ(words6, __u16, words6_len * 4, cell, 0);
}

/* The entry for `key` in the block of intervals at word `at`. */
inline_always __u32 fib6_block(__u32 at, __u32 key)
{
	__u32 first = at * 4 + 1;
	__u32 ends = cell6(at * 4);
	__u32 below = 0, rest = ends;

	/* How many ends are below `key`, by halves, with no branch that depends on it. */
	ROLLED for (int i = 0; i < 16 && rest > 1; i++) {
		__u32 half = rest / 2;

		below += half & less_mask(cell6(first + below + half - 1), key);
		rest -= half;
	}
	below += rest & less_mask(cell6(first + below), key);
	return half6(at * 2 + (ends + 2) / 2 + below);
}

inline_always __u32 fib6_group(__u32 at, __u32 key)
{
	__u64 node = READ(words6, __u64, words6_len, at + (key >> 5), 0);
	__u32 below = 0xffffffff >> (31 - (key & 31));
	__u32 rank = ones(((__u32)node | 1) & below);

	return half6((__u32)(node >> 32) + rank - 1);
}

/* Value for an address (both halves in host order) in a table; 0 is "no route". 8 steps at most. */
inline_always __u32 fib6_lookup(__u32 table, __u64 high, __u64 low)
{
	__u32 entry = (__u32)READ(roots6, __u64, MAX_TABLES, table, 0);

	ROLLED for (int level = 0; level < 8; level++) {
		__u32 key = high >> 48;

		if (!(entry >> 31))
			return entry;
		high = high << 16 | low >> 48;
		low <<= 16;
		if (!(entry & 0x40000000))
			entry = fib6_block(entry & 0x3fffffff, key);
		else if (!(entry & 0x20000000))
			entry = fib6_group(entry & 0x1fffffff, key);
		else
			entry = half6((entry & 0x1fffffff) * 2 + key);
	}
	return entry >> 31 ? 0 : entry;
}

#endif
