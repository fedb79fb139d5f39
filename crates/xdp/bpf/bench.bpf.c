// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Programs to measure forwarding with: a generator of traffic, a sink that counts, and two
 * forwarders to compare with: one that uses the kernel's FIB look-up as xdp-forward does, and one
 * that redirects without looking, which is the floor.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "bench.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define inline_always static inline __attribute__((always_inline))

#define MAX_PORTS 16384
#define AF_INET 2
#define AF_INET6 10

#define SHARED_ARRAY(name, element, entries)             \
	struct {                                         \
		__uint(type, BPF_MAP_TYPE_ARRAY);        \
		__uint(map_flags, BPF_F_MMAPABLE);       \
		__uint(max_entries, entries);            \
		__type(key, __u32);                      \
		__type(value, element);                  \
	} name SEC(".maps")

SHARED_ARRAY(traffic, struct traffic, 1);
SHARED_ARRAY(long_traffic, struct long_traffic, 1);
/* Destinations that the generator goes through, in order; set by the loader. */
SHARED_ARRAY(destinations, struct destination, 1);
/* Position of each CPU in its traffic; set by the loader. */
SHARED_ARRAY(positions, struct position, 1);
/* Packets in the sinks: SINKS for each CPU, by interface index; set by the loader. */
SHARED_ARRAY(sunk, struct position, 1);

/*
 * Ports by interface index. The generator and the bare redirect use port 0, and the bare redirect
 * the last one as well.
 */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
} ports SEC(".maps"), source_port SEC(".maps");

/* 1: the bare redirect uses both of its ports, by turns that follow the source port. */
SHARED_ARRAY(bare_spread, __u64, 1);

/* What generate_and_call() goes on with. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

SEC("xdp.frags")
int sink(struct xdp_md *ctx)
{
	__u32 key = bpf_get_smp_processor_id() * SINKS + (ctx->ingress_ifindex & (SINKS - 1));
	struct position *at = bpf_map_lookup_elem(&sunk, &key);

	if (at)
		at->count += 1;
	return XDP_DROP;
}

/* Lets a veth's peer send to it, and passes everything on. */
SEC("xdp.frags")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

/* Fails on every frame. */
SEC("xdp.frags")
int aborts(struct xdp_md *ctx)
{
	return XDP_ABORTED;
}

