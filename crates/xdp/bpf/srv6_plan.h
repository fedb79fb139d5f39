/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * What is planned for a packet that takes the fast path through a segment (srv6_fast.h): the way that the look-up
 * behind the segment gives it, and how it leaves.
 */
#ifndef RADDLE_SRV6_PLAN_H
#define RADDLE_SRV6_PLAN_H

#include "maps.h"
#include "srv6_route.h"
#include "packet.h"
#include "srh.h"

/* Not a verdict, but what makes the program for segments go on. */
#define NOT_FAST GO(NEXT_SRV6)

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

/* Words of the longest template that the fast path writes: four segments. */
#define FAST_TEMPLATE_WORDS 14

/* What is planned for a packet. */
struct srv6_fast_ctx {
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

/*
 * The member of a group by the fast path, or a negative reason, for a packet of which the headers are not
 * written yet: IPv6's stands in `innermost`. Transport headers are `at` and what an IP header takes further.
 */
static __noinline __s64 fast_choice(struct xdp_md *ctx, struct scratch *here)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end, *base;
	struct flow_query *q = &here->query;
	struct seen *s = &here->innermost;
	/* By one check, see packet_at(). */
	__u64 group = READ_ONCE(q->group), begin = INDEX(READ_ONCE(q->packet.at) - IP_AT);
	__u32 end = READ_ONCE(q->packet.end);
	__s64 hash;

	if (begin > FARTHEST)
		return -REASON_DEEP_HEADERS;
	base = data + begin;
	if (READ_ONCE(q->packet.ether_type) == ETH_P_IPV6) {
		struct key6 key = {
			.label = READ_ONCE(s->label),
			.proto = READ_ONCE(s->proto) & 0xff,
		};
		int reason;

		load_addresses(&key.a, s->addresses);
		reason = key6(ctx, &key, config->policy6, base, data_end, end - begin, begin);
		hash = reason ? -reason : hash6(config, &key);
	} else {
		hash = hash_short(ctx, base, data_end, ETH_P_IP, begin, end);
	}
	if (hash < 0)
		return hash;
	if (READ_ONCE(q->outer))
		hash = spread(hash, q->salt) >> 1;
	return choose(group >> 32, (__u16)(group >> 16), FORGET(q->hash, hash));
}

/* The adjacency that a group gives, or a negative number where the fast path does not know. */
inline_always __s64 fast_member(struct xdp_md *ctx, struct scratch *here, struct srv6_fast_ctx *c, __u64 group)
{
	struct flow_query *q = &here->query;
	struct seen *s = &here->innermost;
	__u32 outer = c->kind == SEGMENT_ENCAPS, type = c->ether_type, at = IP_AT + c->cut;
	struct addresses *to = (void *)s->addresses;
	__u64 *ip;

	if ((__u8)group == GROUP_SINGLE)
		return group >> 32;
	if ((__u8)group != GROUP_THRESHOLD || !(config->flags & CONFIG_SEED_KNOWN))
		return -1;
	*to = c->a;
	s->label = (__u32)c->head;
	s->proto = c->head >> HEAD_NEXT & 0xff;
	if (outer) {
		ip = bytes_at(ctx, 0, IP_AT + 20);
		if (!ip)
			return -1;
		type = bpf_ntohs(((__u16 *)ip)[6]);
		at = IP_AT;
		if (type == ETH_P_IPV6) {
			ip = bytes_at(ctx, IP_AT, 40);
			if (!ip)
				return -1;
			load_addresses(to, ip + 1);
			s->label = (__u32)ip[0];
			s->proto = ip[0] >> HEAD_NEXT & 0xff;
		}
	}
	if ((type == ETH_P_IP ? config->policy4 : config->policy6) > 1 || (!outer && group & 0xff00 & ~GROUP_NO_PUNT))
		return -1;
	q->group = group;
	q->packet.ether_type = type;
	q->packet.at = at;
	q->packet.end = c->end;
	q->outer = outer;
	if (outer)
		q->salt = salt_of(READ_ONCE(here->srv6.segment));
	return fast_choice(ctx, here);
}

/* B4 to B7 of the packet as it will be: the adjacency's number, or a negative number. */
inline_always __s64 fast_route6(struct packet *p, struct scratch *here, struct srv6_fast_ctx *c, __u32 segment)
{
	const struct link_entry *link = p->link;
	__u32 table = c->s->table6;
	__u64 sh = bpf_be64_to_cpu(c->a.src_high), sl = bpf_be64_to_cpu(c->a.src_low);
	__u64 dh = bpf_be64_to_cpu(c->a.dst_high), dl = bpf_be64_to_cpu(c->a.dst_low);
	__u64 group;

	if (check_route6(flags_behind(link->flags, table, 0), sh, sl, dh, dl))
		return -1;
	if (c->kind == SEGMENT_END_X || c->kind == SEGMENT_END_DX6) {
		const struct segment_target *target = target_of(segment);

		if (!target)
			return -1;
		if (target->high | target->low) {
			dh = bpf_be64_to_cpu(target->high);
			dl = bpf_be64_to_cpu(target->low);
		}
	}
	group = group_word6(fib6_lookup(table == LINK_TABLE ? link->table6 : table, dh, dl));
	return fast_member(p->ctx, here, c, group);
}

