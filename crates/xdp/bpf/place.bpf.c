// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Places connections: when a program connects, its socket gets a source port by which the kernel's own hash sends it along the path
 * that has the fewest connections to that destination. Nothing is denied: what cannot be placed connects as without it.
 *
 * The image is the engines', compiled for this machine's own packets: those are looked up as what comes in by lo is.
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "fib4.h"
#include "fib6.h"
#include "image.h"
#include "maps.h"
#include "parse.h"
#include "select.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define AF_INET 2
#define AF_INET6 10
/* The index that lo has in every network namespace. */
#define LOOPBACK 1
/* FIB_MULTIPATH_HASH_FIELD_*, of what a connection has. */
#define FIELD_SRC_IP 1
#define FIELD_DST_IP 2
#define FIELD_IP_PROTO 4
#define FIELD_FLOWLABEL 8
#define FIELD_SRC_PORT 16
#define FIELD_DST_PORT 32

SECTION(placing, struct placing);
/* As many as groups, and as adjacencies: see Memory::local_ways and Memory::local_sources. */
SECTION(local_ways, __u64);
SECTION(local_sources, __u64);
/* Live connections, see placing::LOADS; and what has become of all, by enum placed. */
SECTION(loads, __u32);
/* As many: which path of its group was taken last for destinations that are counted there. */
SECTION(latest, __u32);
SECTION(outcomes, __u64);

/* Sockets that were placed, by their cookies: where they are counted among `loads`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 18);
	__type(key, __u64);
	__type(value, __u32);
} placed SEC(".maps");

/* A group to choose from, and the flow but for its source port: addresses and ports as loaded. */
struct question {
	__u64 group, way;
	__u32 first, count;
	__u32 policy, fields;
	__u32 proto, dport;
	/* The source that the socket has, or zeros. */
	struct addresses a;
	/* What of these is hashed; of the source, which is known late, by a mask. */
	struct addresses hashed;
	__u64 src_mask;
	__u32 sport_mask;
	/* IPv4: the source that is known before a path is chosen, or 0. */
	__u32 source;
	__u32 v6;
	/* Adds up to where connections to the destination are counted. */
	__u32 salt;
};

/* Where connections to this destination over a path are counted. */
inline_always __u32 load_at(const struct question *q, __u32 number)
{
	return (q->salt ^ number * 0x9e3779b1u) * 0x85ebca6bu >> 16 & (PLACE_LOADS - 1);
}

inline_always __u32 load(const struct question *q, __u32 number)
{
	return *(volatile __u32 *)ELEMENT(loads, __u32, load_at(q, number));
}

/*
 * The group's members, of which any of PLACE_PATHS can be read without another check: with one for each the verifier has two ways to go
 * each time ("The sequence of 8193 jumps is too complex"). NULL where they are too near the end of the memory.
 */
inline_always const volatile __u64 *members_at(const struct question *q)
{
	__u64 first = INDEX(q->first);

	return first < members_len - PLACE_PATHS ? ELEMENT(members, const __u64, first) : NULL;
}

/* What choose() comes to for so many members at most, without a branch. */
inline_always __u32 choose_few(const volatile __u64 *of, __u32 count, __u32 hash)
{
	__u32 at = 0, rest = count;

	for (int i = 0; i < 8; i++) {
		__u32 half = rest / 2;

		at += half & less_mask((__u32)of[(at + half - 1) & (PLACE_PATHS - 1)], hash);
		rest -= half;
	}
	return of[at & (PLACE_PATHS - 1)] >> 32;
}

/* The source that a path gives, as loaded; 0 for none. */
inline_always __u32 source_of(__u32 number)
{
	return READ(local_sources, __u64, adjacencies_len, number, 0);
}

/* All ones where the hash goes over that field, without a branch: each doubled what the verifier goes through for a port. */
inline_always __u64 mask_of(__u32 fields, __u32 field)
{
	__u64 mask = fields & field;

	OPAQUE(mask);
	mask = -mask;
	OPAQUE(mask);
	return (__s64)mask >> 63;
}

