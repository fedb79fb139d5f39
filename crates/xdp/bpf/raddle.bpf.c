// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The XDP engine: forwards what it can model exactly and hands everything else to the kernel
 * untouched. The rules (P, A and B) are those of the userspace engine, in the same order; the two
 * are tested against each other.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "fib4.h"
#include "fib6.h"
#include "groups.h"
#include "image.h"
#include "maps.h"
#include "parse.h"
#include "rx_hash.h"
#include "select.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Added to a reason when the packet is dropped instead of handed over. */
#define DROP 0x100

/* Up to this length a frame is taken to be in one buffer, see frame_len(). */
#define ONE_BUFFER 1024

/* One packet on its way. */
struct packet {
	struct xdp_md *ctx;
	void *data, *data_end;
	const struct config *config;
	const struct link_entry *link;
	__u32 ingress;
	__u32 stripe;	/* first counter of this CPU */
	__u32 len;	/* of the whole frame */
	/* For the long way. */
	__u64 group;
	__u32 value, packet_end;
};

/* Not a verdict: forward_long() goes on. */
#define THE_LONG_WAY 0x200

/*
 * Length of the frame in all its buffers, given the bytes at hand and how far its IP packet goes.
 *
 * Asking the kernel costs a call, so short frames whose packet is all at hand are not asked for:
 * no driver fills a first buffer that little and goes on in a second one, unless it splits headers
 * from data, and then what follows could only be padding.
 */
inline_always __u32 frame_len(struct xdp_md *ctx, __u32 linear, __u32 packet_end)
{
	if (linear > ONE_BUFFER || packet_end > linear)
		return bpf_xdp_get_buff_len(ctx);
	return linear;
}

/*
 * Whether the image is too old. The clock is asked once a jiffy (and whenever the deadline
 * moves), because a call costs as much as the rest of this check's surroundings together.
 */
inline_always int expired(const struct config *config, __u32 cpu)
{
	__u64 deadline = *(volatile const __u64 *)&config->deadline;
	struct clock_entry *clock;
	__u64 now;

	if (!deadline)
		return 0;
	now = bpf_jiffies64();
	if (cpu >= cpus)
		return 1;
	clock = &ELEMENT(scratch, struct scratch, cpu)->clock;
	if (clock->jiffies != now || clock->deadline != deadline) {
		clock->jiffies = now;
		clock->deadline = deadline;
		clock->expired = bpf_ktime_get_coarse_ns() > deadline;
	}
	return clock->expired;
}

/* Whether a group is of several members. */
inline_always int is_many(__u64 group)
{
	return (__u8)((__u8)group - GROUP_THRESHOLD) <= GROUP_FLOWLET - GROUP_THRESHOLD;
}

/* Whether the short way knows it: hash-threshold by the namespace's policy, and that 0 or 1. */
inline_always int is_short(__u64 group, __u32 policy)
{
	return (__u16)group == GROUP_THRESHOLD && policy <= 1;
}

/* A9 and B7: what a group that is not for forwarding says. */
inline_always int group_reason(__u64 group)
{
	__u32 reason = group >> 8 & 0xff;

	if ((__u8)group == GROUP_SEGMENT)
		return REASON_ENCAP;
	if (reason >= REASON_COUNT)
		reason = REASON_NO_ROUTE;
	return reason == REASON_BLACKHOLE ? DROP | REASON_BLACKHOLE : reason;
}

inline_always __u64 group_word(__u32 value)
{
	return READ(groups, __u64, groups_len, value, GROUP_KERNEL | REASON_NO_ROUTE << 8);
}

/*
 * A12: 0 and the adjacency, or why the packet may not go there. Ends by claiming the redirect:
 * that can still fail while the packet is as it came, and changes nothing if it does.
 */
