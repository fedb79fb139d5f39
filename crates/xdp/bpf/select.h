/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Which member of a group a packet takes: the flow key, its hash and the member, as the kernel's
 * fib_multipath_hash and rt6_multipath_hash for policies 0 (L3) and 1 (L4).
 *
 * The hash functions return the 31-bit hash, or a negative reason. Addresses and ports are kept as
 * loaded, because the kernel orders and hashes them that way.
 */
#ifndef RADDLE_SELECT_H
#define RADDLE_SELECT_H

#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_endian.h>

#include "parse.h"
#include "siphash.h"

/* All ones if a < b, else 0, without a branch: the order of two hosts is not predictable. */
inline_always __u64 less_mask(__u32 a, __u32 b)
{
	__u64 mask = (__s64)((__u64)a - (__u64)b) >> 63;

	asm volatile("" : "+r"(mask));
	return mask;
}

/* Ports as loaded, ordered so that both directions of a flow look the same. */
inline_always __u32 order_ports(__u32 ports)
{
	__u32 swapped = ports << 16 | ports >> 16;
	__u64 mask = less_mask(ports >> 16, ports & 0xffff);

	return ports ^ ((ports ^ swapped) & mask);
}

/* Protocols whose first four bytes, or those after them for AH, count as ports. */
inline_always __s32 ports_offset(__u32 proto)
{
	switch (proto) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_DCCP:
	case IPPROTO_ESP:
	case IPPROTO_SCTP:
	case IPPROTO_UDPLITE:
		return 0;
	case IPPROTO_AH:
		return 4;
	default:
		return -1;
	}
}

/* Bits of ICMP and ICMPv6 error types. */
#define ICMP4_ERRORS (1u << 3 | 1u << 4 | 1u << 5 | 1u << 11 | 1u << 12)
#define ICMP6_ERRORS (1u << 1 | 1u << 2 | 1u << 3 | 1u << 4)

inline_always __s32 finish4(const __u64 *state, __u32 ports, __u32 src, __u32 dst)
{
	__u64 swap = less_mask(dst, src) & (src ^ dst);
	struct sip s;

	src ^= swap;
	dst ^= swap;
	SIP_LOAD(s, state);
	SIP_WORD(s, (__u64)order_ports(ports) << 32);
	SIP_WORD(s, (__u64)src << 32);
	SIP_WORD(s, (__u64)dst);
	return SIP_FINISH31(s, 48);
}

/* The hash of an IPv4 packet with a 20-byte header; `end` is where the packet ends in the frame. */
inline_always __s32 hash4(const struct config *config, void *data, void *data_end, __u32 proto,
			  __be16 frag_off, __u32 src, __u32 dst, __u32 end)
{
	__u32 ports = 0;

	if (config->policy4 == 1) {
		int offset = ports_offset(proto);

		if (offset >= 0 && !(frag_off & bpf_htons(0x3fff)) && L4_AT4 + 4 + (__u32)offset <= end) {
			__u32 *at = data + L4_AT4 + offset;

			if ((void *)(at + 1) > data_end)
				return -REASON_DEEP_HEADERS;
			ports = *at;
		}
		return finish4(config->sip_mid[proto & 0xff], ports, src, dst);
	}
	if (config->policy4 != 0)
		return -REASON_HASH_POLICY;
	if (proto == IPPROTO_ICMP && !(frag_off & bpf_htons(0x1fff)) && L4_AT4 + 8 <= end) {
		__u8 *icmp = data + L4_AT4;

		if ((void *)(icmp + 8) > data_end)
			return -REASON_DEEP_HEADERS;
		if (*icmp < 32 && (ICMP4_ERRORS >> *icmp & 1) && L4_AT4 + 28 <= end) {
			__u32 *inner = (void *)icmp + 8;

			if ((void *)(inner + 5) > data_end)
				return -REASON_DEEP_HEADERS;
			src = inner[3];
			dst = inner[4];
		}
	}
	return finish4(config->sip_mid[0], 0, src, dst);
}

inline_always __s32 finish6(struct sip s, __u32 ports, const struct addresses *a)
{
	__u64 sh = bpf_be64_to_cpu(a->src_high), sl = bpf_be64_to_cpu(a->src_low);
	__u64 dh = bpf_be64_to_cpu(a->dst_high), dl = bpf_be64_to_cpu(a->dst_low);
	__u64 swap = dh < sh || (dh == sh && dl < sl) ? ~0ULL : 0;
	__u64 swap_high = swap & (a->src_high ^ a->dst_high);
	__u64 swap_low = swap & (a->src_low ^ a->dst_low);

	sh = a->src_high ^ swap_high;
	sl = a->src_low ^ swap_low;
	dh = a->dst_high ^ swap_high;
	dl = a->dst_low ^ swap_low;
	SIP_WORD(s, (__u64)order_ports(ports) << 32);
	SIP_WORD(s, sh << 32);
	SIP_WORD(s, sh >> 32 | sl << 32);
	SIP_WORD(s, sl >> 32 | dh << 32);
	SIP_WORD(s, dh >> 32 | dl << 32);
	SIP_WORD(s, dl >> 32);
	return SIP_FINISH31(s, 72);
}

/* Header of an IPv6 packet as loaded: version, class and label; payload length, next header... */
struct header6 {
	__u32 word0;
	__u32 proto;
	struct addresses a;
};

