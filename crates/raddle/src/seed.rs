//! The seed of the kernel's choices among several paths: what the user wants of it, and setting it.

use raddle_preflight::seed::SETTING;
pub(crate) use raddle_preflight::seed::{CANNOT_BE_SET, can_be_set};

use crate::config::{Config, Seed};
use crate::error::Failure;

/// Whether the daemon will set the seed where it is unset. A number is wanted for its own sake, and has to
/// be refused where there is nothing to set; random is the wish for any that can be known.
///
/// # Errors
/// A number, on a kernel without that setting.
pub(crate) fn will_be_set(config: &Config, can_be_set: bool) -> Result<bool, Failure> {
    match config.seed {
        Some(Seed::Number(number)) if !can_be_set => Err(Failure::system(format!(
            "the hash seed {number} cannot be set: this kernel {CANNOT_BE_SET}; start without a seed, and \
             packets with several paths stay with the kernel"
        ))),
        seed => Ok(seed.is_some() && can_be_set),
    }
}

/// Sets the kernel's hash seed. Flows over several paths move once, because the kernel's own random seed can
/// neither be read nor kept.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn set(seed: Seed) -> Result<u32, Failure> {
    let number = match seed {
        Seed::Number(number) => number,
        Seed::Random => {
            let mut bytes = [0; 4];
            std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
            u32::from_le_bytes(bytes).max(1)
        }
    };
    std::fs::write(SETTING, number.to_string()).map_err(|e| {
        Failure::system(format!(
            "cannot set the hash seed in {SETTING}: {e}; it needs CAP_NET_ADMIN"
        ))
    })?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::exit;

    fn with(seed: Option<Seed>) -> Config {
        Config {
            seed,
            ..Config::default()
        }
    }

    #[test]
    fn a_number_is_refused_where_there_is_nothing_to_set() {
        let number = with(Some(Seed::Number(7)));
        let error = will_be_set(&number, false).unwrap_err();
        assert_eq!(error.code, exit::SYSTEM);
        let said = error.to_string();
        assert!(
            said.contains("seed 7") && said.contains("Linux 6.11"),
            "{said}"
        );
        assert!(will_be_set(&number, true).unwrap());
        let random = with(Some(Seed::Random));
        assert!(!will_be_set(&random, false).unwrap() && will_be_set(&random, true).unwrap());
        assert!(!will_be_set(&with(None), true).unwrap());
    }
}
