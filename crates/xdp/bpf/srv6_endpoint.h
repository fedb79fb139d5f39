/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Behaviours that go on with the packet itself, and those that take out what is in it: rules S3 to S6.
 */
#ifndef RADDLE_SRV6_ENDPOINT_H
#define RADDLE_SRV6_ENDPOINT_H

#include "change.h"
#include "dissect.h"
#include "srh.h"

/* S5.1: the next segment becomes the destination. */
inline_always int advance(struct xdp_md *ctx, struct srv6_ctx *w)
{
	__u32 at = READ_ONCE(w->packet.at), srh = READ_ONCE(w->srh), left;
	__u8 *h = bytes_at(ctx, srh, SRH_FIXED);
	__u64 *dst, *segment;

	if (!h)
		return REASON_DEEP_HEADERS;
	if (!h[3])
		return REASON_NO_SRH;
	left = h[3] - 1;
	dst = bytes_at(ctx, at + 24, 16);
	segment = bytes_at(ctx, srh + SRH_FIXED + 16 * (left & 0xff), 16);
	if (!dst || !segment)
		return REASON_DEEP_HEADERS;
	keep(w, at + 24, dst, srh + 3);
	dst[0] = segment[0];
	dst[1] = segment[1];
	h[3] = left;
	return 0;
}

/* S5.2: cuts the SRH out. */
static __noinline int pop(struct xdp_md *ctx, struct srv6_ctx *w)
{
	__u32 at = READ_ONCE(w->packet.at), srh = READ_ONCE(w->srh), named = READ_ONCE(w->srh_named), length = READ_ONCE(w->srh_length);
	__u32 payload = READ_ONCE(w->packet.end) - at - 40 - length;
	__u8 *h = bytes_at(ctx, srh, SRH_FIXED), *ip, *name, next;

	if (!h)
		return REASON_DEEP_HEADERS;
	next = h[0];
	name = bytes_at(ctx, named, 16);
	if (!name)
		return REASON_DEEP_HEADERS;
	keep(w, named, (__u64 *)name, 0);
	name[0] = next;
	ip = bytes_at(ctx, at, 16);
	if (!ip)
		return REASON_DEEP_HEADERS;
	keep(w, at, (__u64 *)ip, 0);
	*(__u16 *)(ip + 4) = bpf_htons(payload);
	return cut_out(ctx, w, srh, length);
}

/* Of the value of these bits, all from bit `n` on; 0 from 64 on. */
inline_always __u64 from_bit(__u32 n)
{
	return n >= 64 ? 0 : ~0ULL << n;
}

/* S4.1: NEXT-C-SID. Whether there was an argument, which has moved up; or a negative reason. */
static __noinline int shift_argument(struct xdp_md *ctx, struct srv6_ctx *w, __u32 block, __u32 csid)
{
	__u32 at = READ_ONCE(w->packet.at), bits, move = csid * 8;
	__u64 *dst = bytes_at(ctx, at + 24, 16);
	__u64 high, low, arg_high, arg_low, block_high, block_low;

	if (!dst)
		return -REASON_DEEP_HEADERS;
	if (csid == 0 || block + csid >= 16 || block > 15)
		return 0;
	high = bpf_be64_to_cpu(dst[0]);
	low = bpf_be64_to_cpu(dst[1]);
	/* Bits of the argument, at least 8. */
	bits = 128 - 8 * (block + csid);
	arg_low = low & ~from_bit(bits);
	arg_high = bits > 64 ? high & ~from_bit(bits - 64) : 0;
	if (!(arg_low | arg_high))
		return 0;
	bits += move;
	block_low = low & from_bit(bits);
	block_high = bits > 64 ? high & from_bit(bits - 64) : high;
	if (move >= 64) {
		arg_high = arg_low << (move & 63);
		arg_low = 0;
	} else {
		arg_high = arg_high << (move & 63) | arg_low >> (-move & 63);
		arg_low <<= move & 63;
	}
	keep(w, at + 24, dst, 0);
	dst[0] = bpf_cpu_to_be64(block_high | arg_high);
	dst[1] = bpf_cpu_to_be64(block_low | arg_low);
	return 1;
}

