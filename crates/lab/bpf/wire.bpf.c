// SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only
/*
 * The lab's wire: what a cable does to a frame, and no more.
 *
 * Every link of the lab has two ends in the wire namespace. Their interface
 * indexes are an even number and the odd one above it, so the other end of
 * the cable needs no map: it is the index with its lowest bit turned.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("classifier")
int wire(struct __sk_buff *skb)
{
	/*
	 * A local socket marks its frames with an L4 hash, and veth carries the
	 * mark to the next namespace, where the L4 multipath policy would use it
	 * in place of the packet's own fields. No cable carries such a mark.
	 */
	bpf_set_hash_invalid(skb);
	return bpf_redirect(skb->ifindex ^ 1, 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
