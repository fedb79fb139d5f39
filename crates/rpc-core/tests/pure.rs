//! What decides has no socket, no clock and no task: it is told what has happened, and when.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::fs;
use std::path::{Path, PathBuf};

/// What nothing that decides may name: clocks, I/O, tasks, and state that is shared or changes behind a reference.
const NOT: [&str; 18] = [
    "Instant::now",
    ".elapsed()",
    "SystemTime",
    "second()",
    "tokio",
    "socket2",
    "libc",
    "unsafe",
    "std::fs",
    "File",
    "TcpStream",
    "UdpSocket",
    "thread",
    "async",
    "Rc<",
    "Cell<",
    "Mutex",
    "Random",
];

fn files(of: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(of).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => all.push(path),
        }
    }
    all
}

/// The lines of a file but for comments and its tests.
fn code(path: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(path).unwrap();
    let lines = (1..).zip(text.lines().map(str::to_owned));
    lines
        .take_while(|(_, line)| line != "#[cfg(test)]" && line != "mod tests {")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .collect()
}

#[test]
fn what_decides_has_no_socket_and_no_clock() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut deciding = 0;
    for path in files(&source) {
        let name = path.strip_prefix(&source).unwrap();
        let is_test = name
            .iter()
            .any(|part| part == "tests.rs" || part == "model.rs");
        if is_test {
            continue;
        }
        deciding += 1;
        for (number, line) in code(&path) {
            for not in NOT {
                let shown = name.display();
                assert!(
                    !line.contains(not),
                    "{shown}:{number}: `{not}` in what decides: {line}"
                );
            }
        }
    }
    assert!(deciding > 30, "{deciding}");
}

/// Nothing of it is bound to a thread.
#[test]
fn the_core_may_be_anywhere() {
    fn is_send<T: Send>() {}
    is_send::<raddle_rpc_core::core::Core>();
}
