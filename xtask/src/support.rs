//! What is supported, by kernel and driver, as the tests have shown it: their records, and the table that is made of these.
//!
//! A record (`tests/support/KERNEL.tsv`) is what the tests said on one kernel. Its first line is `#` and the machine; each of the others has,
//! between tabs, the part of the run (`scripts/kernels/run.sh` has them all), the kind of what was compared, the driver of its links, how
//! many frames were compared, how many differ, how many of them the kernel forwards, and how many of those raddle.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What tests compare, by the page that is about it. Each row of the table is one of these.
const KINDS: [(&str, &[&str]); 8] = [
    ("first-steps.md", &["links"]),
    ("bonds.md", &["bonds"]),
    (
        "vlans.md",
        &[
            "VLANs",
            "VLANs upon bonds",
            "out by VLANs upon bonds",
            "large frames by VLANs",
            "VLANs in generic XDP",
        ],
    ),
    (
        "bridges.md",
        &[
            "bridges",
            "bridges that filter VLANs",
            "VLANs of bridges",
            "bridges of VLANs",
            "bridges of bonds",
            "large frames by bridges",
            "bridges in generic XDP",
            "rules for bridges",
            "bridges that ask rules of IP",
            "macvlans",
            "passthru",
        ],
    ),
    (
        "tunnels.md",
        &["tunnels", "tenants", "path MTUs of tunnels"],
    ),
    (
        "rules.md",
        &["VRFs", "rules", "rules that ask for packets", "rp_filter"],
    ),
    (
        "firewalls.md",
        &[
            "firewalls",
            "a default install",
            "a VRF on a default install",
        ],
    ),
    ("keys.md", &["choices by the kernel's own key"]),
];

/// What is on this page counts twice where raddle forwards it: by the tunnel, and by the link below. The part that it forwards is not told.
const TWICE: &str = "tunnels.md";

/// Raddle may forward so much less of what the kernel does than in the record, in parts of a hundred: other frames are drawn.
const SLACK: f64 = 5.0;

/// What was compared of one kind, by links of one driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The part of the run.
    pub part: String,
    /// What tests call it.
    pub kind: String,
    /// Of the links: `veth`, `virtio_net`.
    pub driver: String,
    /// How many frames were compared.
    pub frames: u64,
    /// How many of them came out otherwise with raddle.
    pub differ: u64,
    /// How many of them the kernel forwards.
    pub through: u64,
    /// How many of those raddle forwards itself.
    pub forwarded: u64,
}

impl Shown {
    /// Of what the kernel forwards the part that raddle does, in parts of a hundred.
    fn share(&self) -> f64 {
        100.0 * self.forwarded as f64 / (self.through as f64).max(1.0)
    }
}

/// What was shown on one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its release and the machine.
    pub machine: String,
    /// All that was compared.
    pub shown: Vec<Shown>,
}

impl Record {
    /// Reads one.
    ///
    /// # Errors
    /// The line that is not as it has to be, and why.
    pub fn parse(text: &str) -> Result<Record, String> {
        let mut lines = text.lines();
        let machine = lines.next().and_then(|line| line.strip_prefix("# "));
        let machine = machine.ok_or("the first line is not `# ` and the machine")?;
        let shown =
            lines.map(|line| one(line).ok_or_else(|| format!("`{line}`: not seven fields")));
        Ok(Record {
            machine: machine.to_owned(),
            shown: shown.collect::<Result<_, _>>()?,
        })
    }

    fn find(&self, kind: &str, driver: &str) -> Option<&Shown> {
        let mut shown = self.shown.iter();
        shown.find(|one| one.kind == kind && one.driver == driver)
    }
}

fn one(line: &str) -> Option<Shown> {
    let [part, kind, driver, frames, differ, through, forwarded] =
        *line.split('\t').collect::<Vec<_>>().as_slice()
    else {
        return None;
    };
    Some(Shown {
        part: part.to_owned(),
        kind: kind.to_owned(),
        driver: driver.to_owned(),
        frames: frames.parse().ok()?,
        differ: differ.parse().ok()?,
        through: through.parse().ok()?,
        forwarded: forwarded.parse().ok()?,
    })
}

/// What a run of these parts shows less than the record, one sentence each.
///
/// 1. What the record has of these parts has to be shown.
/// 2. Nothing may differ.
/// 3. Raddle may not forward much less of it: no more than five parts of a hundred of what the kernel forwards.
/// 4. What is shown has a row in the table.
pub fn less(record: &Record, run: &Record, parts: &[&str]) -> Vec<String> {
    let mut all = Vec::new();
    for before in &record.shown {
        let Shown { kind, driver, .. } = before;
        if !parts.contains(&&*before.part) {
            continue;
        }
        match run.find(kind, driver) {
            None => all.push(format!(
                "{kind} by {driver}: the record has {} frames, and this run shows none",
                before.frames
            )),
            Some(now) if now.share() + SLACK < before.share() => all.push(format!(
                "{kind} by {driver}: raddle forwards {:.1} % of what the kernel does, and {:.1} % in the record",
                now.share(),
                before.share()
            )),
            Some(_) => {}
        }
    }
    for now in &run.shown {
        let Shown { kind, driver, .. } = now;
        if now.differ > 0 {
            all.push(format!("{kind} by {driver}: {} frames differ", now.differ));
        }
        if !kinds().any(|known| known == kind) {
            all.push(format!(
                "{kind}: KINDS in xtask/src/support.rs does not have it"
            ));
        }
    }
    all
}

