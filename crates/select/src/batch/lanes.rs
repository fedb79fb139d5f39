//! The hash in the lanes of vector registers of x86-64: the same code for both kinds of registers.
//!
//! Two registers go side by side, since an operation takes longer than until the next may start.

/// Writes what is the same for all registers, over `Register`, `LANES` and the operations of the module.
macro_rules! in_lanes {
    ($features:literal) => {
        /// Keys that are hashed together.
        const TOGETHER: usize = 2 * LANES;
        /// Fewer keys than this are hashed faster one by one.
        const WORTH_IT: usize = TOGETHER / 4;
        /// A number of each key that is hashed.
        type Pair = [Register; 2];

        #[inline]
        #[target_feature(enable = $features)]
        fn add_both(a: Pair, b: Pair) -> Pair {
            [add(a[0], b[0]), add(a[1], b[1])]
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn xor_both(a: Pair, b: Pair) -> Pair {
            [xor(a[0], b[0]), xor(a[1], b[1])]
        }

        /// The round of [`crate::hash`].
        #[inline]
        #[target_feature(enable = $features)]
        fn round(v: &mut [Pair; 4]) {
            v[0] = add_both(v[0], v[1]);
            v[2] = add_both(v[2], v[3]);
            v[1] = xor_both([rotate_13(v[1][0]), rotate_13(v[1][1])], v[0]);
            v[3] = xor_both([rotate_16(v[3][0]), rotate_16(v[3][1])], v[2]);
            v[0] = [rotate_32(v[0][0]), rotate_32(v[0][1])];
            v[2] = add_both(v[2], v[1]);
            v[0] = add_both(v[0], v[3]);
            v[1] = xor_both([rotate_17(v[1][0]), rotate_17(v[1][1])], v[2]);
            v[3] = xor_both([rotate_21(v[3][0]), rotate_21(v[3][1])], v[0]);
            v[2] = [rotate_32(v[2][0]), rotate_32(v[2][1])];
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn absorb(v: &mut [Pair; 4], word: Pair) {
            v[3] = xor_both(v[3], word);
            round(v);
            round(v);
            v[0] = xor_both(v[0], word);
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn same(word: u64) -> Pair {
            [splat(word), splat(word)]
        }

        /// The numbers of a column from a place on; zeros behind its end.
        #[inline]
        #[target_feature(enable = $features)]
        fn pair(column: &[u64; KeyBatch::ROOM], from: usize) -> Pair {
            match column
                .get(from..)
                .and_then(<[u64]>::first_chunk::<TOGETHER>)
            {
                Some(words) => {
                    let (halves, _) = words.as_chunks::<LANES>();
                    [load(&halves[0]), load(&halves[1])]
                }
                None => same(0),
            }
        }

        /// The state behind the first three words.
        #[inline]
        #[target_feature(enable = $features)]
        fn start(
            starts: &Starts<'_>,
            first: &[u64; KeyBatch::ROOM],
            places: Range<usize>,
        ) -> [Pair; 4] {
            let one = first[places.start];
            if first[places.clone()].iter().all(|other| *other == one) {
                return starts.of(one).map(|word| same(word));
            }
            // To gather a state for each lane takes longer than to absorb three words more.
            let mut v = starts.hasher.key.map(|word| same(word));
            absorb(&mut v, pair(first, places.start));
            absorb(&mut v, same(0));
            absorb(&mut v, same(0));
            v
        }

        /// Absorbs the last word, as [`crate::hash`] does, and writes the sums.
        #[inline]
        #[target_feature(enable = $features)]
        fn finish(mut v: [Pair; 4], length: u64, sums: &mut [u64; TOGETHER]) {
            absorb(&mut v, same(length << 56));
            v[2] = xor_both(v[2], same(0xff));
            for _ in 0..4 {
                round(&mut v);
            }
            let sum = xor_both(xor_both(v[0], v[1]), xor_both(v[2], v[3]));
            let (halves, _) = sums.as_chunks_mut::<LANES>();
            for (half, sum) in halves.iter_mut().zip(sum) {
                store(half, sum);
            }
        }

        /// The hashes of one message under each of the first `len` keys, which are both words of SipHash's key.
        #[target_feature(enable = $features)]
        pub(in crate::batch) fn under_keys<const WORDS: usize>(
            words: &[u64; WORDS],
            length: u64,
            keys: &[u64; KeyBatch::ROOM],
            len: usize,
            sums: &mut [u64; KeyBatch::ROOM],
        ) {
            let start = keyed(HashKey::new(0, 0));
            let chunks = sums.as_chunks_mut::<TOGETHER>().0;
            for (chunk, sums_here) in chunks.iter_mut().enumerate().take(len.div_ceil(TOGETHER)) {
                let key = pair(keys, chunk * TOGETHER);
                let mut v = start.map(|word| xor_both(same(word), key));
                for word in words {
                    absorb(&mut v, same(*word));
                }
                finish(v, length, sums_here);
            }
        }

        /// The hashes of the first `len` keys.
        #[target_feature(enable = $features)]
        pub(in crate::batch) fn all<const WORDS: usize>(
            starts: &Starts<'_>,
            keys: &Waiting<WORDS>,
            len: usize,
            length: u64,
            sums: &mut [u64; KeyBatch::ROOM],
        ) {
            for (chunk, sums_here) in sums.as_chunks_mut::<TOGETHER>().0.iter_mut().enumerate() {
                let from = chunk * TOGETHER;
                let to = len.min(from + TOGETHER);
                if to < from + WORTH_IT {
                    break;
                }
                let mut v = start(starts, &keys.first, from..to);
                for column in &keys.words {
                    absorb(&mut v, pair(column, from));
                }
                finish(v, length, sums_here);
            }
            let rest = len % TOGETHER;
            if rest < WORTH_IT {
                one_by_one(starts, keys, len - rest..len, length, sums);
            }
        }
    };
}

/// Eight lanes, in registers that rotate them.
pub(super) mod avx512 {
    use std::arch::x86_64::*;
    use std::ops::Range;

    use super::super::{KeyBatch, Starts, Waiting, one_by_one};
    use crate::hash::keyed;
    use crate::seed::HashKey;

    type Register = __m512i;
    const LANES: usize = 8;

    in_lanes!("avx512f");

    macro_rules! operation {
        ($name:ident($($operand:ident),*) = $operation:expr) => {
            #[inline]
            #[target_feature(enable = "avx512f")]
            fn $name($($operand: Register),*) -> Register {
                $operation
            }
        };
    }
    operation!(add(a, b) = _mm512_add_epi64(a, b));
    operation!(xor(a, b) = _mm512_xor_si512(a, b));
    operation!(rotate_13(a) = _mm512_rol_epi64::<13>(a));
    operation!(rotate_16(a) = _mm512_rol_epi64::<16>(a));
    operation!(rotate_17(a) = _mm512_rol_epi64::<17>(a));
    operation!(rotate_21(a) = _mm512_rol_epi64::<21>(a));
    operation!(rotate_32(a) = _mm512_rol_epi64::<32>(a));

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn splat(word: u64) -> Register {
        _mm512_set1_epi64(word.cast_signed())
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(words: &[u64; LANES]) -> Register {
        // SAFETY: the reference is to as many bytes as are read, and they need not be aligned.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(words: &mut [u64; LANES], register: Register) {
        // SAFETY: the reference is to as many bytes as are written, and they need not be aligned.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), register) }
    }
}

/// Four lanes, rotated by shifting both ways, or as bytes where that will do.
pub(super) mod avx2 {
    use std::arch::x86_64::*;
    use std::ops::Range;

    use super::super::{KeyBatch, Starts, Waiting, one_by_one};
    use crate::hash::keyed;
    use crate::seed::HashKey;

    type Register = __m256i;
    const LANES: usize = 4;

    in_lanes!("avx2");

    macro_rules! operation {
        ($name:ident($($operand:ident),*) = $operation:expr) => {
            #[inline]
            #[target_feature(enable = "avx2")]
            fn $name($($operand: Register),*) -> Register {
                $operation
            }
        };
    }
    operation!(add(a, b) = _mm256_add_epi64(a, b));
    operation!(xor(a, b) = _mm256_xor_si256(a, b));
    operation!(
        rotate_13(a) = _mm256_or_si256(_mm256_slli_epi64::<13>(a), _mm256_srli_epi64::<51>(a))
    );
    operation!(
        rotate_17(a) = _mm256_or_si256(_mm256_slli_epi64::<17>(a), _mm256_srli_epi64::<47>(a))
    );
    operation!(
        rotate_21(a) = _mm256_or_si256(_mm256_slli_epi64::<21>(a), _mm256_srli_epi64::<43>(a))
    );
    operation!(rotate_32(a) = _mm256_shuffle_epi32::<0b10_11_00_01>(a));
    operation!(
        rotate_16(a) = _mm256_shuffle_epi8(
            a,
            _mm256_set_epi64x(
                0x0d0c_0b0a_0908_0f0e,
                0x0504_0302_0100_0706,
                0x0d0c_0b0a_0908_0f0e,
                0x0504_0302_0100_0706,
            )
        )
    );

    #[inline]
    #[target_feature(enable = "avx2")]
    fn splat(word: u64) -> Register {
        _mm256_set1_epi64x(word.cast_signed())
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(words: &[u64; LANES]) -> Register {
        // SAFETY: the reference is to as many bytes as are read, and they need not be aligned.
        unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(words: &mut [u64; LANES], register: Register) {
        // SAFETY: the reference is to as many bytes as are written, and they need not be aligned.
        unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), register) }
    }
}
