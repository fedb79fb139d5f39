//! Where the kernel's data and code lie (`/proc/kallsyms`).

use std::io::{self, BufRead};

/// Addresses of the kernel's data symbols of this name. Modules' and the compiler's numbered ones (`hashrnd.7`) are other
/// variables. 0 where addresses are hidden from the reader.
///
/// # Errors
/// What reading says.
pub(crate) fn data(symbols: impl BufRead, name: &str) -> io::Result<Vec<u64>> {
    let of_data = |kind: &str| matches!(kind, "b" | "B" | "d" | "D");
    Ok(all(symbols, &[name], of_data)?
        .into_iter()
        .map(|(_, address)| address)
        .collect())
}

/// The kernel's functions of these names, with their addresses.
///
/// # Errors
/// What reading says.
pub(crate) fn code(symbols: impl BufRead, names: &[&str]) -> io::Result<Vec<(String, u64)>> {
    all(symbols, names, |kind| matches!(kind, "t" | "T"))
}

fn all(
    symbols: impl BufRead,
    names: &[&str],
    is_kind: impl Fn(&str) -> bool,
) -> io::Result<Vec<(String, u64)>> {
    let mut found = Vec::new();
    for line in symbols.split(b'\n') {
        let line = line?;
        // Most lines end here, before they are taken apart.
        if !names.iter().any(|name| line.ends_with(name.as_bytes())) {
            continue;
        }
        let line = String::from_utf8_lossy(&line);
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if let [address, kind, symbol] = words[..]
            && names.contains(&symbol)
            && is_kind(kind)
            && let Ok(address) = u64::from_str_radix(address, 16)
        {
            found.push((symbol.to_owned(), address));
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
        let found = code(text.as_bytes(), &["_text", "hashrnd"]).unwrap();
        let expected = [
            ("_text", 0xffff_ffff_8100_0000),
            ("hashrnd", 0xffff_ffff_82a0_b030_u64),
        ];
        assert_eq!(
            found,
            expected.map(|(name, address)| (name.to_owned(), address))
        );
        let hidden = "0000000000000000 b hashrnd\n";
        assert_eq!(data(hidden.as_bytes(), "hashrnd").unwrap(), [0]);
    }
}
