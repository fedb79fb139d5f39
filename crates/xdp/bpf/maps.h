/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The image's memory, the counters and the devmap.
 *
 * The memory is data sections, which the loader makes as large as it is told and maps into the
 * daemon too. Data is reached by address with a bounds check; an array's look-up, though inlined
 * by the verifier, takes twice the instructions. Helpers are called only where nothing else will
 * do: on CPUs with return thunks a call costs as much as the whole IPv4 look-up.
 */
#ifndef RADDLE_MAPS_H
#define RADDLE_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "image.h"

#define inline_always static inline __attribute__((always_inline))

/* Loops stay loops: unrolled they are ten times the code, for the verifier and the cache. */
#define NO_UNROLL _Pragma("clang loop unroll(disable)")

/*
 * A section and how many elements it has. The size in this file is not the section's: ELEMENT
 * hides the declaration from the compiler, and the verifier knows the map's.
 */
#define SECTION(name, element) element name[1] SEC(".bss." #name)
#define SIZED(name, element) const volatile __u32 name##_len = 1; SECTION(name, element)

/* Whether the deadline has passed, by CPU, asked of the clock once a jiffy. */
struct clock_entry {
	__u64 jiffies;
	__u64 deadline;
	__u64 expired;
	__u64 rest[5];
};

/*
 * What the dissector saw; addresses and ports as loaded, IPv4's in the first word.
 *
 * It is kept in a map, and not on the stack or in registers, because the verifier follows every value that it knows,
 * and there are too many ways through a packet's headers for that.
 */
struct seen {
	__u64 addresses[4];
	__u32 kind, proto, ports, label;
	__u32 encapsulated, fragment;
	__u32 at, ether_type, next;
	/* Of `whole` in dissect_by(): see Whole in crates/packet. */
	__u32 gre_key, left, more;
};

/* Where a packet lies in the frame: its IP header, its end, and of which kind that header is, or 0 for no packet. */
struct span {
	__u32 at, end, ether_type;
};

/*
 * Which packet is to be hashed, and what is hashed of it: fields of what is in front, and of what is innermost.
 * With `outer` the hash is for a packet that was put around this one.
 */
struct flow_query {
	__u32 policy, follows, fields;
	__u32 of_outer, of_innermost;
	__u32 dissect;
	struct span packet;
	__u32 outer, salt;
	/* The group that is to be chosen from, and its number. */
	__u32 value;
	__u64 group;
	__u32 hash;
	__u32 ttl;
};

/*
 * A change of the frame that can be undone: `length` bytes at `at` were others, the byte at
 * `segments_left` was one more, and then the frame grew by `grown` bytes in front. Up to 16 bytes are kept
 * here, more in the place `large`.
 */
struct change {
	__u32 at;
	__u16 length, large;
	__u32 segments_left, grown;
	__u64 bytes[2];
};

/* Segments on a packet's way, changes that they make, and the largest of those in bytes. */
#define MAX_SEGMENTS 4
#define MAX_CHANGES 32
#define MAX_LARGE 8
#define LARGE_CHANGE 256

/* A packet on its way through segments. Offsets are in the frame as it stands. */
struct srv6_ctx {
	/* The next one, and how many there were. */
	__u32 segment, done;
	struct span packet;
	/* Length of the frame as it came, and as it stands. */
	__u32 received, length;
	/* Whether one of the segments is not the kernel's. */
	__u32 own;
	/* Segments that count, or NO_COUNTERS, and bytes of the packet that each got. */
	__u32 numbers[MAX_SEGMENTS], bytes[MAX_SEGMENTS];
	/* What the walk over headers goes on with: a header, its kind, and where that stands. */
	__u32 cursor, next, named;
	/* The routing header. */
	__u32 srh, srh_length, srh_named, left;
	/* What is looked up next: an address, or zeros, and in which table; and the segment's flags. */
	__u32 table, flags;
	__u32 target_type;
	__u64 target_high, target_low;
	/* The innermost packet of those that raddle has put others around, if any; and the salt of the outermost. */
	struct span flow;
	__u32 salt;
	__u32 changes, larges;
	/* What is decided, and whether the segment is carried out already. */
	__u32 verdict, carried_out;
	/* What was sent without a neighbour: how often, and where to last. For test runs. */
	__u32 sent, sent_to;
	/* The link that it came in by. */
	__u32 in;
	/* The Ethernet header as it came. */
	__u64 ethernet[2];
	struct change list[MAX_CHANGES];
	__u8 large[MAX_LARGE][LARGE_CHANGE];
	__u8 moved[LARGE_CHANGE];
	/* Which way a packet takes through a tunnel, if any: enum way. */
	__u32 way;
	/* Out: the tunnel's adjacency, and what that counts; and the last identification of an outer packet. */
	__u32 tunnel, tunnel_bytes, id;
	/* In: the link that the packet comes in by which was inside. */
	__u32 inside;
};

