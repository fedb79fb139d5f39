//! Where members of the kernel's structures lie, and what its tracepoints tell, by its own type information (BTF).
//!
//! It reads bytes and opens no file: `/sys/kernel/btf/vmlinux` ([`KERNEL`]) has those of the running kernel.

use std::collections::HashMap;

/// Kinds of types.
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const CONST: u32 = 10;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const ENUM64: u32 = 19;
    /// The last that is known.
    pub(super) const LAST: u32 = ENUM64;
    /// Kinds that only add to a type: typedef, volatile, const, restrict, type tag.
    pub(super) const WRAPPERS: [u32; 5] = [TYPEDEF, 9, CONST, 11, 18];
}

/// Where the running kernel tells its types; not there without `CONFIG_DEBUG_INFO_BTF`.
pub const KERNEL: &str = "/sys/kernel/btf/vmlinux";

/// Nobody nests deeper; broken information may go round in circles.
const DEEPEST: u32 = 16;

/// The types of a kernel.
pub struct Btf<'a> {
    strings: &'a [u8],
    /// The bytes of each type, by number less 1.
    types: Vec<&'a [u8]>,
    /// Structures by name.
    structs: HashMap<&'a [u8], u32>,
}

/// A member: its offset in bytes, and its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its offset from the start of the outermost structure.
    pub offset: u32,
    kind: u32,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

fn slice(bytes: &[u8], start: usize, length: u32) -> Option<&[u8]> {
    bytes.get(start..start.checked_add(length as usize)?)
}

impl<'a> Btf<'a> {
    /// Reads `/sys/kernel/btf/vmlinux`; none where that is not what the bytes are.
    pub fn parse(bytes: &'a [u8]) -> Option<Btf<'a>> {
        // magic (2), version, flags; hdr_len; type_off, type_len; str_off, str_len.
        let magic = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        if magic != 0xeb9f {
            return None;
        }
        let start = u32_at(bytes, 4)? as usize;
        let at = |offset: usize| start.checked_add(u32_at(bytes, offset)? as usize);
        let mut rest = slice(bytes, at(8)?, u32_at(bytes, 12)?)?;
        let strings = slice(bytes, at(16)?, u32_at(bytes, 20)?)?;
        let mut btf = Btf {
            strings,
            types: Vec::new(),
            structs: HashMap::new(),
        };
        while !rest.is_empty() {
            let info = u32_at(rest, 4)?;
            let length = 12 + trailer(info)?;
            let this = rest.get(..length)?;
            rest = &rest[length..];
            btf.types.push(this);
            if info >> 24 & 0x1f == kind::STRUCT {
                let name = btf.name(u32_at(this, 0)?)?;
                let number = btf.types.len() as u32;
                btf.structs.entry(name).or_insert(number);
            }
        }
        Some(btf)
    }

    fn name(&self, at: u32) -> Option<&'a [u8]> {
        let rest = self.strings.get(at as usize..)?;
        rest.split(|&byte| byte == 0).next()
    }

    fn get(&self, number: u32) -> Option<&'a [u8]> {
        self.types.get((number as usize).checked_sub(1)?).copied()
    }

    /// A member of the structure of this name.
    pub fn member(&self, structure: &str, name: &str) -> Option<Member> {
        let number = *self.structs.get(structure.as_bytes())?;
        self.within(number, name.as_bytes(), 0, 0)
    }

    /// A member of the structure that a member is.
    pub fn inner(&self, of: Member, name: &str) -> Option<Member> {
        self.within(of.kind, name.as_bytes(), of.offset, 0)
    }

    /// The types of what a tracepoint hands to raw programs, in C's words, in order: `const struct net_device *`, `int`; none where
    /// the kernel has no such tracepoint. (`btf_trace_NAME` is a pointer to a function of these, behind one that is the
    /// kernel's own.) Costs a pass over all types.
    ///
    /// # Minimum kernel version
    /// 5.5, which has the first `btf_trace_NAME`.
    pub fn tracepoint(&self, name: &str) -> Option<Vec<String>> {
        let wanted = format!("btf_trace_{name}");
        let of = |this: &[u8], wanted: u32| {
            let kind = u32_at(this, 4)? >> 24 & 0x1f;
            (kind == wanted).then_some(())
        };
        let is_wanted = |this: &&&[u8]| {
            let name = u32_at(this, 0).and_then(|name| self.name(name));
            of(this, kind::TYPEDEF).is_some() && name == Some(wanted.as_bytes())
        };
        let named = self.types.iter().find(is_wanted)?;
        let pointer = self.get(u32_at(named, 8)?)?;
        of(pointer, kind::PTR)?;
        let function = self.get(u32_at(pointer, 8)?)?;
        of(function, kind::FUNC_PROTO)?;
        let (arguments, _) = function.get(12..)?.as_chunks::<8>();
        let told = arguments.iter().skip(1);
        told.map(|argument| self.in_c(u32_at(argument, 4)?, 0))
            .collect()
    }

    /// A type in C's words, where these are few.
    fn in_c(&self, number: u32, depth: u32) -> Option<String> {
        if depth > DEEPEST {
            return None;
        }
        if number == 0 {
            return Some("void".to_owned());
        }
        let this = self.get(number)?;
        let name = String::from_utf8_lossy(self.name(u32_at(this, 0)?)?);
        let inner = || self.in_c(u32_at(this, 8)?, depth + 1);
        Some(match u32_at(this, 4)? >> 24 & 0x1f {
            kind::INT | kind::TYPEDEF => name.into_owned(),
            kind::STRUCT => format!("struct {name}"),
            kind::ENUM => format!("enum {name}"),
            kind::CONST => format!("const {}", inner()?),
            kind::PTR => format!("{} *", inner()?),
            _ => return None,
        })
    }

    /// Members of anonymous structures and unions count as the outer one's.
    fn within(&self, number: u32, wanted: &[u8], base: u32, depth: u32) -> Option<Member> {
        if depth > DEEPEST {
            return None;
        }
        let this = self.get(number)?;
        let info = u32_at(this, 4)?;
        let kind = info >> 24 & 0x1f;
        if kind::WRAPPERS.contains(&kind) {
            return self.within(u32_at(this, 8)?, wanted, base, depth + 1);
        }
        if kind != kind::STRUCT && kind != kind::UNION {
            return None;
        }
        let (members, _) = this.get(12..)?.as_chunks::<12>();
        for member in members {
            let name = self.name(u32_at(member, 0)?)?;
            let of = u32_at(member, 4)?;
            let bits = match info >> 31 {
                // The upper 8 bits are a bit field's size.
                1 => u32_at(member, 8)? & 0xff_ffff,
                _ => u32_at(member, 8)?,
            };
            let offset = base.checked_add(bits / 8)?;
            if name == wanted {
                return Some(Member { offset, kind: of });
            }
            if name.is_empty()
                && let Some(found) = self.within(of, wanted, offset, depth + 1)
            {
                return Some(found);
            }
        }
        None
    }
}

