//! Names of protocols, tables, scopes and TOS values, from iproute2's files.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use raddle_rib::event::RouteKind;

/// Where iproute2 keeps its files, in the order in which later ones win: distributions ship the
/// first since iproute2 6.5, administrators edit the second.
const DIRECTORIES: [&str; 2] = ["/usr/share/iproute2", "/etc/iproute2"];

/// What iproute2 knows without files.
const PROTOCOLS: [(u32, &str); 21] = [
    (0, "unspec"),
    (1, "redirect"),
    (2, "kernel"),
    (3, "boot"),
    (4, "static"),
    (8, "gated"),
    (9, "ra"),
    (10, "mrt"),
    (11, "zebra"),
    (12, "bird"),
    (13, "dnrouted"),
    (14, "xorp"),
    (15, "ntk"),
    (16, "dhcp"),
    (18, "keepalived"),
    (42, "babel"),
    (186, "bgp"),
    (187, "isis"),
    (188, "ospf"),
    (189, "rip"),
    (192, "eigrp"),
];
const TABLES: [(u32, &str); 3] = [(253, "default"), (254, "main"), (255, "local")];
const SCOPES: [(u32, &str); 5] = [
    (0, "global"),
    (200, "site"),
    (253, "link"),
    (254, "host"),
    (255, "nowhere"),
];

/// Route types by number (`RTN_*`), as `ip` spells them.
const KINDS: [&str; 12] = [
    "none",
    "unicast",
    "local",
    "broadcast",
    "anycast",
    "multicast",
    "blackhole",
    "unreachable",
    "prohibit",
    "throw",
    "nat",
    "xresolve",
];

/// Names for the numbers that routes carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    protocols: BTreeMap<u32, String>,
    tables: BTreeMap<u32, String>,
    scopes: BTreeMap<u32, String>,
    tos: BTreeMap<u32, String>,
    /// `-Numeric`: names are understood, but not printed.
    numeric: bool,
}

impl Names {
    /// The names that need no files.
    pub fn built_in() -> Names {
        let map = |names: &[(u32, &str)]| {
            names
                .iter()
                .map(|&(number, name)| (number, name.to_owned()))
                .collect()
        };
        Names {
            protocols: map(&PROTOCOLS),
            tables: map(&TABLES),
            scopes: map(&SCOPES),
            tos: BTreeMap::new(),
            numeric: false,
        }
    }

    /// The names of this system: the built-in ones, then `rt_protos`, `rt_tables`, `rt_scopes` and
    /// `rt_dsfield` with their `.d` directories, under `/usr/share/iproute2` and `/etc/iproute2`.
    /// Files that are absent, and lines that are no names, are passed over.
    pub fn load() -> Names {
        Names::load_from(&DIRECTORIES.map(Path::new))
    }

    /// As [`Names::load`], from other directories.
    pub fn load_from(directories: &[&Path]) -> Names {
        let mut names = Names::built_in();
        for directory in directories {
            read(directory, "rt_protos", 255, &mut names.protocols);
            read(directory, "rt_tables", u32::MAX, &mut names.tables);
            read(directory, "rt_scopes", 255, &mut names.scopes);
            read(directory, "rt_dsfield", 255, &mut names.tos);
        }
        names
    }

    /// The same names, printed as numbers.
    pub fn numeric(&self) -> Names {
        Names {
            numeric: true,
            ..self.clone()
        }
    }

    /// The name of a routing protocol (`RTPROT_*`), or its number.
    pub fn protocol(&self, number: u8) -> Cow<'_, str> {
        self.name(&self.protocols, u32::from(number))
    }

    /// The name of a table, or its number.
    pub fn table(&self, number: u32) -> Cow<'_, str> {
        self.name(&self.tables, number)
    }

    /// The name of a scope (`RT_SCOPE_*`), or its number.
    pub fn scope(&self, number: u8) -> Cow<'_, str> {
        self.name(&self.scopes, u32::from(number))
    }

    /// The name of a route type (`RTN_*`), or its number.
    pub fn kind(&self, kind: RouteKind) -> Cow<'static, str> {
        match KINDS.get(kind as usize) {
            Some(name) if !self.numeric => Cow::Borrowed(name),
            _ => Cow::Owned((kind as u8).to_string()),
        }
    }

    /// The name of a TOS value, or the value in hexadecimal.
    pub fn tos(&self, number: u8) -> Cow<'_, str> {
        match self.tos.get(&u32::from(number)) {
            Some(name) if !self.numeric => Cow::Borrowed(name),
            _ => Cow::Owned(format!("0x{number:02x}")),
        }
    }

    /// The protocol of this name or number. Where two have a name (FRR's 196 is "static" too), the
    /// lower one, as in `ip`.
    pub fn protocol_number(&self, name: &str) -> Option<u8> {
        find(&self.protocols, name)?.try_into().ok()
    }

    /// The table of this name or number.
    pub fn table_number(&self, name: &str) -> Option<u32> {
        find(&self.tables, name)
    }

    /// The scope of this name or number.
    pub fn scope_number(&self, name: &str) -> Option<u8> {
        find(&self.scopes, name)?.try_into().ok()
    }

    /// TOS values are hexadecimal with or without `0x`, as everywhere in `ip`.
    pub fn tos_number(&self, name: &str) -> Option<u8> {
        if let Some((&number, _)) = self.tos.iter().find(|(_, known)| *known == name) {
            return number.try_into().ok();
        }
        u8::from_str_radix(name.strip_prefix("0x").unwrap_or(name), 16).ok()
    }

    /// The route type of this name or number.
    pub fn kind_number(name: &str) -> Option<RouteKind> {
        let number = match KINDS.iter().position(|&known| known == name) {
            Some(number) => number as u32,
            None => parse_number(name)?,
        };
        RouteKind::from_number(number.try_into().ok()?)
    }

    fn name<'a>(&self, names: &'a BTreeMap<u32, String>, number: u32) -> Cow<'a, str> {
        match names.get(&number) {
            Some(name) if !self.numeric => Cow::Borrowed(name),
            _ => Cow::Owned(number.to_string()),
        }
    }
}

