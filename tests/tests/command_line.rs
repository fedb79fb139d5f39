//! The command line as an ordinary user meets it: help everywhere, options where `ip(8)` takes them,
//! exit codes.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;

use raddle_e2e::{Outcome, run};

fn raddle(line: &str) -> Outcome {
    run(&line.split_whitespace().collect::<Vec<_>>())
}

fn fine(line: &str) -> String {
    raddle_e2e::fine(&line.split_whitespace().collect::<Vec<_>>())
}

#[test]
fn help_is_everywhere() {
    for (line, said) in [
        ("help", "Usage: raddle"),
        ("help run", "--on-exit"),
        ("help lab up", "clos"),
        ("run --help", "--on-exit"),
        ("help route", "[ table { TABLE | all } ]"),
        ("help neigh", "[ nud STATE ]"),
        ("route help", "[ table { TABLE | all } ]"),
        ("route --help", "[ table { TABLE | all } ]"),
        ("-6 route -h", "[ table { TABLE | all } ]"),
        ("nexthop show --help", "[ groups ]"),
        ("neigh --help", "[ nud STATE ]"),
        (
            "help nexthop bucket",
            "nexthop bucket get id ID index INDEX",
        ),
        (
            "help nh bucket show",
            "nexthop bucket get id ID index INDEX",
        ),
        ("help route show", "[ table { TABLE | all } ]"),
        (
            "nexthop bucket help",
            "nexthop bucket get id ID index INDEX",
        ),
    ] {
        let help = fine(line);
        assert!(help.contains(said), "raddle {line}: {help}");
    }
    let neigh = fine("help neigh");
    assert!(!neigh.contains("table"), "{neigh}");
}

#[test]
fn charts_are_svg_or_png() {
    let folder = tempfile::tempdir().unwrap();
    let draw = |name: &str| {
        let file = folder.path().join(name);
        let line = format!(
            "spread --tier seed=7,width=4 --flows 10 --plot {}",
            file.display()
        );
        (raddle(&line), file)
    };
    let (outcome, file) = draw("a.gif");
    assert_eq!(outcome.code, Some(2));
    assert!(
        outcome.stderr.contains(".svg or .png"),
        "{}",
        outcome.stderr
    );
    assert!(!file.exists());
    for name in ["a.svg", "a.png"] {
        let (outcome, file) = draw(name);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(file.exists());
    }
}

/// One list for all that takes flows, and mistakes in it by their line.
#[test]
fn lists_of_flows_are_the_same_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (state, list, wrong) = (path("state.json"), path("list"), path("wrong"));
    fine(&format!("snapshot {state}"));
    let text = "# both ways\n127.0.0.1 from 127.0.0.2 ipproto tcp sport 5 dport 6\n127.0.0.2 127.0.0.1 tcp 5 6\n";
    std::fs::write(&list, text).unwrap();
    std::fs::write(&wrong, format!("{text}127.0.0.1 from 127.0.0.2 oif lo\n")).unwrap();
    let answers = fine(&format!("explain -j --snapshot {state} --flows {list}"));
    let answers: Vec<&str> = answers.lines().collect();
    assert!(
        matches!(answers.as_slice(), [a, b] if a == b),
        "{answers:?}"
    );
    let came_in = fine(&format!(
        "explain -j --snapshot {state} --flows {list} iif lo"
    ));
    assert!(
        came_in.lines().all(|line| line.contains("\"iif\":\"lo\"")),
        "{came_in}"
    );
    let said = fine(&format!("spread -j --tier seed=7,width=4 --flows {list}"));
    assert!(said.contains("\"flows\":2"), "{said}");
    for command in [
        "explain",
        "explain --snapshot {state}",
        "spread --tier seed=7,width=4",
    ] {
        let command = command.replace("{state}", &state);
        let outcome = raddle(&format!("{command} --flows {wrong}"));
        let said = &outcome.stderr;
        assert_eq!(outcome.code, Some(2), "{command}: {said}");
        assert!(
            said.contains("wrong: line 4: 'oif' is not a word of a flow"),
            "{command}: {said}"
        );
    }
    std::fs::write(&wrong, "\n127.0.0.1 from 127.0.0.2 iif nope\n").unwrap();
    let said = raddle(&format!("explain --snapshot {state} --flows {wrong}")).stderr;
    assert!(
        said.contains("wrong: line 2: there is no link 'nope'"),
        "{said}"
    );
}

