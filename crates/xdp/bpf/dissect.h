/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The slow path of the flow dissector, and the hashes of policies 2 and 3 that need it: tunnels are
 * looked into, header by header. Steps and their order are those of crates/packet/src/walk.rs.
 *
 * Headers are copied out by a helper, so it does not matter in which buffer they are.
 */
#ifndef RADDLE_DISSECT_H
#define RADDLE_DISSECT_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_endian.h>

#include "parse.h"
#include "select.h"
#include "siphash.h"

/* Headers that are followed (MAX_FLOW_DISSECT_HDRS). */
#define MAX_HEADERS 15

#define ETH_P_GRE_PPP 0x880b
#define PPP_IPV4 0x21
#define PPP_IPV6 0x57
#ifndef ETH_P_PRP
#define ETH_P_PRP 0x88fb
#endif
#ifndef ETH_P_HSR
#define ETH_P_HSR 0x892f
#endif
#ifndef ETH_P_BATMAN
#define ETH_P_BATMAN 0x4305
#endif
#ifndef ETH_P_TIPC
#define ETH_P_TIPC 0x88ca
#endif
#ifndef IPPROTO_MPLS
#define IPPROTO_MPLS 137
#endif

enum seen_kind { SEEN_NOTHING, SEEN_IPV4, SEEN_IPV6 };

/* What a step of the walk leads to. */
enum walk { WALK_END, WALK_LINK, WALK_IP };

/* Copies a header out of the packet; 0 where it is not all there. */
inline_always int header(struct xdp_md *ctx, __u32 at, __u32 end, void *to, __u32 length)
{
	return at + length <= end && !bpf_xdp_load_bytes(ctx, at, to, length);
}

inline_always __u32 big16(const __u8 *at)
{
	return (__u32)at[0] << 8 | at[1];
}

inline_always enum walk seen_inside(struct seen *s, __u32 ether_type)
{
	s->ether_type = ether_type;
	s->encapsulated = 1;
	return WALK_LINK;
}

inline_always enum walk seen_ipv4(struct xdp_md *ctx, struct seen *s, __u32 end)
{
	__u32 h[5];

	if (!header(ctx, s->at, end, h, sizeof(h)) || (h[0] & 0xf) < 5)
		return WALK_END;
	s->at += (h[0] & 0xf) * 4;
	s->proto = h[2] >> 8 & 0xff;
	s->kind = SEEN_IPV4;
	s->addresses[0] = (__u64)h[4] << 32 | h[3];
	/* Offset or more fragments. */
	if (h[1] >> 16 & bpf_htons(0x3fff)) {
		s->fragment = 1;
		return WALK_END;
	}
	return WALK_IP;
}

inline_always enum walk seen_ipv6(struct xdp_md *ctx, struct seen *s, __u32 end, const int whole)
{
	__u64 h[5];
	__u32 label;

	if (!header(ctx, s->at, end, h, sizeof(h)))
		return WALK_END;
	s->at += 40;
	s->proto = h[0] >> 48 & 0xff;
	s->kind = SEEN_IPV6;
	s->addresses[0] = h[1];
	s->addresses[1] = h[2];
	s->addresses[2] = h[3];
	s->addresses[3] = h[4];
	if (whole)
		s->left = h[2];
	label = bpf_ntohl((__u32)h[0]) & 0xfffff;
	if (label) {
		s->label = label;
		if (whole)
			return WALK_END;
	}
	return WALK_IP;
}

