/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The program for packets that come to an address at which tunnels end: rules T5 to T7 of crates/srv6/src/tunnel.rs. Nothing is written before
 * the packet inside leaves: what is in front of it is passed over.
 */
#ifndef RADDLE_UNTUNNEL_H
#define RADDLE_UNTUNNEL_H

#include <linux/in.h>

#include "guard.h"
#include "srv6.h"
#include "srv6_route.h"
#include "tunnel.h"
#include "upon.h"
#include "way_back.h"

/* 4096 tunnels end at an address at most. */
#define FIND_STEPS 13

/*
 * T5: what is inside of the packet. `target_high` and `target_low` are then the words by which its tunnel is found, `cursor` is where it begins,
 * and `next` its EtherType, or 0 for a frame.
 */
inline_always int look_inside(struct xdp_md *ctx, struct srv6_ctx *w)
{
	__u32 end = READ_ONCE(w->packet.end), *ip = bytes_at(ctx, IP_AT, TUNNEL_IPV4), *more, kind, remote, type, at = IP_AT + UDP_AT;
	__u64 key = 0;

	if (!ip || READ_ONCE(w->packet.ether_type) != ETH_P_IP || fragment4(ip[1]) & bpf_htons(0x3fff) || ip[0] >> 8 & ECN_CE_OR_ECT_1)
		return REASON_LOCAL;
	remote = bpf_ntohl(ip[3]);
	switch (protocol4(ip[2])) {
	case IPPROTO_IPIP:
		kind = TUNNEL_KIND_IP;
		type = ETH_P_IP;
		break;
	case IPPROTO_IPV6:
		kind = TUNNEL_KIND_IP;
		type = ETH_P_IPV6;
		break;
	case IPPROTO_GRE:
		kind = TUNNEL_KIND_GRE;
		more = bytes_at(ctx, IP_AT + TUNNEL_IPV4, TUNNEL_GRE);
		at += TUNNEL_GRE;
		if (!more || at > end)
			return REASON_LOCAL;
		type = bpf_ntohs(more[0] >> 16);
		if (type != ETH_P_IP && type != ETH_P_IPV6)
			return REASON_LOCAL;
		if ((more[0] & 0xffff) == GRE_HAS_KEY) {
			more = bytes_at(ctx, IP_AT + TUNNEL_IPV4, 2 * TUNNEL_GRE);
			at += TUNNEL_GRE;
			if (!more || at > end)
				return REASON_LOCAL;
			key = TUNNEL_KEYED | bpf_ntohl(more[1]);
		} else if (more[0] & 0xffff) {
			return REASON_LOCAL;
		}
		break;
	case IPPROTO_UDP:
		kind = TUNNEL_KIND_VXLAN;
		type = 0;
		more = bytes_at(ctx, IP_AT + UDP_AT, TUNNEL_VXLAN);
		if (!more || at + TUNNEL_VXLAN > end || bpf_ntohs((__u16)more[1]) != end - at || more[2] != VXLAN_HAS_VNI ||
		    more[3] & bpf_htonl(0xff))
			return REASON_LOCAL;
		remote = 0;
		key = (__u64)bpf_ntohs(more[0] >> 16) << 32 | bpf_ntohl(more[3]) >> 8;
		at = IP_AT + FRAME_AT;
		break;
	default:
		return REASON_LOCAL;
	}
	w->target_high = (__u64)kind << 32 | remote;
	w->target_low = key;
	w->cursor = at;
	w->next = type;
	return 0;
}

/* The third word of the tunnel that ends so, or all ones. */
static __noinline __u64 find_end(__u32 place, __u32 count, struct srv6_ctx *w)
{
	__u64 high, low;
	__u32 from = 0;

	if (!w)
		return ~0ULL;
	high = READ_ONCE(w->target_high);
	low = READ_ONCE(w->target_low);
	/* `from` is the first of `count` that it may be. */
	NO_UNROLL for (int i = 0; i < FIND_STEPS && count; i++) {
		__u32 half = count / 2, middle = place + (from + half) * TUNNEL_END;
		__u64 is_high = template_word(middle), is_low = template_word(middle + 1);

		if (is_high == high && is_low == low)
			return template_word(middle + 2);
		if (is_high < high || (is_high == high && is_low < low)) {
			from += half + 1;
			count -= half + 1;
		} else {
			count = half;
		}
	}
	return ~0ULL;
}

/* Whether the checksum of the UDP packet is right, or there is none. */
inline_always int is_sum_right(struct xdp_md *ctx, struct srv6_ctx *w)
{
	__u32 *udp = bytes_at(ctx, IP_AT + UDP_AT, 8);

	if (!udp)
		return 0;
	return !(udp[1] >> 16) || sum_udp(ctx, w, IP_AT, READ_ONCE(w->packet.end)) == 0xffff;
}