/// The record with what the run has shown in place of what there was of the same parts.
pub fn renewed(record: Option<&Record>, run: &Record) -> String {
    let parts: BTreeSet<&str> = run.shown.iter().map(|one| &*one.part).collect();
    let before = record.into_iter().flat_map(|record| &record.shown);
    let stays = before.filter(|one| !parts.contains(&*one.part));
    let mut out = format!("# {}\n", run.machine);
    for one in stays.chain(&run.shown) {
        let names = [&*one.part, &one.kind, &one.driver].join("\t");
        let numbers = [one.frames, one.differ, one.through, one.forwarded];
        let numbers = numbers.map(|number| number.to_string()).join("\t");
        let _ = writeln!(out, "{names}\t{numbers}");
    }
    out
}

fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().flat_map(|(_, kinds)| *kinds).copied()
}

/// The page with the table, of records by the names of their files, oldest kernel first.
///
/// # Errors
/// A record shows something that the table has no row for, or frames that differ.
pub fn page(records: &[(String, Record)]) -> Result<String, String> {
    for (name, record) in records {
        let wrong = less(record, record, &[]);
        if let Some(what) = wrong.first() {
            return Err(format!("tests/support/{name}.tsv: {what}"));
        }
    }
    let mut columns = Vec::new();
    for (name, record) in records {
        let drivers: BTreeSet<&str> = record.shown.iter().map(|one| &*one.driver).collect();
        columns.extend(drivers.into_iter().map(|driver| (name, record, driver)));
    }
    let mut out = String::from(
        "# What is supported, by kernel and driver\n\n\
         Made from what the tests have recorded (`tests/support`); `cargo xtask generate` writes it. Each cell is a comparison with the running\n\
         kernel: so many frames were sent through a router without raddle and with it, in by such links and out by such, natively where it does not\n\
         say generic, and came out by the same link; on veths they were the same to the byte. Not one differed. Behind that stands the part of the packets that the\n\
         kernel forwards which raddle forwarded itself; many are sent because they [have to be punted](not-supported.md). Of tunnels it is not known.\n\n\
         | compared |",
    );
    for (name, _, driver) in &columns {
        let _ = write!(out, " {name} {driver} |");
    }
    let _ = writeln!(out, "\n|---|{}", "--:|".repeat(columns.len()));
    for (page, kinds) in KINDS {
        for kind in kinds {
            let cells = columns
                .iter()
                .map(|(_, record, driver)| record.find(kind, driver));
            let cells: Vec<Option<&Shown>> = cells.collect();
            if cells.iter().all(Option::is_none) {
                continue;
            }
            let _ = write!(out, "| [{kind}]({page}) |");
            for cell in cells {
                let _ = match cell {
                    Some(one) if page == TWICE => write!(out, " {} |", thousands(one.frames)),
                    Some(one) => write!(out, " {}, {:.0} % |", thousands(one.frames), one.share()),
                    None => write!(out, " |"),
                };
            }
            out.push('\n');
        }
    }
    out.push_str("\nAn empty cell was not compared: the kernel of that machine has no such links, or the run had not that part.\n\n");
    for (name, record) in records {
        let _ = writeln!(out, "- {name}: {}", record.machine);
    }
    Ok(out)
}

/// With spaces between thousands.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    const TEXT: &str = "# Linux 6.1.0, a machine\nvlans\tVLANs\tveth\t1606\t0\t1000\t700\nbonds\tbonds\tveth\t200\t0\t200\t200\n";

    #[test]
    fn a_run_that_shows_less_is_found() {
        let record = Record::parse(TEXT).unwrap();
        let run = |from: &str, to: &str| {
            assert!(TEXT.contains(from));
            Record::parse(&TEXT.replace(from, to)).unwrap()
        };
        let all = ["vlans", "bonds"];
        assert_eq!(less(&record, &record, &all), Vec::<String>::new());
        let same = run("1606\t0\t1000\t700", "400\t0\t300\t200");
        assert_eq!(less(&record, &same, &all), Vec::<String>::new());
        for (from, to, what) in [
            ("\t700", "\t600", "VLANs by veth: raddle forwards 60.0 %"),
            ("1606\t0", "1606\t3", "VLANs by veth: 3 frames differ"),
            ("\tbonds", "\tdummies", "bonds by veth: the record has 200"),
            (
                "\tveth\t200",
                "\ttap\t200",
                "bonds by veth: the record has 200",
            ),
        ] {
            let said = less(&record, &run(from, to), &all);
            assert!(said[0].starts_with(what), "{from} {to}: {said:?}");
        }
        // What was not run is not missed; what has no row is.
        let said = less(&record, &run("\tbonds", "\tdummies"), &["vlans"]);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("dummies: "), "{said:?}");
    }

    #[test]
    fn a_run_renews_its_parts_of_the_record() {
        let record = Record::parse(TEXT).unwrap();
        let run = "# Linux 6.1.1\nbonds\tbonds\tveth\t900\t0\t900\t900\n";
        let run = Record::parse(run).unwrap();
        let renewed_text = renewed(Some(&record), &run);
        let after = Record::parse(&renewed_text).unwrap();
        assert_eq!(after.machine, "Linux 6.1.1");
        assert_eq!(after.shown, [record.shown[0].clone(), run.shown[0].clone()]);
        assert_eq!(Record::parse(&renewed(None, &run)).unwrap(), run);
    }

    #[test]
    fn a_record_that_is_none_is_refused() {
        for text in [
            "",
            "vlans\n",
            "# a\nvlans\tVLANs\n",
            "# a\nv\tV\tv\t1\t0\t-1\t1\n",
        ] {
            assert!(Record::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_read_easily() {
        assert_eq!(thousands(7), "7");
        assert_eq!(thousands(106_200), "106 200");
        assert_eq!(thousands(1_000_000), "1 000 000");
    }
}