/* Leaves of the flow what is hashed: under policy 1 all of it. */
inline_always void keep_hashed(struct question *q)
{
	__u32 fields = q->fields | (__u32)less_mask(q->policy, 3);
	__u64 dst = mask_of(fields, FIELD_DST_IP);

	q->proto &= mask_of(fields, FIELD_IP_PROTO);
	q->dport &= mask_of(fields, FIELD_DST_PORT);
	q->src_mask = mask_of(fields, FIELD_SRC_IP);
	q->sport_mask = mask_of(fields, FIELD_SRC_PORT);
	q->hashed.src_high = q->a.src_high & q->src_mask;
	q->hashed.src_low = q->a.src_low & q->src_mask;
	q->hashed.dst_high = q->a.dst_high & dst;
	q->hashed.dst_low = q->a.dst_low & dst;
}

/* The hash of a flow with this source and these ports: IPv4. */
inline_always __u32 hash_local4(const struct question *q, __u32 src, __u32 ports)
{
	struct key4 key = {
		.proto = q->proto,
		.ports = ports,
		.src = src & q->src_mask,
		.dst = q->hashed.dst_low,
	};

	return hash4(config, &key);
}

/* The same of IPv6, whose source is known. */
inline_always __u32 hash_local6(const struct question *q, __u32 ports)
{
	struct key6 key = {
		.proto = q->proto,
		.ports = ports,
		.a = q->hashed,
	};

	return hash6(config, &key);
}

/* The path that a connection takes with this source port (network order); see LocalWay. 0xffffffff for one that is not known. */
inline_always __u32 path_by(const struct question *q, __be16 sport)
{
	const volatile __u64 *of = members_at(q);
	__u32 ports = (sport & q->sport_mask) | q->dport << 16, number, src = q->source;

	if (!of)
		return 0xffffffff;
	if (q->v6)
		return choose_few(of, q->count, hash_local6(q, ports));
	number = choose_few(of, q->count, hash_local4(q, src, ports));
	if (src || (__u8)q->way != LOCAL_BOTH)
		return number;
	src = source_of(number);
	return src ? choose_few(of, q->count, hash_local4(q, src, ports)) : 0xffffffff;
}

/* What weigh() is told, and where it has come to. */
struct weighing {
	const struct question *q;
	__u32 at, best, best_at;
	__u64 fewest;
};

/* Looks at one path. A function for bpf_loop(), see try_port(). */
static long weigh(__u32 i, struct weighing *w)
{
	const struct question *q = w->q;
	const volatile __u64 *of = members_at(q);
	__u32 at = w->at, share, number;
	__u64 here, before, score, less;

	if (!of)
		return 1;
	here = of[at & (PLACE_PATHS - 1)];
	before = less_mask(0, at) & of[(at - 1) & (PLACE_PATHS - 1)];
	share = (__u32)here - (__u32)before;
	number = here >> 32;

	/* Without a branch, as the verifier follows each way through this again and again. */
	w->at = (at + 1) & less_mask(at + 1, q->count);
	/* A variable division, once for each path of a new connection. */
	score = (((__u64)load(q, number) + 1) << 31) / (share | 1);
	less = (__s64)(score - w->fewest) >> 63;
	w->fewest ^= (w->fewest ^ score) & less;
	w->best ^= (w->best ^ number) & less;
	w->best_at ^= (w->best_at ^ at) & less;
	return 0;
}

/*
 * The path that shall have the next connection: the one with the fewest for its share of the hash. Of those that are equal, the next one
 * after that which was taken last, so that the path of a connection that carries little (iperf3's for control, which comes first) is the
 * first to get a second one.
 */
inline_always __u32 least(const struct question *q)
{
	struct weighing w = { .q = q, .best = 0xffffffff, .fewest = ~0ULL >> 1 };
	__u32 *latest_at;

	latest_at = ELEMENT(latest, __u32, load_at(q, 0));
	w.at = READ_ONCE(*latest_at) + 1;
	w.at &= less_mask(w.at, q->count);
	bpf_loop(q->count, weigh, &w, 0);
	*(volatile __u32 *)latest_at = w.best_at;
	return w.best;
}

