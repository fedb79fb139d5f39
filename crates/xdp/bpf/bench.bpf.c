// SPDX-License-Identifier: MIT OR GPL-2.0
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
char LICENSE[] SEC("license") = "Dual MIT/GPL";
SEC("xdp.frags")
int sink(struct xdp_md *ctx)
{
	return XDP_DROP;
}
