/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The short way through a segment: rules S1 to S10 for what is usual, in the program that meets the segment.
 *
 * Usual is one segment on the way, an SRH right behind the IPv6 header, without flags and TLVs, and a single
 * neighbour behind the next look-up. Everything is planned in registers, then the redirect is claimed, and
 * only then the frame is written. So what turns out to be unusual is as it came, and the program for
 * segments takes it from the beginning; it alone says why a packet is not forwarded.
 */
#ifndef RADDLE_USUAL_H
#define RADDLE_USUAL_H

#include "maps.h"
#include "packet.h"
#include "srh.h"

/* Not a verdict, but what makes the program for segments go on. */
#define UNUSUAL THE_SEGMENTS_WAY

/* Bits of an SRH's first word as loaded: type and flags, and segments left. */
#define SRH_TYPE_AND_FLAGS 0x0000ff0000ff0000ULL
#define SRH_LEFT 0x00000000ff000000ULL
#define SRH_PLAIN ((__u64)SRH_TYPE << 16)
#define SRH_LEFT_ONE (1ULL << 24)

/* Bits of an IPv6 header's first word as loaded: all but payload length and next header; those. */
#define HEAD_KEPT 0xff000000ffffffffULL
#define HEAD_PAYLOAD 32
#define HEAD_NEXT 48
#define HEAD_HOP_LIMIT 56

/* Words of the longest template that is usual: four segments. */
#define USUAL_WORDS 14

/* What is planned for a packet. */
struct course {
	const struct segment *s;
	__u64 word;
	__u32 kind;
	/* The frame's length, and where the packet ends in it, as they came. */
	__u32 received, end;
	/* Bytes that go away in front, or below 0 that come. */
	__s32 cut;
	__u32 ether_type;
	/* The IPv6 header that the packet will have, and the first word of an SRH behind it. */
	__u64 head, srh;
	struct addresses a;
};

/* S3 and S5: the next segment becomes the destination; with PSP the last one goes without its SRH. */
inline_always int usual_step(struct xdp_md *ctx, struct course *c)
{
	__u64 *ip = bytes_at(ctx, IP_AT, 48), *segment, srh;
	__u32 left, last, length;

	if (!ip)
		return UNUSUAL;
	c->head = ip[0];
	srh = ip[5];
	left = srh >> 24 & 0xff;
	last = srh >> 32 & 0xff;
	length = SRH_FIXED + 16 * (last + 1);
	if ((c->head >> HEAD_NEXT & 0xff) != IPPROTO_ROUTING ||
	    (srh & SRH_TYPE_AND_FLAGS) != SRH_PLAIN || (srh >> 8 & 0xff) != 2 * (last + 1) ||
	    left == 0 || left > last + 1 || IP_AT + 40 + length > c->end)
		return UNUSUAL;
	c->a.src_high = ip[1];
	c->a.src_low = ip[2];
	left -= 1;
	segment = bytes_at(ctx, IP_AT + 40 + SRH_FIXED + 16 * left, 16);
	if (!segment)
		return UNUSUAL;
	c->a.dst_high = segment[0];
	c->a.dst_low = segment[1];
	c->srh = srh - SRH_LEFT_ONE;
	if (left == 0 && c->word >> 16 & FLAVOUR_PSP) {
		__u32 payload = c->end - IP_AT - 40 - length;

		if ((srh & 0xff) == IPPROTO_HOPOPTS)
			return UNUSUAL;
		c->head = (c->head & HEAD_KEPT) | (srh & 0xff) << HEAD_NEXT |
			  (__u64)bpf_htons(payload) << HEAD_PAYLOAD;
		c->cut = length;
	}
	return 0;
}

