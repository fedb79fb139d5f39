//! Where the kernel's data lies (`/proc/kallsyms`).

use std::io::{self, BufRead};

/// Addresses of the kernel's data symbols of this name. Modules' and the compiler's numbered ones (`hashrnd.7`) are other
/// variables. 0 where addresses are hidden from the reader.
///
/// # Errors
/// What reading says.
pub(crate) fn data(symbols: impl BufRead, name: &str) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for line in symbols.split(b'\n') {
        let line = line?;
        // Most lines end here, before they are taken apart.
        if !line.ends_with(name.as_bytes()) {
            continue;
        }
        let line = String::from_utf8_lossy(&line);
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if let [address, kind, symbol] = words[..]
            && symbol == name
            && matches!(kind, "b" | "B" | "d" | "D")
            && let Ok(address) = u64::from_str_radix(address, 16)
        {
            found.push(address);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kernels_own_data_counts() {
        let text = "ffffffff81000000 T _text\n\
                    ffffffff82a0b010 b hashrnd.7\n\
                    ffffffff82a0b020 b hashrnd\n\
                    ffffffff82a0b030 t hashrnd\n\
                    ffffffffc0a0b040 b hashrnd\t[nf_x]\n\
                    ffffffff82a0b050 b myhashrnd\n\
                    0x b hashrnd\n\
                    ffffffff82a0b060 D hashrnd\n";
        let found = data(text.as_bytes(), "hashrnd").unwrap();
        assert_eq!(found, [0xffff_ffff_82a0_b020, 0xffff_ffff_82a0_b060]);
        let hidden = "0000000000000000 b hashrnd\n";
        assert_eq!(data(hidden.as_bytes(), "hashrnd").unwrap(), [0]);
    }
}
