//! Commands in the documents, for tests that hold them against the programs.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

use clap::Command;

/// A call of a program in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The document and the command line.
    pub place: String,
    /// The words after the program's name.
    pub words: Vec<String>,
}

/// All calls of a program in the documents.
///
/// # Errors
/// A document cannot be read.
pub fn in_documents(program: &str) -> io::Result<Vec<Call>> {
    let mut found = Vec::new();
    for document in documents()? {
        let text = fs::read_to_string(&document)?;
        let name = document.file_name().unwrap_or_default().display();
        for line in command_lines(&text) {
            found.extend(calls(&line, program).into_iter().map(|words| Call {
                place: format!("{name}: {line}"),
                words,
            }));
        }
    }
    Ok(found)
}

/// The documents of the root and of `docs`.
fn documents() -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for folder in [super::root(), super::root().join("docs")] {
        for entry in fs::read_dir(folder)? {
            all.push(entry?.path());
        }
    }
    // The change log says what was, under the names that it had.
    let is_document = |path: &PathBuf| path.extension().is_some_and(|e| e == "md");
    all.retain(|path| is_document(path) && !path.ends_with("CHANGELOG.md"));
    Ok(all)
}

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
pub fn command_lines(text: &str) -> Vec<String> {
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

/// The calls of a program in a command line, each as its words: also behind another command of the line, and those
/// that `lab exec` runs.
pub fn calls(line: &str, name: &str) -> Vec<Vec<String>> {
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
    let built = format!("release/{name}");
    let program = |word: &String| word == name || word.ends_with(&built);
    let of_program = |call: Vec<String>| {
        let before = call.iter().take_while(|w| *w == "sudo" || w.contains('='));
        let at = before.count();
        call.get(at)
            .is_some_and(program)
            .then(|| call[at + 1..].to_vec())
    };
    calls.into_iter().filter_map(of_program).collect()
}

/// Why words are no call of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a program takes these words: its commands and long options are there. What follows one of the commands
/// that are `open` is not looked at.
///
/// # Errors
/// The first word that it does not take.
pub fn known(program: &Command, words: &[String], open: &[&str]) -> Result<(), Unknown> {
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
                return Err(Unknown(format!("{} takes no --{name}", at.get_name())));
            }
        } else if let Some(sub) = at.find_subcommand(word) {
            at = sub;
            if open.contains(&at.get_name()) {
                return Ok(());
            }
        } else if at.is_subcommand_required_set() && !is_placeholder(word) {
            return Err(Unknown(format!("{} has no {word}", at.get_name())));
        }
    }
    Ok(())
}

/// `DST`, `...`, an option of one letter.
fn is_placeholder(word: &str) -> bool {
    !word.contains(|c: char| c.is_ascii_lowercase()) || word.starts_with('-')
}
