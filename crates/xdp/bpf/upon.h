/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Links upon links: by which VLAN, bridge or macvlan a frame comes in that was seen on a link below. The rules are those of `upon` in
 * crates/forward.
 */
#ifndef RADDLE_UPON_H
#define RADDLE_UPON_H

#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>

#include "image.h"
#include "maps.h"
#include "packet.h"
#include "tags.h"
#include "verdict.h"

/* Of 64 bits as loaded, the MAC address that they begin with. A link's has zeros behind it. */
#define MAC_BITS 0xffffffffffffULL

/* Memory::step: what frames of link `lower` come in by that `what` says, a key without the link; or 0. */
inline_always __u32 step_of(__u32 lower, __u32 what)
{
	__u32 key = STEP_USED | (lower & 0x7fff) << 16 | what;
	/* Below STEP_BUCKETS: the upper bits of 32. */
	__u64 bucket = INDEX((__u32)(key * STEP_FACTOR) >> (32 - __builtin_ctz(STEP_BUCKETS)));
	volatile const __u64 *words;
	__u32 found = 0;

	/* What Linux 6.1 knows of a shifted number is no bound. */
	if (bucket >= STEP_BUCKETS)
		return 0;
	words = ELEMENT(steps, const __u64, bucket * STEP_BUCKET);
	NO_UNROLL for (int i = 0; i < STEP_BUCKET; i++) {
		__u64 word = words[i];

		if (word >> 32 == key) {
			found = word;
			break;
		}
	}
	return found;
}

/* Memory::is_learnt, for a MAC address as a number. */
inline_always int is_learnt(__u64 mac, __u32 at)
{
	__u64 wanted = mac << 16 | at;
	__u64 bucket = wanted * LEARNT_FACTOR >> (64 - __builtin_ctz(LEARNT_BUCKETS));
	volatile const __u64 *words;
	int found = 0;

	OPAQUE(bucket);
	if (bucket >= LEARNT_BUCKETS)
		return 0;
	words = ELEMENT(learnt, const __u64, bucket * LEARNT_BUCKET);
	NO_UNROLL for (int i = 0; i < LEARNT_BUCKET; i++) {
		if (words[i] == wanted) {
			found = 1;
			break;
		}
	}
	return found;
}

/* A frame's tags: how many, and which steps they lead to. */
struct tags_seen {
	__u32 count, first, second;
};

/* Which step a tag leads to; its EtherType and what follows it, as loaded. */
inline_always __u32 tag_step(__be16 ether_type, __be16 tci)
{
	return (ether_type == bpf_htons(ETH_P_8021AD) ? STEP_STAG : 0) | (bpf_ntohs(tci) & 0xfff);
}

/* Reads a frame's tags; a reason where they are too many, or cut off. */
inline_always int see_tags(const struct packet *p, struct tags_seen *seen)
{
	const __u16 *words = p->data;

	seen->count = 0;
	seen->first = 0;
	seen->second = 0;
	if ((void *)(words + 7) > p->data_end)
		return REASON_TRUNCATED;
	if (!is_tag(words[6]))
		return 0;
	if ((void *)(words + 9) > p->data_end)
		return REASON_TRUNCATED;
	seen->count = 1;
	seen->first = tag_step(words[6], words[7]);
	if (!is_tag(words[8]))
		return 0;
	if ((void *)(words + 11) > p->data_end)
		return REASON_TRUNCATED;
	seen->count = 2;
	seen->second = tag_step(words[8], words[9]);
	return is_tag(words[10]) ? REASON_VLAN : 0;
}

/* Where steps have led to: the link, and by which index there are steps from there. */
struct way_in {
	__u32 in, lower;
	__u32 is_port, bridged;
	/* Where the source has to be learnt, or 0. */
	__u32 learnt;
};

