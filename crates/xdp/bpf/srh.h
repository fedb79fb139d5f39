/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Headers of a packet on its way through segments: finding them, and checking an SRH as
 * crates/packet/src/srh.rs does. Rules S2 to S6.
 *
 * What a walk goes on with is kept in `srv6_ctx` and read back at every step: see FORGET.
 */
#ifndef RADDLE_SRH_H
#define RADDLE_SRH_H

#include <linux/in.h>
#include <linux/in6.h>

#include "maps.h"
#include "parse.h"

/* Headers and TLVs that are walked over; the kernel gets packets with more. */
#define WALK_HEADERS 8
#define WALK_TLVS 16

/* Headers further in than this are not looked for; of a packet with what it had in front, 14 bytes more. */
#define FARTHEST 0x3fff

#define SRH_FIXED 8
#define SRH_TYPE 4
#define SRH_FLAG_HMAC 0x08

#define IPPROTO_ETHERNET_IN_IP 143

/* `length` bytes at `at`, or NULL where they are not at hand. */
inline_always void *bytes_at(struct xdp_md *ctx, __u32 at, __u32 length)
{
	/* Loaded anew each time: kept in registers, they are kept apart by the way, see FORGET. */
	void *data = (void *)(long)READ_ONCE(ctx->data), *data_end = (void *)(long)READ_ONCE(ctx->data_end);
	/* What is checked is what is added: else Linux 6.1 says "R1 offset is outside of the packet". */
	__u64 from = __builtin_constant_p(at) ? at : INDEX(at);

	if (from > FARTHEST)
		return NULL;
	data += from;
	if (data + length > data_end)
		return NULL;
	return data;
}

/*
 * `length` bytes of the packet at `at`, which has room for an Ethernet header in front, or NULL. By one check: of two for one
 * number, clang 19 makes one that Linux 6.1 and 6.12 learn no bound from ("R0 offset is outside of the packet").
 */
inline_always void *packet_at(struct xdp_md *ctx, __u32 at, __u32 length)
{
	void *frame = bytes_at(ctx, at - IP_AT, IP_AT + length);

	return frame ? frame + IP_AT : NULL;
}

/* The link that the packet came in by. */
inline_always const struct link_entry *link_of(struct srv6_ctx *w)
{
	__u64 in = INDEX(READ_ONCE(w->in));

	if (in >= MAX_LINKS)
		return NULL;
	return ELEMENT(links, const struct link_entry, in);
}

/* What find_header() takes for found. */
#define FIND_ROUTING 0x100	/* a routing header with segments left */
#define FIND_FIRST_ROUTING 0x200
#define FIND_LAST 0x300		/* the first that is no extension header */

inline_always int is_extension(__u32 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_FRAGMENT ||
	       next == IPPROTO_AH || next == IPPROTO_NONE || next == IPPROTO_DSTOPTS;
}

/*
 * Finds a header of the IPv6 packet as ipv6_find_hdr() does: `wanted` is a protocol, or one of the above. Then
 * 0, and `cursor`, `next` and `named` tell of it; else REASON_NO_SRH, whatever it was that is not there.
 */
static __noinline int find_header(struct xdp_md *ctx, struct srv6_ctx *w, __u32 wanted)
{
	__u32 end = READ_ONCE(w->packet.end), at = READ_ONCE(w->packet.at);
	__u8 *ip = bytes_at(ctx, at, 40);

	if (!ip)
		return REASON_DEEP_HEADERS;
	w->cursor = at + 40;
	w->next = ip[6];
	w->named = at + 6;
	NO_UNROLL for (int i = 0; i < WALK_HEADERS; i++) {
		__u32 next = READ_ONCE(w->next), length;
		__u8 *h;

		at = READ_ONCE(w->cursor);
		if (!is_extension(next) || next == IPPROTO_NONE)
			return next == wanted || wanted == FIND_LAST ? 0 : REASON_NO_SRH;
		if (at + 4 > end)
			return REASON_NO_SRH;
		h = bytes_at(ctx, at, 4);
		if (!h)
			return REASON_DEEP_HEADERS;
		length = (h[1] + 1) * 8;
		if (next == IPPROTO_ROUTING) {
			if (wanted == FIND_FIRST_ROUTING || (wanted == FIND_ROUTING && h[3]))
				return 0;
		} else if (next == IPPROTO_FRAGMENT) {
			/* What is behind the first fragment has no headers. */
			if (h[2] || h[3] & 0xf8)
				return REASON_NO_SRH;
			length = 8;
		} else if (next == IPPROTO_AH) {
			length = (h[1] + 2) * 4;
		}
		w->next = h[0];
		w->named = at;
		w->cursor = at + length;
	}
	return REASON_DEEP_HEADERS;
}

