/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * What is checked of a packet before it is looked up: rules A1 to A7 and B1 to B5, once for each family. The main
 * program, the fast path through a segment and the program for segments take the same functions.
 *
 * Headers are read in words, as wide as they are aligned to: a field of its own is a load of its own, and its
 * checks another branch. The functions below name what is in them.
 */
#ifndef RADDLE_CHECK_H
#define RADDLE_CHECK_H

#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_endian.h>

#include "fib4.h"
#include "maps.h"
#include "parse.h"
#include "verdict.h"

/* An IPv4 header of 20 bytes, as loaded. */
struct header4 {
	__u32 w0;	/* version, length, TOS, total length */
	__u32 w1;	/* identification, flags and fragment offset */
	__u32 w2;	/* TTL, protocol, checksum */
	__u32 src, dst;
};

inline_always void load_header4(struct header4 *h, const __u32 *ip)
{
	h->w0 = ip[0];
	h->w1 = ip[1];
	h->w2 = ip[2];
	h->src = ip[3];
	h->dst = ip[4];
}

inline_always __u32 total_length4(__u32 w0)
{
	return bpf_ntohs((__u16)(w0 >> 16));
}

inline_always __be16 fragment4(__u32 w1)
{
	return w1 >> 16;
}

inline_always __u32 ttl4(__u32 w2)
{
	return w2 & 0xff;
}

inline_always __u32 protocol4(__u32 w2)
{
	return w2 >> 8 & 0xff;
}

/*
 * The third word with one less TTL: that is 0x0100 more in the checksum, with the carry that
 * ip_decrease_ttl makes.
 */
inline_always __u32 less_ttl4(__u32 w2)
{
	__u32 sum = (w2 >> 16) + bpf_htons(0x0100);

	sum += sum >= 0xffff;
	return ((w2 & 0xffff) - 1) | sum << 16;
}

/* The first two words of an IPv6 header: version, class and label; payload length, next header, hop limit. */
inline_always __u32 payload6(__u32 w1)
{
	return bpf_ntohs((__u16)w1);
}

inline_always __u32 next_header6(__u32 w1)
{
	return w1 >> 16 & 0xff;
}

inline_always __u32 hop_limit6(__u32 w1)
{
	return w1 >> 24;
}

/* The second word with one less hop limit. */
inline_always __u32 less_hop_limit6(__u32 w1)
{
	return w1 - (1u << 24);
}

