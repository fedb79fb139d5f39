/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * IPv6 longest-prefix match: a chain of entries that each resolve 16 bits of the address, or more.
 *
 * An entry is a value, or one of five structures in words6: an array of 65536 entries (direct),
 * the same compressed by rank (group), a sorted run of intervals (block), bits that the address
 * has or has not (compare), or a hash table of all that is left of the address (hosts).
 */
#ifndef RADDLE_FIB6_H
#define RADDLE_FIB6_H

#include "fib4.h"

inline_always __u32 half6(__u32 half)
{
	return READ_CHECKED(words6, __u32, words6_len * 2, half, 0);
}

inline_always __u64 word6(__u32 word)
{
	return READ_CHECKED(words6, __u64, words6_len, word, ~0ULL);
}

#define EACH_CELL 0x0001000100010001ULL
#define TOP_BITS 0x8000800080008000ULL

/* In each of the four 16-bit cells of a word: the top bit, if the cell is below `key`. */
inline_always __u64 cells_below(__u64 word, __u32 key)
{
	__u64 keys = key * EACH_CELL;
	/* The top bits of (word - keys) less their own part: no cell borrows from the next. */
	__u64 low = (word | TOP_BITS) - (keys & ~TOP_BITS);

	return ((~word & keys) | ~((word ^ keys) | low)) & TOP_BITS;
}

/* How many of the three ends of a block of one word are below `key`. */
inline_always __u32 ends_below(__u64 word, __u32 key)
{
	__u64 k = key, first = (word >> 16 & 0xffff) - k, second = (word >> 32 & 0xffff) - k;
	__u64 third = (word >> 48) - k;

	return (first >> 63) + (second >> 63) + (third >> 63);
}

/* The entry for `key` in the block of intervals at word `at`. */
inline_always __u32 fib6_block(__u32 at, __u32 key)
{
	__u64 word = READ(words6, __u64, words6_len, at, ~0ULL), below;
	__u32 words = ((word & 0xffff) >> 2) + 1;
	__u32 entries = at + words, rank;

	if (words > 1) {
		__u32 first = at, rest = words;

		/* To the last word that begins below `key`, by halves, without a branch on it. */
		NO_UNROLL for (int i = 0; i < 14 && rest > 1; i++) {
			__u32 half = rest / 2;

			first += half & less_mask(word6(first + half) & 0xffff, key);
			rest -= half;
		}
		/* All cells before that word are below, but the count is one of them. */
		word = word6(first);
		word |= 0xffff & ~less_mask(at, first);
		below = cells_below(word, key);
		first = (first - at) * 4;
		first -= 1 & less_mask(0, first);
		return half6(entries * 2 + first + ((below >> 15) * EACH_CELL >> 48));
	}
	rank = ends_below(word, key);
	return half6((at + 1) * 2 + rank);
}

inline_always __u32 fib6_group(__u32 at, __u32 key)
{
	__u64 node = READ_CHECKED(words6, __u64, words6_len, at + (key >> 5), 0);
	__u32 below = 0xffffffff >> (31 - (key & 31));
	__u32 rank = ones(((__u32)node | 1) & below);

	return half6((__u32)(node >> 32) + rank - 1);
}

struct address {
	__u64 high, low;
};

/* The entry or value behind the bits that are compared at word `at`: those up to 64, or more. */
inline_always __u32 fib6_compare(__u32 at, __u32 longer, struct address *rest)
{
	__u64 index = INDEX(at), word, differ;
	const volatile __u64 *s;
	__u32 past;

	/* As in fib6_hosts(). */
	if (words6_len < 2 || index > words6_len - 2)
		return 0;
	s = ELEMENT(words6, const volatile __u64, index);
	differ = rest->high ^ s[0];
	word = s[1];
	past = word & 63;
	if (longer) {
		differ |= (rest->low ^ word6(at + 2)) >> past;
		rest->high = rest->low << 1 << (63 - past);
		rest->low = 0;
	} else {
		differ >>= past;
		rest->high = rest->high << 1 << (63 - past) | rest->low >> past;
		rest->low = rest->low << 1 << (63 - past);
	}
	return differ ? (__u32)word >> 6 : word >> 32;
}

