// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The XDP engine: forwards what it can model exactly and punts everything else, untouched. The rules (P, A
 * and B) are those of the userspace engine, in the same order; the two are tested against each other.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "check.h"
#include "fib4.h"
#include "fib6.h"
#include "groups.h"
#include "guard.h"
#include "image.h"
#include "maps.h"
#include "packet.h"
#include "parse.h"
#include "rx_hash.h"
#include "segment.h"
#include "select.h"
#include "tags.h"
#include "upon.h"
#include "verdict.h"
#include "way_back.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* A9 and B7 */
inline_always int not_for_forwarding(struct packet *p, __u64 group)
{
	if ((__u8)group != GROUP_SEGMENT)
		return group_reason(group);
	p->segment = group >> 32;
	return GO(NEXT_SRV6);
}

inline_always int forward4(struct packet *p, __u32 cpu)
{
	__u32 *ip = p->data + IP_AT, packet_len, packet_end, number, value, table;
	const struct adjacency *adj;
	struct header4 h;
	__u64 group;
	int reason;

	if ((void *)(ip + 5) > p->data_end)
		return REASON_TRUNCATED;
	load_header4(&h, ip);
	packet_len = total_length4(h.w0);
	packet_end = packet_len + IP_AT;
	p->len = frame_len(p->ctx, p->len, packet_end);
	reason = check4(&h, p->len - IP_AT, p->link->flags, p->link->sources4, LOCAL_LOOK_UP);
	if (reason)
		return reason;
	table = p->link->table4;
	if (p->link->flags & (LINK_WAY_BACK | LINK_GUARDED)) {
		if (p->link->flags & LINK_WAY_BACK && !has_way_back(p->link->back4, bpf_ntohl(h.src), p->link->way))
			return REASON_RP_FILTER;
		if (p->link->flags & LINK_GUARDED) {
			reason = guards4(p->ctx, p->link, &h, ip + 5, p->data_end, packet_end, cpu, &table, 0);
			if (reason)
				return reason;
		}
	}

	/* A8 to A11 */
	value = fib4_lookup(table, bpf_ntohl(h.dst));
	group = group_word(value);
	if ((__u8)group != GROUP_SINGLE && !is_many(group))
		return not_for_forwarding(p, group);
	if (ttl4(h.w2) <= 1)
		return go_slow(p, group, value, packet_end);
	number = group >> 32;
	if ((__u8)group != GROUP_SINGLE) {
		struct key4 key = {
			.proto = protocol4(h.w2),
			.src = h.src,
			.dst = h.dst,
		};
		__u32 hash;

		if (!is_fast(group, p->config->policy4))
			return go_slow(p, group, value, packet_end);
		if (brings_hash(p->ctx, p->config->policy4, &hash)) {
			number = choose(number, (__u16)(group >> 16), hash);
			goto chosen;
		}
		if (!(p->config->flags & CONFIG_SEED_KNOWN))
			return REASON_SEED_UNKNOWN | no_punt_drop(group);
		reason = key4(&key, p->config->policy4, p->data, p->data_end, fragment4(h.w1), packet_end);
		if (reason)
			return reason | no_punt_drop(group);
		number = choose(number, (__u16)(group >> 16), hash4(p->config, &key));
	}

chosen:
	/* A12 to A14 */
	reason = take_adjacency(p, number, packet_len, p->link->closed4, &adj);
	if (reason)
		return reason;
	rewrite_macs(p->data, adj);
	ip[2] = less_ttl4(h.w2);
	return finish(p, number, packet_end);
}

