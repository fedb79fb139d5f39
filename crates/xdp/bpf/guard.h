/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * What a firewall of the kernel's, or a routing rule that asks for what they show, may concern of a link's packets, wherever
 * they go.
 */
#ifndef RADDLE_GUARD_H
#define RADDLE_GUARD_H

#include <linux/in.h>

#include "check.h"
#include "maps.h"
#include "select.h"

/* Whether a number lies in a range of one more than `span`, from `first` on; without a branch, see less_mask(). */
inline_always __u64 within_mask(__u32 number, __u32 first, __u32 span)
{
	return ~less_mask(span, number - first);
}

/* All ones if a < b, for two 64-bit halves each. */
inline_always __u64 less_mask128(__u64 ah, __u64 al, __u64 bh, __u64 bl)
{
	__u64 low = (~al & bl) | ((~al | bl) & (al - bl));
	__u64 high;

	OPAQUE(low);
	low >>= 63;
	OPAQUE(low);
	/* The borrow of the whole subtraction. */
	high = (~ah & bh) | ((~ah | bh) & (ah - bh - low));
	OPAQUE(high);
	high = (__s64)high >> 63;
	OPAQUE(high);
	return high;
}

/*
 * Whether addresses are in a range of the firewall's. A function of its own, as has_way_back(); and without branches in the loop but its end,
 * lest the verifier follows each way through it: "The sequence of 8193 jumps is too complex".
 */
static __noinline int in_ranges4(__u32 ranges, __u32 src, __u32 dst)
{
	const struct range4 *range = ELEMENT(firewall, const struct ranges, 0)->v4;
	__u64 met = 0;

	NO_UNROLL
	for (int i = 0; i < RANGES && ranges; i++, ranges >>= 1) {
		__u64 has = 0 - (__u64)(ranges & 1);

		OPAQUE(has);
		met |= has & within_mask(src, range[i].src, range[i].src_span) &
		       within_mask(dst, range[i].dst, range[i].dst_span);
	}
	return met & 1;
}

/* The same of IPv6 addresses, in host order. */
inline_always __u64 within_mask6(const __u64 *src, const __u64 *dst, const struct range6 *r)
{
	return ~(less_mask128(src[0], src[1], r->src[0], r->src[1]) |
		 less_mask128(r->src_last[0], r->src_last[1], src[0], src[1]) |
		 less_mask128(dst[0], dst[1], r->dst[0], r->dst[1]) |
		 less_mask128(r->dst_last[0], r->dst_last[1], dst[0], dst[1]));
}

static __noinline int in_ranges6(__u32 ranges, const struct rule_query *q)
{
	const struct range6 *range = ELEMENT(firewall, const struct ranges, 0)->v6;
	__u64 met = 0;

	if (!q)
		return 0;
	NO_UNROLL
	for (int i = 0; i < RANGES && ranges; i++, ranges >>= 1) {
		__u64 has = 0 - (__u64)(ranges & 1);

		OPAQUE(has);
		met |= has & within_mask6(q->src, q->dst, &range[i]);
	}
	return met & 1;
}

/*
 * Looks for the ports of a packet, which are 0 where there are none. By what lies in `scratch`, and without a pointer into the packet: what
 * is found out about these on the way is not known of the caller's values then, and does not part the ways behind it (Linux 6.12: "BPF program is
 * too large. Processed 1000001 insn").
 */
inline_always void show_ports(struct xdp_md *ctx, struct rule_query *q, __u32 at)
{
	__u32 ports = 0;

	if (at + 4 <= READ_ONCE(q->end))
		bpf_xdp_load_bytes(ctx, at, &ports, sizeof(ports));
	q->sport = bpf_ntohs((__u16)ports);
	q->dport = bpf_ntohs((__u16)(ports >> 16));
}

/* Of a packet `begin` bytes further in than a frame's. */
inline_always int show4_from(struct xdp_md *ctx, struct rule_query *q, __u32 begin)
{
	__s32 offset;

	if (!q)
		return 0;
	offset = ports_offset(READ_ONCE(q->fields) >> 8);
	if (offset < 0 || READ_ONCE(q->sport)) {
		q->sport = 0;
		q->dport = 0;
		return 0;
	}
	show_ports(ctx, q, begin + L4_AT4 + offset);
	return 0;
}

