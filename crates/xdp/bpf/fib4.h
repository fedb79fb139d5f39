/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * IPv4 longest-prefix match: rank-compressed nodes over 5 bits, expanded by 3 bits between levels.
 *
 * A root covers the first 3, 11 or 19 bits by an array of nodes; from there every level takes 5
 * bits in a node and 3 more in the choice among 8 nodes of a child block.
 */
#ifndef RADDLE_FIB4_H
#define RADDLE_FIB4_H

#include "maps.h"

inline_always __u32 ones(__u32 x)
{
	x -= (x >> 1) & 0x55555555;
	x = (x & 0x33333333) + ((x >> 2) & 0x33333333);
	x = (x + (x >> 4)) & 0x0f0f0f0f;
	return (x * 0x01010101) >> 24;
}

/* Value for `address` (host order) in a table; 0 is "no route". At most 4 levels. */
inline_always __u32 fib4_lookup(__u32 table, __u32 address)
{
	__u64 root = READ(roots4, __u64, MAX_TABLES, table, 0);
	__u32 top = root & 31;
	__u32 shift = (27 - top) & 31;
	__u32 index = (__u32)(root >> 8) + (address >> ((32 - top) & 31));

	if (!root)
		return 0;
	NO_UNROLL for (int level = 0; level < 4; level++) {
		__u64 node = READ(nodes4, __u64, nodes4_len, index, 1ULL << 63);
		__u32 bitmap = (__u32)node;
		__u32 base = node >> 32;
		__u32 bit = (address >> shift) & 31;
		__u32 below = 0xffffffff >> (31 - bit);
		__u32 child;

		if (node >> 63) {
			/* A pair: two values of 15 bits in the node itself, and a bit that chooses. */
			return base >> (15 * (bitmap >> bit & 1)) & 0x7fff;
		}
		if (bitmap & 1) {
			/* Narrow: 16-bit leaves. */
			__u32 cell = base + ones(bitmap & below) - 1;
			__u32 leaf = READ(leaves4, __u16, leaves4_len, cell, 0);

			if (!(leaf & 0x8000))
				return leaf;
			child = leaf & 0x7fff;
		} else {
			/* Wide: 32-bit leaves; bit 0 is implied. */
			__u32 cell = base + 2 * (ones((bitmap | 1) & below) - 1);
			__u32 leaf = READ(leaves4, __u32, leaves4_len / 2, cell / 2, 0);

			if (!(leaf >> 31))
				return leaf;
			child = leaf & 0x7fffffff;
		}
		index = child * 8 + ((address >> ((shift - 3) & 31)) & 7);
		shift = (shift - 8) & 31;
	}
	return 0;
}

#endif
