/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Changes of a frame that can be undone: a packet that goes to the kernel is as it came.
 */
#ifndef RADDLE_CHANGE_H
#define RADDLE_CHANGE_H

#include <linux/if_ether.h>

#include "maps.h"
#include "srh.h"

/* The place for the next change; what goes beyond the last one is none, and cannot be. */
inline_always struct change *next_change(struct srv6_ctx *w)
{
	__u32 n = READ_ONCE(w->changes);

	w->changes = n + 1;
	return &w->list[n & (MAX_CHANGES - 1)];
}

/* Notes that these 16 bytes change, and the byte at `segments_left`, if not 0, is lowered by one. */
inline_always struct change *keep(struct srv6_ctx *w, __u32 at, const __u64 *bytes, __u32 segments_left)
{
	struct change *c = next_change(w);

	c->at = at;
	c->length = 16;
	c->segments_left = segments_left;
	c->grown = 0;
	c->bytes[0] = bytes[0];
	c->bytes[1] = bytes[1];
	return c;
}

/* A length from 1 to LARGE_CHANGE; without it "R4 unbounded memory access" or "R4 invalid zero-sized read". */
inline_always __u32 large_length(__u32 length)
{
	return ((length - 1) & (LARGE_CHANGE - 1)) + 1;
}

/* Notes that so many bytes change; NULL where they are too many or not there. */
inline_always struct change *keep_large(struct xdp_md *ctx, struct srv6_ctx *w, __u32 at, __u32 length)
{
	__u32 n = READ_ONCE(w->larges), place = n;
	struct change *c;

	if (length == 0 || length > LARGE_CHANGE || n >= MAX_LARGE)
		return NULL;
	/* Lest the compiler leaves out the mask, by which Linux 6.1 knows a bound ("R3 unbounded memory access"). */
	OPAQUE(place);
	if (bpf_xdp_load_bytes(ctx, at, w->large[place & (MAX_LARGE - 1)], large_length(length)))
		return NULL;
	w->larges = n + 1;
	c = next_change(w);
	c->at = at;
	/* The length of those that are kept in the change itself. */
	c->length = length == 16 ? 17 : length;
	c->large = n;
	c->segments_left = 0;
	c->grown = 0;
	return c;
}

/* Puts the frame back as it came, the last change first. */
static __noinline int undo(struct xdp_md *ctx, struct srv6_ctx *w)
{
	NO_UNROLL for (int i = 0; i < MAX_CHANGES; i++) {
		__u32 n = READ_ONCE(w->changes), length;
		struct change *c;
		__u8 left;

		if (!n)
			break;
		w->changes = n - 1;
		c = &w->list[(n - 1) & (MAX_CHANGES - 1)];
		if (c->grown)
			bpf_xdp_adjust_head(ctx, (int)c->grown);
		if (c->segments_left && !bpf_xdp_load_bytes(ctx, c->segments_left, &left, 1)) {
			left += 1;
			bpf_xdp_store_bytes(ctx, c->segments_left, &left, 1);
		}
		length = READ_ONCE(c->length);
		if (length == 16)
			bpf_xdp_store_bytes(ctx, c->at, c->bytes, 16);
		else if (length)
			bpf_xdp_store_bytes(ctx, c->at, w->large[c->large & (MAX_LARGE - 1)],
					    large_length(length));
	}
	return 0;
}

/* Removes `length` bytes at `from`: what stands in front of them in the packet moves. */
static __noinline int cut_out(struct xdp_md *ctx, struct srv6_ctx *w, __u32 from, __u32 length)
{
	__u32 at = READ_ONCE(w->packet.at), front = from - at;

	if (front == 0 || front > LARGE_CHANGE)
		return REASON_DEEP_HEADERS;
	if (bpf_xdp_load_bytes(ctx, at, w->moved, large_length(front)) ||
	    !keep_large(ctx, w, at + length, front) ||
	    bpf_xdp_store_bytes(ctx, at + length, w->moved, large_length(front)))
		return REASON_DEEP_HEADERS;
	w->packet.at = at + length;
	return 0;
}

/*
 * Makes room for `length` bytes in front of the packet, of which and of `rest` bytes behind them the old
 * ones are kept. An Ethernet header must fit in front of them.
 */
inline_always int grow(struct xdp_md *ctx, struct srv6_ctx *w, __u32 length, __u32 rest)
{
	__u32 at = READ_ONCE(w->packet.at), first = at > length ? at - length : 0, shift = 0;
	struct change *c;

	if (at < length + ETH_HLEN)
		shift = length + ETH_HLEN - at;
	if (at == ETH_HLEN && rest == 0) {
		__u64 *frame = bytes_at(ctx, 0, 16);

		c = frame ? keep(w, 0, frame, 0) : NULL;
	} else {
		c = keep_large(ctx, w, first, at + rest - first);
	}
	if (!c || (shift && bpf_xdp_adjust_head(ctx, -(int)shift)))
		return REASON_HEADROOM;
	c->grown = shift;
	w->packet.at = at + shift - length;
	w->packet.end += shift;
	w->length += shift;
	w->flow.at += shift;
	w->flow.end += shift;
	return 0;
}

#endif
