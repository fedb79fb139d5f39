//! What was found, and what follows for the link that it is about.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Forwarded packets would bypass it: do not attach, or punt everything.
    Refuse,
    /// The link is left to the kernel in its [`Role`].
    LinkRejected,
    /// Some packets are left to the kernel, which does with them what it must.
    Punted,
    /// It works, but not as well or as surely as it could.
    Warning,
}

/// What a link is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Packets are forwarded from it.
    In,
    /// Packets are sent through it.
    Out,
    /// Either.
    Both,
}

/// Something that the user should know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The link that it is about; none for the whole namespace.
    pub link: Option<String>,
    /// In which role the link is concerned.
    pub role: Role,
    /// What was found.
    pub what: String,
    /// What follows from it.
    pub why: String,
    /// The command that fixes it, or fixed it.
    pub fix: Option<String>,
    /// It has been fixed.
    pub fixed: bool,
}

impl Finding {
    pub(crate) fn new(
        severity: Severity,
        what: impl Into<String>,
        why: impl Into<String>,
    ) -> Finding {
        Finding {
            severity,
            link: None,
            role: Role::Both,
            what: what.into(),
            why: why.into(),
            fix: None,
            fixed: false,
        }
    }

    pub(crate) fn on(mut self, link: &str, role: Role) -> Finding {
        self.link = Some(link.to_owned());
        self.role = role;
        self
    }

    pub(crate) fn fix(mut self, command: impl Into<String>) -> Finding {
        self.fix = Some(command.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(link) = &self.link {
            write!(f, "link {link}: ")?;
        }
        write!(f, "{}: {}", self.what, self.why)?;
        match &self.fix {
            Some(command) if self.fixed => write!(f, " (fixed: {command})"),
            Some(command) => write!(f, "; to fix it: {command}"),
            None => Ok(()),
        }
    }
}

/// All findings, the worst first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Why not to attach at all.
    pub fn refusals(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|f| f.severity == Severity::Refuse)
    }

    /// Packets that are left to the kernel, and why.
    pub fn punted(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|f| f.severity == Severity::Punted)
    }

    /// What may still be used, and what should be known about it.
    pub fn warnings(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|f| f.severity == Severity::Warning)
    }

    /// The links that must not be used in a role, [`Role::In`] or [`Role::Out`], and why.
    pub fn rejected(&self, role: Role) -> BTreeMap<String, String> {
        let mut links = BTreeMap::new();
        for finding in self
            .findings
            .iter()
            .filter(|f| f.severity == Severity::LinkRejected)
        {
            if let Some(link) = finding.link.as_ref().filter(|_| concerns(finding, role)) {
                let fix = finding.fix.iter().map(|m| format!("; to fix it: {m}"));
                let why = format!("{}: {}", finding.what, finding.why) + &fix.collect::<String>();
                links.entry(link.clone()).or_insert(why);
            }
        }
        links
    }
}

/// Whether a finding is about a link in this role.
pub(crate) fn concerns(finding: &Finding, role: Role) -> bool {
    finding.role == role || finding.role == Role::Both || role == Role::Both
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_well_and_serialises() {
        let finding = Finding::new(Severity::Warning, "GRO is off", "packets are lost")
            .on("va", Role::Out)
            .fix("ethtool -K vb gro on");
        assert_eq!(
            finding.to_string(),
            "link va: GRO is off: packets are lost; to fix it: ethtool -K vb gro on"
        );
        let fixed = Finding {
            fixed: true,
            ..finding
        };
        assert!(fixed.to_string().ends_with("(fixed: ethtool -K vb gro on)"));
        let json = serde_json::to_value(&fixed).unwrap();
        assert_eq!(json["severity"], "warning");
        assert_eq!(json["role"], "out");
    }
}
