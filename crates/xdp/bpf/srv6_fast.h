/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The fast path through a segment: rules S1 to S10 for the usual packet, in the program that meets the segment.
 *
 * Usual is one segment on the way, an SRH right behind the IPv6 header, without flags and TLVs, and a single
 * neighbour behind the next look-up, or several by the hashes of policies 0 and 1. Everything is planned
 * first, then the redirect is claimed, and only then the frame is written. So what turns out to be unusual is
 * as it came, and the program for segments takes it from the beginning; it alone says why a packet is not
 * forwarded.
 */
#ifndef RADDLE_SRV6_FAST_H
#define RADDLE_SRV6_FAST_H

#include "srv6_plan.h"

/* S3 and S5: the next segment becomes the destination; with PSP the last one goes without its SRH. */
inline_always int fast_endpoint(struct xdp_md *ctx, struct srv6_fast_ctx *c)
{
	__u64 *ip = bytes_at(ctx, IP_AT, 48), *segment, srh;
	__u32 left, last, length;

	if (!ip)
		return NOT_FAST;
	c->head = ip[0];
	srh = ip[5];
	left = srh >> 24 & 0xff;
	last = srh >> 32 & 0xff;
	length = SRH_FIXED + 16 * (last + 1);
	if ((c->head >> HEAD_NEXT & 0xff) != IPPROTO_ROUTING ||
	    (srh & SRH_TYPE_AND_FLAGS) != SRH_PLAIN || (srh >> 8 & 0xff) != 2 * (last + 1) ||
	    left == 0 || left > last + 1 || IP_AT + 40 + length > c->end)
		return NOT_FAST;
	c->a.src_high = ip[1];
	c->a.src_low = ip[2];
	left -= 1;
	segment = bytes_at(ctx, IP_AT + 40 + SRH_FIXED + 16 * left, 16);
	if (!segment)
		return NOT_FAST;
	c->a.dst_high = segment[0];
	c->a.dst_low = segment[1];
	c->srh = srh - SRH_LEFT_ONE;
	if (left == 0 && c->word >> 16 & FLAVOUR_PSP) {
		__u32 payload = c->end - IP_AT - 40 - length;

		if ((srh & 0xff) == IPPROTO_HOPOPTS)
			return NOT_FAST;
		c->head = (c->head & HEAD_KEPT) | (srh & 0xff) << HEAD_NEXT |
			  (__u64)bpf_htons(payload) << HEAD_PAYLOAD;
		c->cut = length;
	}
	return 0;
}

/* S6: where the packet inside is, and its protocol in the upper half; 0 for what is unusual. */
inline_always __u64 fast_inner(struct xdp_md *ctx, struct srv6_fast_ctx *c)
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
inline_always int fast_inner6(struct xdp_md *ctx, struct srv6_fast_ctx *c, __u32 at)
{
	__u64 *ip = bytes_at(ctx, at, 40);

	if (!ip)
		return NOT_FAST;
	c->head = ip[0];
	load_addresses(&c->a, ip + 1);
	if (check_header6(c->head, c->head >> 32, c->end - at))
		return NOT_FAST;
	c->cut = at - IP_AT;
	return 0;
}

