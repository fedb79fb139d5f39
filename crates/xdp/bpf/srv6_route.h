/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Rule S7: the look-up of the packet that a segment leads to, the checks that any packet of its family
 * passes, and its way out.
 */
#ifndef RADDLE_SRV6_ROUTE_H
#define RADDLE_SRV6_ROUTE_H

#include "fib4.h"
#include "fib6.h"
#include "packet.h"
#include "select.h"
#include "srh.h"
#include "tags.h"

/* What a target is, where there is one; the flag says that it is End.DX4's. */
#define TARGET_V6 1
#define TARGET_V4 2

/* Counts the packet at all the segments on its way: `slot` is 0, or why it failed. */
inline_always void count_segments(struct srv6_ctx *w, __u32 cpu, __u32 slot)
{
	__u32 stripe = cpu * segment_stripe, done = READ_ONCE(w->done), place = slot - SEGMENT_FAILED;

	if (!counting)
		return;
	NO_UNROLL for (__u32 i = 0; i < MAX_SEGMENTS; i++) {
		__u64 number;

		if (i >= done)
			break;
		number = READ_ONCE(w->numbers[i]);
		if (number >= segments_len)
			continue;
		number = INDEX(number + stripe);
		if (number >= segment_counters_len)
			continue;
		if (!slot) {
			struct counter *c = ELEMENT(segment_counters, struct counter, number);

			c->packets += 1;
			c->bytes += w->bytes[i];
		} else if (place < SEGMENT_FAILURES) {
			ELEMENT(segment_failures, struct segment_failures, number)->values[place] += 1;
		}
	}
}

/*
 * Of a frame that begins `cut` bytes later now: cuts off what is behind `end`, and counts. The redirect is
 * claimed, so nothing may fail from here on.
 */
inline_always int trim(struct xdp_md *ctx, struct srv6_ctx *w, __u32 cut, __u32 end, __u32 number)
{
	__u32 cpu = bpf_get_smp_processor_id(), stripe = cpu * counter_slots;
	__u32 length = READ_ONCE(w->length) - cut, keep = end - cut;
	const struct link_entry *link = link_of(w);

	if (keep < FRAME_MIN)
		keep = FRAME_MIN;
	if (length > keep) {
		if (bpf_xdp_adjust_tail(ctx, (int)(keep - length)))
			return DROP | REASON_REDIRECT_FAILED;
		length = keep;
	}
	if (link)
		count(stripe, REASON_COUNTERS + link->slot, w->received);
	if (number != NO_COUNTERS)
		count(stripe, ADJACENCY_COUNTERS + number, length);
	count_segments(w, cpu, 0);
	return REASON_FORWARDED;
}

/* Whether this is for want of a neighbour. */
inline_always int is_unresolved(int reason)
{
	return reason_of(reason) == REASON_UNRESOLVED;
}

/*
 * Has the daemon ask for the neighbour that a packet lacks, if nobody else will: the kernel gets none of what is
 * raddle's own, and sends what was put into a tunnel by a way of its own. Whoever waits at the same place already is not driven out, so that a flood costs a load.
 */
inline_always void want_neighbour(struct scratch *here, __u32 group, __u64 high, __u64 low, __u32 kind)
{
	struct wanted *wanted = &here->wanted[(low ^ low >> 32 ^ low >> 8) & (WANTED - 1)];

	if ((!here->srv6.own && here->srv6.way != WAY_OUT) || READ_ONCE(wanted->group))
		return;
	wanted->high = high;
	wanted->low = low;
	wanted->kind = kind;
	asm volatile("" ::: "memory");
	READ_ONCE(wanted->group) = group;
}

/*
 * The same by another link than the adjacency's own, with tags in front of the packet or without. A function of its own, as few packets
 * leave so. All that may fail comes before the packet is changed.
 */