inline_always int take_adjacency(struct packet *p, __u32 number, __u32 packet_len,
				 const struct adjacency **taken)
{
	const struct adjacency *adj;
	__u64 word0;
	__u32 out;

	if (number >= adjacencies_len)
		return REASON_UNRESOLVED;
	adj = ELEMENT(adjacencies, const struct adjacency, number);
	word0 = *(volatile const __u64 *)adj;
	if ((word0 >> 32 & 0xff) != ADJ_FORWARD) {
		__u32 reason = word0 >> 40 & 0xff;

		return reason < REASON_COUNT ? reason : REASON_UNRESOLVED;
	}
	out = (__u32)word0;
	if (out == p->ingress)
		return REASON_SAME_LINK;
	if (packet_len > adj->mtu)
		return REASON_MTU;
	if (bpf_redirect_map(&out_links, out, XDP_PASS) != XDP_REDIRECT)
		return REASON_REDIRECT_FAILED;
	*taken = adj;
	return 0;
}

/* Writes both MAC addresses, which lie side by side in the adjacency too. */
inline_always void rewrite_macs(void *data, const struct adjacency *adj)
{
	*(__u64 *)data = *(const __u64 *)adj->dst_mac;
	*(__u32 *)(data + 8) = *(const __u32 *)(adj->dst_mac + 8);
}

/* Cuts padding off behind the IP packet, then counts. */
inline_always int finish(struct packet *p, __u32 number, __u32 packet_end)
{
	__u32 keep = packet_end > FRAME_MIN ? packet_end : FRAME_MIN;
	__u32 received = p->len;

	if (p->len > keep) {
		/* Shrinking to 60 bytes or more cannot fail. */
		if (bpf_xdp_adjust_tail(p->ctx, (int)(keep - p->len)))
			return DROP | REASON_REDIRECT_FAILED;
		p->len = keep;
	}
	count(p->stripe, REASON_COUNTERS + p->link->slot, received);
	count(p->stripe, ADJACENCY_COUNTERS + number, p->len);
	return REASON_FORWARDED;
}

/* Whether the source is one of our own addresses; the filter said that it may be. */
static __noinline int own_source(__u32 table, __u32 src)
{
	__u64 group = group_word(fib4_lookup(table, src));

	return (group & 0xffff) == (GROUP_KERNEL | REASON_LOCAL << 8);
}

inline_always int maybe_own(__u32 address)
{
	__u32 bit = (address * 0x9e3779b1u) >> 16;

	return READ(own4, __u64, OWN_BITS / 64, bit >> 6, 0) >> (bit & 63) & 1;
}

/*
 * The third word of an IPv4 header with one less TTL: that is 0x0100 more in the checksum, with the
 * carry that ip_decrease_ttl makes.
 */
inline_always __u32 less_ttl(__u32 word)
{
	__u32 sum = (word >> 16) + bpf_htons(0x0100);

	sum += sum >= 0xffff;
	return ((word & 0xffff) - 1) | sum << 16;
}

/* Keeps what the long way needs to know; see forward_long(). */
inline_always int go_long(struct packet *p, __u64 group, __u32 value, __u32 packet_end)
{
	p->group = group;
	p->value = value;
	p->packet_end = packet_end;
	return THE_LONG_WAY;
}