SEC("xdp.frags")
int redirect(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;
	const __u32 zero = 0;
	__u64 *spread = bpf_map_lookup_elem(&bare_spread, &zero);

	/* Of these bytes one is of the source port (IPv4, IPv6), the other is the same in all. */
	if (!spread || (void *)(data + 56) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	return bpf_redirect_map(&ports, (data[35] ^ data[55]) & *spread & 1 ? MAX_PORTS - 1 : 0, 0);
}

/* The next destination of the list, going round. */
inline_always struct destination *next_destination(struct position *p)
{
	__u32 at = p->destination, zero = 0;
	struct destination *d = bpf_map_lookup_elem(&destinations, &at);

	p->destination = d ? at + 1 : 1;
	return d ? d : bpf_map_lookup_elem(&destinations, &zero);
}

/*
 * Writes the next packet into the frame. 0 when the frame is too short for the template.
 *
 * Headers are written in the pieces in which forwarders read them: a load across two fresh stores
 * would wait for both, which no real packet makes it do.
 */
inline_always int generate(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	__u32 zero = 0, cpu = bpf_get_smp_processor_id();
	struct traffic *t = bpf_map_lookup_elem(&traffic, &zero);
	struct position *p = bpf_map_lookup_elem(&positions, &cpu);
	__u64 n;

	if (!t || !p || data + TEMPLATE > data_end)
		return 0;
	n = p->count++;
	/* Pages come back as the forwarder left them, so all headers are written every time. */
	*(__u32 *)data = t->mac;
	*(__u16 *)(data + 4) = t->mac_end;
	for (int i = 0; i < REST / 8; i++)
		*(__u64 *)(data + 6 + 8 * i) = t->rest[i];
	if (t->flags & TRAFFIC_DESTINATIONS) {
		struct destination *d = next_destination(p);

		if (!d)
			return 0;
		if (t->flags & TRAFFIC_IPV6) {
			*(__u64 *)(data + 38) = d->high;
			*(__u64 *)(data + 46) = d->low;
		} else {
			/* The template's checksum is that of destination 0.0.0.0. */
			__u32 to = d->high, word = *(__u32 *)((void *)t->rest + 22 - 6);
			__u32 sum = (__u16)~(word >> 16) + (to & 0xffff) + (to >> 16);

			sum = (sum & 0xffff) + (sum >> 16);
			sum = (sum & 0xffff) + (sum >> 16);
			*(__u32 *)(data + 22) = (word & 0xffff) | ~sum << 16;
			*(__u32 *)(data + 30) = to;
		}
	}
	if (t->flags & TRAFFIC_PORTS) {
		__u32 ports = t->ports | (n * 0x9e3779b97f4a7c15ULL) >> 48;

		if (t->flags & TRAFFIC_IPV6)
			*(__u32 *)(data + 54) = ports;
		else
			*(__u32 *)(data + 34) = ports;
	}
	return 1;
}

/* Live frames: sends the next packet. */
SEC("xdp")
int generator(struct xdp_md *ctx)
{
	if (!generate(ctx))
		return XDP_ABORTED;
	return bpf_redirect_map(&source_port, 0, 0);
}

/*
 * Writes the next packet of the long template into the frame, which has to be of its length. 0 when
 * it is not.
 */
inline_always int generate_long(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	__u32 zero = 0, cpu = bpf_get_smp_processor_id(), i;
	struct long_traffic *t = bpf_map_lookup_elem(&long_traffic, &zero);
	struct position *p = bpf_map_lookup_elem(&positions, &cpu);
	__u64 n;

	if (!t || !p || data + TEMPLATE > data_end)
		return 0;
	n = p->count++;
	*(__u32 *)data = t->mac;
	*(__u16 *)(data + 4) = t->mac_end;
	for (i = 0; i < LONG_WORDS && i < t->words; i++) {
		__u64 *to = data + 6 + 8 * i;

		if ((void *)(to + 1) > data_end)
			return 0;
		*to = t->rest[i];
	}
	if (t->flags & TRAFFIC_DESTINATIONS) {
		struct destination *d = next_destination(p);

		if (!d)
			return 0;
		*(__u64 *)(data + 38) = d->high;
		*(__u64 *)(data + 46) = d->low;
	}
	if (t->flags & TRAFFIC_PORTS) {
		__u16 *port = data + (t->port_at & 255);

		if ((void *)(port + 1) > data_end)
			return 0;
		*port = (n * 0x9e3779b97f4a7c15ULL) >> 48;
	}
	return 1;
}

/* Live frames: sends the next packet of the long template. */
SEC("xdp")
int long_generator(struct xdp_md *ctx)
{
	if (!generate_long(ctx))
		return XDP_ABORTED;
	return bpf_redirect_map(&source_port, 0, 0);
}

/* Repeated test runs: hands the next packet to another program, as if it had just come in. */
SEC("xdp.frags")
int generate_and_call(struct xdp_md *ctx)
{
	if (!generate(ctx))
		return XDP_ABORTED;
	bpf_tail_call(ctx, &target, 0);
	return XDP_ABORTED;
}

SHARED_ARRAY(original, struct original, 1);

/*
 * Repeated test runs: puts the frame back, where the last run took something off its front or put
 * something there, and hands it to another program.
 */
SEC("xdp.frags")
int restore_and_call(struct xdp_md *ctx)
{
	const __u32 zero = 0;
	struct original *o = bpf_map_lookup_elem(&original, &zero);
	__u32 length = (void *)(long)ctx->data_end - (void *)(long)ctx->data;
	__u64 *data;

	if (!o)
		return XDP_ABORTED;
	if (length != o->length && bpf_xdp_adjust_head(ctx, (int)(length - o->length)))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	if ((void *)(data + 18) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	for (int i = 0; i < 18; i++)
		data[i] = o->words[i];
	bpf_tail_call(ctx, &target, 0);
	return XDP_ABORTED;
}

inline_always int send_to(struct ethhdr *eth, struct bpf_fib_lookup *fib)
{
	/* As xdp-forward: only to ports that the user gave. */
	if (!bpf_map_lookup_elem(&ports, &fib->ifindex))
		return XDP_PASS;
	__builtin_memcpy(eth->h_dest, fib->dmac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, fib->smac, ETH_ALEN);
	return bpf_redirect_map(&ports, fib->ifindex, 0);
}

/* Forwards by bpf_fib_lookup(), with the transport ports, which L4 selection needs. */
SEC("xdp.frags")
int fib_lookup(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct bpf_fib_lookup fib = {};
	struct ethhdr *eth = data;

	if ((void *)(eth + 1) > data_end)
		return XDP_DROP;
	fib.ifindex = ctx->ingress_ifindex;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(eth + 1);
		__u16 *port = (void *)(ip + 1);
		__u32 check;

		if ((void *)(port + 2) > data_end || ip->ttl <= 1)
			return XDP_PASS;
		fib.family = AF_INET;
		fib.tos = ip->tos;
		fib.l4_protocol = ip->protocol;
		fib.sport = port[0];
		fib.dport = port[1];
		fib.tot_len = bpf_ntohs(ip->tot_len);
		fib.ipv4_src = ip->saddr;
		fib.ipv4_dst = ip->daddr;
		if (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS)
			return XDP_PASS;
		check = ip->check + bpf_htons(0x0100);
		ip->check = check + (check >= 0xffff);
		ip->ttl -= 1;
		return send_to(eth, &fib);
	}
	if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(eth + 1);
		__u16 *port = (void *)(ip + 1);

		if ((void *)(port + 2) > data_end || ip->hop_limit <= 1)
			return XDP_PASS;
		fib.family = AF_INET6;
		fib.flowinfo = *(__be32 *)ip & bpf_htonl(0x0fffffff);
		fib.l4_protocol = ip->nexthdr;
		fib.sport = port[0];
		fib.dport = port[1];
		fib.tot_len = bpf_ntohs(ip->payload_len);
		__builtin_memcpy(fib.ipv6_src, &ip->saddr, 16);
		__builtin_memcpy(fib.ipv6_dst, &ip->daddr, 16);
		if (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS)
			return XDP_PASS;
		ip->hop_limit -= 1;
		return send_to(eth, &fib);
	}
	return XDP_PASS;
}