/* Lines that a look-up in a hash table of hosts goes through at most; words and slots of a line. */
#define HOST_LINES 16
#define LINE_WORDS 8
#define LINE_SLOTS 4
#define HASH_FACTOR 0x9e3779b97f4a7c15ULL

/* All ones if `x` is 0, else 0, without a branch. */
inline_always __u64 zero_mask(__u64 x)
{
	__u64 mask = x | -x;

	OPAQUE(mask);
	return (mask >> 63) - 1;
}

/*
 * The value of a host in the hash table at word `at`, which is of the bits that are left behind some of its address; or
 * the table's answer for others. A slot is the first 64 bits, then the next 32 above the value, whose top bit says that
 * the host is gone. Places are checked once, for all lines: the verifier goes through each.
 *
 * All slots of a line are compared without a branch, since nobody can know which one it will be: what comes behind the
 * look-up would wait for the line otherwise. A slot that nobody had yet has value 0, and so have all behind it.
 */
static __noinline __u32 fib6_hosts(__u32 at, __u64 high, __u64 low)
{
	__u64 index = INDEX(at), head, hash, second;
	__u32 lines, outside, past, host;
	const volatile __u64 *s;

	/*
	 * Both words by one check: with two, Linux 6.1 goes on where the second word is there and the first is not, and finds
	 * that no index is below its least value ("R4 invalid mem access 'scalar'").
	 */
	if (words6_len < 2 || index > words6_len - 2)
		return 0;
	s = ELEMENT(words6, const volatile __u64, index);
	head = s[0];
	past = s[1];
	lines = head >> 32;
	outside = head;
	/* 32 bits at least, a multiple of 16. */
	if (past >= 64) {
		high = low;
		low = 0;
	}
	past &= 63;
	high = high << past | low >> 1 >> (63 - past);
	host = low << past >> 32;
	hash = (high ^ (__u64)host << 29) * HASH_FACTOR;
	hash = (hash ^ hash >> 32) * HASH_FACTOR;
	index = INDEX(((at + LINE_WORDS) & ~(LINE_WORDS - 1)) + (__u32)((hash >> 32) * lines >> 32) * LINE_WORDS);
	if (words6_len < HOST_LINES * LINE_WORDS || index > words6_len - HOST_LINES * LINE_WORDS)
		return outside;
	s = ELEMENT(words6, const volatile __u64, index);
	NO_UNROLL for (int i = 0; i < HOST_LINES; i++) {
		__u64 found = 0;

		for (int slot = 0; slot < LINE_SLOTS; slot++) {
			second = s[2 * slot + 1];
			found |= second & zero_mask((second >> 32 ^ host) | (s[2 * slot] ^ high));
		}
		if ((__u32)found)
			return found & 0x80000000 ? outside : found;
		if (!(__u32)second)
			return outside;
		s += LINE_WORDS;
	}
	return outside;
}

/* Value for an address (both halves in host order) in a table; 0 is "no route". 8 steps at most. */
inline_always __u32 fib6_lookup(__u32 table, __u64 high, __u64 low)
{
	/* The first word is 0, which the verifier does not know: with it, ways become one that it told apart, see FORGET. */
	__u64 zero = READ_ONCE(*ELEMENT(words6, __u64, 0));
	__u32 entry = (__u32)READ(roots6, __u64, MAX_TABLES, table, 0) ^ (__u32)zero;
	struct address rest = { high ^= zero, low ^= zero };

	NO_UNROLL for (int level = 0; level < 8; level++) {
		__u32 key = rest.high >> 48, at = entry & 0x0fffffff;

		if (!(entry >> 31) || entry >> 28 == 0xf)
			break;
		if (entry >> 28 == 0xd) {
			entry = fib6_compare(at & ~1, at & 1, &rest);
		} else {
			rest.high = rest.high << 16 | rest.low >> 48;
			rest.low <<= 16;
			if (!(entry & 0x40000000))
				entry = fib6_block(at, key);
			else if (!(entry & 0x20000000))
				entry = fib6_group(at, key);
			else
				entry = half6(at * 2 + key);
		}
		entry ^= zero;
		rest.high ^= zero;
		rest.low ^= zero;
	}
	if (entry >> 28 == 0xf)
		entry = fib6_hosts(entry & 0x0fffffff, high, low);
	else if (entry >> 31)
		entry = 0;
	return entry ^ zero;
}

#endif