/* A1 to A9 of the packet inside: as above. */
inline_always __s64 fast_route4(struct packet *p, struct scratch *here, struct srv6_fast_ctx *c, __u32 segment,
			       __u32 at)
{
	const struct link_entry *link = p->link;
	__u32 *ip = bytes_at(p->ctx, at, 20), table = c->s->table4, target = 0, dst;
	struct header4 h;
	__u64 group;

	if (!ip)
		return -1;
	load_header4(&h, ip);
	c->head = h.w2;
	if (check4(&h, c->end - at, flags_behind(link->flags, table, c->word >> 24 & SEGMENT_NO_PUNT), link->sources4, LOCAL_REFUSE))
		return -1;
	dst = bpf_ntohl(h.dst);
	if ((c->word & 0xff) == SEGMENT_END_DX4) {
		const struct segment_target *found = target_of(segment);

		if (!found)
			return -1;
		target = found->high;
	}
	if (target)
		dst = bpf_ntohl(target);
	group = group_word(fib4_lookup(table == LINK_TABLE ? link->table4 : table, dst));
	if ((__u16)group == (GROUP_SINGLE | SINGLE_NEIGHBOUR << 8) && target &&
	    !(c->word >> 24 & SEGMENT_DIRECT_NH4))
		return -1;
	c->cut = at - IP_AT;
	c->ether_type = ETH_P_IP;
	return fast_member(p->ctx, here, c, group);
}

/* What stands behind the outer header, in the frame that has grown. */
inline_always int write_outer(struct xdp_md *ctx, struct srv6_fast_ctx *c)
{
	__u32 size = c->word >> 48;
	__u64 place = INDEX(c->s->template), *to;
	const __u64 *template;

	if (size == 40)
		return 0;
	to = bytes_at(ctx, IP_AT, 64);
	/*
	 * Linux 6.12 refuses a check of the sum ("R6 unbounded memory access, make sure to bounds check any such access"):
	 * that bounds the sum, and nothing else.
	 */
	if (!to || templates_len < FAST_TEMPLATE_WORDS || place > templates_len - FAST_TEMPLATE_WORDS)
		return DROP | REASON_REDIRECT_FAILED;
	template = ELEMENT(templates, const __u64, place);
	to[5] = c->srh;
	to[6] = template[6];
	to[7] = template[7];
	for (int i = 8; i < FAST_TEMPLATE_WORDS; i += 2) {
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

/* S10 of what is forwarded: cuts off what is behind the packet, and counts. */
inline_always int fast_finish(struct packet *p, struct srv6_fast_ctx *c, __u32 cpu, __u32 segment,
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
		__u64 number = INDEX(cpu * segment_stripe + segment);

		if (number < segment_counters_len) {
			struct counter *counts = ELEMENT(segment_counters, struct counter, number);

			counts->packets += 1;
			counts->bytes += c->end - IP_AT;
		}
	}
	return REASON_FORWARDED;
}

/* A11 to A14 and B8 to B10. */
inline_always int fast_leave(struct packet *p, struct srv6_fast_ctx *c, __u32 cpu, __u32 segment, __u32 number)
{
	__u32 ttl = c->ether_type == ETH_P_IP ? ttl4(c->head) : c->head >> HEAD_HOP_LIMIT;
	const struct adjacency *adj;
	__u64 word0, *ip, index;
	__u8 *frame;

	if (ttl <= 1)
		return NOT_FAST;
	index = INDEX(number);
	if (index >= adjacencies_len)
		return NOT_FAST;
	/* See take_adjacency(). */
	OPAQUE(index);
	adj = ELEMENT(adjacencies, const struct adjacency, index);
	word0 = *(volatile const __u64 *)adj;
	if ((word0 >> 32 & 0xff) != ADJ_FORWARD || claim(adj, word0, p->link, c->end - IP_AT - c->cut, 0, is_split_here(p->ctx, c->received)))
		return NOT_FAST;
	/* It says no before it changes anything. */
	if (c->cut && bpf_xdp_adjust_head(p->ctx, c->cut))
		return NOT_FAST;
	frame = bytes_at(p->ctx, 0, IP_AT + 20);
	if (!frame)
		return DROP | REASON_REDIRECT_FAILED;
	rewrite_macs(frame, adj);
	*(__u16 *)(frame + 12) = bpf_htons(c->ether_type);
	if (c->ether_type == ETH_P_IP) {
		*(__u32 *)(frame + IP_AT + 8) = less_ttl4(c->head);
		return fast_finish(p, c, cpu, segment, number);
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
	return fast_finish(p, c, cpu, segment, number);
}

#endif
