/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * What a step says of a packet, in one register, for the main program and for those that it calls:
 *
 *   bits 0 to 7    a reason, enum reason of image.h: why the packet is punted or dropped
 *   bit 8          DROP: it is dropped for a reason that is otherwise punted for
 *   bits 16 to 23  enum next: what goes on with it, where that is not decided yet
 *
 * 0 is both "nothing to say against it", between steps, and REASON_FORWARDED, at the end.
 */
#ifndef RADDLE_VERDICT_H
#define RADDLE_VERDICT_H

#include "image.h"
#include "maps.h"

/* Added to a reason when the packet is dropped instead of punted. */
#define DROP 0x100

#define NEXT_SHIFT 16

enum next {
	/* The verdict is the last word. */
	NEXT_NONE,
	/* forward_slow(), in the main program. */
	NEXT_SLOW,
	/* A segment is met: the fast path through it, or the program for segments from its beginning. */
	NEXT_SRV6,
	/* One more segment of the same packet. */
	NEXT_SEGMENT,
	/* The segment is carried out: the look-up of what it led to. */
	NEXT_ROUTE,
	/* The programs for encapsulations, for flavours, and for groups of several members. */
	NEXT_ENCAP,
	NEXT_FLAVOURS,
	NEXT_CHOICE,
	/* The program for frames of links upon links, from the beginning. */
	NEXT_UPON,
	/* send_tagged(): out by a link below the adjacency's own, which is noted. */
	NEXT_PUSH,
	/* The program that puts the packet into a tunnel, whose adjacency is noted. */
	NEXT_TUNNEL,
	/* The program for what comes in by a tunnel. */
	NEXT_UNTUNNEL,
	/* None: a segment that the kernel has, punted for the reason beside it, which may be 0. */
	NEXT_KERNEL,
	/* None: a frame was sent out of a link, and is counted. */
	NEXT_SENT,
};

/* What goes on, and the reason that the packet is punted for where nothing does: the program is not there. */
#define GO_OR(next, reason) ((next) << NEXT_SHIFT | (reason))
#define GO(next) GO_OR(next, REASON_ENCAP)
/* A frame was sent. */
#define SENT (NEXT_SENT << NEXT_SHIFT)

inline_always enum next next_of(int verdict)
{
	return verdict >> NEXT_SHIFT;
}

inline_always __u32 reason_of(int verdict)
{
	return verdict & 0xff;
}

/* Reason::is_drop, for what is a reason. */
inline_always int is_drop(__u32 reason)
{
	return REASON_DROPS >> (reason & 63) & 1;
}

/* The counter of a verdict that is not to forward; see image::verdict_slot. */
inline_always __u32 verdict_slot(int verdict)
{
	__u32 reason = reason_of(verdict);

	return verdict & DROP && !is_drop(reason) ? REASON_DROPPED + reason : reason;
}

/* Counts what came in by a link and is not forwarded; see Reason::is_transit. */
inline_always void count_link(__u32 stripe, const struct link_entry *link, int verdict, __u32 bytes)
{
	count(stripe, REASON_COUNTERS + link->slot, bytes);
	if (!(verdict & DROP) && !(REASON_NOT_TRANSIT >> (reason_of(verdict) & 63) & 1))
		count(stripe, LEFT_COUNTERS + link->slot, bytes);
}

/* Added to a reason that a packet has at this group: the kernel does not get what it does not know. */
inline_always int no_punt_drop(__u64 group)
{
	return group & GROUP_NO_PUNT ? DROP : 0;
}

/* A9 and B7: what a group that is not for forwarding says. */
inline_always int group_reason(__u64 group)
{
	__u32 reason = (group & ~GROUP_NO_PUNT) >> 8 & 0xff;

	if (reason >= REASON_COUNT)
		reason = REASON_NO_ROUTE;
	return is_drop(reason) ? DROP | reason : reason | no_punt_drop(group);
}

/* What an adjacency that is not for forwarding says, given its first word. */
inline_always int adjacency_reason(__u64 word0)
{
	__u32 reason = word0 >> 40 & 0xff;

	if ((word0 >> 32 & 0xff) == ADJ_SEGMENT)
		return GO(NEXT_SRV6);
	if ((word0 >> 32 & 0xff) == ADJ_TAGGED)
		return GO_OR(NEXT_PUSH, REASON_OUT_LINK);
	if ((word0 >> 32 & 0xff) == ADJ_TUNNEL)
		return GO_OR(NEXT_TUNNEL, REASON_OUT_LINK);
	/* A reason of 0 would say that it may be sent to. */
	return reason && reason < REASON_COUNT ? reason : REASON_UNRESOLVED;
}

#endif