static __noinline int leave_tagged(struct xdp_md *ctx, struct srv6_ctx *w, const struct adjacency *adj, __u32 number, __u32 family)
{
	const struct link_entry *in;
	__u32 at, end, cut;
	__u64 word0;
	__u32 *ip;
	int reason;

	if (!w || !adj)
		return REASON_OUT_LINK;
	in = link_of(w);
	/* Once more: it may have changed since, and says how many tags there are. */
	word0 = *(volatile const __u64 *)adj;
	if ((word0 >> 32 & 0xff) != ADJ_TAGGED)
		return REASON_OUT_LINK;
	if (!in)
		return REASON_NOT_ENABLED;
	at = READ_ONCE(w->packet.at);
	end = READ_ONCE(w->packet.end);
	reason = claim_by(adj, word0, lower_link(ctx, adj, at, end, family), in, end - at, 0,
			  is_split_here(ctx, READ_ONCE(w->length)));
	if (reason)
		return reason;
	cut = at - IP_AT - tags_len(word0);
	if (bpf_xdp_adjust_head(ctx, (int)cut))
		return REASON_HEADROOM;
	ip = bytes_at(ctx, IP_AT + tags_len(word0), 20);
	if (!ip)
		return DROP | REASON_REDIRECT_FAILED;
	if (family == ETH_P_IPV6)
		ip[1] = less_hop_limit6(ip[1]);
	else
		ip[2] = less_ttl4(ip[2]);
	if (write_tags(ctx, adj, word0, bpf_htons(family)))
		return DROP | REASON_REDIRECT_FAILED;
	return trim(ctx, w, cut, end, number);
}

/*
 * The same for a packet that was put into a tunnel, or taken out of one: by whatever link. The first is this machine's own: it keeps its TTL, and
 * may leave by the link that it came in by.
 */
static __noinline int leave_by_tunnel(struct xdp_md *ctx, struct scratch *here, __u32 number)
{
	__u32 at, end, cut, way, family, out, tags;
	const struct link_entry *link = NULL;
	const struct adjacency *adj;
	__u64 word0, index = INDEX(number), inside;
	struct srv6_ctx *w;
	__u32 *ip;
	int reason;

	if (!here)
		return REASON_OUT_LINK;
	w = &here->srv6;
	way = READ_ONCE(w->way);
	family = READ_ONCE(w->packet.ether_type);
	at = READ_ONCE(w->packet.at);
	end = READ_ONCE(w->packet.end);
	if (index >= adjacencies_len)
		return REASON_UNRESOLVED;
	OPAQUE(index);
	adj = ELEMENT(adjacencies, const struct adjacency, index);
	word0 = *(volatile const __u64 *)adj;
	switch (word0 >> 32 & 0xff) {
	case ADJ_FORWARD:
		out = word0;
		break;
	case ADJ_TAGGED:
		out = lower_link(ctx, adj, at, end, family);
		break;
	case ADJ_SEGMENT:
		if (way == WAY_IN && segment_never_punts(word0))
			return DROP | REASON_LOCAL;
		/* fallthrough */
	case ADJ_TUNNEL:
		return way == WAY_OUT ? REASON_OUT_LINK : REASON_LOCAL;
	default:
		if (way == WAY_OUT && is_unresolved(adjacency_reason(word0)))
			want_neighbour(here, 1, 0, number, WANTED_ADJACENCY);
		return adjacency_reason(word0);
	}
	if (way == WAY_IN) {
		inside = INDEX(READ_ONCE(w->inside));
		if (inside >= MAX_LINKS)
			return REASON_NOT_ENABLED;
		link = ELEMENT(links, const struct link_entry, inside);
		if ((__u32)word0 == link->index)
			return REASON_SAME_LINK;
	}
	if (end - at > adj->mtu)
		return REASON_MTU;
	if (link && (family == ETH_P_IPV6 ? link->closed6 : link->closed4) >> (word0 >> 48 & 63) & 1)
		return closed_reason(link, word0);
	if (is_split_here(ctx, READ_ONCE(w->length)))
		return REASON_SEVERAL_BUFFERS;
	if (bpf_redirect_map(&out_links, out, XDP_PASS) != XDP_REDIRECT)
		return REASON_REDIRECT_FAILED;
	tags = tags_len(word0);
	cut = at - IP_AT - tags;
	if (cut && bpf_xdp_adjust_head(ctx, (int)cut))
		return REASON_HEADROOM;
	if (way == WAY_IN) {
		ip = bytes_at(ctx, IP_AT + tags_len(word0), 20);
		if (!ip)
			return DROP | REASON_REDIRECT_FAILED;
		if (family == ETH_P_IPV6)
			ip[1] = less_hop_limit6(ip[1]);
		else
			ip[2] = less_ttl4(ip[2]);
	}
	if (write_tags(ctx, adj, word0, bpf_htons(family)))
		return DROP | REASON_REDIRECT_FAILED;
	reason = trim(ctx, w, cut, end, number);
	if (way == WAY_OUT && reason == REASON_FORWARDED)
		count(bpf_get_smp_processor_id() * counter_slots, ADJACENCY_COUNTERS + READ_ONCE(w->tunnel),
		      READ_ONCE(w->tunnel_bytes));
	return reason;
}