/* S9.2: the outer header. */
inline_always int fast_encaps(struct xdp_md *ctx, struct srv6_fast_ctx *c)
{
	__u32 flags = c->word >> 24 & 0xff, size = c->word >> 48, first = 0, next = IPPROTO_IPIP;
	__u32 payload = size - 40 + c->end - IP_AT;
	__u64 *ip = bytes_at(ctx, IP_AT, 8), place = INDEX(c->s->template), hop_limit;
	const __u64 *template;

	if (!ip || templates_len < FAST_TEMPLATE_WORDS || place > templates_len - FAST_TEMPLATE_WORDS || flags & SEGMENT_LABEL_FROM_FLOW ||
	    payload > 0xffff)
		return NOT_FAST;
	template = ELEMENT(templates, const __u64, place);
	hop_limit = *(volatile const __u64 *)template >> HEAD_HOP_LIMIT;
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
			return NOT_FAST;
		c->srh = (c->srh & ~0xffULL) | next;
		next = IPPROTO_ROUTING;
		if (size != 64 && size != 80 && size != 96 && size != 112)
			return NOT_FAST;
	} else if (size != 40) {
		return NOT_FAST;
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

/* S8 */
inline_always int fast_frame(struct packet *p, struct srv6_fast_ctx *c, struct srv6_ctx *w, __u32 cpu, __u32 segment,
			      __u32 at)
{
	__u32 out = c->s->out;
	__u8 *frame = bytes_at(p->ctx, at, ETH_HLEN);

	if (!frame || bpf_ntohs(*(__u16 *)(frame + 12)) < 0x600 || !out ||
	    c->end - at - ETH_HLEN > c->s->mtu || is_split_here(p->ctx, c->received) ||
	    bpf_redirect_map(&out_links, out, XDP_PASS) != XDP_REDIRECT ||
	    bpf_xdp_adjust_head(p->ctx, (int)at))
		return NOT_FAST;
	w->sent += 1;
	w->sent_to = out;
	c->cut = at;
	return fast_finish(p, c, cpu, segment, NO_COUNTERS);
}

/* Forwards a packet that has met a segment; or NOT_FAST. */
inline_always int srv6_fast(struct packet *p, __u32 cpu)
{
	struct srv6_fast_ctx c = {};
	struct scratch *here;
	struct srv6_ctx *w;
	__u32 number, kind, flavours;
	__u64 inner, index = INDEX(cpu);
	__s64 adjacency;
	__u16 *frame;

	if (index >= cpus)
		return NOT_FAST;
	here = ELEMENT(scratch, struct scratch, index);
	w = &here->srv6;
	/* Without, Linux 6.1 says "R2 unbounded memory access, make sure to bounds check any such access", too. */
	number = FORGET(w->segment, p->segment);
	c.received = FORGET(w->received, p->len);
	/* S1 and S2 */
	index = INDEX(number);
	if (index >= segments_len)
		return NOT_FAST;
	c.s = ELEMENT(segments, const struct segment, index);
	c.word = *(volatile const __u64 *)c.s;
	kind = c.word & 0xff;
	flavours = c.word >> 16 & 0xff;
	frame = bytes_at(p->ctx, 0, IP_AT + 20);
	if (!frame)
		return NOT_FAST;
	if (frame[6] == bpf_htons(ETH_P_IPV6)) {
		c.ether_type = ETH_P_IPV6;
		c.end = IP_AT + 40 + bpf_ntohs(frame[9]);
		if (p->link->flags & LINK_HMAC_REQUIRED && kind < SEGMENT_INSERT)
			return NOT_FAST;
	} else {
		c.ether_type = ETH_P_IP;
		c.end = IP_AT + bpf_ntohs(frame[8]);
		if (kind < SEGMENT_INSERT)
			return NOT_FAST;
	}
	switch (kind) {
	case SEGMENT_END:
	case SEGMENT_END_X:
	case SEGMENT_END_T:
		if (flavours & ~FLAVOUR_PSP || fast_endpoint(p->ctx, &c))
			return NOT_FAST;
		break;
	case SEGMENT_ENCAPS:
		if (fast_encaps(p->ctx, &c))
			return NOT_FAST;
		break;
	case SEGMENT_END_DX2:
		inner = fast_inner(p->ctx, &c);
		if (inner >> 32 != IPPROTO_ETHERNET_IN_IP)
			return NOT_FAST;
		return fast_frame(p, &c, w, cpu, number, inner);
	case SEGMENT_END_DX6:
	case SEGMENT_END_DT6:
		inner = fast_inner(p->ctx, &c);
		if (inner >> 32 != IPPROTO_IPV6 || fast_inner6(p->ctx, &c, inner))
			return NOT_FAST;
		break;
	case SEGMENT_END_DX4:
	case SEGMENT_END_DT4:
		inner = fast_inner(p->ctx, &c);
		if (inner >> 32 != IPPROTO_IPIP)
			return NOT_FAST;
		adjacency = fast_route4(p, here, &c, number, inner);
		goto found;
	default:
		return NOT_FAST;
	}
	c.kind = FORGET(w->flags, kind);
	c.cut = FORGET(w->packet.at, c.cut);
	c.end = FORGET(w->packet.end, c.end);
	c.ether_type = FORGET(w->packet.ether_type, c.ether_type);
	adjacency = fast_route6(p, here, &c, number);
found:
	if (adjacency < 0)
		return NOT_FAST;
	adjacency = FORGET(w->verdict, adjacency);
	c.ether_type = FORGET(w->packet.ether_type, c.ether_type);
	return fast_leave(p, &c, cpu, number, adjacency);
}

#endif