/* The group that the destination leads to, or why there is nothing to choose. */
inline_always int look_up(struct question *q)
{
	const struct link_entry *lo = ELEMENT(links, const struct link_entry, LOOPBACK);
	__u64 group;
	__u32 value;

	if (config->magic != IMAGE_MAGIC || lo->index != LOOPBACK)
		return PLACED_NOT_READY;
	if (lo->flags & (q->v6 ? LINK_RULES6 : LINK_RULES4))
		return PLACED_RULES;
	if (q->v6)
		value = fib6_lookup(lo->table6, bpf_be64_to_cpu(q->a.dst_high), bpf_be64_to_cpu(q->a.dst_low));
	else
		value = fib4_lookup(lo->table4, bpf_ntohl((__u32)q->a.dst_low));
	group = q->v6 ? group_word6(value) : group_word(value);
	switch ((__u8)group) {
	case GROUP_KERNEL:
	case GROUP_SINGLE:
		return PLACED_ONE_PATH;
	case GROUP_THRESHOLD:
		break;
	default:
		return PLACED_GROUP;
	}
	q->first = group >> 32;
	q->count = (__u16)(group >> 16);
	/* What is spread by rules of raddle's own is so when it is forwarded. */
	if (group >> 8 & 0xff || !q->count || q->count > PLACE_PATHS)
		return PLACED_GROUP;
	q->policy = q->v6 ? config->policy6 : config->policy4;
	q->fields = q->v6 ? config->fields6 : config->fields4;
	if (q->policy != 1 && !(q->policy == 3 && q->fields & FIELD_SRC_PORT))
		return PLACED_HASH_POLICY;
	if (!(config->flags & CONFIG_SEED_KNOWN))
		return PLACED_KEY_UNKNOWN;
	keep_hashed(q);
	if (q->v6)
		return PLACED_PLACED;
	q->way = READ(local_ways, __u64, groups_len, value, LOCAL_UNKNOWN);
	if ((__u8)q->way == LOCAL_UNKNOWN)
		return PLACED_SOURCE_UNKNOWN;
	/* The kernel may prefer a path for the source that the socket has. */
	if (q->a.src_low && !(q->way & LOCAL_ANY_SOURCE) && q->a.src_low != q->way >> 32)
		return PLACED_SOURCE_UNKNOWN;
	q->source = q->a.src_low ? q->a.src_low : q->way >> 32;
	return PLACED_PLACED;
}

/* Gives the socket a port (network order); not 0 where that is not free. */
inline_always int bind_to(struct bpf_sock_addr *ctx, int family, const struct question *q, __be16 port)
{
	if (family == AF_INET) {
		struct sockaddr_in sin = {
			.sin_family = AF_INET,
			.sin_port = port,
			.sin_addr.s_addr = q->a.src_low,
		};

		return bpf_bind(ctx, (struct sockaddr *)&sin, sizeof(sin));
	}
	struct sockaddr_in6 sin6 = {
		.sin6_family = AF_INET6,
		.sin6_port = port,
	};

	if (q->v6) {
		sin6.sin6_addr.in6_u.u6_addr32[0] = q->a.src_high;
		sin6.sin6_addr.in6_u.u6_addr32[1] = q->a.src_high >> 32;
		sin6.sin6_addr.in6_u.u6_addr32[2] = q->a.src_low;
		sin6.sin6_addr.in6_u.u6_addr32[3] = q->a.src_low >> 32;
	} else if (q->a.src_low) {
		sin6.sin6_addr.in6_u.u6_addr32[2] = bpf_htonl(0xffff);
		sin6.sin6_addr.in6_u.u6_addr32[3] = q->a.src_low;
	}
	return bpf_bind(ctx, (struct sockaddr *)&sin6, sizeof(sin6));
}

/* Counts a socket that has its place. One that could not be remembered is not counted: nobody would count it out again. */
inline_always void count_in(struct bpf_sock_addr *ctx, __u32 at)
{
	__u64 cookie = bpf_get_socket_cookie(ctx), index = INDEX(at);

	if (index < PLACE_LOADS && !bpf_map_update_elem(&placed, &cookie, &at, BPF_NOEXIST))
		__sync_fetch_and_add(ELEMENT(loads, __u32, index), 1);
}

inline_always int is_allowed(__u32 port)
{
	return placing->allowed[port >> 6 & 1023] >> (port & 63) & 1;
}

/* What try_port() is told, and where it has come to. */
struct search {
	struct bpf_sock_addr *ctx;
	struct question *q;
	__u32 wanted, at, family;
	/* Ports that lead to the path and were not free. */
	__u32 refused;
	__u32 is_placed;
};

/*
 * Tries one port. A function for bpf_loop(), lest the verifier goes through it for each port anew: "BPF program is too large. Processed
 * 1000001 insn".
 */