/* What a frame inside GRE may hold besides IP. */
inline_always enum walk seen_link(struct xdp_md *ctx, struct seen *s, __u32 end, const int whole)
{
	__u8 h[24];

	switch (s->ether_type) {
	case ETH_P_8021Q:
	case ETH_P_8021AD:
		if (whole)
			s->more = 1;
		if (!header(ctx, s->at, end, h, 4))
			return WALK_END;
		s->ether_type = big16(h + 2);
		s->at += 4;
		return WALK_LINK;
	case ETH_P_PRP:
	case ETH_P_HSR:
		if (!header(ctx, s->at, end, h, 6))
			return WALK_END;
		s->ether_type = big16(h + 4);
		s->at += 6;
		return WALK_LINK;
	case ETH_P_PPP_SES:
		if (!header(ctx, s->at, end, h, 8) || h[0] != 0x11 || h[1] != 0)
			return WALK_END;
		if (big16(h + 6) == PPP_IPV4)
			s->ether_type = ETH_P_IP;
		else if (big16(h + 6) == PPP_IPV6)
			s->ether_type = ETH_P_IPV6;
		else
			return WALK_END;
		s->at += 8;
		return WALK_LINK;
	case ETH_P_BATMAN:
		if (!header(ctx, s->at, end, h, 24) || h[0] != 0x40 || h[1] != 15)
			return WALK_END;
		s->at += 24;
		return seen_inside(s, big16(h + 22));
	case ETH_P_TIPC:
		if (header(ctx, s->at, end, h, 16))
			s->kind = SEEN_NOTHING;
		return WALK_END;
	default:
		return WALK_END;
	}
}

/* RFC 2784 and RFC 2890; version 1 is RFC 2637. */
inline_always enum walk seen_gre(struct xdp_md *ctx, struct seen *s, __u32 end, const int whole)
{
	__u32 at = s->at, kind, ether_type, key;
	__u8 h[4], frame[14];

	if (!header(ctx, at, end, h, 4))
		return WALK_END;
	kind = big16(h + 2);
	ether_type = kind;
	if ((h[0] & 0x40) || (h[1] & 7) > 1)
		return WALK_END;
	if ((h[1] & 7) == 1 && (kind != ETH_P_GRE_PPP || !(h[0] & 0x20)))
		return WALK_END;
	/* The key must be there, also where nothing follows that is looked at. */
	if ((h[0] & 0x20) && at + 8 + ((h[0] & 0x80) >> 5) > end)
		return WALK_END;
	if (whole && h[0] & 0x20) {
		if (!header(ctx, at + 4 + ((h[0] & 0x80) >> 5), end, &key, sizeof(key)))
			return WALK_END;
		s->gre_key = h[1] & 7 ? key & bpf_htonl(0xffff) : key;
	}
	/* Checksum, key and sequence number, where their flags are set; without branches. */
	at += 4 + ((h[0] & 0x80) >> 5) + ((h[0] & 0x20) >> 3) + ((h[0] & 0x10) >> 2);
	if ((h[1] & 7) == 0) {
		if (kind == ETH_P_TEB) {
			if (!header(ctx, at, end, frame, 14))
				return WALK_END;
			ether_type = big16(frame + 12);
			at += 14;
		}
	} else {
		at += (h[1] & 0x80) >> 5;
		if (!header(ctx, at, end, frame, 4))
			return WALK_END;
		if (big16(frame + 2) == PPP_IPV4)
			ether_type = ETH_P_IP;
		else if (big16(frame + 2) == PPP_IPV6)
			ether_type = ETH_P_IPV6;
		at += 4;
	}
	s->at = at;
	return seen_inside(s, ether_type);
}

/* One step by the protocol number. */
inline_always enum walk seen_ip(struct xdp_md *ctx, struct seen *s, __u32 end, const int whole)
{
	__u8 h[8];

	switch (s->proto) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
		if (s->ether_type != ETH_P_IPV6 || !header(ctx, s->at, end, h, 2))
			return WALK_END;
		s->proto = h[0];
		s->at += ((__u32)h[1] + 1) * 8;
		return WALK_IP;
	case IPPROTO_FRAGMENT:
		if (s->ether_type == ETH_P_IPV6 && header(ctx, s->at, end, h, 8)) {
			s->fragment = 1;
			s->proto = h[0];
		}
		return WALK_END;
	case IPPROTO_IPIP:
		return seen_inside(s, ETH_P_IP);
	case IPPROTO_IPV6:
		return seen_inside(s, ETH_P_IPV6);
	case IPPROTO_GRE:
		return seen_gre(ctx, s, end, whole);
	default:
		return WALK_END;
	}
}