inline_always int forward6(struct packet *p, __u32 cpu)
{
	__u32 *ip = p->data + IP_AT, w0, w1, packet_len, packet_end, number, value, table;
	const struct adjacency *adj;
	struct key6 key = {};
	__u64 dh, dl, group;
	int reason;

	if ((void *)(ip + 10) > p->data_end)
		return REASON_TRUNCATED;
	w0 = ip[0];
	w1 = ip[1];
	packet_len = 40 + payload6(w1);
	packet_end = packet_len + IP_AT;
	p->len = frame_len(p->ctx, p->len, packet_end);
	reason = check_header6(w0, w1, p->len - IP_AT);
	if (reason)
		return reason;
	key.label = w0;
	key.proto = next_header6(w1);
	load_addresses(&key.a, ip + 2);
	dh = bpf_be64_to_cpu(key.a.dst_high);
	dl = bpf_be64_to_cpu(key.a.dst_low);
	reason = check_route6(p->link->flags, bpf_be64_to_cpu(key.a.src_high), bpf_be64_to_cpu(key.a.src_low), dh, dl);
	if (reason)
		return reason;

	table = p->link->table6;
	if (p->link->flags & LINK_GUARDED) {
		if (p->link->flags & LINK_TRACKED6 && is_tracked6(key.proto, payload6(w1), ip + 10, p->data_end))
			return REASON_FIREWALL;
		reason = guards6(p->ctx, p->link, &key.a, w0, key.proto, packet_end, cpu, &table, 0);
		if (reason)
			return reason;
	}

	/* B6 to B9 */
	value = fib6_lookup(table, dh, dl);
	if (value >= SEGMENT_VALUE) {
		p->segment = value - SEGMENT_VALUE;
		return GO(NEXT_SRV6);
	}
	group = group_word(value);
	if ((__u8)group != GROUP_SINGLE && !is_many(group))
		return not_for_forwarding(p, group);
	if (hop_limit6(w1) <= 1)
		return go_slow(p, group, value, packet_end);
	number = group >> 32;
	if ((__u8)group != GROUP_SINGLE) {
		__u32 hash;

		if (!is_fast(group, p->config->policy6))
			return go_slow(p, group, value, packet_end);
		if (brings_hash(p->ctx, p->config->policy6, &hash)) {
			number = choose(number, (__u16)(group >> 16), hash);
			goto chosen;
		}
		if (!(p->config->flags & CONFIG_SEED_KNOWN))
			return REASON_SEED_UNKNOWN | no_punt_drop(group);
		reason = key6(p->ctx, &key, p->config->policy6, p->data, p->data_end, packet_end, 0);
		if (reason)
			return reason | no_punt_drop(group);
		number = choose(number, (__u16)(group >> 16), hash6(p->config, &key));
	}
chosen:
	reason = take_adjacency(p, number, packet_len, p->link->closed6, &adj);
	if (reason)
		return reason;

	/* B10 */
	rewrite_macs(p->data, adj);
	ip[1] = less_hop_limit6(w1);
	return finish(p, number, packet_end);
}

/*
 * A10 to A14 and B8 to B10 for what the fast path does not know: groups and policies, and packets at
 * the end of their TTL, which only segments take. One function for both families: the verifier goes
 * through it once.
 */
inline_always int forward_slow(struct packet *p, __u32 cpu)
{
	__u32 *ip = p->data + IP_AT;
	const struct adjacency *adj;
	struct scratch *here;
	struct flow_query *q;
	__s64 chosen;
	__u64 group, index;
	int reason;

	if ((void *)(ip + 5) > p->data_end)
		return REASON_TRUNCATED;
	index = INDEX(cpu);
	if (index >= cpus)
		return REASON_HASH_POLICY | no_punt_drop(p->group);
	here = ELEMENT(scratch, struct scratch, index);
	q = &here->query;
	/* Read back below: see FORGET. */
	q->group = p->group;
	q->value = p->value;
	q->packet.end = p->packet_end;
	q->packet.at = IP_AT;
	q->outer = 0;
	q->packet.ether_type = bpf_ntohs(((__u16 *)p->data)[6]);
	q->ttl = READ_ONCE(q->packet.ether_type) == ETH_P_IPV6 ? hop_limit6(ip[1]) : ttl4(ip[2]);
	group = READ_ONCE(q->group);
	/* Not even a turn is taken for such a packet. */
	if (READ_ONCE(q->ttl) <= 1 && (__u8)group > GROUP_THRESHOLD)
		return REASON_TTL_EXCEEDED | no_punt_drop(group);
	chosen = (__u8)group == GROUP_SINGLE ? group >> 32 : choose_any(p->ctx, here);
	if (READ_ONCE(q->ttl) <= 1 && (chosen < 0 || (adjacency_word(chosen) >> 32 & 0xff) != ADJ_SEGMENT))
		return REASON_TTL_EXCEEDED | no_punt_drop(READ_ONCE(q->group));
	if (chosen < 0)
		return -chosen | no_punt_drop(READ_ONCE(q->group));
	reason = take_adjacency(p, chosen, READ_ONCE(q->packet.end) - IP_AT,
				READ_ONCE(q->packet.ether_type) == ETH_P_IPV6 ? p->link->closed6 : p->link->closed4, &adj);
	if (reason)
		return reason;
	if (READ_ONCE(q->packet.ether_type) == ETH_P_IPV6)
		ip[1] = less_hop_limit6(ip[1]);
	else
		ip[2] = less_ttl4(ip[2]);
	rewrite_macs(p->data, adj);
	return finish(p, chosen, READ_ONCE(q->packet.end));
}

