//! Running `ip` and `tc` in batches: one process for many commands, and the failed line in the error.

use std::{
    fmt::Display,
    io::Write as _,
    process::{Command, Stdio},
};

use crate::{LabError, preflight};

/// Commands for one run of `ip` or `tc`.
pub(crate) struct Batch {
    tool: &'static str,
    netns: Option<String>,
    lines: Vec<String>,
}

impl Batch {
    /// Commands of `tool` ("ip" or "tc"), in the namespace if there is one, else where we are.
    pub(crate) fn new(tool: &'static str, netns: Option<String>) -> Self {
        Self {
            tool,
            netns,
            lines: Vec::new(),
        }
    }

    /// Adds a command: a line of the tool's batch language. Nothing in a lab needs quoting, as names
    /// are checked before.
    pub(crate) fn add(&mut self, line: impl Display) {
        self.lines.push(line.to_string());
    }

    /// Runs the commands in order, up to the first that fails.
    pub(crate) fn run(self, what: &str) -> Result<(), LabError> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let cannot_run = || LabError::io(format!("{what}: cannot run {}", self.tool));
        let mut command = Command::new(preflight::find(self.tool)?);
        if let Some(netns) = &self.netns {
            command.args(["-n", netns]);
        }
        command.args(["-batch", "-"]).env("LC_ALL", "C");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(cannot_run())?;
        let mut text = self.lines.join("\n");
        text.push('\n');
        // A tool that stops at a bad line may not read the rest; its own words say more than EPIPE.
        let _ = child
            .stdin
            .take()
            .map(|mut stdin| stdin.write_all(text.as_bytes()));
        let output = child.wait_with_output().map_err(cannot_run())?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(self.failed(what, stderr.trim()))
    }

    /// The error for a failed run, with the line that the tool names ("Command failed -:3").
    fn failed(&self, what: &str, stderr: &str) -> LabError {
        let number = stderr
            .rsplit("Command failed -:")
            .next()
            .and_then(|n| n.trim().parse().ok());
        let line = number.and_then(|n: usize| self.lines.get(n.checked_sub(1)?));
        let scope = self
            .netns
            .as_ref()
            .map(|n| format!(" -n {n}"))
            .unwrap_or_default();
        LabError::Command {
            what: what.to_owned(),
            command: format!(
                "{}{scope} {}",
                self.tool,
                line.map_or("-batch -", String::as_str)
            ),
            stderr: stderr
                .lines()
                .next()
                .unwrap_or("no reason given")
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failed_line_is_named() {
        let mut batch = Batch::new("ip", Some("rdl-x-y".into()));
        batch.add("link show");
        batch.add("link set nothing up");
        let said = "Cannot find device \"nothing\"\nCommand failed -:2";
        let error = batch.failed("bringing links up", said).to_string();
        assert_eq!(
            error,
            "bringing links up: `ip -n rdl-x-y link set nothing up` failed: \
             Cannot find device \"nothing\""
        );
    }
}
