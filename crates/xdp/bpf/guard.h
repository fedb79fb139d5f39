/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * What a firewall of the kernel's, or a routing rule by address, may concern of a link's packets, wherever they go.
 */
#ifndef RADDLE_GUARD_H
#define RADDLE_GUARD_H

#include <linux/in.h>

#include "check.h"
#include "maps.h"

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
 * Memory::guards4 but for what is tracked. A function of its own, as has_way_back(); and without branches in the loop but its end, lest the
 * verifier follows each way through it: "The sequence of 8193 jumps is too complex".
 */
static __noinline int in_ranges4(__u32 of_rules, __u32 ranges, __u32 src, __u32 dst)
{
	const struct ranges *all = ELEMENT(firewall, const struct ranges, 0);
	const struct range4 *range = of_rules ? all->rules4 : all->v4;
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

static __noinline int in_ranges6(__u32 ranges, __u64 sh, __u64 sl, __u64 dh, __u64 dl)
{
	/* Both kinds: the lower half of `ranges` are the firewall's. A function takes five arguments. */
	const struct ranges *all = ELEMENT(firewall, const struct ranges, 0);
	const struct range6 *range = ranges & 0xffff ? all->v6 : all->rules6;
	__u64 met = 0;

	ranges = ranges & 0xffff ? ranges : ranges >> 16;
	NO_UNROLL
	for (int i = 0; i < RANGES && ranges; i++, ranges >>= 1) {
		const struct range6 *r = &range[i];
		__u64 has = 0 - (__u64)(ranges & 1);

		OPAQUE(has);
		met |= has & ~(less_mask128(sh, sl, r->src[0], r->src[1]) |
			       less_mask128(r->src_last[0], r->src_last[1], sh, sl) |
			       less_mask128(dh, dl, r->dst[0], r->dst[1]) |
			       less_mask128(r->dst_last[0], r->dst_last[1], dh, dl));
	}
	return met & 1;
}

/* The first byte behind a header: an ICMP type; -1 where there is none. */
inline_always int icmp_type(const void *behind, const void *data_end)
{
	const __u8 *type = behind;

	return (void *)(type + 1) > data_end ? -1 : *type;
}

/* Whether connection tracking may do more with it than to let it pass: a fragment, or an ICMP error. */
inline_always int is_tracked4(const struct header4 *h, const void *behind, const void *data_end)
{
	int type;

	if (fragment4(h->w1) & bpf_htons(0x3fff))
		return 1;
	if (protocol4(h->w2) != IPPROTO_ICMP)
		return 0;
	type = icmp_type(behind, data_end);
	return type < 0 || (type >= 3 && type <= 5) || type == 11 || type == 12;
}

/* The same of IPv6; behind an extension header may be either. */
inline_always int is_tracked6(__u32 next, const void *behind, const void *data_end)
{
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

/* Memory::guards4; 0 for none. */
inline_always int guards4(const struct link_entry *link, const struct header4 *h, const void *behind, const void *data_end)
{
	if (link->flags & LINK_TRACKED4 && is_tracked4(h, behind, data_end))
		return REASON_FIREWALL;
	if (link->ranges4 && in_ranges4(0, link->ranges4, bpf_ntohl(h->src), bpf_ntohl(h->dst)))
		return REASON_FIREWALL;
	if (link->rules4 && in_ranges4(1, link->rules4, bpf_ntohl(h->src), bpf_ntohl(h->dst)))
		return REASON_RULES;
	return 0;
}

/* Memory::guards6 but for what is tracked, likewise; addresses in host order. */
inline_always int guards6(const struct link_entry *link, __u64 sh, __u64 sl, __u64 dh, __u64 dl)
{
	if (link->ranges6 && in_ranges6(link->ranges6, sh, sl, dh, dl))
		return REASON_FIREWALL;
	if (link->rules6 && in_ranges6((__u32)link->rules6 << 16, sh, sl, dh, dl))
		return REASON_RULES;
	return 0;
}

#endif