enum way { WAY_PLAIN, WAY_OUT, WAY_IN };

#define NO_COUNTERS 0xffffffffu

/*
 * A neighbour that a packet of raddle's own segments lacks; see image::Wanted. `group` is 0 while nothing waits here; it
 * is written last, and cleared by the daemon. What is not an IPv6 address is in `low`, in host order.
 */
struct wanted {
	__u64 high, low;
	__u32 group, kind;
};

/*
 * What routing rules look at: addresses in host order, of IPv4 in the upper halves; TOS, and protocol above it; ports in host order. Before
 * ports are known `sport` is whether the packet is a fragment, and `end` where it ends in the frame.
 */
struct rule_query {
	__u64 src[2], dst[2];
	__u32 fields, sport, dport, end;
};

/* VLAN tags that were taken off a frame: how many, and its first bytes, to put them back: MAC addresses, first and second tag. */
struct tags_off {
	__u32 count, second;
	__u64 first[2];
};

/* What send_tagged() is told: an adjacency, and the length of the frame; and what it keeps while the frame moves. */
struct push {
	__u32 number, length, packet_len, ether_type;
};

/* What belongs to one CPU. */
struct scratch {
	struct clock_entry clock;
	struct seen outer, innermost;
	struct flow_query query;
	struct srv6_ctx srv6;
	struct rule_query rule;
	struct tags_off tags;
	struct push push;
	struct wanted wanted[WANTED] __attribute__((aligned(64)));
} __attribute__((aligned(64)));

/* What the loader reads of it is where crates/image says. */
_Static_assert(sizeof(struct scratch) == SCRATCH_SIZE, "");
_Static_assert(__builtin_offsetof(struct scratch, wanted) == SCRATCH_WANTED, "");
_Static_assert(__builtin_offsetof(struct scratch, srv6.sent) == SCRATCH_SENT, "");

/* A flow's last choice: flow, group in the upper half; time and place as in crates/forward. */
struct flowlet {
	__u64 flow;
	__u32 last;
	__u32 place;
};

SECTION(config, struct config);
SECTION(links, struct link_entry);
SECTION(steps, __u64);
SECTION(learnt, __u64);
SECTION(local4, __u64);
SECTION(roots4, __u64);
SECTION(roots6, __u64);
SIZED(nodes4, __u64);
SIZED(leaves4, __u16);
SIZED(words6, __u64);
SIZED(groups, __u64);
/* As many as groups. */
SECTION(ways4, __u64);
SECTION(firewall, struct ranges);
SIZED(members, __u64);
SIZED(adjacencies, struct adjacency);
SIZED(segments, struct segment);
/* As many as segments. */
SECTION(segment_targets, struct segment_target);
SIZED(templates, __u64);
SECTION(counters, struct counter);
/* By CPU, each segment_stripe long; both have as many elements. */
SIZED(segment_counters, struct counter);
SECTION(segment_failures, struct segment_failures);
SECTION(scratch, struct scratch);
/*
 * By CPU: turns of groups, and flows. By place among the members: the stamp of the bucket of which a
 * packet was last shown to the kernel in the upper half, and when, in units of 2^20 ns.
 */
SECTION(turns, __u32);
SECTION(flowlets, struct flowlet);
SECTION(activity, __u64);

/* Where packets may go out, by interface index. An array: one load less than DEVMAP_HASH. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MAX_LINKS);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
} out_links SEC(".maps");

/* The programs that the main one goes on with; set by the loader. */
#define PROGRAM_SEGMENT 0
#define PROGRAM_ENCAP 1
#define PROGRAM_FLAVOURS 2
#define PROGRAM_CHOICE 3
#define PROGRAM_TAGS 4
#define PROGRAM_TUNNEL 5
#define PROGRAM_UNTUNNEL 6
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 7);
	__type(key, __u32);
	__type(value, __u32);
} programs SEC(".maps");

/* Counters of one CPU, and CPUs; set by the loader. */
const volatile __u32 counter_slots = ADJACENCY_COUNTERS;
const volatile __u32 counters_len = 1;
/* Segments, and places that nobody counts at, so that no two CPUs write to one line. */
const volatile __u32 segment_stripe = 4;
/* 0: segments are not counted, and the verifier leaves the code for it out. */
const volatile __u32 counting = 1;
const volatile __u32 cpus = 1;

