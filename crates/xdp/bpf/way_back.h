/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Reverse-path filtering, for links that want a way back to IPv4 sources.
 */
#ifndef RADDLE_WAY_BACK_H
#define RADDLE_WAY_BACK_H

#include "fib4.h"
#include "maps.h"

/* Memory::has_way_back. A function of its own, lest the look-up's ways multiply with those of what follows. */
static __noinline int has_way_back(__u32 table, __u32 source, __u32 way)
{
	__u32 group = fib4_lookup(table, source);

	return READ(ways4, __u64, groups_len, group, 0) >> (way & 63) & 1;
}

#endif