static __noinline int show4(struct xdp_md *ctx, struct rule_query *q)
{
	return show4_from(ctx, q, 0);
}

/* Or a negative reason. */
inline_always int show6_from(struct xdp_md *ctx, struct rule_query *q, __u32 begin)
{
	__u32 next;
	__s64 found;

	if (!q)
		return 0;
	next = READ_ONCE(q->fields) >> 8;
	if (next == IPPROTO_TCP || next == IPPROTO_UDP) {
		show_ports(ctx, q, begin + L4_AT6);
		return 0;
	}
	/* `sport` is 0, which the verifier does not know. */
	found = dissect6(ctx, next, READ_ONCE(q->end), begin ? begin : READ_ONCE(q->sport));
	if (found < 0)
		return found;
	q->fields = (READ_ONCE(q->fields) & 0xff) | (__u32)(found >> 32 & 0xff) << 8;
	q->sport = bpf_ntohs((__u16)found);
	q->dport = bpf_ntohs((__u16)((__u32)found >> 16));
	return 0;
}

static __noinline int show6(struct xdp_md *ctx, struct rule_query *q)
{
	return show6_from(ctx, q, 0);
}

inline_always __u64 shown_mask(const struct selector *s, const struct rule_query *q)
{
	__u64 other = ((q->fields ^ s->fields) & s->fields >> 16) - 1ULL;

	OPAQUE(other);
	/* All ones if nothing was other. */
	other = (__s64)other >> 63;
	OPAQUE(other);
	return other & within_mask(q->sport, s->sport & 0xffff, s->sport >> 16) &
	       within_mask(q->dport, s->dport & 0xffff, s->dport >> 16);
}

/*
 * Selector::to of the first range of the link's that a packet is in, 0 for none; as in_ranges4(). What it shows lies in `scratch`: on the stack
 * it takes a million steps, see FORGET.
 */
static __noinline __u32 rule4(__u32 rules, const struct rule_query *q)
{
	const struct ranges *all = ELEMENT(firewall, const struct ranges, 0);
	__u64 found = 0, met = 0;

	if (!q)
		return 0;
	NO_UNROLL
	for (int i = 0; i < RANGES && rules; i++, rules >>= 1) {
		__u64 has = 0 - (__u64)(rules & 1);

		OPAQUE(has);
		has &= ~met & shown_mask(&all->selectors4[i], q) &
		       within_mask(q->src[0], all->rules4[i].src, all->rules4[i].src_span) &
		       within_mask(q->dst[0], all->rules4[i].dst, all->rules4[i].dst_span);
		found |= has & all->selectors4[i].to;
		met |= has;
	}
	return found;
}

static __noinline __u32 rule6(__u32 rules, const struct rule_query *q)
{
	const struct ranges *all = ELEMENT(firewall, const struct ranges, 0);
	__u64 found = 0, met = 0;

	if (!q)
		return 0;
	NO_UNROLL
	for (int i = 0; i < RANGES && rules; i++, rules >>= 1) {
		__u64 has = 0 - (__u64)(rules & 1);

		OPAQUE(has);
		has &= ~met & shown_mask(&all->selectors6[i], q) & within_mask6(q->src, q->dst, &all->rules6[i]);
		found |= has & all->selectors6[i].to;
		met |= has;
	}
	return found;
}

/*
 * The place of a CPU, or NULL. All at once: later the number comes from the stack, see INDEX ("R7 unbounded memory access").
 */
inline_always struct rule_query *rule_query(__u32 cpu)
{
	__u64 index = INDEX(cpu);
	struct rule_query *q;

	if (index >= cpus)
		return NULL;
	q = &ELEMENT(scratch, struct scratch, index)->rule;
	OPAQUE(q);
	return q;
}

/* Where a rule leads, or a reason why it does not. */
inline_always int lead(__u32 to, __u32 *table)
{
	if (to == RULE_KERNEL)
		return REASON_RULES;
	if (to)
		*table = to - RULE_TABLES;
	return 0;
}

/* The first byte behind a header: an ICMP type; -1 where there is none. */
inline_always int icmp_type(const void *behind, const void *data_end)
{
	const __u8 *type = behind;

	return (void *)(type + 1) > data_end ? -1 : *type;
}