inline_always void seen_ports(struct xdp_md *ctx, struct seen *s, __u32 end)
{
	__s32 offset = ports_offset(s->proto);
	__u32 ports = 0;

	if (s->fragment)
		return;
	if (offset < 0 || !header(ctx, s->at + (__u32)offset, end, &ports, sizeof(ports)))
		ports = 0;
	s->ports = ports;
}

/*
 * Dissects the packet whose IP header is at `s->at`, of the kind `s->ether_type`; `end` is where it
 * ends in the frame. `outer` is what there is in front of the first packet inside the packet, `s` what there is innermost.
 *
 * With `whole` it goes as far as skb_get_hash() looks (dissect_whole of crates/packet), and there is no `outer`.
 *
 * What the walk goes on with lies in `s`, for the verifier: in a register it takes a quarter more steps, see FORGET.
 */
inline_always int dissect_by(struct xdp_md *ctx, struct seen *outer, struct seen *s, __u32 end, const int whole)
{
	s->next = WALK_LINK;
	NO_UNROLL for (int i = 0; i <= MAX_HEADERS; i++) {
		__u32 before, next = s->next;

		if (next == WALK_LINK) {
			if (s->ether_type == ETH_P_IP)
				s->next = seen_ipv4(ctx, s, end);
			else if (s->ether_type == ETH_P_IPV6)
				s->next = seen_ipv6(ctx, s, end, whole);
			else
				s->next = seen_link(ctx, s, end, whole);
			next = s->next;
			/* From an IP header on to what it carries nothing is counted. */
			if (next == WALK_LINK)
				continue;
		}
		if (next == WALK_END)
			break;
		before = s->encapsulated;
		s->next = seen_ip(ctx, s, end, whole);
		seen_ports(ctx, s, end);
		if (!whole && !before && s->encapsulated)
			*outer = *s;
	}
	if (!whole && !s->encapsulated)
		*outer = *s;
	return 0;
}

static __noinline int dissect(struct xdp_md *ctx, struct seen *outer, struct seen *s, __u32 end)
{
	return dissect_by(ctx, outer, s, end, 0);
}

/* Bits of fib_multipath_hash_fields; those of the innermost packet are 6 places higher. */
#define FIELD_SRC_IP 1u
#define FIELD_DST_IP 2u
#define FIELD_IP_PROTO 4u
#define FIELD_FLOW_LABEL 8u
#define FIELD_SRC_PORT 16u
#define FIELD_DST_PORT 32u
#define FIELDS_OUTER 0x3fu
#define FIELDS_INNER_SHIFT 6

/* The kernel's 32-bit hash of the selected fields of what was seen, never 0; of what was seen of the `whole`, that of skb_get_hash(). */
inline_always __u32 hash_fields(const struct seen *s, __u32 fields, const int whole)
{
	__u32 has_src = fields & FIELD_SRC_IP ? ~0u : 0, has_dst = fields & FIELD_DST_IP ? ~0u : 0;
	__u64 words[9] = {}, last;
	__u32 ports = 0, count, hash;
	struct sip sip;

	if (fields & FIELD_SRC_PORT)
		ports |= s->ports & 0xffff;
	if (fields & FIELD_DST_PORT)
		ports |= s->ports & 0xffff0000;
	if (fields & FIELD_IP_PROTO)
		words[0] = (__u64)(s->proto & 0xff) << 16;
	words[3] = (__u64)order_ports(ports) << 32;
	if (whole) {
		words[0] |= bpf_htons(s->ether_type);
		words[3] |= s->gre_key;
	}
	if (s->kind == SEEN_IPV4) {
		__u32 src = (__u32)s->addresses[0] & has_src;
		__u32 dst = (__u32)(s->addresses[0] >> 32) & has_dst;

		words[4] = (__u64)(dst < src ? dst : src) << 32;
		words[5] = dst < src ? src : dst;
		if (whole)
			words[5] |= (__u64)s->left << 32;
		count = 6;
	} else {
		__u64 mask = (__s64)(__s32)has_src;
		__u64 src_high = s->addresses[0] & mask, src_low = s->addresses[1] & mask;
		__u64 dst_high, dst_low, swap;

		mask = (__s64)(__s32)has_dst;
		dst_high = s->addresses[2] & mask;
		dst_low = s->addresses[3] & mask;
		swap = less_addresses(bpf_be64_to_cpu(dst_high), bpf_be64_to_cpu(dst_low),
				      bpf_be64_to_cpu(src_high), bpf_be64_to_cpu(src_low));
		mask = swap & (src_high ^ dst_high);
		src_high ^= mask;
		dst_high ^= mask;
		mask = swap & (src_low ^ dst_low);
		src_low ^= mask;
		dst_low ^= mask;
		if (fields & FIELD_FLOW_LABEL)
			words[0] |= (__u64)s->label << 32;
		words[4] = src_high << 32;
		words[5] = src_high >> 32 | src_low << 32;
		words[6] = src_low >> 32 | dst_high << 32;
		words[7] = dst_high >> 32 | dst_low << 32;
		words[8] = dst_low >> 32;
		count = 9;
	}
	if (whole)
		SIP_KEYED(sip, config->port_key);
	else
		SIP_LOAD(sip, config->sip_key);
	NO_UNROLL for (__u32 i = 0; i < 9; i++) {
		if (i >= count)
			break;
		SIP_WORD(sip, words[i]);
	}
	last = (__u64)(count * 8) << 56;
	SIP_WORD(sip, last);
	sip.v2 ^= 0xff;
	SIP_ROUND(sip);
	SIP_ROUND(sip);
	SIP_ROUND(sip);
	SIP_ROUND(sip);
	hash = (__u32)(sip.v0 ^ sip.v1 ^ sip.v2 ^ sip.v3);
	return hash ? hash : 1;
}