/// How many bytes follow a type's first 12, by its kind and number of members; none for a kind that is not known.
fn trailer(info: u32) -> Option<usize> {
    let members = (info & 0xffff) as usize;
    Some(match info >> 24 & 0x1f {
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * members,
        kind::ENUM | kind::FUNC_PROTO => 8 * members,
        0 | kind::LAST.. => return None,
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types by words, names by their offset in the strings.
    fn made(types: &[&[u32]], strings: &[u8]) -> Vec<u8> {
        let words: Vec<u8> = types
            .iter()
            .flat_map(|words| words.iter().flat_map(|word| word.to_ne_bytes()))
            .collect();
        let head = [
            0x0001_eb9f,
            24,
            0,
            words.len() as u32,
            words.len() as u32,
            strings.len() as u32,
        ];
        let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(words);
        bytes.extend(strings);
        bytes
    }

    /// `typedef void (*btf_trace_x)(void *, const struct s *, int, u);`, where u is int.
    fn traced() -> Vec<u8> {
        let strings = b"\0btf_trace_x\0s\0int\0u\0";
        let (x, s, int, u) = (1, 13, 15, 19);
        made(
            &[
                &[x, 8 << 24, 2],
                &[0, 2 << 24, 3],
                &[0, 13 << 24 | 4, 0, 0, 4, 0, 7, 0, 8, 0, 9],
                &[0, 2 << 24, 0],
                &[s, 4 << 24, 0],
                &[0, 10 << 24, 5],
                &[0, 2 << 24, 6],
                &[int, 1 << 24, 4, 32],
                &[u, 8 << 24, 8],
            ],
            strings,
        )
    }

    #[test]
    fn tracepoints_tell_their_arguments() {
        let bytes = traced();
        let btf = Btf::parse(&bytes).unwrap();
        let told = btf.tracepoint("x").unwrap();
        assert_eq!(told, ["const struct s *", "int", "u"]);
        assert_eq!(btf.tracepoint("y"), None);
    }

    fn sample() -> Vec<u8> {
        // 1: int; 2: struct s { int a; struct { int b; }; const t c; }; 3: the anonymous one; 4: struct t { int d, e; };
        // 5: const t.
        let strings = b"\0int\0s\0a\0b\0c\0t\0d\0e\0";
        let (int, s, a, b, c, t, d, e) = (1, 5, 7, 9, 11, 13, 15, 17);
        made(
            &[
                &[int, 1 << 24, 4, 32],
                &[s, 4 << 24 | 3, 16, a, 1, 0, 0, 3, 32, c, 5, 64],
                &[0, 4 << 24 | 1, 4, b, 1, 0],
                &[t, 1 << 31 | 4 << 24 | 2, 8, d, 1, 0, e, 1, 8 << 24 | 32],
                &[0, 10 << 24, 4],
            ],
            strings,
        )
    }

    #[test]
    fn members_are_found_where_they_lie() {
        let bytes = sample();
        let btf = Btf::parse(&bytes).unwrap();
        let offset = |name| btf.member("s", name).map(|member| member.offset);
        assert_eq!(
            [offset("a"), offset("b"), offset("c")],
            [Some(0), Some(4), Some(8)]
        );
        assert_eq!(offset("d"), None);
        let c = btf.member("s", "c").unwrap();
        assert_eq!(btf.inner(c, "e").unwrap().offset, 12);
        assert_eq!(btf.inner(btf.member("s", "a").unwrap(), "e"), None);
        assert_eq!(btf.member("none", "a"), None);
    }

    #[test]
    fn broken_information_is_refused() {
        let bytes = sample();
        for length in 0..bytes.len() {
            if let Some(btf) = Btf::parse(&bytes[..length]) {
                let _ = btf.member("s", "b");
            }
        }
        let traced = traced();
        for at in 0..traced.len() {
            for value in [0, 1, 2, 0x7f, 0xff] {
                let mut bytes = traced.clone();
                bytes[at] = value;
                if let Some(btf) = Btf::parse(&bytes) {
                    let _ = btf.tracepoint("x");
                }
            }
        }
        // Whatever a byte says: no answer, or a wrong one, and an end.
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                if let Some(btf) = Btf::parse(&bytes) {
                    let c = btf.member("s", "c");
                    let _ = (btf.member("s", "b"), c.and_then(|c| btf.inner(c, "e")));
                }
            }
        }
    }
}
