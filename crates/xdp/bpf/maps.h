/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The maps: the image's memory, mapped into the daemon too (BPF_F_MMAPABLE), the counters, and the
 * devmap. Capacities marked 1 are set by the loader.
 *
 * All are plain arrays, because the verifier turns their look-ups into a few instructions: on CPUs
 * with return thunks every call, to a helper or to a function of ours, costs about as much as the
 * whole IPv4 look-up.
 */
#ifndef RADDLE_MAPS_H
#define RADDLE_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "image.h"

#define inline_always static inline __attribute__((always_inline))

/* Loops stay loops: unrolled they are ten times the code, for the verifier and the cache. */
#define ROLLED _Pragma("clang loop unroll(disable)")

#define IMAGE_ARRAY(name, element, entries)               \
	struct {                                         \
		__uint(type, BPF_MAP_TYPE_ARRAY);        \
		__uint(map_flags, BPF_F_MMAPABLE);       \
		__uint(max_entries, entries);            \
		__type(key, __u32);                      \
		__type(value, element);                  \
	} name SEC(".maps")

IMAGE_ARRAY(config, struct config, 1);
IMAGE_ARRAY(links, struct link_entry, MAX_LINKS);
IMAGE_ARRAY(own4, __u64, OWN_BITS / 64);
IMAGE_ARRAY(roots4, __u64, MAX_TABLES);
IMAGE_ARRAY(nodes4, __u64, 1);
IMAGE_ARRAY(leaves4, __u64, 1);
IMAGE_ARRAY(roots6, __u64, MAX_TABLES);
IMAGE_ARRAY(words6, __u64, 1);
IMAGE_ARRAY(groups, __u64, 1);
IMAGE_ARRAY(members, __u64, 1);
IMAGE_ARRAY(adjacencies, struct adjacency, 1);
IMAGE_ARRAY(counters, struct counter, 1);

/* Whether the deadline has passed, by CPU, asked of the clock once a jiffy. */
struct clock_entry {
	__u64 jiffies;
	__u64 deadline;
	__u64 expired;
	__u64 rest[5];
};
IMAGE_ARRAY(clocks, struct clock_entry, 1);

/* Where packets may go out, by interface index. An array: one load less than DEVMAP_HASH. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MAX_LINKS);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
} out_links SEC(".maps");

/* Counters of one CPU; set by the loader. */
const volatile __u32 counter_slots = ADJACENCY_COUNTERS;

/* Hides from the compiler where a value comes from, lest it turns arithmetic into branches. */
#define OPAQUE(x) asm volatile("" : "+r"(x))

/* Reads one word of an array as it stands now; `missing` outside of it. */
#define WORD(map, index, missing)                                            \
	({                                                                   \
		__u32 word_key = (index);                                    \
		__u64 *word_at = bpf_map_lookup_elem(&(map), &word_key);     \
		word_at ? *(volatile __u64 *)word_at : (missing);            \
	})

inline_always void count(__u32 stripe, __u32 slot, __u32 bytes)
{
	__u32 key = stripe + slot;
	struct counter *c = bpf_map_lookup_elem(&counters, &key);

	if (c) {
		c->packets += 1;
		c->bytes += bytes;
	}
}

#endif