/* Hides from the compiler where a value comes from, lest it turns arithmetic into branches. */
#define OPAQUE(x) asm volatile("" : "+r"(x))

/* All ones if a < b, else 0, without a branch: for what no branch predictor can know. */
inline_always __u64 less_mask(__u32 a, __u32 b)
{
	__u64 difference = (__u64)a - (__u64)b;

	OPAQUE(difference);
	difference = (__s64)difference >> 63;
	OPAQUE(difference);
	return difference;
}

/* The element at `index`, as `type`, of a section; for an index that is known to be inside. */
#define ELEMENT(section, type, index)           \
	({                                      \
		type *element = (void *)(section);  \
		OPAQUE(element);                \
		element + (index);              \
	})

/*
 * An index that is going to be checked, as a register of its own: what is checked has to be what is used. Linux 6.1
 * follows no copy of a value that was checked: neither that of 32 bits (`w8 = w9; if w8 < len` says nothing of r9), nor
 * the one that lies on the stack meanwhile ("R6 unbounded memory access, make sure to bounds check any such access").
 * Without this the compiler checks one and uses the other. Newer kernels (6.12) tell that they are the same.
 */
#define INDEX(x)                         \
	({                               \
		__u64 index_ = (__u32)(x); \
		OPAQUE(index_);          \
		index_;                  \
	})

/*
 * The element at `index` of a CPU's `stripe` elements: in two steps, since the compiler makes one sum of both an OR, of
 * which Linux 6.1 knows no bound ("math between map_value pointer and register with unbounded min value is not
 * allowed").
 */
#define STRIPED(section, type, stripe, cpu, index)                         \
	({                                                                 \
		type *striped = ELEMENT(section, type, (cpu) * (stripe)); \
		striped + (index);                                         \
	})

/*
 * What is there as it stands now, read whole, of a section with `length` elements; or `missing`. The index is a
 * register of its own, see INDEX; of 32 bits, as the compiler keeps it.
 */
#define READ(section, type, length, index, missing)                    \
	({                                                             \
		__u32 own_index = (index);                             \
		OPAQUE(own_index);                                     \
		READ_CHECKED(section, type, length, own_index, missing); \
	})

/* The same where the compiler checks what it uses anyway, and another register would double the verifier's work. */
#define READ_CHECKED(section, type, length, index, missing)                                \
	({                                                                                 \
		__u32 read_index = (index);                                                \
		typeof(+(type)0) read_value = (missing);                                   \
		if (read_index < (length))                                                 \
			read_value = *(volatile type *)ELEMENT(section, type, read_index); \
		read_value;                                                                \
	})

/* Reads what is there now. */
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))

/*
 * A value by way of a place in `scratch`. Of what it reads from a map the verifier knows no value: where several ways
 * meet, what follows is gone through once, and not once for each value that they bring. Without it, or without READ_ONCE
 * of what lies there already, "BPF program is too large. Processed 1000001 insn" (Linux 6.18: clang 14 for the kind of a
 * segment, clang 19 for the others).
 */
#define FORGET(place, value) ({ (place) = (value); READ_ONCE(place); })

/* The group of a value. */
inline_always __u64 group_word(__u32 value)
{
	return READ(groups, __u64, groups_len, value, GROUP_KERNEL | REASON_NO_ROUTE << 8);
}

/* The same for a value of an IPv6 table, of which some name a segment. */
inline_always __u64 group_word6(__u32 value)
{
	if (value >= SEGMENT_VALUE)
		return GROUP_SEGMENT | (__u64)(value - SEGMENT_VALUE) << 32;
	return group_word(value);
}

/* Where a segment's target is, for kinds that have one. */
inline_always const struct segment_target *target_of(__u32 number)
{
	__u64 index = INDEX(number);

	if (index >= segments_len)
		return NULL;
	return ELEMENT(segment_targets, const struct segment_target, index);
}

/* The seed of the hash by which the outer packets of a segment choose their link. */
inline_always __u32 salt_of(__u32 number)
{
	const struct segment_target *place = target_of(number);

	return place ? place->high : 0;
}

inline_always void count(__u32 stripe, __u32 slot, __u32 bytes)
{
	__u64 index = INDEX(slot + stripe);
	struct counter *c;

	if (index < counters_len) {
		c = ELEMENT(counters, struct counter, index);
		c->packets += 1;
		c->bytes += bytes;
	}
}

#endif