/* P5, which macvlans may go on with. */
inline_always int other_mac(const struct packet *p)
{
	return p->link->flags & LINK_MACVLANS ? GO_OR(NEXT_UPON, REASON_OTHER_MAC) : REASON_OTHER_MAC;
}

/* Of a link with these flags that is not enabled: whether a frame of this EtherType may come in by a link upon it. */
inline_always int may_be_upon(__u32 flags, __be16 proto)
{
	return flags & (LINK_PORT | LINK_MACVLANS) || (flags & LINK_VLANS && is_tag(proto));
}

/* P4 and P5, and the way to the family. */
inline_always int by_family(struct packet *p, __u32 cpu, __be16 proto, __u64 dst_mac)
{
	if (proto == bpf_htons(ETH_P_IP)) {
		if (dst_mac != *(const __u64 *)p->link->mac)
			return other_mac(p);
		return forward4(p, cpu);
	}
	if (proto == bpf_htons(ETH_P_IPV6)) {
		if (dst_mac != *(const __u64 *)p->link->mac)
			return other_mac(p);
		return forward6(p, cpu);
	}
	if (is_tag(proto))
		return p->link->flags & LINK_VLANS ? GO_OR(NEXT_UPON, REASON_VLAN) : REASON_VLAN;
	return REASON_NOT_IP;
}

/* P1 to P5, and the way to the family. */
inline_always int decide(struct packet *p, __u32 cpu)
{
	const struct link_entry *link;
	__u32 flags = 0;
	__u64 ingress;
	__u16 *words = p->data;

	/* What is held is counted by link, too. */
	ingress = INDEX(p->ctx->ingress_ifindex);
	if (ingress < MAX_LINKS) {
		link = ELEMENT(links, const struct link_entry, ingress);
		flags = link->flags;
		if (flags & LINK_ENABLED)
			p->link = link;
	}
	p->config = config;
	if (p->config->magic != IMAGE_MAGIC ||
	    (*(volatile const __u32 *)&p->config->flags & CONFIG_HOLD) || expired(p->config, cpu))
		return REASON_HELD;
	if ((void *)(words + ETH_HLEN / 2) > p->data_end)
		return p->link ? REASON_TRUNCATED : REASON_NOT_ENABLED;
	if (!p->link)
		return may_be_upon(flags, words[6]) ? GO_OR(NEXT_UPON, REASON_NOT_ENABLED) : REASON_NOT_ENABLED;
	return by_family(p, cpu, words[6], *(__u64 *)words & 0xffffffffffffULL);
}

/* What comes to a segment, from a link of which some of that is the kernel's: a firewall's; or IPv4, see is_kept() of the engine. */
inline_always int kept_from_segment(const struct packet *p)
{
	const __u16 *words = p->data;

	if (p->link->flags & (LINK_NO_SEGMENTS | LINK_NO_TUNNELS) && p->link->flags & segment_closed_by(p->segment))
		return REASON_FIREWALL | (segment_never_punts(p->segment) ? DROP : 0);
	if (!(p->link->flags & LINK_FILTERED_APART) || (void *)(words + ETH_HLEN / 2) > p->data_end ||
	    words[6] != bpf_htons(ETH_P_IP) || segment_never_punts(p->segment))
		return GO(NEXT_SRV6);
	return REASON_RP_FILTER;
}

