//! Files of the project that are made from its code: what they have to be.

pub mod commands;
pub mod support;

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Between these the graph of crates stands.
const GRAPH: [&str; 2] = ["<!-- crates: generated -->\n", "<!-- end of crates -->\n"];

/// The project's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All files that are made from the code, by their paths from the root, as they have to be.
///
/// # Errors
/// A file cannot be read or has no marks around what is made, or `cargo metadata` fails.
pub fn generated() -> io::Result<Vec<(&'static str, String)>> {
    let root = root();
    let read = |path: &str| std::fs::read_to_string(root.join(path));
    let mut all = raddle_image::generated(read)?;
    let path = "ARCHITECTURE.md";
    let graph = graph(&metadata()?);
    let text = raddle_image::between(&read(path)?, GRAPH, &graph);
    all.push((
        path,
        text.ok_or_else(|| io::Error::other(format!("{path}: no marks")))?,
    ));
    let page = support::page(&records()?).map_err(io::Error::other)?;
    all.push(("docs/support.md", page));
    Ok(all)
}

/// What tests have recorded on each kernel, by its series, oldest first.
///
/// # Errors
/// One cannot be read, or is none.
pub fn records() -> io::Result<Vec<(String, support::Record)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(root().join("tests/support"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let record = support::Record::parse(&std::fs::read_to_string(&path)?);
        let record =
            record.map_err(|why| io::Error::other(format!("{}: {why}", path.display())))?;
        all.push((name.into_owned(), record));
    }
    let number = |series: &str| -> Vec<u32> {
        let numbers = series.split('.').map(|number| number.parse().unwrap_or(0));
        numbers.collect()
    };
    all.sort_by_key(|(name, _)| number(name));
    Ok(all)
}

/// What `cargo metadata` says of the workspace.
fn metadata() -> io::Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(root())
        .output()?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("cargo metadata: {why}")));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The libraries and the program, and what each is built from, as Mermaid draws it: an arrow to what follows from
/// others already is left out.
fn graph(metadata: &Value) -> String {
    let short = |name: &str| name.strip_prefix("raddle-").unwrap_or(name).to_owned();
    let empty = Vec::new();
    let list = |of: &Value| of.as_array().unwrap_or(&empty).clone();
    let mut edges: Vec<(String, Vec<String>)> = Vec::new();
    for package in list(&metadata["packages"]) {
        let name = package["name"].as_str().unwrap_or_default();
        let is_for_tests =
            ["raddle-e2e", "raddle-counts"].contains(&name) || name.contains("testing");
        if !name.starts_with("raddle") || is_for_tests {
            continue;
        }
        let dependencies = list(&package["dependencies"]);
        let normal = dependencies.iter().filter(|of| of["kind"].is_null());
        let names = normal.filter_map(|of| of["name"].as_str());
        let ours = names.filter(|name| name.starts_with("raddle"));
        edges.push((short(name), ours.map(short).collect()));
    }
    edges.sort();
    let of = |name: &str| {
        edges
            .iter()
            .find(|(from, _)| from == name)
            .map(|(_, to)| to)
    };
    let mut out = String::from("```mermaid\nflowchart BT\n");
    for (from, to) in &edges {
        for target in to {
            let through = |other: &String| reaches(other, target, &of);
            if !to.iter().any(|other| other != target && through(other)) {
                let _ = writeln!(out, "  {from} --> {target}");
            }
        }
    }
    out + "```\n"
}

/// Whether a crate is built from another one.
fn reaches<'a>(from: &str, target: &str, of: &impl Fn(&str) -> Option<&'a Vec<String>>) -> bool {
    let Some(to) = of(from) else {
        return false;
    };
    to.iter()
        .any(|next| next == target || reaches(next, target, of))
}