static long try_port(__u32 i, struct search *s)
{
	__u32 low = placing->low, span = placing->span, port = low + s->at;

	s->at = (s->at + 1) & less_mask(s->at + 1, span);
	if (!is_allowed(port) || path_by(s->q, bpf_htons(port)) != s->wanted)
		return 0;
	if (!bind_to(s->ctx, s->family, s->q, bpf_htons(port))) {
		s->is_placed = 1;
		return 1;
	}
	s->refused += 1;
	return s->refused >= PLACE_REFUSED;
}

/* Tries ports from a random one on until one leads to the path and is free. */
inline_always int take_port(struct bpf_sock_addr *ctx, int family, struct question *q)
{
	struct search s = { .ctx = ctx, .q = q, .family = family };
	__u32 span = placing->span;

	if (!span)
		return PLACED_NOT_READY;
	s.wanted = least(q);
	s.at = bpf_get_prandom_u32() % span;
	bpf_loop(PLACE_TRIES, try_port, &s, 0);
	if (!s.is_placed)
		return PLACED_NO_PORT;
	count_in(ctx, load_at(q, s.wanted));
	return PLACED_PLACED;
}

/* Why the socket is left alone, or PLACED_PLACED if it is not. */
inline_always int is_free(struct bpf_sock_addr *ctx, struct question *q)
{
	struct bpf_sock *sk = ctx->sk;

	q->proto = ctx->protocol;
	q->dport = (__u16)ctx->user_port;
	if (q->proto != IPPROTO_TCP && q->proto != IPPROTO_UDP)
		return PLACED_PROTOCOL;
	if (!sk)
		return PLACED_NOT_READY;
	if (sk->src_port)
		return PLACED_BOUND;
	if (sk->bound_dev_if)
		return PLACED_BOUND_TO_LINK;
	if (!q->v6) {
		q->a.src_low = sk->src_ip4;
	} else {
		q->a.src_high = sk->src_ip6[0] | (__u64)sk->src_ip6[1] << 32;
		q->a.src_low = sk->src_ip6[2] | (__u64)sk->src_ip6[3] << 32;
	}
	return PLACED_PLACED;
}

inline_always void place(struct bpf_sock_addr *ctx, int family, struct question *q)
{
	__u64 index;
	int outcome;

	/* Other network namespaces have routes of their own. */
	if (!placing->netns || bpf_get_netns_cookie(ctx) != placing->netns)
		return;
	q->salt = (q->a.dst_high ^ q->a.dst_low) * 0x9e3779b97f4a7c15ULL >> 32;
	outcome = is_free(ctx, q);
	if (outcome == PLACED_PLACED)
		outcome = look_up(q);
	if (outcome == PLACED_PLACED)
		outcome = take_port(ctx, family, q);
	index = INDEX(outcome);
	if (index < PLACE_OUTCOMES)
		__sync_fetch_and_add(ELEMENT(outcomes, __u64, index), 1);
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx)
{
	struct question q = { .a.dst_low = ctx->user_ip4 };

	place(ctx, AF_INET, &q);
	return 1;
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx)
{
	__u32 third = ctx->user_ip6[2], fourth = ctx->user_ip6[3];
	struct question q = {
		.v6 = 1,
		.a.dst_high = ctx->user_ip6[0] | (__u64)ctx->user_ip6[1] << 32,
		.a.dst_low = third | (__u64)fourth << 32,
	};

	/* IPv4 by an IPv6 socket: what the kernel goes on with has IPv4's routes. */
	if (!q.a.dst_high && third == bpf_htonl(0xffff)) {
		q.v6 = 0;
		q.a.dst_low = fourth;
	}
	place(ctx, AF_INET6, &q);
	return 1;
}

/* A socket goes, and its connection with it. */
SEC("cgroup/sock_release")
int released(struct bpf_sock *sk)
{
	__u64 cookie = bpf_get_socket_cookie(sk), index;
	__u32 *at = bpf_map_lookup_elem(&placed, &cookie);

	if (!at)
		return 1;
	index = INDEX(*at);
	if (index < PLACE_LOADS)
		__sync_fetch_and_add(ELEMENT(loads, __u32, index), -1);
	bpf_map_delete_elem(&placed, &cookie);
	return 1;
}
