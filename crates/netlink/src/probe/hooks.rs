//! What is hooked into netfilter on the way of forwarded packets, and of those to and from this machine, whoever put it there.
//!
//! Most of it is told better by those that it belongs to: chains of nftables, tables of iptables, IPVS. This tells of the rest:
//! connection tracking that no rule asks for, programs of BPF, kernel modules that register hooks themselves.

use super::Error;
use super::talk::Talk;
use crate::codec::{Builder, DecodeError, Message};

const HOOK_GET: u16 = 12 << 8; // NFNL_SUBSYS_HOOK, NFNL_MSG_HOOK_GET
const HOOK_NUMBER: u16 = 1;
const HOOK_FUNCTION: u16 = 4;
const HOOK_MODULE: u16 = 5;
const HOOK_CHAIN: u16 = 6;
const CHAIN_TYPE: u16 = 2;
/// `NFNL_HOOK_TYPE_BPF`.
const TYPE_BPF: u32 = 2;

/// `NFPROTO_IPV4`, `NFPROTO_IPV6`.
const FAMILIES: [u8; 2] = [2, 10];

/// A hook that packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// `NF_INET_PRE_ROUTING`.
    Prerouting = 0,
    /// `NF_INET_LOCAL_IN`.
    Input = 1,
    /// `NF_INET_FORWARD`.
    Forward = 2,
    /// `NF_INET_LOCAL_OUT`.
    Output = 3,
    /// `NF_INET_POST_ROUTING`.
    Postrouting = 4,
}

impl Place {
    const ALL: [Place; 5] = [
        Place::Prerouting,
        Place::Input,
        Place::Forward,
        Place::Output,
        Place::Postrouting,
    ];

    /// Whether packets pass it that are neither to nor from this machine.
    pub fn forwards(self) -> bool {
        !matches!(self, Place::Input | Place::Output)
    }

    pub(super) fn from_number(number: u32) -> Option<Place> {
        Place::ALL.into_iter().find(|place| *place as u32 == number)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Place::Prerouting => "prerouting",
            Place::Input => "input",
            Place::Forward => "forward",
            Place::Output => "output",
            Place::Postrouting => "postrouting",
        })
    }
}

/// Something that is hooked in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooked {
    /// For IPv4, for IPv6.
    pub families: [bool; 2],
    /// Where.
    pub place: Place,
    /// The kernel's function, and its module where it is none of the kernel's own.
    pub function: String,
    /// A program of BPF: the function only calls it.
    pub is_bpf: bool,
}

/// All that is hooked in for IPv4 and IPv6; none where the kernel cannot tell. Ten dumps of a few lines.
///
/// # Minimum kernel version
/// 5.14, with `CONFIG_NETFILTER_NETLINK_HOOK`.
///
/// # Errors
/// [`Error::Denied`] without `CAP_NET_ADMIN`; [`Error::Decode`] for an answer that makes no sense.
pub fn hooks() -> Result<Option<Vec<Hooked>>, Error> {
    let what = "list netfilter hooks";
    let Some(mut talk) = Talk::open(libc::NETLINK_NETFILTER, what)? else {
        return Ok(Some(Vec::new()));
    };
    let mut all = Vec::new();
    for (i, family) in FAMILIES.into_iter().enumerate() {
        for place in Place::ALL {
            let mut request = Builder::new();
            request
                .begin(HOOK_GET, 0, &[family, 0, 0, 0])
                .put(HOOK_NUMBER, &(place as u32).to_be_bytes())
                .end()?;
            let told = match talk.dump(&mut request, what, decode_hook) {
                // Nobody has registered for such questions, or the kernel lacks the family.
                Err(e) if matches!(e.errno(), Some(libc::EINVAL | libc::EOPNOTSUPP)) && i == 0 => {
                    return Ok(None);
                }
                Err(e) if matches!(e.errno(), Some(libc::EOPNOTSUPP | libc::ENOENT)) => continue,
                told => told?,
            };
            all.extend(told.into_iter().map(|(function, is_bpf)| Hooked {
                families: [i == 0, i == 1],
                place,
                function,
                is_bpf,
            }));
        }
    }
    Ok(Some(all))
}

/// The function, with its module, and whether it calls a program.
pub(super) fn decode_hook(message: &Message<'_>) -> Result<Option<(String, bool)>, DecodeError> {
    if message.kind != HOOK_GET {
        return Ok(None);
    }
    let (_, attributes) = message.split::<4>("nfgenmsg")?;
    let (mut function, mut module, mut is_bpf) = (String::new(), None, false);
    for a in attributes {
        let a = a?;
        match a.kind {
            HOOK_FUNCTION => function = a.string(),
            HOOK_MODULE => module = Some(a.string()),
            HOOK_CHAIN => {
                for a in a.nested() {
                    let a = a?;
                    if a.kind == CHAIN_TYPE {
                        let kind = u32::from_be_bytes(*a.bytes::<4>("NFNLA_HOOK_INFO_TYPE")?);
                        is_bpf = kind == TYPE_BPF;
                    }
                }
            }
            _ => {}
        }
    }
    if let Some(module) = module.filter(|module| !module.is_empty()) {
        function = format!("{function} [{module}]");
    }
    Ok(Some((function, is_bpf)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Messages;

    /// One hook, as the kernel tells of it.
    fn told(function: &str, module: Option<&str>, kind: Option<u32>) -> Option<(String, bool)> {
        let mut b = Builder::new();
        b.begin(HOOK_GET, 0, &[2, 0, 0, 0]);
        b.put(HOOK_NUMBER, &2u32.to_be_bytes());
        b.put_str(HOOK_FUNCTION, function);
        if let Some(module) = module {
            b.put_str(HOOK_MODULE, module);
        }
        if let Some(kind) = kind {
            let nest = b.open(HOOK_CHAIN);
            b.put(CHAIN_TYPE, &kind.to_be_bytes());
            b.close(nest);
        }
        b.end().unwrap();
        let message = Messages::new(b.as_bytes()).next().unwrap().unwrap();
        decode_hook(&message).unwrap()
    }

    #[test]
    fn hooks_have_their_function_and_module() {
        let said = |text: &str, is_bpf| Some((text.to_owned(), is_bpf));
        let chain = told("nft_do_chain_inet", Some("nf_tables"), Some(1));
        assert_eq!(chain, said("nft_do_chain_inet [nf_tables]", false));
        assert_eq!(
            told("nf_hook_run_bpf", None, Some(TYPE_BPF)),
            said("nf_hook_run_bpf", true)
        );
        assert_eq!(
            told("selinux_ip_forward", None, None),
            said("selinux_ip_forward", false)
        );
    }
}