/* A12 to A14, B9 and B10, for the packet at `at`. */
inline_always int leave(struct xdp_md *ctx, struct scratch *here, __u32 *ip, __u32 at, __u32 number,
			__u32 ttl, __u32 family)
{
	struct srv6_ctx *w = &here->srv6;
	const struct link_entry *in = link_of(w);
	__u32 end = READ_ONCE(w->packet.end), cut = at - IP_AT;
	const struct adjacency *adj;
	__u64 word0, index = INDEX(number);
	__u16 *frame;
	int reason;

	if (index >= adjacencies_len)
		return ttl <= 1 ? REASON_TTL_EXCEEDED : REASON_UNRESOLVED;
	/* See take_adjacency(). */
	OPAQUE(index);
	adj = ELEMENT(adjacencies, const struct adjacency, index);
	word0 = *(volatile const __u64 *)adj;
	if ((word0 >> 32 & 0xff) == ADJ_SEGMENT) {
		w->segment = (__u32)word0;
		return GO(NEXT_SEGMENT);
	}
	if (ttl <= 1)
		return REASON_TTL_EXCEEDED;
	if ((word0 >> 32 & 0xff) == ADJ_TAGGED)
		return leave_tagged(ctx, w, adj, number, family);
	if ((word0 >> 32 & 0xff) != ADJ_FORWARD) {
		if (is_unresolved(adjacency_reason(word0)))
			want_neighbour(here, 1, 0, number, WANTED_ADJACENCY);
		return adjacency_reason(word0);
	}
	if (!in)
		return REASON_NOT_ENABLED;
	reason = claim(adj, word0, in, end - at, 0, is_split_here(ctx, READ_ONCE(w->length)));
	if (reason)
		return reason;
	if (family == ETH_P_IPV6)
		ip[1] = less_hop_limit6(ip[1]);
	else
		ip[2] = less_ttl4(ip[2]);
	if (cut && bpf_xdp_adjust_head(ctx, (int)cut))
		return DROP | REASON_REDIRECT_FAILED;
	frame = bytes_at(ctx, 0, ETH_HLEN);
	if (!frame)
		return DROP | REASON_REDIRECT_FAILED;
	rewrite_macs(frame, adj);
	frame[6] = bpf_htons(family);
	return trim(ctx, w, cut, end, number);
}

/* What a group leads to when it is not one to choose from, with this TTL; 0 when it is. */
inline_always int group_verdict(struct srv6_ctx *w, __u64 group, __u32 ttl)
{
	if ((__u8)group == GROUP_SINGLE || is_many(group))
		return ttl <= 1 && (__u8)group > GROUP_THRESHOLD ? REASON_TTL_EXCEEDED | no_punt_drop(group) : 0;
	if ((__u8)group != GROUP_SEGMENT)
		return group_reason(group);
	w->segment = group >> 32;
	return GO(NEXT_SEGMENT);
}

/* Goes on in the program that chooses. */
inline_always int to_choice(struct scratch *here, __u64 group, __u32 value)
{
	here->query.group = group;
	here->query.value = value;
	return GO(NEXT_CHOICE);
}