/* S6: where the packet inside is, and its protocol in the upper half; 0 for what is unusual. */
inline_always __u64 usual_inner(struct xdp_md *ctx, struct course *c)
{
	__u64 *ip = bytes_at(ctx, IP_AT, 48), srh;
	__u32 at = IP_AT + 40, next, last;

	if (!ip)
		return 0;
	next = ip[0] >> HEAD_NEXT & 0xff;
	if (next == IPPROTO_ROUTING) {
		srh = ip[5];
		last = srh >> 32 & 0xff;
		if ((srh & (SRH_TYPE_AND_FLAGS | SRH_LEFT)) != SRH_PLAIN ||
		    (srh >> 8 & 0xff) != 2 * (last + 1))
			return 0;
		at += SRH_FIXED + 16 * (last + 1);
		next = srh & 0xff;
	}
	/* The headers of all that may be inside are at most that long. */
	return at + 40 > c->end ? 0 : at | (__u64)next << 32;
}

/* B1 and B2, of the packet inside. */
inline_always int usual_inner6(struct xdp_md *ctx, struct course *c, __u32 at)
{
	__u64 *ip = bytes_at(ctx, at, 40);

	if (!ip)
		return UNUSUAL;
	c->head = ip[0];
	load_addresses(&c->a, ip + 1);
	if ((c->head & 0xf0) != 0x60 || (c->head >> HEAD_NEXT & 0xff) == IPPROTO_HOPOPTS ||
	    at + 40 + bpf_ntohs((__u16)(c->head >> HEAD_PAYLOAD)) > c->end)
		return UNUSUAL;
	c->cut = at - IP_AT;
	return 0;
}

/* S9.2: the outer header. */
inline_always int usual_outer(struct xdp_md *ctx, struct course *c)
{
	__u32 flags = c->word >> 24 & 0xff, size = c->word >> 48, first = 0, next = IPPROTO_IPIP;
	__u32 payload = size - 40 + c->end - IP_AT;
	__u64 *ip = bytes_at(ctx, IP_AT, 8), place = c->s->template, hop_limit = 64;
	const __u64 *template;

	if (!ip || place + USUAL_WORDS > templates_len || flags & SEGMENT_LABEL_FROM_FLOW ||
	    payload > 0xffff)
		return UNUSUAL;
	template = ELEMENT(templates, const __u64, place);
	if (c->ether_type == ETH_P_IPV6) {
		first = bpf_ntohl((__u32)*ip) & 0x0fffffff;
		hop_limit = *ip >> HEAD_HOP_LIMIT;
		next = IPPROTO_IPV6;
	}
	if (!(flags & SEGMENT_LABEL_FROM_INNER))
		first &= ~0xfffff;
	if (flags & SEGMENT_HAS_SRH) {
		c->srh = *(volatile const __u64 *)(template + 5);
		if (c->srh >> 40 & SRH_FLAG_HMAC)
			return UNUSUAL;
		c->srh = (c->srh & ~0xffULL) | next;
		next = IPPROTO_ROUTING;
		if (size != 64 && size != 80 && size != 96 && size != 112)
			return UNUSUAL;
	} else if (size != 40) {
		return UNUSUAL;
	}
	c->head = bpf_htonl(first | 6u << 28) | (__u64)bpf_htons(payload) << HEAD_PAYLOAD |
		  (__u64)next << HEAD_NEXT | hop_limit << HEAD_HOP_LIMIT;
	c->a.src_high = *(volatile const __u64 *)(template + 1);
	c->a.src_low = *(volatile const __u64 *)(template + 2);
	c->a.dst_high = *(volatile const __u64 *)(template + 3);
	c->a.dst_low = *(volatile const __u64 *)(template + 4);
	c->ether_type = ETH_P_IPV6;
	c->cut = -size;
	return 0;
}

