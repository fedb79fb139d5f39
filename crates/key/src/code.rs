//! Addresses in the kernel's code, where its symbols do not tell its data.

/// What the instructions of x86-64 in `code`, which lies at `start`, may have as the address of 16-byte aligned data: each
/// `mov $imm32, %r64`, and each operand relative to the instruction's end. Nothing is disassembled, so that what is no
/// address is among them; who asks has to prove what they find there.
///
/// `data` says which addresses may be data.
pub(crate) fn operands(code: &[u8], start: u64, data: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut found = Vec::new();
    for (at, window) in code.windows(7).enumerate() {
        let number = |i: usize| {
            let bytes = window.get(i..i + 4).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| i64::from(i32::from_le_bytes(*bytes)))
        };
        // REX.W, C7 /0 with a register.
        if window[0] & 0xfe == 0x48 && window[1] == 0xc7 && window[2] & 0xf8 == 0xc0 {
            found.push(number(3) as u64);
        }
        // ModRM of an operand at RIP + disp32, behind which the instruction ends.
        if window[0] & 0xc7 == 0x05 {
            let end = start.wrapping_add(at as u64 + 5);
            found.push(end.wrapping_add_signed(number(1)));
        }
    }
    found.retain(|address| address % 16 == 0 && data(*address));
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_data_are_found() {
        let mut code = vec![0x90, 0x90];
        // mov $0xffffffff83a0b020, %rdi
        code.extend([0x48, 0xc7, 0xc7, 0x20, 0xb0, 0xa0, 0x83]);
        // mov 0x19c0ef2(%rip), %rax, 7 bytes at 9: ends at 16
        code.extend([0x48, 0x8b, 0x05, 0xf0, 0x0e, 0x9c, 0x01]);
        // mov $0xffffffff83a0b028, %rsi: not aligned
        code.extend([0x48, 0xc7, 0xc6, 0x28, 0xb0, 0xa0, 0x83]);
        code.extend([0x90; 8]);
        let start = 0xffff_ffff_81ea_0000;
        let data = |address| address > 0xffff_ffff_8220_0000;
        let found = operands(&code, start, data);
        assert_eq!(found, [0xffff_ffff_8386_0f00, 0xffff_ffff_83a0_b020]);
        assert!(operands(&code, start, |_| false).is_empty());
        assert!(operands(&[0x48], start, data).is_empty());
    }
}
