//! What the file says, and what is said of mistakes.

use super::*;

#[test]
fn the_example_of_the_package_is_read() {
    let text = include_str!("../../../../packaging/rpc.toml");
    assert_eq!(parse(text).unwrap().servers.len(), 1);
    // Every key that it explains is one.
    let all: String = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(key) if key.contains(" = ") && !key.starts_with(' ') => key,
            Some(key) if key.starts_with("[[") => key,
            Some(_) => "",
            None => line,
        })
        .fold(String::new(), |all, line| all + line + "\n");
    let file = parse(&all).unwrap();
    assert_eq!(file.servers.len(), 2, "{file:?}");
    assert!(file.process.metrics.is_some());
}

#[test]
fn servers_have_the_options_of_the_command_line() {
    let file = parse(
        "log-json = true\n[[server]]\nserver = 'a:2049'\nlisten = ['127.0.0.1:2049', '127.0.0.1:111']\n\
         connections = 8\npolicy = 'round-robin'\nno-lane = true\nmax-record = 4\n\
         [[server]]\nserver = 'b:2049'\nlisten = '127.0.0.2:2049'\nno-lane = false\n",
    )
    .unwrap();
    assert!(file.process.log_json);
    let [a, b] = file.servers.as_slice() else {
        panic!("{file:?}");
    };
    assert_eq!((a.connections, a.max_record, a.listen.len()), (8, 4, 2));
    assert!(!a.lane && b.lane);
    assert_eq!(
        (a.policy, b.policy),
        (Policy::RoundRobin, Policy::LeastBytes)
    );
    assert_eq!((a.name.as_str(), b.name.as_str()), ("a", "b"));
}

#[test]
fn mistakes_have_their_place() {
    let one = "[[server]]\nserver = 'a:1'\n";
    let with = |more: &str| format!("{one}{more}");
    for (text, line, below, said) in [
        (
            "server = 'a:1'",
            1,
            "'a:1'",
            "this is \"a:1\", and should be a table [[server]]",
        ),
        (
            "[[server]]\nlisten = '127.0.0.1:1'",
            1,
            "[[server]]",
            "this [[server]] names none",
        ),
        (
            "x = 1\n[[server]]\nserver = 'a:1'",
            1,
            "x",
            "there is no key 'x' here; there are metrics",
        ),
        (
            &with("mount = 1"),
            3,
            "mount",
            "there is no key 'mount' here; there are name, listen",
        ),
        (
            &with("connections = 0"),
            3,
            "0",
            "this is 0, and should be a whole number from 1 to 1024",
        ),
        (
            &with("mount-port = 70000"),
            3,
            "70000",
            "this is 70000, and should be a whole number from 0 to 65535",
        ),
        // Behind the rule of table main, which knows a way to every server.
        (
            &with("replay-table = 32703"),
            3,
            "32703",
            "this is 32703, and should be a whole number from 256 to 32702",
        ),
        (
            &with("replay-mark = 0"),
            3,
            "0",
            "this is 0, and should be a mark, 1 to 0xffffff00",
        ),
        (
            &with("replay-mark = '0x'"),
            3,
            "'0x'",
            "this is \"0x\", and should be a mark, 1 to 0xffffff00",
        ),
        (
            &with("server-addresses = ['10.0.0.2', 'nas']"),
            3,
            "'nas'",
            "'nas' is no ADDRESS: invalid IP address syntax",
        ),
        (
            "[[server]]\nserver = 'nas:nfs'",
            2,
            "'nas:nfs'",
            "'nas:nfs' is no HOST[:PORT]: write HOST or HOST:PORT",
        ),
        (
            &with("max_record = 4"),
            3,
            "max_record",
            "; max-record may be meant",
        ),
        (
            &with("policy = 'fast'"),
            3,
            "'fast'",
            "there is no 'fast'; it is one of \"round-robin\", \"least-bytes\", \"hash\"",
        ),
        (
            &with("no-lane = 1"),
            3,
            "1",
            "this is 1, and should be true or false",
        ),
        (
            &with("memory = true"),
            3,
            "true",
            "this is true, and should be a whole number from 1 to 65536",
        ),
        (
            &with("listen = ['127.0.0.1:7', 'a']"),
            3,
            "'a'",
            "'a' is no ADDRESS:PORT",
        ),
        (
            &with("memory = [1, 2]"),
            3,
            "[1, 2]",
            "this is a list, and should be a whole number from 1 to 65536",
        ),
        (
            &with("[[server]]\nserver = 'b:1'"),
            3,
            "[[server]]",
            "listen 127.0.0.1:2049 has been taken by the [[server]] in line 1",
        ),
        (
            &with("[[server]]\nlisten = '127.0.0.2:1'\nserver = 'a:1'"),
            5,
            "'a:1'",
            "server a:1 has been taken",
        ),
        (
            &with("[[server]]\nlisten = '127.0.0.2:1'\nserver = 'a:2'"),
            3,
            "[[server]]",
            "name a has been taken",
        ),
    ] {
        let error = parse(text).unwrap_err().to_string();
        let error = error.strip_prefix("rpc.toml: ").unwrap();
        assert!(error.contains(said), "{text}: {error}");
        assert!(error.starts_with(&format!("line {line}, ")), "{error}");
        let lines: Vec<&str> = error.lines().collect();
        let at = lines[3].find('^').unwrap();
        let marked = &lines[2][at..at + lines[3].matches('^').count()];
        assert_eq!(marked, below, "{error}");
    }
    for text in ["", "server = []"] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with("rpc.toml: it has no server"), "{error}");
    }
    let error = parse("[[server]\n").unwrap_err().to_string();
    assert!(error.starts_with("rpc.toml: line 1, column"), "{error}");
}