/* What stands behind the outer header, in the frame that has grown. */
inline_always int write_outer(struct xdp_md *ctx, struct course *c)
{
	__u32 size = c->word >> 48;
	__u64 place = c->s->template, *to;
	const __u64 *template;

	if (size == 40)
		return 0;
	to = bytes_at(ctx, IP_AT, 64);
	if (!to || place + USUAL_WORDS > templates_len)
		return DROP | REASON_REDIRECT_FAILED;
	template = ELEMENT(templates, const __u64, place);
	to[5] = c->srh;
	to[6] = template[6];
	to[7] = template[7];
	for (int i = 8; i < USUAL_WORDS; i += 2) {
		if (size < 8 * (__u32)i + 16)
			break;
		to = bytes_at(ctx, IP_AT, 8 * i + 16);
		if (!to)
			return DROP | REASON_REDIRECT_FAILED;
		to[i] = template[i];
		to[i + 1] = template[i + 1];
	}
	return 0;
}

/* B4 to B7 of the packet as it will be: the adjacency's number, or a negative number. */
inline_always __s64 usual_way6(const struct link_entry *link, struct course *c)
{
	__u32 table = c->s->table6;
	__u64 sh = bpf_be64_to_cpu(c->a.src_high), sl = bpf_be64_to_cpu(c->a.src_low);
	__u64 dh = bpf_be64_to_cpu(c->a.dst_high), dl = bpf_be64_to_cpu(c->a.dst_low);
	__u64 group;

	if (check_addresses6(sh, sl, dh, dl))
		return -1;
	if (c->kind == SEGMENT_END_X || c->kind == SEGMENT_END_DX6) {
		__u64 high = *(const __u64 *)c->s->target, low = *(const __u64 *)(c->s->target + 8);

		if (high | low) {
			dh = bpf_be64_to_cpu(high);
			dl = bpf_be64_to_cpu(low);
		}
	}
	if (!(link->flags & LINK_FORWARD6) || (link->flags & LINK_RULES6 && table == LINK_TABLE))
		return -1;
	group = group_word(fib6_lookup(table == LINK_TABLE ? link->table6 : table, dh, dl));
	return (__u8)group == GROUP_SINGLE ? group >> 32 : -1;
}

/* A1 to A9 of the packet inside: as above. */
inline_always __s64 usual_way4(struct xdp_md *ctx, const struct link_entry *link, struct course *c,
			       __u32 at)
{
	__u32 *ip = bytes_at(ctx, at, 20), flags = link->flags, table = c->s->table4, target = 0;
	__u32 w0, src, dst, length;
	__u64 group;

	if (!ip)
		return -1;
	w0 = ip[0];
	c->head = ip[2];
	if ((w0 & 0xff) != 0x45 || !header_sum_good((__u64)w0 + ip[1] + ip[2] + ip[3] + ip[4]))
		return -1;
	length = bpf_ntohs((__u16)(w0 >> 16));
	src = bpf_ntohl(ip[3]);
	dst = bpf_ntohl(ip[4]);
	if (length < 20 || at + length > c->end || check_addresses4(src, dst))
		return -1;
	if (table != LINK_TABLE)
		flags &= ~LINK_RULES4;
	if (c->word >> 24 & SEGMENT_OWN)
		flags &= ~LINK_RP_FILTER;
	if ((flags & (LINK_FORWARD4 | LINK_RULES4 | LINK_RP_FILTER)) != LINK_FORWARD4 ||
	    (!(flags & LINK_ACCEPT_LOCAL) && maybe_own(src)))
		return -1;
	if ((c->word & 0xff) == SEGMENT_END_DX4)
		target = *(const __u32 *)c->s->target;
	if (target)
		dst = bpf_ntohl(target);
	group = group_word(fib4_lookup(table == LINK_TABLE ? link->table4 : table, dst));
	if ((__u8)group != GROUP_SINGLE ||
	    (target && group >> 8 & SINGLE_NEIGHBOUR && !(c->word >> 24 & SEGMENT_DIRECT_NH4)))
		return -1;
	c->cut = at - IP_AT;
	c->ether_type = ETH_P_IP;
	return group >> 32;
}

