//! Commands in the documents are commands of the program.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};

use super::Cli;
use crate::show;

/// What stands in a document: a block of code with its language, or a line of text.
enum Part<'a> {
    Block(&'a str, Vec<&'a str>),
    Text(&'a str),
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        parts.push(match line.trim_start().strip_prefix("```") {
            Some(language) => {
                let inside = |line: &&str| !line.trim_start().starts_with("```");
                Part::Block(language, lines.by_ref().take_while(inside).collect())
            }
            None => Part::Text(line),
        });
    }
    parts
}

/// The command lines of a document: what stands behind a prompt, else every line of a block for a shell, and code within
/// text that begins with the program's name.
fn command_lines(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in parts(text) {
        match part {
            Part::Block("sh" | "console" | "", lines) => {
                let joined = lines.join("\n").replace("\\\n", " ");
                let behind = |line: &str| {
                    let command = line.strip_prefix("$ ").or(line.strip_prefix("# "));
                    command.map(str::to_owned)
                };
                let prompted: Vec<_> = joined.lines().filter_map(behind).collect();
                match prompted.is_empty() {
                    true => found.extend(joined.lines().map(str::to_owned)),
                    false => found.extend(prompted),
                }
            }
            Part::Block(..) => {}
            Part::Text(line) => {
                let code = line.split('`').skip(1).step_by(2);
                found.extend(code.map(str::to_owned));
            }
        }
    }
    found
}

/// The calls of the program in a command line, each as its words: also behind another command of the line, and those
/// that `lab exec` runs.
fn calls(line: &str) -> Vec<Vec<String>> {
    let mut calls: Vec<Vec<String>> = vec![Vec::new()];
    let mut word = String::new();
    let mut quote = None;
    let end = |word: &mut String, calls: &mut Vec<Vec<String>>| {
        if !word.is_empty() {
            let word = std::mem::take(word);
            if let ("--", Some(last)) = (&*word, calls.last()) {
                // The command that another one is given.
                if last.iter().any(|w| w == "exec") {
                    calls.push(Vec::new());
                    return;
                }
            }
            calls
                .last_mut()
                .into_iter()
                .for_each(|call| call.push(word.clone()));
        }
    };
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(if c == ' ' { '_' } else { c }),
            (None, '\'' | '"') => quote = Some(c),
            (None, '#') if word.is_empty() => break,
            (None, ' ') => end(&mut word, &mut calls),
            (None, '|' | '&' | ';' | '>') => {
                end(&mut word, &mut calls);
                calls.push(Vec::new());
            }
            (None, c) => word.push(c),
        }
    }
    end(&mut word, &mut calls);
    let program = |word: &String| word == "raddle" || word.ends_with("release/raddle");
    let of_raddle = |call: Vec<String>| {
        let before = call.iter().take_while(|w| *w == "sudo" || w.contains('='));
        let at = before.count();
        call.get(at)
            .is_some_and(program)
            .then(|| call[at + 1..].to_vec())
    };
    calls.into_iter().filter_map(of_raddle).collect()
}

/// Whether the program takes these words: its commands and long options are there. What follows `ip(8)`'s nouns is theirs.
fn known(program: &Command, words: &[String]) -> Result<(), String> {
    if show::options_first(words).is_some() {
        return Ok(());
    }
    let mut at = program;
    for word in words {
        if let Some(long) = word.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or_default();
            let there = at.get_arguments().any(|argument| {
                argument.get_long() == Some(name)
                    || argument
                        .get_all_aliases()
                        .is_some_and(|all| all.contains(&name))
            });
            if !there {
                return Err(format!("{} takes no --{name}", at.get_name()));
            }
        } else if let Some(sub) = at.find_subcommand(word) {
            at = sub;
            if ["route", "nexthop", "neigh", "sr"].contains(&at.get_name()) {
                return Ok(());
            }
        } else if at.is_subcommand_required_set() && !is_placeholder(word) {
            return Err(format!("{} has no {word}", at.get_name()));
        }
    }
    Ok(())
}

/// `DST`, `...`, an option of one letter.
fn is_placeholder(word: &str) -> bool {
    !word.contains(|c: char| c.is_ascii_lowercase()) || word.starts_with('-')
}

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = Vec::new();
    for folder in [root.clone(), root.join("docs")] {
        let files = fs::read_dir(folder).unwrap();
        let files = files.map(|entry| entry.unwrap().path());
        all.extend(files.filter(|path| path.extension().is_some_and(|e| e == "md")));
    }
    // It says what was, under the names that it had.
    all.retain(|path| !path.ends_with("CHANGELOG.md"));
    all
}

#[test]
fn commands_in_the_documents_exist() {
    let mut program = Cli::command();
    program.build();
    let (mut wrong, mut calls_seen) = (Vec::new(), 0);
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for line in command_lines(&text) {
            for call in calls(&line) {
                calls_seen += 1;
                if let Err(why) = known(&program, &call) {
                    let name = document.file_name().unwrap_or_default();
                    wrong.push(format!("{}: {line}: {why}", name.display()));
                }
            }
        }
    }
    assert!(calls_seen > 100, "{calls_seen} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_does_not_exist_is_found() {
    let mut program = Cli::command();
    program.build();
    let wrong = |line: &str| {
        let calls = calls(line);
        assert!(!calls.is_empty(), "{line}");
        calls.iter().any(|call| known(&program, call).is_err())
    };
    for line in [
        "raddle weave",
        "sudo raddle run --fast",
        "ip route; raddle lab lift",
        "raddle lab exec -n a leaf1 -- raddle explain --why 10.0.0.1",
        "PATH=x target/release/raddle ports plan --dports 1",
    ] {
        assert!(wrong(line), "{line}");
    }
    for line in [
        "raddle run --link eth0 --fpm=127.0.0.1:1   # --fast",
        "raddle -s -d sr show fc00::1 | tail -1",
        "raddle route show --frobnicate",
        "raddle lab exec leaf1 -- ip route --anything",
        "raddle explain --inner '10.0.9.1 from --x' fc00::1 &",
        "raddle help explain",
    ] {
        assert!(!wrong(line), "{line}");
    }
    let text = "```sh\nraddle a \\\n  b\n```\n```console\n$ raddle c\nraddle 0.1.0\n```\nSay `raddle d` or `e`.\n```text\nraddle f\n```";
    let found = ["raddle a    b", "raddle c", "raddle d", "e"];
    assert_eq!(command_lines(text), found);
}
