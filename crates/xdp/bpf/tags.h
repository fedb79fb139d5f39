/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * VLAN tags: taken off a frame that comes in by a link upon the one that it was seen on, put back for the kernel, and put into one that
 * leaves by a link below its own.
 */
#ifndef RADDLE_TAGS_H
#define RADDLE_TAGS_H

#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>

#include "bond.h"
#include "image.h"
#include "maps.h"
#include "packet.h"
#include "srh.h"
#include "verdict.h"

inline_always int is_tag(__be16 ether_type)
{
	return ether_type == bpf_htons(ETH_P_8021Q) || ether_type == bpf_htons(ETH_P_8021AD);
}

/* Takes so many tags off, keeping them; 0 if they are off, and else the frame is as it came. */
inline_always int take_tags_off(struct packet *p, struct tags_off *off, __u32 count)
{
	__u16 *words = p->data;

	if ((void *)(words + 9) > p->data_end)
		return -1;
	off->first[0] = *(__u64 *)words;
	off->first[1] = *(__u64 *)(words + 4);
	if (count > 1) {
		if ((void *)(words + 11) > p->data_end)
			return -1;
		off->second = *(__u32 *)(words + 8);
	}
	if (bpf_xdp_adjust_head(p->ctx, (int)(count * TAG)))
		return -1;
	off->count = count;
	p->data = (void *)(long)p->ctx->data;
	p->data_end = (void *)(long)p->ctx->data_end;
	p->len = p->data_end - p->data;
	if (p->data + ETH_HLEN > p->data_end)
		return 0;
	*(__u64 *)p->data = off->first[0];
	*(__u32 *)(p->data + 8) = off->first[1];
	return 0;
}

/*
 * Makes the frame as it came, and says what becomes of it: what cannot get its tags back is dropped, lest it comes in untagged. That
 * is where a driver leaves less room in front of frames than the kernel wants for itself.
 */
inline_always int put_tags_back(struct xdp_md *ctx, struct scratch *here, int action)
{
	__u32 count = READ_ONCE(here->tags.count);
	__u8 *frame;

	if (!count)
		return action;
	if (bpf_xdp_adjust_head(ctx, -(int)(count > 1 ? 2 * TAG : TAG)))
		return XDP_DROP;
	frame = bytes_at(ctx, 0, ETH_HLEN + TAG);
	if (!frame)
		return XDP_DROP;
	*(__u64 *)frame = here->tags.first[0];
	*(__u64 *)(frame + 8) = here->tags.first[1];
	if (count == 1)
		return action;
	frame = bytes_at(ctx, ETH_HLEN + TAG - 2, 6);
	if (!frame)
		return XDP_DROP;
	*(__u32 *)frame = here->tags.second;
	return action;
}

/* Bytes of the tags of an adjacency, given its first word; there may be none. */
inline_always __u32 tags_len(__u64 word0)
{
	__u32 tags = word0 >> 56;

	return (tags < MAX_TAGS ? tags : MAX_TAGS) * TAG;
}

/* Writes the whole Ethernet header of a frame that has room for its tags, if it gets any; 0 if it is there. */
inline_always int write_tags(struct xdp_md *ctx, const struct adjacency *adj, __u64 word0, __be16 ether_type)
{
	__u8 *frame = bytes_at(ctx, 0, ETH_HLEN + 2 * TAG);

	if (!frame)
		return -1;
	rewrite_macs(frame, adj);
	if (tags_len(word0) > TAG) {
		*(__u32 *)(frame + 12) = bpf_htonl(adj->tag[0]);
		*(__u32 *)(frame + 16) = bpf_htonl(adj->tag[1]);
		*(__u16 *)(frame + 20) = ether_type;
	} else if (tags_len(word0)) {
		*(__u32 *)(frame + 12) = bpf_htonl(adj->tag[0]);
		*(__u16 *)(frame + 16) = ether_type;
	} else {
		*(__u16 *)(frame + 12) = ether_type;
	}
	return 0;
}

/*
 * A12 to A14, B9 and B10 by another link than the adjacency's own: for a packet that all else has been checked of. All that may fail comes before it
 * is changed. What it is told lies in `scratch`, and it is a function of its own, lest it is gone through for each way that leads
 * here: three times as many steps for the verifier.
 */
static __noinline int send_tagged(struct xdp_md *ctx, struct scratch *here, const struct link_entry *link)
{
	__u32 *ip = bytes_at(ctx, IP_AT, 20), packet_len, keep, length, stripe, number;
	const struct adjacency *adj;
	__u64 index, word0, closed;
	__u16 *frame = bytes_at(ctx, 0, ETH_HLEN);
	__be16 ether_type;
	int reason;

	if (!ip || !frame || !here || !link)
		return REASON_OUT_LINK;
	number = READ_ONCE(here->push.number);
	index = INDEX(number);
	if (index >= adjacencies_len)
		return REASON_OUT_LINK;
	OPAQUE(index);
	adj = ELEMENT(adjacencies, const struct adjacency, index);
	word0 = *(volatile const __u64 *)adj;
	if ((word0 >> 32 & 0xff) != ADJ_TAGGED)
		return REASON_OUT_LINK;
	ether_type = frame[6];
	if (ether_type == bpf_htons(ETH_P_IPV6)) {
		packet_len = 40 + payload6(ip[1]);
		closed = link->closed6;
	} else {
		packet_len = total_length4(ip[0]);
		closed = link->closed4;
	}
	here->push.packet_len = packet_len;
	here->push.ether_type = ether_type;
	reason = claim_by(adj, word0, lower_link(ctx, adj, IP_AT, IP_AT + packet_len, bpf_ntohs(ether_type)), link, packet_len, closed,
			  is_split_here(ctx, READ_ONCE(here->push.length)));
	if (reason)
		return reason == REASON_FIREWALL ? closed_reason(link, word0) : reason;
	if (bpf_xdp_adjust_head(ctx, -(int)tags_len(word0)))
		return REASON_HEADROOM;
	ip = bytes_at(ctx, IP_AT + tags_len(word0), 20);
	if (!ip)
		return DROP | REASON_REDIRECT_FAILED;
	ether_type = READ_ONCE(here->push.ether_type);
	if (ether_type == bpf_htons(ETH_P_IPV6))
		ip[1] = less_hop_limit6(ip[1]);
	else
		ip[2] = less_ttl4(ip[2]);
	if (write_tags(ctx, adj, word0, ether_type))
		return DROP | REASON_REDIRECT_FAILED;
	length = READ_ONCE(here->push.length) + tags_len(word0);
	keep = READ_ONCE(here->push.packet_len) + IP_AT + tags_len(word0);
	if (keep < FRAME_MIN)
		keep = FRAME_MIN;
	if (length > keep) {
		if (bpf_xdp_adjust_tail(ctx, (int)(keep - length)))
			return DROP | REASON_REDIRECT_FAILED;
		length = keep;
	}
	stripe = bpf_get_smp_processor_id() * counter_slots;
	count(stripe, REASON_COUNTERS + link->slot, READ_ONCE(here->push.length));
	count(stripe, ADJACENCY_COUNTERS + number, length);
	return REASON_FORWARDED;
}

/* The same for a packet on its way. */
inline_always int push(struct packet *p, __u32 cpu)
{
	__u64 index = INDEX(cpu);
	struct scratch *here;

	if (index >= cpus)
		return REASON_OUT_LINK;
	here = ELEMENT(scratch, struct scratch, index);
	OPAQUE(here);
	here->push.number = p->number;
	here->push.length = p->len;
	return send_tagged(p->ctx, here, p->link);
}

#endif