/* Whether the ones' complement sum of a 20-byte header is what it has to be. */
inline_always int header_sum_good(const struct header4 *h)
{
	__u64 sum = (__u64)h->w0 + h->w1 + h->w2 + h->src + h->dst;

	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

/* Rules A5 and A6 for addresses in host order. */
inline_always int check_addresses4(__u32 src, __u32 dst)
{
	__u32 top = src >> 24;

	if (src == 0 || top == 127 || (top >= 224 && top < 240) || src == 0xffffffff)
		return REASON_MARTIAN_SOURCE;
	top = dst >> 24;
	if (dst == 0 || top == 127)
		return REASON_MARTIAN_DESTINATION;
	if (top >= 224) {
		if (top < 240)
			return REASON_MULTICAST;
		if (dst == 0xffffffff)
			return REASON_BROADCAST;
	}
	return 0;
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
	return flags & LINK_ACCEPT_LOCAL ? 0 : REASON_LOCAL_SOURCE;
}

inline_always int maybe_local(__u32 address)
{
	__u32 bit = (address * 0x9e3779b1u) >> 16;

	return READ(local4, __u64, LOCAL_BITS / 64, bit >> 6, 0) >> (bit & 63) & 1;
}

/* What check4() does where the filter says that the source may be one of this host's: looks it up, or refuses it unseen. */
enum local_source { LOCAL_LOOK_UP, LOCAL_REFUSE };

/*
 * A1 to A7: why the packet with this header may not be looked up, or 0. `room` is what there is of it, in bytes,
 * `flags` are the link's, `sources` is where its sources are looked up. A fast path that only asks whether the packet is usual
 * refuses what may be the host's own: the look-up would be in its way for all packets.
 */
inline_always int check4(const struct header4 *h, __u32 room, __u32 flags, __u32 sources, enum local_source own)
{
	__u32 length = total_length4(h->w0);
	int reason;

	/* A1 to A3 */
	if ((h->w0 & 0xff) != 0x45)
		return (h->w0 & 0xf0) != 0x40 || (h->w0 & 0xf) < 5 ? REASON_BAD_HEADER : REASON_OPTIONS;
	if (!header_sum_good(h))
		return REASON_BAD_CHECKSUM;
	if (length < 20 || length > room)
		return REASON_BAD_LENGTH;
	/* A4 */
	if ((flags & (LINK_FORWARD4 | LINK_RULES4 | LINK_RP_FILTER)) != LINK_FORWARD4) {
		if (!(flags & LINK_FORWARD4))
			return REASON_FORWARDING_OFF;
		return flags & LINK_RULES4 ? REASON_RULES : REASON_RP_FILTER;
	}
	reason = check_addresses4(bpf_ntohl(h->src), bpf_ntohl(h->dst));
	if (reason)
		return reason;
	/* A7 */
	if (!maybe_local(bpf_ntohl(h->src)))
		return 0;
	return own == LOCAL_REFUSE ? REASON_LOCAL_SOURCE : refused_source(sources, bpf_ntohl(h->src), flags);
}

/* B1 and B2, of the first two words; `room` is what there is of the packet, in bytes. */
inline_always int check_header6(__u32 w0, __u32 w1, __u32 room)
{
	if ((w0 & 0xf0) != 0x60)
		return REASON_BAD_HEADER;
	if (next_header6(w1) == IPPROTO_HOPOPTS)
		return REASON_OPTIONS;
	return 40 + payload6(w1) > room ? REASON_BAD_LENGTH : 0;
}

/* B3 to B5, for addresses in host order; of a packet whose header raddle has made itself, that is all. */
inline_always int check_route6(__u32 flags, __u64 sh, __u64 sl, __u64 dh, __u64 dl)
{
	if ((flags & (LINK_FORWARD6 | LINK_RULES6)) != LINK_FORWARD6)
		return flags & LINK_FORWARD6 ? REASON_RULES : REASON_FORWARDING_OFF;
	if (sh >> 56 == 0xff)
		return REASON_MARTIAN_SOURCE;
	if (sh == 0 && (sl <= 1 || sl >> 32 == 0xffff))
		return REASON_MARTIAN_SOURCE;
	if (sh >> 54 == 0xfe80 >> 6)
		return REASON_LINK_LOCAL;
	if (dh == 0 && dl <= 1)
		return REASON_MARTIAN_DESTINATION;
	if (dh >> 56 == 0xff)
		return REASON_MULTICAST;
	if (dh >> 54 == 0xfe80 >> 6)
		return REASON_LINK_LOCAL;
	return 0;
}

/* flags_behind() takes both the same way. */
_Static_assert(LINK_RULES4_BEHIND / LINK_RULES4 == LINK_RULES6_BEHIND / LINK_RULES6, "");

/*
 * The link's flags for a packet behind a segment: rules do not concern all of these, and the reverse path is the kernel's
 * business where the segment is.
 */
inline_always __u32 flags_behind(__u32 flags, __u32 table, __u32 own)
{
	if (table != LINK_TABLE)
		flags &= ~(LINK_RULES4 | LINK_RULES6);
	else
		flags |= flags / (LINK_RULES4_BEHIND / LINK_RULES4) & (LINK_RULES4 | LINK_RULES6);
	flags &= ~LINK_RP_FILTER;
	if (flags & LINK_RP_BEHIND && !own)
		flags |= LINK_RP_FILTER;
	return flags;
}

#endif
