/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The image as the XDP program sees it. Made from crates/image by `cargo xtask generate`: change it there. A test
 * fails where this file is not what comes out.
 *
 * Numbers are in host byte order, MAC addresses in the order of the wire.
 */
#ifndef RADDLE_IMAGE_H
#define RADDLE_IMAGE_H

#include <linux/types.h>

#define IMAGE_MAGIC 0x364c656c64646172ULL

/* Sizes and places; see the constants of these names. */
#define MAX_LINKS 16384
#define MAX_TABLES 1024
#define LOCAL_BITS 65536
#define RANGES 16
#define RULE_KERNEL 1
#define RULE_TABLES 2
#define ZONE_FILTERED_APART 128
#define REASON_DROPPED 64
#define REASON_COUNTERS 128
#define LINK_COUNTERS 1024
#define LEFT_COUNTERS 1152
#define ADJACENCY_COUNTERS 2176
#define ROUND_ROBIN_SLOTS 1024
#define FLOWLETS 4096
#define WANTED 16
#define SEGMENT_FAILED 2
#define SEGMENT_FAILURES 14
#define STEP_BUCKETS 8192
#define STEP_BUCKET 8
#define STEP_FACTOR 2654435761
#define STEP_USED 2147483648
#define STEP_STAG 4096
#define STEP_ALL 8192
#define STEP_UNTAGGED 12288
#define STEP_MAC 16384
#define STEP_MAC_BITS 16383
#define STEP_PORT 32768
#define MAX_STEPS 4
#define LEARNT_BUCKETS 16384
#define LEARNT_BUCKET 8
#define LEARNT_FACTOR 11400714819323198485ULL
#define MAX_TAGS 2
#define TAG 4
#define MAX_BONDED 11
#define TUNNEL_IPV4 20
#define TUNNEL_GRE 4
#define TUNNEL_VXLAN 30
#define TUNNEL_MOST 50
#define TUNNEL_END 3
#define TUNNEL_KEYED 4294967296
#define SCRATCH_SIZE 4352
#define SCRATCH_WANTED 3968
#define SCRATCH_SENT 440

/* struct config, flags; see config_flags */
#define CONFIG_HOLD 1
#define CONFIG_SEED_KNOWN 2
#define CONFIG_ONE_BUFFER 4

/* What holds for all packets; see Config. */
struct config {
	__u64 magic;
	__u32 flags;
	__u32 seed;
	__u8 policy4;
	__u8 policy6;
	__u16 fields4;
	__u16 fields6;
	__u8 pad[2];
	__u64 deadline;
	__u64 sip_key[4];
	__u64 sip_mid[256][4];
	__u64 label_key[2];
	__u64 port_key[2];
};

/* struct link_entry, flags; see link_flags */
#define LINK_ENABLED 1
#define LINK_FORWARD4 2
#define LINK_FORWARD6 4
#define LINK_RP_FILTER 8
#define LINK_RULES4 16
#define LINK_RULES6 32
#define LINK_ACCEPT_LOCAL 64
#define LINK_HMAC_REQUIRED 128
#define LINK_HMAC_IGNORED 256
#define LINK_RP_BEHIND 512
#define LINK_WAY_BACK 1024
#define LINK_GUARDED 2048
#define LINK_TRACKED4 4096
#define LINK_TRACKED6 8192
#define LINK_NO_SEGMENTS 16384
#define LINK_RULES4_BEHIND 32768
#define LINK_RULES6_BEHIND 65536
#define LINK_FILTERED_APART 131072
#define LINK_VLANS 262144
#define LINK_PORT 524288
#define LINK_MACVLANS 1048576
#define LINK_NO_TUNNELS 2097152

/* A network device, by interface index; see LinkEntry. */
struct link_entry {
	__u32 flags;
	__u32 slot;
	__u8 mac[6];
	__u16 pad;
	__u32 index;
	__u32 table4;
	__u32 table6;
	__u32 sources4;
	__u32 back4;
	__u32 way;
	__u64 closed4;
	__u64 closed6;
	__u16 ranges4;
	__u16 ranges6;
	__u16 rules4;
	__u16 rules6;
} __attribute__((aligned(64)));

/* Packets that are the kernel's on some links, or looked up otherwise; see Ranges. */
struct range4 {
	__u32 src;
	__u32 src_span;
	__u32 dst;
	__u32 dst_span;
};

struct range6 {
	__u64 src[2];
	__u64 src_last[2];
	__u64 dst[2];
	__u64 dst_last[2];
};

struct selector {
	__u32 fields;
	__u32 sport;
	__u32 dport;
	__u32 to;
};

struct ranges {
	struct range4 v4[RANGES];
	struct range6 v6[RANGES];
	struct range4 rules4[RANGES];
	struct range6 rules6[RANGES];
	struct selector selectors4[RANGES];
	struct selector selectors6[RANGES];
};