#[test]
fn man_pages_are_about_their_noun() {
    let folder = tempfile::tempdir().unwrap();
    fine(&format!("man {}", folder.path().display()));
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(page("raddle-neigh.8").contains("nud STATE"));
    assert!(!page("raddle-neigh.8").contains("TABLE"));
    assert!(page("raddle-nexthop.8").contains("groups"));
    assert!(!folder.path().join("raddle-help.8").exists());
    assert!(!folder.path().join("raddle-lab-help.8").exists());
}

/// The rules of `--mp-algo` are about packets that come in by a link.
#[test]
fn a_plan_by_rules_wants_an_input_link() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    let state = state.to_str().unwrap();
    fine(&format!("snapshot {state}"));
    let line = "ports plan 203.0.113.7 -n 4 --from 192.0.2.1 --mp-algo nhid:100=l4";
    let outcome = raddle(&format!("{line} --snapshot {state}"));
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("packets that come in by a link"),
        "{}",
        outcome.stderr
    );
    // With one it is the plan that there is none of.
    let outcome = raddle(&format!("{line} --snapshot {state} --iif lo"));
    assert!(
        !outcome.stderr.contains("packets that come in by a link"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn options_and_snapshots_stand_before_and_after_the_noun() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.json");
    let file = file.to_str().unwrap();
    fine(&format!("snapshot {file}"));
    for noun in ["route", "ro", "nexthop", "nh", "neigh", "neighbour"] {
        let expected = fine(&format!("{noun} show -6 -j --snapshot {file}"));
        for line in [
            format!("-6 -j --snapshot {file} {noun} show"),
            format!("-6 {noun} --snapshot={file} -j show"),
            format!("-f inet6 --json {noun} show --snapshot {file}"),
        ] {
            assert_eq!(fine(&line), expected, "raddle {line}");
        }
    }
    // An option of one noun only is still said to be unknown elsewhere.
    assert_eq!(raddle("-6 status").code, Some(2));
    let flow = "127.0.0.1 from 10.0.0.1 iif lo";
    let before = raddle(&format!("explain --snapshot {file} {flow}"));
    let after = raddle(&format!("explain {flow} --snapshot {file}"));
    assert_eq!(
        (before.code, &before.stdout),
        (after.code, &after.stdout),
        "{}",
        after.stderr
    );
}

/// What others have written reaches no terminal as they have written it.
#[test]
fn a_terminal_obeys_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let state = "crates/explain/tests/topologies/net/state.json";
    let state = std::fs::read_to_string(Path::new("..").join(state)).unwrap();
    let mut state: serde_json::Value = serde_json::from_str(&state).unwrap();
    state["links"][1]["name"] = "\u{1b}[2J".into();
    let state = file("state.json", &state.to_string());
    let paths = r#"paths = [ { link = "a" }, { link = "\u001b[2J" } ]"#;
    let router = file(
        "router.toml",
        &format!("policy = 1\nseed = 7\n[[route]]\n{paths}\n"),
    );
    let raw = file("raw.toml", "policy = '\u{1b}[2J'\n");
    let plan = file("plan.json", r#"{ "\u001b[2J": 1 }"#);
    let explain = format!("explain 203.0.113.7 --snapshot {state}");
    for (line, said) in [
        (&*explain, "is not the name of a link"),
        (
            &format!("{explain} --peers {router}"),
            "is not the name of a link",
        ),
        (
            &format!("spread --tier router={router}"),
            "is not the name of a link",
        ),
        (&format!("spread --tier router={raw}"), "line 1"),
        (&format!("key find --observations {raw}"), "line 1"),
        (&format!("ports verify {plan}"), "is not a certificate"),
    ] {
        let refused = raddle(line);
        assert_eq!(refused.code, Some(2), "{line}: {}", refused.stdout);
        assert!(refused.stderr.contains(said), "{line}: {}", refused.stderr);
        assert!(
            !refused.stderr.contains('\u{1b}'),
            "{line}: {:?}",
            refused.stderr
        );
    }
}

#[test]
fn a_wrong_word_is_one_exit_code() {
    for line in [
        "route get 10.0.0.1",
        "route add 10.0.0.0/8",
        "route --colour",
        "neigh show dev",
        "nexthop show id x",
        "-x route",
        "walk",
    ] {
        let outcome = raddle(line);
        assert_eq!(outcome.code, Some(2), "raddle {line}: {}", outcome.stderr);
        assert!(!outcome.stderr.is_empty(), "raddle {line}");
    }
}

/// Runs `scripts/install.sh` and returns what it says.
fn install(words: [&str; 3]) -> String {
    let mut command = Command::new("bash");
    command.arg(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../scripts/install.sh"
    ));
    let outcome = Outcome::of(command.args(words));
    assert_eq!(outcome.code, Some(0), "{words:?}: {}", outcome.stderr);
    outcome.stdout
}

