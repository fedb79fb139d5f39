//! Which privileges the calling thread has.

use crate::error::Error;

/// A capability: its bit and its name.
pub(crate) type Capability = (u32, &'static str);

pub(crate) const SYS_ADMIN: Capability = (21, "CAP_SYS_ADMIN");
pub(crate) const SYSLOG: Capability = (34, "CAP_SYSLOG");
pub(crate) const PERFMON: Capability = (38, "CAP_PERFMON");
pub(crate) const BPF: Capability = (39, "CAP_BPF");

/// # Errors
/// [`Error::NotPermitted`] with those that are missing.
pub(crate) fn require(wanted: &[Capability]) -> Result<(), Error> {
    let status = std::fs::read_to_string("/proc/thread-self/status")
        .map_err(Error::system("read /proc/thread-self/status"))?;
    let missing = missing(&status, wanted);
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Error::NotPermitted(missing.join(", "))),
    }
}

/// Names of those that a process with this status lacks; all, where it does not say.
fn missing(status: &str, wanted: &[Capability]) -> Vec<&'static str> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let have = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    let have = have.unwrap_or(0);
    // What has CAP_SYS_ADMIN may do what CAP_BPF and CAP_PERFMON were split off for.
    let admin = have >> SYS_ADMIN.0 & 1 == 1;
    let may = |&&(bit, _): &&Capability| {
        have >> bit & 1 == 1 || admin && [BPF.0, PERFMON.0].contains(&bit)
    };
    let lacks = wanted.iter().filter(|wanted| !may(wanted));
    lacks.map(|(_, name)| *name).collect()
}

/// Whether the kernel is locked down so far that nobody may read its memory.
pub(crate) fn locked_down() -> bool {
    let mode = std::fs::read_to_string("/sys/kernel/security/lockdown");
    mode.is_ok_and(|mode| mode.contains("[confidentiality]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_has_a_name() {
        let status =
            |bits: u64| format!("Name:\tx\nCapPrm:\t0\nCapEff:\t{bits:016x}\nCapBnd:\t0\n");
        let all = [BPF, PERFMON, SYSLOG];
        assert_eq!(missing(&status(1 << 39 | 1 << 38), &all), ["CAP_SYSLOG"]);
        assert_eq!(missing(&status(1 << 21 | 1 << 34), &all), [""; 0]);
        assert_eq!(
            missing(&status(0), &all),
            ["CAP_BPF", "CAP_PERFMON", "CAP_SYSLOG"]
        );
        assert_eq!(missing("CapEff:\tx", &all[..1]), ["CAP_BPF"]);
        assert_eq!(missing("", &all[..1]), ["CAP_BPF"]);
    }
}
