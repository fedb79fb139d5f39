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
	__u64 word = WORD(words6, half >> 1, 0);

	return half & 1 ? word >> 32 : word;
}

inline_always __u32 cell6(__u32 cell)
{
	return (__u16)(WORD(words6, cell >> 2, 0) >> (16 * (cell & 3)));
}

/* The entry for `key` in the block of intervals at word `at`. */
inline_always __u32 fib6_block(__u32 at, __u32 key)
{
	__u32 first = at * 4 + 1;
	__u32 ends = cell6(at * 4);
	__u32 below = 0;
	__u32 step = ends;

	/* The number of ends below `key`: the largest power of two first, without branches. */
	step |= step >> 1;
	step |= step >> 2;
	step |= step >> 4;
	step |= step >> 8;
	step = (step + 1) >> 1;
	ROLLED for (int i = 0; i < 16; i++) {
		__u32 probe = below + step;

		if (!step)
			break;
		if (probe <= ends && cell6(first + probe - 1) < key)
			below = probe;
		step >>= 1;
	}
	return half6(at * 2 + ((ends + 2) >> 1) + below);
}

inline_always __u32 fib6_group(__u32 at, __u32 key)
{
	__u64 node = WORD(words6, at + (key >> 5), 0);
	__u32 below = 0xffffffff >> (31 - (key & 31));
	__u32 rank = ones(((__u32)node | 1) & below);

	return half6((__u32)(node >> 32) + rank - 1);
}

/* Value for an address (both halves in host order) in a table; 0 is "no route". 8 steps at most. */
inline_always __u32 fib6_lookup(__u32 table, __u64 high, __u64 low)
{
	__u32 entry = (__u32)WORD(roots6, table, 0);

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
