/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The way to the program for segments. Programs bound to a device may not call others: in a variant
 * made for one (-DRX_HASH) the kernel gets these packets.
 */
#ifndef RADDLE_SEGMENT_H
#define RADDLE_SEGMENT_H

#include "maps.h"

#ifndef RX_HASH
#define SEGMENTS
#endif

/* Starts on the way through segments. Returns where that program is not there. */
inline_always void go_to_segment(struct xdp_md *ctx, __u32 cpu, __u32 segment)
{
#ifdef SEGMENTS
	struct way *way;

	if (cpu >= cpus)
		return;
	way = &ELEMENT(scratch, struct scratch, cpu)->way;
	way->segment = segment;
	way->done = 0;
	way->onward = 0;
	bpf_tail_call(ctx, &programs, PROGRAM_SEGMENT);
#endif
}

#endif
