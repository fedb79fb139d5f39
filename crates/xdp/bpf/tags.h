/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * VLAN tags: taken off a frame that comes in by a VLAN, put back for the kernel, and put into one that leaves by
 * a VLAN. Not before 18 bytes of a tagged frame are there is anything read of its tags.
 */
#ifndef RADDLE_TAGS_H
#define RADDLE_TAGS_H

#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>

#include "image.h"
#include "maps.h"
#include "packet.h"
#include "srh.h"
#include "verdict.h"

inline_always int is_tag(__be16 ether_type)
{
	return ether_type == bpf_htons(ETH_P_8021Q) || ether_type == bpf_htons(ETH_P_8021AD);
}

/* Memory::vlan: the link that a frame with this tag upon link `lower` comes in by, or 0. */
inline_always __u32 vlan_of(__u32 lower, __be16 ether_type, __u32 id)
{
	__u32 key = VLAN_USED | (lower & 0x7fff) << 16 | (ether_type == bpf_htons(ETH_P_8021AD) ? VLAN_STAG : 0) | id;
	/* Below VLAN_BUCKETS: the upper bits of 32. */
	__u64 bucket = INDEX((__u32)(key * VLAN_FACTOR) >> (32 - __builtin_ctz(VLAN_BUCKETS)));
	volatile const __u64 *words;
	__u32 found = 0;

	/* What Linux 6.1 knows of a shifted number is no bound. */
	if (bucket >= VLAN_BUCKETS)
		return 0;
	words = ELEMENT(vlans, const __u64, bucket * VLAN_BUCKET);
	NO_UNROLL for (int i = 0; i < VLAN_BUCKET; i++) {
		__u64 word = words[i];

		if (word >> 32 == key) {
			found = word;
			break;
		}
	}
	return found;
}

/* Where the walk over tags is: the link that the frame came in by so far, and what VLANs are looked for upon. */
struct tag_walk {
	__u32 in, lower;
};

/* One tag; its EtherType and what follows it, as loaded. */
inline_always int next_tag(struct tag_walk *at, __be16 ether_type, __be16 tci)
{
	__u32 id = bpf_ntohs(tci) & 0xfff, found = vlan_of(at->lower, ether_type, id);

	if (found) {
		at->in = found;
		at->lower = found;
		return 0;
	}
	/* A priority tag says nothing else. */
	return id ? REASON_VLAN : 0;
}

/*
 * P4 for tagged frames (__netif_receive_skb_core, vlan_do_receive): `in` becomes the link that the frame comes in by,
 * and its tags are taken off and kept. A reason, with the frame as it came, where it is the kernel's.
 */
inline_always int take_tags(struct packet *p, struct tags_off *off, __u32 *in)
{
	__u64 index = INDEX(p->ctx->ingress_ifindex);
	const struct link_entry *link;
	__u16 *words = p->data;
	struct tag_walk at;
	__u64 first[2];
	__u32 count = 1;
	int reason;

	if (index >= MAX_LINKS)
		return REASON_NOT_ENABLED;
	link = ELEMENT(links, const struct link_entry, index);
	if (link->flags & LINK_ENABLED)
		p->link = link;
	if ((void *)(words + 9) > p->data_end)
		return p->link ? REASON_TRUNCATED : REASON_NOT_ENABLED;
	if (!is_tag(words[6]))
		return p->link ? REASON_NOT_IP : REASON_NOT_ENABLED;
	at.in = index;
	at.lower = link->index;
	reason = next_tag(&at, words[6], words[7]);
	if (reason)
		return reason;
	first[0] = *(__u64 *)words;
	first[1] = *(__u64 *)(words + 4);
	if (is_tag(words[8])) {
		if ((void *)(words + 11) > p->data_end)
			return REASON_TRUNCATED;
		reason = next_tag(&at, words[8], words[9]);
		if (reason)
			return reason;
		if (is_tag(words[10]))
			return REASON_VLAN;
		off->second = *(__u32 *)(words + 8);
		count = 2;
	}
	index = INDEX(at.in);
	if (index >= MAX_LINKS)
		return REASON_NOT_ENABLED;
	link = ELEMENT(links, const struct link_entry, index);
	if (!(link->flags & LINK_ENABLED))
		return REASON_NOT_ENABLED;
	if (bpf_xdp_adjust_head(p->ctx, (int)(count * TAG)))
		return REASON_VLAN;
	p->link = link;
	p->data = (void *)(long)p->ctx->data;
	p->data_end = (void *)(long)p->ctx->data_end;
	p->len = p->data_end - p->data;
	*in = index;
	off->count = count;
	off->first[0] = first[0];
	off->first[1] = first[1];
	if (p->data + ETH_HLEN > p->data_end)
		return REASON_TRUNCATED;
	*(__u64 *)p->data = first[0];
	*(__u32 *)(p->data + 8) = first[1];
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

/* Bytes of the tags of an adjacency, given its first word. */
inline_always __u32 tags_len(__u64 word0)
{
	return word0 >> 56 > 1 ? 2 * TAG : TAG;
}

/* Writes the whole Ethernet header of a frame that has room for its tags; 0 if it is there. */
inline_always int write_tags(struct xdp_md *ctx, const struct adjacency *adj, __u64 word0, __be16 ether_type)
{
	__u8 *frame = bytes_at(ctx, 0, ETH_HLEN + 2 * TAG);

	if (!frame)
		return -1;
	rewrite_macs(frame, adj);
	*(__u32 *)(frame + 12) = bpf_htonl(adj->tag[0]);
	if (tags_len(word0) > TAG) {
		*(__u32 *)(frame + 16) = bpf_htonl(adj->tag[1]);
		*(__u16 *)(frame + 20) = ether_type;
	} else {
		*(__u16 *)(frame + 16) = ether_type;
	}
	return 0;
}

/*
 * A12 to A14, B9 and B10 by a VLAN: for a packet that all else has been checked of. All that may fail comes before it
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
	reason = claim_by(adj, word0, adj->lower, link, packet_len, closed,
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
