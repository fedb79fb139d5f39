/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * SipHash-2-4 as the kernel's multipath selection uses it, from a state that already holds the key
 * and the constant words of the flow key (struct config, sip_key and sip_mid).
 */
#ifndef RADDLE_SIPHASH_H
#define RADDLE_SIPHASH_H

#include "maps.h"

struct sip {
	__u64 v0, v1, v2, v3;
};

#define ROTL(x, n) (((x) << (n)) | ((x) >> (64 - (n))))

#define SIP_ROUND(s)                                        \
	do {                                                \
		(s).v0 += (s).v1;                           \
		(s).v1 = ROTL((s).v1, 13) ^ (s).v0;         \
		(s).v0 = ROTL((s).v0, 32);                  \
		(s).v2 += (s).v3;                           \
		(s).v3 = ROTL((s).v3, 16) ^ (s).v2;         \
		(s).v0 += (s).v3;                           \
		(s).v3 = ROTL((s).v3, 21) ^ (s).v0;         \
		(s).v2 += (s).v1;                           \
		(s).v1 = ROTL((s).v1, 17) ^ (s).v2;         \
		(s).v2 = ROTL((s).v2, 32);                  \
	} while (0)

#define SIP_WORD(s, m)               \
	do {                         \
		__u64 word = (m);    \
		(s).v3 ^= word;      \
		SIP_ROUND(s);        \
		SIP_ROUND(s);        \
		(s).v0 ^= word;      \
	} while (0)

#define SIP_LOAD(s, from)        \
	do {                     \
		(s).v0 = (from)[0]; \
		(s).v1 = (from)[1]; \
		(s).v2 = (from)[2]; \
		(s).v3 = (from)[3]; \
	} while (0)

/* Absorbs the last word, of which the first byte is the length, and finishes: the low 32 bits. */
#define SIP_FINISH32(s, last)                                                \
	({                                                                   \
		SIP_WORD(s, last);                                           \
		(s).v2 ^= 0xff;                                              \
		SIP_ROUND(s);                                                \
		SIP_ROUND(s);                                                \
		SIP_ROUND(s);                                                \
		SIP_ROUND(s);                                                \
		(__u32)((s).v0 ^ (s).v1 ^ (s).v2 ^ (s).v3);                  \
	})

/* The same without anything before the length, less the lowest bit. */
#define SIP_FINISH31(s, length) (SIP_FINISH32(s, (__u64)(length) << 56) >> 1)

/* The state with a key, before any word. */
#define SIP_KEYED(s, key)                                   \
	do {                                                \
		(s).v0 = 0x736f6d6570736575ULL ^ (key)[0];  \
		(s).v1 = 0x646f72616e646f6dULL ^ (key)[1];  \
		(s).v2 = 0x6c7967656e657261ULL ^ (key)[0];  \
		(s).v3 = 0x7465646279746573ULL ^ (key)[1];  \
	} while (0)

#endif
