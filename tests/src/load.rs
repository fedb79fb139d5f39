//! Programs that make the machine busy.

use std::process::{Child, Command, Stdio};

/// Processes that end with it.
#[derive(Debug)]
pub struct Load(Vec<Child>);

impl Load {
    /// So many of a command.
    pub fn new(count: usize, command: &[&str]) -> Load {
        let one = || {
            Command::new(command[0])
                .args(&command[1..])
                .stdin(Stdio::null())
                .spawn()
                .unwrap()
        };
        Load((0..count).map(|_| one()).collect())
    }

    /// So many loops that want a processor each.
    pub fn busy(count: usize) -> Load {
        Load::new(count, &["sh", "-c", "while :; do :; done"])
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