/* T6: `inside` becomes the tunnel's link. */
inline_always int find_tunnel(struct xdp_md *ctx, struct srv6_ctx *w, const struct segment *s)
{
	__u32 type = READ_ONCE(w->next);
	__u64 leads;

	if (!type && !is_sum_right(ctx, w))
		return REASON_LOCAL;
	leads = find_end(s->template, s->vlans, w);
	if (leads == ~0ULL)
		return REASON_LOCAL;
	if (type && !(leads >> 32 & (type == ETH_P_IPV6 ? TUNNEL_F_CARRIES6 : TUNNEL_F_CARRIES4)))
		return REASON_LOCAL;
	w->inside = leads;
	leads = INDEX((__u32)leads);
	if (leads < MAX_LINKS && ELEMENT(links, const struct link_entry, leads)->flags & LINK_NO_TUNNELS)
		return REASON_FIREWALL;
	return 0;
}

/* The link that the packet comes in by which was inside. */
inline_always const struct link_entry *link_inside(struct srv6_ctx *w)
{
	__u64 inside = INDEX(READ_ONCE(w->inside));

	return inside < MAX_LINKS ? ELEMENT(links, const struct link_entry, inside) : NULL;
}

/* P4 and P5 of the frame inside, which came in by `inside`: that becomes the link that it leads to, and `next` its packet's EtherType. */
static __noinline int open_frame(struct xdp_md *ctx, struct srv6_ctx *w)
{
	const struct link_entry *link;
	struct packet p = { .ctx = ctx };
	struct tags_seen tags;
	__u32 at, type;
	__u16 *words;
	__u64 index;
	int reason;

	if (!w)
		return REASON_LOCAL;
	at = READ_ONCE(w->cursor);
	index = INDEX(READ_ONCE(w->inside));
	if (index >= MAX_LINKS)
		return REASON_NOT_ENABLED;
	link = ELEMENT(links, const struct link_entry, index);
	p.data = (void *)(long)ctx->data + IP_AT + FRAME_AT;
	p.data_end = (void *)(long)ctx->data_end;
	words = bytes_at(ctx, IP_AT + FRAME_AT, ETH_HLEN);
	if (!words)
		return REASON_LOCAL;
	/* Its own frames come back where there is a circle (vxlan_set_mac). */
	if ((*(__u64 *)(words + 3) & MAC_BITS) == *(const __u64 *)link->mac)
		return REASON_LOCAL;
	reason = see_tags(&p, &tags);
	/* What is behind the packet is none of it. */
	if (at + ETH_HLEN + tags.count * TAG > READ_ONCE(w->packet.end))
		return REASON_TRUNCATED;
	if (reason)
		return reason;
	reason = find_way_in(&p, &tags, index, &w->inside, &link);
	if (reason)
		return reason;
	w->cursor = at + ETH_HLEN + tags.count * TAG;
	words = bytes_at(ctx, IP_AT + FRAME_AT, 8);
	if (!words)
		return REASON_TRUNCATED;
	/* Of the frame as it comes in there, T7 has counted it. */
	count(bpf_get_smp_processor_id() * counter_slots, REASON_COUNTERS + link->slot,
	      READ_ONCE(w->packet.end) - READ_ONCE(w->cursor) + ETH_HLEN);
	index = *(__u64 *)words & MAC_BITS;
	words = bytes_at(ctx, READ_ONCE(w->cursor) - 2, 2);
	if (!words)
		return REASON_TRUNCATED;
	type = bpf_ntohs(*words);
	if (type != ETH_P_IP && type != ETH_P_IPV6)
		return type == ETH_P_8021Q || type == ETH_P_8021AD ? REASON_VLAN : REASON_NOT_IP;
	if (*(const __u64 *)link->mac != index)
		return REASON_OTHER_MAC;
	w->next = type;
	return 0;
}

/* The same of a packet without a frame. */
inline_always int open_packet(struct srv6_ctx *w)
{
	const struct link_entry *link = link_inside(w);

	if (!link || !(link->flags & LINK_ENABLED))
		return REASON_NOT_ENABLED;
	count(bpf_get_smp_processor_id() * counter_slots, REASON_COUNTERS + link->slot,
	      READ_ONCE(w->packet.end) - READ_ONCE(w->cursor) + ETH_HLEN);
	return 0;
}

/* What lead_on() goes on with: once for both families, as it lies in `scratch`. */
inline_always int is_routed(struct flow_query *q, __u32 value, __u32 ttl)
{
	q->value = value;
	q->ttl = ttl;
	return 0;
}