fn find(names: &BTreeMap<u32, String>, name: &str) -> Option<u32> {
    let known = names.iter().find(|(_, known)| *known == name);
    known
        .map(|(&number, _)| number)
        .or_else(|| parse_number(name))
}

/// A number as `ip` reads it: decimal, or hexadecimal after `0x`.
pub(crate) fn parse_number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Reads `file` and every `file.d/*.conf` under `directory`, in the order of their names.
fn read(directory: &Path, file: &str, max: u32, names: &mut BTreeMap<u32, String>) {
    let mut files = vec![directory.join(file)];
    if let Ok(entries) = fs::read_dir(directory.join(format!("{file}.d"))) {
        let mut more: Vec<_> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        more.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "conf")
        });
        more.sort();
        files.extend(more);
    }
    for file in files {
        let Ok(bytes) = fs::read(file) else { continue };
        for line in String::from_utf8_lossy(&bytes).lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            if let (Some(number), Some(name), None) = (words.next(), words.next(), words.next())
                && let Some(number) = parse_number(number).filter(|&number| number <= max)
            {
                names.insert(number, name.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_files_win_and_the_lowest_number_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (share, etc) = (dir.path().join("share"), dir.path().join("etc"));
        fs::create_dir_all(share.join("rt_protos.d")).unwrap();
        fs::create_dir_all(etc.join("rt_tables.d")).unwrap();
        fs::write(
            share.join("rt_protos"),
            "# comment\n4 static\n\n 0xba bgp # FRR\n77 raddle\n",
        )
        .unwrap();
        fs::write(
            share.join("rt_protos.d/frr.conf"),
            "196  static\n300 toobig\nx y\n9 a b\n",
        )
        .unwrap();
        fs::write(share.join("rt_protos.d/README"), "77 readme\n").unwrap();
        fs::write(etc.join("rt_tables.d/b.conf"), b"1000 blue\n1000 \xff\n").unwrap();
        fs::write(etc.join("rt_dsfield"), "0xB8 EF\n").unwrap();
        let names = Names::load_from(&[&share, &etc, &dir.path().join("absent")]);
        assert_eq!(names.protocol(196), "static");
        assert_eq!(names.protocol(186), "bgp");
        assert_eq!(names.protocol(77), "raddle");
        assert_eq!(names.protocol(9), "ra");
        assert_eq!(names.protocol_number("static"), Some(4));
        assert_eq!(names.protocol_number("0xba"), Some(186));
        assert_eq!(names.protocol_number("300"), None);
        assert_eq!(names.table(1000), "\u{fffd}");
        assert_eq!(names.table_number("main"), Some(254));
        assert_eq!(
            (names.tos(0xb8), names.tos(8)),
            ("EF".into(), "0x08".into())
        );
        assert_eq!(
            (names.tos_number("EF"), names.tos_number("0x10")),
            (Some(0xb8), Some(0x10))
        );
        assert_eq!(names.tos_number("10"), Some(0x10));
    }

    #[test]
    fn numbers_instead_of_names() {
        let names = Names::built_in().numeric();
        assert_eq!(names.protocol(2), "2");
        assert_eq!(names.scope(253), "253");
        assert_eq!(names.table(254), "254");
        assert_eq!(names.kind(RouteKind::Unreachable), "7");
        assert_eq!(names.protocol_number("kernel"), Some(2));
        assert_eq!(
            Names::built_in().kind(RouteKind::Unreachable),
            "unreachable"
        );
        assert_eq!(Names::kind_number("throw"), Some(RouteKind::Throw));
        assert_eq!(Names::kind_number("6"), Some(RouteKind::Blackhole));
        assert_eq!(Names::kind_number("99"), None);
    }
}