/* S10 of what is forwarded: cuts off what is behind the packet, and counts. */
inline_always int usual_finish(struct packet *p, struct course *c, __u32 cpu, __u32 segment,
			       __u32 adjacency)
{
	__u32 length = c->received - c->cut, keep = c->end - c->cut;

	if (keep < FRAME_MIN)
		keep = FRAME_MIN;
	if (length > keep) {
		if (bpf_xdp_adjust_tail(p->ctx, (int)(keep - length)))
			return DROP | REASON_REDIRECT_FAILED;
		length = keep;
	}
	count(p->stripe, REASON_COUNTERS + p->link->slot, c->received);
	if (adjacency != NO_COUNTERS)
		count(p->stripe, ADJACENCY_COUNTERS + adjacency, length);
	if (counting && c->word >> 24 & SEGMENT_HAS_COUNTERS) {
		__u32 number = cpu * segments_len + segment;

		if (number < segment_counters_len) {
			struct segment_counters *counts =
				ELEMENT(segment_counters, struct segment_counters, number);

			counts->values[SEGMENT_PACKETS] += 1;
			counts->values[SEGMENT_BYTES] += c->end - IP_AT;
		}
	}
	return REASON_FORWARDED;
}

/* A11 to A14 and B8 to B10. */
inline_always int usual_leave(struct packet *p, struct course *c, __u32 cpu, __u32 segment, __u32 number)
{
	__u32 ttl = c->ether_type == ETH_P_IP ? c->head & 0xff : c->head >> HEAD_HOP_LIMIT;
	const struct adjacency *adj;
	__u64 word0, *ip;
	__u8 *frame;

	if (number >= adjacencies_len || ttl <= 1)
		return UNUSUAL;
	adj = ELEMENT(adjacencies, const struct adjacency, number);
	word0 = *(volatile const __u64 *)adj;
	if ((word0 >> 32 & 0xff) != ADJ_FORWARD || (__u32)word0 == p->ingress ||
	    c->end - IP_AT - c->cut > adj->mtu ||
	    bpf_redirect_map(&out_links, (__u32)word0, XDP_PASS) != XDP_REDIRECT)
		return UNUSUAL;
	/* It says no before it changes anything. */
	if (c->cut && bpf_xdp_adjust_head(p->ctx, c->cut))
		return UNUSUAL;
	frame = bytes_at(p->ctx, 0, IP_AT + 20);
	if (!frame)
		return DROP | REASON_REDIRECT_FAILED;
	rewrite_macs(frame, adj);
	*(__u16 *)(frame + 12) = bpf_htons(c->ether_type);
	if (c->ether_type == ETH_P_IP) {
		*(__u32 *)(frame + IP_AT + 8) = less_ttl(c->head);
		return usual_finish(p, c, cpu, segment, number);
	}
	ip = bytes_at(p->ctx, IP_AT, 40);
	if (!ip)
		return DROP | REASON_REDIRECT_FAILED;
	ip[0] = c->head - (1ULL << HEAD_HOP_LIMIT);
	ip[1] = c->a.src_high;
	ip[2] = c->a.src_low;
	ip[3] = c->a.dst_high;
	ip[4] = c->a.dst_low;
	if (c->kind == SEGMENT_ENCAPS) {
		if (write_outer(p->ctx, c))
			return DROP | REASON_REDIRECT_FAILED;
	} else if (c->kind <= SEGMENT_END_T && !c->cut) {
		ip = bytes_at(p->ctx, IP_AT, 48);
		if (!ip)
			return DROP | REASON_REDIRECT_FAILED;
		ip[5] = c->srh;
	}
	return usual_finish(p, c, cpu, segment, number);
}