/* Takes the steps that tags and ports of bridges lead to. */
inline_always int take_steps(struct way_in *at, const struct tags_seen *tags)
{
	__u32 taken = 0;

	/* Each time a tag is taken, or the one bridge is come to, or it ends. */
	NO_UNROLL for (int i = 0; i < MAX_STEPS; i++) {
		__u32 tag = taken ? tags->second : tags->first, found = 0;

		if (at->is_port) {
			if (at->bridged)
				return REASON_BRIDGE;
			at->bridged = 1;
			found = step_of(at->lower, STEP_ALL);
			if (!found) {
				/* A priority tag says nothing else; nor does none, which is 0. */
				tag = taken < tags->count && tag & 0xfff ? tag : STEP_UNTAGGED;
				taken += taken < tags->count;
				found = step_of(at->lower, tag);
			}
			if (!found)
				return REASON_BRIDGE;
		} else {
			if (taken >= tags->count)
				return 0;
			taken++;
			found = step_of(at->lower, tag);
			if (!found && tag & 0xfff)
				return REASON_VLAN;
		}
		if (found) {
			at->in = found & (STEP_PORT - 1);
			at->lower = at->in;
			at->is_port = found & STEP_PORT;
			at->learnt |= found >> 16;
		}
	}
	return REASON_VLAN;
}

/* The macvlan with this MAC address upon link `index` of another one, or that link. */
inline_always __u32 or_macvlan(const struct link_entry *link, __u32 index, __u32 lower, __u64 to)
{
	__u64 found;
	__u32 end;

	if (!(link->flags & LINK_MACVLANS) || *(const __u64 *)link->mac == to)
		return index;
	end = to >> 32;
	found = INDEX(step_of(lower, STEP_MAC | ((end ^ end >> 2) & STEP_MAC_BITS)) & (STEP_PORT - 1));
	if (!found || found >= MAX_LINKS)
		return index;
	link = ELEMENT(links, const struct link_entry, found);
	return *(const __u64 *)link->mac == to ? found : index;
}

/* Why a bridge does not take a frame for itself by this link, or learns from it; or 0. */
inline_always int check_bridged(const struct link_entry *link, __u32 learnt, __u64 to, __u64 from)
{
	if (*(const __u64 *)link->mac != to)
		return REASON_OTHER_MAC;
	/* What is_valid_ether_addr() refuses. */
	if (from & 1 || !from)
		return REASON_BRIDGE;
	return !learnt || is_learnt(from, learnt) ? 0 : REASON_BRIDGE;
}

/*
 * The link that a frame with these tags comes in by which was seen on link `index`, whose entry `*link` is: that becomes the entry of the
 * other, whose index is left in `place`. A reason where it is the kernel's.
 */
inline_always int find_way_in(const struct packet *p, const struct tags_seen *tags, __u64 index, __u32 *place,
			      const struct link_entry **link)
{
	struct way_in at = {
		.in = index,
		.lower = (*link)->index,
		.is_port = (*link)->flags & LINK_PORT,
	};
	const __u16 *words;
	__u64 to, from;
	int reason;

	reason = take_steps(&at, tags);
	if (reason)
		return reason;
	index = INDEX(at.in);
	words = p->data;
	if (index >= MAX_LINKS || (void *)(words + 7) > p->data_end)
		return REASON_NOT_ENABLED;
	to = *(const __u64 *)words & MAC_BITS;
	from = *(const __u64 *)(words + 3) & MAC_BITS;
	*link = ELEMENT(links, const struct link_entry, index);
	/* One link from here on, whichever way it was come to: see FORGET. */
	index = INDEX(FORGET(*place, or_macvlan(*link, index, at.lower, to)));
	if (index >= MAX_LINKS)
		return REASON_NOT_ENABLED;
	*link = ELEMENT(links, const struct link_entry, index);
	if (!((*link)->flags & LINK_ENABLED))
		return REASON_NOT_ENABLED;
	return at.bridged ? check_bridged(*link, at.learnt, to, from) : 0;
}

/*
 * P4 for frames of links that have others upon them: `in` of `here` becomes the link that the frame comes in by, and its tags are taken off
 * and kept. A reason, with the frame as it came, where it is the kernel's.
 */
inline_always int come_in(struct packet *p, struct scratch *here)
{
	__u64 index = INDEX(p->ctx->ingress_ifindex);
	const struct link_entry *link;
	struct tags_seen tags;
	int reason;

	if (index >= MAX_LINKS)
		return REASON_NOT_ENABLED;
	link = ELEMENT(links, const struct link_entry, index);
	if (link->flags & LINK_ENABLED)
		p->link = link;
	reason = see_tags(p, &tags);
	if (reason)
		return reason;
	reason = find_way_in(p, &tags, index, &here->srv6.in, &link);
	if (reason)
		return reason;
	if (tags.count && take_tags_off(p, &here->tags, tags.count))
		return REASON_VLAN;
	p->link = link;
	return 0;
}

#endif
