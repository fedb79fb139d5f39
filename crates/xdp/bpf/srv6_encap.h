/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Encapsulations and insertions: rule S9. Templates are the image's, word by word as on the wire.
 */
#ifndef RADDLE_SRV6_ENCAP_H
#define RADDLE_SRV6_ENCAP_H

#include "change.h"
#include "groups.h"
#include "srh.h"

#define FLOW_LABEL 0xfffff

inline_always __u64 template_word(__u32 place)
{
	return READ_CHECKED(templates, __u64, templates_len, place, 0);
}

/*
 * So many words of the image's at once, or NULL where they are not all there. By one check: with one for each, Linux 6.1
 * goes on where a word is there and the one before it is not ("R2 invalid mem access 'scalar'").
 */
inline_always const __u64 *template_words(__u32 place, __u32 words)
{
	__u64 index = INDEX(place);

	if (templates_len < words || index > templates_len - words)
		return NULL;
	return ELEMENT(templates, const __u64, index);
}

/* Writes words of the template from `first` on to `at`; 0 where they are not there. */
inline_always int write_template(struct xdp_md *ctx, __u32 at, __u32 place, __u32 first, __u32 words)
{
	NO_UNROLL for (__u32 i = first; i < LARGE_CHANGE / 8; i++) {
		__u64 *to;

		if (i >= words)
			return 1;
		to = bytes_at(ctx, at + i * 8, 8);
		if (!to)
			return 0;
		*to = template_word(place + i);
	}
	/* No frame has room in front for more, and none leaves with bytes that were not written. */
	return words <= LARGE_CHANGE / 8;
}

/* The flow label by the flow's hash, or a negative reason. */
static __noinline __s64 flow_label(struct xdp_md *ctx, struct scratch *here)
{
	struct srv6_ctx *w = &here->srv6;
	struct flow_query *q = &here->query;
	struct sip s;
	__s64 hash;

	if (!(config->flags & CONFIG_SEED_KNOWN))
		return -REASON_SEED_UNKNOWN;
	q->packet = READ_ONCE(w->flow.ether_type) ? w->flow : w->packet;
	q->policy = READ_ONCE(q->packet.ether_type) == ETH_P_IP ? config->policy4 : config->policy6;
	q->follows = 0;
	hash = hash_any(ctx, here);
	if (hash < 0)
		return hash;
	SIP_KEYED(s, config->label_key);
	return SIP_FINISH32(s, 4ULL << 56 | (__u32)hash) & FLOW_LABEL;
}

