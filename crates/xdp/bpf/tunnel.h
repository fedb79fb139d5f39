/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The program that puts packets into tunnels: rules T1 to T4 of crates/srv6/src/tunnel.rs.
 */
#ifndef RADDLE_TUNNEL_H
#define RADDLE_TUNNEL_H

#include <linux/in.h>

#include "change.h"
#include "dissect.h"
#include "srv6.h"
#include "srv6_route.h"

/* "Not to be fragmented", as loaded. */
#define IP_DF bpf_htons(0x4000)
/* Congestion experienced, and a transport that knows of that. */
#define ECN_CE 3
#define ECN_ECT_0 2
/* Set in the first, and in ECT(1). */
#define ECN_CE_OR_ECT_1 1
/* "There is a key" in GRE, and "there is a VNI" in VXLAN, as loaded. */
#define GRE_HAS_KEY bpf_htons(0x2000)
#define VXLAN_HAS_VNI bpf_htonl(0x08000000)
/* Where headers of UDP and VXLAN begin in a packet, and the frame behind them. */
#define UDP_AT 20
#define VXLAN_AT (UDP_AT + 8)
#define FRAME_AT (VXLAN_AT + 8)

/* As much as bpf_csum_diff() adds up at once, in bytes. */
#define SUM_CHUNK 512

/* A ones' complement sum in 16 bits. */
inline_always __u32 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/*
 * The ones' complement sum of the bytes from `at` to `end`, in whichever buffers they are, or a negative number. They are copied to where large
 * changes are kept: no packet through a tunnel has any.
 */
static __noinline __s64 sum_of(struct xdp_md *ctx, struct srv6_ctx *w, __u32 at, __u32 end)
{
	__u8 *copy = (__u8 *)w->large;
	__u64 sum = 0;

	NO_UNROLL for (int i = 0; i < 65536 / SUM_CHUNK; i++) {
		__u32 length = end - at, words;
		__s64 more;

		if (at >= end)
			return sum;
		if (length > SUM_CHUNK)
			length = SUM_CHUNK;
		/* From 1 on, see large_length(); and in whole words, of which zeros make the last one full. */
		length -= 1;
		OPAQUE(length);
		length = (length & (SUM_CHUNK - 1)) + 1;
		words = length + 3;
		OPAQUE(words);
		words &= 2 * SUM_CHUNK - 4;
		*(__u32 *)(copy + ((words - 4) & (SUM_CHUNK - 4))) = 0;
		if (bpf_xdp_load_bytes(ctx, at, copy, length))
			return -1;
		more = bpf_csum_diff(NULL, 0, (__be32 *)copy, words, 0);
		if (more < 0)
			return -1;
		sum += (__u32)more;
		at += SUM_CHUNK;
	}
	return at >= end ? (__s64)sum : -1;
}

/* The same of a UDP packet over IPv4 whose IP header is at `at`: over all that its checksum is about. */
inline_always __s64 sum_udp(struct xdp_md *ctx, struct srv6_ctx *w, __u32 at, __u32 end)
{
	__s64 sum = sum_of(ctx, w, at + UDP_AT, end);
	__u32 *ip = bytes_at(ctx, at, 20);

	if (sum < 0 || !ip)
		return -1;
	return fold((__u64)sum + ip[3] + ip[4] + bpf_htons(IPPROTO_UDP) + bpf_htons(end - at - UDP_AT));
}

/* dissect_whole of crates/packet: what skb_get_hash() looks at. */
static __noinline int dissect_whole(struct xdp_md *ctx, struct seen *s, __u32 end)
{
	return dissect_by(ctx, s, s, end, 1);
}

static __noinline __u32 hash_whole(const struct seen *s)
{
	return hash_fields(s, FIELDS_OUTER, 1);
}

/* The port of VXLAN that says which flow is inside (udp_flow_src_port), or a negative reason. */
static __noinline int source_port(struct xdp_md *ctx, struct scratch *here, __u32 first, __u32 ports)
{
	struct seen *s = &here->innermost;
	__u32 hash;

	__builtin_memset(s, 0, sizeof(*s));
	s->at = here->srv6.packet.at;
	s->ether_type = here->srv6.packet.ether_type;
	dissect_whole(ctx, s, READ_ONCE(here->srv6.packet.end));
	if (READ_ONCE(s->kind) == SEEN_NOTHING || READ_ONCE(s->more))
		return -REASON_HASH_POLICY;
	hash = hash_whole(s);
	hash ^= hash << 16;
	return (first + (__u32)((__u64)hash * ports >> 32)) & 0xffff;
}