/* B1 to B9, of the packet at `at`. */
inline_always int route6(struct xdp_md *ctx, struct scratch *here)
{
	struct srv6_ctx *w = &here->srv6;
	__u32 at = READ_ONCE(w->packet.at), end = READ_ONCE(w->packet.end), w1, value, table = w->table;
	const struct link_entry *link = link_of(w);
	__u64 dh, dl, group;
	struct addresses a;
	__u32 *ip;
	int reason;

	if (at + 40 > end)
		return REASON_TRUNCATED;
	ip = packet_at(ctx, at, 40);
	if (!link || !ip)
		return REASON_DEEP_HEADERS;
	w1 = ip[1];
	reason = check_header6(ip[0], w1, end - at);
	if (reason)
		return reason;
	load_addresses(&a, ip + 2);
	dh = bpf_be64_to_cpu(a.dst_high);
	dl = bpf_be64_to_cpu(a.dst_low);
	reason = check_route6(flags_behind(link->flags, table, 0), bpf_be64_to_cpu(a.src_high), bpf_be64_to_cpu(a.src_low),
			      dh, dl);
	if (reason)
		return reason;
	if (w->target_type) {
		dh = bpf_be64_to_cpu(w->target_high);
		dl = bpf_be64_to_cpu(w->target_low);
	}
	value = fib6_lookup(table == LINK_TABLE ? link->table6 : table, dh, dl);
	group = group_word6(value);
	reason = group_verdict(w, group, hop_limit6(w1));
	if (is_unresolved(reason))
		want_neighbour(here, value, dh, dl, WANTED_HOST6);
	if (reason)
		return reason;
	if ((__u8)group != GROUP_SINGLE)
		return to_choice(here, group, value);
	return leave(ctx, here, ip, at, group >> 32, hop_limit6(w1), ETH_P_IPV6);
}

/* A1 to A12, of the packet at `at`. */
inline_always int route4(struct xdp_md *ctx, struct scratch *here)
{
	struct srv6_ctx *w = &here->srv6;
	__u32 at = READ_ONCE(w->packet.at), end = READ_ONCE(w->packet.end), value;
	const struct link_entry *link = link_of(w);
	__u32 *ip, dst, table = w->table;
	struct header4 h;
	__u64 group;
	int reason;

	if (at + 20 > end)
		return REASON_TRUNCATED;
	ip = packet_at(ctx, at, 20);
	if (!link || !ip)
		return REASON_DEEP_HEADERS;
	load_header4(&h, ip);
	reason = check4(&h, end - at, flags_behind(link->flags, table, w->own), link->sources4, LOCAL_LOOK_UP);
	if (reason)
		return reason;
	dst = bpf_ntohl(h.dst);
	if (w->target_type == TARGET_V6) {
		value = fib6_lookup(table == LINK_TABLE ? link->table6 : table,
				    bpf_be64_to_cpu(w->target_high), bpf_be64_to_cpu(w->target_low));
	} else {
		if (w->target_type == TARGET_V4)
			dst = bpf_ntohl((__u32)w->target_high);
		value = fib4_lookup(table == LINK_TABLE ? link->table4 : table, dst);
	}
	group = group_word6(value);
	reason = group_verdict(w, group, ttl4(h.w2));
	if (is_unresolved(reason) && w->target_type != TARGET_V6)
		want_neighbour(here, value, 0, dst, WANTED_HOST4);
	if (reason)
		return reason;
	/* The kernel would ask for the inner destination there, and not for the nexthop. */
	if ((__u16)group == (GROUP_SINGLE | SINGLE_NEIGHBOUR << 8) &&
	    w->target_type == TARGET_V4 && !(w->flags & SEGMENT_DIRECT_NH4))
		return REASON_ENCAP;
	if ((__u8)group != GROUP_SINGLE)
		return to_choice(here, group, value);
	return leave(ctx, here, ip, at, group >> 32, ttl4(h.w2), ETH_P_IP);
}

/* The hash of a packet by the fast path, or a negative reason. `base` is its Ethernet header, or would be. */
inline_always __s64 hash_short(struct xdp_md *ctx, void *base, void *data_end, __u32 type, __u32 begin,
			       __u32 end)
{
	__u32 *ip = base + IP_AT;
	int reason;

	if (type == ETH_P_IPV6) {
		struct key6 key = {};

		if ((void *)(ip + 10) > data_end)
			return -REASON_DEEP_HEADERS;
		key.label = ip[0];
		key.proto = next_header6(ip[1]);
		load_addresses(&key.a, ip + 2);
		reason = key6(ctx, &key, config->policy6, base, data_end, end - begin, begin);
		return reason ? -reason : hash6(config, &key);
	} else {
		struct key4 key = {};

		if ((void *)(ip + 5) > data_end)
			return -REASON_DEEP_HEADERS;
		key.proto = protocol4(ip[2]);
		key.src = ip[3];
		key.dst = ip[4];
		reason = key4(&key, config->policy4, base, data_end, fragment4(ip[1]), end - begin);
		return reason ? -reason : hash4(config, &key);
	}
}

