//! IPVS: virtual services whose replies pass the forward hook.

use super::Error;

/// How many virtual services the namespace has; 0 without IPVS.
///
/// # Errors
/// [`Error::Denied`] when the table may not be read.
pub fn count() -> Result<usize, Error> {
    match std::fs::read_to_string("/proc/thread-self/net/ip_vs") {
        Ok(text) => Ok(services(&text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(e) => Err(Error::io("read the table of IPVS services", e)),
    }
}

/// Services in the text of `/proc/net/ip_vs`: a line each, behind three lines of heading and
/// before the lines of their servers (`  -> ...`).
pub(super) fn services(text: &str) -> usize {
    text.lines()
        .filter(|l| matches!(l.get(..4), Some("TCP " | "UDP " | "FWM " | "SCTP")))
        .count()
}

#[cfg(test)]
mod tests {
    #[test]
    fn services_are_told_from_headings_and_servers() {
        let empty = "IP Virtual Server version 1.2.1 (size=4096)\n\
                     Prot LocalAddress:Port Scheduler Flags\n  \
                       -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n";
        assert_eq!(super::services(empty), 0);
        let two = format!(
            "{empty}TCP  0A000001:0050 rr  \n  -> 0A000101:0050      Masq    1      0          0\n\
             FWM  00000001 wlc  \n"
        );
        assert_eq!(super::services(&two), 2);
    }
}