/* S6.3: takes off everything in front of an inner packet. `wanted` is its protocol, or FIND_LAST for any. */
static __noinline int take_out(struct xdp_md *ctx, struct srv6_ctx *w, __u32 wanted)
{
	int reason = find_header(ctx, w, wanted);
	__u32 inner, least;

	if (reason)
		return reason == REASON_NO_SRH ? REASON_PAYLOAD : reason;
	inner = READ_ONCE(w->next);
	if (inner == IPPROTO_IPIP)
		least = 20;
	else if (inner == IPPROTO_IPV6)
		least = 40;
	else if (inner == IPPROTO_ETHERNET_IN_IP && wanted == IPPROTO_ETHERNET_IN_IP)
		least = ETH_HLEN;
	else
		return REASON_PAYLOAD;
	if (READ_ONCE(w->cursor) + least > READ_ONCE(w->packet.end))
		return REASON_PAYLOAD;
	w->packet.at = READ_ONCE(w->cursor);
	w->packet.ether_type = inner == IPPROTO_IPIP ? ETH_P_IP : ETH_P_IPV6;
	w->flow.ether_type = 0;
	return 0;
}

/* S6 */
static __noinline int decapsulate_any(struct xdp_md *ctx, struct srv6_ctx *w, __u32 wanted)
{
	int reason = want_any_srh(ctx, w, FIND_FIRST_ROUTING);

	if (!reason || reason == REASON_HMAC_CHECK) {
		if (READ_ONCE(w->left))
			return REASON_SEGMENTS_LEFT;
		if (reason)
			return reason;
	} else if (reason != REASON_NO_SRH && reason != REASON_BAD_SRH) {
		return reason;
	}
	return take_out(ctx, w, wanted);
}

/*
 * The same, without a call for what is inside of an IPv6 header alone, or of that and an SRH without
 * segments left, flags or TLVs.
 */
inline_always int decapsulate(struct xdp_md *ctx, struct srv6_ctx *w, __u32 wanted)
{
	__u32 at = READ_ONCE(w->packet.at), inner = at + 40, next, last;
	__u8 *ip = bytes_at(ctx, at, 48);
	const struct link_entry *link = link_of(w);

	if (!ip || !link || link->flags & LINK_HMAC_REQUIRED)
		return decapsulate_any(ctx, w, wanted);
	next = ip[6];
	if (next == IPPROTO_ROUTING) {
		last = ip[44];
		if (ip[42] != SRH_TYPE || ip[43] || ip[45] || ip[41] != 2 * (last + 1))
			return decapsulate_any(ctx, w, wanted);
		inner += SRH_FIXED + 16 * (last + 1);
		next = ip[40];
	}
	/* Any of them is at most 40 bytes long. */
	if (next != wanted || inner + 40 > READ_ONCE(w->packet.end))
		return decapsulate_any(ctx, w, wanted);
	w->packet.at = inner;
	w->packet.ether_type = wanted == IPPROTO_IPIP ? ETH_P_IP : ETH_P_IPV6;
	w->flow.ether_type = 0;
	return 0;
}

/* S5.4: what follows the last extension header has been reached. */
inline_always int upper_layer(struct xdp_md *ctx, struct srv6_ctx *w, __u32 flavours, int had_srh)
{
	if (flavours & FLAVOUR_USD)
		return take_out(ctx, w, FIND_LAST);
	return had_srh ? REASON_PAYLOAD : REASON_NO_SRH;
}

/* S5.3: the step with USP or USD. */
static __noinline int ultimate(struct xdp_md *ctx, struct srv6_ctx *w, __u32 flavours)
{
	int reason = want_any_srh(ctx, w, FIND_FIRST_ROUTING), had_srh = !reason;
	__u32 left;

	if (reason && reason != REASON_NO_SRH)
		return reason;
	if (had_srh && !READ_ONCE(w->left) && flavours & FLAVOUR_USP) {
		reason = pop(ctx, w);
		if (reason)
			return reason;
	}
	reason = want_any_srh(ctx, w, FIND_ROUTING);
	if (reason == REASON_NO_SRH)
		return upper_layer(ctx, w, flavours, had_srh);
	if (reason)
		return reason;
	left = READ_ONCE(w->left);
	reason = advance(ctx, w);
	if (!reason && flavours & FLAVOUR_PSP && left == 1)
		reason = pop(ctx, w);
	return reason;
}

/* A C-SID of an entry of the list, into `moved`; whether it is 0, or a negative reason. */
inline_always int csid_at(struct xdp_md *ctx, struct srv6_ctx *w, __u32 left, __u32 index, __u32 csid)
{
	__u32 any = 0;

	if (index * csid + csid > 16)
		return -REASON_BAD_SRH;
	if (bpf_xdp_load_bytes(ctx, READ_ONCE(w->srh) + SRH_FIXED + 16 * left + index * csid, w->moved,
			       large_length(csid)))
		return -REASON_DEEP_HEADERS;
	NO_UNROLL for (__u32 i = 0; i < 16; i++)
		any |= i < csid ? w->moved[i] : 0;
	return !any;
}

