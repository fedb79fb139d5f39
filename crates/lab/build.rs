//! Compiles the BPF programs, to be embedded in the library and its tests.

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    process::Command,
};

/// The wire, and a program that the tests attach to a router.
const PROGRAMS: [&str; 2] = ["wire", "bounce"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-env-changed=RADDLE_CLANG");
    let clang = clang()?;
    // Debian keeps <asm/types.h> in a directory named after the architecture.
    let multiarch = format!(
        "/usr/include/{}-linux-gnu",
        env::var("CARGO_CFG_TARGET_ARCH")?
    );
    for program in PROGRAMS {
        let source = format!("bpf/{program}.bpf.c");
        println!("cargo:rerun-if-changed={source}");
        let object = PathBuf::from(env::var("OUT_DIR")?).join(format!("{program}.bpf.o"));
        let mut command = Command::new(&clang);
        command.args([
            "-O2", "-g", "-target", "bpf", "-mcpu=v2", "-Wall", "-Wextra", "-Werror",
        ]);
        if Path::new(&multiarch).is_dir() {
            command.args(["-idirafter", &multiarch]);
        }
        let status = command.args(["-c", &source, "-o"]).arg(&object).status()?;
        if !status.success() {
            return Err(format!(
                "{clang} could not compile {source}; it needs the headers of libbpf: \
                 apt-get install libbpf-dev"
            )
            .into());
        }
    }
    Ok(())
}

/// The compiler: `$RADDLE_CLANG`, else the newest clang from 14 on that answers.
fn clang() -> Result<String, String> {
    println!("cargo:rerun-if-env-changed=PATH");
    let named = env::var("RADDLE_CLANG").ok();
    let known = [
        "clang", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14",
    ];
    named
        .into_iter()
        .chain(known.map(String::from))
        .find(|c| {
            Command::new(c)
                .arg("--version")
                .output()
                .is_ok_and(|o| o.status.success())
        })
        .ok_or_else(|| "no clang found; it compiles BPF programs: apt-get install clang".into())
}