static __noinline __u32 hash_seen(const struct seen *s, __u32 fields)
{
	return hash_fields(s, fields, 0);
}

#define ROTL32(x, n) (((x) << (n)) | ((x) >> (32 - (n))))

/* The final mix of lookup3 over two words, with 0 to start from. */
inline_always __u32 jhash_2words(__u32 a, __u32 b)
{
	__u32 c = 0xdeadbeef + (2 << 2);

	a += c;
	b += c;
	c = (c ^ b) - ROTL32(b, 14);
	a = (a ^ c) - ROTL32(c, 11);
	b = (b ^ a) - ROTL32(a, 25);
	c = (c ^ b) - ROTL32(b, 16);
	a = (a ^ c) - ROTL32(c, 4);
	b = (b ^ a) - ROTL32(a, 14);
	c = (c ^ b) - ROTL32(b, 24);
	return c;
}

/* Where the packet that an ICMP error is about begins; 0 for other packets. */
inline_always __u32 icmp_about(struct xdp_md *ctx, __u32 ether_type, __u32 ip_at, __u32 end)
{
	__u32 at = ip_at + (ether_type == ETH_P_IP ? 20 : 40);
	__u32 errors = ether_type == ETH_P_IP ? ICMP4_ERRORS : ICMP6_ERRORS;
	__u8 ip[20], icmp[8];

	if (!header(ctx, ip_at, end, ip, sizeof(ip)))
		return 0;
	if (ether_type == ETH_P_IP ? ip[9] != IPPROTO_ICMP || (ip[6] & 0x1f) || ip[7]
				   : ip[6] != IPPROTO_ICMPV6)
		return 0;
	if (!header(ctx, at, end, icmp, sizeof(icmp)) || icmp[0] >= 32 ||
	    !(errors >> icmp[0] & 1))
		return 0;
	return at + sizeof(icmp);
}

/* Policy 0: of the header at `at`; 0 where it is not all there. */
inline_always __u32 hash_l3(struct xdp_md *ctx, struct seen *s, __u32 ether_type, __u32 at,
			    __u32 end)
{
	if (ether_type == ETH_P_IP) {
		__u32 h[5];

		if (!header(ctx, at, end, h, sizeof(h)))
			return 0;
		s->kind = SEEN_IPV4;
		s->addresses[0] = (__u64)h[4] << 32 | h[3];
	} else {
		__u64 h[5];

		if (!header(ctx, at, end, h, sizeof(h)))
			return 0;
		s->kind = SEEN_IPV6;
		s->proto = h[0] >> 48 & 0xff;
		/* As loaded, unlike what the dissector keeps. */
		s->label = (__u32)h[0] & bpf_htonl(0xfffff);
		s->addresses[0] = h[1];
		s->addresses[1] = h[2];
		s->addresses[2] = h[3];
		s->addresses[3] = h[4];
	}
	return 1;
}

