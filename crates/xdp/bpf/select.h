/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Which member of a group a packet takes: the flow key, its hash and the member, as the kernel's
 * fib_multipath_hash and rt6_multipath_hash for policies 0 (L3) and 1 (L4).
 *
 * Addresses and ports are kept as loaded, because the kernel orders and hashes them that way.
 */
#ifndef RADDLE_SELECT_H
#define RADDLE_SELECT_H

#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_endian.h>

#include "parse.h"
#include "siphash.h"

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

/* An IPv4 flow key; addresses and ports as loaded. */
struct key4 {
	__u32 proto, ports, src, dst;
};

/*
 * The flow key of an IPv4 packet with a 20-byte header, or a reason why not. `end` is where the
 * packet ends in the frame.
 *
 * Policy 1: protocol, ports and addresses. Policy 0: addresses, those of the packet that an ICMP
 * error is about.
 */
inline_always int key4(struct key4 *key, __u32 policy, void *data, void *data_end,
		       __be16 frag_off, __u32 end)
{
	if (policy == 1) {
		__s32 offset = ports_offset(key->proto);

		if (offset >= 0 && !(frag_off & bpf_htons(0x3fff)) &&
		    L4_AT4 + 4 + (__u32)offset <= end) {
			__u32 *at = data + L4_AT4 + offset;

			if ((void *)(at + 1) > data_end)
				return REASON_DEEP_HEADERS;
			key->ports = *at;
		}
		return 0;
	}
	if (key->proto == IPPROTO_ICMP && !(frag_off & bpf_htons(0x1fff)) && L4_AT4 + 8 <= end) {
		__u8 *icmp = data + L4_AT4;

		if ((void *)(icmp + 8) > data_end)
			return REASON_DEEP_HEADERS;
		if (*icmp < 32 && (ICMP4_ERRORS >> *icmp & 1) && L4_AT4 + 28 <= end) {
			__u32 *inner = (void *)icmp + 8;

			if ((void *)(inner + 5) > data_end)
				return REASON_DEEP_HEADERS;
			key->src = inner[3];
			key->dst = inner[4];
		}
	}
	key->proto = 0;
	return 0;
}

/* The 31-bit hash of an IPv4 flow key. */
inline_always __u32 hash4(const struct config *config, const struct key4 *key)
{
	__u32 src = key->src, dst = key->dst;
	__u64 swap = less_mask(dst, src) & (src ^ dst);
	const __u64 *state = config->sip_mid[key->proto & 0xff];
	struct sip s;

	SIP_LOAD(s, state);
	SIP_WORD(s, (__u64)order_ports(key->ports) << 32);
	SIP_WORD(s, (src ^ swap) << 32);
	SIP_WORD(s, dst ^ swap);
	return SIP_FINISH31(s, 48);
}

/* All ones if the first IPv6 address is below the second: the borrow of a 128-bit subtraction. */
inline_always __u64 less_addresses(__u64 a_high, __u64 a_low, __u64 b_high, __u64 b_low)
{
	/* The halves' borrows: of x - y it is the top bit of (~x & y) | (~(x ^ y) & (x - y)). */
	__u64 low = a_low - b_low, high;

	OPAQUE(low);
	low = ((~a_low & b_low) | (~(a_low ^ b_low) & low)) >> 63;
	high = a_high - b_high - low;
	OPAQUE(high);
	high = (__s64)((~a_high & b_high) | (~(a_high ^ b_high) & high)) >> 63;
	OPAQUE(high);
	return high;
}

/* An IPv6 flow key; everything as loaded. */
struct key6 {
	__u32 proto, ports, label;
	struct addresses a;
};

/* Policy 0: addresses, flow label and next header, of the inner header in an ICMPv6 error. */
inline_always int key6_l3(struct key6 *key, void *data, void *data_end, __u32 end)
{
	if (key->proto == IPPROTO_ICMPV6 && L4_AT6 + 8 <= end) {
		__u8 *icmp = data + L4_AT6;

		if ((void *)(icmp + 8) > data_end)
			return REASON_DEEP_HEADERS;
		if (*icmp < 32 && (ICMP6_ERRORS >> *icmp & 1) && L4_AT6 + 48 <= end) {
			__u32 *inner = (void *)icmp + 8;

			if ((void *)(inner + 10) > data_end)
				return REASON_DEEP_HEADERS;
			key->label = inner[0];
			key->proto = *((__u8 *)inner + 6);
			load_addresses(&key->a, (void *)inner + 8);
		}
	}
	key->label &= bpf_htonl(0xfffff);
	return 0;
}

/* Extension headers that the flow dissector walks: one, and MAX_FLOW_DISSECT_HDRS more. */
#define EXTENSIONS 16