/* firewall::is_cut: so many bytes are behind the IP header. */
inline_always int is_cut(__u32 proto, __u32 behind)
{
	switch (proto) {
	case IPPROTO_TCP:
		return behind < 20;
	case IPPROTO_DCCP:
	case IPPROTO_AH:
	case IPPROTO_SCTP:
		return behind < 12;
	default:
		return behind < 8;
	}
}

/* Whether connection tracking or a match may do more with it than to let it pass: a fragment, an ICMP error, or cut short. */
inline_always int is_tracked4(const struct header4 *h, const void *behind, const void *data_end)
{
	int type;

	if (fragment4(h->w1) & bpf_htons(0x3fff) || is_cut(protocol4(h->w2), total_length4(h->w0) - 20))
		return 1;
	if (protocol4(h->w2) != IPPROTO_ICMP)
		return 0;
	type = icmp_type(behind, data_end);
	return type < 0 || (type >= 3 && type <= 5) || type == 11 || type == 12;
}

/* The same of IPv6; behind an extension header may be either. */
inline_always int is_tracked6(__u32 next, __u32 len, const void *behind, const void *data_end)
{
	if (is_cut(next, len))
		return 1;
	switch (next) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_FRAGMENT:
	case IPPROTO_AH:
	case IPPROTO_DSTOPTS:
	case 135: /* mobility */
	case 139: /* HIP */
	case 140: /* Shim6 */
		return 1;
	case IPPROTO_ICMPV6:
		/* None is less than 128, too. */
		return icmp_type(behind, data_end) < 128;
	default:
		return 0;
	}
}

/*
 * Memory::guards4: a reason, or 0 and the table. `behind` is what is behind the header that was loaded, `packet_end` where the packet ends in
 * the frame, `begin` where its Ethernet header is or would be: a constant 0 but for what was inside another packet.
 */
inline_always int guards4(struct xdp_md *ctx, const struct link_entry *link, const struct header4 *h, const void *behind,
			  const void *data_end, __u32 packet_end, __u32 cpu, __u32 *table, __u32 begin)
{
	__u32 src = bpf_ntohl(h->src), dst = bpf_ntohl(h->dst);
	struct rule_query *q;

	if (link->flags & LINK_TRACKED4 && is_tracked4(h, behind, data_end))
		return REASON_FIREWALL;
	if (link->ranges4 && in_ranges4(link->ranges4, src, dst))
		return REASON_FIREWALL;
	if (!link->rules4)
		return 0;
	q = rule_query(cpu);
	if (!q)
		return REASON_RULES;
	q->src[0] = src;
	q->dst[0] = dst;
	q->fields = (h->w0 >> 8 & 0xff) | protocol4(h->w2) << 8;
	q->sport = !!(fragment4(h->w1) & bpf_htons(0x3fff));
	q->end = packet_end;
	if (__builtin_constant_p(begin))
		show4(ctx, q);
	else
		show4_from(ctx, q, begin);
	return lead(rule4(link->rules4, q), table);
}

/* Memory::guards6 but for what is tracked, likewise; `w0` is the header's first word, `next` its next header. */
inline_always int guards6(struct xdp_md *ctx, const struct link_entry *link, const struct addresses *a, __u32 w0,
			  __u32 next, __u32 packet_end, __u32 cpu, __u32 *table, __u32 begin)
{
	struct rule_query *q;
	int reason;

	if (!(link->ranges6 | link->rules6))
		return 0;
	q = rule_query(cpu);
	if (!q)
		return REASON_RULES;
	q->src[0] = bpf_be64_to_cpu(a->src_high);
	q->src[1] = bpf_be64_to_cpu(a->src_low);
	q->dst[0] = bpf_be64_to_cpu(a->dst_high);
	q->dst[1] = bpf_be64_to_cpu(a->dst_low);
	if (link->ranges6 && in_ranges6(link->ranges6, q))
		return REASON_FIREWALL;
	if (!link->rules6)
		return 0;
	q->fields = (bpf_ntohl(w0) >> 20 & 0xff) | next << 8;
	q->sport = 0;
	q->end = packet_end;
	if (__builtin_constant_p(begin))
		reason = show6(ctx, q);
	else
		reason = show6_from(ctx, q, begin);
	if (reason)
		return -reason;
	return lead(rule6(link->rules6, q), table);
}

#endif
