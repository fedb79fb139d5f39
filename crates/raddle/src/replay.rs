//! `raddle replay`: a capture through the userspace engine, into one capture for each out-link.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use raddle_forward::{Engine, HEADROOM, VECTOR, Verdict};
use raddle_image::{Capacity, Memory, Reason};
use raddle_io::{Reader, Record, Resolution, Writer};
use raddle_rib::event::Link;
use raddle_rib::{Ports, Rib};
use serde::Serialize;

use crate::cli;
use crate::error::Failure;
use crate::source;

/// What became of the packets.
#[derive(Debug, Default, Serialize)]
struct Report {
    packets: u64,
    /// By out-link.
    forwarded: BTreeMap<String, u64>,
    /// By reason.
    kernel: BTreeMap<&'static str, u64>,
    /// By reason.
    dropped: BTreeMap<&'static str, u64>,
    /// Records that the capture had cut short: what is missing cannot be forwarded.
    cut_short: u64,
}

/// Runs the command.
pub(crate) fn run(args: &cli::Replay) -> Result<(), Failure> {
    let capacity = Capacity::default();
    let mut rib = Rib::new(Arc::new(Memory::heap(&capacity)), &capacity, || ());
    source::fill(&mut rib, args.snapshot.as_deref())?;
    let ingress = rib
        .link_named(&args.iif)
        .ok_or_else(|| Failure::usage(format!("there is no link '{}' in that state", args.iif)))?
        .clone();
    let mac = ingress.mac.ok_or_else(|| {
        Failure::usage(format!(
            "link {} is not Ethernet: packets cannot come in there",
            args.iif
        ))
    })?;
    let all = rib.links().map(|link| link.index).collect();
    rib.set_ports(Ports {
        enabled: [ingress.index].into(),
        out: all,
    });
    rib.commit();
    let mut engine = Engine::new(Arc::clone(rib.memory()));
    let reader = Reader::open(&args.capture).map_err(|e| Failure::usage(e.to_string()))?;
    make_room(args, &rib)?;
    let mut files = Files::new(&args.out, reader.resolution());
    let mut report = Report::default();
    let mut records = reader.map(|record| {
        let mut record = record.map_err(|e| Failure::usage(e.to_string()))?;
        if args.any_mac && record.data.len() >= 6 {
            record.data[..6].copy_from_slice(&mac);
        }
        Ok::<Record, Failure>(record)
    });
    loop {
        let mut vector: Vec<Record> = records.by_ref().take(VECTOR).collect::<Result<_, _>>()?;
        if vector.is_empty() {
            break;
        }
        let verdicts = verdicts(&mut engine, ingress.index, &mut vector);
        for (record, verdict) in vector.into_iter().zip(verdicts) {
            report.packets += 1;
            report.cut_short += u64::from(record.is_truncated());
            note(&rib, &mut report, &mut files, verdict, record)?;
        }
    }
    files.finish()?;
    if args.json {
        println!(
            "{}",
            serde_json::to_string(&report).map_err(|e| Failure::system(e.to_string()))?
        );
    } else {
        print_report(&report, &args.out);
    }
    if let Some(hint) = hint(&report, args, mac) {
        eprintln!("{hint}");
    }
    Ok(())
}

/// What becomes of packets that came in on a link; those that are forwarded are as they leave.
fn verdicts(engine: &mut Engine, ingress: u32, records: &mut [Record]) -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::Kernel(Reason::None); records.len()];
    let mut frames: Vec<_> = records.iter_mut().map(|record| &mut record.data).collect();
    engine.forward_all(&mut frames, ingress, 0, &mut verdicts);
    for (frame, verdict) in frames.iter_mut().zip(&mut verdicts) {
        if *verdict == Verdict::Kernel(Reason::BucketActivity) {
            // The kernel would forward it by the same bucket, and here is no kernel to be shown it.
            *verdict = engine.forward(frame, ingress, 0);
        }
        if let Verdict::Kernel(Reason::Headroom) | Verdict::Drop(Reason::Headroom) = verdict {
            let range = HEADROOM..HEADROOM + frame.len();
            frame.splice(..0, [0; HEADROOM]);
            *verdict = engine.forward_in(frame, range, ingress, 0);
            if !matches!(verdict, Verdict::Forward { .. }) {
                frame.drain(..HEADROOM);
            }
        }
    }
    verdicts
}

