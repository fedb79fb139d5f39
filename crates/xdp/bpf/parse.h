/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Where things are in a frame, and the checks on addresses. Offsets count from the destination
 * MAC. Only 20-byte IPv4 headers come this far, so the transport header's place is fixed.
 */
#ifndef RADDLE_PARSE_H
#define RADDLE_PARSE_H

#include <bpf/bpf_endian.h>

#include "maps.h"

#define IP_AT 14
#define L4_AT4 (IP_AT + 20)
#define L4_AT6 (IP_AT + 40)
#define FRAME_MIN 60

/* IPv6 addresses as loaded. */
struct addresses {
	__u64 src_high, src_low, dst_high, dst_low;
};

inline_always void load_addresses(struct addresses *a, void *at)
{
	__u64 *words = at;

	a->src_high = words[0];
	a->src_low = words[1];
	a->dst_high = words[2];
	a->dst_low = words[3];
}

/* Whether the ones' complement sum of a 20-byte header, given as loaded, is what it has to be. */
inline_always int header_sum_good(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

/* Rules A5 and A6 for addresses in host order; 0 when there is nothing to say against them. */
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

/* Rules B4 and B5 for addresses in host order. */
inline_always int check_addresses6(__u64 sh, __u64 sl, __u64 dh, __u64 dl)
{
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

#endif
