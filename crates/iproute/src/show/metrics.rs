//! `RTA_METRICS`: what a route tells TCP and path MTU discovery.

use super::out::Out;

/// `RTAX_*` by number: the word in text, the key in JSON.
const METRICS: [(u8, &str); 14] = [
    (2, "mtu"),
    (3, "window"),
    (4, "rtt"),
    (5, "rttvar"),
    (6, "ssthresh"),
    (7, "cwnd"),
    (8, "advmss"),
    (9, "reordering"),
    (10, "hoplimit"),
    (11, "initcwnd"),
    (13, "rto_min"),
    (14, "initrwnd"),
    (15, "quickack"),
    (17, "fastopen_no_cookie"),
];
const RTAX_LOCK: u8 = 1;
const RTAX_FEATURES: u8 = 12;

/// Prints the metrics in the order of their numbers, with their locks (in text only, as `ip`).
pub(crate) fn print_metrics(out: &mut Out<'_>, metrics: &[(u8, u32)]) {
    if metrics.is_empty() {
        return;
    }
    let locked = metrics
        .iter()
        .find(|(number, _)| *number == RTAX_LOCK)
        .map_or(0, |lock| lock.1);
    let mut metrics: Vec<_> = metrics
        .iter()
        .filter(|(number, _)| *number != RTAX_LOCK)
        .collect();
    metrics.sort_by_key(|(number, _)| *number);
    out.begin_array("metrics");
    out.begin_object("");
    for &(number, value) in metrics {
        if number == RTAX_FEATURES && value & 1 != 0 {
            out.text("features ");
            out.fact("ecn");
        }
        let Some((_, name)) = METRICS.iter().find(|(known, _)| *known == number) else {
            continue;
        };
        let lock = if locked & (1 << number) != 0 {
            "lock "
        } else {
            ""
        };
        // Round trip times are kept in eighths of a millisecond, their variance in quarters.
        let value = match number {
            4 => value / 8,
            5 => value / 4,
            _ => value,
        };
        out.json_number(name, u64::from(value));
        match number {
            4 | 5 | 13 if value >= 1000 => {
                out.text(format_args!(
                    "{name} {lock}{}s ",
                    general(f64::from(value) / 1000.0)
                ));
            }
            4 | 5 | 13 => out.text(format_args!("{name} {lock}{value}ms ")),
            _ => out.text(format_args!("{name} {lock}{value} ")),
        }
    }
    out.end_object();
    out.end_array();
}

/// A number of at least 0.0001, or 0, as C's `%g` prints it: six digits, no trailing zeros, and from a
/// million on an exponent.
pub(crate) fn general(value: f64) -> String {
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    // Rounding may carry into another digit, so it comes first.
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<usize>() {
        Ok(exponent @ 6..) => format!("{}e+{exponent:02}", trimmed(digits)),
        Ok(exponent) => trimmed(&format!("{value:.*}", 5 - exponent)),
        Err(_) => trimmed(&format!("{value:.5}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `printf %g` prints them.
    #[test]
    fn numbers_are_cs() {
        for (value, expected) in [
            (0.0, "0"),
            (0.01, "0.01"),
            (0.22, "0.22"),
            (1.0, "1"),
            (99.99, "99.99"),
            (12_345.67, "12345.7"),
            (99_999.99, "100000"),
            (999_999.0, "999999"),
            (999_999.99, "1e+06"),
            (1_036_812.0, "1.03681e+06"),
            (1e17, "1e+17"),
        ] {
            assert_eq!(general(value), expected);
        }
    }
}
