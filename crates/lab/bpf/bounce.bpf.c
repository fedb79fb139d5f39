// SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only
/*
 * For the lab's tests: sends every IPv4 frame out of another device, as a
 * forwarding XDP program does. Remembers the longest frame, and counts the
 * frames of UDP with 56 bytes of payload, and those whose checksum holds.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define UDP 17
#define UDP_LENGTH 64

const volatile __u32 out = 0;

/* 0: the longest frame; 1: frames of UDP; 2: those with a good checksum. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

static __u64 *slot(__u32 number)
{
	return bpf_map_lookup_elem(&seen, &number);
}

SEC("xdp.frags")
int bounce(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1);
	__u16 *word = (void *)(ip + 1);
	__u64 length = bpf_xdp_get_buff_len(ctx);
	__u64 *longest = slot(0), *udp = slot(1), *good = slot(2);
	__u32 sum = bpf_htons(UDP) + bpf_htons(UDP_LENGTH);

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	if (longest && length > *longest)
		*longest = length;
	if (ip->protocol == UDP && ip->tot_len == bpf_htons(20 + UDP_LENGTH) &&
	    (void *)word + UDP_LENGTH <= end && udp && good) {
		sum += (ip->saddr & 0xffff) + (ip->saddr >> 16);
		sum += (ip->daddr & 0xffff) + (ip->daddr >> 16);
#pragma unroll
		for (int i = 0; i < UDP_LENGTH / 2; i++)
			sum += word[i];
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		*udp += 1;
		*good += sum == 0xffff;
	}
	return bpf_redirect(out, 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
