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
#include "packet.h"
#include "srv6_fast.h"

/* The flag of a link that leaves what comes to a segment to the kernel, because of a firewall. */
inline_always __u32 segment_closed_by(__u32 number)
{
	__u64 index = INDEX(number);

	if (index >= segments_len || ELEMENT(segments, const struct segment, index)->kind != SEGMENT_TUNNEL_END)
		return LINK_NO_SEGMENTS;
	return LINK_NO_TUNNELS;
}

#ifdef SEGMENTS
/* Goes on in the program for segments with a packet that came in by link `in` of `here`; `tags` are what was taken off it. */
inline_always void to_segment(struct packet *p, struct scratch *here)
{
	struct srv6_ctx *srv6 = &here->srv6;

	srv6->segment = p->segment;
	srv6->done = 0;
	srv6->carried_out = 0;
	bpf_tail_call(p->ctx, &programs, PROGRAM_SEGMENT);
}

/* Goes on in the program for tunnels, likewise. */
inline_always void to_tunnel(struct packet *p, struct scratch *here)
{
	here->srv6.tunnel = p->number;
	bpf_tail_call(p->ctx, &programs, PROGRAM_TUNNEL);
}

/* The same with a frame as it came. */
inline_always void meet_tunnel(struct packet *p, __u32 cpu)
{
	__u64 index = INDEX(cpu);
	struct scratch *here;

	if (index >= cpus)
		return;
	here = ELEMENT(scratch, struct scratch, index);
	here->tags.count = 0;
	here->srv6.in = p->ctx->ingress_ifindex;
	to_tunnel(p, here);
}
#endif

/*
 * The verdict on a packet that has met a segment: forwarded by the fast path, or else where the program
 * for segments is not there.
 */
inline_always int meet_segment(struct packet *p, __u32 cpu)
{
#ifdef SEGMENTS
	int verdict = srv6_fast(p, cpu);
	__u64 index = INDEX(cpu);
	struct scratch *here;

	if (verdict != NOT_FAST)
		return verdict;
	if (index >= cpus)
		return GO(NEXT_SRV6);
	here = ELEMENT(scratch, struct scratch, index);
	here->tags.count = 0;
	here->srv6.in = p->ctx->ingress_ifindex;
	to_segment(p, here);
#endif
	return GO(NEXT_SRV6);
}

#endif
