//! The key of the kernel's choices among several paths: its own, or that of a seed which the user wants set.

pub(crate) use raddle_preflight::seed::{CANNOT_BE_SET, SETTING, can_be_set};

use raddle_rib::Rib;

use crate::Error;
use crate::config::{Config, Seed};

/// Whether the daemon will set the seed where it is unset. A number is wanted for its own sake, and has to
/// be refused where there is nothing to set; random is the wish for any that can be known.
///
/// # Errors
/// A number, on a kernel without that setting.
pub(crate) fn will_be_set(config: &Config, can_be_set: bool) -> Result<bool, Error> {
    match config.seed {
        Some(Seed::Number(number)) if !can_be_set => Err(Error::NoSeed(number)),
        seed => Ok(seed.is_some() && can_be_set),
    }
}

/// Has a state go by the kernel's own key where no seed is set, so that no flow moves. Why there is none to go by;
/// nothing where there is.
pub(crate) fn know(rib: &mut Rib) -> Option<String> {
    raddle_key::know(rib).err().map(|why| why.to_string())
}

/// Sets the kernel's hash seed. Flows over several paths move once.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn set(seed: Seed) -> Result<u32, Error> {
    let number = match seed {
        Seed::Number(number) => number,
        Seed::Random => {
            let mut bytes = [0; 4];
            std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
            u32::from_le_bytes(bytes).max(1)
        }
    };
    match std::fs::write(SETTING, number.to_string()) {
        Ok(()) => Ok(number),
        Err(e) => Err(Error::SetSeed(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(matches!(error, Error::NoSeed(7)));
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