/* struct bonded, policies; see BondPolicy */
#define BOND_LAYER2 0
#define BOND_LAYER34 1
#define BOND_LAYER23 2

/* struct adjacency, states */
#define ADJ_KERNEL 0
#define ADJ_FORWARD 1
#define ADJ_SEGMENT 2
#define ADJ_TAGGED 3
#define ADJ_TUNNEL 4

/* struct tunnel, kinds; see tunnel_kind */
#define TUNNEL_KIND_IP 1
#define TUNNEL_KIND_GRE 2
#define TUNNEL_KIND_VXLAN 3

/* struct tunnel, flags; see tunnel_flags */
#define TUNNEL_F_CARRIES4 1
#define TUNNEL_F_CARRIES6 2
#define TUNNEL_F_HAS_KEY 4
#define TUNNEL_F_CHECKSUM 8
#define TUNNEL_F_TTL_INNER 16
#define TUNNEL_F_TOS_INNER 32
#define TUNNEL_F_DF 64
#define TUNNEL_F_DF_INNER 128

/* What packets are put into that leave by a tunnel; see Tunnel. */
struct tunnel {
	__u8 src[4];
	__u8 dst[4];
	__u8 key[4];
	__u8 kind;
	__u8 flags;
	__u8 ttl;
	__u8 tos;
	__u16 port;
	__u16 sport;
	__u16 sports;
	__u16 pad;
	__u32 salt;
};

/* Members of a bond that frames with a tag leave by; see Bonded. */
struct bonded {
	__u32 reciprocal;
	__u16 members[11];
	__u8 policy;
	__u8 count;
};

/* A nexthop resolved to bytes; see Adjacency. The first word is published last, so it is read first, at once. */
struct adjacency {
	__u32 index;
	__u8 state;
	__u8 reason;
	__u8 zone;
	__u8 tags;
	__u8 dst_mac[6];
	__u8 src_mac[6];
	__u32 mtu;
	__u32 lower;
	__u32 tag[2];
	union {
		struct tunnel tunnel;	/* ADJ_TUNNEL */
		struct bonded bonded;	/* ADJ_TAGGED */
	};
} __attribute__((aligned(64)));

/* Group words: the kind is the low byte; see Group */
#define GROUP_KERNEL 0
#define GROUP_SINGLE 1
#define GROUP_THRESHOLD 2
#define GROUP_RESILIENT 3
#define GROUP_ROUND_ROBIN 4
#define GROUP_FLOWLET 5
#define GROUP_SEGMENT 6

/* The second byte of GROUP_SINGLE for a neighbour on a connected prefix, and of those from GROUP_THRESHOLD on; what is added for raddle's own; values of IPv6 tables that name a segment */
#define SINGLE_NEIGHBOUR 1
#define HOW_FOLLOWS 128
#define GROUP_NO_PUNT 16384
#define SEGMENT_VALUE 33554432

/* struct segment, kinds; see segment_kind */
#define SEGMENT_KERNEL 0
#define SEGMENT_END 1
#define SEGMENT_END_X 2
#define SEGMENT_END_T 3
#define SEGMENT_END_DX2 4
#define SEGMENT_END_DX6 5
#define SEGMENT_END_DX4 6
#define SEGMENT_END_DT6 7
#define SEGMENT_END_DT4 8
#define SEGMENT_END_B6 9
#define SEGMENT_END_B6_ENCAPS 10
#define SEGMENT_END_DT46 16
#define SEGMENT_END_DX2V 24
#define SEGMENT_INSERT 32
#define SEGMENT_ENCAPS 33
#define SEGMENT_ENCAPS_L2 34
#define SEGMENT_TUNNEL_END 48

/* struct segment, flavours; see flavours */
#define FLAVOUR_PSP 2
#define FLAVOUR_USP 4
#define FLAVOUR_USD 8
#define FLAVOUR_NEXT_CSID 16
#define FLAVOUR_REPLACE_CSID 32

/* struct segment, flags; see segment_flags */
#define SEGMENT_HAS_COUNTERS 1
#define SEGMENT_NO_PUNT 2
#define SEGMENT_REDUCED 4
#define SEGMENT_HAS_SRH 8
#define SEGMENT_DIRECT_NH4 16
#define SEGMENT_LABEL_FROM_FLOW 32
#define SEGMENT_LABEL_FROM_INNER 64

#define LINK_TABLE 0xffffffffu

/*
 * What all packets read of an SRv6 behaviour or encapsulation; see Segment. The first word is published last, so it is
 * read first, at once.
 */