/* S4.2: REPLACE-C-SID. */
static __noinline int replace(struct xdp_md *ctx, struct srv6_ctx *w, __u32 flavours, __u32 sizes)
{
	__u32 block = sizes & 0xff, csid = sizes >> 8 & 0xff, slots, mask, index, left, last, at;
	int reason, zero, pops, whole = 0;
	__u64 *dst, entry[2];
	__u8 *h, low;

	if (csid == 0 || block + csid > 15)
		return REASON_ENCAP;
	reason = want_any_srh(ctx, w, FIND_FIRST_ROUTING);
	if (reason == REASON_NO_SRH)
		return upper_layer(ctx, w, flavours, 0);
	if (reason)
		return reason;
	slots = 16 / csid;
	/* The bits that count to 16 / csid, rounded up. */
	mask = (15 + csid) / csid - 1;
	mask |= mask >> 1;
	mask |= mask >> 2;
	mask |= mask >> 4;
	at = READ_ONCE(w->packet.at);
	h = bytes_at(ctx, READ_ONCE(w->srh), SRH_FIXED);
	if (!h)
		return REASON_DEEP_HEADERS;
	last = h[4];
	left = READ_ONCE(w->left);
	h = bytes_at(ctx, at + 39, 1);
	if (!h)
		return REASON_DEEP_HEADERS;
	low = *h;
	index = low & mask;
	if (left == 0) {
		zero = index ? csid_at(ctx, w, 0, index - 1, csid) : 1;
		if (zero < 0)
			return -zero;
		if (zero) {
			reason = flavours & FLAVOUR_USP ? pop(ctx, w) : 0;
			return reason ? reason : upper_layer(ctx, w, flavours, 1);
		}
	}
	if (index) {
		if (left > last)
			return REASON_BAD_SRH;
		index -= 1;
		zero = csid_at(ctx, w, left, index, csid);
		if (zero < 0)
			return -zero;
		if (zero) {
			if (!left)
				return REASON_BAD_SRH;
			left -= 1;
			whole = 1;
		}
	} else {
		left -= 1;
		index = slots - 1;
	}
	if (whole) {
		pops = left == 0;
	} else {
		zero = csid_at(ctx, w, left, index, csid);
		if (zero < 0)
			return -zero;
	}
	dst = bytes_at(ctx, at + 24, 16);
	if (!dst)
		return REASON_DEEP_HEADERS;
	keep(w, at + 24, dst, left != READ_ONCE(w->left) ? READ_ONCE(w->srh) + 3 : 0);
	if (whole) {
		if (bpf_xdp_load_bytes(ctx, READ_ONCE(w->srh) + SRH_FIXED + 16 * left, entry, 16) ||
		    bpf_xdp_store_bytes(ctx, at + 24, entry, 16))
			return REASON_DEEP_HEADERS;
	} else {
		if (bpf_xdp_store_bytes(ctx, at + 24 + block, w->moved, large_length(csid)))
			return REASON_DEEP_HEADERS;
		low = (low & ~mask) | index;
		if (bpf_xdp_store_bytes(ctx, at + 39, &low, 1))
			return REASON_DEEP_HEADERS;
		pops = 0;
		if (left == 0) {
			zero = index ? csid_at(ctx, w, 0, index - 1, csid) : 1;
			if (zero < 0)
				return -zero;
			pops = zero;
		}
	}
	low = left;
	if (bpf_xdp_store_bytes(ctx, READ_ONCE(w->srh) + 3, &low, 1))
		return REASON_DEEP_HEADERS;
	return pops && flavours & FLAVOUR_PSP ? pop(ctx, w) : 0;
}

/* S3 to S5: one step along the packet's path, with flavours. `word` is the segment's first. */
static __noinline int flavoured_step(struct xdp_md *ctx, struct srv6_ctx *w, __u64 word)
{
	__u32 flavours = word >> 16 & 0xff, own = word >> 24 & SEGMENT_NO_PUNT, sizes = word >> 32 & 0xffff;
	__u32 psp = flavours & FLAVOUR_PSP && (own || !(flavours & FLAVOUR_NEXT_CSID));
	int reason;

	if (flavours & FLAVOUR_NEXT_CSID) {
		reason = shift_argument(ctx, w, sizes & 0xff, sizes >> 8);
		if (reason)
			return reason < 0 ? -reason : 0;
	}
	if (flavours & FLAVOUR_REPLACE_CSID)
		return replace(ctx, w, flavours, sizes);
	if (flavours & (FLAVOUR_USP | FLAVOUR_USD))
		return ultimate(ctx, w, flavours);
	reason = want_any_srh(ctx, w, psp && !own ? FIND_FIRST_ROUTING : FIND_ROUTING);
	if (!reason)
		reason = advance(ctx, w);
	if (!reason && psp && READ_ONCE(w->left) == 1)
		reason = pop(ctx, w);
	return reason;
}

#endif
