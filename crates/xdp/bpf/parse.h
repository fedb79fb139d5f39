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

#endif
