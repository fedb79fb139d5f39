//! What a comparison with the kernel showed, for machines to read: `docs/support.md` is made of such lines.

/// Says, in one piece, which other tests' lines cannot come between: of this kind so many frames were compared, so many differ, the kernel
/// forwards so many, and raddle of these so many. All links of these tests are veths.
pub(crate) fn tell(kind: &str, [frames, differ, through, forwarded]: [u64; 4]) {
    let line = format!("support:\t{kind}\tveth\t{frames}\t{differ}\t{through}\t{forwarded}\n");
    eprint!("{line}");
}
