//! In which order the members of a bond joined it, by `SIOCBONDSLAVEINFOQUERY`.
//!
//! Netlink does not tell it. A socket's requests are about the network namespace that it was made in, where `/sys/class/net` is about
//! the one that it was mounted in, which may be another; `/proc/net/bonding` has names that depend on another setting.

use nix::net::if_::if_nametoindex;

use super::Error;
use super::ethtool::ask_by;

const INFO: libc::c_ulong = 0x8994;
const MEMBER_INFO: libc::c_ulong = 0x8993;
const WHAT: &str = "read the members of a bond";

/// `struct ifbond`.
#[repr(C)]
#[derive(Default)]
struct Info {
    mode: i32,
    members: i32,
    miimon: i32,
}

/// `struct ifslave`.
#[repr(C)]
#[derive(Default)]
struct MemberInfo {
    place: i32,
    name: [u8; libc::IFNAMSIZ],
    link: i8,
    state: i8,
    failures: u32,
}

/// The interface indices of the members of a bond of this thread's namespace, in the order in which they joined it: that in which its
/// driver numbers them (`bond_for_each_slave`).
///
/// Each member is asked for by itself, so that one which comes or goes meanwhile may be missing, or be there twice. It is announced behind
/// that.
///
/// # Errors
/// [`Error::Io`] where there is no such bond, or a member is gone while it is asked about.
///
/// # Minimum kernel version
/// All that are supported. Anybody may ask (`bond_do_ioctl`).
pub fn members(bond: &str) -> Result<Vec<u32>, Error> {
    let mut info = Info::default();
    // SAFETY: an ifbond is what SIOCBONDINFOQUERY writes.
    if !unsafe { ask_by(INFO, bond, (&raw mut info).cast(), WHAT) }? {
        return Err(gone());
    }
    let mut indices = Vec::new();
    for place in 0..info.members {
        let mut member = MemberInfo {
            place,
            ..MemberInfo::default()
        };
        // SAFETY: an ifslave is what SIOCBONDSLAVEINFOQUERY reads and writes.
        if !unsafe { ask_by(MEMBER_INFO, bond, (&raw mut member).cast(), WHAT) }? {
            return Err(gone());
        }
        let name = member.name.split(|byte| *byte == 0).next();
        let index = if_nametoindex(name.unwrap_or_default());
        indices.push(index.map_err(|e| Error::io(WHAT, e.into()))?);
    }
    Ok(indices)
}

fn gone() -> Error {
    Error::io(WHAT, std::io::Error::from_raw_os_error(libc::ENODEV))
}
