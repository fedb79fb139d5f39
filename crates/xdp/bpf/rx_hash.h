/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The hash that a packet brings: with policy 1 the kernel takes it in place of seed and fields where it is an
 * L4 hash (fib_multipath_hash, rt6_multipath_hash: skb->l4_hash).
 *
 * Only the variant of the program for a device whose driver gives it (-DRX_HASH) reads it. In the other one there is
 * none, and not an instruction about it.
 */
#ifndef RADDLE_RX_HASH_H
#define RADDLE_RX_HASH_H

#include "maps.h"

#ifdef RX_HASH

/* XDP_RSS_L4 of enum xdp_rss_hash_type. */
#define RSS_L4 8

/*
 * bpf_xdp_metadata_rx_hash. No helper has this number: the loader puts the kernel's function there,
 * see crates/xdp/src/rx_hash.rs.
 */
static int (*const metadata_rx_hash)(struct xdp_md *ctx, __u32 *hash, __u32 *type) = (void *)0x7278;

/* Whether the packet brings an L4 hash; `hash` is then what policy 1 makes of it. */
inline_always int brings_hash(struct xdp_md *ctx, __u32 policy, __u32 *hash)
{
	__u32 brought = 0, type = 0;

	if (policy != 1 || metadata_rx_hash(ctx, &brought, &type) || !(type & RSS_L4))
		return 0;
	*hash = brought >> 1;
	return 1;
}

#else

inline_always int brings_hash(struct xdp_md *ctx, __u32 policy, __u32 *hash)
{
	return 0;
}

#endif

#endif