/* Policy 0: addresses, flow label and next header, of the inner header in an ICMPv6 error. */
inline_always __s32 hash6_l3(const struct config *config, void *data, void *data_end,
			     const struct header6 *outer, __u32 end)
{
	struct header6 h = *outer;
	struct sip s;
	__u32 label;

	if (h.proto == IPPROTO_ICMPV6 && L4_AT6 + 8 <= end) {
		__u8 *icmp = data + L4_AT6;

		if ((void *)(icmp + 8) > data_end)
			return -REASON_DEEP_HEADERS;
		if (*icmp < 32 && (ICMP6_ERRORS >> *icmp & 1) && L4_AT6 + 48 <= end) {
			__u32 *inner = (void *)icmp + 8;

			if ((void *)(inner + 10) > data_end)
				return -REASON_DEEP_HEADERS;
			h.word0 = inner[0];
			h.proto = *((__u8 *)inner + 6);
			load_addresses(&h.a, (void *)inner + 8);
		}
	}
	label = h.word0 & bpf_htonl(0xfffff);
	if (label) {
		SIP_LOAD(s, config->sip_key);
		SIP_WORD(s, (__u64)h.proto << 16 | (__u64)label << 32);
		SIP_WORD(s, 0ULL);
		SIP_WORD(s, 0ULL);
	} else {
		SIP_LOAD(s, config->sip_mid[h.proto & 0xff]);
	}
	return finish6(s, 0, &h.a);
}

/* Extension headers that the flow dissector walks: one, and MAX_FLOW_DISSECT_HDRS more. */
#define EXTENSIONS 16

/*
 * The last protocol and the ports behind extension headers: ports in the low half, protocol in the
 * next 8 bits, or a negative reason. A function of its own, as few packets have such headers.
 */
__noinline __s64 dissect6(struct xdp_md *ctx, __u32 proto, __u32 end)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	__u32 at = L4_AT6;
	__u64 ports = 0;
	int offset;

	for (int i = 0; i < EXTENSIONS; i++) {
		__u32 need = proto == IPPROTO_FRAGMENT ? 8 : 2;
		__u8 *header;

		if (proto != IPPROTO_HOPOPTS && proto != IPPROTO_ROUTING &&
		    proto != IPPROTO_DSTOPTS && proto != IPPROTO_FRAGMENT)
			break;
		if (at + need > end)
			goto done;
		if (at > 0xfe00)
			return -REASON_DEEP_HEADERS;
		header = data + at;
		if ((void *)(header + need) > data_end || (void *)(header + 2) > data_end)
			return -REASON_DEEP_HEADERS;
		if (proto == IPPROTO_FRAGMENT) {
			proto = header[0];
			goto done;
		}
		proto = header[0];
		at += (header[1] + 1) * 8;
	}
	offset = ports_offset(proto);
	if (offset >= 0 && at + 4 + (__u32)offset <= end) {
		__u32 *four;

		if (at > 0xfe00)
			return -REASON_DEEP_HEADERS;
		four = data + at + offset;
		if ((void *)(four + 1) > data_end)
			return -REASON_DEEP_HEADERS;
		ports = *four;
	}
done:
	return ports | (__u64)(proto & 0xff) << 32;
}

/* The hash of an IPv6 packet; `end` is where the packet ends in the frame. */
inline_always __s32 hash6(struct xdp_md *ctx, const struct config *config, void *data,
			  void *data_end, const struct header6 *h, __u32 end)
{
	__u32 proto = h->proto;
	__u32 ports = 0;
	struct sip s;

	if (config->policy6 == 0)
		return hash6_l3(config, data, data_end, h, end);
	if (config->policy6 != 1)
		return -REASON_HASH_POLICY;
	if ((proto == IPPROTO_TCP || proto == IPPROTO_UDP) && L4_AT6 + 4 <= end) {
		__u32 *at = data + L4_AT6;

		if ((void *)(at + 1) > data_end)
			return -REASON_DEEP_HEADERS;
		ports = *at;
	} else {
		__s64 found = dissect6(ctx, proto, end);

		if (found < 0)
			return found;
		ports = found;
		proto = found >> 32 & 0xff;
	}
	SIP_LOAD(s, config->sip_mid[proto & 0xff]);
	return finish6(s, ports, &h->a);
}

#define MEMBER_MISSING 0xffffffff7fffffffULL

/*
 * The adjacency of the first member whose upper bound is not below `hash`.
 *
 * Rule 1: among equal weights it is at hash * count >> 31, give or take one, so that place is
 * looked at first, with no branch that depends on the hash. Rule 2: else binary search.
 */
inline_always __u32 choose(__u32 first, __u32 members_count, __u32 hash)
{
	__u32 guess = (__u64)hash * members_count >> 31;
	__u64 inner = (__u64)(0 - (__u64)guess) >> 63;
	__u64 at, before, bad;
	__u32 low = 0, high = members_count - 1;

	asm volatile("" : "+r"(inner));
	at = WORD(members, first + guess, MEMBER_MISSING);
	before = WORD(members, first + guess - (__u32)inner, MEMBER_MISSING);
	bad = ((__u64)(__u32)at - hash) >> 63;
	bad |= ((__u64)hash - (__u32)before - 1) >> 63 & inner;
	if (!bad)
		return at >> 32;
	for (int i = 0; i < 16 && low < high; i++) {
		__u32 middle = (low + high) >> 1;

		if (hash <= (__u32)WORD(members, first + middle, MEMBER_MISSING))
			high = middle;
		else
			low = middle + 1;
	}
	return WORD(members, first + low, MEMBER_MISSING) >> 32;
}

#endif
