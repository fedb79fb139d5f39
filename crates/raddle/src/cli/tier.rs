//! Tiers of routers, in the words of the command line.

use std::str::FromStr;

use raddle_sim::spread::Tier;

/// A tier, as the command line writes it: `seed=S,policy=1,width=4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TierArg(pub Tier);

impl FromStr for TierArg {
    type Err = String;

    fn from_str(text: &str) -> Result<TierArg, String> {
        let (mut policy, mut fields, mut seed, mut width) = (1, 7, None, None);
        for word in text.split(',') {
            let (key, value) = word.split_once('=').ok_or_else(|| {
                format!("'{word}' is not KEY=VALUE: keys are seed, policy, fields, width")
            })?;
            let bad = |what: &str| format!("'{value}' is not a {key}: {what}");
            match key {
                "policy" => {
                    let number = value.parse().ok().filter(|n| *n <= 3);
                    policy = number.ok_or_else(|| bad("a number from 0 to 3"))?;
                }
                "fields" => {
                    let number = match value.strip_prefix("0x") {
                        Some(hex) => u32::from_str_radix(hex, 16).ok(),
                        None => value.parse().ok(),
                    };
                    let number = number.filter(|n| *n <= 0xfff);
                    fields = number.ok_or_else(|| bad("a mask up to 0xfff"))?;
                }
                "seed" => {
                    let number = value.parse().ok().filter(|n| *n > 0);
                    seed = Some(number.ok_or_else(|| bad("a number from 1 to 4294967295"))?);
                }
                "width" => {
                    let number = value.parse().ok().filter(|n| (1..=1024).contains(n));
                    width = Some(number.ok_or_else(|| bad("a number from 1 to 1024"))?);
                }
                _ => {
                    return Err(format!(
                        "'{key}' is not a key of a tier: use seed, policy, fields, width"
                    ));
                }
            }
        }
        Ok(TierArg(Tier {
            policy,
            fields,
            seed: seed.ok_or("a tier wants seed=N")?,
            width: width.ok_or("a tier wants width=N")?,
        }))
    }
}