#define FIELDS_L3 (FIELD_SRC_IP | FIELD_DST_IP)
#define FIELDS_L3_6 (FIELDS_L3 | FIELD_IP_PROTO | FIELD_FLOW_LABEL)
#define FIELDS_L4 (FIELDS_L3 | FIELD_IP_PROTO | FIELD_SRC_PORT | FIELD_DST_PORT)

/*
 * Prepares what is dissected and hashed. Policy 0 looks at one header only, and needs no dissector.
 */
static __noinline int prepare_hash(struct xdp_md *ctx, struct scratch *scratch)
{
	struct flow_query *q = &scratch->query;
	struct seen *s = &scratch->innermost;
	__u32 about = 0, ether_type = q->packet.ether_type, at = q->packet.at, end = q->packet.end;
	__u8 whole[40];

	__builtin_memset(s, 0, sizeof(*s));
	s->at = at;
	s->ether_type = ether_type;
	q->of_outer = 0;
	q->of_innermost = 0;
	q->dissect = 1;
	if (q->policy == 0 || q->follows)
		about = icmp_about(ctx, ether_type, at, end);
	if (q->policy == 0) {
		q->dissect = 0;
		q->of_innermost = ether_type == ETH_P_IP ? FIELDS_L3 : FIELDS_L3_6;
		if (!about || !hash_l3(ctx, s, ether_type, about, end))
			hash_l3(ctx, s, ether_type, at, end);
	} else if (q->policy == 1) {
		q->of_outer = FIELDS_L4;
		/* Only if its IP header is there. */
		if (about && (ether_type == ETH_P_IP ? header(ctx, about, end, whole, 20) &&
							       (whole[0] & 0xf) >= 5
						     : header(ctx, about, end, whole, 40)))
			s->at = about;
	}
	return 0;
}

/* The hash of what was seen, or a negative reason. */
static __noinline __s64 finish_hash(struct scratch *scratch)
{
	struct flow_query *q = &scratch->query;
	struct seen *outer = &scratch->outer, *s = &scratch->innermost;
	__u32 of_outer = 0, of_innermost = 0;

	if (q->dissect && (outer->kind == SEEN_NOTHING || q->policy > 3))
		return -REASON_HASH_POLICY;
	if (q->policy == 2)
		q->of_innermost = s->kind == SEEN_IPV6 ? FIELDS_L3_6 : FIELDS_L3;
	if (q->policy == 3) {
		q->of_outer = q->fields & FIELDS_OUTER;
		if (s->encapsulated)
			q->of_innermost = q->fields >> FIELDS_INNER_SHIFT;
	}
	if (*(volatile __u32 *)&q->of_outer)
		of_outer = hash_seen(outer, q->of_outer);
	if (*(volatile __u32 *)&q->of_innermost) {
		if (s->kind == SEEN_NOTHING)
			return -REASON_HASH_POLICY;
		of_innermost = hash_seen(s, q->of_innermost);
	}
	/* Under the other policies one of them is 0. */
	return (q->policy == 3 ? jhash_2words(of_outer, of_innermost) : of_outer | of_innermost) >> 1;
}

/*
 * The 31-bit hash of the packet of the question under its policy, or a negative reason. With
 * `follows`, policy 1 hashes ICMP errors by what they are about.
 */
inline_always __s64 hash_any(struct xdp_md *ctx, struct scratch *scratch)
{
	struct flow_query *q = &scratch->query;

	q->fields = READ_ONCE(q->packet.ether_type) == ETH_P_IP ? config->fields4 : config->fields6;
	prepare_hash(ctx, scratch);
	if (READ_ONCE(q->dissect))
		dissect(ctx, &scratch->outer, &scratch->innermost, READ_ONCE(q->packet.end));
	return finish_hash(scratch);
}

#endif