/// Makes the directory, in which no captures may be but those of this run: whoever looks at them
/// later could not tell them apart.
fn make_room(args: &cli::Replay, rib: &Rib) -> Result<(), Failure> {
    let directory = args.out.display();
    std::fs::create_dir_all(&args.out)
        .map_err(|e| Failure::system(format!("cannot make the directory {directory}: {e}")))?;
    let failed = |e| Failure::system(format!("cannot read the directory {directory}: {e}"));
    let captures = captures(&args.out).map_err(failed)?;
    let (inputs, earlier): (Vec<_>, Vec<_>) = captures
        .into_iter()
        .partition(|path| is_same_file(path, &args.capture));
    if inputs.iter().any(|path| is_written(path, rib)) {
        return Err(Failure::usage(format!(
            "{} may be written while it is read; name another directory than {directory}",
            args.capture.display()
        )));
    }
    if !earlier.is_empty() && !args.force {
        let names: Vec<String> = earlier.iter().map(|path| file_name(path)).collect();
        return Err(Failure::usage(format!(
            "{directory} holds captures already ({}); name another directory, or replace them with \
             --force",
            names.join(", ")
        )));
    }
    for path in earlier {
        if is_written(&path, rib) {
            std::fs::remove_file(&path)
                .map_err(|e| Failure::system(format!("cannot remove {}: {e}", path.display())))?;
        } else {
            eprintln!("{} stays: no link here has that name", path.display());
        }
    }
    Ok(())
}

fn captures(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("pcap")) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let number = |path: &Path| std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    number(one).is_some_and(|n| Some(n) == number(other))
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Whether a run by this state may write a file of that name: see [`capture_name`].
fn is_written(path: &Path, rib: &Rib) -> bool {
    let stem = path.file_stem().and_then(OsStr::to_str);
    stem.is_some_and(|stem| stem == KERNEL || rib.links().any(|link| capture_name(link) == stem))
}

/// What to try when no packet of the capture was sent to the link.
fn hint(report: &Report, args: &cli::Replay, mac: [u8; 6]) -> Option<String> {
    let others = report.kernel.get(Reason::OtherMac.name()).copied();
    if args.any_mac || report.packets == 0 || others != Some(report.packets) {
        return None;
    }
    let mac: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!(
        "no packet is sent to the MAC address of {}, {}; if the capture is of another link or \
         machine: --any-mac",
        args.iif,
        mac.join(":")
    ))
}

fn note(
    rib: &Rib,
    report: &mut Report,
    files: &mut Files<'_>,
    verdict: Verdict,
    mut record: Record,
) -> Result<(), Failure> {
    match verdict {
        Verdict::Forward {
            index, start, len, ..
        } => {
            let name = rib
                .link(index)
                .map_or_else(|| format!("if{index}"), capture_name);
            record.data.truncate(start + len);
            record.data.drain(..start);
            record.original_len = record.data.len() as u32;
            files.write(&name, &record)?;
            *report.forwarded.entry(name).or_default() += 1;
        }
        Verdict::Kernel(reason) => {
            files.write(KERNEL, &record)?;
            *report.kernel.entry(reason.name()).or_default() += 1;
        }
        Verdict::Drop(reason) => *report.dropped.entry(Reason::name(reason)).or_default() += 1,
    }
    Ok(())
}

/// The capture of what goes to the kernel.
const KERNEL: &str = "kernel";

/// What the capture of an out-link is called.
fn capture_name(link: &Link) -> String {
    match is_file_name(&link.name) {
        true => link.name.clone(),
        false => format!("if{}", link.index),
    }
}

/// Whether a link's name can name its capture. The kernel lets no link be called otherwise than so,
/// but a snapshot comes from anywhere.
fn is_file_name(name: &str) -> bool {
    !name.is_empty() && name != KERNEL && !name.contains(['/', '\0']) && name.len() < 200
}

/// Output files, opened when the first packet comes.
struct Files<'a> {
    directory: &'a Path,
    resolution: Resolution,
    open: BTreeMap<String, Writer>,
}