inline_always int forward4(struct packet *p)
{
	__u32 *ip = p->data + IP_AT;
	__u32 w0, w1, w2, raw_src, raw_dst, src, dst, packet_len, packet_end, number;
	__u32 flags = p->link->flags;
	const struct adjacency *adj;
	__u32 value;
	__u64 group;
	int reason;

	/* A1 to A3 */
	if ((void *)(ip + 5) > p->data_end)
		return REASON_TRUNCATED;
	w0 = ip[0];
	w1 = ip[1];
	w2 = ip[2];
	raw_src = ip[3];
	raw_dst = ip[4];
	if ((w0 & 0xff) != 0x45)
		return (w0 & 0xf0) != 0x40 || (w0 & 0xf) < 5 ? REASON_BAD_HEADER : REASON_OPTIONS;
	if (!header_sum_good((__u64)w0 + w1 + w2 + raw_src + raw_dst))
		return REASON_BAD_CHECKSUM;
	packet_len = bpf_ntohs((__u16)(w0 >> 16));
	packet_end = packet_len + IP_AT;
	p->len = frame_len(p->ctx, p->len, packet_end);
	if (packet_len < 20 || packet_end > p->len)
		return REASON_BAD_LENGTH;

	/* A4 to A7 */
	if ((flags & (LINK_FORWARD4 | LINK_RULES4 | LINK_RP_FILTER)) != LINK_FORWARD4) {
		if (!(flags & LINK_FORWARD4))
			return REASON_FORWARDING_OFF;
		return flags & LINK_RULES4 ? REASON_RULES : REASON_RP_FILTER;
	}
	src = bpf_ntohl(raw_src);
	dst = bpf_ntohl(raw_dst);
	reason = check_addresses4(src, dst);
	if (reason)
		return reason;
	if (!(flags & LINK_ACCEPT_LOCAL) && maybe_own(src) && own_source(p->link->table4, src))
		return REASON_OWN_SOURCE;

	/* A8 to A11 */
	value = fib4_lookup(p->link->table4, dst);
	group = group_word(value);
	if ((__u8)group != GROUP_SINGLE && !is_many(group))
		return group_reason(group);
	if ((w2 & 0xff) <= 1)
		return REASON_TTL_EXCEEDED;
	number = group >> 32;
	if ((__u8)group != GROUP_SINGLE) {
		struct key4 key = {
			.proto = w2 >> 8 & 0xff,
			.src = raw_src,
			.dst = raw_dst,
		};
		__u32 hash;

		if (!is_short(group, p->config->policy4))
			return go_long(p, group, value, packet_end);
		if (brings_hash(p->ctx, p->config->policy4, &hash)) {
			number = choose(number, (__u16)(group >> 16), hash);
			goto chosen;
		}
		if (!(p->config->flags & CONFIG_SEED_KNOWN))
			return REASON_SEED_UNKNOWN;
		reason = key4(&key, p->config->policy4, p->data, p->data_end, (__be16)(w1 >> 16),
			      packet_end);
		if (reason)
			return reason;
		number = choose(number, (__u16)(group >> 16), hash4(p->config, &key));
	}

chosen:
	/* A12 to A14 */
	reason = take_adjacency(p, number, packet_len, &adj);
	if (reason)
		return reason;
	rewrite_macs(p->data, adj);
	ip[2] = less_ttl(w2);
	return finish(p, number, packet_end);
}

inline_always int forward6(struct packet *p)
{
	__u32 *ip = p->data + IP_AT;
	__u32 w1, packet_len, packet_end, number, value;
	__u64 sh, sl, dh, dl, group;
	const struct adjacency *adj;
	struct key6 key = {};
	int reason;

	/* B1 and B2 */
	if ((void *)(ip + 10) > p->data_end)
		return REASON_TRUNCATED;
	key.label = ip[0];
	w1 = ip[1];
	key.proto = w1 >> 16 & 0xff;
	if ((key.label & 0xf0) != 0x60)
		return REASON_BAD_HEADER;
	if (key.proto == IPPROTO_HOPOPTS)
		return REASON_OPTIONS;
	packet_len = 40 + bpf_ntohs((__u16)w1);
	packet_end = packet_len + IP_AT;
	p->len = frame_len(p->ctx, p->len, packet_end);
	if (packet_end > p->len)
		return REASON_BAD_LENGTH;

	/* B3 to B5 */
	if ((p->link->flags & (LINK_FORWARD6 | LINK_RULES6)) != LINK_FORWARD6)
		return p->link->flags & LINK_FORWARD6 ? REASON_RULES : REASON_FORWARDING_OFF;
	load_addresses(&key.a, ip + 2);
	sh = bpf_be64_to_cpu(key.a.src_high);
	sl = bpf_be64_to_cpu(key.a.src_low);
	dh = bpf_be64_to_cpu(key.a.dst_high);
	dl = bpf_be64_to_cpu(key.a.dst_low);
	reason = check_addresses6(sh, sl, dh, dl);
	if (reason)
		return reason;

	/* B6 to B9 */
	value = fib6_lookup(p->link->table6, dh, dl);
	group = group_word(value);
	if ((__u8)group != GROUP_SINGLE && !is_many(group))
		return group_reason(group);
	if (w1 >> 24 <= 1)
		return REASON_TTL_EXCEEDED;
	number = group >> 32;
	if ((__u8)group != GROUP_SINGLE) {
		__u32 hash;

		if (!is_short(group, p->config->policy6))
			return go_long(p, group, value, packet_end);
		if (brings_hash(p->ctx, p->config->policy6, &hash)) {
			number = choose(number, (__u16)(group >> 16), hash);
			goto chosen;
		}
		if (!(p->config->flags & CONFIG_SEED_KNOWN))
			return REASON_SEED_UNKNOWN;
		reason = key6(p->ctx, &key, p->config->policy6, p->data, p->data_end, packet_end);
		if (reason)
			return reason;
		number = choose(number, (__u16)(group >> 16), hash6(p->config, &key));
	}
chosen:
	reason = take_adjacency(p, number, packet_len, &adj);
	if (reason)
		return reason;

	/* B10 */
	rewrite_macs(p->data, adj);
	ip[1] = w1 - (1u << 24);
	return finish(p, number, packet_end);
}