/* What the first steps do not decide, but for segments. */
inline_always int decide_further(struct packet *p, __u32 cpu, int verdict)
{
	if (verdict == GO(NEXT_SLOW))
		verdict = forward_slow(p, cpu);
	if (verdict == GO_OR(NEXT_PUSH, REASON_OUT_LINK))
		verdict = push(p, cpu);
	if (verdict == GO(NEXT_SRV6) && p->link &&
	    p->link->flags & (LINK_NO_SEGMENTS | LINK_NO_TUNNELS | LINK_FILTERED_APART))
		verdict = kept_from_segment(p);
	return verdict;
}

/* Counts what is not forwarded. */
inline_always int leave_alone(struct packet *p, int verdict)
{
	p->len = bpf_xdp_get_buff_len(p->ctx);
	if (p->link)
		count_link(p->stripe, p->link, verdict, p->len);
	count(p->stripe, verdict_slot(verdict), p->len);
	return verdict & DROP ? XDP_DROP : XDP_PASS;
}

SEC("xdp.frags")
int raddle(struct xdp_md *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct packet p = {
		.ctx = ctx,
		.data = (void *)(long)ctx->data,
		.data_end = (void *)(long)ctx->data_end,
		.stripe = cpu * counter_slots,
	};
	int verdict;

	p.len = p.data_end - p.data;
	verdict = decide_further(&p, cpu, decide(&p, cpu));
	if (verdict == GO(NEXT_SRV6))
		verdict = meet_segment(&p, cpu);
	/* Where the program for segments is not there. */
	if (verdict == GO(NEXT_SRV6) && segment_never_punts(p.segment))
		verdict |= DROP;
	if (verdict == REASON_FORWARDED)
		return XDP_REDIRECT;
#ifdef SEGMENTS
	if (next_of(verdict) == NEXT_UPON)
		bpf_tail_call(ctx, &programs, PROGRAM_TAGS);
	if (next_of(verdict) == NEXT_TUNNEL)
		meet_tunnel(&p, cpu);
#endif
	return leave_alone(&p, verdict);
}

#ifdef SEGMENTS
#include "srv6.h"
#include "tunnel.h"
#include "untunnel.h"

/*
 * Frames of links that have others upon them: tagged ones, those of ports of bridges, those to macvlans. Without their tags they
 * come in by the link upon it. The main program has looked whether the image is good. A program of its own, so that others do not pay
 * for it.
 */
SEC("xdp.frags")
int tagged(struct xdp_md *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct scratch *here = scratch_here();
	struct packet p = {
		.ctx = ctx,
		.data = (void *)(long)ctx->data,
		.data_end = (void *)(long)ctx->data_end,
		.stripe = cpu * counter_slots,
		.config = config,
	};
	__u16 *words;
	int verdict;

	if (!here)
		return XDP_PASS;
	here->tags.count = 0;
	verdict = come_in(&p, here);
	if (verdict)
		return leave_alone(&p, verdict);
	words = p.data;
	if ((void *)(words + ETH_HLEN / 2) > p.data_end)
		verdict = REASON_TRUNCATED;
	else
		verdict = by_family(&p, cpu, words[6], *(__u64 *)words & 0xffffffffffffULL);
	verdict = decide_further(&p, cpu, verdict);
	if (verdict == GO(NEXT_SRV6)) {
		to_segment(&p, here);
		if (segment_never_punts(p.segment))
			verdict |= DROP;
	}
	if (next_of(verdict) == NEXT_TUNNEL)
		to_tunnel(&p, here);
	if (verdict == REASON_FORWARDED)
		return XDP_REDIRECT;
	verdict = leave_alone(&p, verdict);
	return verdict == XDP_PASS ? put_tags_back(ctx, here, XDP_PASS) : verdict;
}
#endif
