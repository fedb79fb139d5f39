/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Which member of a bond a frame with a tag leaves by, as bond_hash() and bond_member() of crates/select: layer2, layer2+3 and layer3+4.
 * The driver of bonds does not look behind a tag that is in the frame.
 */
#ifndef RADDLE_BOND_H
#define RADDLE_BOND_H

#include <linux/if_ether.h>
#include <linux/in.h>

#include "dissect.h"
#include "image.h"
#include "maps.h"
#include "select.h"

/* What is hashed of an IP header: both addresses in a word, the protocol, or 0 of a fragment, and where the header ends. */
struct bond_ip {
	__u32 addresses, proto, end;
};

/* Both addresses of the header at `at`, folded; 0 if it is there. */
static __noinline int bond_ip(struct xdp_md *ctx, struct bond_ip *of, __u32 ether_type, __u32 at, __u32 end)
{
	__u32 h[10];

	if (!of)
		return -1;
	if (ether_type == ETH_P_IPV6) {
		if (!header(ctx, at, end, h, 40))
			return -1;
		of->addresses = h[2] ^ h[3] ^ h[4] ^ h[5] ^ h[6] ^ h[7] ^ h[8] ^ h[9];
		of->proto = h[1] >> 16 & 0xff;
		of->end = at + 40;
		return 0;
	}
	if (!header(ctx, at, end, h, 20))
		return -1;
	of->addresses = h[3] ^ h[4];
	/* 0 is hop-by-hop options, which have neither ports nor messages. */
	of->proto = h[1] >> 16 & bpf_htons(0x3fff) ? 0 : h[2] >> 8 & 0xff;
	of->end = at + (h[0] & 0xf) * 4;
	return 0;
}

/* The four bytes of the ports behind that header, as loaded; 0 where there are none. */
inline_always __u32 bond_ports(struct xdp_md *ctx, const struct bond_ip *of, __u32 end)
{
	__s32 offset = ports_offset(of->proto);
	__u32 ports;

	return offset >= 0 && header(ctx, of->end + (__u32)offset, end, &ports, sizeof(ports)) ? ports : 0;
}

/* Type, code and identifier of an ICMP message, as loaded but for the order of the identifier; 0 of one without (IcmpKey). */
inline_always __u32 bond_icmp(const __u8 *icmp)
{
	__u32 id = big16(icmp + 4);

	switch (icmp[0]) {
	case 0:
	case 8:
	case 13:
	case 14:
	case 128:
	case 129:
		return icmp[0] | (__u32)icmp[1] << 8 | (id ? id : 1) << 16;
	default:
		return 0;
	}
}

/*
 * The hash of the packet between `at` and `end` of the frame, as it leaves by this adjacency. A function of its own, as few packets leave so; it
 * changes nothing.
 */
static __noinline __u32 bond_hash(struct xdp_md *ctx, const struct adjacency *adj, __u32 at, __u32 end, __u32 ether_type)
{
	__u32 policy, ethernet, first, errors;
	struct bond_ip of = {};
	__u8 icmp[8];

	if (!adj)
		return 0;
	policy = adj->bonded.policy;
	ethernet = (adj->dst_mac[5] ^ adj->src_mac[5]) ^ ether_type;
	if (policy == BOND_LAYER2 || bond_ip(ctx, &of, ether_type, at, end))
		return ethernet;
	first = 0;
	if ((of.proto == IPPROTO_ICMP || of.proto == IPPROTO_ICMPV6) && header(ctx, of.end, end, icmp, sizeof(icmp))) {
		errors = of.proto == IPPROTO_ICMP ? ICMP4_ERRORS : ICMP6_ERRORS;
		first = bond_icmp(icmp);
		/* Of an error all is that of the packet which it is about. */
		if (icmp[0] < 32 && errors >> icmp[0] & 1 && bond_ip(ctx, &of, ether_type, of.end + sizeof(icmp), end))
			return ethernet;
	}
	if (!first)
		first = bond_ports(ctx, &of, end);
	first = (policy == BOND_LAYER34 ? first : ethernet) ^ of.addresses;
	first ^= first >> 16;
	first ^= first >> 8;
	return policy == BOND_LAYER34 ? first >> 1 : first;
}

/* The link that a packet leaves by, which is the adjacency's `lower`, or a member of that (Bonded::member). */
inline_always __u32 lower_link(struct xdp_md *ctx, const struct adjacency *adj, __u32 at, __u32 end, __u32 ether_type)
{
	__u32 count = adj->bonded.count, hash, rest;
	__u64 place;

	if (!count)
		return adj->lower;
	hash = bond_hash(ctx, adj, at, end, ether_type);
	rest = hash - (__u32)((__u64)hash * adj->bonded.reciprocal >> 32) * count;
	/* The quotient is right or one too small. */
	if (rest >= count)
		rest -= count;
	place = INDEX(rest);
	return place < MAX_BONDED ? adj->bonded.members[place] : adj->lower;
}

#endif