/// The files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

#[test]
fn what_is_installed_is_named_and_goes_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("own");
    let own = at.to_str().unwrap();
    let staged = folder.path().join("staged");
    let stage = staged.to_str().unwrap();
    let binary = raddle_e2e::raddle().to_str().unwrap();
    // Everything is in a prefix of one's own, and below DESTDIR otherwise.
    for (words, root, unit, run, config, zsh) in [
        (
            [binary, "", own],
            &at,
            "lib/systemd/system/raddle.service",
            format!("ExecStart={own}/sbin/raddle run --config {own}/etc/raddle/raddle.toml\n"),
            "etc/raddle/raddle.toml",
            "share/zsh/site-functions/_raddle",
        ),
        (
            [binary, stage, "/usr/local"],
            &staged,
            "lib/systemd/system/raddle.service",
            "ExecStart=/usr/local/sbin/raddle run\n".into(),
            "etc/raddle/raddle.toml",
            "usr/local/share/zsh/site-functions/_raddle",
        ),
    ] {
        let said = install(words);
        let installed = files(root);
        assert!(installed.len() > 15, "{installed:?}");
        for file in &installed {
            let line = format!("installed {}\n", file.display());
            assert!(said.contains(&line), "{line} is not in:\n{said}");
        }
        let unit = std::fs::read_to_string(root.join(unit)).unwrap();
        assert!(unit.contains(&run), "{unit}");
        assert!(root.join(zsh).exists());
        let rpc = root.join("lib/systemd/system/raddle-rpc.service");
        let rpc = std::fs::read_to_string(rpc).unwrap();
        let etc = if words[1].is_empty() { own } else { "" };
        let run = format!("/sbin/raddle rpc --config {etc}/etc/raddle/rpc.toml\n");
        assert!(rpc.contains(&run), "{rpc}");

        let configs = [root.join(config), root.join("etc/raddle/rpc.toml")];
        let said = install(["--remove", words[1], words[2]]);
        for file in installed.iter().filter(|file| !configs.contains(file)) {
            let line = format!("removed {}\n", file.display());
            assert!(said.contains(&line), "{line} is not in:\n{said}");
        }
        for config in &configs {
            let line = format!("left {}: ", config.display());
            assert!(said.contains(&line), "{said}");
        }
        let mut left = files(root);
        left.sort();
        assert_eq!(left, configs);
    }
    // The empty directories of a prefix of one's own went as well.
    assert!(!at.join("share").exists());
    // Who comes again finds the configuration as it was.
    std::fs::write(at.join("etc/raddle/raddle.toml"), "# mine\n").unwrap();
    assert!(install([binary, "", own]).contains("raddle.toml as it is"));
    let config = std::fs::read_to_string(at.join("etc/raddle/raddle.toml"));
    assert_eq!(config.unwrap(), "# mine\n");
}