/* Whether what follows the segments is TLVs that end where the SRH does. */
static __noinline int check_tlvs(struct xdp_md *ctx, struct srv6_ctx *w)
{
	__u32 srh_end = READ_ONCE(w->srh) + READ_ONCE(w->srh_length);

	NO_UNROLL for (int i = 0; i <= WALK_TLVS; i++) {
		__u32 at = READ_ONCE(w->cursor);
		__u8 *tlv;

		if (at == srh_end)
			return 0;
		if (at + 2 > srh_end)
			return REASON_BAD_SRH;
		tlv = bytes_at(ctx, at, 2);
		if (!tlv)
			return REASON_DEEP_HEADERS;
		w->cursor = at + 2 + tlv[1];
	}
	return REASON_DEEP_HEADERS;
}

/* S3.4: whether an HMAC would have to be looked at, which is left to the kernel. */
inline_always int wants_hmac(struct xdp_md *ctx, struct srv6_ctx *w, __u32 srh_flags)
{
	const struct link_entry *link = link_of(w);
	__u32 at = READ_ONCE(w->packet.at);
	__u8 *flags;

	if (!link || link->flags & LINK_HMAC_IGNORED)
		return 0;
	if (link->flags & LINK_HMAC_REQUIRED || srh_flags & SRH_FLAG_HMAC)
		return 1;
	if (READ_ONCE(w->srh) == at + 40)
		return 0;
	/* The kernel takes what is there for an SRH. */
	flags = bytes_at(ctx, at + 45, 1);
	return flags && *flags & SRH_FLAG_HMAC;
}

/* S3.3: takes the routing header that was found for an SRH, if it is one (seg6_validate_srh). */
inline_always int take_srh(struct xdp_md *ctx, struct srv6_ctx *w)
{
	__u32 at = READ_ONCE(w->cursor), end = READ_ONCE(w->packet.end), length, list_end, flags;
	int reason;
	__u8 *h;

	if (at + SRH_FIXED > end)
		return REASON_BAD_SRH;
	h = bytes_at(ctx, at, SRH_FIXED);
	if (!h)
		return REASON_DEEP_HEADERS;
	length = (h[1] + 1) * 8;
	list_end = SRH_FIXED + 16 * (h[4] + 1);
	if (at + length > end || h[2] != SRH_TYPE || list_end > length || h[3] > h[4] + 1)
		return REASON_BAD_SRH;
	w->srh = at;
	w->srh_length = length;
	w->srh_named = w->named;
	w->left = h[3];
	flags = h[5];
	if (list_end != length) {
		w->cursor = at + list_end;
		reason = check_tlvs(ctx, w);
		if (reason)
			return reason;
	}
	return wants_hmac(ctx, w, flags) ? REASON_HMAC_CHECK : 0;
}

/* S3: finds the SRH that a SID acts on. */
static __noinline int want_any_srh(struct xdp_md *ctx, struct srv6_ctx *w, __u32 wanted)
{
	int reason = find_header(ctx, w, wanted);

	return reason ? reason : take_srh(ctx, w);
}

/*
 * The same, without a call where the SRH stands right behind the IPv6 header, has segments left and
 * neither flags nor TLVs. A call costs as much as all of this.
 */
inline_always int want_srh(struct xdp_md *ctx, struct srv6_ctx *w, __u32 wanted)
{
	__u32 at = READ_ONCE(w->packet.at), length;
	__u8 *ip = bytes_at(ctx, at, 48);
	const struct link_entry *link = link_of(w);

	if (!ip || ip[6] != IPPROTO_ROUTING || ip[42] != SRH_TYPE || !ip[43] || ip[45] || !link ||
	    link->flags & LINK_HMAC_REQUIRED)
		return want_any_srh(ctx, w, wanted);
	length = (ip[41] + 1) * 8;
	if (length != SRH_FIXED + 16 * ((__u32)ip[44] + 1) || ip[43] > ip[44] + 1 ||
	    at + 40 + length > READ_ONCE(w->packet.end))
		return want_any_srh(ctx, w, wanted);
	w->srh = at + 40;
	w->srh_length = length;
	w->srh_named = at + 6;
	w->left = ip[43];
	return 0;
}

#endif
