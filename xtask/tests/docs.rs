//! What the documents of the project link to is there, and the book has every page.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The most lines that the README may have: it is what somebody reads first.
const README_LINES: usize = 150;

/// The documents whose links are followed, by their paths from the root.
fn documents() -> Vec<String> {
    let root = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
    ];
    let pages = pages().into_iter().map(|page| format!("docs/{page}"));
    root.into_iter().map(str::to_owned).chain(pages).collect()
}

/// The names of the files in `docs`, its contents among them.
fn pages() -> BTreeSet<String> {
    let names = fs::read_dir(xtask::root().join("docs")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".md")).collect()
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(xtask::root().join(path)).unwrap()
}

/// The lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// What the links of a document lead to.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        // Every other part is code: `[a](b)` is none there.
        let outside: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for part in outside.split("](").skip(1) {
            let target = part.split([')', ' ']).next().unwrap_or_default();
            found.push(target.to_owned());
        }
    }
    found
}

/// The anchors that GitHub gives to the headings of a document: in lower case, without what is neither a letter, a digit,
/// `-` nor `_`, with `-` for spaces; a repeated one gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for line in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let slug: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let seen = times.entry(slug.clone()).or_default();
        all.insert(match *seen {
            0 => slug,
            n => format!("{slug}-{n}"),
        });
        *seen += 1;
    }
    all
}

#[test]
fn anchors_are_githubs() {
    let text = "# The checks of `raddle doctor`\n## RPCSEC_GSS\n```\n# no heading\n```\n## How the kernel's, why\n## RPCSEC_GSS\n#no";
    let wanted = [
        "the-checks-of-raddle-doctor",
        "rpcsec_gss",
        "how-the-kernels-why",
        "rpcsec_gss-1",
    ];
    assert_eq!(anchors(text), wanted.map(str::to_owned).into());
}

#[test]
fn links_are_found_outside_of_code() {
    let text = "[a](b.md) `[c](d)` [`e`](f#g \"h\")\n```\n[i](j)\n```\n";
    assert_eq!(links(text), ["b.md", "f#g"]);
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    for document in documents() {
        let text = read(&document);
        let folder = Path::new(&document).parent().unwrap();
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => document.clone().into(),
                path => folder.join(path),
            };
            if !xtask::root().join(&target).exists() {
                wrong.push(format!("{document}: {link}: no such file"));
            } else if !anchor.is_empty() && !anchors(&read(&target)).contains(anchor) {
                wrong.push(format!("{document}: {link}: no such heading"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_book_has_every_page() {
    let mut wanted = pages();
    wanted.remove("SUMMARY.md");
    let contents = links(&read("docs/SUMMARY.md"));
    let once: BTreeSet<String> = contents.iter().cloned().collect();
    assert_eq!(once.len(), contents.len(), "a page stands there twice");
    assert_eq!(once, wanted, "docs/SUMMARY.md, and the files of docs");

    // Who reads on GitHub has its first page in the place of the contents.
    let first: BTreeSet<String> = links(&read("docs/README.md")).into_iter().collect();
    wanted.remove("README.md");
    let missing: Vec<_> = wanted.difference(&first).collect();
    assert!(missing.is_empty(), "docs/README.md names no {missing:?}");
}

#[test]
fn the_readme_is_short() {
    let readme = read("README.md");
    let lines = readme.lines().count();
    assert!(
        lines <= README_LINES,
        "README.md has {lines} lines: what is beyond {README_LINES} belongs in docs"
    );
    let start = readme.find("$ raddle explain").unwrap();
    let answer = readme[start..].split("```").next().unwrap();
    assert!(
        read("docs/explain.md").contains(answer),
        "README.md and docs/explain.md show different answers"
    );
}