struct segment {
	__u8 kind;
	__u8 reason;
	__u8 flavours;
	__u8 flags;
	__u8 block;
	__u8 csid;
	__u16 size;
	union {
		__u32 out;	/* SEGMENT_END_DX2 */
		__u32 template;	/* SEGMENT_END_DX2V, SEGMENT_TUNNEL_END, and those with a template */
		__u32 table4;	/* all others */
	};
	union {
		__u32 mtu;	/* SEGMENT_END_DX2 */
		__u32 vlans;	/* SEGMENT_END_DX2V, SEGMENT_TUNNEL_END: how many entries */
		__u32 table6;	/* all others */
	};
} __attribute__((aligned(16)));

/*
 * The address that End.X, End.DX4 and End.DX6 look up, in the order of the wire; or in `high` the salt of those with a
 * template. Others do not read it.
 */
struct segment_target {
	__u64 high, low;
};

/* struct wanted, kinds; see wanted_kind */
#define WANTED_HOST6 0
#define WANTED_HOST4 1
#define WANTED_ADJACENCY 2

/* One counter of one CPU. Counter `slot` of CPU `c` is at c * counter_slots + slot. */
struct counter {
	__u64 packets;
	__u64 bytes;
};

/*
 * What one CPU counts of one segment; see segment_counter. Packets and bytes of those that it was carried out on are a
 * struct counter, apart from the others: most packets touch nothing else.
 */
struct segment_failures {
	__u64 values[SEGMENT_FAILURES];
};

/* Why a packet is not forwarded; see Reason. */
enum reason {
	REASON_FORWARDED = 0,
	REASON_NOT_ENABLED = 1,
	REASON_HELD = 2,
	REASON_NOT_IP = 3,
	REASON_VLAN = 4,
	REASON_OTHER_MAC = 5,
	REASON_TRUNCATED = 6,
	REASON_BAD_HEADER = 7,
	REASON_BAD_CHECKSUM = 8,
	REASON_BAD_LENGTH = 9,
	REASON_OPTIONS = 10,
	REASON_TTL_EXCEEDED = 11,
	REASON_MARTIAN_SOURCE = 12,
	REASON_MARTIAN_DESTINATION = 13,
	REASON_LOCAL_SOURCE = 14,
	REASON_RP_FILTER = 15,
	REASON_FORWARDING_OFF = 16,
	REASON_LOCAL = 17,
	REASON_BROADCAST = 18,
	REASON_MULTICAST = 19,
	REASON_ANYCAST = 20,
	REASON_LINK_LOCAL = 21,
	REASON_NO_ROUTE = 22,
	REASON_BLACKHOLE = 23,
	REASON_UNREACHABLE = 24,
	REASON_PROHIBIT = 25,
	REASON_THROW = 26,
	REASON_UNRESOLVED = 27,
	REASON_OUT_LINK = 28,
	REASON_SAME_LINK = 29,
	REASON_MTU = 30,
	REASON_SEED_UNKNOWN = 31,
	REASON_HASH_POLICY = 32,
	REASON_RULES = 33,
	REASON_ENCAP = 34,
	REASON_ROUTE_FEATURE = 35,
	REASON_RESILIENT = 36,
	REASON_IMAGE_FULL = 37,
	REASON_DEEP_HEADERS = 38,
	REASON_REDIRECT_FAILED = 39,
	REASON_BUCKET_ACTIVITY = 40,
	REASON_NO_SRH = 41,
	REASON_SEGMENTS_LEFT = 42,
	REASON_BAD_SRH = 43,
	REASON_HMAC = 44,
	REASON_PAYLOAD = 45,
	REASON_SEGMENT_LINK = 46,
	REASON_HMAC_CHECK = 47,
	REASON_SID_CHAIN = 48,
	REASON_HEADROOM = 49,
	REASON_SOURCE_CHECK = 50,
	REASON_EXPIRING = 51,
	REASON_FIREWALL = 52,
	REASON_SEVERAL_BUFFERS = 53,
	REASON_BRIDGE = 54,
	REASON_COUNT
};

/* One bit for each reason for which packets are dropped, at its number. */
#define REASON_DROPS 0x7e0000800000ULL

/* One bit for each reason of packets that no engine ever forwards, at its number. */
#define REASON_NOT_TRANSIT 0x3e002aULL

/* Where a segment counts packets that it was not carried out on, by the reason; see segment_counter::of. */
static inline __attribute__((always_inline)) __u32 failed_slot(__u32 reason)
{
	switch (reason) {
	case REASON_NO_SRH:
		return 2;
	case REASON_SEGMENTS_LEFT:
		return 3;
	case REASON_BAD_SRH:
		return 4;
	case REASON_HMAC:
		return 5;
	case REASON_PAYLOAD:
		return 6;
	case REASON_SEGMENT_LINK:
		return 7;
	case REASON_TTL_EXCEEDED:
		return 8;
	case REASON_MTU:
		return 9;
	case REASON_NO_ROUTE:
		return 10;
	case REASON_UNRESOLVED:
		return 11;
	case REASON_HMAC_CHECK:
		return 12;
	case REASON_SID_CHAIN:
		return 13;
	default:
		return 14;
	}
}

#endif
