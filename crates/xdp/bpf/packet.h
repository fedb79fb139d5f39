/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * One packet on its way, and the steps that the program and those that it calls have in common.
 */
#ifndef RADDLE_PACKET_H
#define RADDLE_PACKET_H

#include "groups.h"
#include "image.h"
#include "maps.h"
#include "parse.h"

/* Added to a reason when the packet is dropped instead of punted. */
#define DROP 0x100

/* Up to this length a frame is taken to be in one buffer, see frame_len(). */
#define ONE_BUFFER 1024

/* One packet on its way. */
struct packet {
	struct xdp_md *ctx;
	void *data, *data_end;
	const struct config *config;
	const struct link_entry *link;
	__u32 ingress;
	__u32 stripe;	/* first counter of this CPU */
	__u32 len;	/* of the whole frame */
	/* For the slow path. */
	__u64 group;
	__u32 value, packet_end;
	/* For the SRv6 path. */
	__u32 segment;
};

/* Not verdicts: forward_slow() goes on, or the program for segments; without it the kernel. */
#define NEXT_SLOW 0x200
#define NEXT_SRV6 (0x400 | REASON_ENCAP)

/*
 * Length of the frame in all its buffers, given the bytes at hand and how far its IP packet goes.
 *
 * Asking the kernel costs a call, so short frames whose packet is all at hand are not asked for:
 * no driver fills a first buffer that little and goes on in a second one, unless it splits headers
 * from data, and then what follows could only be padding.
 */
inline_always __u32 frame_len(struct xdp_md *ctx, __u32 linear, __u32 packet_end)
{
	if (linear > ONE_BUFFER || packet_end > linear)
		return bpf_xdp_get_buff_len(ctx);
	return linear;
}

/*
 * Whether the image is too old. The clock is asked once a jiffy (and whenever the deadline
 * moves), because a call costs as much as the rest of this check's surroundings together.
 */
inline_always int expired(const struct config *config, __u32 cpu)
{
	__u64 deadline = *(volatile const __u64 *)&config->deadline;
	struct clock_entry *clock;
	__u64 now, index;

	if (!deadline)
		return 0;
	now = bpf_jiffies64();
	index = INDEX(cpu);
	if (index >= cpus)
		return 1;
	clock = &ELEMENT(scratch, struct scratch, index)->clock;
	if (clock->jiffies != now || clock->deadline != deadline) {
		clock->jiffies = now;
		clock->deadline = deadline;
		clock->expired = bpf_ktime_get_coarse_ns() > deadline;
	}
	return clock->expired;
}

/* Reason::is_drop, for what is a reason. */
inline_always int is_drop(__u32 reason)
{
	return REASON_DROPS >> (reason & 63) & 1;
}

/* The counter of a verdict that is not to forward; see image::verdict_slot. */
inline_always __u32 verdict_slot(int verdict)
{
	__u32 reason = verdict & 0xff;

	return verdict & DROP && !is_drop(reason) ? REASON_DROPPED + reason : reason;
}

/* Whether a group is of several members. */
inline_always int is_many(__u64 group)
{
	return (__u8)((__u8)group - GROUP_THRESHOLD) <= GROUP_FLOWLET - GROUP_THRESHOLD;
}

/* Whether the fast path knows it: hash-threshold by the namespace's policy, and that 0 or 1. */
inline_always int is_fast(__u64 group, __u32 policy)
{
	return ((__u16)group & ~GROUP_OWN) == GROUP_THRESHOLD && policy <= 1;
}

/* Added to a reason that a packet has at this group: the kernel does not get what it does not know. */
inline_always int own_drop(__u64 group)
{
	return group & GROUP_OWN ? DROP : 0;
}

/* A9 and B7: what a group that is not for forwarding says. */
inline_always int group_reason(__u64 group)
{
	__u32 reason = (group & ~GROUP_OWN) >> 8 & 0xff;

	if (reason >= REASON_COUNT)
		reason = REASON_NO_ROUTE;
	return is_drop(reason) ? DROP | reason : reason | own_drop(group);
}

inline_always __u64 group_word(__u32 value)
{
	return READ(groups, __u64, groups_len, value, GROUP_KERNEL | REASON_NO_ROUTE << 8);
}

/* The same for a value of an IPv6 table, of which some name a segment. */
inline_always __u64 group_word6(__u32 value)
{
	if (value >= SEGMENT_VALUE)
		return GROUP_SEGMENT | (__u64)(value - SEGMENT_VALUE) << 32;
	return group_word(value);
}

