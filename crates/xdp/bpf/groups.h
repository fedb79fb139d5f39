/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Groups that are more than a search for a hash: buckets, round robin by packet or by flowlet. The layout of
 * their members is image::BucketsHead's and image::RoundRobinHead's, the steps are those of
 * crates/forward/src/{choose,state}.rs.
 */
#ifndef RADDLE_GROUPS_H
#define RADDLE_GROUPS_H

#include "dissect.h"
#include "maps.h"
#include "rx_hash.h"
#include "select.h"

/*
 * MurmurHash3's finaliser, over the hash of a flow: outer packets of a flow choose their
 * link by that (rule S9).
 */
inline_always __u32 spread(__u32 hash, __u32 salt)
{
	hash ^= salt;
	hash ^= hash >> 16;
	hash *= 0x85ebca6b;
	hash ^= hash >> 13;
	hash *= 0xc2b2ae35;
	return hash ^ hash >> 16;
}

/* A word of the members' memory; 0 beyond its end. */
inline_always __u64 member_word(__u32 place)
{
	return READ(members, __u64, members_len, place, 0);
}

/* The adjacency of a bucket, or -REASON_BUCKET_ACTIVITY for a packet that the kernel shall see. */
static __noinline __s64 choose_bucket(__u32 first, __u32 count, __u32 hash)
{
	__u64 head = member_word(first);
	__u32 reciprocal = head, interval = head >> 32;
	__u32 rest = hash - (__u32)((__u64)hash * reciprocal >> 32) * count;
	__u64 bucket, *activity_at, last, place;
	__u32 now;

	/* The quotient is right or one too small, since the hash is below 2^31. */
	if (rest >= count)
		rest -= count;
	place = INDEX(first + 1 + rest);
	if (place >= members_len)
		return -REASON_RESILIENT;
	bucket = member(place);
	now = bpf_ktime_get_coarse_ns() >> 20;
	activity_at = ELEMENT(activity, __u64, place);
	last = *(volatile __u64 *)activity_at;
	/* Never under this stamp, or not lately. */
	if ((last ^ bucket << 32) >> 32 || now - (__u32)last >= interval) {
		*(volatile __u64 *)activity_at = bucket << 32 | now;
		return -REASON_BUCKET_ACTIVITY;
	}
	return bucket >> 32;
}

/* The place of the member whose turn it is. */
inline_always __u32 round_robin(__u32 first, __u32 count, __u64 cpu)
{
	__u64 turns_word = member_word(first), state_word = member_word(first + 1), next;
	__u32 total = turns_word, stride = turns_word >> 32, slot = (__u32)state_word;
	__u32 *turn, at = 0, rest = count;

	if (slot >= ROUND_ROBIN_SLOTS)
		slot = ROUND_ROBIN_SLOTS - 1;
	if (!total)
		total = 1;
	turn = STRIPED(turns, __u32, ROUND_ROBIN_SLOTS, cpu, slot);
	next = (__u64)*turn + (stride ? stride : 1);
	if (next >= total)
		next -= total;
	if (next >= total)
		next = 0;
	*turn = next;
	if (!stride)
		return next < count ? next : count - 1;
	NO_UNROLL for (int i = 0; i < 16 && rest > 1; i++) {
		__u32 half = rest / 2;
		__u32 upper = member_word(first + 2 + at + half - 1);

		at += half & less_mask(upper, (__u32)next);
		rest -= half;
	}
	return at;
}

/* The place that a flow has, or takes now that it has been idle. */
inline_always __u32 flowlet_place(__u32 value, __u32 first, __u32 count, __u32 hash, __u64 cpu)
{
	__u32 gap = member_word(first + 1) >> 32, now = bpf_ktime_get_ns() >> 10;
	__u32 index = (hash ^ value) & (FLOWLETS - 1);
	__u64 flow = (__u64)value << 32 | hash;
	struct flowlet *entry = STRIPED(flowlets, struct flowlet, FLOWLETS, cpu, index);
	__u32 place;

	if (entry->flow == flow && now - entry->last < gap) {
		entry->last = now;
		place = entry->place;
		if (place < count)
			return place;
	}
	place = round_robin(first, count, cpu);
	entry->flow = flow;
	entry->last = now;
	entry->place = place;
	return place;
}

inline_always __u32 namespace_policy(__u32 ether_type)
{
	return ether_type == ETH_P_IP ? config->policy4 : config->policy6;
}

/*
 * The adjacency that any group of several members gives the packet of the question, or a negative
 * reason; for groups and policies that the fast path does not know.
 */
static __noinline __s64 choose_any(struct xdp_md *ctx, struct scratch *here)
{
	struct flow_query *q = &here->query;
	__u64 group = READ_ONCE(q->group);
	__u64 cpu = INDEX(bpf_get_smp_processor_id());
	__u32 how = (group & ~GROUP_NO_PUNT) >> 8 & 0xff, brought;
	__s64 hash;

	if (cpu >= cpus)
		return -REASON_HASH_POLICY;
	if ((__u8)group == GROUP_ROUND_ROBIN) {
		__u32 turn = round_robin(group >> 32, (__u16)(group >> 16), cpu);

		return member_word((__u32)(group >> 32) + 2 + turn) >> 32;
	}
	/* Other groups that come here and that policy 1 is for are hashed by rules of their own. */
	if ((__u8)group == GROUP_RESILIENT && !how &&
	    brings_hash(ctx, namespace_policy(q->packet.ether_type), &brought))
		return choose_bucket(group >> 32, (__u16)(group >> 16), brought);
	if (!(config->flags & CONFIG_SEED_KNOWN))
		return -REASON_SEED_UNKNOWN;
	q->policy = namespace_policy(READ_ONCE(q->packet.ether_type));
	q->follows = 0;
	/* Outer packets are hashed by the policy of the namespace, see rule S9. */
	if (!READ_ONCE(q->outer)) {
		if ((__u8)group == GROUP_FLOWLET)
			q->policy = 1;
		else if (how & ~HOW_FOLLOWS)
			q->policy = (how & ~HOW_FOLLOWS) - 1;
		if ((__u8)group != GROUP_FLOWLET)
			q->follows = how & HOW_FOLLOWS;
	}
	hash = hash_any(ctx, here);
	if (hash < 0)
		return hash;
	if (q->outer)
		hash = spread(hash, q->salt) >> 1;
	if ((__u8)group == GROUP_RESILIENT)
		return choose_bucket(group >> 32, (__u16)(group >> 16), hash);
	if ((__u8)group == GROUP_FLOWLET) {
		__u32 place = flowlet_place(q->value, group >> 32, (__u16)(group >> 16),
					    hash, cpu);

		return member_word((__u32)(group >> 32) + 2 + place) >> 32;
	}
	return choose(group >> 32, (__u16)(group >> 16), hash);
}

#endif
