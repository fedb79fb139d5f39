//! The words of labs of parallel links.

use clap::Args;

/// `raddle lab up links`.
#[derive(Debug, Args)]
pub(crate) struct LabLinks {
    /// Links between client and server
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub links: u32,
    /// Rate of each of them, such as 200mbit [default: not limited]
    #[arg(long, value_parser = rate)]
    pub rate: Option<LinkRate>,
    /// MTU of all links
    #[arg(long)]
    pub mtu: Option<u32>,
    /// Congestion control of TCP between them; `none` leaves it to the machine
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub congctl: String,
    /// Name of the lab
    #[arg(short, long, default_value = "links")]
    pub name: String,
}

/// A rate, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkRate(pub Option<raddle_lab::Rate>);

fn rate(text: &str) -> Result<LinkRate, raddle_lab::ParseRateError> {
    match text {
        "none" => Ok(LinkRate(None)),
        _ => text.parse().map(|rate| LinkRate(Some(rate))),
    }
}

/// `raddle lab cut` and `restore`.
#[derive(Debug, Args)]
pub(crate) struct LabLink {
    /// The lab [default: the only one there is]
    #[arg(short, long)]
    pub name: Option<String>,
    /// The link: its number in `raddle lab list -j`, NODE/DEVICE, or a device that only one link has
    pub link: String,
}
