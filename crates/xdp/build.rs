//! Compiles the XDP programs; the objects are embedded in the library, without what only debuggers read.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::build::elf::{Builder, SectionData};
use object::elf::SHT_STRTAB;

/// Objects, the source of each, and what is defined for it.
const PROGRAMS: [(&str, &str, &[&str]); 5] = [
    ("raddle", "raddle", &[]),
    ("raddle_srv6", "raddle", &["-DSEGMENTS"]),
    ("raddle_rx_hash", "raddle", &["-DRX_HASH"]),
    ("losses", "losses", &[]),
    ("bench", "bench", &[]),
];
/// Compilers to try, best known first. `RADDLE_CLANG` goes before all of them.
const COMPILERS: [&str; 7] = [
    "clang-14", "clang", "clang-15", "clang-16", "clang-17", "clang-18", "clang-19",
];
const INSTALL: &str = "on Debian: apt-get install clang libbpf-dev linux-libc-dev";

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=RADDLE_CLANG");
    if let Err(message) = build() {
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let compiler = compiler()?;
    for (object, source, defines) in PROGRAMS {
        let object = out.join(format!("{object}.o"));
        compile(&compiler, source, defines, &object)?;
        strip(&object).map_err(|e| format!("cannot strip {}: {e}", object.display()))?;
    }
    println!("cargo::rustc-env=RADDLE_BPF_CLANG={compiler}");
    Ok(())
}

fn compiler() -> Result<String, String> {
    let chosen = std::env::var("RADDLE_CLANG").ok();
    let candidates = chosen.as_deref().into_iter().chain(COMPILERS);
    for candidate in candidates {
        if can_compile(candidate) {
            return Ok(candidate.to_owned());
        }
    }
    Err(format!(
        "no clang that compiles for BPF was found (tried RADDLE_CLANG and {}); {INSTALL}",
        COMPILERS.join(", ")
    ))
}

/// Whether this compiler exists and has the BPF target, which some distributions leave out.
fn can_compile(compiler: &str) -> bool {
    Command::new(compiler)
        .args(["-target", "bpf", "-fsyntax-only", "-x", "c", "/dev/null"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn compile(compiler: &str, program: &str, defines: &[&str], out: &Path) -> Result<(), String> {
    let source = format!("bpf/{program}.bpf.c");
    let mut command = Command::new(compiler);
    // What -faddrsig adds is for linkers, and goes by numbers that stripping changes.
    command.args(["-O2", "-g", "-fno-addrsig", "-target", "bpf", "-mcpu=v3"]);
    command.args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]);
    // <asm/types.h> lives in the multiarch folder, which the BPF target does not look into.
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    command.arg(format!("-I/usr/include/{arch}-linux-gnu"));
    command.args(defines);
    command.arg("-c").arg(&source).arg("-o").arg(out);
    let output = command
        .output()
        .map_err(|error| format!("cannot run {compiler}: {error}; {INSTALL}"))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let hint = if message.contains("file not found") {
        format!("\na header is missing; {INSTALL}")
    } else {
        String::new()
    };
    Err(format!(
        "{compiler} cannot compile {source}:\n{message}{hint}"
    ))
}

/// Takes DWARF away, two fifths of an object: clang writes it whenever BTF is wanted, which the kernel reads.
fn strip(file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let compiled = std::fs::read(file)?;
    let mut object = Builder::read(&*compiled)?;
    for section in &mut object.sections {
        let unread: [&[u8]; 2] = [b".debug_", b".rel.debug_"];
        section.delete = unread.iter().any(|name| section.name.starts_with(name));
    }
    object.delete_orphans();
    // clang keeps the names of sections beside those of symbols.
    let names = object.sections.add();
    names.name = ".shstrtab".into();
    names.sh_type = SHT_STRTAB;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    object.write(&mut stripped)?;
    Ok(std::fs::write(file, stripped)?)
}