/* What an adjacency that is not for forwarding says, given its first word. */
inline_always int adjacency_reason(__u64 word0)
{
	__u32 reason = word0 >> 40 & 0xff;

	if ((word0 >> 32 & 0xff) == ADJ_SEGMENT)
		return NEXT_SRV6;
	/* A reason of 0 would say that it may be sent to. */
	return reason && reason < REASON_COUNT ? reason : REASON_UNRESOLVED;
}

/* The first word of an adjacency, read at once. */
inline_always __u64 adjacency_word(__u32 number)
{
	__u64 index = INDEX(number);

	if (index >= adjacencies_len)
		return (__u64)REASON_UNRESOLVED << 40;
	return *(volatile const __u64 *)ELEMENT(adjacencies, const struct adjacency, index);
}

/*
 * A12: 0 and the adjacency, or why the packet may not go there. Ends by claiming the redirect:
 * that can still fail while the packet is as it came, and changes nothing if it does.
 */
inline_always int take_adjacency(struct packet *p, __u32 number, __u32 packet_len,
				 const struct adjacency **taken)
{
	const struct adjacency *adj;
	__u64 word0, index = INDEX(number);
	__u32 out;

	if (index >= adjacencies_len)
		return REASON_UNRESOLVED;
	adj = ELEMENT(adjacencies, const struct adjacency, index);
	word0 = *(volatile const __u64 *)adj;
	if ((word0 >> 32 & 0xff) != ADJ_FORWARD) {
		p->segment = (__u32)word0;
		return adjacency_reason(word0);
	}
	out = (__u32)word0;
	if (out == p->ingress)
		return REASON_SAME_LINK;
	if (packet_len > adj->mtu)
		return REASON_MTU;
	if (bpf_redirect_map(&out_links, out, XDP_PASS) != XDP_REDIRECT)
		return REASON_REDIRECT_FAILED;
	*taken = adj;
	return 0;
}

/* Writes both MAC addresses, which lie side by side in the adjacency too. */
inline_always void rewrite_macs(void *data, const struct adjacency *adj)
{
	*(__u64 *)data = *(const __u64 *)adj->dst_mac;
	*(__u32 *)(data + 8) = *(const __u32 *)(adj->dst_mac + 8);
}

/* Cuts padding off behind the IP packet, then counts. */
inline_always int finish(struct packet *p, __u32 number, __u32 packet_end)
{
	__u32 keep = packet_end > FRAME_MIN ? packet_end : FRAME_MIN;
	__u32 received = p->len;

	if (p->len > keep) {
		/* Shrinking to 60 bytes or more cannot fail. */
		if (bpf_xdp_adjust_tail(p->ctx, (int)(keep - p->len)))
			return DROP | REASON_REDIRECT_FAILED;
		p->len = keep;
	}
	count(p->stripe, REASON_COUNTERS + p->link->slot, received);
	count(p->stripe, ADJACENCY_COUNTERS + number, p->len);
	return REASON_FORWARDED;
}

/*
 * Why the kernel may refuse the source, 0 if it cannot; the filter said that it may. The rules are those
 * of Memory::refuses. `flags` are the link's.
 */
static __noinline int refused_source(__u32 sources, __u32 src, __u32 flags)
{
	__u64 group = group_word(fib4_lookup(sources, src));
	__u32 reason = group >> 8 & 0xff;

	if ((__u8)group != GROUP_KERNEL || reason == REASON_NO_ROUTE)
		return 0;
	/* A counter's index: without a bound "math between map_value pointer and register with unbounded min value". */
	if (reason >= REASON_COUNT)
		return REASON_SOURCE_CHECK;
	if (reason != REASON_LOCAL)
		return reason;
	return flags & LINK_ACCEPT_LOCAL ? 0 : REASON_OWN_SOURCE;
}

inline_always int maybe_own(__u32 address)
{
	__u32 bit = (address * 0x9e3779b1u) >> 16;

	return READ(own4, __u64, OWN_BITS / 64, bit >> 6, 0) >> (bit & 63) & 1;
}

/*
 * The third word of an IPv4 header with one less TTL: that is 0x0100 more in the checksum, with the
 * carry that ip_decrease_ttl makes.
 */
inline_always __u32 less_ttl(__u32 word)
{
	__u32 sum = (word >> 16) + bpf_htons(0x0100);

	sum += sum >= 0xffff;
	return ((word & 0xffff) - 1) | sum << 16;
}

/* Keeps what the slow path needs to know; see forward_slow(). */
inline_always int go_slow(struct packet *p, __u64 group, __u32 value, __u32 packet_end)
{
	p->group = group;
	p->value = value;
	p->packet_end = packet_end;
	return NEXT_SLOW;
}

#endif