/* A9 to A11, B7 and B9: what the route leads to. Behind a tunnel are no segments; what does not leave is the kernel's, but for raddle's own. */
inline_always int lead_on(struct xdp_md *ctx, struct scratch *here)
{
	__u32 value = READ_ONCE(here->query.value), ttl = READ_ONCE(here->query.ttl);
	__u64 group = READ_ONCE(here->srv6.packet.ether_type) == ETH_P_IPV6 ? group_word6(value) : group_word(value);

	if ((__u8)group == GROUP_SEGMENT)
		return REASON_LOCAL | (segment_never_punts(group >> 32) ? DROP : 0);
	if ((__u8)group != GROUP_SINGLE && !is_many(group))
		return group_reason(group);
	if (ttl <= 1)
		return REASON_TTL_EXCEEDED | no_punt_drop(group);
	if ((__u8)group == GROUP_SINGLE)
		return leave_by_tunnel(ctx, here, group >> 32);
	return to_choice(here, group, value);
}

/* A1 to A9, of the packet inside. */
inline_always int inside4(struct xdp_md *ctx, struct scratch *here)
{
	struct srv6_ctx *w = &here->srv6;
	__u32 at = READ_ONCE(w->packet.at), end = READ_ONCE(w->packet.end), cpu = bpf_get_smp_processor_id(), table, value;
	const struct link_entry *link = link_inside(w);
	struct header4 h;
	__u32 *ip;
	int reason;

	if (at + 20 > end)
		return REASON_TRUNCATED;
	ip = packet_at(ctx, at, 20);
	if (!link || !ip)
		return REASON_DEEP_HEADERS;
	load_header4(&h, ip);
	reason = check4(&h, end - at, link->flags, link->sources4, LOCAL_LOOK_UP);
	if (reason)
		return reason;
	end = at + total_length4(h.w0);
	w->packet.end = end;
	table = link->table4;
	if (link->flags & LINK_WAY_BACK && !has_way_back(link->back4, bpf_ntohl(h.src), link->way))
		return REASON_RP_FILTER;
	if (link->flags & LINK_GUARDED) {
		reason = guards4(ctx, link, &h, ip + 5, (void *)(long)ctx->data_end, end, cpu, &table, at - IP_AT);
		if (reason)
			return reason;
	}
	value = fib4_lookup(table, bpf_ntohl(h.dst));
	return is_routed(&here->query, value, ttl4(h.w2));
}

/* B1 to B7, likewise. */
inline_always int inside6(struct xdp_md *ctx, struct scratch *here)
{
	struct srv6_ctx *w = &here->srv6;
	__u32 at = READ_ONCE(w->packet.at), end = READ_ONCE(w->packet.end), cpu = bpf_get_smp_processor_id(), table, value;
	const struct link_entry *link = link_inside(w);
	__u32 *ip, w0, w1;
	struct addresses a;
	__u64 dh, dl;
	int reason;

	if (at + 40 > end)
		return REASON_TRUNCATED;
	ip = packet_at(ctx, at, 40);
	if (!link || !ip)
		return REASON_DEEP_HEADERS;
	w0 = ip[0];
	w1 = ip[1];
	reason = check_header6(w0, w1, end - at);
	if (reason)
		return reason;
	load_addresses(&a, ip + 2);
	dh = bpf_be64_to_cpu(a.dst_high);
	dl = bpf_be64_to_cpu(a.dst_low);
	reason = check_route6(link->flags, bpf_be64_to_cpu(a.src_high), bpf_be64_to_cpu(a.src_low), dh, dl);
	if (reason)
		return reason;
	end = at + 40 + payload6(w1);
	w->packet.end = end;
	table = link->table6;
	if (link->flags & LINK_GUARDED) {
		if (link->flags & LINK_TRACKED6 &&
		    is_tracked6(next_header6(w1), payload6(w1), ip + 10, (void *)(long)ctx->data_end))
			return REASON_FIREWALL;
		reason = guards6(ctx, link, &a, w0, next_header6(w1), end, cpu, &table, at - IP_AT);
		if (reason)
			return reason;
	}
	value = fib6_lookup(table, dh, dl);
	return is_routed(&here->query, value, hop_limit6(w1));
}

/* What comes to an address at which tunnels end. */
SEC("xdp.frags")
int untunnel(struct xdp_md *ctx)
{
	struct scratch *here = scratch_here();
	const struct segment *s;
	struct srv6_ctx *w;
	int verdict;

	if (!here)
		return XDP_PASS;
	w = &here->srv6;
	s = segment_of(w);
	verdict = s ? look_inside(ctx, w) : REASON_LOCAL;
	if (!verdict && s)
		verdict = find_tunnel(ctx, w, s);
	if (!verdict)
		verdict = READ_ONCE(w->next) ? open_packet(w) : open_frame(ctx, w);
	if (!verdict) {
		w->way = WAY_IN;
		w->packet.at = w->cursor;
		w->packet.ether_type = w->next;
		verdict = READ_ONCE(w->packet.ether_type) == ETH_P_IP ? inside4(ctx, here) : inside6(ctx, here);
		if (!verdict)
			verdict = lead_on(ctx, here);
	}
	return settle(ctx, here, verdict);
}

#endif
