/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The way to the program for segments, in the variant of the main program that has one (-DSEGMENTS). A
 * program that may call others is slower for all packets and takes longer to load, so that variant is
 * for machines with SRv6; and programs bound to a device (-DRX_HASH) may not call others at all. In
 * the other variants the kernel gets these packets.
 */
#ifndef RADDLE_SEGMENT_H
#define RADDLE_SEGMENT_H

#include "maps.h"

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