/* Bytes that a tunnel puts in front of a packet; 0 for none that there is. */
inline_always __u32 tunnel_length(__u32 kind, __u32 flags)
{
	switch (kind) {
	case TUNNEL_KIND_IP:
		return TUNNEL_IPV4;
	case TUNNEL_KIND_GRE:
		return TUNNEL_IPV4 + TUNNEL_GRE + (flags & TUNNEL_F_HAS_KEY ? TUNNEL_GRE : 0);
	case TUNNEL_KIND_VXLAN:
		return TUNNEL_MOST;
	default:
		return 0;
	}
}

/* A12 and B9 as far as they are about the tunnel's adjacency. */
inline_always int check_tunnel(struct xdp_md *ctx, struct srv6_ctx *w, const struct adjacency *adj, __u64 word0)
{
	__u32 length = READ_ONCE(w->packet.end) - IP_AT;
	const struct link_entry *link = link_of(w);
	__u64 closed;

	if ((word0 >> 32 & 0xff) != ADJ_TUNNEL)
		return REASON_OUT_LINK;
	if (!link)
		return REASON_NOT_ENABLED;
	if ((__u32)word0 == link->index)
		return REASON_SAME_LINK;
	if (length > adj->mtu)
		return REASON_MTU;
	closed = READ_ONCE(w->packet.ether_type) == ETH_P_IPV6 ? link->closed6 : link->closed4;
	if (closed >> (word0 >> 48 & 63) & 1)
		return closed_reason(link, word0);
	return is_split_here(ctx, READ_ONCE(w->length)) ? REASON_SEVERAL_BUFFERS : 0;
}

/* What is behind the outer IPv4 header. */
inline_always int write_behind(struct xdp_md *ctx, struct scratch *here, const struct adjacency *adj, __u32 sport,
			       __be16 type)
{
	const struct tunnel *t = &adj->tunnel;
	__u32 end = READ_ONCE(here->srv6.packet.end);
	__u32 *to;
	__s64 sum;

	if (t->kind == TUNNEL_KIND_GRE) {
		to = bytes_at(ctx, IP_AT + TUNNEL_IPV4, TUNNEL_GRE);
		if (!to)
			return REASON_DEEP_HEADERS;
		*to = (__u32)type << 16;
		if (!(t->flags & TUNNEL_F_HAS_KEY))
			return 0;
		to = bytes_at(ctx, IP_AT + TUNNEL_IPV4, 2 * TUNNEL_GRE);
		if (!to)
			return REASON_DEEP_HEADERS;
		to[0] |= GRE_HAS_KEY;
		to[1] = *(const __u32 *)t->key;
		return 0;
	}
	if (t->kind != TUNNEL_KIND_VXLAN)
		return 0;
	to = bytes_at(ctx, IP_AT + UDP_AT, TUNNEL_VXLAN);
	if (!to)
		return REASON_DEEP_HEADERS;
	to[0] = bpf_htons(sport) | (__u32)bpf_htons(t->port) << 16;
	to[1] = bpf_htons(end - IP_AT - UDP_AT);
	to[2] = VXLAN_HAS_VNI;
	to[3] = *(const __u32 *)t->key & bpf_htonl(0xffffff00);
	rewrite_macs(to + 4, adj);
	*(__be16 *)(to + 7) = type;
	if (!(t->flags & TUNNEL_F_CHECKSUM))
		return 0;
	sum = sum_udp(ctx, &here->srv6, IP_AT, end);
	to = bytes_at(ctx, IP_AT + UDP_AT, 8);
	if (sum < 0 || !to)
		return REASON_DEEP_HEADERS;
	/* 0 would say that there is none. */
	to[1] |= (sum == 0xffff ? 0xffff : (~sum & 0xffff)) << 16;
	return 0;
}

/* What of the packet inside the header in front of it says. */
struct inner {
	__u32 tos, ttl, df;
};

/* T2: a packet's TTL is one less; what it looks like then. */
inline_always int decrease(struct xdp_md *ctx, struct srv6_ctx *w, struct inner *inner)
{
	__u32 *ip = bytes_at(ctx, IP_AT, 20);

	if (!ip)
		return REASON_DEEP_HEADERS;
	keep(w, IP_AT, (__u64 *)ip, 0);
	if (READ_ONCE(w->packet.ether_type) == ETH_P_IPV6) {
		inner->tos = bpf_ntohl(ip[0]) >> 20 & 0xff;
		inner->ttl = hop_limit6(ip[1]) - 1;
		inner->df = 0;
		ip[1] = less_hop_limit6(ip[1]);
	} else {
		inner->tos = ip[0] >> 8 & 0xff;
		inner->ttl = ttl4(ip[2]) - 1;
		inner->df = fragment4(ip[1]) & IP_DF;
		ip[2] = less_ttl4(ip[2]);
	}
	return 0;
}