impl<'a> Files<'a> {
    fn new(directory: &'a Path, resolution: Resolution) -> Files<'a> {
        Files {
            directory,
            resolution,
            open: BTreeMap::new(),
        }
    }

    fn write(&mut self, name: &str, record: &Record) -> Result<(), Failure> {
        let failed = |e: raddle_io::Error| Failure::system(e.to_string());
        if !self.open.contains_key(name) {
            let path = self.directory.join(format!("{name}.pcap"));
            self.open.insert(
                name.to_owned(),
                Writer::create(&path, self.resolution).map_err(failed)?,
            );
        }
        match self.open.get_mut(name) {
            Some(writer) => writer.write(record).map_err(failed),
            None => Ok(()),
        }
    }

    fn finish(self) -> Result<(), Failure> {
        for writer in self.open.into_values() {
            writer
                .finish()
                .map_err(|e| Failure::system(e.to_string()))?;
        }
        Ok(())
    }
}

fn print_report(report: &Report, directory: &Path) {
    println!(
        "{} packets, captures in {}",
        report.packets,
        directory.display()
    );
    for (name, count) in &report.forwarded {
        println!("{count:>10}  forwarded to {name}");
    }
    for (reason, count) in &report.kernel {
        println!("{count:>10}  to the kernel: {reason}");
    }
    for (reason, count) in &report.dropped {
        println!("{count:>10}  dropped: {reason}");
    }
    if report.cut_short > 0 {
        eprintln!(
            "{} packets were cut short by the capture; capture whole packets (tcpdump -s 0)",
            report.cut_short
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::exit;
    use raddle_rib::event::Event;

    fn args(capture: &Path, out: &Path) -> cli::Replay {
        cli::Replay {
            capture: capture.to_owned(),
            out: out.to_owned(),
            force: false,
            snapshot: None,
            iif: "eth0".into(),
            any_mac: false,
            json: false,
        }
    }

    #[test]
    fn a_capture_of_another_link_is_recognised() {
        let report = |others, packets| Report {
            packets,
            kernel: [("other-mac", others)].into(),
            ..Report::default()
        };
        let args = args(Path::new("in.pcap"), Path::new("out"));
        let said = hint(&report(5, 5), &args, [2, 0, 0, 0, 0, 0xa1]).unwrap();
        assert!(said.contains("eth0, 02:00:00:00:00:a1"), "{said}");
        assert!(said.contains("--any-mac"), "{said}");
        assert_eq!(hint(&report(4, 5), &args, [0; 6]), None);
        assert_eq!(hint(&Report::default(), &args, [0; 6]), None);
        let any_mac = cli::Replay {
            any_mac: true,
            ..args
        };
        assert_eq!(hint(&report(5, 5), &any_mac, [0; 6]), None);
    }

    #[test]
    fn captures_of_an_earlier_run_are_not_left_among_those_of_this_one() {
        let mut rib = Rib::detached();
        let names = ["eth0", "../odd"];
        for (index, name) in (2..).zip(names) {
            rib.apply(Event::Link(Link {
                index,
                name: name.into(),
                ..Link::default()
            }));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let args = |capture: &str, force| cli::Replay {
            force,
            ..args(&path(capture), folder.path())
        };
        let write = |names: &[&str]| {
            for name in names {
                std::fs::write(path(name), "").unwrap();
            }
        };
        // The capture itself and other files are not in the way.
        write(&["in.pcap", "notes.txt"]);
        make_room(&args("in.pcap", false), &rib).unwrap();
        write(&["eth0.pcap", "if3.pcap", "kernel.pcap", "other.pcap"]);
        let error = make_room(&args("in.pcap", false), &rib).unwrap_err();
        assert_eq!(error.code, exit::USAGE);
        let said = error.to_string();
        assert!(
            said.contains("(eth0.pcap, if3.pcap, kernel.pcap, other.pcap)"),
            "{said}"
        );
        assert!(said.contains("--force"), "{said}");
        // What is read is never written.
        let error = make_room(&args("eth0.pcap", true), &rib).unwrap_err();
        assert!(error.to_string().contains("while it is read"), "{error}");
        assert!(path("kernel.pcap").exists());
        make_room(&args("in.pcap", true), &rib).unwrap();
        let left = captures(folder.path()).unwrap();
        assert_eq!(left, [path("in.pcap"), path("other.pcap")]);
    }

    #[test]
    fn no_link_of_a_snapshot_is_written_elsewhere() {
        for (name, fits) in [
            ("eth0", true),
            ("eth0.5", true),
            ("..", true),
            ("../eth0", false),
            ("/etc/cron.d/x", false),
            ("a\0b", false),
            ("", false),
            ("kernel", false),
        ] {
            assert_eq!(is_file_name(name), fits, "{name:?}");
        }
    }
}