/* S8 */
inline_always int usual_frame(struct packet *p, struct course *c, struct way *w, __u32 cpu, __u32 segment,
			      __u32 at)
{
	__u32 out = c->s->out;
	__u8 *frame = bytes_at(p->ctx, at, ETH_HLEN);

	if (!frame || bpf_ntohs(*(__u16 *)(frame + 12)) < 0x600 || !out ||
	    c->end - at - ETH_HLEN > c->s->mtu ||
	    bpf_redirect_map(&out_links, out, XDP_PASS) != XDP_REDIRECT ||
	    bpf_xdp_adjust_head(p->ctx, (int)at))
		return UNUSUAL;
	w->sent += 1;
	w->sent_to = out;
	c->cut = at;
	return usual_finish(p, c, cpu, segment, NO_COUNTERS);
}

/* Forwards a packet that has met a segment; or UNUSUAL. */
inline_always int usual(struct packet *p, __u32 cpu)
{
	struct course c = {};
	struct way *w;
	__u32 number, kind, flavours;
	__u64 inner;
	__s64 adjacency;
	__u16 *frame;

	if (cpu >= cpus)
		return UNUSUAL;
	w = &ELEMENT(scratch, struct scratch, cpu)->way;
	/* By way of the memory, so that the verifier does not tell apart the ways that lead here. */
	w->segment = p->segment;
	w->received = p->len;
	number = NOW(w->segment);
	c.received = NOW(w->received);
	/* S1 and S2 */
	if (number >= segments_len)
		return UNUSUAL;
	c.s = ELEMENT(segments, const struct segment, number);
	c.word = *(volatile const __u64 *)c.s;
	kind = c.word & 0xff;
	flavours = c.word >> 16 & 0xff;
	frame = bytes_at(p->ctx, 0, IP_AT + 20);
	if (!frame)
		return UNUSUAL;
	if (frame[6] == bpf_htons(ETH_P_IPV6)) {
		c.ether_type = ETH_P_IPV6;
		c.end = IP_AT + 40 + bpf_ntohs(frame[9]);
		if (p->link->flags & LINK_HMAC_REQUIRED && kind < SEGMENT_INSERT)
			return UNUSUAL;
	} else {
		c.ether_type = ETH_P_IP;
		c.end = IP_AT + bpf_ntohs(frame[8]);
		if (kind < SEGMENT_INSERT)
			return UNUSUAL;
	}
	switch (kind) {
	case SEGMENT_END:
	case SEGMENT_END_X:
	case SEGMENT_END_T:
		if (flavours & ~FLAVOUR_PSP || usual_step(p->ctx, &c))
			return UNUSUAL;
		break;
	case SEGMENT_ENCAPS:
		if (usual_outer(p->ctx, &c))
			return UNUSUAL;
		break;
	case SEGMENT_END_DX2:
		inner = usual_inner(p->ctx, &c);
		if (inner >> 32 != IPPROTO_ETHERNET_IN_IP)
			return UNUSUAL;
		return usual_frame(p, &c, w, cpu, number, inner);
	case SEGMENT_END_DX6:
	case SEGMENT_END_DT6:
		inner = usual_inner(p->ctx, &c);
		if (inner >> 32 != IPPROTO_IPV6 || usual_inner6(p->ctx, &c, inner))
			return UNUSUAL;
		break;
	case SEGMENT_END_DX4:
	case SEGMENT_END_DT4:
		inner = usual_inner(p->ctx, &c);
		if (inner >> 32 != IPPROTO_IPIP)
			return UNUSUAL;
		adjacency = usual_way4(p->ctx, p->link, &c, inner);
		goto found;
	default:
		return UNUSUAL;
	}
	/* As above. */
	w->flags = kind;
	w->at = c.cut;
	c.kind = NOW(w->flags);
	c.cut = NOW(w->at);
	adjacency = usual_way6(p->link, &c);
found:
	if (adjacency < 0)
		return UNUSUAL;
	w->verdict = adjacency;
	adjacency = NOW(w->verdict);
	w->ether_type = c.ether_type;
	c.ether_type = NOW(w->ether_type);
	return usual_leave(p, &c, cpu, number, adjacency);
}

#endif
