/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * One packet on its way, and the steps that the program and those that it calls have in common.
 */
#ifndef RADDLE_PACKET_H
#define RADDLE_PACKET_H

#include "check.h"
#include "groups.h"
#include "image.h"
#include "maps.h"
#include "parse.h"
#include "verdict.h"

/* Up to this length a frame is taken to be in one buffer, see frame_len(). */
#define ONE_BUFFER 1024

/* One packet on its way. */
struct packet {
	struct xdp_md *ctx;
	void *data, *data_end;
	const struct config *config;
	const struct link_entry *link;
	__u32 stripe;	/* first counter of this CPU */
	__u32 len;	/* of the whole frame */
	/* For the slow path. */
	__u64 group;
	__u32 value, packet_end;
	/* For the SRv6 path. */
	__u32 segment;
	/* The adjacency of send_tagged(). */
	__u32 number;
};

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

/* Whether a group is of several members. */
inline_always int is_many(__u64 group)
{
	return (__u8)((__u8)group - GROUP_THRESHOLD) <= GROUP_FLOWLET - GROUP_THRESHOLD;
}

/* Whether the fast path knows it: hash-threshold by the namespace's policy, and that 0 or 1. */
inline_always int is_fast(__u64 group, __u32 policy)
{
	return ((__u16)group & ~GROUP_NO_PUNT) == GROUP_THRESHOLD && policy <= 1;
}

/* The first word of an adjacency, read at once. */
inline_always __u64 adjacency_word(__u32 number)
{
	__u64 index = INDEX(number);

	if (index >= adjacencies_len)
		return (__u64)REASON_UNRESOLVED << 40;
	return *(volatile const __u64 *)ELEMENT(adjacencies, const struct adjacency, index);
}

/* Whether the kernel does not have a segment. */
inline_always int segment_never_punts(__u32 number)
{
	__u64 index = INDEX(number);

	if (index >= segments_len)
		return 0;
	return ELEMENT(segments, const struct segment, index)->flags & SEGMENT_NO_PUNT;
}

/* Whether a frame of this length, as it stands, lies in several buffers and must not: see config_flags. */
inline_always int is_split(const void *data, const void *data_end, __u32 len)
{
	return len > (__u32)(data_end - data) && config->flags & CONFIG_ONE_BUFFER;
}

/* The same of what a context has. */
inline_always int is_split_here(struct xdp_md *ctx, __u32 len)
{
	return is_split((void *)(long)ctx->data, (void *)(long)ctx->data_end, len);
}

/*
 * A12: why a packet of this length may not go to an adjacency that is for forwarding, given its first word; or 0.
 * Ends by claiming the redirect to link `out`: that can still fail while the packet is as it came, and changes nothing
 * if it does. `split` is what is_split() says.
 */
inline_always int claim_by(const struct adjacency *adj, __u64 word0, __u32 out, const struct link_entry *link,
			   __u32 packet_len, __u64 closed, int split)
{
	if ((__u32)word0 == link->index)
		return REASON_SAME_LINK;
	if (packet_len > adj->mtu)
		return REASON_MTU;
	if (closed >> (word0 >> 48 & 63) & 1)
		return REASON_FIREWALL;
	if (split)
		return REASON_SEVERAL_BUFFERS;
	return bpf_redirect_map(&out_links, out, XDP_PASS) == XDP_REDIRECT ? 0 : REASON_REDIRECT_FAILED;
}

/* The same by the adjacency's own link. */
inline_always int claim(const struct adjacency *adj, __u64 word0, const struct link_entry *link, __u32 packet_len,
			__u64 closed, int split)
{
	return claim_by(adj, word0, (__u32)word0, link, packet_len, closed, split);
}

/* closed_reason() of the image; the zone is in an adjacency's first word. */
inline_always int closed_reason(const struct link_entry *link, __u64 word0)
{
	if (!(word0 >> 48 & ZONE_FILTERED_APART) || !(link->flags & LINK_FILTERED_APART))
		return REASON_FIREWALL;
	return link->closed6 >> (word0 >> 48 & 63) & 1 ? REASON_FIREWALL : REASON_RP_FILTER;
}

/* The adjacency of this number, claimed; or why the packet may not go there. `closed` are zones that are the kernel's. */
inline_always int take_adjacency(struct packet *p, __u32 number, __u32 packet_len, __u64 closed,
				 const struct adjacency **taken)
{
	const struct adjacency *adj;
	__u64 word0, index = INDEX(number);
	int reason;

	if (index >= adjacencies_len)
		return REASON_UNRESOLVED;
	/* What was checked, not what lies on the stack: see INDEX ("R4 unbounded memory access"). */
	OPAQUE(index);
	adj = ELEMENT(adjacencies, const struct adjacency, index);
	word0 = *(volatile const __u64 *)adj;
	if ((word0 >> 32 & 0xff) != ADJ_FORWARD) {
		p->segment = (__u32)word0;
		p->number = number;
		return adjacency_reason(word0);
	}
	*taken = adj;
	reason = claim(adj, word0, p->link, packet_len, closed, is_split(p->data, p->data_end, p->len));
	return reason == REASON_FIREWALL ? closed_reason(p->link, word0) : reason;
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

/* Keeps what the slow path needs to know; see forward_slow(). */
inline_always int go_slow(struct packet *p, __u64 group, __u32 value, __u32 packet_end)
{
	p->group = group;
	p->value = value;
	p->packet_end = packet_end;
	return GO(NEXT_SLOW);
}

#endif