/* S9.2: puts the template in front of the packet, or of the frame that it came in. */
inline_always int encapsulate(struct xdp_md *ctx, struct scratch *here, const struct segment *s)
{
	struct srv6_ctx *w = &here->srv6;
	__u64 word = *(volatile const __u64 *)s, head;
	__u32 kind = word & 0xff, flags = word >> 24 & 0xff, size = word >> 48, place = s->template;
	__u32 at = READ_ONCE(w->packet.at), inner = READ_ONCE(w->packet.end) - at, type = READ_ONCE(w->packet.ether_type), outer = size;
	__u32 first = 0, hop_limit, number = IPPROTO_IPIP, payload;
	const __u64 *template = template_words(place, 5);
	__u64 *to, top;
	int reason;
	__u8 *ip;

	if (!template)
		return REASON_ENCAP;
	hop_limit = READ_ONCE(template[0]) >> 56;
	if (size < (flags & SEGMENT_HAS_SRH ? 48 : 40) || size & 7)
		return REASON_ENCAP;
	if (flags & SEGMENT_HAS_SRH && template_word(place + 5) >> 40 & SRH_FLAG_HMAC)
		return REASON_HMAC_CHECK;
	ip = bytes_at(ctx, at, 8);
	if (!ip)
		return inner < 8 ? REASON_TRUNCATED : REASON_DEEP_HEADERS;
	if (type == ETH_P_IPV6) {
		head = *(__u64 *)ip;
		first = bpf_ntohl((__u32)head) & 0x0fffffff;
		hop_limit = head >> 56;
		number = IPPROTO_IPV6;
	}
	if (kind == SEGMENT_ENCAPS_L2) {
		number = IPPROTO_ETHERNET_IN_IP;
		outer += ETH_HLEN;
	}
	if (!(flags & SEGMENT_LABEL_FROM_INNER))
		first &= ~FLOW_LABEL;
	if (flags & SEGMENT_LABEL_FROM_FLOW) {
		__s64 label = flow_label(ctx, here);

		if (label < 0)
			return -label;
		first = (first & ~FLOW_LABEL) | label;
	}
	payload = outer - 40 + inner;
	if (payload > 0xffff)
		return REASON_MTU;
	reason = grow(ctx, w, outer, 0);
	if (reason)
		return reason;
	/* The Ethernet header is where it has to be, unless something was changed in front of it. */
	if (kind == SEGMENT_ENCAPS_L2 && (at != ETH_HLEN || READ_ONCE(w->changes) != 1) &&
	    bpf_xdp_store_bytes(ctx, READ_ONCE(w->packet.at) + (size & 0x7ff), w->ethernet, ETH_HLEN))
		return REASON_DEEP_HEADERS;
	at = READ_ONCE(w->packet.at);
	top = bpf_htonl(first | 6u << 28) | (__u64)bpf_htons(payload) << 32 | (__u64)hop_limit << 56;
	if (flags & SEGMENT_HAS_SRH) {
		top |= (__u64)IPPROTO_ROUTING << 48;
		to = bytes_at(ctx, at + 40, 8);
		if (!to)
			return REASON_DEEP_HEADERS;
		*to = (template_word(place + 5) & ~0xffULL) | number;
		if (!write_template(ctx, at, place, 6, size / 8))
			return REASON_DEEP_HEADERS;
	} else {
		top |= (__u64)number << 48;
		if (!write_template(ctx, at, place, 5, size / 8))
			return REASON_DEEP_HEADERS;
	}
	to = bytes_at(ctx, at, 40);
	if (!to)
		return REASON_DEEP_HEADERS;
	to[0] = top;
	to[1] = READ_ONCE(template[1]);
	to[2] = READ_ONCE(template[2]);
	to[3] = READ_ONCE(template[3]);
	to[4] = READ_ONCE(template[4]);
	w->packet.ether_type = ETH_P_IPV6;
	/* S9.6 */
	if (kind != SEGMENT_END_B6_ENCAPS || flags & SEGMENT_NO_PUNT) {
		w->salt = salt_of(READ_ONCE(w->segment));
		if (!READ_ONCE(w->flow.ether_type)) {
			w->flow.ether_type = type;
			w->flow.end = READ_ONCE(w->packet.end);
			w->flow.at = READ_ONCE(w->packet.end) - inner;
		}
	}
	return 0;
}

/* S9.4: puts the template, an SRH, behind the IPv6 header. */
inline_always int insert(struct xdp_md *ctx, struct scratch *here, const struct segment *s)
{
	struct srv6_ctx *w = &here->srv6;
	__u32 size = *(volatile const __u64 *)s >> 48, place = s->template, at = READ_ONCE(w->packet.at);
	__u32 payload = READ_ONCE(w->packet.end) - at - 40 + size, last;
	__u64 *to, head, src[2], dst[2], fixed = template_word(place);
	const __u64 *segment;
	int reason;

	if (READ_ONCE(w->packet.ether_type) != ETH_P_IPV6 || size < 24 || size & 7)
		return REASON_ENCAP;
	last = 8 + 16 * (__u32)(fixed >> 32 & 0xff);
	if (last + 16 > size)
		return REASON_ENCAP;
	to = bytes_at(ctx, at, 40);
	if (!to)
		return READ_ONCE(w->packet.end) - at < 40 ? REASON_TRUNCATED : REASON_DEEP_HEADERS;
	if (payload > 0xffff)
		return REASON_MTU;
	if (fixed >> 40 & SRH_FLAG_HMAC)
		return REASON_HMAC_CHECK;
	head = to[0];
	src[0] = to[1];
	src[1] = to[2];
	dst[0] = to[3];
	dst[1] = to[4];
	reason = grow(ctx, w, size, 40);
	if (reason)
		return reason;
	at = READ_ONCE(w->packet.at);
	if (!write_template(ctx, at + 40, place, 1, size / 8))
		return REASON_DEEP_HEADERS;
	to = bytes_at(ctx, at, 64);
	if (!to)
		return REASON_DEEP_HEADERS;
	to[0] = (head & 0xff000000ffffffffULL) | (__u64)bpf_htons(payload) << 32 |
		(__u64)IPPROTO_ROUTING << 48;
	to[1] = src[0];
	to[2] = src[1];
	to[5] = (fixed & ~0xffULL) | (head >> 48 & 0xff);
	to[6] = dst[0];
	to[7] = dst[1];
	if (last == 8) {
		to[3] = dst[0];
		to[4] = dst[1];
	} else {
		segment = template_words(place + last / 8, 2);
		if (!segment)
			return REASON_DEEP_HEADERS;
		to[3] = READ_ONCE(segment[0]);
		to[4] = READ_ONCE(segment[1]);
	}
	return 0;
}

#endif