/* T3: the outer header, of a packet that has room for it; `number` is its protocol. */
inline_always int write_outer4(struct xdp_md *ctx, struct srv6_ctx *w, const struct tunnel *t, const struct inner *inner,
			       __u32 number)
{
	__u32 *ip = bytes_at(ctx, IP_AT, TUNNEL_IPV4), flags = t->flags, tos, ttl, ecn = inner->tos & 3, w0, w1, w2, src, dst;
	__u64 sum;

	if (!ip)
		return REASON_DEEP_HEADERS;
	tos = flags & TUNNEL_F_TOS_INNER ? inner->tos : t->tos;
	tos = (tos & 0xfc) | (ecn == ECN_CE ? ECN_ECT_0 : ecn);
	ttl = flags & TUNNEL_F_TTL_INNER ? inner->ttl : t->ttl;
	/* Another one on each CPU. */
	w->id += cpus;
	if (flags & TUNNEL_F_DF || (flags & TUNNEL_F_DF_INNER && inner->df))
		w1 = (__u32)IP_DF << 16;
	else
		w1 = (w->id + bpf_get_smp_processor_id()) & 0xffff;
	w0 = 0x45 | tos << 8 | (__u32)bpf_htons(READ_ONCE(w->packet.end) - IP_AT) << 16;
	w2 = ttl | number << 8;
	src = *(const __u32 *)t->src;
	dst = *(const __u32 *)t->dst;
	sum = (__u64)w0 + w1 + w2 + src + dst;
	ip[0] = w0;
	ip[1] = w1;
	ip[2] = w2 | (~fold(sum) & 0xffff) << 16;
	ip[3] = src;
	ip[4] = dst;
	return 0;
}

/* T1 to T3. */
inline_always int put_into_tunnel(struct xdp_md *ctx, struct scratch *here, const struct adjacency *adj)
{
	struct srv6_ctx *w = &here->srv6;
	__u32 type = READ_ONCE(w->packet.ether_type), length = READ_ONCE(w->packet.end) - IP_AT, number;
	const struct tunnel *t = &adj->tunnel;
	__u32 longer = tunnel_length(t->kind, t->flags);
	struct inner inner;
	int reason, sport = 0;

	if (!longer || !(t->flags & (type == ETH_P_IPV6 ? TUNNEL_F_CARRIES6 : TUNNEL_F_CARRIES4)))
		return REASON_OUT_LINK;
	if (t->kind == TUNNEL_KIND_VXLAN) {
		number = IPPROTO_UDP;
		sport = source_port(ctx, here, t->sport, t->sports);
		if (sport < 0)
			return -sport;
	} else if (t->kind == TUNNEL_KIND_GRE) {
		number = IPPROTO_GRE;
	} else {
		number = type == ETH_P_IPV6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	}
	if (length + longer > 0xffff)
		return REASON_MTU;
	reason = decrease(ctx, w, &inner);
	if (reason)
		return reason;
	w->tunnel_bytes = ETH_HLEN + length;
	w->flow = w->packet;
	w->salt = t->salt;
	reason = grow(ctx, w, longer, 0);
	if (reason)
		return reason;
	w->packet.ether_type = ETH_P_IP;
	w->way = WAY_OUT;
	reason = write_outer4(ctx, w, t, &inner, number);
	return reason ? reason : write_behind(ctx, here, adj, sport, bpf_htons(type));
}

/* T4 */
inline_always int route_outer(struct xdp_md *ctx, struct scratch *here, const struct adjacency *adj)
{
	__u32 value = fib4_lookup(adj->lower, bpf_ntohl(*(const __u32 *)adj->tunnel.dst));
	__u64 group = group_word(value);

	if ((__u8)group == GROUP_SINGLE)
		return leave_by_tunnel(ctx, here, group >> 32);
	return is_many(group) ? to_choice(here, group, value) : REASON_OUT_LINK;
}

/* Packets whose adjacency is a tunnel's, which is noted in `scratch`. */
SEC("xdp.frags")
int tunnel(struct xdp_md *ctx)
{
	struct scratch *here = scratch_here();
	const struct adjacency *adj;
	struct srv6_ctx *w;
	__u64 index;
	int verdict;

	if (!here)
		return XDP_PASS;
	w = &here->srv6;
	w->done = 0;
	verdict = set_out(ctx, w);
	index = INDEX(READ_ONCE(w->tunnel));
	if (!verdict && index >= adjacencies_len)
		verdict = REASON_OUT_LINK;
	if (!verdict && index < adjacencies_len) {
		adj = ELEMENT(adjacencies, const struct adjacency, index);
		verdict = check_tunnel(ctx, w, adj, *(volatile const __u64 *)adj);
		if (!verdict)
			verdict = put_into_tunnel(ctx, here, adj);
		if (!verdict)
			verdict = route_outer(ctx, here, adj);
	}
	return settle(ctx, here, verdict);
}

#endif