/*
 * The last protocol and the ports behind extension headers: ports in the low half, protocol in the
 * next 8 bits, or a negative reason, of the packet whose MAC header is at `begin`. A function of its
 * own, as few packets have such headers.
 */
static __noinline __s64 dissect6(struct xdp_md *ctx, __u32 proto, __u32 end, __u32 begin)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	__u32 at = begin + L4_AT6;
	__u64 ports = 0;
	int offset;

	NO_UNROLL for (int i = 0; i < EXTENSIONS; i++) {
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

/*
 * The flow key of an IPv6 packet, or a reason why not; the label comes as the header's first word.
 * Policy 1 takes protocol, ports and addresses. `data` is `begin` bytes into the frame.
 */
inline_always int key6(struct xdp_md *ctx, struct key6 *key, __u32 policy, void *data,
		       void *data_end, __u32 end, __u32 begin)
{
	if (policy == 0)
		return key6_l3(key, data, data_end, end);
	key->label = 0;
	if ((key->proto == IPPROTO_TCP || key->proto == IPPROTO_UDP) && L4_AT6 + 4 <= end) {
		__u32 *at = data + L4_AT6;

		if ((void *)(at + 1) > data_end)
			return REASON_DEEP_HEADERS;
		key->ports = *at;
	} else {
		__s64 found = dissect6(ctx, key->proto, begin + end, begin);

		if (found < 0)
			return -found;
		key->ports = found;
		key->proto = found >> 32 & 0xff;
	}
	return 0;
}

/* The SipHash state after the words that hold protocol and flow label; a label is rare. */
static __noinline int absorb_label(struct sip *s, __u32 proto, __u32 label)
{
	if (!s)
		return 0;
	SIP_WORD(*s, (__u64)proto << 16 | (__u64)label << 32);
	SIP_WORD(*s, 0ULL);
	SIP_WORD(*s, 0ULL);
	return 0;
}

/* The 31-bit hash of an IPv6 flow key. */
inline_always __u32 hash6(const struct config *config, const struct key6 *key)
{
	__u64 src_high = bpf_be64_to_cpu(key->a.src_high);
	__u64 dst_high = bpf_be64_to_cpu(key->a.dst_high);
	__u64 src_low = bpf_be64_to_cpu(key->a.src_low);
	__u64 dst_low = bpf_be64_to_cpu(key->a.dst_low);
	__u64 swap = less_addresses(dst_high, dst_low, src_high, src_low);
	__u64 swap_high = swap & (key->a.src_high ^ key->a.dst_high);
	__u64 swap_low = swap & (key->a.src_low ^ key->a.dst_low);
	const __u64 *state = config->sip_mid[key->proto & 0xff];
	struct sip s;

	src_high = key->a.src_high ^ swap_high;
	src_low = key->a.src_low ^ swap_low;
	dst_high = key->a.dst_high ^ swap_high;
	dst_low = key->a.dst_low ^ swap_low;
	if (key->label) {
		struct sip labelled;

		SIP_LOAD(labelled, config->sip_key);
		absorb_label(&labelled, key->proto, key->label);
		s = labelled;
	} else {
		SIP_LOAD(s, state);
	}
	SIP_WORD(s, (__u64)order_ports(key->ports) << 32);
	SIP_WORD(s, src_high << 32);
	SIP_WORD(s, src_high >> 32 | src_low << 32);
	SIP_WORD(s, src_low >> 32 | dst_high << 32);
	SIP_WORD(s, dst_high >> 32 | dst_low << 32);
	SIP_WORD(s, dst_low >> 32);
	return SIP_FINISH31(s, 72);
}

#define MEMBER_MISSING 0xffffffff7fffffffULL

inline_always __u64 member(__u32 place)
{
	return READ(members, __u64, members_len, place, MEMBER_MISSING);
}

/*
 * The adjacency of the first member whose upper bound is not below `hash`.
 *
 * Rule 1: among equal weights it is at hash * count >> 31, give or take one, so that place is
 * looked at first. Rule 2: else by halves. No branch depends on the hash but that between the two.
 */
inline_always __u32 choose(__u32 first, __u32 members_count, __u32 hash)
{
	__u32 guess = (__u64)hash * members_count >> 31;
	__u64 inner = less_mask(0, guess);
	__u64 at = member(first + guess);
	__u64 before = member(first + guess + (__u32)inner);
	__u32 rest = members_count;

	/* Not above its bound, and above the bound before it, where there is one. */
	if (!(less_mask((__u32)at, hash) | (~less_mask((__u32)before, hash) & inner)))
		return at >> 32;
	NO_UNROLL for (int i = 0; i < 16 && rest > 1; i++) {
		__u32 half = rest / 2;

		first += half & less_mask((__u32)member(first + half - 1), hash);
		rest -= half;
	}
	return member(first) >> 32;
}

#endif