/* The member of a group for a packet by the fast path, or a negative reason. */
static __noinline __s64 choose_short(struct xdp_md *ctx, struct scratch *here)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct flow_query *q = &here->query;
	/* By one check, see packet_at(). */
	__u64 group = READ_ONCE(q->group), begin = INDEX(READ_ONCE(q->packet.at) - IP_AT);
	void *base;
	__s64 hash;

	if (!(config->flags & CONFIG_SEED_KNOWN))
		return -REASON_SEED_UNKNOWN;
	if (begin > FARTHEST)
		return -REASON_DEEP_HEADERS;
	base = data + begin;
	/*
	 * One pointer for all that is read: what is checked of one is not known of its copy ("R8 offset is outside of the
	 * packet").
	 */
	OPAQUE(base);
	hash = hash_short(ctx, base, data_end, READ_ONCE(q->packet.ether_type), begin, READ_ONCE(q->packet.end));
	if (hash < 0)
		return hash;
	if (READ_ONCE(q->outer))
		hash = spread(hash, q->salt) >> 1;
	return choose(group >> 32, (__u16)(group >> 16), FORGET(q->hash, hash));
}

/* B9 or A11 of a packet that route4() or route6() has checked, and on. */
inline_always int choose_and_leave(struct xdp_md *ctx, struct scratch *here)
{
	struct srv6_ctx *w = &here->srv6;
	struct flow_query *q = &here->query;
	__u32 at = READ_ONCE(w->packet.at), policy;
	__u32 *ip = packet_at(ctx, at, 20);
	__u64 group;
	__s64 chosen;

	if (!ip)
		return REASON_DEEP_HEADERS | no_punt_drop(READ_ONCE(q->group));
	q->ttl = READ_ONCE(w->packet.ether_type) == ETH_P_IPV6 ? hop_limit6(ip[1]) : ttl4(ip[2]);
	/* That of a packet of this machine's own is not asked about. */
	if (READ_ONCE(w->way) == WAY_OUT)
		q->ttl = 255;
	if (READ_ONCE(w->flow.ether_type) && READ_ONCE(q->ttl) > 1) {
		q->packet.at = w->flow.at;
		q->packet.end = w->flow.end;
		q->packet.ether_type = w->flow.ether_type;
		q->outer = 1;
		q->salt = w->salt;
	} else {
		q->packet = w->packet;
		q->outer = 0;
	}
	policy = READ_ONCE(q->packet.ether_type) == ETH_P_IP ? config->policy4 : config->policy6;
	group = READ_ONCE(q->group);
	if ((__u8)group == GROUP_THRESHOLD && policy <= 1 && (READ_ONCE(q->outer) || !(group & 0xff00 & ~GROUP_NO_PUNT)))
		chosen = choose_short(ctx, here);
	else
		chosen = choose_any(ctx, here);
	w->verdict = chosen;
	if (chosen >= 0 && READ_ONCE(w->way))
		return leave_by_tunnel(ctx, here, READ_ONCE(w->verdict));
	/* The kernel sees to what this machine sends, as always. */
	if (READ_ONCE(w->way) == WAY_OUT)
		return -chosen;
	if (chosen < 0)
		return (READ_ONCE(q->ttl) <= 1 ? REASON_TTL_EXCEEDED : -chosen) | no_punt_drop(READ_ONCE(q->group));
	at = READ_ONCE(w->packet.at);
	ip = packet_at(ctx, at, 20);
	if (!ip)
		return REASON_DEEP_HEADERS;
	return leave(ctx, here, ip, at, READ_ONCE(w->verdict), READ_ONCE(q->ttl), READ_ONCE(w->packet.ether_type));
}

#endif