/*
 * A11 to A14 and B8 to B10 for what the short way does not know. One function for both families: the
 * verifier goes through it once.
 */
inline_always int forward_long(struct packet *p)
{
	__u32 *ip = p->data + IP_AT, ether_type;
	const struct adjacency *adj;
	__s64 chosen;
	int reason;

	if ((void *)(ip + 5) > p->data_end)
		return REASON_TRUNCATED;
	/* Read again, so that the verifier does not tell the families apart here. */
	ether_type = bpf_ntohs(((__u16 *)p->data)[6]);
	chosen = choose_any(p->ctx, p->group, p->value, ether_type, p->packet_end);
	if (chosen < 0)
		return -chosen;
	reason = take_adjacency(p, chosen, p->packet_end - IP_AT, &adj);
	if (reason)
		return reason;
	if (ether_type == ETH_P_IPV6)
		ip[1] -= 1u << 24;
	else
		ip[2] = less_ttl(ip[2]);
	rewrite_macs(p->data, adj);
	return finish(p, chosen, p->packet_end);
}

/* P1 to P5, and the way to the family. */
inline_always int decide(struct packet *p, __u32 cpu)
{
	const struct link_entry *link;
	__u16 *words = p->data;
	__u64 dst_mac;
	__u16 proto;

	p->config = config;
	if (p->config->magic != IMAGE_MAGIC ||
	    (*(volatile const __u32 *)&p->config->flags & CONFIG_HOLD) || expired(p->config, cpu))
		return REASON_HELD;
	if (p->ingress >= MAX_LINKS)
		return REASON_NOT_ENABLED;
	link = ELEMENT(links, const struct link_entry, p->ingress);
	if (!(link->flags & LINK_ENABLED))
		return REASON_NOT_ENABLED;
	p->link = link;
	if ((void *)(words + ETH_HLEN / 2) > p->data_end)
		return REASON_TRUNCATED;
	proto = words[6];
	dst_mac = *(__u64 *)words & 0xffffffffffffULL;
	if (proto == bpf_htons(ETH_P_IP)) {
		if (dst_mac != *(const __u64 *)p->link->mac)
			return REASON_OTHER_MAC;
		return forward4(p);
	}
	if (proto == bpf_htons(ETH_P_IPV6)) {
		if (dst_mac != *(const __u64 *)p->link->mac)
			return REASON_OTHER_MAC;
		return forward6(p);
	}
	if (proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD))
		return REASON_VLAN;
	return REASON_NOT_IP;
}

SEC("xdp.frags")
int raddle(struct xdp_md *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct packet p = {
		.ctx = ctx,
		.data = (void *)(long)ctx->data,
		.data_end = (void *)(long)ctx->data_end,
		.ingress = ctx->ingress_ifindex,
		.stripe = cpu * counter_slots,
	};
	int verdict;

	p.len = p.data_end - p.data;
	verdict = decide(&p, cpu);
	if (verdict == THE_LONG_WAY)
		verdict = forward_long(&p);
	if (verdict == REASON_FORWARDED)
		return XDP_REDIRECT;
	p.len = bpf_xdp_get_buff_len(ctx);
	if (p.link)
		count(p.stripe, REASON_COUNTERS + p.link->slot, p.len);
	count(p.stripe, verdict & 0xff, p.len);
	return verdict & DROP ? XDP_DROP : XDP_PASS;
}
