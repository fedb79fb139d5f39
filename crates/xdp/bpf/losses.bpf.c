// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Counts what is lost of what XDP programs have sent to links, by link: tracepoints tell it, and nothing else does for all drivers.
 *
 * They are told of every XDP program on the machine, xdp_devmap_xmit even where nothing is lost, once for up to 16 frames. So that
 * program leaves after one comparison then. Which link and which network namespace it was is read from the kernel's
 * structures, whose members lie where the loader says.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "image.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define inline_always static inline __attribute__((always_inline))

/* Bytes from a struct net_device to its index and to the pointer to its struct net, and from there to the inode number. */
const volatile __u32 ifindex_at = 0;
const volatile __u32 net_at = 0;
const volatile __u32 inode_at = 0;
/* The network namespace whose links are counted, by its inode number. */
const volatile __u32 namespace = 0;
/* The number of the engine's map of out-links. */
const volatile __u32 out_links = 0;

/* The loader knows this layout (src/losses.rs). */
struct loss {
	/* Frames that were to leave by the link. */
	__u64 lost;
	/* Frames that came in by it. */
	__u64 aborted;
	/* Of the last that was to leave: why, as an errno, or 0. */
	__u32 error, rest;
};

/* By interface index. Shared by all CPUs: a loss is rare, or else it is no matter what it costs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_LINKS);
	__type(key, __u32);
	__type(value, struct loss);
} losses SEC(".maps");

/* The counts of a device, unless it is another network namespace's. */
inline_always struct loss *loss_of(__u64 device)
{
	__u32 index = 0, inode = 0;
	__u64 net = 0;

	if (bpf_probe_read_kernel(&net, sizeof(net), (void *)(device + net_at)))
		return NULL;
	if (bpf_probe_read_kernel(&inode, sizeof(inode), (void *)(net + inode_at)) || inode != namespace)
		return NULL;
	if (bpf_probe_read_kernel(&index, sizeof(index), (void *)(device + ifindex_at)))
		return NULL;
	return bpf_map_lookup_elem(&losses, &index);
}

inline_always void lose(struct loss *loss, __u32 frames, int error)
{
	if (!loss)
		return;
	__sync_fetch_and_add(&loss->lost, frames);
	loss->error = -error;
}

/*
 * from_dev, to_dev, sent, drops, err: of the frames that were to leave, a driver did not take all (bq_xmit_all). What another program's
 * program in a map of devices has dropped of them on purpose is among the drops: nothing tells it apart.
 */
SEC("raw_tp/xdp_devmap_xmit")
int devmap_xmit(struct bpf_raw_tracepoint_args *ctx)
{
	int drops = ctx->args[3];

	if (drops > 0)
		lose(loss_of(ctx->args[1]), drops, ctx->args[4]);
	return 0;
}

/*
 * dev, xdp, tgt, err, map_type, map_id, index: a frame was not even given to a driver (xdp_do_redirect, xdp_do_generic_redirect). The
 * engine's map has the link's index for a key; where others' keys lead, they know.
 */
SEC("raw_tp/xdp_redirect_err")
int redirect_err(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 map = ctx->args[5], index = ctx->args[6];

	if (map == out_links)
		lose(bpf_map_lookup_elem(&losses, &index), 1, ctx->args[3]);
	return 0;
}

/*
 * dev, xdp, act: what a program said could not be done.
 *
 * 1. XDP_TX: the frame was to leave by the device. Frames that a program in generic mode redirects are told so, too: by the
 *    link that they were to leave by (generic_xdp_tx).
 * 2. XDP_REDIRECT: xdp_redirect_err has told it, but for what drivers drop before the redirect (bnxt_rx_xdp, without a new
 *    buffer), which no link was to send yet.
 * 3. Anything else, XDP_ABORTED before all: the frame came in by the device.
 */
SEC("raw_tp/xdp_exception")
int exception(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 action = ctx->args[2];
	struct loss *loss;

	if (action == XDP_REDIRECT)
		return 0;
	loss = loss_of(ctx->args[0]);
	if (action == XDP_TX)
		lose(loss, 1, 0);
	else if (loss)
		__sync_fetch_and_add(&loss->aborted, 1);
	return 0;
}
