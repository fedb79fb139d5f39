/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What the benchmark's programs share with their loader, src/bench.rs. */
#ifndef RADDLE_BENCH_H
#define RADDLE_BENCH_H

#include <linux/types.h>

/* Bytes of a template, and of what comes after the destination MAC; frames are at least as long. */
#define TEMPLATE 62
#define REST (TEMPLATE - 6)

/* Sinks are told apart by the low bits of their interface index. */
#define SINKS 256

#define TRAFFIC_IPV6 1u
/* Another source port for every packet. */
#define TRAFFIC_PORTS 2u
/* The next destination of the list for every packet. */
#define TRAFFIC_DESTINATIONS 4u

/* What the generator writes into every frame before it varies it. */
struct traffic {
	__u32 mac;	/* destination MAC, as in the frame */
	__u16 mac_end;
	__u16 pad;
	__u64 rest[REST / 8];
	__u32 flags;
	__u32 ports;	/* destination port in the upper half, as in the frame */
	__u64 unused[7];
} __attribute__((aligned(64)));

/* A frame that is put back before each run: its length, and its first bytes. */
#define ORIGINAL 256
struct original {
	__u32 length;
	__u32 rest[15];
	__u64 words[ORIGINAL / 8];
};

/* Words of a long template behind the destination MAC. */
#define LONG_WORDS 24

/* A frame of any headers, which the generator writes before it varies it. */
struct long_traffic {
	__u32 mac;	/* destination MAC, as in the frame */
	__u16 mac_end;
	__u16 words;	/* how many of the words there are */
	__u32 flags;	/* TRAFFIC_PORTS, TRAFFIC_DESTINATIONS: those of the first IPv6 header */
	__u32 port_at;	/* where the frame has the source port that varies */
	__u64 rest[LONG_WORDS];
	__u64 unused[6];
} __attribute__((aligned(64)));

/* An address as it is on the wire; an IPv4 one in the low half of `high`. */
struct destination {
	__u64 high, low;
};

/* A cache line for each CPU. */
struct position {
	__u64 count;
	__u32 destination;
	__u32 rest[13];
};

#endif
